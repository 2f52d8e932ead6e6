//! `amb init`: adds the mailbox to a client's configuration.

mod change;

use std::path::{Path, PathBuf};

use amb_client::ExposeSecret;
use amb_core::doc::RegisterBody;
use amb_core::{AgentName, Card, Code, Mailbox, OfficeError};
use anyhow::Context;
use serde_json::json;

use self::change::{FileChange, WrittenFile};
use crate::args::{OfficeArgs, OfficeOrigin};
use crate::failure::Failure;
use crate::init::nanobot::{self, Section};
use crate::init::{
    ClientAccount, ConfigFile, Extra, Hooks, InitClient, PROGRAM, Places, Scope, Setting, flag_at, server_at,
};
use crate::output::Output;
use crate::{durable, home, household, keys, profile};

/// Configure a client to use a mailbox: shows the change, keeps a backup and registers the agent
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  amb init codex                                       the agent is called codex
  amb init claude-code --as reviewer --dry-run         show what would change in .mcp.json
  amb init codex --as coder --server http://127.0.0.1:8000
  amb init openclaw --as claw --bridge                 and open the route by which mail wakes it
  amb init nanobot --as coder                          the tools, or the channel of amb-mailbox
  amb init gemini --as ann --no-hooks
  amb init opencode --as ben --scope project           also a plugin that wakes it
  amb init claude-code --plugin --scope user           allow the tools of our plugin, which brings the rest
  amb init codex --undo

docs/init.md lists what is written for which client.")]
pub(crate) struct InitCommand {
    /// The client to configure
    #[arg(value_enum)]
    client: InitClient,
    /// Name of the MCP server in the client's configuration
    #[arg(long, value_name = "NAME", default_value = "mailbox")]
    name: String,
    /// Which configuration to change [default: project for claude-code, user for all others]
    #[arg(long, value_enum, value_name = "SCOPE", conflicts_with = "config")]
    scope: Option<Scope>,
    /// Path of the configuration file, if it is not in its default place
    #[arg(long, value_name = "PATH")]
    config: Option<PathBuf>,
    /// openclaw: also enable the gateway endpoint that `amb bridge openclaw` uses
    #[arg(long)]
    bridge: bool,
    /// nanobot: configure the mailbox channel of the Python package amb-mailbox and no MCP server; detected if nanobot is
    /// on the PATH. claude-code: the plugin of this project is installed and brings the server; only allow its tools
    #[arg(long)]
    plugin: bool,
    /// Write hooks that report new mail between two steps, even if the client can be woken without them
    #[arg(long, conflicts_with = "no_hooks")]
    hooks: bool,
    /// Write no hooks
    #[arg(long)]
    no_hooks: bool,
    /// Write only the MCP server: no permission rules, no hooks, no instructions for models
    #[arg(long)]
    server_only: bool,
    /// Show the change without making it
    #[arg(long, visible_alias = "print")]
    dry_run: bool,
    /// Remove what init wrote; later changes by others are kept
    #[arg(long)]
    undo: bool,
}

