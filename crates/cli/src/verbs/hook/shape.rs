//! The input and output of each client's hooks.

use amb_wake::Summary;
use clap::ValueEnum;
use serde_json::{Value, json};

/// A client with hooks.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(super) enum HookClient {
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

/// An event of a client.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(super) enum HookEvent {
    /// A session was started or resumed
    SessionStart,
    /// The user submitted a prompt
    Prompt,
    /// A tool, or a batch of tools, has run
    PostTool,
    /// The model is about to end its turn
    Stop,
}

/// Whether the client is stopping again after a hook made it go on at the last stop.
pub(super) fn is_repeated_stop(input: &Value) -> bool {
    let active = |name: &str| input[name].as_bool() == Some(true);
    active("stop_hook_active")
        || active("stopHookActive")
        || input["loop_count"].as_u64().is_some_and(|count| count > 0)
}

impl HookClient {
    /// The client's id of the session; where it gives none, all of its sessions are one.
    pub(super) fn session(self, input: &Value) -> String {
        let variable = match self {
            HookClient::Claude => Some("CLAUDE_CODE_SESSION_ID"),
            HookClient::Codex => Some("CODEX_THREAD_ID"),
            HookClient::Qwen => Some("QWEN_CODE_SESSION_ID"),
            _ => None,
        };
        let variable = variable.and_then(crate::profile::variable);
        let names = ["session_id", "sessionId", "conversation_id"];
        let given = || names.iter().find_map(|name| input[name].as_str()).map(str::to_owned);
        variable.or_else(given).unwrap_or_else(|| "unknown".into())
    }

    /// Whether the client passes a hook's output to the model at this event.
    pub(super) fn passes_on(self, event: HookEvent) -> bool {
        !matches!((self, event), (HookClient::Copilot | HookClient::Cursor, HookEvent::Prompt))
    }

    /// The output that tells the model about messages.
    pub(super) fn answer(self, event: HookEvent, input: &Value, summary: &Summary) -> Value {
        let facts = format!("Agent Mailbox: {}.", summary.facts());
        let aside = format!("{facts} Call mailbox_check when your present step is done.");
        let ending = format!("{facts} Call mailbox_check, handle it, then stop.");
        match (self, event) {
            (HookClient::Cursor, HookEvent::Stop) => json!({"followup_message": ending}),
            (_, HookEvent::Stop) => json!({"decision": "block", "reason": ending}),
            (HookClient::Cursor, _) => json!({"additional_context": aside}),
            (HookClient::Copilot, _) => json!({"additionalContext": aside}),
            (HookClient::Claude | HookClient::Codex | HookClient::Gemini | HookClient::Qwen, _) => {
                let name = self.event_name(event, input);
                json!({"hookSpecificOutput": {"hookEventName": name, "additionalContext": aside}})
            }
        }
    }

    /// The client's own name of the event: the one in the input, where several of its events are one of ours.
    fn event_name(self, event: HookEvent, input: &Value) -> &'static str {
        let given = input["hook_event_name"].as_str().unwrap_or_default();
        match (self, event) {
            (HookClient::Gemini, HookEvent::Prompt) => "BeforeAgent",
            (HookClient::Gemini, HookEvent::PostTool) => "AfterTool",
            (_, HookEvent::SessionStart) => "SessionStart",
            (_, HookEvent::Prompt) => "UserPromptSubmit",
            (HookClient::Claude | HookClient::Qwen, HookEvent::PostTool) if given == "PostToolBatch" => "PostToolBatch",
            (HookClient::Claude | HookClient::Qwen, HookEvent::PostTool) if given == "PreToolUse" => "PreToolUse",
            (_, HookEvent::PostTool) => "PostToolUse",
            (_, HookEvent::Stop) => "Stop",
        }
    }
}
