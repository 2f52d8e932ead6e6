//! What is written besides a client's servers: permission, hooks, what models are told, and a plugin.

use std::path::PathBuf;

use super::client::office;
use super::{Account, Client, Format, Item, Mark, Places, Scope, Setting};

/// How to use a mailbox, in words for models. The one source of the skill, and of the sections in AGENTS.md and GEMINI.md.
pub(crate) const SKILL: &str = include_str!("skill.md");
/// opencode's plugin, in which the command that tells of mail is filled in.
const OPENCODE: &str = include_str!("opencode.js");

/// The tools that a woken agent must be able to use without a question.
const TOOLS: [&str; 5] = ["mailbox_check", "mailbox_read", "mailbox_send", "mailbox_wait", "mailbox_task"];
/// Those of them that a model must see without a search.
const ALWAYS_LOADED: [&str; 3] = ["mailbox_check", "mailbox_read", "mailbox_send"];
/// How long a hook may take, in seconds. It takes less than one.
const HOOK_SECONDS: i64 = 5;

/// Whether a client's hooks are written.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Hooks {
    /// Where nothing else tells a running agent of mail.
    Usual,
    Always,
    Never,
}

impl Hooks {
    fn are_written(self, usually: bool) -> bool {
        self == Hooks::Always || (self == Hooks::Usual && usually)
    }
}

/// One more file.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Extra {
    pub(crate) path: PathBuf,
    pub(crate) format: Format,
    pub(crate) settings: Vec<Setting>,
}

impl Client {
    /// What is written into the file with the servers, besides them.
    pub(crate) fn more_settings(self, account: &Account, name: &str, hooks: Hooks) -> Vec<Setting> {
        match self {
            Client::Gemini if hooks.are_written(true) => self.hooks(account),
            Client::Qwen => {
                // It shows tools of servers when they are searched for, but for those that are listed here.
                let visible = ALWAYS_LOADED.iter().map(|tool| {
                    let tool = format!("mcp__{name}__{tool}");
                    Setting::entry(&["tools", "visible"], Item::text(&tool), format!("\"{tool}\""))
                });
                // Its socket wakes it; hooks are for where that is off.
                let hooks = if hooks.are_written(false) { self.hooks(account) } else { Vec::new() };
                visible.chain(hooks).collect()
            }
            Client::Zed => {
                let rules = TOOLS.iter().map(|tool| {
                    let rule = format!("mcp:{name}:{tool}");
                    Setting::new(&["agent", "tool_permissions", "tools", &rule, "default"], Item::text("allow"))
                });
                rules.collect()
            }
            _ => Vec::new(),
        }
    }

    /// The files that are written besides the one with the servers.
    pub(crate) fn extras(
        self,
        account: &Account,
        name: &str,
        scope: Scope,
        places: &Places,
        hooks: Hooks,
    ) -> Vec<Extra> {
        let (home, project) = (&places.home, &places.project);
        let at = |user: PathBuf, own: &str| if scope == Scope::User { user } else { project.join(own) };
        let json = |path: PathBuf, settings| Extra { path, format: Format::Json, settings };
        let told = |path: PathBuf| {
            let settings = vec![Setting::new(&[], Item::text(SKILL))];
            Extra { path, format: Format::Section, settings }
        };
        let is_hooked = |usually: bool| hooks.are_written(usually);
        let codex = places.codex_home.clone().unwrap_or_else(|| home.join(".codex"));
        let mut all = Vec::new();
        match self {
            Client::ClaudeCode => {
                // A plugin's servers go by the plugin's name and their own.
                let rule = match account.has_plugin {
                    true => "mcp__plugin_agent-mailbox_mailbox".to_owned(),
                    false => format!("mcp__{name}"),
                };
                let allow = Setting::entry(&["permissions", "allow"], Item::text(&rule), format!("\"{rule}\""));
                let mut settings = vec![allow];
                // The session's own socket wakes it; hooks are for where that is off.
                if is_hooked(false) && !account.has_plugin {
                    settings.extend(self.hooks(account));
                }
                all.push(json(at(home.join(".claude/settings.json"), ".claude/settings.json"), settings));
            }
            Client::Codex => {
                // Codex runs them only after a person has trusted them in /hooks.
                if is_hooked(false) {
                    all.push(json(at(codex.join("hooks.json"), ".codex/hooks.json"), self.hooks(account)));
                }
                all.push(told(at(codex.join("AGENTS.md"), "AGENTS.md")));
            }
            Client::Gemini => all.push(told(at(home.join(".gemini/GEMINI.md"), "GEMINI.md"))),
            Client::Cursor => {
                let rule = format!("{name}:*");
                let mut allow = Setting::entry(&["mcpAllowlist"], Item::text(&rule), format!("\"{rule}\""));
                // A list there replaces the one in Cursor's own settings: it is not ours to begin.
                allow.entry = allow.entry.map(|mark| Mark { only_if_there: true, ..mark });
                all.push(json(at(home.join(".cursor/permissions.json"), ".cursor/permissions.json"), vec![allow]));
                if is_hooked(true) {
                    all.push(json(at(home.join(".cursor/hooks.json"), ".cursor/hooks.json"), self.hooks(account)));
                }
            }
            // The command line reads hooks of a project alone.
            Client::Copilot if scope == Scope::Project && is_hooked(true) => {
                all.push(json(project.join(".github/hooks/agent-mailbox.json"), self.hooks(account)));
            }
            Client::Opencode => {
                let place = at(places.config_home.join("opencode/plugins/amb.js"), ".opencode/plugins/amb.js");
                let settings = vec![Setting::new(&[], Item::text(opencode(account)))];
                all.push(Extra { path: place, format: Format::Script, settings });
            }
            _ => {}
        }
        all
    }