impl InitCommand {
    pub(crate) async fn run(self, office: &OfficeArgs, output: Output) -> Result<(), Failure> {
        // Held to the end, so that of two processes neither overwrites the other's change of a client's file.
        let _lock = match self.dry_run {
            true => None,
            false => {
                let lock = durable::open_lock(&keys::path()?.with_file_name("init.lock"))?;
                lock.file().lock().map_err(anyhow::Error::from)?;
                Some(lock)
            }
        };
        let config = self.open_config()?;
        if self.undo {
            return self.undo(config, output);
        }
        let section = match self.client {
            InitClient::Nanobot => nanobot::section(config.text()).map_err(|error| in_file(&config, error))?,
            _ => None,
        };
        // Arguments may be left out where nanobot's configuration has them.
        let office = &match &section {
            Some(section) => complete_from(section, office)?,
            None => office.clone(),
        };
        let (name, is_given) = self.agent_name(office, &config).await?;
        let account = self.account(office, name.clone())?;
        let mut settings = self.client.settings(&account, &self.name, self.bridge).map_err(usage)?;
        self.check_not_taken(&config, &settings)?;
        let warnings = self.warnings(&account, &config)?;
        if self.server_only {
            // These allow the tools. A choice that is in the file stays.
            let server = self.client.path(&self.name);
            settings.iter_mut().filter(|setting| setting.path == server).for_each(|setting| setting.defaults.clear());
        } else {
            settings.extend(self.client.more_settings(&account, &self.name, self.hooks()));
        }
        // Everything is planned before anything is written, so that errors are found first.
        let mut changes = vec![FileChange::adding(config, settings)?];
        if !self.server_only {
            for Extra { path, format, settings } in self.extras(&account, self.hooks())? {
                changes.push(FileChange::adding(ConfigFile::open(path, format)?, settings)?);
            }
        }
        let registered = !self.dry_run && register(office, &name, section.as_ref(), output).await?;
        let written = changes.into_iter().map(|change| change.write(self.dry_run)).collect::<Result<Vec<_>, _>>()?;
        let (main, extras) = written.split_first().context("a client has a file")?;
        if output.json {
            let document = json!({
                "path": main.path, "changed": main.changed, "dry_run": self.dry_run, "diff": main.diff,
                "backup": main.backup, "agent": name, "registered": registered, "warnings": warnings,
                "files": extras,
            });
            return Ok(output.document(&document)?);
        }
        if !is_given {
            output.note(format!("the agent is {name}; --as NAME gives it another name"));
        }
        self.show(main, extras, output)?;
        for warning in warnings {
            output.note(format!("warning: {warning}"));
        }
        if !self.dry_run {
            output.note(self.next_step(account.has_plugin));
        }
        Ok(())
    }

    /// Reasons why the client will not work although its file is right.
    fn warnings(&self, account: &ClientAccount, config: &ConfigFile) -> Result<Vec<String>, Failure> {
        let mut warnings = Vec::new();
        if account.has_plugin && self.client == InitClient::Nanobot {
            let server = server_at(config.format, config.text(), &self.client.path(&self.name));
            let server = server.map_err(|error| in_file(config, error))?;
            if server.is_some() {
                warnings.push(format!(
                    "tools.mcpServers.{} is there from before, and the channel has tools of its own: `amb init nanobot --undo` \
                     takes it out, then run this again",
                    self.name
                ));
            }
        } else if account.command == PROGRAM && !is_on_path(PROGRAM) {
            warnings.push(format!(
                "{PROGRAM} is not on your PATH, and this file starts it by its name: put it into a directory of the PATH, or use \
                 --scope user"
            ));
        }
        Ok(warnings)
    }

    /// Removes our settings from all files, hooks included, whether or not this command would write them.
    fn undo(&self, config: ConfigFile, output: Output) -> Result<(), Failure> {
        // Any account will do: only the paths of the settings matter.
        let nobody = ClientAccount {
            me: AgentName::parse("nobody").map_err(anyhow::Error::from)?,
            command: "amb".into(),
            directory: Some(PathBuf::from("/")),
            layout: None,
            server: None,
            is_local: false,
            environment: Vec::new(),
            has_plugin: self.plugin && self.client == InitClient::ClaudeCode,
        };
        let mut settings = self.client.settings(&nobody, &self.name, self.bridge).map_err(usage)?;
        self.check_not_taken(&config, &settings)?;
        settings.extend(self.client.more_settings(&nobody, &self.name, Hooks::Always));
        let main = FileChange::removing(config, settings)?.write_undo(self.dry_run)?;
        let mut extras = Vec::new();
        for Extra { path, format, settings } in self.extras(&nobody, Hooks::Always)? {
            let change = FileChange::removing(ConfigFile::open(path, format)?, settings)?;
            extras.push(change.write_undo(self.dry_run)?);
        }
        if output.json {
            let document = json!({
                "path": main.path, "changed": main.changed, "dry_run": self.dry_run, "diff": main.diff,
                "files": extras,
            });
            return Ok(output.document(&document)?);
        }
        self.show(&main, &extras, output)
    }

    /// Shows the changes: the file with the servers in any case, others where they changed.
    fn show(&self, main: &WrittenFile, extras: &[WrittenFile], output: Output) -> Result<(), Failure> {
        if main.diff.is_empty() {
            output.note(format!("{}: nothing to change", main.path.display()));
        } else {
            main.show(self.dry_run, output)?;
        }
        extras.iter().filter(|file| file.changed).try_for_each(|file| file.show(self.dry_run, output))
    }

