//! What several formats share: content parts, tasks and callbacks in JSON, converted to domain types.

use super::WireError;
use super::json::{Fields, Json};
use super::stamp::instant;
use crate::Object;
use crate::id::{MessageId, TaskId};
use crate::limits::{MAX_KIND_CHARS, MAX_TRACE, MAX_TTL};
use crate::message::{Callback, Kind, Part};
use crate::name::AgentName;
use crate::task::{TaskRef, TaskState};

/// The content of a message: parts, or one of the shorter forms in which programs write plain text.
pub(crate) fn content(value: Json<'_>) -> Result<Vec<Part>, WireError> {
    match value {
        Json::Null => Ok(Vec::new()),
        Json::Text(text) => Ok(vec![Part::Text { text: text.into_owned() }]),
        Json::List(items) => Ok(items.into_iter().map(part).collect()),
        Json::Map(mut fields) => {
            if let Some(parts) = fields.take("parts") {
                return match parts {
                    Json::Null => Ok(Vec::new()),
                    parts => Ok(parts.list("content.parts")?.into_iter().map(part).collect()),
                };
            }
            Ok(if fields.0.is_empty() { Vec::new() } else { vec![part(Json::Map(fields))] })
        }
        other => Err(other.wrong("content", "an object with parts")),
    }
}

/// One part. What is not a complete text, data or file part becomes data.
pub(crate) fn part(value: Json<'_>) -> Part {
    let mut fields = match value {
        Json::Text(text) => return Part::Text { text: text.into_owned() },
        Json::Map(fields) => fields,
        other => return Part::Data { data: other.into_value() },
    };
    let known = match fields.get("type").map(Json::as_text) {
        Some(Some("text")) | None => matches!(fields.get("text"), Some(Json::Text(_))).then_some("text"),
        Some(Some("data")) => fields.get("data").map(|_| "data"),
        Some(Some("file")) => matches!(fields.get("path"), Some(Json::Text(_))).then_some("path"),
        _ => None,
    };
    match known.and_then(|field| Some((field, fields.take(field)?))) {
        Some(("data", data)) => Part::Data { data: data.into_value() },
        Some(("path", Json::Text(path))) => {
            let media_type = fields.get("media_type").and_then(Json::as_text).map(str::to_owned);
            Part::File { path: path.into_owned(), media_type }
        }
        Some((_, Json::Text(text))) => Part::Text { text: text.into_owned() },
        _ => Part::Data { data: Json::Map(fields).into_value() },
    }
}

/// The remaining hops, at most what is accepted from another system.
pub(crate) fn ttl(value: Json<'_>, field: &'static str) -> Result<u8, WireError> {
    // At most MAX_TTL, so it fits.
    Ok(value.clamped(field, u32::from(MAX_TTL))? as u8)
}

/// The agents that it passed; entries that are no names are left out. The latest are kept.
pub(crate) fn trace(value: Json<'_>, field: &'static str) -> Result<Vec<AgentName>, WireError> {
    let items = value.list(field)?;
    let skip = items.len().saturating_sub(MAX_TRACE);
    Ok(items.iter().skip(skip).filter_map(|item| AgentName::parse(item.as_text()?).ok()).collect())
}

