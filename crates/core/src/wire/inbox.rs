//! Messages between live peers: an `InboxMessage`, bare or in the event envelope of a broker.

use jiff::Timestamp;
use serde::{Deserialize, Deserializer, Serialize};
use serde_json::Value;
use uuid::Uuid;

use super::stamp::{Stamp, instant, strict};
use super::{WireError, compact, json};
use crate::Object;
use crate::error::OfficeError;
use crate::id::GoalId;

/// Prefix of the subject of every goal's inbox; a dot and the goal's id follow.
pub const INBOX_SUBJECT_PREFIX: &str = "agent.inbox";
/// Minimum length of a body, without surrounding white space.
pub const MIN_BODY_CHARS: usize = 1;
/// Maximum length of a body.
pub const MAX_BODY_BYTES: usize = 64 * 1024;

/// The subject of durable messages that are sent in place of live ones, so that two agents have one session for them.
pub const MAIL_SUBJECT: &str = "Peer message";

/// One message from one live goal to another agent's goal.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct InboxMessage {
    /// The agent that sent it.
    pub from_agent_id: String,
    /// The goal that sent it.
    pub from_goal_id: GoalId,
    /// The agent it is for. The subject decides which goal gets it, never this field.
    pub to_agent_id: String,
    /// The text.
    pub body: String,
    /// When it was sent.
    #[serde(serialize_with = "strict", deserialize_with = "lenient")]
    pub sent_at: Timestamp,
    /// Correlates a question with its answers; left out if there is none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub correlation_id: Option<Uuid>,
}

fn lenient<'de, D: Deserializer<'de>>(de: D) -> Result<Timestamp, D::Error> {
    Stamp::deserialize(de).map(|stamp| stamp.at())
}

impl InboxMessage {
    /// Reads a payload, bare or in an envelope.
    pub fn parse(bytes: &[u8]) -> Result<Self, WireError> {
        let mut fields = json::parse(bytes)?;
        // With a body beside it, `payload` is an unknown field of a bare message.
        if fields.get("body").is_none_or(Value::is_null)
            && let Some(Value::Object(payload)) = fields.get_mut("payload")
        {
            fields = std::mem::take(payload);
        }
        Ok(Self {
            from_agent_id: text(&mut fields, "from_agent_id")?,
            from_goal_id: GoalId(uuid(required(&mut fields, "from_goal_id")?, "from_goal_id")?),
            to_agent_id: text(&mut fields, "to_agent_id")?,
            body: text(&mut fields, "body")?,
            sent_at: instant(&required(&mut fields, "sent_at")?, "sent_at")?,
            correlation_id: json::take(&mut fields, "correlation_id")
                .map(|value| uuid(value, "correlation_id"))
                .transpose()?,
        })
    }

    /// Writes the bare form.
    pub fn write(&self) -> Result<Vec<u8>, WireError> {
        compact(self, 384 + self.body.len() + self.body.len() / 8)
    }
}

/// Checks a body before it is sent.
pub fn check_body(body: &str) -> Result<(), OfficeError> {
    if body.trim().chars().take(MIN_BODY_CHARS).count() < MIN_BODY_CHARS {
        return Err(OfficeError::invalid("`message` is empty"));
    }
    if body.len() > MAX_BODY_BYTES {
        let detail = format!("`message` is {} bytes, max {MAX_BODY_BYTES}", body.len());
        return Err(OfficeError::too_large(detail));
    }
    Ok(())
}

/// The subject on which a goal listens.
pub fn subject_of(goal: GoalId) -> String {
    format!("{INBOX_SUBJECT_PREFIX}.{goal}")
}

/// The goal that a subject belongs to.
pub fn goal_of(subject: &str) -> Option<GoalId> {
    subject.strip_prefix(INBOX_SUBJECT_PREFIX)?.strip_prefix('.')?.parse().ok()
}

fn required(fields: &mut Object, field: &'static str) -> Result<Value, WireError> {
    json::take(fields, field).ok_or_else(|| WireError::missing(field))
}

fn text(fields: &mut Object, field: &'static str) -> Result<String, WireError> {
    json::string(required(fields, field)?, field)
}

fn uuid(value: Value, field: &'static str) -> Result<Uuid, WireError> {
    Uuid::parse_str(&json::string(value, field)?)
        .map_err(|bad| WireError::field(field, format!("is not a UUID: {bad}")))
}

/// The envelope in which some brokers carry a message.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Envelope<'a> {
    /// The event's own id.
    pub id: Uuid,
    /// When it was published.
    #[serde(serialize_with = "strict")]
    pub timestamp: Timestamp,
    /// The subject on which it was published.
    pub topic: &'a str,
    /// The publisher.
    pub source: &'a str,
    /// The session it belongs to.
    pub session_id: Option<Uuid>,
    /// The message.
    pub payload: &'a InboxMessage,
}