    fn scope(&self) -> Scope {
        self.scope.unwrap_or_else(|| self.client.default_scope())
    }

    fn hooks(&self) -> Hooks {
        match (self.hooks, self.no_hooks) {
            (true, _) => Hooks::Always,
            (_, true) => Hooks::Never,
            _ => Hooks::Default,
        }
    }

    /// The additional files. Where a file was named, the paths of the others are unknown.
    fn extras(&self, account: &ClientAccount, hooks: Hooks) -> Result<Vec<Extra>, Failure> {
        match self.config {
            Some(_) => Ok(Vec::new()),
            None => Ok(self.client.extras(account, &self.name, self.scope(), &places()?, hooks)),
        }
    }

    fn open_config(&self) -> Result<ConfigFile, Failure> {
        // A scope excludes --config, so with a path that was given this is the default scope, which every client has.
        let (path, format) = self.client.config_file(self.scope(), &places()?).map_err(usage)?;
        Ok(ConfigFile::open(self.config.clone().unwrap_or(path), format)?)
    }

    /// Refuses to replace another server of the same name.
    fn check_not_taken(&self, config: &ConfigFile, settings: &[Setting]) -> Result<(), Failure> {
        let path = self.client.path(&self.name);
        // nanobot's channel is no server, and the user's own section of it is expected.
        if settings.first().is_none_or(|setting| setting.path != path) {
            return Ok(());
        }
        let server = server_at(config.format, config.text(), &path).map_err(|error| in_file(config, error))?;
        match server {
            Some(command) if !is_ours(&command) => {
                let taken = format!(
                    "{} has a server {:?} already, which runs {command}; choose another name with --name",
                    config.path.display(),
                    self.name
                );
                Err(OfficeError::new(Code::Conflict, taken).into())
            }
            _ => Ok(()),
        }
    }

    /// The agent that was named, else the one whose key the environment has, else the one for which the client is
    /// configured already, else one with the client's name. Also returns whether it was given.
    async fn agent_name(&self, office: &OfficeArgs, config: &ConfigFile) -> Result<(AgentName, bool), Failure> {
        if let Some(name) = &office.me {
            return Ok((name.clone(), true));
        }
        if office.server.is_some() && profile::key_from_env().is_some() {
            return Ok((office.open().await?.me().clone(), true));
        }
        let configured = flag_at(config.format, config.text(), &self.client.path(&self.name), "--as");
        let configured = configured.map_err(|error| in_file(config, error))?;
        let name = AgentName::parse(&configured.unwrap_or_else(|| self.client.name())).ok();
        Ok((name.ok_or_else(|| Failure::usage("say who the client is: --as NAME"))?, false))
    }

    fn account(&self, office: &OfficeArgs, me: AgentName) -> Result<ClientAccount, Failure> {
        let shared = self.config.is_none() && self.scope() == Scope::Project;
        let command = match std::env::current_exe() {
            // A project's file is shared, so the path of this binary does not belong in it.
            Ok(path) if !shared => path.display().to_string(),
            _ => PROGRAM.to_owned(),
        };
        let is_local = office.origin == OfficeOrigin::Local || office.names_local();
        let mut environment = Vec::new();
        // The key is in the configuration directory, and the address of the local office in others. A client starts its
        // servers with HOME and PATH and little else.
        for (variable, directory) in home::moved_directories()? {
            if office.server.is_some() && (is_local || variable == home::CONFIG_HOME) {
                // In a shared file, Claude Code expands the variable for each user.
                let is_expanded = shared && self.client == InitClient::ClaudeCode;
                let value = if is_expanded { format!("${{{variable}:-}}") } else { directory.display().to_string() };
                environment.push((variable, value));
            }
        }
        if self.client == InitClient::Codex && !shared {
            // Codex passes little of its environment to its servers, and `codex queue` must find the same threads.
            environment.push(("CODEX_HOME", places()?.codex_home.display().to_string()));
        }
        if let Some(config) = &self.config
            && self.client == InitClient::Nanobot
            && office.server.is_none()
        {
            // `amb mcp` follows what that file says about the mailbox, too, and looks in the default place otherwise.
            let path = std::path::absolute(config).context("the configuration's path")?;
            environment.push((home::NANOBOT_CONFIG, path.display().to_string()));
        }
        let directory = match &office.server {
            Some(_) => None,
            None => Some(std::path::absolute(office.root()?).context("the office's directory")?),
        };
        Ok(ClientAccount {
            me,
            command,
            directory,
            layout: office.layout.map(|layout| layout.to_string()),
            server: office.server.as_ref().map(ToString::to_string),
            is_local,
            environment,
            has_plugin: self.has_plugin()?,
        })
    }

