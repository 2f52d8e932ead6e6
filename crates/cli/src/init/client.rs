//! The known clients: where each keeps its configuration, and what the mailbox looks like in it.

use std::path::PathBuf;

use amb_core::AgentName;
use anyhow::{Result, bail};
use clap::ValueEnum;

use super::value::table;
use super::{ConfigValue, Format, Setting};
use crate::args::value_name;
use crate::saved::LOCAL;

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
    /// nanobot: ~/.nanobot/config.json; the tools, for a directory also the section of the mailbox channel; only the section if
    /// the channel is installed
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

/// The directories in which clients look for their files; variables of the environment name some of them.
#[derive(Debug, Clone)]
pub(crate) struct Places {
    pub(crate) home: PathBuf,
    pub(crate) project: PathBuf,
    /// The directory of programs that follow XDG, by default ~/.config.
    pub(crate) config_home: PathBuf,
    /// By default ~/.codex.
    pub(crate) codex_home: PathBuf,
    /// By default ~/.copilot.
    pub(crate) copilot_home: PathBuf,
    /// OpenClaw's file, by default ~/.openclaw/openclaw.json.
    pub(crate) openclaw_config: PathBuf,
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
    /// Whether it is the local office, whose address may change.
    pub(crate) is_local: bool,
    /// The variables that the client must set, since it passes on little of its own environment.
    pub(crate) environment: Vec<(&'static str, String)>,
    /// Whether the tools come from a plugin of ours: nanobot's mailbox channel, or the one for Claude Code.
    pub(crate) has_plugin: bool,
}

impl InitClient {
    /// Its name on the command line.
    pub(crate) fn name(self) -> String {
        value_name(self)
    }

    /// Its default scope: Claude Code keeps its own state in the user's file, and asks for approval of the project's.
    pub(crate) fn default_scope(self) -> Scope {
        if self == Self::ClaudeCode { Scope::Project } else { Scope::User }
    }

    /// The user's configuration file, and the project's below the project's directory where the client has one.
    fn files(self, places: &Places) -> (PathBuf, Option<&'static str>) {
        let home = |file: &str| places.home.join(file);
        let config = |file: &str| places.config_home.join(file);
        match self {
            Self::ClaudeCode => (home(".claude.json"), Some(".mcp.json")),
            Self::Codex => (places.codex_home.join("config.toml"), Some(".codex/config.toml")),
            Self::Gemini => (home(".gemini/settings.json"), Some(".gemini/settings.json")),
            Self::Openclaw => (places.openclaw_config.clone(), None),
            Self::Nanobot => (home(".nanobot/config.json"), None),
            Self::Cursor => (home(".cursor/mcp.json"), Some(".cursor/mcp.json")),
            Self::Opencode => (config("opencode/opencode.json"), Some("opencode.json")),
            Self::Qwen => (home(".qwen/settings.json"), Some(".qwen/settings.json")),
            Self::Copilot => (places.copilot_home.join("mcp-config.json"), Some(".github/mcp.json")),
            Self::Windsurf => (home(".codeium/windsurf/mcp_config.json"), None),
            // Also on macOS, where Zed keeps to ~/.config.
            Self::Zed => (config("zed/settings.json"), Some(".zed/settings.json")),
            Self::Vscode if cfg!(target_os = "macos") => {
                (home("Library/Application Support/Code/User/mcp.json"), Some(".vscode/mcp.json"))
            }
            Self::Vscode => (config("Code/User/mcp.json"), Some(".vscode/mcp.json")),
        }
    }

    /// Its configuration file in a scope.
    pub(crate) fn config_file(self, scope: Scope, places: &Places) -> Result<(PathBuf, Format)> {
        let (user, project) = self.files(places);
        let path = match (scope, project) {
            (Scope::User, _) => user,
            (Scope::Project, Some(file)) => places.project.join(file),
            (Scope::Project, None) => bail!(
                "this client has one configuration for each user; leave --scope out or name the file with --config"
            ),
        };
        // opencode reads a file with comments, too.
        let with_comments = path.with_extension("jsonc");
        let path = if self == Self::Opencode && with_comments.exists() { with_comments } else { path };
        let format = if self == Self::Codex { Format::Toml } else { Format::Json };
        Ok((path, format))
    }

    /// The keys that lead to the mailbox in its file.
    pub(crate) fn path(self, name: &str) -> Vec<&str> {
        match self {
            Self::Opencode => vec!["mcp", name],
            Self::Zed => vec!["context_servers", name],
            Self::Vscode => vec!["servers", name],
            Self::Codex => vec!["mcp_servers", name],
            Self::Openclaw => vec!["mcp", "servers", name],
            Self::Nanobot => vec!["tools", "mcpServers", name],
            Self::ClaudeCode | Self::Gemini | Self::Cursor | Self::Qwen | Self::Copilot | Self::Windsurf => {
                vec!["mcpServers", name]
            }
        }
    }

    /// The settings for its file. `bridge` is for OpenClaw: the route by which messages wake an idle agent.
    pub(crate) fn settings(self, account: &ClientAccount, name: &str, bridge: bool) -> Result<Vec<Setting>> {
        if bridge && self != Self::Openclaw {
            bail!(
                "--bridge is for openclaw; others are woken by `amb bridge exec`, which needs nothing in their files"
            );
        }
        match self {
            Self::Nanobot if account.has_plugin => return Ok(vec![channel(account)]),
            // The plugin provides the server.
            Self::ClaudeCode if account.has_plugin => return Ok(Vec::new()),
            _ => {}
        }
        let mut entry = Setting::new(&self.path(name), self.server(account));
        // So that a woken agent is not stopped by a permission prompt. The user's own choice stays.
        entry.defaults = match self {
            Self::Codex => vec![("default_tools_approval_mode".into(), "approve".into())],
            Self::Gemini | Self::Qwen => vec![("trust".into(), true.into())],
            _ => Vec::new(),
        };
        let mut settings = vec![entry];
        if self == Self::Nanobot && account.directory.is_some() {
            settings.push(channel(account));
        }
        if bridge {
            let route = ["gateway", "http", "endpoints", "chatCompletions", "enabled"];
            settings.push(Setting::new(&route, true.into()));
        }
        Ok(settings)
    }

