//! What a sender submits: a [`Draft`], which becomes a [`Message`] once the office accepts it.

use jiff::{SignedDuration, Timestamp, Unit};
use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::Object;
use crate::error::OfficeError;
use crate::id::{CorrelationId, MessageId, SessionId};
use crate::limits::*;
use crate::message::{AUTOMATIC, Callback, Kind, Message, Part, Priority, is_automatic};
use crate::name::AgentName;
use crate::route::Hop;

/// A message to be sent. The office adds sender, time, session, ttl and trace.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Draft {
    /// The recipient.
    pub to: AgentName,
    /// What it is for.
    #[serde(default)]
    pub kind: Kind,
    /// The subject. Required for a new session, unless the office has a default; an existing session keeps its own.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub subject: Option<String>,
    /// An existing session to continue. Without one, a reply continues the session of the message it answers.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub session: Option<SessionId>,
    /// The content.
    pub parts: Vec<Part>,
    /// How urgent it is.
    #[serde(default)]
    pub priority: Priority,
    /// For a task: when it must be done.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub deadline: Option<Timestamp>,
    /// For a task: the deadline in seconds from when it is sent, in place of `deadline`. The draft stays the same
    /// however late it is repeated under its idempotency key.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub deadline_in: Option<u64>,
    /// For a task: where the answer shall go.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub callback: Option<Callback>,
    /// The message that this answers; the caller must have received or sent it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reply_to: Option<MessageId>,
    /// The message that this passes on; the caller must have received it. Its ttl and trace continue.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub relay_of: Option<MessageId>,
    /// Correlates a question with its answers.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub correlation_id: Option<CorrelationId>,
    /// Further data for programs.
    #[serde(default, skip_serializing_if = "Object::is_empty")]
    pub metadata: Object,
    /// A repeat with the same key returns the first result and sends nothing.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub idempotency_key: Option<String>,
}

/// What the office adds to a draft.
#[derive(Debug, Clone)]
pub struct AcceptedFields {
    /// The message's id.
    pub id: MessageId,
    /// The sender.
    pub from: AgentName,
    /// When it was accepted.
    pub at: Timestamp,
    /// Its session.
    pub session: SessionId,
    /// The subject to store, if any.
    pub subject: Option<String>,
    /// Its hops and trace.
    pub hop: Hop,
}

impl Draft {
    /// A plain text message.
    pub fn text(to: AgentName, subject: impl Into<String>, text: impl Into<String>) -> Self {
        Self {
            to,
            kind: Kind::Message,
            subject: Some(subject.into()),
            session: None,
            parts: vec![Part::text(text)],
            priority: Priority::Normal,
            deadline: None,
            deadline_in: None,
            callback: None,
            reply_to: None,
            relay_of: None,
            correlation_id: None,
            metadata: Object::new(),
            idempotency_key: None,
        }
    }

    /// A task described in words.
    pub fn task(to: AgentName, subject: impl Into<String>, text: impl Into<String>) -> Self {
        Self { kind: Kind::Task, ..Self::text(to, subject, text) }
    }

    /// A reply to a message the caller received, in the same session.
    pub fn reply(parent: &Message, text: impl Into<String>) -> Self {
        Self {
            session: parent.session.clone(),
            subject: parent.subject.clone(),
            reply_to: Some(parent.id.clone()),
            correlation_id: parent.correlation_id.clone(),
            ..Self::text(parent.from.clone(), "", text)
        }
    }

    /// Marks the draft as sent by a program by itself. A reply then continues the ttl and trace of the message it
    /// answers ([`route`](crate::route)), so that two programs that answer each other stop.
    #[must_use]
    pub fn automatic(mut self) -> Self {
        self.metadata.insert(AUTOMATIC.into(), true.into());
        self
    }

    /// Whether a program sends this without a person or a model having decided to.
    pub fn is_automatic(&self) -> bool {
        is_automatic(&self.metadata)
    }

