//! The chipset's mail file: eight fields, keys sorted, two spaces of indent, for readable diffs in git.
//!
//! The message's id is the name of its file. What those eight fields cannot express goes into one more, `amb`, which is there
//! only when needed and which other readers ignore.

use std::collections::BTreeMap;

use jiff::Timestamp;
use serde::Serialize;
use serde_json::Value;
use serde_json::value::RawValue;

use super::json::{Fields, Json, Pick};
use super::stamp::{Strict, instant};
use super::{WireError, filename, id_from, parts, pretty};
use crate::Object;
use crate::id::{CorrelationId, SessionId};
use crate::message::{Kind, Message, Part, Priority};
use crate::name::AgentName;
use crate::route;

/// A mail file with all its fields, known or not.
#[derive(Debug, Clone, PartialEq)]
pub struct ChipsetMail<'a> {
    /// The fields in the order of the file.
    pub fields: Fields<'a>,
}

impl<'a> ChipsetMail<'a> {
    /// Parses a file. Any JSON object is accepted; whether it is a message is checked in [`ChipsetMail::into_message`].
    pub fn parse(bytes: &'a [u8]) -> Result<Self, WireError> {
        Ok(Self { fields: Fields::parse(bytes)? })
    }

    /// Writes it back with nothing lost, keys sorted.
    pub fn write(&self) -> Result<Vec<u8>, WireError> {
        let mut value = Value::Object(self.fields.clone().into_object());
        value.sort_all_objects();
        pretty(&value, 1024)
    }

    /// Converts it to a message, and whether its recipient has read it.
    ///
    /// `file_name` gives the id, and the time where the file has none; `seen_at` (such as the file's modification time) is the
    /// time where the name has none either.
    pub fn into_message(self, file_name: &str, seen_at: Timestamp) -> Result<(Message, bool), WireError> {
        Seen::from_fields(self.fields).into_message(file_name, seen_at)
    }
}

/// The known fields; of duplicates the last one, `null` as missing.
#[derive(Default)]
struct Seen<'a> {
    from: Option<Json<'a>>,
    to: Option<Json<'a>>,
    kind: Option<Json<'a>>,
    subject: Option<Json<'a>>,
    body: Option<Json<'a>>,
    timestamp: Option<Json<'a>>,
    read: Option<Json<'a>>,
    priority: Option<Json<'a>>,
    amb: Option<Json<'a>>,
}

impl<'a> Pick<'a> for Seen<'a> {
    fn pick(&mut self, key: &str, value: Json<'a>) {
        let place = match key {
            "from" => &mut self.from,
            "to" => &mut self.to,
            "type" => &mut self.kind,
            "subject" => &mut self.subject,
            "body" => &mut self.body,
            "timestamp" => &mut self.timestamp,
            "read" => &mut self.read,
            "priority" => &mut self.priority,
            "amb" => &mut self.amb,
            _ => return,
        };
        *place = value.some();
    }
}

impl Seen<'_> {
    fn into_message(self, file_name: &str, seen_at: Timestamp) -> Result<(Message, bool), WireError> {
        let from = parts::name(self.from, "from")?;
        let stem = file_name.strip_suffix(filename::CHIPSET_ENDING).unwrap_or(file_name);
        let sent_at = match &self.timestamp {
            Some(value) => instant(value, "timestamp")?,
            None => filename::parse_chipset(file_name).map_or(seen_at, |name| name.at),
        };
        let read = match self.read {
            None => false,
            Some(Json::Bool(read)) => read,
            Some(other) => return Err(other.wrong("read", "true or false")),
        };
        let subject = self.subject.map(|value| value.text("subject")).transpose()?;
        let body = self.body.map(|value| value.text("body")).transpose()?;
        let hop = route::fresh(&from);
        let mut message = Message {
            id: id_from(stem),
            to: parts::name(self.to, "to")?,
            sent_at,
            kind: parts::kind(self.kind)?,
            session: None,
            subject: subject.filter(|text| !text.is_empty()).map(|text| text.into_owned()),
            parts: body.map(|text| Part::Text { text: text.into_owned() }).into_iter().collect(),
            // An unknown word is kept in the file and counts as normal.
            priority: self.priority.and_then(|value| value.as_text()?.parse().ok()).unwrap_or_default(),
            ttl: hop.ttl,
            trace: hop.trace,
            task: None,
            callback: None,
            reply_to: None,
            correlation_id: None,
            metadata: Object::new(),
            from,
            from_person: false,
        };
        if let Some(amb) = self.amb {
            add(&mut message, amb.map("amb")?)?;
        }
        Ok((message, read))
    }
}

