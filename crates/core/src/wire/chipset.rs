//! The chipset's mail file: eight fields, keys sorted, two spaces of indent, for readable diffs in git.
//!
//! The message's id is the name of its file. What those eight fields cannot express goes into one more, `amb`, which is
//! there only when needed and which other readers ignore.

use jiff::Timestamp;
use serde::Serialize;
use serde_json::Value;

use super::stamp::{instant, strict};
use super::{WireError, filename, id_from, json, parts, pretty};
use crate::Object;
use crate::id::{CorrelationId, SessionId};
use crate::message::{Kind, Message, Part, Priority};
use crate::name::AgentName;
use crate::route;

/// Reads a mail file: the message, and whether its recipient has read it.
///
/// `file_name` gives the id, and the time where the file has none; `seen_at` (such as the file's modification time) is
/// the time where the name has none either.
pub fn parse(bytes: &[u8], file_name: &str, seen_at: Timestamp) -> Result<(Message, bool), WireError> {
    let mut fields = json::parse(bytes)?;
    let mut take = |name| json::take(&mut fields, name);
    let from = parts::name(take("from"), "from")?;
    let stem = file_name.strip_suffix(filename::CHIPSET_ENDING).unwrap_or(file_name);
    let sent_at = match take("timestamp") {
        Some(value) => instant(&value, "timestamp")?,
        None => filename::parse_chipset(file_name).map_or(seen_at, |name| name.at),
    };
    let read = take("read").map_or(Ok(false), |value| json::boolean(&value, "read"))?;
    let subject = take("subject").map(|value| json::string(value, "subject")).transpose()?;
    let body = take("body").map(|value| json::string(value, "body")).transpose()?;
    let hop = route::fresh(&from);
    let mut message = Message {
        id: id_from(stem),
        from,
        from_person: false,
        to: parts::name(take("to"), "to")?,
        sent_at,
        kind: parts::any_kind(take("type")),
        session: None,
        subject: subject.filter(|text| !text.is_empty()),
        parts: body.map(Part::text).into_iter().collect(),
        // An unknown word is kept in the file and counts as normal.
        priority: take("priority").and_then(|value| value.as_str()?.parse().ok()).unwrap_or_default(),
        ttl: hop.ttl,
        trace: hop.trace,
        task: None,
        callback: None,
        reply_to: None,
        correlation_id: None,
        metadata: Object::new(),
    };
    if let Some(amb) = take("amb") {
        add(&mut message, json::object(amb, "amb")?)?;
    }
    Ok((message, read))
}

/// Adds the contents of `amb` to the message.
fn add(message: &mut Message, amb: Object) -> Result<(), WireError> {
    let mut task = None;
    for (key, value) in amb.into_iter().filter(|(_, value)| !value.is_null()) {
        match key.as_str() {
            "callback" => message.callback = Some(parts::callback(value)?),
            "correlation_id" => message.correlation_id = Some(id(value, "amb.correlation_id", CorrelationId::parse)?),
            "metadata" => message.metadata = json::object(value, "amb.metadata")?,
            "parts" => message.parts = json::array(value, "amb.parts")?.into_iter().map(parts::part).collect(),
            "priority" => {
                let word = json::string(value, "amb.priority")?;
                message.priority = word.parse().map_err(|_| WireError::field("amb.priority", "is no priority"))?;
            }
            "reply_to" => message.reply_to = parts::reply_to(Some(value), "amb.reply_to")?,
            "session_id" => message.session = Some(id(value, "amb.session_id", SessionId::parse)?),
            "subject" => message.subject = Some(json::string(value, "amb.subject")?),
            "task" => task = Some(value),
            "trace" => message.trace = parts::trace(value, "amb.trace")?,
            "ttl" => message.ttl = parts::ttl(&value, "amb.ttl")?,
            _ => {}
        }
    }
    if let Some(task) = task {
        message.task = Some(parts::task(task, &message.kind, &message.id, message.reply_to.as_ref())?);
    }
    Ok(())
}

fn id<T>(
    value: Value,
    field: &'static str,
    parse: impl Fn(&str) -> Result<T, crate::id::BadId>,
) -> Result<T, WireError> {
    parse(&json::string(value, field)?).map_err(|bad| parts::not_an_id(field, &bad))
}

/// Writes a message as a mail file. Its id is not in it: it becomes the file name.
pub fn write(message: &Message, read: bool) -> Result<Vec<u8>, WireError> {
    let body = message.text();
    let written = ChipsetFile {
        amb: amb(message)?,
        body: &body,
        from: &message.from,
        // The chipset has no priority between urgent and normal.
        priority: if message.priority == Priority::High { Priority::Urgent } else { message.priority },
        read,
        subject: message.subject.as_deref().unwrap_or_default(),
        timestamp: message.sent_at,
        to: &message.to,
        kind: &message.kind,
    };
    pretty(&written, 512 + body.len() + body.len() / 8)
}