    /// Notes in the metadata that somebody decided to pass this message on, unless it is marked automatic: such a
    /// message may be answered although it has no hops left.
    #[must_use]
    pub fn mark_relay(mut self) -> Self {
        if self.relay_of.is_some() && !self.is_automatic() {
            self.metadata.insert(AUTOMATIC.into(), false.into());
        }
        self
    }

    /// Converts the draft to a message. Its task, which the office opens, is not part of it yet.
    pub fn into_message(self, accepted: AcceptedFields) -> Message {
        let this = self.mark_relay();
        Message {
            id: accepted.id,
            from: accepted.from,
            from_person: false,
            to: this.to,
            sent_at: accepted.at,
            kind: this.kind,
            session: Some(accepted.session),
            subject: accepted.subject,
            parts: this.parts,
            priority: this.priority,
            ttl: accepted.hop.ttl,
            trace: accepted.hop.trace,
            task: None,
            callback: this.callback,
            reply_to: this.reply_to,
            correlation_id: this.correlation_id,
            metadata: this.metadata,
        }
    }

    /// Bytes of parts, metadata and callback as JSON.
    fn size(&self) -> usize {
        json_len(&self.parts) + json_len(&self.metadata) + self.callback.as_ref().map_or(0, json_len)
    }

    /// Checks the total size of the copies for so many recipients.
    pub fn check_copies(&self, recipients: usize) -> Result<(), OfficeError> {
        check_copies(self.size(), recipients)
    }

    /// The deadline of a task that is sent at `at`.
    pub fn due(&self, at: Timestamp) -> Option<Timestamp> {
        let from_now = |seconds: u64| {
            let span = SignedDuration::from_secs(i64::try_from(seconds).unwrap_or(i64::MAX));
            let due = at.checked_add(span).unwrap_or(Timestamp::MAX);
            // Some readers of the files do not parse finer fractions.
            due.round(Unit::Microsecond).unwrap_or(due)
        };
        self.deadline.or_else(|| self.deadline_in.map(from_now))
    }

    /// Checks everything that needs no lookup.
    pub fn check(&self) -> Result<(), OfficeError> {
        let too_long = |what: &str, max: usize| OfficeError::invalid(format!("{what} has at most {max} characters"));
        if let Some(subject) = &self.subject
            && subject.chars().count() > MAX_SUBJECT_CHARS
        {
            return Err(too_long("subject", MAX_SUBJECT_CHARS));
        }
        if self.parts.is_empty() {
            return Err(OfficeError::invalid("a message needs content: text, data or a file"));
        }
        if self.parts.len() > MAX_PARTS {
            return Err(OfficeError::invalid(format!("a message has at most {MAX_PARTS} parts")));
        }
        if let [Part::Text { text }] = self.parts.as_slice()
            && text.is_empty()
        {
            return Err(OfficeError::invalid("content is empty; a message needs text, a file or data"));
        }
        if self.kind == Kind::TaskUpdate {
            return Err(OfficeError::invalid("a task update is sent by changing the task's state, not as a message"));
        }
        if self.deadline.is_some() && self.deadline_in.is_some() {
            return Err(OfficeError::invalid("a deadline is a moment or a time from now, not both"));
        }
        if self.deadline.is_some_and(|deadline| deadline < FIRST_TIME) {
            return Err(OfficeError::invalid("a deadline is a moment after the year 1"));
        }
        if self.kind != Kind::Task && (self.deadline.is_some() || self.deadline_in.is_some()) {
            return Err(OfficeError::invalid("only a task has a deadline; send it with kind task"));
        }
        if let Some(callback) = &self.callback {
            let fields = [&callback.channel, &callback.session_id, &callback.chat_id];
            if fields.into_iter().flatten().any(|field| field.chars().count() > MAX_CALLBACK_CHARS) {
                return Err(too_long("each field of callback", MAX_CALLBACK_CHARS));
            }
        }
        if self.reply_to.is_some() && self.relay_of.is_some() {
            return Err(OfficeError::invalid("a message answers one message or passes one on, not both"));
        }
        self.idempotency_key.as_deref().map_or(Ok(()), check_idempotency_key)?;
        let metadata = json_len(&self.metadata);
        if metadata > MAX_METADATA_BYTES {
            return Err(OfficeError::too_large(format!("metadata has {metadata} bytes, at most {MAX_METADATA_BYTES}")));
        }
        let data = self.parts.iter().filter_map(|part| if let Part::Data { data } = part { Some(data) } else { None });
        let callback = self.callback.iter().flat_map(|callback| callback.extra.values());
        if data.chain(self.metadata.values()).chain(callback).any(|value| is_deeper(value, MAX_JSON_DEPTH)) {
            let detail =
                format!("values in data, metadata and callback are nested at most {MAX_JSON_DEPTH} levels deep");
            return Err(OfficeError::invalid(detail));
        }
        let size = self.size();
        if size > MAX_MESSAGE_BYTES {
            return Err(OfficeError::too_large(format!(
                "the message has {size} bytes, at most {MAX_MESSAGE_BYTES}; put large content in a file and send its path"
            )));
        }
        Ok(())
    }
}

