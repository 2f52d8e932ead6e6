//! The result of a tool: text for a model, the same as data for programs, or an error that says what to do next.

use amb_core::{AgentName, Code, OfficeError};
use rmcp::model::{CallToolResult, ContentBlock, JsonObject};
use serde::Serialize;
use serde_json::Value;

use crate::view::note;

/// The result of a tool that succeeded.
#[derive(Debug)]
pub(crate) struct ToolAnswer {
    text: String,
    data: Value,
}

impl ToolAnswer {
    /// Pairs the text with the structured data.
    pub(crate) fn new(text: impl Into<String>, data: &impl Serialize) -> Result<Self, OfficeError> {
        let data = serde_json::to_value(data).map_err(OfficeError::internal)?;
        Ok(Self { text: text.into(), data })
    }

    pub(crate) fn into_result(self) -> CallToolResult {
        let mut result = CallToolResult::success(vec![ContentBlock::text(self.text)]);
        result.structured_content = Some(self.data);
        result
    }
}

/// A tool call, for the error text of its failure.
pub(crate) struct Call<'c> {
    pub(crate) tool: &'c str,
    pub(crate) arguments: Option<&'c JsonObject>,
    /// The caller, where the office was reached.
    pub(crate) me: Option<&'c AgentName>,
}

impl Call<'_> {
    /// A text argument that is not empty.
    fn argument(&self, name: &str) -> Option<&str> {
        self.arguments?.get(name)?.as_str().map(str::trim).filter(|text| !text.is_empty())
    }

    fn is_to_oneself(&self) -> bool {
        self.argument("to").is_some_and(|to| self.me.is_some_and(|me| me.as_str() == to))
    }

    fn names_a_message(&self) -> bool {
        ["session_id", "reply_to", "relay_of"].iter().any(|name| self.argument(name).is_some())
    }
}

/// The result for a failure. Without structured content, which would not match the tool's output schema.
pub(crate) fn failure(call: &Call<'_>, error: &OfficeError) -> CallToolResult {
    if matches!(error.code(), Code::Internal | Code::Unavailable) {
        let source = std::error::Error::source(error).map(ToString::to_string);
        tracing::warn!(tool = call.tool, code = %error.code(), %error, source, "a tool failed");
    }
    let renamed = in_tool_terms(call, error);
    let error = renamed.as_ref().unwrap_or(error);
    // A detail may quote another agent's text.
    let mut text = format!("{}: {}", error.code(), note(&without_commands(error.detail())));
    if let Some(next) = next_step(call, error) {
        text.push_str("\nNext: ");
        text.push_str(&next);
    }
    CallToolResult::error(vec![ContentBlock::text(text)])
}

/// Translates an error about a field of the office's request into the tool's argument: `session_id: must be a UUID`,
/// with `path.`, `query.` or `body.` before it in some offices. An id of the wrong form is reported like an unknown
/// one.
fn in_tool_terms(call: &Call<'_>, error: &OfficeError) -> Option<OfficeError> {
    if error.code() != Code::Invalid {
        return None;
    }
    let placed = error.detail().split_once('.').filter(|(place, _)| matches!(*place, "path" | "query" | "body"));
    let (field, problem) = placed.map_or(error.detail(), |(_, field)| field).split_once(": ")?;
    if field.contains(' ') {
        return None;
    }
    // The tool's name for that field.
    let field = match (call.tool, field) {
        ("mailbox_read", "message_id") if call.argument("message_id").is_none() => "before",
        (_, field) => field,
    };
    if !problem.contains("UUID") {
        return Some(OfficeError::invalid(format!("{field}: {problem}")));
    }
    let what = match field {
        "session_id" => "session",
        "task_id" => "task",
        _ => "message",
    };
    let id = call.argument(field).map(|id| format!(" {id:?}")).unwrap_or_default();
    Some(OfficeError::not_found(format!("no {what}{id}")))
}

