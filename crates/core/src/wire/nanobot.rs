//! nanobot's message file, `.msg.json`.
//!
//! Subject, session, priority and correlation id are no fields of the format: they are added when set, and other
//! readers ignore them.

use jiff::Timestamp;
use serde::Serialize;
use serde_json::Value;

use super::stamp::{instant, strict};
use super::{WireError, compact, filename, id_from, json, parts};
use crate::Object;
use crate::doc::is_default;
use crate::id::{CorrelationId, MessageId, SessionId};
use crate::limits::DEFAULT_TTL;
use crate::message::{Callback, Kind, Message, Part, Priority};
use crate::name::AgentName;
use crate::task::TaskRef;

/// Reads a message file.
///
/// `file_name` gives the id and the time where the file has none of its own; `seen_at` (such as the file's modification
/// time) is the time where the name has none either.
pub fn parse(bytes: &[u8], file_name: &str, seen_at: Timestamp) -> Result<Message, WireError> {
    let mut fields = json::parse(bytes)?;
    let mut take = |name| json::take(&mut fields, name);
    let from = parts::name(take("from"), "from")?;
    let kind = parts::any_kind(take("type"));
    let id = match take("id") {
        Some(Value::Number(number)) => id_from(&number.to_string()),
        Some(id) => match json::string(id, "id")? {
            text if text.is_empty() => id_of(file_name),
            text => id_from(&text),
        },
        None => id_of(file_name),
    };
    let sent_at = match take("timestamp") {
        Some(value) => instant(&value, "timestamp")?,
        None => filename::parse_nanobot(file_name).map_or(seen_at, |name| name.at),
    };
    let trace = match take("trace") {
        Some(trace) => parts::trace(trace, "trace")?,
        None => vec![from.clone()],
    };
    let reply_to = parts::reply_to(take("reply_to"), "reply_to")?;
    let mut metadata = take("metadata").map_or(Ok(Object::new()), |value| json::object(value, "metadata"))?;
    let task = match take("task") {
        // A text does not tell the task's state: kept in the metadata for programs, and not a task update.
        Some(text @ Value::String(_)) if kind != Kind::Task => {
            metadata.entry("task").or_insert(text);
            None
        }
        task => task.map(|task| parts::task(task, &kind, &id, reply_to.as_ref())).transpose()?,
    };
    let to = parts::name(take("to"), "to")?;
    // Fields of our own: another program may use the same name for something else, so a value that does not parse is no
    // error but an unknown field.
    let mut own = |name| match take(name) {
        Some(Value::String(text)) => Some(text),
        _ => None,
    };
    Ok(Message {
        session: own("session_id").and_then(|text| SessionId::parse(&text).ok()),
        subject: own("subject"),
        priority: own("priority").and_then(|text| text.parse().ok()).unwrap_or_default(),
        correlation_id: own("correlation_id").and_then(|text| CorrelationId::parse(&text).ok()),
        parts: take("content").map(parts::content).transpose()?.unwrap_or_default(),
        ttl: take("ttl").map_or(Ok(DEFAULT_TTL - 1), |ttl| parts::ttl(&ttl, "ttl"))?,
        callback: take("callback").map(parts::callback).transpose()?,
        id,
        from,
        from_person: false,
        to,
        sent_at,
        kind,
        trace,
        task,
        reply_to,
        metadata,
    })
}

/// The id that nanobot would have given: `msg_` and the file name without its ending.
fn id_of(file_name: &str) -> MessageId {
    id_from(&format!("msg_{}", file_name.strip_suffix(filename::NANOBOT_ENDING).unwrap_or(file_name)))
}

/// Writes a message as a file of exactly the fields that nanobot's description names, plus ours where they are set.
pub fn write(message: &Message) -> Result<Vec<u8>, WireError> {
    let text: usize =
        message.parts.iter().map(|part| if let Part::Text { text } = part { text.len() } else { 64 }).sum();
    compact(&NanobotFile::from(message), 512 + text + text / 8)
}