/// Whether arrays and objects are nested deeper than so many levels.
fn is_deeper(value: &Value, levels: usize) -> bool {
    let inner = |value| levels == 0 || is_deeper(value, levels - 1);
    match value {
        Value::Array(items) => levels == 0 || items.iter().any(inner),
        Value::Object(fields) => levels == 0 || fields.values().any(inner),
        _ => false,
    }
}

/// Checks the length and the characters of an idempotency key.
pub fn check_idempotency_key(key: &str) -> Result<(), OfficeError> {
    match key.is_empty() || key.chars().count() > MAX_IDEMPOTENCY_KEY_CHARS || key.contains(char::is_control) {
        true => Err(OfficeError::invalid(format!(
            "an idempotency key has 1 to {MAX_IDEMPOTENCY_KEY_CHARS} printable characters"
        ))),
        false => Ok(()),
    }
}

/// Checks the total size of the copies of a message of so many bytes.
pub fn check_copies(size: usize, recipients: usize) -> Result<(), OfficeError> {
    let size = size.saturating_mul(recipients);
    if size > MAX_COPIES_BYTES {
        return Err(OfficeError::too_large(format!(
            "the message has {size} bytes in {recipients} copies, at most {MAX_COPIES_BYTES}; write to fewer at once"
        )));
    }
    Ok(())
}

