//! What is written besides a client's servers: permissions, hooks, instructions for models, and a plugin.

use std::path::PathBuf;

use super::client::office;
use super::{ClientAccount, ConfigValue, EntryMark, Format, InitClient, Places, Scope, Setting};

/// How to use a mailbox, for models. The one source of the skill, and of the sections in AGENTS.md and GEMINI.md.
pub(crate) const SKILL: &str = include_str!("skill.md");
/// opencode's plugin, with a placeholder for the command that reports messages.
const OPENCODE: &str = include_str!("opencode.js");

/// The tools that a woken agent must be able to use without a permission prompt.
const TOOLS: [&str; 5] = ["mailbox_check", "mailbox_read", "mailbox_send", "mailbox_wait", "mailbox_task"];
/// Those of them whose schemas a model must see without a search.
const ALWAYS_LOADED: [&str; 3] = ["mailbox_check", "mailbox_read", "mailbox_send"];
/// The timeout of a hook, in seconds. It takes less than one.
const HOOK_SECONDS: i64 = 5;

/// Whether a client's hooks are written.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Hooks {
    /// Where nothing else tells a running agent about messages.
    Usual,
    Always,
    Never,
}

impl Hooks {
    fn are_written(self, usually: bool) -> bool {
        self == Hooks::Always || (self == Hooks::Usual && usually)
    }
}

/// An additional file.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Extra {
    pub(crate) path: PathBuf,
    pub(crate) format: Format,
    pub(crate) settings: Vec<Setting>,
}

