//! The known clients: where each keeps its configuration, and what the mailbox looks like in it.

use std::path::{Path, PathBuf};

use amb_core::AgentName;
use anyhow::{Result, bail};
use clap::ValueEnum;

use super::{ConfigValue, Format, Setting};

/// A client that can get a mailbox.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum InitClient {
    /// Claude Code: .mcp.json of the project, or ~/.claude.json
    ClaudeCode,
    /// Codex: ~/.codex/config.toml, or .codex/config.toml of the project
    Codex,
    /// Gemini CLI: ~/.gemini/settings.json, or .gemini/settings.json of the project
    Gemini,
    /// OpenClaw: ~/.openclaw/openclaw.json
    Openclaw,
    /// nanobot: the section of the mailbox channel, in ~/.nanobot/config.json; the tools too, where the channel is not installed
    Nanobot,
    /// Cursor: ~/.cursor/mcp.json, or .cursor/mcp.json of the project
    Cursor,
    /// opencode: ~/.config/opencode/opencode.json, or opencode.json of the project, and a plugin that wakes it
    Opencode,
    /// Qwen Code: ~/.qwen/settings.json, or .qwen/settings.json of the project
    Qwen,
    /// GitHub Copilot CLI: ~/.copilot/mcp-config.json, or .github/mcp.json of the project
    Copilot,
    /// Windsurf: ~/.codeium/windsurf/mcp_config.json
    Windsurf,
    /// Zed: ~/.config/zed/settings.json, or .zed/settings.json of the project
    Zed,
    /// VS Code: mcp.json of the user, or .vscode/mcp.json of the project
    Vscode,
}

/// The scope of a configuration.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum Scope {
    /// For everything this user does
    User,
    /// For the project in the current directory
    Project,
}

/// The directories in which clients look for their files.
#[derive(Debug, Clone)]
pub(crate) struct Places {
    pub(crate) home: PathBuf,
    pub(crate) project: PathBuf,
    /// Codex's own home, where the environment names one.
    pub(crate) codex_home: Option<PathBuf>,
    /// OpenClaw's configuration file, where the environment names one.
    pub(crate) openclaw_config: Option<PathBuf>,
    /// Where programs that follow XDG keep their configuration.
    pub(crate) config_home: PathBuf,
    /// Copilot's own home, where the environment names one.
    pub(crate) copilot_home: Option<PathBuf>,
}

/// Whose mailbox, in which office, and how it is reached.
#[derive(Debug, Clone)]
pub(crate) struct ClientAccount {
    /// The agent.
    pub(crate) me: AgentName,
    /// The binary that the client starts.
    pub(crate) command: String,
    /// The office's directory, absolute.
    pub(crate) directory: Option<PathBuf>,
    /// The directory's layout, where it was given.
    pub(crate) layout: Option<String>,
    /// The office's address.
    pub(crate) server: Option<String>,
    /// The variables that the client must set, since it passes on little of its own environment.
    pub(crate) environment: Vec<(&'static str, String)>,
    /// Whether a plugin of ours in the client provides the tools: nanobot's mailbox channel, or Claude Code's plugin.
    pub(crate) has_plugin: bool,
}

impl InitClient {
    /// Its default scope: Claude Code keeps its own state in the user's file, and asks for approval of the project's.
    pub(crate) fn usual_scope(self) -> Scope {
        if self == InitClient::ClaudeCode { Scope::Project } else { Scope::User }
    }

