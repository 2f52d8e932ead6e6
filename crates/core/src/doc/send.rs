//! The body of `POST /messages/send` and `POST /messages/send-many`, and its conversion from and to a [`Draft`].

use jiff::Timestamp;
use serde::{Deserialize, Serialize};
use uuid::Uuid;

use super::deserialize::{PlainName, seconds};
use super::{FieldError, check_optional_text, check_text};
use crate::Object;
use crate::draft::Draft;
use crate::id::{CorrelationId, MessageId};
use crate::limits::{MAX_CONTENT_CHARS, MAX_SUBJECT_CHARS, MAX_TEXT_CHARS};
use crate::message::{Callback, Kind, Part, Priority, text_of};
use crate::name::AgentName;

/// What to send, and to whom. Needs `content` or `parts`, and one of `subject`, `session_id` and `reply_to`.
// `To` is one name, or several for `POST /messages/send-many`. Two structs that flatten a third would be slow to parse.
#[derive(Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(bound(deserialize = "To: PlainName"))]
pub struct SendBody<To = AgentName> {
    /// Who shall receive it: a connected agent, or a group that the caller is in.
    #[cfg_attr(feature = "openapi", schema(value_type = AgentName))]
    #[serde(deserialize_with = "To::plain")]
    pub to: To,
    /// The session's subject; continues the session that has it, or starts one. Not used where the message goes into
    /// the session of `session_id` or of `reply_to`.
    #[cfg_attr(feature = "openapi", schema(max_length = 255, pattern = "^[^\\x00]*[^\\s\\x00][^\\x00]*$"))]
    #[cfg_attr(feature = "openapi", schema(example = "Project collaboration"))]
    pub subject: Option<String>,
    /// The text; a longer one, up to 100,000 characters, is sent as a text part.
    #[cfg_attr(feature = "openapi", schema(max_length = 10000, pattern = "^[^\\x00]*$"))]
    #[cfg_attr(feature = "openapi", schema(example = "Hello Bob, shall we start?"))]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub content: Option<String>,
    /// An existing session to continue.
    #[cfg_attr(feature = "openapi", schema(value_type = Option<Uuid>))]
    pub session_id: Option<String>,
    /// What it is for: `message`, `task`, or a label of another system.
    pub kind: Option<Kind>,
    /// All of the content where that is more than one short text; `content` comes before it unless it says the same.
    /// The text parts have 100,000 characters together at most.
    #[cfg_attr(feature = "openapi", schema(max_items = 32))]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub parts: Option<Vec<Part>>,
    /// How soon it wants to be read.
    pub priority: Option<Priority>,
    /// For a task: when it must be done.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub deadline: Option<Timestamp>,
    /// For a task, in place of `deadline`: in how many seconds from now it must be done. A repeat under the same
    /// `Idempotency-Key` has the first one's deadline.
    #[cfg_attr(feature = "openapi", schema(minimum = 0, maximum = 3155760000_u64))]
    #[serde(default, deserialize_with = "seconds", skip_serializing_if = "Option::is_none")]
    pub deadline_in: Option<u64>,
    /// For a task: where the answer shall go.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub callback: Option<Callback>,
    /// The message this answers; it goes into the same session unless `session_id` says another.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub reply_to: Option<MessageId>,
    /// The message this passes on.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub relay_of: Option<MessageId>,
    /// Ties a question to its answers.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub correlation_id: Option<CorrelationId>,
    /// Whatever else there is to say to programs. `"automatic": true` marks what a program sends by itself: such a
    /// reply counts on with the ttl of what it answers, so that two programs that answer each other stop.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub metadata: Option<Object>,
}

impl<To> SendBody<To> {
    /// Checks the fields that a [`Draft`] does not have or does not check. Returns the recipients, and a draft that is
    /// addressed to the first of them.
    pub fn draft(self, first: AgentName, idempotency_key: Option<String>) -> Result<(To, Draft), FieldError> {
        let session = self.session_id.map(|id| Uuid::parse_str(&id)).transpose();
        let session = session.map_err(|_| FieldError::new("body.session_id", "must be a UUID"))?;
        // An existing session has its subject. Clients that fill in every field send a blank one with it.
        let continues = session.is_some() || self.reply_to.is_some();
        let subject = self.subject.filter(|subject| !continues || !subject.trim().is_empty());
        match &subject {
            None if !continues => return Err(FieldError::new("body.subject", "is needed without a session_id")),
            Some(subject) if subject.trim().is_empty() => {
                return Err(FieldError::new("body.subject", "cannot be blank"));
            }
            subject => check_optional_text("body.subject", subject.as_ref(), MAX_SUBJECT_CHARS)?,
        }
        let mut parts = self.parts.unwrap_or_default();
        match self.content.filter(|content| !content.is_empty()) {
            None if parts.is_empty() => return Err(FieldError::new("body.content", "is needed without parts")),
            Some(content) if parts.is_empty() || content != text_of(&parts) => {
                if content.len() > MAX_CONTENT_CHARS && content.chars().count() > MAX_CONTENT_CHARS {
                    let how = format!(
                        "has at most {MAX_CONTENT_CHARS} characters; send up to {MAX_TEXT_CHARS} as a text part in parts"
                    );
                    return Err(FieldError::new("body.content", how));
                }
                parts.insert(0, Part::Text { text: content });
            }
            // The content repeats the text parts, as in the documents of messages.
            _ => {}
        }
        match parts.as_slice() {
            [Part::Text { text }] => check_text("body.content", text, MAX_TEXT_CHARS)?,
            parts => check_text("body.parts", &text_of(parts), MAX_TEXT_CHARS)?,
        }
        let draft = Draft {
            to: first,
            kind: self.kind.unwrap_or_default(),
            subject,
            session: session.map(Into::into),
            parts,
            priority: self.priority.unwrap_or_default(),
            deadline: self.deadline,
            deadline_in: self.deadline_in,
            callback: self.callback,
            reply_to: self.reply_to,
            relay_of: self.relay_of,
            correlation_id: self.correlation_id,
            metadata: self.metadata.unwrap_or_default(),
            idempotency_key,
        };
        Ok((self.to, draft))
    }
}

