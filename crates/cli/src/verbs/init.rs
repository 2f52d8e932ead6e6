//! `amb init`: adds the mailbox to a client's configuration.

mod besides;

use std::path::{Path, PathBuf};

use amb_client::ExposeSecret;
use amb_core::{AgentName, Card, Code, Mailbox, OfficeError};
use anyhow::Context;
use clap::ValueEnum;
use serde_json::json;

use crate::args::{OfficeArgs, OfficeOrigin};
use crate::failure::Failure;
use crate::init::nanobot::{self, Section};
use crate::init::{
    ClientAccount, ConfigFile, ConfigValue, Hooks, InitClient, PROGRAM, Places, Scope, Setting, agent_at, diff,
    server_at,
};
use crate::output::Output;
use crate::{home, household, keys, profile};

/// Give a client its mailbox: shows the change, keeps a backup, registers the agent
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  amb init codex                                       the agent is called codex
  amb init claude-code --as reviewer --dry-run         show what would change in .mcp.json
  amb init codex --as coder --server http://127.0.0.1:8000
  amb init openclaw --as claw --bridge                 and open the route by which mail wakes it
  amb init nanobot --as coder                          the mailbox channel, where amb-mailbox is installed
  amb init gemini --as ann --no-hooks
  amb init opencode --as ben --scope project           also a plugin that wakes it
  amb init claude-code --plugin --scope user           allow the tools of our plugin, which brings the rest
  amb init codex --undo

docs/init.md lists what is written for which client.")]
pub(crate) struct InitCommand {
    /// The client
    #[arg(value_enum)]
    client: InitClient,
    /// The name of the server in the client's configuration
    #[arg(long, value_name = "NAME", default_value = "mailbox")]
    name: String,
    /// Whose configuration; the project's for claude-code, the user's for the others
    #[arg(long, value_enum, value_name = "SCOPE", conflicts_with = "config")]
    scope: Option<Scope>,
    /// The file, where it is not in its usual place
    #[arg(long, value_name = "PATH")]
    config: Option<PathBuf>,
    /// openclaw: also open the gateway's route that `amb bridge openclaw` uses
    #[arg(long)]
    bridge: bool,
    /// nanobot: its mailbox channel (the Python package amb-mailbox) is installed, so it needs no tools by MCP; seen by itself
    /// where nanobot is on the PATH. claude-code: our plugin brings the server, so only its tools are allowed
    #[arg(long)]
    plugin: bool,
    /// Have the client's hooks tell of mail between two steps, also where it has a better way
    #[arg(long, conflicts_with = "no_hooks")]
    hooks: bool,
    /// Write no hooks
    #[arg(long)]
    no_hooks: bool,
    /// Only the server: no permission rules, no hooks, nothing for models to read
    #[arg(long)]
    server_only: bool,
    /// Show the change and make none
    #[arg(long, visible_alias = "print")]
    dry_run: bool,
    /// Take the mailbox out again; what others wrote since stays
    #[arg(long)]
    undo: bool,
}

impl InitCommand {
    pub(crate) async fn run(self, office: &OfficeArgs, output: Output) -> Result<(), Failure> {
        let config = self.open_config()?;
        if self.undo {
            return self.undo(&config, output);
        }
        let section = match self.client {
            InitClient::Nanobot => nanobot::section(config.text()).map_err(usage)?,
            _ => None,
        };
        // Arguments may be left out where nanobot's configuration has them.
        let office = &section.as_ref().map_or_else(|| Ok(office.clone()), |section| said_before(office, section))?;
        let (name, is_said) = self.speaker(office, &config).await?;
        let account = self.account(office, name.clone())?;
        let mut settings = self.client.settings(&account, &self.name, self.bridge).map_err(usage)?;
        self.check_not_taken(&config, &settings)?;
        settings.extend(self.more_settings(&account));
        let plan = config.with(&settings).map_err(usage)?;
        let besides = self.besides(&account)?;
        let change = diff(&plan.old, plan.new.as_deref().unwrap_or(""));
        let registered = if self.dry_run { None } else { register(office, &name, section.as_ref(), output).await? };
        let warnings = self.warnings(&account, &config)?;
        let mut backup = None;
        if plan.changes() && !self.dry_run {
            backup = config.keep_backup(&settings)?;
            config.carry_out(&plan)?;
        }
        let besides = besides::write(besides, self.dry_run)?;
        if output.json {
            let document = json!({
                "path": config.path, "changed": plan.changes(), "dry_run": self.dry_run, "diff": change,
                "backup": backup, "agent": name, "registered": registered.unwrap_or(false), "warnings": warnings,
                "files": besides,
            });
            return Ok(output.document(&document)?);
        }
        if !is_said {
            output.note(format!("the agent is {name}; --as NAME gives it another name"));
        }
        tell(output, &config, &change, self.dry_run)?;
        if let Some(backup) = backup {
            output.note(format!("what was there before is kept in {}", backup.display()));
        }
        besides::tell_all(&besides, output)?;
        for warning in warnings {
            output.note(format!("warning: {warning}"));
        }
        if !self.dry_run {
            output.note(self.next_step(account.has_plugin));
        }
        Ok(())
    }

