//! `mailbox_send`: durable mail to another agent. When it answers, the message is safe.

use amb_core::{Draft, Kind, OfficeError, Timestamp};
use rmcp::model::{JsonObject, Tool};
use serde::Deserialize;

use super::{Desk, Effect};
use crate::answer::Answer;
use crate::arguments::{filled, parse};
use crate::schema::{answer, arguments, hint, object, one_of, text};
use crate::view::{line, seen};

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Arguments {
    to: String,
    #[serde(default, deserialize_with = "filled")]
    subject: Option<String>,
    content: String,
    #[serde(default, deserialize_with = "filled")]
    session_id: Option<String>,
    #[serde(default, deserialize_with = "filled")]
    reply_to: Option<String>,
    #[serde(default, deserialize_with = "filled")]
    kind: Option<String>,
    #[serde(default, deserialize_with = "filled")]
    priority: Option<String>,
    #[serde(default, deserialize_with = "filled")]
    deadline: Option<String>,
}

pub(super) fn tool() -> Tool {
    super::tool(
        "mailbox_send",
        "Send a message, or a task with kind=task, to another agent. Durable once answered.",
        Effect::Adds,
        arguments(&[
            ("to!", hint("agent name, see list_peers")),
            ("subject!", hint("names the thread")),
            ("content!", text()),
            ("session_id", hint("thread to continue")),
            ("reply_to", hint("message id this answers")),
            ("kind", hint("message (default), task or a label")),
            ("priority", one_of(&["low", "normal", "high", "urgent"])),
            ("deadline", hint("task only, RFC 3339")),
        ]),
        answer(&[
            ("message_id!", text()),
            ("session_id!", text()),
            ("subject!", text()),
            ("task", object(&[("id!", text()), ("state!", text())])),
            ("reason", text()),
        ]),
    )
}

pub(super) async fn call(desk: &Desk, arguments: Option<JsonObject>) -> Result<Answer, OfficeError> {
    let args: Arguments = parse(arguments)?;
    if args.subject.is_none() && args.session_id.is_none() && args.reply_to.is_none() {
        return Err(OfficeError::invalid("subject is empty; name the thread in a few words, or give session_id"));
    }
    let mut draft = Draft::text(args.to.trim().parse()?, "", args.content);
    draft.subject = args.subject;
    draft.session = args.session_id.map(|id| id.trim().parse()).transpose()?;
    draft.reply_to = args.reply_to.map(|id| id.trim().parse()).transpose()?;
    draft.kind = args.kind.map_or(Ok(Kind::Message), |kind| kind.trim().parse())?;
    draft.priority = args.priority.map_or(Ok(Default::default()), |priority| priority.trim().parse())?;
    draft.deadline = args.deadline.map(|time| moment(time.trim())).transpose()?;
    let to = draft.to.clone();
    let mut sent = desk.office.send(draft).await?;
    // The subject is the thread's, which the other side may have begun.
    sent.subject = line(&sent.subject);
    sent.reason = sent.reason.as_deref().map(seen);
    let mut text = format!("Sent to {to}: message_id {}, session_id {}.", sent.message_id, sent.session_id);
    if let Some(task) = &sent.task {
        text.push_str(&format!(" Task {} is {}.", task.id, task.state));
    }
    if let Some(reason) = &sent.reason {
        text.push_str(&format!(" Reason: {reason}"));
    }
    Answer::new(text, &sent)
}

fn moment(text: &str) -> Result<Timestamp, OfficeError> {
    text.parse()
        .map_err(|_| OfficeError::invalid(format!("deadline is a moment such as 2026-09-01T12:00:00Z, not {text:?}")))
}
