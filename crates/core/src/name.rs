//! The name of an agent: its address, and always one safe path component.
//!
//! *Plain* names, of ASCII letters, digits, `-`, `_` and `.`, go everywhere. Programs that share a directory with us
//! also use letters of other scripts and single spaces; such names are read and answered there, and no server registers
//! them.

use std::borrow::{Borrow, Cow};
use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Deserializer, Serialize};

use crate::limits::{MAX_NAME_BYTES, MAX_NAME_CHARS, MIN_SERVER_NAME_CHARS};
use crate::render::is_invisible;

/// Maximum number of combining marks on one letter: no script needs more, and longer stacks overlap their neighbours.
const MAX_MARKS: usize = 4;

/// 1–100 letters (with their marks), digits, `-`, `_` and `.`, not beginning with `.` or `_`, in words with one space
/// between them.
///
/// Parsed at the edge; nothing below handles a raw string. Because of the rule a name can stand in a path or a log line
/// as it is, and a [plain](Self::is_plain) one wherever ASCII does.
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
    /// An empty text.
    #[error("an agent name cannot be empty")]
    Empty,
    /// More than [`MAX_NAME_CHARS`].
    #[error("an agent name has at most {MAX_NAME_CHARS} characters, this one has {0}")]
    TooLong(usize),
    /// A character that is not allowed anywhere.
    #[error("an agent name uses letters, digits, '-', '_' and '.', not {0:?}")]
    BadChar(char),
    /// A space at an end, or two in a row.
    #[error("a space stands between two words of an agent name, never at its ends")]
    BadSpace,
    /// Begins with `.` or `_`, which would hide a file or imitate one of ours.
    #[error("an agent name cannot begin with {0:?}: in a directory such names are hidden files and the office's own")]
    BadStart(char),
    /// Valid in a directory, but not on a server.
    #[error("a name on a server has {MIN_SERVER_NAME_CHARS} to {MAX_NAME_CHARS} letters, digits, '-' and '_'")]
    NotForServer,
    /// A word that a model could take for an authority, or that a server's own paths use.
    #[error("the name {0:?} is reserved, since it could be taken for more than an agent; choose another")]
    Reserved(Box<str>),
}

/// Names that no new agent or group may take, compared without case: words that a model could take for an authority,
/// and `register`, which would collide with a server's path (so would `me`, which is too short for a name there).
/// Agents that have such a name keep it.
pub const RESERVED_NAMES: [&str; 20] = [
    "admin",
    "administrator",
    "assistant",
    "developer",
    "human",
    "mailbox",
    "moderator",
    "office",
    "operator",
    "owner",
    "person",
    "postmaster",
    "register",
    "root",
    "security",
    "superuser",
    "support",
    "system",
    "tool",
    "user",
];

/// The reserved name that a household's person may have.
pub const PERSON: &str = "person";

impl AgentName {
    /// Parses a name.
    pub fn parse(text: &str) -> Result<Self, BadName> {
        let first = text.chars().next().ok_or(BadName::Empty)?;
        if !is_plain(text) {
            let letter = |c: char| c.is_alphanumeric() && !is_invisible(c);
            // Accents and vowel signs follow their letter.
            let mut marks = None;
            for c in text.chars() {
                marks = match (c, marks) {
                    ('-' | '_' | '.' | ' ', _) => None,
                    (c, Some(marks)) if is_mark(c) && marks < MAX_MARKS => Some(marks + 1),
                    (c, _) if letter(c) && !is_mark(c) => Some(0),
                    (bad, _) => return Err(BadName::BadChar(bad)),
                };
            }
            if text.starts_with(' ') || text.ends_with(' ') || text.contains("  ") {
                return Err(BadName::BadSpace);
            }
        }
        if matches!(first, '.' | '_') {
            return Err(BadName::BadStart(first));
        }
        let chars = text.chars().count();
        if chars > MAX_NAME_CHARS || text.len() > MAX_NAME_BYTES {
            return Err(BadName::TooLong(chars));
        }
        Ok(Self(text.into()))
    }