/// In the order of the sorted keys.
#[derive(Serialize)]
struct ChipsetFile<'a> {
    #[serde(skip_serializing_if = "Option::is_none")]
    amb: Option<Value>,
    body: &'a str,
    from: &'a AgentName,
    priority: Priority,
    read: bool,
    subject: &'a str,
    #[serde(serialize_with = "strict")]
    timestamp: Timestamp,
    to: &'a AgentName,
    #[serde(rename = "type")]
    kind: &'a Kind,
}

/// The object `amb`: what the eight fields cannot express. `None` if there is nothing.
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

/// Marks the file as read; every other field is kept and all keys are sorted. `None` if it is marked already.
pub fn marked_read(bytes: &[u8]) -> Result<Option<Vec<u8>>, WireError> {
    let mut fields = json::parse(bytes)?;
    if fields.insert("read".into(), true.into()) == Some(Value::Bool(true)) {
        return Ok(None);
    }
    let mut value = Value::Object(fields);
    value.sort_all_objects();
    pretty(&value, bytes.len() + 32).map(Some)
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
    fn the_mail_of_the_description_round_trips_with_sorted_keys() {
        let (message, read) = parse(SEED.as_bytes(), SEED_NAME, epoch()).unwrap();
        assert_eq!(message.id.as_str(), "2026-03-05T10-30-00Z-mayor-a1b2c");
        assert_eq!((message.kind.as_str(), read), ("work_assignment", false));
        let written = write(&message, read).unwrap();
        assert_eq!(value(&written), value(SEED.as_bytes()), "eight fields and no more");
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
    fn missing_fields_have_defaults() {
        let (message, is_read) = read(json!({"from": "a", "to": "b"})).unwrap();
        assert_eq!(message.sent_at, "2026-03-05T10:30:00Z".parse().unwrap(), "the time of the file name");
        assert_eq!((message.kind, message.subject, is_read), (Kind::Message, None, false));
        assert!(message.parts.is_empty());
        let (message, _) =
            parse(br#"{"from":"a","to":"b","priority":"P1","body":""}"#, "latest.json", epoch()).unwrap();
        assert_eq!((message.sent_at, message.id.as_str()), (epoch(), "latest"));
        assert_eq!((message.priority, message.parts), (Priority::Normal, vec![Part::text("")]));
    }

    #[test]
    fn high_is_written_as_urgent_and_read_back_as_high() {
        let (mut message, _) = parse(SEED.as_bytes(), SEED_NAME, epoch()).unwrap();
        for (priority, word) in [(Priority::Low, "low"), (Priority::High, "urgent"), (Priority::Urgent, "urgent")] {
            message.priority = priority;
            let bytes = write(&message, true).unwrap();
            assert_eq!(value(&bytes)["priority"], word);
            assert_eq!(parse(&bytes, SEED_NAME, epoch()).unwrap(), (message.clone(), true));
        }
    }

    #[test]
    fn marking_as_read_changes_nothing_else() {
        let (message, _) = parse(RICH.as_bytes(), SEED_NAME, epoch()).unwrap();
        let read = write(&message, true).unwrap();
        assert_eq!(marked_read(&write(&message, false).unwrap()).unwrap().unwrap(), read);
        assert_eq!(marked_read(&read), Ok(None));
        assert_eq!(
            marked_read(b"\xef\xbb\xbf{\"to\":\"b\",\"read\":null,\"x\":[1,  2]}").unwrap().unwrap(),
            b"{\n  \"read\": true,\n  \"to\": \"b\",\n  \"x\": [\n    1,\n    2\n  ]\n}\n"
        );
        for bad in [&b"[]"[..], b"{", b"\xff", b"7", b"{} {}"] {
            assert!(marked_read(bad).is_err());
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
        fn messages_round_trip(mut message in message(), read in any::<bool>(), n in 0..3_u32) {
            let name = filename::chipset(message.sent_at, &message.from, n);
            message.id = id_from(name.strip_suffix(".json").unwrap());
            let bytes = write(&message, read).unwrap();
            prop_assert_eq!(&parse(&bytes, &name, epoch()).unwrap(), &(message, read));
        }

        #[test]
        fn unknown_fields_are_kept(extra in object()) {
            let mut mail = value(SEED.as_bytes());
            mail.as_object_mut().unwrap().extend(extra);
            mail["read"] = false.into();
            let marked = marked_read(mail.to_string().as_bytes()).unwrap().unwrap();
            mail["read"] = true.into();
            prop_assert_eq!(value(&marked), mail);
        }

        #[test]
        fn arbitrary_bytes_do_not_panic(bytes in arbitrary_bytes(), a in mutated(SEED), b in mutated(RICH), c in retyped(RICH)) {
            for bytes in [bytes, a, b, c] {
                let _ = marked_read(&bytes);
                if let Ok((message, read)) = parse(&bytes, SEED_NAME, epoch()) {
                    let again = parse(&write(&message, read).unwrap(), SEED_NAME, epoch());
                    prop_assert_eq!(again, Ok((message, read)));
                }
            }
        }
    }
}