/// Removes what a detail says about the command line, which a model does not have, and names the tools instead.
pub(crate) fn without_commands(detail: &str) -> String {
    // A remark in parentheses is removed alone, a clause as a whole.
    let mut detail = detail.to_owned();
    let mut from = 0;
    while let Some(start) = detail[from..].find(" (").map(|at| from + at)
        && let Some(length) = detail[start..].find(')')
    {
        if is_of_command_line(&detail[start..=start + length]) {
            detail.replace_range(start..=start + length, "");
        } else {
            from = start + length;
        }
    }
    let clauses: Vec<_> = detail.split("; ").filter(|clause| !is_of_command_line(clause)).collect();
    if !clauses.is_empty() {
        return clauses.join("; ");
    }
    // No clause is left: keeps everything before the first part about the command line.
    let parts = detail.split(", ").take_while(|part| !is_of_command_line(part)).collect::<Vec<_>>().join(", ");
    if parts.is_empty() { "this cannot be done here".into() } else { parts }
}

/// Whether this text is about commands or their options.
fn is_of_command_line(words: &str) -> bool {
    let is_option = |word: &str| {
        let bare = word.trim_start_matches(|c: char| "(`\"'".contains(c));
        bare.strip_prefix("--").is_some_and(|name| name.starts_with(|c: char| c.is_ascii_alphabetic()))
    };
    words.contains("`amb ") || words.contains("`inbox`") || words.split_whitespace().any(is_option)
}

/// Whether a call only reads, so that it cannot have changed anything.
fn is_read_only(tool: &str, call: &Call<'_>) -> bool {
    matches!(tool, "mailbox_check" | "mailbox_read" | "mailbox_wait" | "list_peers" | "transcript_recent")
        || (tool == "mailbox_task" && call.argument("action") == Some("list"))
}