    /// What is to be run between two steps, in the client's own shape.
    fn hooks(self, account: &Account) -> Vec<Setting> {
        let (client, events): (&str, &[(&str, &str)]) = match self {
            Client::ClaudeCode | Client::Qwen => (
                if self == Client::Qwen { "qwen" } else { "claude" },
                &[
                    ("SessionStart", "session-start"),
                    ("UserPromptSubmit", "prompt"),
                    // Once for a step, however many tools ran in it.
                    ("PostToolBatch", "post-tool"),
                    ("Stop", "stop"),
                ],
            ),
            Client::Codex => (
                "codex",
                &[
                    ("SessionStart", "session-start"),
                    ("UserPromptSubmit", "prompt"),
                    ("PostToolUse", "post-tool"),
                    ("Stop", "stop"),
                ],
            ),
            Client::Gemini => (
                "gemini",
                &[
                    ("SessionStart", "session-start"),
                    ("BeforeAgent", "prompt"),
                    ("AfterTool", "post-tool"),
                    ("AfterAgent", "stop"),
                ],
            ),
            Client::Cursor => {
                ("cursor", &[("sessionStart", "session-start"), ("postToolUse", "post-tool"), ("stop", "stop")])
            }
            Client::Copilot => {
                ("copilot", &[("sessionStart", "session-start"), ("postToolUse", "post-tool"), ("agentStop", "stop")])
            }
            _ => return Vec::new(),
        };
        let is_versioned = matches!(self, Client::Cursor | Client::Copilot);
        let version = is_versioned.then(|| Setting::new(&["version"], Item::Whole(1)));
        let hooks = events.iter().map(|(event, ours)| {
            let mark = format!("hook {client} {ours}");
            let command = Item::text(format!("{} {mark}", shell(account)));
            Setting::entry(&["hooks", event], self.hook(command, ours), mark)
        });
        version.into_iter().chain(hooks).collect()
    }

    fn hook(self, command: Item, event: &str) -> Item {
        let kind = ("type", Item::text("command"));
        match self {
            Client::Cursor if event == "stop" => {
                Item::Table(vec![("command", command), ("loop_limit", Item::Whole(5))])
            }
            Client::Cursor => Item::Table(vec![("command", command)]),
            Client::Copilot => Item::Table(vec![kind, ("bash", command), ("timeoutSec", Item::Whole(HOOK_SECONDS))]),
            // Gemini counts in milliseconds.
            Client::Gemini => Item::Table(vec![(
                "hooks",
                Item::List(vec![Item::Table(vec![
                    ("name", Item::text("agent-mailbox")),
                    kind,
                    ("command", command),
                    ("timeout", Item::Whole(HOOK_SECONDS * 1000)),
                ])]),
            )]),
            _ => Item::Table(vec![(
                "hooks",
                Item::List(vec![Item::Table(vec![kind, ("command", command), ("timeout", Item::Whole(HOOK_SECONDS))])]),
            )]),
        }
    }
}

/// `amb` and which office, for a shell.
fn shell(account: &Account) -> String {
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

fn opencode(account: &Account) -> String {
    let words = std::iter::once(account.command.clone()).chain(office(account));
    let words: Vec<String> = words.chain(["watch".to_owned(), "--bell".to_owned()]).collect();
    // JSON is JavaScript, whatever is in a path.
    OPENCODE.replace("__COMMAND__", &serde_json::json!(words).to_string())
}

#[cfg(test)]
mod tests;