/// Bytes of a value as JSON, counted without building the text.
pub fn json_len(value: &impl Serialize) -> usize {
    struct Count(usize);
    impl std::io::Write for Count {
        fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
            self.0 += bytes.len();
            Ok(bytes.len())
        }
        fn flush(&mut self) -> std::io::Result<()> {
            Ok(())
        }
    }
    let mut count = Count(0);
    match serde_json::to_writer(&mut count, value) {
        Ok(()) => count.0,
        // Only a map with keys that are not text can fail, and ours all are.
        Err(_) => usize::MAX,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn draft() -> Draft {
        Draft::text("bob".parse().unwrap(), "Plan", "hello")
    }

    /// So many arrays, one in the other.
    fn nested(levels: usize) -> Value {
        (1..levels).fold(Value::Array(Vec::new()), |inner, _| Value::Array(vec![inner]))
    }

    #[test]
    fn a_draft_is_checked_without_a_lookup() {
        assert!(draft().check().is_ok());
        assert!(Draft { subject: Some("é".repeat(255)), ..draft() }.check().is_ok(), "lengths count characters");
        assert!(Draft { parts: vec![Part::data(nested(MAX_JSON_DEPTH))], ..draft() }.check().is_ok());
        let bad = [
            Draft { subject: Some("x".repeat(256)), ..draft() },
            Draft { parts: vec![], ..draft() },
            Draft { parts: vec![Part::text("")], ..draft() },
            Draft { parts: vec![Part::text("x"); MAX_PARTS + 1], ..draft() },
            Draft { kind: Kind::TaskUpdate, ..draft() },
            Draft { deadline: Some(Timestamp::UNIX_EPOCH), ..draft() },
            Draft { deadline_in: Some(7_200), ..draft() },
            Draft { kind: Kind::Task, deadline: Some(Timestamp::MIN), ..draft() },
            Draft { kind: Kind::Task, deadline: Some(Timestamp::UNIX_EPOCH), deadline_in: Some(7_200), ..draft() },
            Draft { parts: vec![Part::text("x".repeat(MAX_MESSAGE_BYTES))], ..draft() },
            Draft { idempotency_key: Some(String::new()), ..draft() },
            Draft { parts: vec![Part::data(nested(MAX_JSON_DEPTH + 1))], ..draft() },
            Draft { metadata: [("k".to_owned(), nested(MAX_JSON_DEPTH + 1))].into_iter().collect(), ..draft() },
            Draft {
                callback: Some(Callback {
                    extra: [("k".to_owned(), "x".repeat(MAX_MESSAGE_BYTES).into())].into_iter().collect(),
                    ..Callback::default()
                }),
                ..draft()
            },
            Draft {
                reply_to: Some(MessageId::parse("a").unwrap()),
                relay_of: Some(MessageId::parse("b").unwrap()),
                ..draft()
            },
        ];
        for draft in bad {
            assert!(draft.check().is_err(), "{draft:?}");
        }
    }

    #[test]
    fn copies_for_many_count_together() {
        let large = Draft { parts: vec![Part::text("x".repeat(MAX_MESSAGE_BYTES / 2))], ..draft() };
        assert!(large.check().is_ok() && large.check_copies(2).is_ok());
        assert!(large.check_copies(100).is_err());
        assert!(draft().check_copies(100).is_ok());
    }

    #[test]
    fn a_deadline_from_now_is_counted_from_when_the_draft_is_sent() {
        let at = Timestamp::from_microsecond(1_000_000).unwrap();
        let task = |deadline_in| Draft { kind: Kind::Task, deadline_in, ..draft() };
        assert_eq!(task(None).due(at), None);
        assert_eq!(task(Some(7_200)).due(at), Some(Timestamp::from_microsecond(7_201_000_000).unwrap()));
        assert!(task(Some(u64::MAX)).due(at).is_some());
        assert_eq!(Draft { deadline: Some(at), ..task(None) }.due(Timestamp::MAX), Some(at));
    }

    #[test]
    fn a_message_has_the_fields_of_its_draft_and_those_of_the_office() {
        let drafted = Draft {
            kind: Kind::Task,
            priority: Priority::Urgent,
            callback: Some(Callback { channel: Some("feishu".into()), ..Callback::default() }),
            reply_to: Some(MessageId::parse("m0").unwrap()),
            correlation_id: Some(CorrelationId::parse("c").unwrap()),
            metadata: [("k".to_owned(), 1.into())].into_iter().collect(),
            ..draft()
        };
        let from: AgentName = "ann".parse().unwrap();
        let accepted = AcceptedFields {
            id: MessageId::parse("m1").unwrap(),
            from: from.clone(),
            at: Timestamp::UNIX_EPOCH,
            session: SessionId::between(&from, &drafted.to, "Plan"),
            subject: Some("Plan".into()),
            hop: crate::route::fresh(&from),
        };
        let message = drafted.clone().into_message(accepted.clone());
        assert_eq!((&message.id, &message.from, message.sent_at), (&accepted.id, &from, accepted.at));
        assert_eq!((message.session, message.subject), (Some(accepted.session), accepted.subject));
        assert_eq!((message.ttl, message.trace, message.task), (accepted.hop.ttl, accepted.hop.trace, None));
        assert_eq!((message.to, message.kind, message.parts), (drafted.to, drafted.kind, drafted.parts));
        assert_eq!((message.priority, message.callback), (drafted.priority, drafted.callback));
        assert_eq!((message.reply_to, message.correlation_id), (drafted.reply_to, drafted.correlation_id));
        assert_eq!(message.metadata, drafted.metadata);
    }
}