/// What a model can do about the error with its tools.
fn next_step(call: &Call<'_>, error: &OfficeError) -> Option<String> {
    let fixed = |text: &str| Some(text.to_owned());
    let tool = call.tool;
    match error.code() {
        Code::NotConnected | Code::NotFound | Code::NotAllowed | Code::Forbidden | Code::Invalid
            if call.is_to_oneself() =>
        {
            fixed("that is your own name; call list_peers for the others.")
        }
        Code::NotConnected => fixed(
            "ask for a connection with mailbox_connect, and have your user pass the code to the other agent's user by a human channel.",
        ),
        Code::NotFound => match tool {
            "mailbox_send" if call.names_a_message() => fixed(
                "mailbox_check and mailbox_read show the session and message ids there are, list_peers the names; or leave the ids out and give a subject.",
            ),
            "mailbox_send" | "mailbox_connect" | "send_to_peer" => fixed("call list_peers for the names there are."),
            "mailbox_read" if call.argument("before").or(call.argument("message_id")).is_some() => {
                fixed("call mailbox_read with session_id alone for the message ids there are.")
            }
            "mailbox_read" => fixed("call mailbox_check for the session ids there are."),
            "mailbox_task" => fixed("call mailbox_task with action list for the tasks there are."),
            "mailbox_approve" => {
                fixed("check the code with the person who gave it to you; mailbox_check lists open requests.")
            }
            _ => None,
        },
        Code::Gone => match tool {
            "mailbox_approve" => fixed("ask the other agent to request the connection again, which makes a new code."),
            _ => None,
        },
        Code::NotAllowed | Code::Forbidden if tool == "mailbox_task" => fixed(
            "only the agent that a task was given to moves it; write to that agent with mailbox_send if it shall stop or hurry.",
        ),
        Code::Forbidden if tool == "mailbox_send" && call.argument("session_id").is_some() => fixed(
            "leave session_id out and give a subject, or take the session_id of a thread with this agent from mailbox_check.",
        ),
        Code::NotAllowed | Code::Forbidden => {
            fixed("do not retry; tell your user that the other agent does not accept this.")
        }
        Code::Unauthorized => fixed(
            "tell your user that the mailbox's key is missing or wrong (MAILBOX_API_KEY in the settings of this MCP server).",
        ),
        Code::LoopRefused => fixed(
            "do the work yourself, or report to whoever asked you. Only if your user, not a mail, asked for this message: call again with user_request true.",
        ),
        Code::IllegalMove => fixed("call mailbox_task with action list to see where the task stands."),
        Code::TooManyRequests => {
            let seconds = error.wait().map_or(30, |wait| wait.as_secs().max(1));
            Some(format!("wait {seconds} seconds, then try once more."))
        }
        Code::Unavailable if error.may_be_done() => fixed(match tool {
            "mailbox_send" => {
                "it may have been sent all the same: look with mailbox_check or mailbox_read, and send it again only if it is not there."
            }
            _ => "it may have been done all the same: look with mailbox_check before you try again.",
        }),
        Code::Unavailable if is_read_only(tool, call) => {
            fixed("try again in a moment, and tell your user if it keeps failing.")
        }
        Code::Unavailable => {
            fixed("nothing was accepted; try again in a moment, and tell your user if it keeps failing.")
        }
        Code::TooLarge => fixed("shorten it, or write it to a file that both agents can reach and send the path."),
        Code::OverQuota => {
            fixed("do not retry; tell your user that this office stores no more mail, and what is said above.")
        }
        Code::Unsupported if matches!(tool, "mailbox_connect" | "mailbox_approve") => {
            fixed("no connection is needed here: call list_peers, then mailbox_send.")
        }
        Code::Internal => fixed("tell your user; trying again is safe for tools that only read."),
        Code::Invalid | Code::Conflict | Code::Unsupported => None,
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_failure_says_that_nothing_was_accepted_only_where_that_is_known() {
        let call = Call { tool: "mailbox_send", arguments: None, me: None };
        let next = |error: OfficeError| next_step(&call, &error).unwrap();
        assert!(next(OfficeError::unavailable("the disk is full")).starts_with("nothing was accepted"));
        let unsure = next(OfficeError::unavailable("no answer").perhaps_done());
        assert!(unsure.contains("may have been sent") && !unsure.contains("nothing"), "{unsure}");
    }

    #[test]
    fn the_failure_of_a_read_does_not_mention_accepting() {
        for (tool, arguments) in
            [("mailbox_check", json!({})), ("mailbox_wait", json!({})), ("mailbox_task", json!({"action": "list"}))]
        {
            let call = Call { tool, arguments: arguments.as_object(), me: None };
            let next = next_step(&call, &OfficeError::unavailable("down")).unwrap();
            assert!(!next.contains("accepted"), "{tool}: {next}");
        }
    }

    #[test]
    fn errors_name_fields_as_the_tools_do() {
        let told = |tool, arguments: Value, detail: &str| {
            let call = Call { tool, arguments: arguments.as_object(), me: None };
            let result = failure(&call, &OfficeError::invalid(detail));
            serde_json::to_value(result).unwrap()["content"][0]["text"].as_str().unwrap().to_owned()
        };
        for detail in ["path.session_id: must be a UUID", "session_id: must be a UUID"] {
            let bad = told("mailbox_read", json!({"session_id": "zzz"}), detail);
            assert!(bad.starts_with("not_found: no session \"zzz\"\nNext: call mailbox_check"), "{bad}");
        }
        let bad = told("mailbox_task", json!({"task_id": "zzz"}), "path.task_id: must be a UUID");
        assert!(bad.starts_with("not_found: no task \"zzz\"\nNext: call mailbox_task with action list"), "{bad}");
        let bad = told("mailbox_send", json!({"reply_to": "x"}), "body.reply_to: must be a UUID");
        assert!(bad.starts_with("not_found: no message \"x\"\nNext: mailbox_check and mailbox_read"), "{bad}");
        let long = told("mailbox_task", json!({}), "body.note: has at most 10000 characters");
        assert_eq!(long, "invalid: note: has at most 10000 characters");
    }

    #[test]
    fn errors_for_models_do_not_mention_the_command_line() {
        for (detail, said) in [
            ("no such session; `inbox` lists yours", "no such session"),
            ("no agent \"x\"; `amb agents` lists those you can write to", "no agent \"x\""),
            ("cannot reach it; is the server running? (`amb serve`)", "cannot reach it; is the server running?"),
            ("it is not used; name the one that you want with --dir", "it is not used"),
            ("say who you are: --as NAME, or AMB_AS in the environment", "this cannot be done here"),
            ("not there (start it with --listen) yet", "not there yet"),
            ("a -- dash; plain; words", "a -- dash; plain; words"),
        ] {
            assert_eq!(without_commands(detail), said);
        }
    }
}