impl InitClient {
    /// What is written into the file with the servers, besides them.
    pub(crate) fn more_settings(self, account: &ClientAccount, name: &str, hooks: Hooks) -> Vec<Setting> {
        match self {
            InitClient::Gemini if hooks.are_written(true) => self.hooks(account),
            InitClient::Qwen => {
                // It loads tools of servers on demand, except for those that are listed here.
                let visible = ALWAYS_LOADED.iter().map(|tool| {
                    let tool = format!("mcp__{name}__{tool}");
                    Setting::entry(&["tools", "visible"], ConfigValue::text(&tool), format!("\"{tool}\""))
                });
                // Its socket wakes it; hooks are for where that is switched off.
                let hooks = if hooks.are_written(false) { self.hooks(account) } else { Vec::new() };
                visible.chain(hooks).collect()
            }
            InitClient::Zed => {
                let rules = TOOLS.iter().map(|tool| {
                    let rule = format!("mcp:{name}:{tool}");
                    Setting::new(&["agent", "tool_permissions", "tools", &rule, "default"], ConfigValue::text("allow"))
                });
                rules.collect()
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
        let json = |path: PathBuf, settings| Extra { path, format: Format::Json, settings };
        let told = |path: PathBuf| {
            let settings = vec![Setting::new(&[], ConfigValue::text(SKILL))];
            Extra { path, format: Format::Section, settings }
        };
        let is_hooked = |usually: bool| hooks.are_written(usually);
        let codex = places.codex_home.clone().unwrap_or_else(|| home.join(".codex"));
        let mut all = Vec::new();
        match self {
            InitClient::ClaudeCode => {
                // A plugin's servers are named after the plugin and the server.
                let rule = match account.has_plugin {
                    true => "mcp__plugin_agent-mailbox_mailbox".to_owned(),
                    false => format!("mcp__{name}"),
                };
                let allow = Setting::entry(&["permissions", "allow"], ConfigValue::text(&rule), format!("\"{rule}\""));
                let mut settings = vec![allow];
                // The session's own socket wakes it; hooks are for where that is switched off.
                if is_hooked(false) && !account.has_plugin {
                    settings.extend(self.hooks(account));
                }
                all.push(json(at(home.join(".claude/settings.json"), ".claude/settings.json"), settings));
            }
            InitClient::Codex => {
                // Codex runs them only after a person has trusted them in /hooks.
                if is_hooked(false) {
                    all.push(json(at(codex.join("hooks.json"), ".codex/hooks.json"), self.hooks(account)));
                }
                all.push(told(at(codex.join("AGENTS.md"), "AGENTS.md")));
            }
            InitClient::Gemini => all.push(told(at(home.join(".gemini/GEMINI.md"), "GEMINI.md"))),
            InitClient::Cursor => {
                let rule = format!("{name}:*");
                let mut allow = Setting::entry(&["mcpAllowlist"], ConfigValue::text(&rule), format!("\"{rule}\""));
                // A list there replaces the one in Cursor's own settings, so it is not created.
                allow.entry = allow.entry.map(|mark| EntryMark { only_if_there: true, ..mark });
                all.push(json(at(home.join(".cursor/permissions.json"), ".cursor/permissions.json"), vec![allow]));
                if is_hooked(true) {
                    all.push(json(at(home.join(".cursor/hooks.json"), ".cursor/hooks.json"), self.hooks(account)));
                }
            }
            // Copilot's command line reads only the hooks of a project.
            InitClient::Copilot if scope == Scope::Project && is_hooked(true) => {
                all.push(json(project.join(".github/hooks/agent-mailbox.json"), self.hooks(account)));
            }
            InitClient::Opencode => {
                let place = at(places.config_home.join("opencode/plugins/amb.js"), ".opencode/plugins/amb.js");
                let settings = vec![Setting::new(&[], ConfigValue::text(opencode(account)))];
                all.push(Extra { path: place, format: Format::Script, settings });
            }
            _ => {}
        }
        all
    }

    /// The hooks that run between two steps, in the client's own form.
    fn hooks(self, account: &ClientAccount) -> Vec<Setting> {
        let (client, events): (&str, &[(&str, &str)]) = match self {
            InitClient::ClaudeCode | InitClient::Qwen => (
                if self == InitClient::Qwen { "qwen" } else { "claude" },
                &[
                    ("SessionStart", "session-start"),
                    ("UserPromptSubmit", "prompt"),
                    // Once for a step, however many tools ran in it.
                    ("PostToolBatch", "post-tool"),
                    ("Stop", "stop"),
                ],
            ),
            InitClient::Codex => (
                "codex",
                &[
                    ("SessionStart", "session-start"),
                    ("UserPromptSubmit", "prompt"),
                    ("PostToolUse", "post-tool"),
                    ("Stop", "stop"),
                ],
            ),
            InitClient::Gemini => (
                "gemini",
                &[
                    ("SessionStart", "session-start"),
                    ("BeforeAgent", "prompt"),
                    ("AfterTool", "post-tool"),
                    ("AfterAgent", "stop"),
                ],
            ),
            InitClient::Cursor => {
                ("cursor", &[("sessionStart", "session-start"), ("postToolUse", "post-tool"), ("stop", "stop")])
            }
            InitClient::Copilot => {
                ("copilot", &[("sessionStart", "session-start"), ("postToolUse", "post-tool"), ("agentStop", "stop")])
            }
            _ => return Vec::new(),
        };
        let is_versioned = matches!(self, InitClient::Cursor | InitClient::Copilot);
        let version = is_versioned.then(|| Setting::new(&["version"], ConfigValue::Whole(1)));
        let hooks = events.iter().map(|(event, ours)| {
            let mark = format!("hook {client} {ours}");
            let command = ConfigValue::text(format!("{} {mark}", shell(account)));
            Setting::entry(&["hooks", event], self.hook(command, ours), mark)
        });
        version.into_iter().chain(hooks).collect()
    }

    fn hook(self, command: ConfigValue, event: &str) -> ConfigValue {
        let kind = ("type", ConfigValue::text("command"));
        match self {
            InitClient::Cursor if event == "stop" => {
                ConfigValue::Table(vec![("command", command), ("loop_limit", ConfigValue::Whole(5))])
            }
            InitClient::Cursor => ConfigValue::Table(vec![("command", command)]),
            InitClient::Copilot => {
                ConfigValue::Table(vec![kind, ("bash", command), ("timeoutSec", ConfigValue::Whole(HOOK_SECONDS))])
            }
            // Gemini uses milliseconds.
            InitClient::Gemini => ConfigValue::Table(vec![(
                "hooks",
                ConfigValue::List(vec![ConfigValue::Table(vec![
                    ("name", ConfigValue::text("agent-mailbox")),
                    kind,
                    ("command", command),
                    ("timeout", ConfigValue::Whole(HOOK_SECONDS * 1000)),
                ])]),
            )]),
            _ => ConfigValue::Table(vec![(
                "hooks",
                ConfigValue::List(vec![ConfigValue::Table(vec![
                    kind,
                    ("command", command),
                    ("timeout", ConfigValue::Whole(HOOK_SECONDS)),
                ])]),
            )]),
        }
    }
}

/// `amb` with the flags of the office, for a shell.
fn shell(account: &ClientAccount) -> String {
    let words = std::iter::once(account.command.clone()).chain(office(account));
    words.map(|word| quoted(&word)).collect::<Vec<_>>().join(" ")
}

fn quoted(word: &str) -> String {
    let is_plain = |c: char| c.is_ascii_alphanumeric() || "-_./:=@+,".contains(c);
    match !word.is_empty() && word.chars().all(is_plain) {
        true => word.to_owned(),
        false => format!("'{}'", word.replace('\'', "'\\''")),
    }
}

fn opencode(account: &ClientAccount) -> String {
    let words = std::iter::once(account.command.clone()).chain(office(account));
    let words: Vec<String> = words.chain(["watch".to_owned(), "--bell".to_owned()]).collect();
    // JSON is valid JavaScript, whatever a path contains.
    OPENCODE.replace("__COMMAND__", &serde_json::json!(words).to_string())
}

#[cfg(test)]
mod tests;
