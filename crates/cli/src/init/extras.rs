//! What is written besides a client's servers: permissions, hooks, instructions for models, and a plugin.

use std::path::PathBuf;

use jsonc_parser::json;

use super::client::office_flags;
use super::{ClientAccount, ConfigValue, EntryMark, Format, InitClient, Places, Scope, Setting};

/// How to use a mailbox, for models. The one source of the skill, and of the sections in AGENTS.md and GEMINI.md.
pub(crate) const SKILL: &str = include_str!("skill.md");
/// opencode's plugin, with a placeholder for the command that reports messages.
const OPENCODE: &str = include_str!("opencode.js");

/// The tools that a woken agent must be able to use without a permission prompt.
const TOOLS: [&str; 5] = ["mailbox_check", "mailbox_read", "mailbox_send", "mailbox_wait", "mailbox_task"];
/// Those of them whose schemas a model must see without a search.
const ALWAYS_LOADED: [&str; 3] = ["mailbox_check", "mailbox_read", "mailbox_send"];
/// The timeout of a hook, in seconds. It usually takes less than one.
const HOOK_SECONDS: i64 = 5;

/// Whether a client's hooks are written.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Hooks {
    /// Only for clients that have no other way to notify a running agent.
    Default,
    Always,
    Never,
}

impl Hooks {
    fn are_written(self, by_default: bool) -> bool {
        self == Hooks::Always || (self == Hooks::Default && by_default)
    }
}

/// An additional file.
#[derive(Debug, Clone)]
pub(crate) struct Extra {
    pub(crate) path: PathBuf,
    pub(crate) format: Format,
    pub(crate) settings: Vec<Setting>,
}

impl InitClient {
    /// Further settings in the file with the servers.
    pub(crate) fn more_settings(self, account: &ClientAccount, name: &str, hooks: Hooks) -> Vec<Setting> {
        match self {
            Self::Gemini if hooks.are_written(true) => self.hooks(account),
            Self::Qwen => {
                // It loads tools of servers on demand, except for those that are listed here.
                let visible = ALWAYS_LOADED.iter().map(|tool| format!("mcp__{name}__{tool}"));
                let visible = visible.map(|tool| Setting::rule(&["tools", "visible"], tool));
                // Its socket wakes it; hooks are for where that is switched off.
                let hooks = if hooks.are_written(false) { self.hooks(account) } else { Vec::new() };
                visible.chain(hooks).collect()
            }
            Self::Zed => {
                let allow = |rule: String| {
                    Setting::new(&["agent", "tool_permissions", "tools", &rule, "default"], "allow".into())
                };
                TOOLS.iter().map(|tool| allow(format!("mcp:{name}:{tool}"))).collect()
            }
            _ => Vec::new(),
        }
    }

    /// The additional files.
    pub(crate) fn extras(
        self,
        account: &ClientAccount,
        name: &str,
        scope: Scope,
        places: &Places,
        hooks: Hooks,
    ) -> Vec<Extra> {
        let (home, project) = (&places.home, &places.project);
        let at = |user: PathBuf, own: &str| if scope == Scope::User { user } else { project.join(own) };
        // In both scopes under the same name.
        let dotfile = |file: &str| at(home.join(file), file);
        let json = |path: PathBuf, settings| Extra { path, format: Format::Json, settings };
        let instructions = |path: PathBuf| {
            let settings = vec![Setting::new(&[], SKILL.into())];
            Extra { path, format: Format::Section, settings }
        };
        match self {
            Self::ClaudeCode => {
                // A plugin's servers are named after the plugin and the server.
                let rule = match account.has_plugin {
                    true => "mcp__plugin_agent-mailbox_mailbox".to_owned(),
                    false => format!("mcp__{name}"),
                };
                let mut settings = vec![Setting::rule(&["permissions", "allow"], rule)];
                // The session's own socket wakes it; hooks are for where that is switched off.
                if hooks.are_written(false) && !account.has_plugin {
                    settings.extend(self.hooks(account));
                }
                vec![json(dotfile(".claude/settings.json"), settings)]
            }
            Self::Codex => {
                let codex = &places.codex_home;
                // Codex runs them only after a person has trusted them in /hooks.
                let path = at(codex.join("hooks.json"), ".codex/hooks.json");
                let hooks = hooks.are_written(false).then(|| json(path, self.hooks(account)));
                hooks.into_iter().chain([instructions(at(codex.join("AGENTS.md"), "AGENTS.md"))]).collect()
            }
            Self::Gemini => vec![instructions(at(home.join(".gemini/GEMINI.md"), "GEMINI.md"))],
            Self::Cursor => {
                let mut allow = Setting::rule(&["mcpAllowlist"], format!("{name}:*"));
                // A list there replaces the one in Cursor's own settings, so it is not created.
                allow.entry = allow.entry.map(|mark| EntryMark { only_if_there: true, ..mark });
                let allow = json(dotfile(".cursor/permissions.json"), vec![allow]);
                let hooks = hooks.are_written(true).then(|| json(dotfile(".cursor/hooks.json"), self.hooks(account)));
                std::iter::once(allow).chain(hooks).collect()
            }
            // Copilot's command line reads only the hooks of a project.
            Self::Copilot if scope == Scope::Project && hooks.are_written(true) => {
                vec![json(project.join(".github/hooks/agent-mailbox.json"), self.hooks(account))]
            }
            Self::Opencode => {
                let path = at(places.config_home.join("opencode/plugins/amb.js"), ".opencode/plugins/amb.js");
                let settings = vec![Setting::new(&[], opencode_plugin(account).into())];
                vec![Extra { path, format: Format::Script, settings }]
            }
            _ => Vec::new(),
        }
    }