    /// Its configuration file.
    pub(crate) fn place(self, scope: Scope, places: &Places) -> Result<(PathBuf, Format)> {
        let at = |base: &Path, rest: &str| base.join(rest);
        let (home, project) = (&places.home, &places.project);
        let path = match (self, scope) {
            (InitClient::ClaudeCode, Scope::Project) => at(project, ".mcp.json"),
            (InitClient::ClaudeCode, Scope::User) => at(home, ".claude.json"),
            (InitClient::Codex, Scope::User) => {
                let base = places.codex_home.clone().unwrap_or_else(|| at(home, ".codex"));
                base.join("config.toml")
            }
            (InitClient::Codex, Scope::Project) => at(project, ".codex/config.toml"),
            (InitClient::Gemini, Scope::User) => at(home, ".gemini/settings.json"),
            (InitClient::Gemini, Scope::Project) => at(project, ".gemini/settings.json"),
            (InitClient::Cursor, Scope::User) => at(home, ".cursor/mcp.json"),
            (InitClient::Cursor, Scope::Project) => at(project, ".cursor/mcp.json"),
            (InitClient::Openclaw, Scope::User) => {
                let own = places.openclaw_config.clone();
                own.unwrap_or_else(|| at(home, ".openclaw/openclaw.json"))
            }
            (InitClient::Nanobot, Scope::User) => at(home, ".nanobot/config.json"),
            (InitClient::Opencode, Scope::User) => first_of(&at(&places.config_home, "opencode"), "opencode"),
            (InitClient::Opencode, Scope::Project) => first_of(project, "opencode"),
            (InitClient::Qwen, Scope::User) => at(home, ".qwen/settings.json"),
            (InitClient::Qwen, Scope::Project) => at(project, ".qwen/settings.json"),
            (InitClient::Copilot, Scope::User) => {
                let base = places.copilot_home.clone().unwrap_or_else(|| at(home, ".copilot"));
                base.join("mcp-config.json")
            }
            (InitClient::Copilot, Scope::Project) => at(project, ".github/mcp.json"),
            (InitClient::Windsurf, Scope::User) => at(home, ".codeium/windsurf/mcp_config.json"),
            // Also on macOS, where Zed keeps to ~/.config.
            (InitClient::Zed, Scope::User) => at(&places.config_home, "zed/settings.json"),
            (InitClient::Zed, Scope::Project) => at(project, ".zed/settings.json"),
            (InitClient::Vscode, Scope::User) => match cfg!(target_os = "macos") {
                true => at(home, "Library/Application Support/Code/User/mcp.json"),
                false => at(&places.config_home, "Code/User/mcp.json"),
            },
            (InitClient::Vscode, Scope::Project) => at(project, ".vscode/mcp.json"),
            (InitClient::Openclaw | InitClient::Nanobot | InitClient::Windsurf, Scope::Project) => {
                bail!(
                    "this client has one configuration for each user; leave --scope out or name the file with --config"
                )
            }
        };
        let format = if self == InitClient::Codex { Format::Toml } else { Format::Json };
        Ok((path, format))
    }

    /// The keys that lead to the mailbox in its file.
    pub(crate) fn path(self, name: &str) -> Vec<&str> {
        match self {
            InitClient::ClaudeCode
            | InitClient::Gemini
            | InitClient::Cursor
            | InitClient::Qwen
            | InitClient::Copilot
            | InitClient::Windsurf => vec!["mcpServers", name],
            InitClient::Opencode => vec!["mcp", name],
            InitClient::Zed => vec!["context_servers", name],
            InitClient::Vscode => vec!["servers", name],
            InitClient::Codex => vec!["mcp_servers", name],
            InitClient::Openclaw => vec!["mcp", "servers", name],
            InitClient::Nanobot => vec!["tools", "mcpServers", name],
        }
    }

    /// The settings for its file. `bridge` is for OpenClaw: the route by which messages wake an idle agent.
    pub(crate) fn settings(self, account: &ClientAccount, name: &str, bridge: bool) -> Result<Vec<Setting>> {
        if bridge && self != InitClient::Openclaw {
            bail!(
                "--bridge is for openclaw; others are woken by `amb bridge exec`, which needs nothing in their files"
            );
        }
        match self {
            InitClient::Nanobot if account.has_plugin => return Ok(vec![channel(account)]),
            // The plugin provides the server.
            InitClient::ClaudeCode if account.has_plugin => return Ok(Vec::new()),
            _ => {}
        }
        let mut server =
            vec![("command", ConfigValue::text(&account.command)), ("args", ConfigValue::Texts(arguments(account)))];
        if !account.environment.is_empty() {
            let variables = account.environment.iter().map(|(name, value)| (*name, ConfigValue::text(value))).collect();
            server.push(("env", ConfigValue::Table(variables)));
        }
        if self == InitClient::Nanobot {
            // It gives a tool 30 seconds by default, and mailbox_wait takes up to 55.
            server.push(("toolTimeout", ConfigValue::Whole(60)));
        }
        let mut entry = Setting::new(&self.path(name), ConfigValue::Table(self.shaped(server, account)));
        // So that a woken agent is not stopped by a permission prompt. The user's own choice stays.
        entry.defaults = match self {
            InitClient::Codex => vec![("default_tools_approval_mode", ConfigValue::text("approve"))],
            InitClient::Gemini | InitClient::Qwen => vec![("trust", ConfigValue::Flag(true))],
            _ => Vec::new(),
        };
        let mut settings = vec![entry];
        if self == InitClient::Nanobot && account.directory.is_some() {
            settings.push(channel(account));
        }
        if bridge {
            settings.push(Setting::new(
                &["gateway", "http", "endpoints", "chatCompletions", "enabled"],
                ConfigValue::Flag(true),
            ));
        }
        Ok(settings)
    }

