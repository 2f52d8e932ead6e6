//! Fields that several formats share, converted to domain types.

use serde_json::Value;

use super::WireError;
use super::json::{self, wrong_type};
use super::stamp::instant;
use crate::Object;
use crate::id::{BadId, MessageId, TaskId};
use crate::limits::{MAX_KIND_CHARS, MAX_TRACE, MAX_TTL};
use crate::message::{Callback, Kind, Part};
use crate::name::AgentName;
use crate::task::{TaskRef, TaskState};

/// The content of a message: parts, or one of the shorter forms in which programs write plain text.
pub(crate) fn content(value: Value) -> Result<Vec<Part>, WireError> {
    match value {
        Value::Null => Ok(Vec::new()),
        Value::Array(items) => Ok(items.into_iter().map(part).collect()),
        Value::Object(mut fields) => match fields.remove("parts") {
            Some(Value::Null) => Ok(Vec::new()),
            Some(parts) => Ok(json::array(parts, "content.parts")?.into_iter().map(part).collect()),
            None if fields.is_empty() => Ok(Vec::new()),
            None => Ok(vec![part(Value::Object(fields))]),
        },
        Value::String(_) => Ok(vec![part(value)]),
        other => Err(wrong_type(&other, "content", "an object with parts")),
    }
}

/// One part. What is not a complete text, data or file part becomes data.
pub(crate) fn part(value: Value) -> Part {
    let mut fields = match value {
        Value::String(text) => return Part::Text { text },
        Value::Object(fields) => fields,
        data => return Part::Data { data },
    };
    let field = match fields.get("type").map(Value::as_str) {
        Some(Some("text")) | None => "text",
        Some(Some("data")) => "data",
        Some(Some("file")) => "path",
        Some(_) => return Part::Data { data: Value::Object(fields) },
    };
    match (field, fields.remove(field)) {
        ("text", Some(Value::String(text))) => Part::Text { text },
        ("data", Some(data)) => Part::Data { data },
        ("path", Some(Value::String(path))) => {
            let media_type = fields.get("media_type").and_then(Value::as_str).map(str::to_owned);
            Part::File { path, media_type }
        }
        (field, unusable) => {
            fields.extend(unusable.map(|value| (field.to_owned(), value)));
            Part::Data { data: Value::Object(fields) }
        }
    }
}

/// The remaining hops, at most what is accepted from another system.
pub(crate) fn ttl(value: &Value, field: &'static str) -> Result<u8, WireError> {
    // At most MAX_TTL, so it fits.
    Ok(json::clamped(value, field, u32::from(MAX_TTL))? as u8)
}

/// The agents that it passed, of which the latest are kept. Entries that are no names are skipped.
pub(crate) fn trace(value: Value, field: &'static str) -> Result<Vec<AgentName>, WireError> {
    let items = json::array(value, field)?;
    let skip = items.len().saturating_sub(MAX_TRACE);
    Ok(items.iter().skip(skip).filter_map(|item| AgentName::parse(item.as_str()?).ok()).collect())
}

/// The task. Without an id of its own it has that of the message that carries it; an update that of the message it
/// answers.
pub(crate) fn task(
    value: Value,
    kind: &Kind,
    message: &MessageId,
    reply_to: Option<&MessageId>,
) -> Result<TaskRef, WireError> {
    let mut fields = match value {
        // Some programs name or describe the task in a plain text.
        Value::String(text) if text.is_empty() => Object::new(),
        Value::String(text) => {
            let field = if TaskId::parse(&text).is_ok() { "id" } else { "description" };
            Object::from_iter([(field.to_owned(), Value::String(text))])
        }
        value => json::object(value, "task")?,
    };
    let mut take = |name| json::take(&mut fields, name);
    let id = match take("id") {
        Some(Value::Number(number)) => number.to_string(),
        Some(id) => json::string(id, "task.id")?,
        None if *kind == Kind::TaskUpdate => reply_to.ok_or_else(|| WireError::missing("task.id"))?.to_string(),
        None => message.to_string(),
    };
    let id = TaskId::parse(&id).map_err(|bad| not_an_id("task.id", &bad))?;
    let state = match take("state") {
        Some(state) => {
            let word = json::string(state, "task.state")?;
            word.parse().map_err(|_| WireError::field("task.state", format!("is no state of a task: {word:?}")))?
        }
        None if *kind == Kind::TaskUpdate => return Err(WireError::missing("task.state")),
        None => TaskState::Pending,
    };
    let deadline = take("deadline").map(|value| instant(&value, "task.deadline")).transpose()?;
    Ok(TaskRef { id, state, deadline, extra: fields })
}

/// Where the answer is to go. Some channels number their chats; numbers become text.
pub(crate) fn callback(value: Value) -> Result<Callback, WireError> {
    let mut fields = json::object(value, "callback")?;
    let mut text = |name: &str, field| match fields.remove(name) {
        None | Some(Value::Null) => Ok(None),
        Some(Value::Number(number)) => Ok(Some(number.to_string())),
        Some(other) => json::string(other, field).map(Some),
    };
    Ok(Callback {
        channel: text("channel", "callback.channel")?,
        session_id: text("session_id", "callback.session_id")?,
        chat_id: text("chat_id", "callback.chat_id")?,
        extra: fields,
    })
}

/// A required name.
pub(crate) fn name(value: Option<Value>, field: &'static str) -> Result<AgentName, WireError> {
    let text = json::string(value.ok_or_else(|| WireError::missing(field))?, field)?;
    AgentName::parse(&text).map_err(|bad| WireError::field(field, format!("is not an agent's name: {bad}")))
}

/// The kind of another program's message: an unknown word becomes a label, and what is not a string a plain message.
pub(crate) fn any_kind(value: Option<Value>) -> Kind {
    let Some(Value::String(word)) = value else { return Kind::Message };
    let shown = |c: char| !(c.is_whitespace() || c.is_control() || crate::render::is_invisible(c));
    let label = || word.chars().take(MAX_KIND_CHARS).map(|c| if shown(c) { c } else { '_' }).collect::<String>();
    word.parse().or_else(|_| label().parse()).unwrap_or_default()
}

/// The message that is answered; an empty text means none.
pub(crate) fn reply_to(value: Option<Value>, field: &'static str) -> Result<Option<MessageId>, WireError> {
    let text = value.map(|value| json::string(value, field)).transpose()?.filter(|text| !text.is_empty());
    text.map(|text| MessageId::parse(&text).map_err(|bad| not_an_id(field, &bad))).transpose()
}

/// The error for a field that should be an id.
pub(crate) fn not_an_id(field: &'static str, bad: &BadId) -> WireError {
    WireError::field(field, format!("is not an id: {bad}"))
}