    /// The MCP server in the client's own form.
    fn server(self, account: &ClientAccount) -> ConfigValue {
        let mut fields: Vec<(&str, ConfigValue)> = match self {
            Self::Opencode => {
                let command: Vec<String> = std::iter::once(account.command.clone()).chain(arguments(account)).collect();
                vec![("type", "local".into()), ("command", command.into()), ("enabled", true.into())]
            }
            _ => vec![("command", account.command.as_str().into()), ("args", arguments(account).into())],
        };
        if !account.environment.is_empty() {
            let variables = account.environment.iter().map(|(name, value)| (*name, value.as_str().into()));
            fields.push((if self == Self::Opencode { "environment" } else { "env" }, table(variables)));
        }
        match self {
            Self::Vscode => fields.insert(0, ("type", "stdio".into())),
            Self::Copilot => {
                fields.insert(0, ("type", "local".into()));
                fields.push(("tools", vec!["*"].into()));
            }
            // It gives a tool 30 seconds by default, and mailbox_wait takes up to 55.
            Self::Nanobot => fields.push(("toolTimeout", 60.into())),
            _ => {}
        }
        table(fields)
    }
}

/// The arguments of `amb`. The key is not among them: it is stored apart, in a private file.
fn arguments(account: &ClientAccount) -> Vec<String> {
    std::iter::once("mcp".to_owned()).chain(office_flags(account)).collect()
}

/// The flags that name the office and the agent.
pub(super) fn office_flags(account: &ClientAccount) -> Vec<String> {
    let mut flags = Vec::new();
    let mut add = |flag: &str, value: String| flags.extend([flag.to_owned(), value]);
    match (&account.directory, &account.server) {
        (Some(directory), _) => add("--dir", directory.display().to_string()),
        (None, Some(_)) if account.is_local => add("--office", LOCAL.to_owned()),
        (None, Some(server)) => add("--server", server.clone()),
        (None, None) => {}
    }
    if let Some(layout) = &account.layout {
        add("--layout", layout.clone());
    }
    add("--as", account.me.to_string());
    flags
}

/// The section of nanobot's mailbox channel. A nanobot without such a channel ignores it. The key for a server is not
/// in it: the channel finds it where `amb` stores it.
fn channel(account: &ClientAccount) -> Setting {
    let office = match (&account.directory, &account.server) {
        (None, Some(server)) => ("serverUrl", server.as_str().into()),
        (None, None) => ("mailboxesRoot", "~/.nanobot/mailboxes".into()),
        (Some(directory), _) => ("mailboxesRoot", directory.display().to_string().into()),
    };
    let fields = [("enabled", true.into()), ("agentId", account.me.as_str().into()), office];
    let mut channel = Setting::new(&["channels", "mailbox"], table(fields));
    channel.defaults = vec![("allowFrom".into(), vec!["*"].into())];
    channel
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::*;
    use crate::init::{apply, revert, test_places as places};

    fn account(server: bool) -> ClientAccount {
        ClientAccount {
            me: "ann".parse().unwrap(),
            command: "/usr/bin/amb".into(),
            directory: (!server).then(|| "/srv/mail".into()),
            layout: None,
            server: server.then(|| "http://127.0.0.1:8000".into()),
            is_local: false,
            environment: Vec::new(),
            has_plugin: false,
        }
    }

    #[test]
    fn each_client_gets_its_mailbox_in_its_own_file() {
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
            let (path, format) = client.config_file(client.default_scope(), &places()).unwrap();
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
    fn environment_variables_that_a_client_does_not_pass_on_are_in_its_file() {
        let account = ClientAccount { environment: vec![("XDG_CONFIG_HOME", "/etc/ann".into())], ..account(true) };
        for client in [InitClient::ClaudeCode, InitClient::Codex, InitClient::Openclaw] {
            let format = client.config_file(client.default_scope(), &places()).unwrap().1;
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
        let remote = InitClient::Nanobot.settings(&account(true), "mailbox", false).unwrap();
        let text = apply(Format::Json, "{}", &remote).unwrap();
        assert!(text.contains("mcpServers") && !text.contains("channels"), "{text}");
    }

    #[test]
    fn nanobot_with_the_channel_gets_no_mcp_server() {
        for (is_remote, office) in [(false, "mailboxesRoot"), (true, "serverUrl")] {
            let account = ClientAccount { has_plugin: true, ..account(is_remote) };
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
    fn paths_from_the_environment_replace_the_defaults() {
        let places = Places { codex_home: "/c".into(), openclaw_config: "/o/x.json".into(), ..places() };
        assert_eq!(InitClient::Codex.config_file(Scope::User, &places).unwrap().0, Path::new("/c/config.toml"));
        assert_eq!(InitClient::Openclaw.config_file(Scope::User, &places).unwrap().0, Path::new("/o/x.json"));
        assert!(InitClient::Openclaw.config_file(Scope::Project, &places).is_err());
    }
}
