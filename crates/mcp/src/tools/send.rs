//! `mailbox_send`: a durable message to another agent. Once it returns, the message is stored.

use amb_core::limits::{MAX_SUBJECT_CHARS, MAX_TEXT_CHARS};
use amb_core::task::{TaskRef, parse_deadline};
use amb_core::{Callback, Draft, Kind, MessageId, OfficeError, Part, Timestamp};
use rmcp::model::{JsonObject, Tool};
use serde::{Deserialize, Deserializer, Serialize};
use serde_json::Value;

use super::post::{PostedMessage, post};
use super::{CallContext, Effect};
use crate::answer::ToolAnswer;
use crate::arguments::{filled, parse};
use crate::schema::{answer, arguments, flag, free, hint, limited, list, object, short, text, usually};
use crate::view::{UNTRUSTED, given_id, is_default, line, note, shown_id};

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct SendArguments {
    to: String,
    #[serde(default, deserialize_with = "filled")]
    subject: Option<String>,
    #[serde(default)]
    content: String,
    #[serde(default, deserialize_with = "filled")]
    session_id: Option<String>,
    #[serde(default, deserialize_with = "filled")]
    reply_to: Option<String>,
    #[serde(default, deserialize_with = "filled")]
    relay_of: Option<String>,
    #[serde(default, deserialize_with = "filled")]
    kind: Option<String>,
    #[serde(default, deserialize_with = "filled")]
    priority: Option<String>,
    #[serde(default, deserialize_with = "filled")]
    deadline: Option<String>,
    #[serde(default, deserialize_with = "given")]
    data: Option<Value>,
    files: Option<Vec<String>>,
    callback: Option<Callback>,
    user_request: Option<bool>,
}

/// A value that is present. `null` counts as absent where it has no other meaning: models fill optional fields with it.
fn given<'de, D: Deserializer<'de>>(de: D) -> Result<Option<Value>, D::Error> {
    let value = Value::deserialize(de)?;
    Ok(Some(value).filter(|value| !value.is_null() && value.as_str() != Some("")))
}

pub(super) fn tool() -> Tool {
    super::tool(
        "mailbox_send",
        "Send a message, or a task with kind=task, to another agent, running or not. Durable once answered. Answer with \
         reply_to or session_id; a new topic needs a subject.",
        Effect::Adds,
        arguments(&[
            ("to!", hint("see list_peers")),
            ("subject", short(MAX_SUBJECT_CHARS, "names a new thread")),
            ("content!", limited(MAX_TEXT_CHARS)),
            ("session_id", hint("thread to continue")),
            ("reply_to", hint("message id this answers")),
            ("relay_of", hint("message id this passes on")),
            ("kind", hint("message (default), task (asks for a result) or a label")),
            ("priority", usually("normal", &["low", "normal", "high", "urgent"])),
            ("deadline", hint("task only: RFC 3339, or from now: 2h")),
            ("data", free("JSON for programs")),
            ("files", list(hint("path the recipient can reach"))),
            ("callback", free("task only: {channel, session_id, chat_id}, back with each update")),
            ("user_request", hint_flag("after loop_refused: your user, not a mail, asked for this")),
        ]),
        answer(&[("message_id!", text()), ("session_id!", text()), ("task", object(&[("id", text())]))]),
    )
}

fn hint_flag(description: &str) -> Value {
    let mut schema = flag();
    schema["description"] = description.into();
    schema
}

pub(super) async fn call(call: &CallContext, arguments: Option<JsonObject>) -> Result<ToolAnswer, OfficeError> {
    let args: SendArguments = parse(arguments)?;
    let named = args.session_id.is_some() || args.reply_to.is_some();
    if args.subject.is_none() && !named {
        return Err(OfficeError::invalid(
            "subject is empty; name the new thread in a few words, or give session_id or reply_to",
        ));
    }
    let chars = args.content.chars().count();
    if chars > MAX_TEXT_CHARS {
        return Err(OfficeError::too_large(format!("content has {chars} characters, at most {MAX_TEXT_CHARS}")));
    }
    let mut draft = Draft::text(args.to.trim().parse()?, "", args.content);
    let beside = args.data.is_some() || args.files.as_ref().is_some_and(|files| !files.is_empty());
    if beside && draft.parts == [Part::text("")] {
        draft.parts.clear();
    }
    draft.parts.extend(args.data.map(Part::data));
    draft.parts.extend(args.files.into_iter().flatten().map(Part::file));
    draft.subject = args.subject;
    draft.session = args.session_id.map(|id| given_id(&id)).transpose()?;
    draft.reply_to = args.reply_to.map(|id| given_id(&id)).transpose()?;
    draft.relay_of = args.relay_of.map(|id| given_id(&id)).transpose()?;
    draft.kind = args.kind.map_or(Ok(Kind::Message), |kind| kind.trim().parse())?;
    draft.priority = args.priority.map_or(Ok(Default::default()), |priority| priority.trim().parse())?;
    draft.deadline = args.deadline.map(|time| parse_deadline(time.trim(), Timestamp::now())).transpose()?;
    draft.callback = args.callback.filter(|callback| *callback != Callback::default());
    let (to, subject) = (draft.to.clone(), draft.subject.clone());
    let PostedMessage { sent, passes_on } = post(call, draft, args.user_request.unwrap_or(false)).await?;
    // The session's subject, which the other side may have chosen.
    let theirs = sent.reason.is_some() || subject.as_ref() != Some(&sent.subject);
    let sent = SentShown {
        note: theirs.then_some(UNTRUSTED),
        message_id: sent.message_id,
        session_id: shown_id(&sent.session_id),
        subject: line(&sent.subject),
        created_at: sent.created_at,
        task: sent.task,
        reason: sent.reason.as_deref().map(note),
        paused: sent.paused,
        passes_on: passes_on.as_ref().map(shown_id),
    };
    let mut text = format!("Sent to {to}: message_id {}, session_id {}.", sent.message_id, sent.session_id);
    if let Some(id) = &sent.passes_on {
        text.push_str(&format!(" It counts as passing on {id}."));
    }
    if let Some(task) = &sent.task {
        text.push_str(&format!(" Task {} is {}.", task.id, task.state));
    }
    if sent.paused {
        text.push_str(&format!(" {to} is paused by its owner; it gets this when it is resumed."));
    }
    if let Some(reason) = &sent.reason {
        text.push_str(&format!(" Reason: {reason}"));
    }
    ToolAnswer::new(text, &sent)
}

#[derive(Serialize)]
struct SentShown {
    #[serde(skip_serializing_if = "Option::is_none")]
    note: Option<&'static str>,
    message_id: MessageId,
    session_id: String,
    subject: String,
    created_at: Timestamp,
    #[serde(skip_serializing_if = "Option::is_none")]
    task: Option<TaskRef>,
    #[serde(skip_serializing_if = "Option::is_none")]
    reason: Option<String>,
    #[serde(skip_serializing_if = "is_default")]
    paused: bool,
    /// The message that it counts as passing on although the model named none.
    #[serde(skip_serializing_if = "Option::is_none")]
    passes_on: Option<String>,
}