/// Adds the contents of `amb` to the message.
fn add(message: &mut Message, amb: Fields<'_>) -> Result<(), WireError> {
    let mut task = None;
    for (key, value) in amb.0 {
        let Some(value) = value.some() else { continue };
        match &*key {
            "callback" => message.callback = Some(parts::callback(value)?),
            "correlation_id" => message.correlation_id = Some(id(value, "amb.correlation_id", CorrelationId::parse)?),
            "metadata" => message.metadata = value.map("amb.metadata")?.into_object(),
            "parts" => message.parts = value.list("amb.parts")?.into_iter().map(parts::part).collect(),
            "priority" => {
                let word = value.text("amb.priority")?;
                message.priority = word.parse().map_err(|_| WireError::field("amb.priority", "is no priority"))?;
            }
            "reply_to" => message.reply_to = parts::reply_to(Some(value), "amb.reply_to")?,
            "session_id" => message.session = Some(id(value, "amb.session_id", SessionId::parse)?),
            "subject" => message.subject = Some(value.text("amb.subject")?.into_owned()),
            "task" => task = Some(value),
            "trace" => message.trace = parts::trace(value, "amb.trace")?,
            "ttl" => message.ttl = parts::ttl(value, "amb.ttl")?,
            _ => {}
        }
    }
    if let Some(task) = task {
        message.task = Some(parts::task(task, &message.kind, &message.id, message.reply_to.as_ref())?);
    }
    Ok(())
}

fn id<T>(
    value: Json<'_>,
    field: &'static str,
    parse: impl Fn(&str) -> Result<T, crate::id::BadId>,
) -> Result<T, WireError> {
    parse(&value.text(field)?).map_err(|bad| WireError::field(field, format!("is not an id: {bad}")))
}

/// Reads mail in one step; see [`ChipsetMail::into_message`].
pub fn parse(bytes: &[u8], file_name: &str, seen_at: Timestamp) -> Result<(Message, bool), WireError> {
    Seen::from_bytes(bytes)?.into_message(file_name, seen_at)
}

/// Writes a message as a mail file. Its id is not in it: it becomes the file name.
pub fn write(message: &Message, read: bool) -> Result<Vec<u8>, WireError> {
    let text;
    let body = match message.parts.as_slice() {
        [Part::Text { text }] => text.as_str(),
        _ => {
            text = message.text();
            text.as_str()
        }
    };
    let written = Written {
        amb: amb(message)?,
        body,
        from: &message.from,
        // The chipset has no priority between urgent and normal.
        priority: if message.priority == Priority::High { Priority::Urgent } else { message.priority },
        read,
        subject: message.subject.as_deref().unwrap_or_default(),
        timestamp: Strict(message.sent_at),
        to: &message.to,
        kind: &message.kind,
    };
    pretty(&written, 512 + body.len() + body.len() / 8)
}

/// In the order of the sorted keys.
#[derive(Serialize)]
struct Written<'a> {
    #[serde(skip_serializing_if = "Option::is_none")]
    amb: Option<Value>,
    body: &'a str,
    from: &'a AgentName,
    priority: Priority,
    read: bool,
    subject: &'a str,
    timestamp: Strict,
    to: &'a AgentName,
    #[serde(rename = "type")]
    kind: &'a Kind,
}

/// What the eight fields cannot express; `None` where nothing is left.
fn amb(message: &Message) -> Result<Option<Value>, WireError> {
    fn value(value: &impl Serialize) -> Result<Value, WireError> {
        serde_json::to_value(value).map_err(|error| WireError::NotJson(error.to_string()))
    }
    let mut amb = Object::new();
    let mut put = |key: &str, value: Value| drop(amb.insert(key.to_owned(), value));
    if !matches!(message.parts.as_slice(), [Part::Text { .. }]) {
        put("parts", value(&message.parts)?);
    }
    if message.subject.as_deref() == Some("") {
        put("subject", "".into());
    }
    if message.priority == Priority::High {
        put("priority", value(&message.priority)?);
    }
    let fresh_trace = matches!(message.trace.as_slice(), [only] if *only == message.from);
    if message.ttl != crate::limits::DEFAULT_TTL - 1 || !fresh_trace {
        put("ttl", message.ttl.into());
        put("trace", value(&message.trace)?);
    }
    if let Some(session) = &message.session {
        put("session_id", session.as_str().into());
    }
    if let Some(task) = &message.task {
        put("task", value(task)?);
    }
    if let Some(callback) = &message.callback {
        put("callback", value(callback)?);
    }
    if let Some(reply_to) = &message.reply_to {
        put("reply_to", reply_to.as_str().into());
    }
    if let Some(correlation_id) = &message.correlation_id {
        put("correlation_id", correlation_id.as_str().into());
    }
    if !message.metadata.is_empty() {
        put("metadata", Value::Object(message.metadata.clone()));
    }
    if amb.is_empty() {
        return Ok(None);
    }
    let mut amb = Value::Object(amb);
    amb.sort_all_objects();
    Ok(Some(amb))
}