    /// The server in the client's own form.
    fn shaped(
        self,
        server: Vec<(&'static str, ConfigValue)>,
        account: &ClientAccount,
    ) -> Vec<(&'static str, ConfigValue)> {
        let kind = |kind: &str| ("type", ConfigValue::text(kind));
        match self {
            InitClient::Opencode => {
                let words = std::iter::once(account.command.clone()).chain(arguments(account)).collect();
                let mut shaped =
                    vec![kind("local"), ("command", ConfigValue::Texts(words)), ("enabled", ConfigValue::Flag(true))];
                let variables = server.into_iter().find(|(key, _)| *key == "env");
                shaped.extend(variables.map(|(_, variables)| ("environment", variables)));
                shaped
            }
            InitClient::Vscode => std::iter::once(kind("stdio")).chain(server).collect(),
            InitClient::Copilot => {
                let tools = ("tools", ConfigValue::Texts(vec!["*".into()]));
                std::iter::once(kind("local")).chain(server).chain([tools]).collect()
            }
            _ => server,
        }
    }
}

/// The file of a program that reads `NAME.json` and `NAME.jsonc`: the one that exists.
fn first_of(directory: &Path, name: &str) -> PathBuf {
    let with_comments = directory.join(format!("{name}.jsonc"));
    if with_comments.exists() { with_comments } else { directory.join(format!("{name}.json")) }
}

/// Without a key: that is stored apart, in a private file.
fn arguments(account: &ClientAccount) -> Vec<String> {
    let mut words = vec!["mcp".to_owned()];
    words.extend(office(account));
    words
}

/// The flags that name the office and the agent.
pub(super) fn office(account: &ClientAccount) -> Vec<String> {
    let mut words = Vec::new();
    let mut say = |flag: &str, value: String| words.extend([flag.to_owned(), value]);
    match (&account.directory, &account.server) {
        (Some(directory), _) => say("--dir", directory.display().to_string()),
        (None, Some(server)) => say("--server", server.clone()),
        (None, None) => {}
    }
    if let Some(layout) = &account.layout {
        say("--layout", layout.clone());
    }
    say("--as", account.me.to_string());
    words
}

/// The section of nanobot's mailbox channel. A nanobot without such a channel ignores it. The key for a server is not in it: the
/// channel finds it where `amb` stores it.
fn channel(account: &ClientAccount) -> Setting {
    let office = match (&account.directory, &account.server) {
        (None, Some(server)) => ("serverUrl", ConfigValue::text(server)),
        (directory, _) => {
            let directory = directory.as_deref().unwrap_or(Path::new("~/.nanobot/mailboxes"));
            ("mailboxesRoot", ConfigValue::text(directory.display().to_string()))
        }
    };
    let mut channel = Setting::new(
        &["channels", "mailbox"],
        ConfigValue::Table(vec![
            ("enabled", ConfigValue::Flag(true)),
            ("agentId", ConfigValue::text(account.me.as_str())),
            office,
        ]),
    );
    channel.defaults = vec![("allowFrom", ConfigValue::Texts(vec!["*".into()]))];
    channel
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::init::{apply, revert, test_places as places};

    fn account(server: bool) -> ClientAccount {
        ClientAccount {
            me: "ann".parse().unwrap(),
            command: "/usr/bin/amb".into(),
            directory: (!server).then(|| "/srv/mail".into()),
            layout: None,
            server: server.then(|| "http://127.0.0.1:8000".into()),
            environment: Vec::new(),
            has_plugin: false,
        }
    }

    #[test]
    fn each_client_finds_its_mailbox_where_it_looks() {
        let wanted = [
            (InitClient::ClaudeCode, "/src/app/.mcp.json", "/mcpServers/mailbox/command"),
            (InitClient::Codex, "/home/ann/.codex/config.toml", ""),
            (InitClient::Gemini, "/home/ann/.gemini/settings.json", "/mcpServers/mailbox/command"),
            (InitClient::Openclaw, "/home/ann/.openclaw/openclaw.json", "/mcp/servers/mailbox/command"),
            (InitClient::Cursor, "/home/ann/.cursor/mcp.json", "/mcpServers/mailbox/command"),
            (InitClient::Opencode, "/home/ann/.config/opencode/opencode.json", "/mcp/mailbox/command/0"),
            (InitClient::Qwen, "/home/ann/.qwen/settings.json", "/mcpServers/mailbox/command"),
            (InitClient::Copilot, "/home/ann/.copilot/mcp-config.json", "/mcpServers/mailbox/command"),
            (InitClient::Windsurf, "/home/ann/.codeium/windsurf/mcp_config.json", "/mcpServers/mailbox/command"),
            (InitClient::Zed, "/home/ann/.config/zed/settings.json", "/context_servers/mailbox/command"),
        ];
        for (client, file, pointer) in wanted {
            let (path, format) = client.place(client.usual_scope(), &places()).unwrap();
            assert_eq!(path, Path::new(file));
            let text = apply(format, "", &client.settings(&account(true), "mailbox", false).unwrap()).unwrap();
            if format == Format::Json {
                let value: serde_json::Value = serde_json::from_str(&text).unwrap();
                assert_eq!(value.pointer(pointer).unwrap(), "/usr/bin/amb", "{text}");
            }
            for word in ["mcp", "--server", "http://127.0.0.1:8000", "--as", "ann"] {
                assert!(text.contains(&format!("\"{word}\"")), "{text}");
            }
        }
    }

    #[test]
    fn what_a_client_does_not_pass_on_is_written_for_it() {
        let account = ClientAccount { environment: vec![("XDG_CONFIG_HOME", "/etc/ann".into())], ..account(true) };
        for client in [InitClient::ClaudeCode, InitClient::Codex, InitClient::Openclaw] {
            let format = client.place(client.usual_scope(), &places()).unwrap().1;
            let settings = client.settings(&account, "mailbox", false).unwrap();
            let text = apply(format, "", &settings).unwrap();
            assert!(text.contains("XDG_CONFIG_HOME") && text.contains("\"/etc/ann\""), "{text}");
            assert!(!revert(format, &text, None, &settings).unwrap().contains("XDG"), "{text}");
        }
    }

    #[test]
    fn nanobot_gets_the_tools_and_with_a_directory_its_channel() {
        let settings = InitClient::Nanobot.settings(&account(false), "mailbox", false).unwrap();
        let text = apply(Format::Json, "{}", &settings).unwrap();
        let value: serde_json::Value = serde_json::from_str(&text).unwrap();
        let channel =
            serde_json::json!({"enabled": true, "agentId": "ann", "mailboxesRoot": "/srv/mail", "allowFrom": ["*"]});
        assert_eq!(value["channels"]["mailbox"], channel);
        let server = &value["tools"]["mcpServers"]["mailbox"];
        assert_eq!((&server["command"], &server["toolTimeout"]), (&"/usr/bin/amb".into(), &60.into()));
        assert_eq!(server["args"][0], "mcp");
        let back = revert(Format::Json, &text, Some("{}"), &settings).unwrap();
        assert!(!back.contains("mailbox"), "{back}");
        let far = InitClient::Nanobot.settings(&account(true), "mailbox", false).unwrap();
        let text = apply(Format::Json, "{}", &far).unwrap();
        assert!(text.contains("mcpServers") && !text.contains("channels"), "{text}");
    }

    #[test]
    fn a_nanobot_with_the_channel_gets_no_second_set_of_tools() {
        for (is_far, office) in [(false, "mailboxesRoot"), (true, "serverUrl")] {
            let account = ClientAccount { has_plugin: true, ..account(is_far) };
            let settings = InitClient::Nanobot.settings(&account, "mailbox", false).unwrap();
            let text = apply(Format::Json, "{}", &settings).unwrap();
            let value: serde_json::Value = serde_json::from_str(&text).unwrap();
            assert_eq!(value.get("tools"), None, "{text}");
            let channel = &value["channels"]["mailbox"];
            assert_eq!((&channel["enabled"], &channel["agentId"]), (&true.into(), &"ann".into()), "{text}");
            assert!(channel[office].is_string(), "{text}");
        }
    }

    #[test]
    fn the_bridge_opens_its_route_and_closes_it_again() {
        let settings = InitClient::Openclaw.settings(&account(true), "mailbox", true).unwrap();
        let theirs = "{ gateway: { mode: 'local', /* port */ port: 18789 } }";
        let text = apply(Format::Json, theirs, &settings).unwrap();
        assert!(text.contains("/* port */") && text.contains("chatCompletions"), "{text}");
        // Current OpenClaw has no per-agent servers, and `tools.allow` would remove all other tools.
        assert!(!text.contains("agents") && !text.contains("tools") && !text.contains("allow"), "{text}");
        let back = revert(Format::Json, &text, Some(theirs), &settings).unwrap();
        assert!(!back.contains("chatCompletions") && !back.contains("mcp") && back.contains("18789"), "{back}");
        assert!(InitClient::Cursor.settings(&account(true), "mailbox", true).is_err());
    }

    #[test]
    fn what_the_environment_names_wins() {
        let places = Places { codex_home: Some("/c".into()), openclaw_config: Some("/o/x.json".into()), ..places() };
        assert_eq!(InitClient::Codex.place(Scope::User, &places).unwrap().0, Path::new("/c/config.toml"));
        assert_eq!(InitClient::Openclaw.place(Scope::User, &places).unwrap().0, Path::new("/o/x.json"));
        assert!(InitClient::Openclaw.place(Scope::Project, &places).is_err());
    }
}
