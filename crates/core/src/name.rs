//! The name of an agent: its address, and always one safe path component.

use std::borrow::Borrow;
use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Deserializer, Serialize};

use crate::limits::{MAX_NAME_CHARS, MIN_SERVER_NAME_CHARS};

/// 1–100 of `A-Z a-z 0-9 - _ .`, not beginning with `.` or `_`.
///
/// Parsed at the edge; nothing below handles a raw string. Because of the rule a name can stand in a path, a NATS
/// subject's attribute or a log line as it is.
///
/// ```
/// use amb_core::AgentName;
/// assert!("coder-2".parse::<AgentName>().is_ok());
/// assert!("../outside".parse::<AgentName>().is_err());
/// assert!("coder\n".parse::<AgentName>().is_err());
/// ```
#[derive(Clone, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize)]
#[serde(transparent)]
pub struct AgentName(Box<str>);

/// Why a text is not a name.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum BadName {
    /// Nothing there.
    #[error("an agent name cannot be empty")]
    Empty,
    /// More than [`MAX_NAME_CHARS`].
    #[error("an agent name has at most {MAX_NAME_CHARS} characters, this one has {0}")]
    TooLong(usize),
    /// A character that is not allowed anywhere.
    #[error("an agent name uses letters, digits, '-', '_' and '.', not {0:?}")]
    BadChar(char),
    /// Begins with `.` or `_`, which would hide a file or imitate one of ours.
    #[error("an agent name cannot begin with {0:?}")]
    BadStart(char),
    /// Fine elsewhere, but not registrable on a server.
    #[error("a name on a server has {MIN_SERVER_NAME_CHARS} to {MAX_NAME_CHARS} letters, digits, '-' and '_'")]
    NotForServer,
    /// A server has a page of that name where agents have theirs.
    #[error("the name {RESERVED:?} is reserved on a server; choose another")]
    Reserved,
}

/// What stands where an agent's name does in a server's paths. (`me` does too, and is too short for a name there.)
const RESERVED: &str = "register";

impl AgentName {
    /// Parses a name.
    pub fn parse(text: &str) -> Result<Self, BadName> {
        let first = text.chars().next().ok_or(BadName::Empty)?;
        if let Some(bad) = text.chars().find(|c| !(c.is_ascii_alphanumeric() || matches!(c, '-' | '_' | '.'))) {
            return Err(BadName::BadChar(bad));
        }
        if matches!(first, '.' | '_') {
            return Err(BadName::BadStart(first));
        }
        if text.len() > MAX_NAME_CHARS {
            return Err(BadName::TooLong(text.len()));
        }
        Ok(Self(text.into()))
    }

    /// Parses a name under the narrower rule for registering on a server: 3–100 of `A-Z a-z 0-9 - _`, and none that the
    /// server's own paths use.
    ///
    /// The leading `_` that the server's contract would allow is refused like everywhere else.
    pub fn parse_for_server(text: &str) -> Result<Self, BadName> {
        let name = Self::parse(text)?;
        if text.len() < MIN_SERVER_NAME_CHARS || text.contains('.') {
            return Err(BadName::NotForServer);
        }
        // Paths are compared letter by letter, so `Register` can be had.
        if text == RESERVED {
            return Err(BadName::Reserved);
        }
        Ok(name)
    }

    /// The name as text.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for AgentName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(&self.0)
    }
}

impl fmt::Debug for AgentName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(&self.0, f)
    }
}

impl FromStr for AgentName {
    type Err = BadName;

    fn from_str(text: &str) -> Result<Self, BadName> {
        Self::parse(text)
    }
}

impl AsRef<str> for AgentName {
    fn as_ref(&self) -> &str {
        &self.0
    }
}

impl Borrow<str> for AgentName {
    fn borrow(&self) -> &str {
        &self.0
    }
}

impl<'de> Deserialize<'de> for AgentName {
    fn deserialize<D: Deserializer<'de>>(de: D) -> Result<Self, D::Error> {
        let text = std::borrow::Cow::<'de, str>::deserialize(de)?;
        Self::parse(&text).map_err(serde::de::Error::custom)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_is_one_safe_path_component() {
        for good in ["a", "coder", "polecat-alpha", "A.b_c-9", &"x".repeat(100)] {
            assert_eq!(AgentName::parse(good).unwrap().as_str(), good);
        }
        for bad in
            ["", ".", "..", "../x", "a/b", "a\\b", "_registry", ".hidden", "a b", "a\n", "é", "a\0", &"x".repeat(101)]
        {
            assert!(AgentName::parse(bad).is_err(), "{bad:?} was taken for a name");
        }
    }

    #[test]
    fn a_server_name_is_narrower() {
        assert!(AgentName::parse_for_server("abc").is_ok());
        assert!(AgentName::parse_for_server(&"x".repeat(100)).is_ok());
        for bad in ["ab", "a.b", "abc\n", " abc", &"x".repeat(101)] {
            assert!(AgentName::parse_for_server(bad).is_err(), "{bad:?}");
        }
    }

    #[test]
    fn no_agent_takes_the_name_of_a_servers_own_page() {
        assert_eq!(AgentName::parse_for_server("register"), Err(BadName::Reserved));
        assert!(AgentName::parse_for_server("me").is_err());
        assert!(AgentName::parse_for_server("registers").is_ok());
        assert!(AgentName::parse("register").is_ok(), "a directory has no such pages");
    }

    #[test]
    fn json_with_a_bad_name_does_not_parse() {
        assert!(serde_json::from_str::<AgentName>(r#""../x""#).is_err());
        assert_eq!(serde_json::from_str::<AgentName>(r#""co\u0064er""#).unwrap().as_str(), "coder");
    }
}
