//! A message that an office has accepted, and its parts.

use std::fmt;
use std::str::FromStr;

use jiff::Timestamp;
use serde::{Deserialize, Deserializer, Serialize};
use serde_json::Value;

use crate::Object;
use crate::error::OfficeError;
use crate::id::{CorrelationId, MessageId, SessionId};
use crate::limits::MAX_KIND_CHARS;
use crate::name::AgentName;
use crate::task::TaskRef;

/// The subject of messages without one, by which they share a session.
pub const NO_SUBJECT: &str = "(no subject)";

/// A message that an office has accepted. It never changes; what a recipient did with it is kept elsewhere.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct Message {
    /// Unique within its office.
    pub id: MessageId,
    /// Who the office says sent it; never a field that the sender filled in.
    pub from: AgentName,
    /// Whether its sender was the person of the reader's household when it was sent. Set by the office, never by a
    /// sender.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub from_person: bool,
    /// Who receives it.
    pub to: AgentName,
    /// When the office accepted it.
    pub sent_at: Timestamp,
    /// What it is for.
    #[serde(default)]
    pub kind: Kind,
    /// The session it belongs to.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub session: Option<SessionId>,
    /// The session's subject.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub subject: Option<String>,
    /// The content.
    pub parts: Vec<Part>,
    /// How urgent it is.
    #[serde(default)]
    pub priority: Priority,
    /// Hops left. At 0 it may not be relayed, and automatic answers end ([`Message::provokes_answer`]).
    pub ttl: u8,
    /// The agents that it passed through, the sender last.
    pub trace: Vec<AgentName>,
    /// The task it carries or reports on.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub task: Option<TaskRef>,
    /// Where the answer shall go.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub callback: Option<Callback>,
    /// The message it answers.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reply_to: Option<MessageId>,
    /// Correlates a question with its answers.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub correlation_id: Option<CorrelationId>,
    /// Further data from the sender, for programs.
    #[serde(default, skip_serializing_if = "Object::is_empty")]
    pub metadata: Object,
}

impl Message {
    /// The text of all text parts, joined by newlines.
    pub fn text(&self) -> String {
        text_of(&self.parts)
    }

    /// Whether a program sent this without a person or a model having decided to.
    pub fn is_automatic(&self) -> bool {
        is_automatic(&self.metadata)
    }

    /// Whether a person or a model decided to pass this on, by the office's note. Files of other programs have no such
    /// note.
    pub fn is_decided(&self) -> bool {
        self.metadata.get(AUTOMATIC) == Some(&Value::Bool(false))
    }

    /// Whether an agent that answers automatically may answer this. A task update is never answered; a message without
    /// hops left only if somebody decided to pass it on, and that answer is the last.
    pub fn provokes_answer(&self) -> bool {
        self.kind != Kind::TaskUpdate && (self.ttl > 0 || self.is_decided())
    }
}

/// The metadata field that is `true` where a program sent a message by itself (a bridge that carries an agent's answer
/// back, a script that confirms), and `false` where a person or a model decided to pass a message on. It is in the
/// metadata because every wire format and every store keeps those.
pub const AUTOMATIC: &str = "automatic";

/// Whether this metadata marks a message as automatic.
pub fn is_automatic(metadata: &Object) -> bool {
    metadata.get(AUTOMATIC) == Some(&Value::Bool(true))
}

/// The text of all text parts, joined by newlines.
pub fn text_of(parts: &[Part]) -> String {
    match parts {
        [Part::Text { text }] => text.clone(),
        _ => {
            let texts: Vec<&str> = parts
                .iter()
                .filter_map(|part| match part {
                    Part::Text { text } => Some(text.as_str()),
                    _ => None,
                })
                .collect();
            texts.join("\n")
        }
    }
}

/// One piece of content.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(tag = "type", rename_all = "snake_case")]
pub enum Part {
    /// Text.
    Text {
        /// The text.
        #[cfg_attr(feature = "openapi", schema(pattern = "^[^\\x00]*$"))]
        text: String,
    },
    /// A JSON value for programs.
    Data {
        /// The value.
        data: Value,
    },
    /// A file that both sides can reach.
    File {
        /// Its path; the content is not sent.
        path: String,
        /// Its media type, where known.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        media_type: Option<String>,
    },
}

impl Part {
    /// A text part.
    pub fn text(text: impl Into<String>) -> Self {
        Part::Text { text: text.into() }
    }

    /// A data part.
    pub fn data(data: Value) -> Self {
        Part::Data { data }
    }

    /// A file part.
    pub fn file(path: impl Into<String>) -> Self {
        Part::File { path: path.into(), media_type: None }
    }
}

