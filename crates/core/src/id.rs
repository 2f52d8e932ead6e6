//! Ids. Ours are time-ordered UUIDs; those of other systems are opaque text of bounded length. Each type holds both.

use std::fmt;
use std::str::FromStr;
use std::sync::Mutex;

use jiff::Timestamp;
use serde::{Deserialize, Deserializer, Serialize};
use uuid::{ContextV7, Uuid};

use crate::limits::MAX_ID_CHARS;
use crate::name::AgentName;

/// Why a text is not an id.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum BadId {
    /// An empty text.
    #[error("an id cannot be empty")]
    Empty,
    /// More than [`MAX_ID_CHARS`].
    #[error("an id has at most {MAX_ID_CHARS} characters")]
    TooLong,
    /// White space, a control character or an invisible formatting character.
    #[error("an id cannot contain {0:?}")]
    BadChar(char),
}

/// Orders the ids that this process makes in the same millisecond.
static ORDER: Mutex<Option<ContextV7>> = Mutex::new(None);

/// Returns a new time-ordered UUID. Two made by one process at the same instant sort in the order of creation.
pub fn fresh_uuid(now: Timestamp) -> Uuid {
    let seconds = u64::try_from(now.as_second()).unwrap_or(0);
    let nanos = u32::try_from(now.subsec_nanosecond()).unwrap_or(0);
    let mut order = ORDER.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
    let context = order.get_or_insert_with(ContextV7::new);
    Uuid::new_v7(uuid::Timestamp::from_unix(&*context, seconds, nanos))
}

fn check(text: &str) -> Result<(), BadId> {
    if text.is_empty() {
        return Err(BadId::Empty);
    }
    // Nearly every id is printable ASCII, where a byte is a character and none is invisible.
    if text.len() <= MAX_ID_CHARS && text.bytes().all(|byte| byte.is_ascii_graphic()) {
        return Ok(());
    }
    if text.chars().count() > MAX_ID_CHARS {
        return Err(BadId::TooLong);
    }
    match text.chars().find(|c| c.is_whitespace() || c.is_control() || crate::render::is_invisible(*c)) {
        Some(bad) => Err(BadId::BadChar(bad)),
        None => Ok(()),
    }
}

macro_rules! text_id {
    ($(#[$doc:meta])* $name:ident) => {
        $(#[$doc])*
        #[derive(Clone, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize)]
        #[serde(transparent)]
        pub struct $name(Box<str>);

        impl $name {
            /// Parses an id of this or another system.
            pub fn parse(text: &str) -> Result<Self, BadId> {
                check(text)?;
                Ok(Self(text.into()))
            }

            /// Makes a new, time-ordered id.
            pub fn fresh(now: Timestamp) -> Self {
                fresh_uuid(now).into()
            }

            /// The id as text.
            pub fn as_str(&self) -> &str {
                &self.0
            }

            /// The id as a UUID, if it is one.
            pub fn as_uuid(&self) -> Option<Uuid> {
                Uuid::parse_str(&self.0).ok()
            }
        }

        impl From<Uuid> for $name {
            fn from(id: Uuid) -> Self {
                Self((&*id.hyphenated().encode_lower(&mut Uuid::encode_buffer())).into())
            }
        }

        impl FromStr for $name {
            type Err = BadId;

            fn from_str(text: &str) -> Result<Self, BadId> {
                Self::parse(text)
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.pad(&self.0)
            }
        }

        impl fmt::Debug for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                fmt::Debug::fmt(&self.0, f)
            }
        }

        impl<'de> Deserialize<'de> for $name {
            fn deserialize<D: Deserializer<'de>>(de: D) -> Result<Self, D::Error> {
                let text = std::borrow::Cow::<'de, str>::deserialize(de)?;
                Self::parse(&text).map_err(serde::de::Error::custom)
            }
        }
    };
}

text_id! {
    /// The id of a message.
    MessageId
}
text_id! {
    /// The id of a session.
    SessionId
}
text_id! {
    /// The id of a task.
    TaskId
}
text_id! {
    /// The id of a connection, from its request on.
    ConnectionId
}
text_id! {
    /// Correlates a question with its answers across any number of messages.
    CorrelationId
}

/// The UUID namespace of [`SessionId::between`]; it must never change.
const SESSION_SPACE: Uuid = Uuid::from_u128(0x6a1f_0c5e_7d43_5b0e_9f57_21c4_d8aa_3e10);

impl SessionId {
    /// The session of a subject between two agents, for offices that keep no table of sessions: the same pair (in
    /// either order) and the same subject (in any case of letters) always give the same id.
    pub fn between(a: &AgentName, b: &AgentName, subject: &str) -> Self {
        let (first, second) = if a <= b { (a, b) } else { (b, a) };
        // A name never contains '/', so the joined text is unambiguous.
        let text = format!("{first}/{second}/{}", subject.trim().to_lowercase());
        Uuid::new_v5(&SESSION_SPACE, text.as_bytes()).into()
    }
}

/// The id of a goal: one live run of an agent.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(transparent)]
pub struct GoalId(pub Uuid);

impl GoalId {
    /// Makes a new, time-ordered goal id.
    pub fn fresh(now: Timestamp) -> Self {
        Self(fresh_uuid(now))
    }
}

impl fmt::Display for GoalId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

impl FromStr for GoalId {
    type Err = uuid::Error;

    fn from_str(text: &str) -> Result<Self, uuid::Error> {
        Uuid::parse_str(text).map(Self)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ids_made_at_one_instant_sort_in_order_of_creation() {
        let now = Timestamp::from_millisecond(1_772_000_000_123).unwrap();
        let ids: Vec<_> = (0..1_000).map(|_| MessageId::fresh(now)).collect();
        assert!(ids.is_sorted());
        assert!(ids.windows(2).all(|pair| pair[0] != pair[1]));
    }

    #[test]
    fn an_id_of_another_system_is_kept_as_it_is() {
        for text in ["msg_1745659200_coder", "om_dc13264520392913993dd051dba21dcf", "2026-03-05T10-30-00Z-mayor"] {
            assert_eq!(MessageId::parse(text).unwrap().as_str(), text);
        }
        for text in ["", "a b", "a\n", "a\u{202e}b", &"x".repeat(201)] {
            assert!(MessageId::parse(text).is_err(), "{text:?}");
        }
    }

    #[test]
    fn a_session_is_the_same_from_both_sides_and_in_any_case() {
        let (a, b) = ("a".parse().unwrap(), "b".parse().unwrap());
        assert_eq!(SessionId::between(&a, &b, "Plan"), SessionId::between(&b, &a, " plan"));
        assert_ne!(SessionId::between(&a, &b, "Plan"), SessionId::between(&a, &b, "Plans"));
    }
}