    /// Whether the client is a nanobot with the mailbox channel, or a Claude Code with our plugin.
    fn has_plugin(&self) -> Result<bool, Failure> {
        match self.client {
            InitClient::Nanobot => {
                let path = std::env::var_os("PATH").unwrap_or_default();
                Ok(self.plugin || nanobot::has_plugin(&path, &home::user()?))
            }
            InitClient::ClaudeCode => Ok(self.plugin),
            _ if self.plugin => Err(Failure::usage("--plugin is for nanobot and claude-code")),
            _ => Ok(false),
        }
    }

    fn next_step(&self, has_plugin: bool) -> String {
        let step = match self.client {
            InitClient::ClaudeCode if has_plugin => {
                "install the plugin in claude (docs/init.md says how), with AMB_AS or ~/.config/amb/config.toml naming the agent"
            }
            InitClient::ClaudeCode => {
                &format!("start claude here, approve the server {:?}, and ask it to check its mailbox", self.name)
            }
            InitClient::Gemini => {
                "start gemini anew in a folder that it trusts (it starts no servers in others; `/permissions \
                               trust` there, or answer its question), and ask it to check its mailbox"
            }
            InitClient::Openclaw if self.bridge => {
                "restart the gateway, and keep `amb bridge openclaw` running so that mail wakes the agent"
            }
            InitClient::Openclaw => "restart the gateway; `amb init openclaw --bridge` lets mail wake the agent too",
            InitClient::Nanobot if has_plugin => "restart nanobot's gateway; it hears its mail by itself",
            InitClient::Nanobot => {
                "restart nanobot's gateway and ask it to check its mailbox; with the Python package amb-mailbox it hears \
                 its mail by itself (docs/nanobot.md)"
            }
            InitClient::Opencode => "start opencode anew; a plugin of ours wakes it when there is mail",
            InitClient::Copilot => &format!(
                "start copilot with `--allow-tool {}`, so that it need not ask each time, and ask it to check its mailbox",
                self.name
            ),
            _ => "start the client anew and ask it to check its mailbox",
        };
        format!("next: {step}")
    }
}

/// The office as it was given, completed by nanobot's configuration.
fn complete_from(section: &Section, office: &OfficeArgs) -> Result<OfficeArgs, Failure> {
    let mut office = office.clone();
    if let (None, Some(agent)) = (&office.me, &section.agent) {
        office.me = Some(AgentName::parse(agent).map_err(|error| usage(error.into()))?);
    }
    // An office that merely runs on this machine was not named.
    let is_named = (office.dir.is_some() || office.server.is_some()) && office.origin != OfficeOrigin::Local;
    match &section.server {
        Some(server) if !is_named => {
            (office.server, office.dir, office.origin) = (Some(server.parse()?), None, OfficeOrigin::Explicit);
        }
        Some(server) if office.server.is_none() => {
            return Err(Failure::usage(format!(
                "channels.mailbox.serverUrl names {server}, and nanobot's channel follows that before any directory: take it out of \
                 the file, or leave the directory out"
            )));
        }
        None if !is_named => {
            if let Some(root) = section.root(&home::user()?) {
                (office.dir, office.server) = (Some(root), None);
            }
        }
        _ => {}
    }
    Ok(office)
}