/// How urgent a message is. Ordered: `Urgent` is the greatest.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Default, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "snake_case")]
pub enum Priority {
    /// After all others.
    Low,
    /// The default.
    #[default]
    Normal,
    /// Before normal messages.
    High,
    /// Before all others.
    Urgent,
}

impl Priority {
    /// All priorities in ascending order.
    pub const ALL: [Priority; 4] = [Priority::Low, Priority::Normal, Priority::High, Priority::Urgent];

    /// The word on the wire.
    pub fn as_str(self) -> &'static str {
        match self {
            Priority::Low => "low",
            Priority::Normal => "normal",
            Priority::High => "high",
            Priority::Urgent => "urgent",
        }
    }
}

impl fmt::Display for Priority {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.as_str())
    }
}

impl FromStr for Priority {
    type Err = OfficeError;

    fn from_str(text: &str) -> Result<Self, OfficeError> {
        Priority::ALL
            .into_iter()
            .find(|p| p.as_str() == text)
            .ok_or_else(|| OfficeError::invalid(format!("priority is low, normal, high or urgent, not {text:?}")))
    }
}

/// What a message is for.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord, Default)]
pub enum Kind {
    /// A plain message.
    #[default]
    Message,
    /// A request for work with a result.
    Task,
    /// An update of a task sent before.
    TaskUpdate,
    /// A label of another system, such as the chipset's `work_assignment`.
    Label(Label),
}

/// A kind that is not one of ours: 1–64 characters, none of them white space or control.
#[derive(Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Label(Box<str>);

impl Label {
    /// The label as text.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Debug for Label {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(&self.0, f)
    }
}

impl Kind {
    /// The word on the wire.
    pub fn as_str(&self) -> &str {
        match self {
            Kind::Message => "message",
            Kind::Task => "task",
            Kind::TaskUpdate => "task_update",
            Kind::Label(label) => label.as_str(),
        }
    }
}

impl fmt::Display for Kind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.as_str())
    }
}

impl FromStr for Kind {
    type Err = OfficeError;

    fn from_str(text: &str) -> Result<Self, OfficeError> {
        Ok(match text {
            "message" => Kind::Message,
            "task" => Kind::Task,
            "task_update" => Kind::TaskUpdate,
            _ => {
                let bad = |c: char| c.is_whitespace() || c.is_control() || crate::render::is_invisible(c);
                if text.is_empty() || text.chars().count() > MAX_KIND_CHARS || text.contains(bad) {
                    return Err(OfficeError::invalid(format!(
                        "a kind is message, task, task_update or a label of 1 to {MAX_KIND_CHARS} characters without spaces"
                    )));
                }
                Kind::Label(Label(text.into()))
            }
        })
    }
}

impl Serialize for Kind {
    fn serialize<S: serde::Serializer>(&self, ser: S) -> Result<S::Ok, S::Error> {
        ser.serialize_str(self.as_str())
    }
}

impl<'de> Deserialize<'de> for Kind {
    fn deserialize<D: Deserializer<'de>>(de: D) -> Result<Self, D::Error> {
        let text = std::borrow::Cow::<'de, str>::deserialize(de)?;
        text.parse().map_err(serde::de::Error::custom)
    }
}

/// Where the answer to a task shall go: a conversation of the agent that set it.
///
/// It travels with a task and its updates, and only the agent that set it may use it.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct Callback {
    /// The channel, such as `feishu`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub channel: Option<String>,
    /// The key of the conversation, such as `feishu:user_123`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub session_id: Option<String>,
    /// The chat within the channel.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub chat_id: Option<String>,
    /// Fields of other systems, kept as they are.
    #[serde(flatten)]
    pub extra: Object,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn kinds_keep_foreign_labels() {
        for word in ["message", "task", "task_update", "work_assignment", "x-y.z"] {
            assert_eq!(word.parse::<Kind>().unwrap().as_str(), word);
        }
        assert!("two words".parse::<Kind>().is_err());
        assert!("".parse::<Kind>().is_err());
    }

    #[test]
    fn urgent_is_the_greatest_priority() {
        assert!(Priority::ALL.is_sorted());
        assert_eq!("urgent".parse::<Priority>().unwrap(), Priority::Urgent);
        assert!("asap".parse::<Priority>().is_err());
    }

    #[test]
    fn the_text_of_a_message_is_its_text_parts() {
        let parts = [Part::text("a"), Part::data(1.into()), Part::text("b"), Part::file("/x")];
        assert_eq!(text_of(&parts), "a\nb");
    }
}