    /// The hooks that run between two steps, in the client's own form. Each of its events runs `amb hook CLIENT EVENT`.
    fn hooks(self, account: &ClientAccount) -> Vec<Setting> {
        let (client, [start, prompt, post_tool, stop]) = match self {
            // PostToolBatch runs once for a step, however many tools ran in it.
            Self::ClaudeCode => ("claude", ["SessionStart", "UserPromptSubmit", "PostToolBatch", "Stop"]),
            Self::Qwen => ("qwen", ["SessionStart", "UserPromptSubmit", "PostToolBatch", "Stop"]),
            Self::Codex => ("codex", ["SessionStart", "UserPromptSubmit", "PostToolUse", "Stop"]),
            Self::Gemini => ("gemini", ["SessionStart", "BeforeAgent", "AfterTool", "AfterAgent"]),
            // These two do not pass the output of a prompt hook to the model, so none is written.
            Self::Cursor => ("cursor", ["sessionStart", "", "postToolUse", "stop"]),
            Self::Copilot => ("copilot", ["sessionStart", "", "postToolUse", "agentStop"]),
            _ => return Vec::new(),
        };
        let events = [(start, "session-start"), (prompt, "prompt"), (post_tool, "post-tool"), (stop, "stop")];
        let is_versioned = matches!(self, Self::Cursor | Self::Copilot);
        let version = is_versioned.then(|| Setting::new(&["version"], 1.into()));
        let hooks = events.into_iter().filter(|(event, _)| !event.is_empty()).map(|(event, ours)| {
            let suffix = format!("hook {client} {ours}");
            let command = format!("{} {suffix}", shell_command(account));
            Setting::command(&["hooks", event], self.hook(command, ours), suffix)
        });
        version.into_iter().chain(hooks).collect()
    }

    fn hook(self, command: String, event: &str) -> ConfigValue {
        match self {
            Self::Cursor if event == "stop" => json!({ "command": command, "loop_limit": 5 }),
            Self::Cursor => json!({ "command": command }),
            Self::Copilot => json!({ "type": "command", "bash": command, "timeoutSec": HOOK_SECONDS }),
            Self::Gemini => {
                let milliseconds = HOOK_SECONDS * 1000;
                let hook =
                    json!({ "name": "agent-mailbox", "type": "command", "command": command, "timeout": milliseconds });
                json!({ "hooks": [hook] })
            }
            _ => json!({ "hooks": [{ "type": "command", "command": command, "timeout": HOOK_SECONDS }] }),
        }
    }
}

/// `amb` with the flags of the office, for a shell.
fn shell_command(account: &ClientAccount) -> String {
    let words = std::iter::once(account.command.clone()).chain(office_flags(account));
    words.map(|word| quoted(&word)).collect::<Vec<_>>().join(" ")
}

fn quoted(word: &str) -> String {
    let is_plain = |c: char| c.is_ascii_alphanumeric() || "-_./:=@+,".contains(c);
    if !word.is_empty() && word.chars().all(is_plain) {
        return word.to_owned();
    }
    format!("'{}'", word.replace('\'', "'\\''"))
}

fn opencode_plugin(account: &ClientAccount) -> String {
    let words = std::iter::once(account.command.clone()).chain(office_flags(account));
    let words: Vec<String> = words.chain(["watch".to_owned(), "--bell".to_owned()]).collect();
    // JSON is valid JavaScript, whatever a path contains.
    OPENCODE.replace("__COMMAND__", &serde_json::json!(words).to_string())
}

#[cfg(test)]
mod tests;