#[derive(Serialize)]
struct NanobotFile<'a> {
    id: &'a MessageId,
    from: &'a AgentName,
    to: &'a AgentName,
    #[serde(serialize_with = "strict")]
    timestamp: Timestamp,
    #[serde(rename = "type")]
    kind: &'a Kind,
    ttl: u8,
    trace: &'a [AgentName],
    #[serde(skip_serializing_if = "Option::is_none")]
    task: Option<&'a TaskRef>,
    content: NanobotContent<'a>,
    // Left out rather than null: nanobot reads the callback's fields whenever it is present.
    #[serde(skip_serializing_if = "Option::is_none")]
    callback: Option<&'a Callback>,
    // Null and empty as in the description, so that readers find both fields.
    reply_to: Option<&'a MessageId>,
    metadata: &'a Object,
    #[serde(skip_serializing_if = "Option::is_none")]
    subject: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    session_id: Option<&'a SessionId>,
    #[serde(skip_serializing_if = "is_default")]
    priority: Priority,
    #[serde(skip_serializing_if = "Option::is_none")]
    correlation_id: Option<&'a CorrelationId>,
}

#[derive(Serialize)]
struct NanobotContent<'a> {
    parts: &'a [Part],
}

impl<'a> From<&'a Message> for NanobotFile<'a> {
    fn from(message: &'a Message) -> Self {
        Self {
            id: &message.id,
            from: &message.from,
            to: &message.to,
            timestamp: message.sent_at,
            kind: &message.kind,
            ttl: message.ttl,
            trace: &message.trace,
            task: message.task.as_ref(),
            content: NanobotContent { parts: &message.parts },
            callback: message.callback.as_ref(),
            reply_to: message.reply_to.as_ref(),
            metadata: &message.metadata,
            subject: message.subject.as_deref(),
            session_id: message.session.as_ref(),
            priority: message.priority,
            correlation_id: message.correlation_id.as_ref(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::route;
    use crate::task::TaskState;
    use crate::wire::testing::{arbitrary_bytes, message, mutated, retyped};
    use proptest::prelude::*;
    use serde_json::json;

    /// The message of the format's description, with its alternatives as they are there.
    const SEED: &str = r#"{
  "id": "msg_1745659200_researcher",
  "from": "researcher",
  "to": "coder",
  "timestamp": "2026-04-26T10:00:00Z",
  "type": "task | message | task_update",
  "ttl": 3,
  "trace": ["researcher"],
  "task": {
    "id": "original_task_id",
    "state": "pending | accepted | working | completed | failed | rejected",
    "deadline": "2026-04-26T11:00:00Z"
  },
  "content": {
    "parts": [
      {"type": "text", "text": "..."},
      {"type": "data", "data": {}},
      {"type": "file", "path": "/path/to/file"}
    ]
  },
  "callback": {"session_id": "feishu:user_123", "channel": "feishu"},
  "reply_to": "replied_message_id | null",
  "metadata": {}
}"#;

    /// As a program wrote it.
    const REAL: &str = r#"{"type":"message","from":"alpha","to":"beta","content":{"parts":[{"type":"text","text":"hi"}]},"ttl":2,"trace":["alpha"],"id":"msg_1794771673620_alpha","timestamp":"2026-11-15T19:41:13.620167+00:00"}"#;
    const REAL_NAME: &str = "1794771673620_alpha_0a1b2c3d.msg.json";

    fn epoch() -> Timestamp {
        Timestamp::UNIX_EPOCH
    }

    fn read(value: Value) -> Result<Message, WireError> {
        parse(value.to_string().as_bytes(), "1745659200_a.msg.json", epoch())
    }

    fn ok(mut fields: Value) -> Message {
        fields["from"] = "a".into();
        fields["to"] = "b".into();
        read(fields).unwrap()
    }

    fn value(bytes: &[u8]) -> Value {
        serde_json::from_slice(bytes).unwrap()
    }

    #[test]
    fn the_task_of_the_description_round_trips() {
        let mut seed = value(SEED.as_bytes());
        seed["type"] = "task".into();
        seed["task"]["state"] = "pending".into();
        seed["reply_to"] = "replied_message_id".into();
        seed["metadata"] = json!({"k": [1, 2.5]});
        let task = read(seed.clone()).unwrap();
        assert_eq!(task.kind, Kind::Task);
        assert_eq!(task.task.as_ref().unwrap().state, TaskState::Pending);
        assert_eq!(task.parts, [Part::text("..."), Part::data(json!({})), Part::file("/path/to/file")]);
        assert_eq!(task.callback.as_ref().unwrap().session_id.as_deref(), Some("feishu:user_123"));
        assert_eq!(value(&write(&task).unwrap()), seed, "exactly the description's fields");
    }

    #[test]
    fn a_message_of_another_program_is_read() {
        let message = parse(REAL.as_bytes(), REAL_NAME, epoch()).unwrap();
        assert_eq!(message.id.as_str(), "msg_1794771673620_alpha");
        assert_eq!(message.sent_at, "2026-11-15T19:41:13.620167Z".parse().unwrap());
        assert_eq!((message.ttl, message.trace.len(), message.text().as_str()), (2, 1, "hi"));
        let keys: Vec<_> = value(&write(&message).unwrap()).as_object().unwrap().keys().cloned().collect();
        assert_eq!(keys, ["content", "from", "id", "metadata", "reply_to", "timestamp", "to", "trace", "ttl", "type"]);
    }

    #[test]
    fn missing_fields_have_defaults() {
        let bare = ok(json!({}));
        assert_eq!(bare.id.as_str(), "msg_1745659200_a");
        assert_eq!(bare.sent_at, Timestamp::from_second(1_745_659_200).unwrap());
        assert_eq!(bare.kind, Kind::Message);
        assert_eq!((bare.ttl, &bare.trace), (route::fresh(&bare.from).ttl, &route::fresh(&bare.from).trace));
        assert!(bare.parts.is_empty() && bare.metadata.is_empty() && bare.callback.is_none());

        let nulls = ok(json!({"id": null, "timestamp": null, "type": null, "ttl": null, "trace": null, "task": null,
            "content": null, "callback": null, "reply_to": null, "metadata": null, "subject": null, "priority": null}));
        assert_eq!(nulls, bare);
        assert_eq!(ok(json!({"reply_to": "", "id": ""})), bare);
        let named = parse(br#"{"from":"a","to":"b"}"#, "an odd name.msg.json", epoch()).unwrap();
        assert_eq!((named.sent_at, named.id.as_uuid().is_some()), (epoch(), true));
        assert_eq!(parse(br#"{"from":"a","to":"b"}"#, "an odd name.msg.json", epoch()).unwrap().id, named.id);
    }

    #[test]
    fn content_is_read_in_several_forms() {
        for content in [
            json!("hi"),
            json!({"text": "hi"}),
            json!({"parts": ["hi"]}),
            json!({"type": "text", "text": "hi"}),
            json!([{"type": "text", "text": "hi"}]),
            json!({"parts": [{"text": "hi"}]}),
            json!({"parts": [{"type": "text", "text": "hi", "lang": "en"}], "more": 1}),
        ] {
            assert_eq!(ok(json!({ "content": content })).parts, [Part::text("hi")], "{content}");
        }
        for content in [json!({}), json!({"parts": null}), json!([])] {
            assert!(ok(json!({ "content": content })).parts.is_empty(), "{content}");
        }
        for odd in [json!({"type": "video", "url": "x"}), json!({"type": "text"}), json!({"type": 3}), json!(7)] {
            let parts = ok(json!({"content": {"parts": [odd]}})).parts;
            assert_eq!(parts, [Part::data(odd.clone())], "a part of another type is kept as data");
        }
    }

    #[test]
    fn numbers_and_names_from_outside_are_bounded() {
        for (ttl, expected) in
            [(json!(3), 3), (json!(2.0), 2), (json!(-5), 0), (json!(1_000_000), 16), (json!(1e300), 16)]
        {
            assert_eq!(ok(json!({ "ttl": ttl })).ttl, expected);
        }
        assert_eq!(ok(json!({"trace": ["x", "../y", 3, null, "z"]})).trace.len(), 2);
        assert_eq!(ok(json!({"trace": vec!["x"; 1_000]})).trace.len(), crate::limits::MAX_TRACE);
        for stamp in [
            json!(1_745_659_200),
            json!(1_745_659_200_000_i64),
            json!(1_745_659_200_000_000_i64),
            json!("2025-04-26T09:20:00+00:00"),
            json!("2025-04-26T09:20:00Z"),
            json!(1_745_659_200.0),
        ] {
            assert_eq!(ok(json!({ "timestamp": stamp })).sent_at.as_second(), 1_745_659_200);
        }
    }

    #[test]
    fn a_task_without_an_id_has_that_of_its_message() {
        let task = ok(json!({"type": "task", "id": "m1", "task": {}})).task.unwrap();
        assert_eq!((task.id.as_str(), task.state), ("m1", TaskState::Pending));
        let update = ok(json!({"type": "task_update", "reply_to": "m1", "task": {"state": "working", "by": "b"}}));
        let task = update.task.unwrap();
        assert_eq!((task.id.as_str(), task.state, &task.extra["by"]), ("m1", TaskState::Working, &json!("b")));
        let callback = ok(json!({"callback": {"channel": "telegram", "chat_id": -100, "x": 1}})).callback.unwrap();
        assert_eq!((callback.chat_id.as_deref(), &callback.extra["x"]), (Some("-100"), &json!(1)));
    }

    #[test]
    fn our_own_fields_with_other_values_are_ignored() {
        let message =
            ok(json!({"priority": 5, "session_id": {"a": 1}, "subject": ["x"], "correlation_id": "two words"}));
        assert_eq!((message.priority, message.session, message.subject), (Priority::Normal, None, None));
        assert_eq!(ok(json!({"priority": "urgent"})).priority, Priority::Urgent);
    }

    #[test]
    fn an_error_names_the_field() {
        let with = |field: &str, value: Value| {
            let mut fields = json!({"from": "a", "to": "b", "type": "task_update"});
            fields[field] = value;
            read(fields).unwrap_err().to_string()
        };
        for (field, bad) in [
            ("from", json!("../x")),
            ("to", json!(7)),
            ("ttl", json!("x")),
            ("id", json!([])),
            ("trace", json!("a")),
            ("content", json!(true)),
            ("callback", json!("x")),
            ("metadata", json!([])),
            ("reply_to", json!("a b")),
            ("timestamp", json!("soon")),
            ("task", json!(1)),
        ] {
            let said = with(field, bad);
            assert!(said.starts_with(&format!("field \"{field}\"")), "{said}");
        }
        assert!(with("content", json!({"parts": 1})).contains("content.parts"));
        assert!(with("task", json!({"id": "t", "state": "done"})).contains("task.state"));
        assert!(with("task", json!({"id": "t", "state": "working", "deadline": "x"})).contains("task.deadline"));
        assert!(with("task", json!({"state": "working"})).contains("task.id"));
        assert!(with("callback", json!({"channel": []})).contains("callback.channel"));
        assert_eq!(read(json!({"to": "b"})), Err(WireError::missing("from")));
        assert_eq!(read(json!([1])), Err(WireError::NotAnObject("an array")));
    }

    proptest! {
        #[test]
        fn messages_round_trip(message in message()) {
            let bytes = write(&message).unwrap();
            prop_assert_eq!(&parse(&bytes, "x.msg.json", epoch()).unwrap(), &message);
        }

        #[test]
        fn arbitrary_bytes_do_not_panic(bytes in arbitrary_bytes(), a in mutated(SEED), b in mutated(REAL), c in retyped(REAL)) {
            for bytes in [bytes, a, b, c] {
                if let Ok(message) = parse(&bytes, REAL_NAME, epoch()) {
                    let again = parse(&write(&message).unwrap(), REAL_NAME, epoch());
                    prop_assert_eq!(again.as_ref(), Ok(&message));
                }
            }
        }
    }
}
