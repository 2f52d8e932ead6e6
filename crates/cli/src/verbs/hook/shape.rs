//! What each client's hooks say and want to hear.

use amb_wake::Summary;
use clap::ValueEnum;
use serde_json::{Value, json};

/// A client with hooks.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(super) enum Client {
    /// Claude Code
    #[value(alias = "claude-code")]
    Claude,
    /// Codex
    Codex,
    /// Gemini CLI
    Gemini,
    /// Cursor
    Cursor,
    /// Copilot CLI
    Copilot,
    /// Qwen Code
    Qwen,
}

/// What has happened.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(super) enum Event {
    /// A session began or was resumed
    SessionStart,
    /// The user gave a prompt
    Prompt,
    /// A tool, or a batch of them, was run
    PostTool,
    /// The model is about to end its turn
    Stop,
}

/// Whether this stop follows from what a hook said at the last one.
pub(super) fn is_again(input: &Value) -> bool {
    let active = |name: &str| input[name].as_bool() == Some(true);
    active("stop_hook_active")
        || active("stopHookActive")
        || input["loop_count"].as_u64().is_some_and(|count| count > 0)
}

impl Client {
    /// The name under which `amb mcp` knows it.
    pub(super) fn name(self) -> &'static str {
        match self {
            Client::Claude => "claude",
            Client::Codex => "codex",
            Client::Gemini => "gemini",
            Client::Cursor => "cursor",
            Client::Copilot => "copilot",
            Client::Qwen => "qwen",
        }
    }

    /// The session, as the client calls it; where it does not say, all that it runs are one.
    pub(super) fn session(self, input: &Value) -> String {
        let variable = match self {
            Client::Claude => Some("CLAUDE_CODE_SESSION_ID"),
            Client::Codex => Some("CODEX_THREAD_ID"),
            Client::Qwen => Some("QWEN_CODE_SESSION_ID"),
            _ => None,
        };
        let variable = variable.and_then(|name| std::env::var(name).ok()).filter(|value| !value.is_empty());
        let names = ["session_id", "sessionId", "conversation_id"];
        let said = || names.iter().find_map(|name| input[name].as_str()).map(str::to_owned);
        variable.or_else(said).unwrap_or_else(|| "unknown".into())
    }

    /// Whether the client passes on what a hook says at this event.
    pub(super) fn is_heard(self, event: Event) -> bool {
        !matches!((self, event), (Client::Copilot | Client::Cursor, Event::Prompt))
    }

    /// The answer that tells the model of mail.
    pub(super) fn answer(self, event: Event, input: &Value, summary: &Summary) -> Value {
        let facts = format!("Agent Mailbox: {}.", summary.facts());
        let aside = format!("{facts} Call mailbox_check when your present step is done.");
        let ending = format!("{facts} Call mailbox_check, handle it, then stop.");
        match (self, event) {
            (Client::Claude | Client::Codex | Client::Gemini | Client::Copilot | Client::Qwen, Event::Stop) => {
                json!({"decision": "block", "reason": ending})
            }
            (Client::Cursor, Event::Stop) => json!({"followup_message": ending}),
            (Client::Cursor, _) => json!({"additional_context": aside}),
            (Client::Copilot, _) => json!({"additionalContext": aside}),
            (Client::Claude | Client::Codex | Client::Gemini | Client::Qwen, _) => {
                let name = self.event_name(event, input);
                json!({"hookSpecificOutput": {"hookEventName": name, "additionalContext": aside}})
            }
        }
    }

    /// The client's own name of the event: the one it said, where several of its events are one of ours.
    fn event_name(self, event: Event, input: &Value) -> &'static str {
        let said = input["hook_event_name"].as_str().unwrap_or_default();
        match (self, event) {
            (Client::Gemini, Event::Prompt) => "BeforeAgent",
            (Client::Gemini, Event::PostTool) => "AfterTool",
            (_, Event::SessionStart) => "SessionStart",
            (_, Event::Prompt) => "UserPromptSubmit",
            (Client::Claude | Client::Qwen, Event::PostTool) if said == "PostToolBatch" => "PostToolBatch",
            (Client::Claude | Client::Qwen, Event::PostTool) if said == "PreToolUse" => "PreToolUse",
            (_, Event::PostTool) => "PostToolUse",
            (_, Event::Stop) => "Stop",
        }
    }
}