    /// Parses a name under the narrower rule for registering on a server: 3–100 of `A-Z a-z 0-9 - _`, and none that is
    /// [reserved](RESERVED_NAMES).
    ///
    /// The leading `_` that the server's contract would allow is refused like everywhere else: the same agent may live
    /// in a directory, where names are file names and those with a leading `_` are the office's own (`_registry.json`).
    pub fn parse_for_server(text: &str) -> Result<Self, BadName> {
        let name = Self::parse(text)?;
        if text.len() < MIN_SERVER_NAME_CHARS || text.contains('.') || !name.is_plain() {
            return Err(BadName::NotForServer);
        }
        name.check_new()?;
        Ok(name)
    }

    /// Parses the name of a person: as [for any agent](Self::parse_for_server), or `person`, which no agent gets.
    pub fn parse_for_person(text: &str) -> Result<Self, BadName> {
        if text == PERSON { Self::parse(text) } else { Self::parse_for_server(text) }
    }

    /// Parses a [plain](Self::is_plain) name, the only kind that a server knows.
    pub fn parse_plain(text: &str) -> Result<Self, BadName> {
        let name = Self::parse(text)?;
        match text.chars().find(|c| !is_plain(c.encode_utf8(&mut [0; 4]))) {
            Some(bad) => Err(BadName::BadChar(bad)),
            None => Ok(name),
        }
    }

    /// Whether it consists of ASCII letters, digits, `-`, `_` and `.` only.
    pub fn is_plain(&self) -> bool {
        is_plain(&self.0)
    }

    /// Checks that a server may register a new agent under this name.
    pub fn check_new(&self) -> Result<(), BadName> {
        if !self.is_plain() {
            return Err(BadName::NotForServer);
        }
        match RESERVED_NAMES.iter().any(|word| self.eq_ignore_case(word)) {
            true => Err(BadName::Reserved(self.0.clone())),
            false => Ok(()),
        }
    }

    /// Whether the two are equal without regard to case. No two agents of a server have such names.
    pub fn eq_ignore_case(&self, other: &str) -> bool {
        self.0.eq_ignore_ascii_case(other)
    }

    /// The name in lower case, for comparing without case.
    pub fn folded(&self) -> String {
        self.0.to_ascii_lowercase()
    }

    /// Whether the two are different names that look the same, such as one with an accented letter as one character and
    /// one with letter and accent apart, or one with a fullwidth letter (equal after Unicode compatibility normalization).
    /// Letters of two scripts are not compared. A directory takes no second agent with such a name.
    pub fn looks_like(&self, other: &str) -> bool {
        use unicode_normalization::UnicodeNormalization;
        // Normalization does not change plain names.
        (!self.is_plain() || !is_plain(other)) && self.as_str() != other && self.0.nfkc().eq(other.nfkc())
    }

    /// The name for use in a sentence: in quotes unless it is plain, since several words could read like a part of the
    /// sentence.
    pub fn quoted(&self) -> Cow<'_, str> {
        match self.is_plain() {
            true => Cow::Borrowed(&self.0),
            false => Cow::Owned(format!("\"{}\"", self.0)),
        }
    }

    /// Returns the candidate with exactly this name, else the only one that differs in case alone.
    pub fn best_match<T>(&self, found: impl IntoIterator<Item = T>, name: impl Fn(&T) -> &str) -> Option<T> {
        let mut like = Vec::new();
        for one in found {
            if name(&one) == self.as_str() {
                return Some(one);
            }
            if self.eq_ignore_case(name(&one)) {
                like.push(one);
            }
        }
        if like.len() == 1 { like.pop() } else { None }
    }

    /// The name as text.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

/// Whether a character combines with the one before it.
fn is_mark(c: char) -> bool {
    unicode_normalization::char::is_combining_mark(c) && !is_invisible(c)
}