/// The file with its `read` field set and every other byte as it was.
pub fn set_read(bytes: &[u8], read: bool) -> Result<Vec<u8>, WireError> {
    let text = std::str::from_utf8(bytes).map_err(|error| WireError::NotJson(error.to_string()))?;
    let object = text.strip_prefix('\u{feff}').unwrap_or(text);
    let mut fields: BTreeMap<String, &RawValue> = serde_json::from_str(object).map_err(|error| {
        if error.is_data() { WireError::NotAnObject("another value") } else { WireError::NotJson(error.to_string()) }
    })?;
    let word = if read { "true" } else { "false" };
    if let Some(old) = fields.get("read") {
        // The raw value is a slice of the text, so the difference of the two addresses is its offset.
        let start = old.get().as_ptr() as usize - text.as_ptr() as usize;
        let mut out = Vec::with_capacity(bytes.len() + 1);
        out.extend_from_slice(&bytes[..start]);
        out.extend_from_slice(word.as_bytes());
        out.extend_from_slice(&bytes[start + old.get().len()..]);
        return Ok(out);
    }
    let word: &RawValue = serde_json::from_str(word).map_err(|error| WireError::NotJson(error.to_string()))?;
    fields.insert("read".to_owned(), word);
    pretty(&fields, bytes.len() + 32)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::wire::testing::{arbitrary_bytes, message, mutated, object, retyped};
    use proptest::prelude::*;
    use serde_json::json;

    const SEED: &str = r#"{
  "from": "mayor-a1b2c",
  "to": "polecat-alpha",
  "type": "work_assignment",
  "subject": "Bead gt-abc12 assigned to your rig",
  "body": "Implement the auth middleware as specified in the convoy plan. Priority P1.",
  "timestamp": "2026-03-05T10:30:00Z",
  "read": false,
  "priority": "normal"
}"#;
    const SEED_NAME: &str = "2026-03-05T10-30-00Z-mayor-a1b2c.json";
    const RICH: &str = r#"{"amb":{"callback":{"channel":"feishu"},"correlation_id":"c","metadata":{"k":1},
        "parts":[{"type":"data","data":1}],"priority":"high","reply_to":"r","session_id":"s","subject":"",
        "task":{"id":"t","state":"working","deadline":"2026-03-05T10:30:00Z"},"trace":["a","b"],"ttl":1},
        "body":"b","from":"a","priority":"urgent","read":true,"subject":"","timestamp":1772706600,"to":"b","type":"task"}"#;

    fn epoch() -> Timestamp {
        Timestamp::UNIX_EPOCH
    }

    fn value(bytes: &[u8]) -> Value {
        serde_json::from_slice(bytes).unwrap()
    }

    fn read(value: Value) -> Result<(Message, bool), WireError> {
        parse(value.to_string().as_bytes(), SEED_NAME, epoch())
    }

    #[test]
    fn the_seeds_mail_is_read_and_written_back_with_nothing_lost_and_keys_sorted() {
        let (message, read) = parse(SEED.as_bytes(), SEED_NAME, epoch()).unwrap();
        assert_eq!(message.id.as_str(), "2026-03-05T10-30-00Z-mayor-a1b2c");
        assert_eq!((message.kind.as_str(), read), ("work_assignment", false));
        let written = write(&message, read).unwrap();
        assert_eq!(value(&written), value(SEED.as_bytes()), "eight fields and no more");
        assert_eq!(ChipsetMail::parse(SEED.as_bytes()).unwrap().write().unwrap(), written);
        let text = String::from_utf8(written).unwrap();
        assert!(text.starts_with("{\n  \"body\": ") && text.ends_with("\"work_assignment\"\n}\n"), "{text}");
        assert!(text.lines().filter_map(|line| line.split('"').nth(1)).is_sorted());
    }

    #[test]
    fn every_type_of_the_chipset_is_a_kind_and_back() {
        for word in [
            "work_assignment",
            "completion_report",
            "merge_notification",
            "health_escalation",
            "coordination",
            "message",
            "task",
            "task_update",
        ] {
            let mut mail = value(SEED.as_bytes());
            mail["type"] = word.into();
            let (message, read) = read(mail.clone()).unwrap();
            assert_eq!(value(&write(&message, read).unwrap()), mail);
        }
    }

    #[test]
    fn what_is_missing_has_a_sensible_value() {
        let (message, is_read) = read(json!({"from": "a", "to": "b"})).unwrap();
        assert_eq!(message.sent_at, "2026-03-05T10:30:00Z".parse().unwrap(), "the file's name says when");
        assert_eq!((message.kind, message.subject, is_read), (Kind::Message, None, false));
        assert!(message.parts.is_empty());
        let (message, _) =
            parse(br#"{"from":"a","to":"b","priority":"P1","body":""}"#, "latest.json", epoch()).unwrap();
        assert_eq!((message.sent_at, message.id.as_str()), (epoch(), "latest"));
        assert_eq!((message.priority, message.parts), (Priority::Normal, vec![Part::text("")]));
    }

    #[test]
    fn high_is_urgent_to_the_chipset_and_high_to_us() {
        let (mut message, _) = parse(SEED.as_bytes(), SEED_NAME, epoch()).unwrap();
        for (priority, word) in [(Priority::Low, "low"), (Priority::High, "urgent"), (Priority::Urgent, "urgent")] {
            message.priority = priority;
            let bytes = write(&message, true).unwrap();
            assert_eq!(value(&bytes)["priority"], word);
            assert_eq!(parse(&bytes, SEED_NAME, epoch()).unwrap(), (message.clone(), true));
        }
    }

    #[test]
    fn setting_read_changes_nothing_else() {
        let (message, _) = parse(RICH.as_bytes(), SEED_NAME, epoch()).unwrap();
        let ours = write(&message, false).unwrap();
        assert_eq!(set_read(&ours, true).unwrap(), write(&message, true).unwrap());
        let odd = "\u{feff}{ \"read\" :false, \"x\": 1e400, \"n\": 123456789012345678901234567890,\"read\":  null }";
        let expected = odd.replace("null", "true");
        assert_eq!(set_read(odd.as_bytes(), true).unwrap(), expected.as_bytes());
        assert_eq!(
            set_read(br#"{"to":"b","x":[1,  2]}"#, true).unwrap(),
            b"{\n  \"read\": true,\n  \"to\": \"b\",\n  \"x\": [1,  2]\n}\n"
        );
        for bad in [&b"[]"[..], b"{", b"\xff", b"7", b"{} {}"] {
            assert!(set_read(bad, true).is_err());
        }
    }

    #[test]
    fn an_error_names_the_field() {
        let with = |field: &str, bad: Value| {
            let mut mail = value(SEED.as_bytes());
            mail[field] = bad;
            read(mail).unwrap_err().to_string()
        };
        for (field, bad) in [
            ("from", json!("../x")),
            ("to", json!(null)),
            ("type", json!("two words")),
            ("body", json!(3)),
            ("subject", json!([])),
            ("read", json!("yes")),
            ("timestamp", json!("soon")),
            ("amb", json!(3)),
        ] {
            let said = with(field, bad);
            assert!(said.starts_with(&format!("field \"{field}\"")), "{said}");
        }
        assert!(with("amb", json!({"ttl": "x"})).contains("amb.ttl"));
        assert!(with("amb", json!({"priority": "asap"})).contains("amb.priority"));
        assert!(with("amb", json!({"session_id": "a b"})).contains("amb.session_id"));
        assert_eq!(read(json!("mail")), Err(WireError::NotAnObject("a string")));
    }

    proptest! {
        #[test]
        fn a_message_written_is_the_message_read(mut message in message(), read in any::<bool>(), n in 0..3_u32) {
            let name = filename::chipset(message.sent_at, &message.from, n);
            message.id = id_from(name.strip_suffix(".json").unwrap());
            let bytes = write(&message, read).unwrap();
            prop_assert_eq!(&parse(&bytes, &name, epoch()).unwrap(), &(message, read));
            prop_assert_eq!(&ChipsetMail::parse(&bytes).unwrap().write().unwrap(), &bytes);
            let marked = set_read(&bytes, !read).unwrap();
            prop_assert_eq!(set_read(&marked, read).unwrap(), bytes);
        }

        #[test]
        fn unknown_fields_are_kept(extra in object(), read in any::<bool>()) {
            let mut mail = value(SEED.as_bytes());
            mail.as_object_mut().unwrap().extend(extra);
            let bytes = mail.to_string().into_bytes();
            prop_assert_eq!(&value(&ChipsetMail::parse(&bytes).unwrap().write().unwrap()), &mail);
            mail["read"] = read.into();
            prop_assert_eq!(value(&set_read(&bytes, read).unwrap()), mail);
        }

        #[test]
        fn no_bytes_make_it_panic(bytes in arbitrary_bytes(), a in mutated(SEED), b in mutated(RICH), c in retyped(RICH)) {
            for bytes in [bytes, a, b, c] {
                let _ = set_read(&bytes, true);
                if let Ok((message, read)) = parse(&bytes, SEED_NAME, epoch()) {
                    let again = parse(&write(&message, read).unwrap(), SEED_NAME, epoch());
                    prop_assert_eq!(again, Ok((message, read)));
                }
            }
        }
    }
}