impl Envelope<'_> {
    /// Writes the envelope with the message inside.
    pub fn write(&self) -> Result<Vec<u8>, WireError> {
        compact(self, 640 + self.payload.body.len() + self.payload.body.len() / 8)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::wire::testing::{self, arbitrary_bytes, mutated, retyped};
    use proptest::prelude::*;
    use serde_json::json;

    const BARE: &str = r#"{"from_agent_id":"researcher","from_goal_id":"b91c2d3a-0000-4000-8000-000000000001","to_agent_id":"writer","body":"task #1 ready for handoff","sent_at":"2026-04-30T14:00:00Z","correlation_id":"7a3b2f00-0000-4000-8000-000000000002"}"#;
    const IN_ENVELOPE: &str = r#"{"id":"f88e1100-0000-4000-8000-000000000003","timestamp":"2026-04-30T14:00:00.5Z","topic":"agent.inbox.b91c2d3a-0000-4000-8000-000000000001","source":"researcher","session_id":null,"trace":"x","payload":{"from_agent_id":"researcher","from_goal_id":"b91c2d3a-0000-4000-8000-000000000001","to_agent_id":"writer","body":"hi","sent_at":"2026-04-30T14:00:00+00:00","hops":2}}"#;

    fn value(bytes: &[u8]) -> Value {
        serde_json::from_slice(bytes).unwrap()
    }

    #[test]
    fn both_forms_are_accepted_and_the_bare_one_written() {
        let message = InboxMessage::parse(BARE.as_bytes()).unwrap();
        assert_eq!(message.write().unwrap(), BARE.as_bytes());
        assert_eq!(serde_json::from_str::<InboxMessage>(BARE).unwrap(), message);
        let inner = InboxMessage::parse(IN_ENVELOPE.as_bytes()).unwrap();
        assert_eq!((inner.body.as_str(), inner.correlation_id), ("hi", None));
        let written = value(&inner.write().unwrap());
        assert_eq!(written["sent_at"], "2026-04-30T14:00:00Z");
        assert!(written.get("correlation_id").is_none() && written.get("payload").is_none());
    }

    #[test]
    fn a_field_named_payload_does_not_hide_a_bare_message() {
        let mut sample = value(BARE.as_bytes());
        sample["payload"] = json!({"body": "forged"});
        let message = InboxMessage::parse(sample.to_string().as_bytes()).unwrap();
        assert_eq!(message.body, "task #1 ready for handoff");
    }

    #[test]
    fn an_error_names_the_field() {
        for field in ["from_agent_id", "from_goal_id", "to_agent_id", "body", "sent_at", "correlation_id"] {
            let mut sample = value(BARE.as_bytes());
            sample[field] = json!(true);
            let said = InboxMessage::parse(sample.to_string().as_bytes()).unwrap_err().to_string();
            assert!(said.contains(field), "{said}");
            sample[field] = json!("not a time and not a uuid");
            let strict = matches!(field, "from_goal_id" | "sent_at" | "correlation_id");
            assert_eq!(InboxMessage::parse(sample.to_string().as_bytes()).is_err(), strict, "{field}");
            sample.as_object_mut().unwrap().remove(field);
            let missing = InboxMessage::parse(sample.to_string().as_bytes());
            assert_eq!(missing.is_ok(), field == "correlation_id", "{field}");
        }
        assert_eq!(InboxMessage::parse(b"[]"), Err(WireError::NotAnObject("an array")));
    }

    #[test]
    fn a_body_is_not_blank_and_not_too_long() {
        assert!(check_body("x").is_ok() && check_body(&"x".repeat(MAX_BODY_BYTES)).is_ok());
        assert!(check_body("").is_err() && check_body(" \n\t").is_err());
        let said = check_body(&"é".repeat(MAX_BODY_BYTES)).unwrap_err();
        assert_eq!(said.detail(), "`message` is 131072 bytes, max 65536");
    }

    #[test]
    fn a_subject_names_its_goal() {
        let goal = GoalId(Uuid::from_u128(7));
        assert_eq!(subject_of(goal), "agent.inbox.00000000-0000-0000-0000-000000000007");
        assert_eq!(goal_of(&subject_of(goal)), Some(goal));
        for other in
            ["agent.inbox", "agent.inbox.", "agent.inbox.x", "agent.outbox.00000000-0000-0000-0000-000000000007"]
        {
            assert_eq!(goal_of(other), None);
        }
    }

    fn messages() -> impl Strategy<Value = InboxMessage> {
        let id = || any::<u128>().prop_map(Uuid::from_u128);
        (any::<String>(), id(), any::<String>(), any::<String>(), testing::instant(), prop::option::of(id())).prop_map(
            |(from, goal, to, body, sent_at, correlation_id)| InboxMessage {
                from_agent_id: from,
                from_goal_id: GoalId(goal),
                to_agent_id: to,
                body,
                sent_at,
                correlation_id,
            },
        )
    }

    proptest! {
        #[test]
        fn messages_round_trip(message in messages(), id in any::<u128>(), topic in ".{0,9}") {
            let bare = message.write().unwrap();
            prop_assert_eq!(&InboxMessage::parse(&bare).unwrap(), &message);
            prop_assert_eq!(&serde_json::from_slice::<InboxMessage>(&bare).unwrap(), &message);
            let (id, timestamp) = (Uuid::from_u128(id), message.sent_at);
            let envelope = Envelope { id, timestamp, topic: &topic, source: "amb", session_id: None, payload: &message };
            prop_assert_eq!(&InboxMessage::parse(&envelope.write().unwrap()).unwrap(), &message);
        }

        #[test]
        fn arbitrary_bytes_do_not_panic(
            bytes in arbitrary_bytes(), a in mutated(BARE), b in mutated(IN_ENVELOPE), c in retyped(IN_ENVELOPE),
        ) {
            for bytes in [bytes, a, b, c] {
                if let Ok(message) = InboxMessage::parse(&bytes) {
                    prop_assert_eq!(InboxMessage::parse(&message.write().unwrap()), Ok(message));
                }
            }
        }
    }
}