    /// What will keep the client from working although its file is right.
    fn warnings(&self, account: &ClientAccount, config: &ConfigFile) -> Result<Vec<String>, Failure> {
        let mut warnings = Vec::new();
        if account.has_plugin && self.client == InitClient::Nanobot {
            let tools = InitClient::Nanobot
                .settings(&ClientAccount { has_plugin: false, ..account.clone() }, &self.name, false)
                .map_err(usage)?;
            let there =
                tools.first().map(|tools| server_at(config.format, config.text(), tools)).transpose().map_err(usage)?;
            if there.flatten().is_some() {
                warnings.push(format!(
                    "tools.mcpServers.{} is there from before, and the channel has tools of its own: `amb init nanobot --undo` \
                     takes it out, then run this again",
                    self.name
                ));
            }
            return Ok(warnings);
        }
        if account.command == PROGRAM && !is_on_path(PROGRAM) {
            warnings.push(format!(
                "{PROGRAM} is not on your PATH, and this file starts it by its name: put it into a directory of the PATH, or use \
                 --scope user"
            ));
        }
        Ok(warnings)
    }

    fn undo(&self, config: &ConfigFile, output: Output) -> Result<(), Failure> {
        // Any account will do: only the paths of the settings matter.
        let nobody = ClientAccount {
            me: AgentName::parse("nobody").map_err(anyhow::Error::from)?,
            command: "amb".into(),
            directory: Some(PathBuf::from("/")),
            layout: None,
            server: None,
            environment: Vec::new(),
            has_plugin: self.plugin && self.client == InitClient::ClaudeCode,
        };
        let mut settings = self.client.settings(&nobody, &self.name, self.bridge).map_err(usage)?;
        self.check_not_taken(config, &settings)?;
        settings.extend(self.client.more_settings(&nobody, &self.name, Hooks::Always));
        let plan = config.without(&settings).map_err(usage)?;
        let change = diff(&plan.old, plan.new.as_deref().unwrap_or(""));
        if plan.changes() && !self.dry_run {
            config.carry_out(&plan)?;
            config.drop_backup()?;
        }
        let besides = self.undo_besides(&nobody)?;
        if output.json {
            let document = json!({
                "path": config.path, "changed": plan.changes(), "dry_run": self.dry_run, "diff": change,
                "files": besides,
            });
            return Ok(output.document(&document)?);
        }
        tell(output, config, &change, self.dry_run)?;
        besides::tell_all(&besides, output)
    }

    fn open_config(&self) -> Result<ConfigFile, Failure> {
        let scope = self.scope.unwrap_or_else(|| self.client.usual_scope());
        let places = places()?;
        let (usual, format) = match &self.config {
            // The scope only selects the path, which was given.
            Some(_) => self.client.place(self.client.usual_scope(), &places),
            None => self.client.place(scope, &places),
        }
        .map_err(usage)?;
        Ok(ConfigFile::open(self.config.clone().unwrap_or(usual), format)?)
    }