/// Registers the agent if it is unknown; returns whether it was. Its key at a server is stored apart from the client's
/// configuration, which may be shared.
async fn register(
    office: &OfficeArgs,
    name: &AgentName,
    section: Option<&Section>,
    output: Output,
) -> Result<bool, Failure> {
    let office = OfficeArgs { me: Some(name.clone()), ..office.clone() };
    let Some(server) = &office.server else {
        let account = office.open().await?;
        let is_new = ensure_registered(&*account, section).await?;
        if is_new {
            output.note(format!("{name} is registered at {}", account.describe()));
        }
        return Ok(is_new);
    };
    if keys::find(server, name)?.is_some() {
        // Checks that the server accepts the key.
        office.open().await?;
        return Ok(false);
    }
    let key = match profile::key_from_env() {
        Some(key) => {
            let account = office.open().await?;
            if account.me() != name {
                let detail = format!("the key in MAILBOX_API_KEY is {}'s, not {name}'s", account.me());
                return Err(Failure::usage(detail));
            }
            key
        }
        None => {
            let card = section.map_or_else(Card::default, |section| section.card(Card::default()));
            // The same variable that `amb register` reads.
            let registration_token = std::env::var("AMB_REGISTRATION_TOKEN").ok();
            let household = household::token_to_join(&office, server, false)?;
            let household_token = household.map(|token| token.expose_secret().to_owned());
            let body = RegisterBody { registration_token, household_token, ..RegisterBody::new(name, card) };
            amb_client::register(server, &body).await?.api_key
        }
    };
    let path = keys::store(server, name, key.expose_secret())?;
    output.note(format!("{name}'s key at {server} is kept in {}", path.display()));
    Ok(true)
}

/// Registers the account's agent in a directory if it is unknown, so that others can reply to it. The card has the
/// settings of nanobot's configuration; one that differs from them is updated. Returns whether the agent was unknown.
pub(crate) async fn ensure_registered(account: &dyn Mailbox, section: Option<&Section>) -> Result<bool, OfficeError> {
    let agents = account.agents().await?;
    let known = agents.into_iter().find(|agent| agent.name == *account.me()).map(|agent| agent.card);
    let is_new = known.is_none();
    let present = known.clone().unwrap_or_default();
    let card = section.map_or_else(|| present.clone(), |section| section.card(present.clone()));
    if let Some(allowed) = section.and_then(|section| section.narrower(&present)) {
        let allowed = if allowed.is_empty() { "nobody".to_owned() } else { allowed.join(", ") };
        let me = account.me();
        tracing::warn!(
            "nanobot's configuration lets everybody write to {me} (allowFrom *), and its card hears {allowed} alone: the card \
             stays; `amb register {me} --allow-from '*'` opens it"
        );
    }
    if known.as_ref() == Some(&card) {
        return Ok(false);
    }
    match account.register(card).await {
        Ok(_) => Ok(is_new),
        // A layout without cards needs none.
        Err(error) if error.code() == Code::Unsupported => Ok(false),
        Err(error) => Err(error),
    }
}

/// The directories of clients, from the environment.
pub(crate) fn places() -> Result<Places, Failure> {
    let home = home::user()?;
    let openclaw_state = || variable("OPENCLAW_STATE_DIR").unwrap_or_else(|| home.join(".openclaw"));
    Ok(Places {
        project: std::env::current_dir().context("the current directory")?,
        config_home: home::config_home()?,
        codex_home: variable("CODEX_HOME").unwrap_or_else(|| home.join(".codex")),
        copilot_home: variable("COPILOT_HOME").unwrap_or_else(|| home.join(".copilot")),
        openclaw_config: variable("OPENCLAW_CONFIG_PATH").unwrap_or_else(|| openclaw_state().join("openclaw.json")),
        home,
    })
}

/// Whether a program of this name is on the `PATH`.
pub(crate) fn is_on_path(program: &str) -> bool {
    let path = std::env::var_os("PATH").unwrap_or_default();
    std::env::split_paths(&path).any(|directory| directory.join(program).is_file())
}

fn variable(name: &str) -> Option<PathBuf> {
    std::env::var_os(name).filter(|value| !value.is_empty()).map(PathBuf::from)
}

/// Whether a client's command runs this program, also where it was installed under another name.
fn is_ours(command: &str) -> bool {
    let command = Path::new(command);
    command.file_stem().is_some_and(|stem| stem == PROGRAM) || std::env::current_exe().is_ok_and(|me| me == command)
}

/// An error in the client's file, which it names.
fn in_file(config: &ConfigFile, error: anyhow::Error) -> Failure {
    usage(error.context(config.path.display().to_string()))
}

fn usage(error: anyhow::Error) -> Failure {
    Failure::usage(format!("{error:#}"))
}
