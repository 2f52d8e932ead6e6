//! What a tool answers: text for a model, the same as data for programs, or an error that says what to do next.

use amb_core::{Code, OfficeError};
use rmcp::model::{CallToolResult, ContentBlock};
use serde::Serialize;
use serde_json::Value;

use crate::view::seen;

/// A tool's success.
#[derive(Debug)]
pub(crate) struct Answer {
    text: String,
    data: Value,
}

impl Answer {
    /// Pairs the readable and the structured form.
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

/// A failure as the model sees it. No structured content: it would not be of the tool's output schema.
pub(crate) fn failure(tool: &str, error: &OfficeError) -> CallToolResult {
    if matches!(error.code(), Code::Internal | Code::Unavailable) {
        let source = std::error::Error::source(error).map(ToString::to_string);
        tracing::warn!(tool, code = %error.code(), %error, source, "a tool failed");
    }
    // A detail may repeat what somebody else wrote.
    let mut text = format!("{}: {}", error.code(), seen(error.detail()));
    if let Some(next) = next_step(tool, error) {
        text.push_str("\nNext: ");
        text.push_str(&next);
    }
    CallToolResult::error(vec![ContentBlock::text(text)])
}

/// What a model can do about it with the tools it has.
fn next_step(tool: &str, error: &OfficeError) -> Option<String> {
    let fixed = |text: &str| Some(text.to_owned());
    match error.code() {
        Code::NotConnected => fixed(
            "ask for a connection with mailbox_connect, and have your user pass the code to the other agent's user by a human channel.",
        ),
        Code::NotFound => match tool {
            "mailbox_send" | "mailbox_connect" | "send_to_peer" => fixed("call list_peers for the names there are."),
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
        Code::NotAllowed | Code::Forbidden => {
            fixed("do not retry; tell your user that the other agent does not accept this.")
        }
        Code::Unauthorized => fixed(
            "tell your user that the mailbox's key is missing or wrong (MAILBOX_API_KEY; `amb doctor` checks it).",
        ),
        Code::LoopRefused => fixed("do the work yourself, or report the result to whoever asked you."),
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
        Code::Unavailable => {
            fixed("nothing was accepted; try again in a moment, and tell your user if it keeps failing.")
        }
        Code::TooLarge => fixed("shorten it, or write it to a file that both agents can reach and send the path."),
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
    use super::*;

    #[test]
    fn a_failure_says_that_nothing_was_accepted_only_where_that_is_known() {
        let next = |error: OfficeError| next_step("mailbox_send", &error).unwrap();
        assert!(next(OfficeError::unavailable("the disk is full")).starts_with("nothing was accepted"));
        let unsure = next(OfficeError::unavailable("no answer").perhaps_done());
        assert!(unsure.contains("may have been sent") && !unsure.contains("nothing"), "{unsure}");
    }
}