    /// Refuses to replace another server of the same name.
    fn check_not_taken(&self, config: &ConfigFile, settings: &[Setting]) -> Result<(), Failure> {
        let path = self.client.path(&self.name);
        // nanobot's channel is no server, and the user's own section of it is expected.
        let Some(first) = settings.first().filter(|setting| setting.path == path) else { return Ok(()) };
        let there = server_at(config.format, config.text(), first)
            .with_context(|| config.path.display().to_string())
            .map_err(usage)?;
        match there {
            Some(command) if Path::new(&command).file_stem().is_none_or(|stem| stem != PROGRAM) => {
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

    /// The agent that was named, or the one whose key the environment has, or the one that the client speaks for already; else
    /// one with the client's name. Also returns whether it was given.
    async fn speaker(&self, office: &OfficeArgs, config: &ConfigFile) -> Result<(AgentName, bool), Failure> {
        if let Some(name) = &office.me {
            return Ok((name.clone(), true));
        }
        if office.server.is_some() && profile::key_from_env().is_some() {
            return Ok((office.open().await?.me().clone(), true));
        }
        let server = Setting::new(&self.client.path(&self.name), ConfigValue::text(""));
        let before = agent_at(config.format, config.text(), &server).map_err(usage)?;
        let name = before.or_else(|| Some(self.client.to_possible_value()?.get_name().to_owned()));
        let name = name.and_then(|name| AgentName::parse(&name).ok());
        Ok((name.ok_or_else(|| Failure::usage("say who the client is: --as NAME"))?, false))
    }

    fn account(&self, office: &OfficeArgs, me: AgentName) -> Result<ClientAccount, Failure> {
        let shared = self.config.is_none() && self.scope.unwrap_or_else(|| self.client.usual_scope()) == Scope::Project;
        let command = match std::env::current_exe() {
            // A project's file is shared, so the path of this binary does not belong in it.
            Ok(path) if !shared => path.display().to_string(),
            _ => PROGRAM.to_owned(),
        };
        // The key is in the configuration directory. A client starts its servers with HOME and PATH and little else.
        let moved = variable("XDG_CONFIG_HOME").filter(|place| place.is_absolute() && office.server.is_some());
        let moved = match moved {
            Some(place) if place != home::user()?.join(".config") => Some(place),
            _ => None,
        };
        let value = |place: PathBuf| match self.client {
            // Expanded by each user who shares this file.
            InitClient::ClaudeCode if shared => "${XDG_CONFIG_HOME:-}".to_owned(),
            _ => place.display().to_string(),
        };
        let mut environment: Vec<_> = moved.into_iter().map(|place| ("XDG_CONFIG_HOME", value(place))).collect();
        if self.client == InitClient::Codex && !shared {
            // Codex gives its servers little of its environment, and `codex queue` must find the same threads.
            let home = match variable("CODEX_HOME") {
                Some(home) => home,
                None => home::user()?.join(".codex"),
            };
            environment.push(("CODEX_HOME", home.display().to_string()));
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
            environment,
            has_plugin: self.has_plugin()?,
        })
    }

    /// Whether the client is a nanobot with the mailbox channel, or a Claude Code with our plugin.
    fn has_plugin(&self) -> Result<bool, Failure> {
        match self.client {
            InitClient::Nanobot => {}
            InitClient::ClaudeCode => return Ok(self.plugin),
            _ if self.plugin => return Err(Failure::usage("--plugin is for nanobot and claude-code")),
            _ => return Ok(false),
        }
        let path = std::env::var_os("PATH").unwrap_or_default();
        Ok(self.plugin || nanobot::has_plugin(&path, &home::user()?))
    }

    fn next_step(&self, has_plugin: bool) -> String {
        match self.client {
            InitClient::ClaudeCode if has_plugin => {
                "next: install the plugin in claude (docs/init.md says how), with AMB_AS or ~/.config/amb/config.toml naming the agent"
                    .into()
            }
            InitClient::ClaudeCode => {
                format!("next: start claude here, approve the server {:?}, and ask it to check its mailbox", self.name)
            }
            InitClient::Codex | InitClient::Cursor => "next: start the client anew and ask it to check its mailbox".into(),
            InitClient::Gemini => {
                "next: start gemini anew in a folder that it trusts (it starts no servers in others; `/permissions \
                               trust` there, or answer its question), and ask it to check its mailbox"
                    .into()
            }
            InitClient::Openclaw if self.bridge => {
                "next: restart the gateway, and keep `amb bridge openclaw` running so that mail wakes the agent".into()
            }
            InitClient::Openclaw => {
                "next: restart the gateway; `amb init openclaw --bridge` lets mail wake the agent too".into()
            }
            InitClient::Nanobot if has_plugin => "next: restart nanobot's gateway; it hears its mail by itself".into(),
            InitClient::Nanobot => {
                "next: restart nanobot's gateway and ask it to check its mailbox; with the Python package amb-mailbox it hears \
                 its mail by itself (docs/nanobot.md)"
                    .into()
            }
            InitClient::Opencode => "next: start opencode anew; a plugin of ours wakes it when there is mail".into(),
            InitClient::Copilot => format!(
                "next: start copilot with `--allow-tool {}`, so that it need not ask each time, and ask it to check its mailbox",
                self.name
            ),
            InitClient::Qwen | InitClient::Windsurf | InitClient::Zed | InitClient::Vscode => {
                "next: start the client anew and ask it to check its mailbox".into()
            }
        }
    }
}

/// The office as it was given, completed by nanobot's configuration.
fn said_before(office: &OfficeArgs, section: &Section) -> Result<OfficeArgs, Failure> {
    let mut office = office.clone();
    if office.me.is_none()
        && let Some(agent) = section.agent()
    {
        office.me = Some(AgentName::parse(agent).map_err(|error| usage(error.into()))?);
    }
    // An office that merely runs on this machine was not named.
    let is_named = (office.dir.is_some() || office.server.is_some()) && office.origin != OfficeOrigin::Local;
    match section.server() {
        Some(server) if !is_named => {
            (office.server, office.dir, office.origin) = (Some(server.parse()?), None, OfficeOrigin::Said);
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

fn tell(output: Output, config: &ConfigFile, change: &str, dry_run: bool) -> Result<(), Failure> {
    let path = config.path.display();
    if change.is_empty() {
        output.note(format!("{path}: nothing to change"));
        return Ok(());
    }
    output.note(format!("{path}{}", if dry_run { " (not changed: --dry-run)" } else { "" }));
    Ok(output.say(change.trim_end())?)
}

/// Registers the agent if it is unknown; returns whether it was. Its key at a server is stored apart from the client's
/// configuration, which may be shared.
async fn register(
    office: &OfficeArgs,
    name: &AgentName,
    section: Option<&Section>,
    output: Output,
) -> Result<Option<bool>, Failure> {
    let office = OfficeArgs { me: Some(name.clone()), ..office.clone() };
    if let Some(server) = &office.server
        && keys::find(server, name)?.is_none()
    {
        let path = match profile::key_from_env() {
            Some(key) => {
                let account = office.open().await?;
                if account.me() != name {
                    return Err(Failure::usage(format!(
                        "the key in MAILBOX_API_KEY is {}'s, not {name}'s",
                        account.me()
                    )));
                }
                keys::keep(server, name, key.expose_secret())?
            }
            None => {
                let card = section.map_or_else(Card::default, |section| section.card(Card::default()));
                // The same variable that `amb register` reads.
                let token = std::env::var("AMB_REGISTRATION_TOKEN").ok();
                let household = household::joining(&office, server, false)?;
                let registered = amb_client::register(
                    server,
                    name,
                    card,
                    None,
                    token.as_deref(),
                    household.as_ref().map(|token| token.expose_secret()),
                )
                .await?;
                keys::keep(server, name, registered.api_key.expose_secret())?
            }
        };
        output.note(format!("{name}'s key at {server} is kept in {}", path.display()));
        return Ok(Some(true));
    }
    let account = office.open().await?;
    // At a server, a key that works belongs to a registered agent.
    let entered = office.server.is_none() && enlist(&*account, section).await?;
    if entered {
        output.note(format!("{name} is registered at {}", account.describe()));
    }
    Ok(Some(entered))
}

/// Registers the account's agent in a directory if it is unknown, so that it can be answered. Its card is plain, or as nanobot's
/// configuration says; a card that differs from that is updated. Returns whether it was registered.
pub(crate) async fn enlist(account: &dyn Mailbox, section: Option<&Section>) -> Result<bool, OfficeError> {
    let there = account.agents().await?.into_iter().find(|agent| agent.name == *account.me()).map(|agent| agent.card);
    let is_new = there.is_none();
    let present = there.clone().unwrap_or_default();
    let card = section.map_or_else(|| present.clone(), |section| section.card(present.clone()));
    if let Some(heard) = section.and_then(|section| section.narrower(&present)) {
        let (me, heard) = (account.me(), if heard.is_empty() { "nobody".to_owned() } else { heard.join(", ") });
        tracing::warn!(
            "nanobot's configuration lets everybody write to {me} (allowFrom *), and its card hears {heard} alone: the card \
             stays; `amb register {me} --allow-from '*'` opens it"
        );
    }
    if there.as_ref() == Some(&card) {
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
    Ok(Places {
        home: home::user()?,
        project: std::env::current_dir().context("the current directory")?,
        codex_home: variable("CODEX_HOME"),
        openclaw_config: variable("OPENCLAW_CONFIG_PATH")
            .or_else(|| variable("OPENCLAW_STATE_DIR").map(|state| state.join("openclaw.json"))),
        config_home: home::config_home()?,
        copilot_home: variable("COPILOT_HOME"),
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

fn usage(error: anyhow::Error) -> Failure {
    Failure::usage(format!("{error:#}"))
}