/// The task. One without an id gets that of the message that brings it, or for an update of the one that it answers.
pub(crate) fn task(
    value: Json<'_>,
    kind: &Kind,
    message: &MessageId,
    reply_to: Option<&MessageId>,
) -> Result<TaskRef, WireError> {
    let (mut id, mut state, mut deadline, mut extra) = (None, None, None, Object::new());
    let value = match value {
        // Some programs name or describe the task in a plain text.
        Json::Text(text) => {
            let field = if TaskId::parse(&text).is_ok() { "id" } else { "description" };
            let fields = if text.is_empty() { Vec::new() } else { vec![(field.into(), Json::Text(text))] };
            Json::Map(Fields(fields))
        }
        value => value,
    };
    for (key, value) in value.map("task")?.0 {
        match &*key {
            "id" => id = value.some(),
            "state" => state = value.some(),
            "deadline" => deadline = value.some(),
            _ => drop(extra.insert(key.into_owned(), value.into_value())),
        }
    }
    let id = match id {
        Some(Json::Number(number)) => number.to_string(),
        Some(id) => id.text("task.id")?.into_owned(),
        None if *kind == Kind::TaskUpdate => reply_to.ok_or_else(|| WireError::missing("task.id"))?.to_string(),
        None => message.to_string(),
    };
    let id = TaskId::parse(&id).map_err(|bad| WireError::field("task.id", format!("is not an id: {bad}")))?;
    let state = match state {
        Some(state) => {
            let word = state.text("task.state")?;
            word.parse().map_err(|_| WireError::field("task.state", format!("is no state of a task: {word:?}")))?
        }
        None if *kind == Kind::TaskUpdate => return Err(WireError::missing("task.state")),
        None => TaskState::Pending,
    };
    let deadline = deadline.map(|value| instant(&value, "task.deadline")).transpose()?;
    Ok(TaskRef { id, state, deadline, extra })
}

/// Where the answer is to go. Some channels number their chats; numbers become text.
pub(crate) fn callback(value: Json<'_>) -> Result<Callback, WireError> {
    fn text(value: Json<'_>, field: &'static str) -> Result<Option<String>, WireError> {
        Ok(match value {
            Json::Null => None,
            Json::Number(number) => Some(number.to_string()),
            other => Some(other.text(field)?.into_owned()),
        })
    }
    let mut callback = Callback::default();
    for (key, value) in value.map("callback")?.0 {
        match &*key {
            "channel" => callback.channel = text(value, "callback.channel")?,
            "session_id" => callback.session_id = text(value, "callback.session_id")?,
            "chat_id" => callback.chat_id = text(value, "callback.chat_id")?,
            _ => drop(callback.extra.insert(key.into_owned(), value.into_value())),
        }
    }
    Ok(callback)
}

/// A required name.
pub(crate) fn name(value: Option<Json<'_>>, field: &'static str) -> Result<AgentName, WireError> {
    let text = value.ok_or_else(|| WireError::missing(field))?.text(field)?;
    AgentName::parse(&text).map_err(|bad| WireError::field(field, format!("is not an agent's name: {bad}")))
}

/// The kind of another program's message: an unknown word becomes a label, and what is no text a plain message.
pub(crate) fn any_kind(value: Option<Json<'_>>) -> Kind {
    let Some(Json::Text(word)) = value else { return Kind::Message };
    let shown = |c: char| !(c.is_whitespace() || c.is_control() || crate::render::is_invisible(c));
    let label = || word.chars().take(MAX_KIND_CHARS).map(|c| if shown(c) { c } else { '_' }).collect::<String>();
    word.parse().or_else(|_| label().parse()).unwrap_or_default()
}

/// A kind; a missing one is a plain message.
pub(crate) fn kind(value: Option<Json<'_>>) -> Result<Kind, WireError> {
    match value {
        None => Ok(Kind::Message),
        Some(value) => {
            let word = value.text("type")?;
            word.parse().map_err(|_| WireError::field("type", format!("is no kind of message: {word:?}")))
        }
    }
}

/// The message that is answered; an empty text means none.
pub(crate) fn reply_to(value: Option<Json<'_>>, field: &'static str) -> Result<Option<MessageId>, WireError> {
    let Some(value) = value else { return Ok(None) };
    let text = value.text(field)?;
    if text.is_empty() {
        return Ok(None);
    }
    MessageId::parse(&text).map(Some).map_err(|bad| WireError::field(field, format!("is not an id: {bad}")))
}

/// An object that is kept as it is.
pub(crate) fn object(value: Option<Json<'_>>, field: &'static str) -> Result<Object, WireError> {
    value.map_or_else(|| Ok(Object::new()), |value| value.map(field).map(Fields::into_object))
}