impl From<Draft> for SendBody {
    /// Drops the idempotency key, which is sent in a header.
    fn from(draft: Draft) -> Self {
        let (content, parts) = match draft.parts.as_slice() {
            [Part::Text { text }] if text.chars().count() > MAX_CONTENT_CHARS => (None, Some(draft.parts)),
            [Part::Text { text }] => (Some(text.clone()), None),
            parts => (Some(text_of(parts)), Some(draft.parts)),
        };
        Self {
            to: draft.to,
            subject: draft.subject,
            content,
            session_id: draft.session.map(|session| session.to_string()),
            kind: Some(draft.kind),
            parts,
            priority: Some(draft.priority),
            deadline: draft.deadline,
            deadline_in: draft.deadline_in,
            callback: draft.callback,
            reply_to: draft.reply_to,
            relay_of: draft.relay_of,
            correlation_id: draft.correlation_id,
            metadata: Some(draft.metadata).filter(|metadata| !metadata.is_empty()),
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn draft() -> Draft {
        Draft::text("bob".parse().unwrap(), "Plan", "hello")
    }

    /// The body of a draft, after checking that the server makes the same draft of it.
    fn body(draft: &Draft) -> Value {
        let json = serde_json::to_string(&SendBody::from(draft.clone())).unwrap();
        let received: SendBody = serde_json::from_str(&json).unwrap();
        let (to, received) = received.draft(draft.to.clone(), None).unwrap();
        assert_eq!((&to, &received), (&draft.to, draft));
        serde_json::from_str(&json).unwrap()
    }

    #[test]
    fn a_plain_message_is_the_contracts_body() {
        let expected = json!({
            "to": "bob", "subject": "Plan", "content": "hello", "session_id": null, "kind": "message", "priority": "normal",
        });
        assert_eq!(body(&draft()), expected);
    }

    #[test]
    fn every_field_of_a_draft_reaches_the_server() {
        let uuid = Uuid::from_u128(1);
        let full = Draft {
            kind: Kind::Task,
            session: Some(uuid.into()),
            priority: Priority::Urgent,
            deadline: Some(Timestamp::UNIX_EPOCH),
            callback: Some(Callback { channel: Some("feishu".into()), ..Callback::default() }),
            reply_to: Some(uuid.into()),
            relay_of: Some(uuid.into()),
            correlation_id: Some(CorrelationId::parse("c").unwrap()),
            ..draft().automatic()
        };
        assert_eq!(body(&full)["metadata"], json!({ "automatic": true }));
    }

    #[test]
    fn a_text_too_long_for_content_is_sent_as_a_part() {
        let long = Draft { parts: vec![Part::text("x".repeat(MAX_CONTENT_CHARS + 1))], ..draft() };
        let body = body(&long);
        assert!(body.get("content").is_none() && body["parts"].as_array().unwrap().len() == 1);
    }

    #[test]
    fn a_relative_deadline_is_sent_as_it_is_so_that_a_repeat_is_the_same() {
        let body = body(&Draft { deadline_in: Some(7_200), ..draft() });
        assert_eq!((&body["deadline_in"], body.get("deadline")), (&json!(7_200), None));
    }

    #[test]
    fn a_draft_with_more_than_text_keeps_its_parts() {
        let parts = vec![Part::text("hello"), Part::data(json!({"n": 1}))];
        assert_eq!(body(&Draft { parts, ..draft() })["parts"].as_array().unwrap().len(), 2);
    }

    #[test]
    fn several_recipients_are_parsed_and_their_names_checked() {
        let parse = |to| serde_json::from_value::<SendBody<Vec<AgentName>>>(json!({ "to": to, "content": "hello" }));
        assert_eq!(parse(vec!["bob", "cat"]).unwrap().to.len(), 2);
        assert!(parse(vec!["bob", "with spaces"]).is_err());
    }
}
