//! Parses a draft from a dict: the fields of the contract, and shorthands for Python.

use amb_core::limits::MAX_TTL;
use amb_core::mailbox::{Mailbox, Result};
use amb_core::message::AUTOMATIC;
use amb_core::route::Hop;
use amb_core::task::parse_deadline;
use amb_core::{AgentName, Draft, MessageId, OfficeError, Timestamp};
use serde_json::{Map, Value, json};

const FIELDS: [&str; 20] = [
    "to",
    "text",
    "parts",
    "kind",
    "subject",
    "session",
    "priority",
    "deadline",
    "deadline_in",
    "callback",
    "reply_to",
    "relay_of",
    "parent",
    "automatic",
    "correlation_id",
    "metadata",
    "idempotency_key",
    "type",
    "ttl",
    "trace",
];

/// The draft that a dict describes, and the remaining hops that it names; `office` tells who sent the message that it
/// follows.
pub(crate) async fn read(office: &dyn Mailbox, value: Value) -> Result<(Draft, Option<Hop>)> {
    let Value::Object(mut fields) = value else {
        return Err(OfficeError::invalid("a draft is a dict with `to` and `text`"));
    };
    // None counts as absent.
    fields.retain(|_, value| !value.is_null());
    if let Some(unknown) = fields.keys().find(|key| !FIELDS.contains(&key.as_str())) {
        let known = FIELDS[..FIELDS.len() - 3].join(", ");
        return Err(OfficeError::invalid(format!("a draft has no field {unknown:?}; it may have {known}")));
    }
    if let Some(kind) = fields.remove("type") {
        fields.entry("kind").or_insert(kind);
    }
    if let Some(text) = fields.remove("text") {
        let Value::String(text) = text else { return Err(OfficeError::invalid("`text` is a string")) };
        if fields.contains_key("parts") {
            return Err(OfficeError::invalid("a draft has `text` or `parts`, not both"));
        }
        fields.insert("parts".into(), json!([{ "type": "text", "text": text }]));
    }
    if !fields.contains_key("parts") {
        return Err(OfficeError::invalid("a draft needs content: `text` or `parts`"));
    }
    read_deadline(&mut fields)?;
    let automatic = match fields.remove("automatic") {
        None => None,
        Some(Value::Bool(automatic)) => Some(automatic),
        Some(_) => return Err(OfficeError::invalid("`automatic` is true or false")),
    };
    let within = hop_of(&mut fields)?;
    let parent = fields.remove("parent").map(|parent| id_of(&parent)).transpose()?;
    let draft: Draft = serde_json::from_value(Value::Object(fields)).map_err(|error| {
        let text = error.to_string();
        OfficeError::invalid(text.replace("missing field `to`", "a draft needs `to`: who shall receive it"))
    })?;
    let mut draft = match parent {
        Some(parent) => following(office, draft, parent).await?,
        None => draft,
    };
    if automatic == Some(true) {
        draft.metadata.insert(AUTOMATIC.into(), true.into());
    }
    Ok((draft, within))
}

/// The remaining hops, from a program that counts them itself. Entries that are no names are left out.
fn hop_of(fields: &mut Map<String, Value>) -> Result<Option<Hop>> {
    let (ttl, trace) = (fields.remove("ttl"), fields.remove("trace"));
    if ttl.is_none() && trace.is_none() {
        return Ok(None);
    }
    let ttl = match ttl {
        None => MAX_TTL,
        Some(ttl) => {
            let ttl = ttl.as_f64().ok_or_else(|| OfficeError::invalid("`ttl` is a number of hops"))?;
            ttl.clamp(0.0, f64::from(MAX_TTL)) as u8
        }
    };
    let trace = match trace {
        None => Vec::new(),
        Some(Value::Array(names)) => names.iter().filter_map(|name| AgentName::parse(name.as_str()?).ok()).collect(),
        Some(_) => return Err(OfficeError::invalid("`trace` is a list of agents")),
    };
    Ok(Some(Hop { ttl, trace }))
}

fn id_of(value: &Value) -> Result<MessageId> {
    let text = value.as_str().ok_or_else(|| OfficeError::invalid("`parent` is the id of a message"))?;
    Ok(MessageId::parse(text)?)
}

/// A duration from now becomes `deadline_in`, so that a repeat under the same idempotency key is the same draft.
fn read_deadline(fields: &mut Map<String, Value>) -> Result<()> {
    let relative = match fields.get("deadline") {
        Some(Value::String(text)) if text.parse::<Timestamp>().is_err() => text.clone(),
        _ => return Ok(()),
    };
    let now = Timestamp::now();
    let seconds = parse_deadline(&relative, now)?.duration_since(now).as_secs_f64().round().max(1.0);
    if fields.contains_key("deadline_in") {
        return Err(OfficeError::invalid("a deadline is a moment or a time from now, not both"));
    }
    fields.remove("deadline");
    // Never negative, and rounded, so it fits.
    fields.insert("deadline_in".into(), json!(seconds as u64));
    Ok(())
}

/// Makes the draft a reply to its parent where it goes back to the parent's sender, else a relay of it.
async fn following(office: &dyn Mailbox, mut draft: Draft, parent: MessageId) -> Result<Draft> {
    if draft.reply_to.is_some() || draft.relay_of.is_some() {
        return Err(OfficeError::invalid("a draft has `parent`, or `reply_to` or `relay_of`"));
    }
    let message = office.message(&parent).await?.message;
    let back = |name: &AgentName| *name == draft.to;
    match back(&message.from) || message.from == *office.me() && back(&message.to) {
        true => draft.reply_to = Some(parent),
        false => draft.relay_of = Some(parent),
    }
    Ok(draft)
}