fn is_plain(text: &str) -> bool {
    text.bytes().all(|byte| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_' | b'.'))
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
        for bad in [
            "",
            ".",
            "..",
            "../x",
            "a/b",
            "a\\b",
            "_registry",
            ".hidden",
            " a",
            "a ",
            "a  b",
            "a\n",
            "a\u{a0}b",
            "a\u{202e}b",
            "a\u{3164}",
            "é/x",
            "a\0",
            &"x".repeat(101),
            &"代".repeat(100),
        ] {
            assert!(AgentName::parse(bad).is_err(), "{bad:?} was taken for a name");
        }
    }

    #[test]
    fn letters_of_any_script_and_single_spaces_are_accepted_except_by_servers() {
        for wide in ["代码 助手", "Zoë", "code reviewer", &"代".repeat(66)] {
            let name = AgentName::parse(wide).unwrap();
            assert!(name.as_str() == wide && !name.is_plain());
            assert_eq!(AgentName::parse_for_server(wide), Err(BadName::NotForServer));
            assert_eq!(name.check_new(), Err(BadName::NotForServer));
        }
    }

    #[test]
    fn combining_marks_need_a_letter_and_are_limited() {
        for good in ["Zoe\u{308}", "हिन्दी सहायक", "தமிழ்", "ผู้ช่วย", "e\u{301}\u{323}"]
        {
            let name = AgentName::parse(good).unwrap();
            assert!(name.as_str() == good && name.quoted() == format!("\"{good}\""));
        }
        for bad in ["\u{301}a", "a \u{301}b", "a-\u{301}", &format!("a{}", "\u{301}".repeat(5)), "a\u{20dd}\u{34f}"] {
            assert!(AgentName::parse(bad).is_err(), "{bad:?} was taken for a name");
        }
        assert_eq!(AgentName::parse("coder-2").unwrap().quoted(), "coder-2");
    }

    #[test]
    fn names_that_differ_in_unicode_normalization_look_alike() {
        let (composed, decomposed) = ("Zo\u{eb}", "Zoe\u{308}");
        let name = AgentName::parse(composed).unwrap();
        assert_ne!(name, AgentName::parse(decomposed).unwrap());
        assert!(name.looks_like(decomposed) && AgentName::parse(decomposed).unwrap().looks_like(composed));
        assert!(
            !name.looks_like(composed)
                && !name.looks_like("Zoe")
                && !AgentName::parse("zoe").unwrap().looks_like("Zoe")
        );
        let (fullwidth, cyrillic) = ("a\u{ff4e}n", "\u{430}nn");
        assert!(AgentName::parse(fullwidth).unwrap().looks_like("ann"));
        assert!(AgentName::parse("ann").unwrap().looks_like(fullwidth));
        assert!(!AgentName::parse(cyrillic).unwrap().looks_like("ann"), "scripts are not compared");
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
    fn no_new_agent_takes_a_reserved_name() {
        for word in ["register", "Register", "system", "ROOT", "Admin", "assistant", "user", "Operator"] {
            assert_eq!(AgentName::parse_for_server(word), Err(BadName::Reserved(word.into())));
            assert!(AgentName::parse(word).is_ok(), "an agent that has it keeps it");
        }
        assert!(RESERVED_NAMES.is_sorted());
        assert!(AgentName::parse_for_server("me").is_err());
        assert!(AgentName::parse_for_server("registers").is_ok());
        assert!(AgentName::parse_for_server("user-2").is_ok());
        let reason = AgentName::parse_for_server("_ann").unwrap_err().to_string();
        assert!(reason.contains("hidden files"), "{reason}");
    }

    #[test]
    fn a_name_resolves_to_an_exact_match_or_the_only_one_in_another_case() {
        let best_match = |name: &str, known: &[&'static str]| {
            AgentName::parse(name).unwrap().best_match(known.iter().copied(), |known| known)
        };
        assert_eq!(best_match("ann", &["Ann", "ann", "ANN"]), Some("ann"));
        assert_eq!(best_match("ANN", &["ann", "ben"]), Some("ann"));
        assert_eq!(best_match("ANN", &["ann", "Ann"]), None, "either could be meant");
        assert_eq!(best_match("ben", &["ann"]), None);
    }

    #[test]
    fn json_with_a_bad_name_does_not_parse() {
        assert!(serde_json::from_str::<AgentName>(r#""../x""#).is_err());
        assert_eq!(serde_json::from_str::<AgentName>(r#""co\u0064er""#).unwrap().as_str(), "coder");
    }
}
