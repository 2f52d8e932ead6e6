//! Arguments and results of the verbs that are not in core.

use std::fmt;
use std::sync::Arc;

use amb_core::doc::ConnectionChange;
use amb_core::limits::FIRST_TIME;
use amb_core::route::Hop;
use amb_core::{AgentName, Card, Entry, OfficeError, Timestamp};
use serde::Serialize;
use sha2::{Digest, Sha256};
use uuid::Uuid;

/// The key of an agent within one store: short, `Copy`, for maps. Has no meaning outside this database.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Default)]
pub struct AgentKey(pub(crate) i64);

impl AgentKey {
    /// Returns the number, for logs and metrics.
    pub fn number(self) -> i64 {
        self.0
    }
}

impl std::str::FromStr for AgentKey {
    type Err = std::num::ParseIntError;

    /// Parses the number that another process on the same database wrote.
    fn from_str(text: &str) -> Result<Self, Self::Err> {
        text.parse().map(Self)
    }
}

impl fmt::Display for AgentKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// A registered agent: the caller of most verbs. Only the store creates one, from a valid key.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Agent {
    /// Its key in this store.
    pub key: AgentKey,
    /// Its public id.
    pub id: Uuid,
    /// Its name.
    pub name: AgentName,
    /// Whether it is a person. Never changes.
    pub person: bool,
    /// The idempotency key of its request, for verbs that create something.
    pub once: Option<Once>,
}

impl Agent {
    /// Returns the agent with the idempotency key of its request.
    pub fn under(self, once: Option<Once>) -> Self {
        Self { once, ..self }
    }
}

/// An idempotency key and a hash of the request: a repeat returns what the first call returned and changes nothing;
/// another request under the same key is a `conflict`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Once {
    pub(crate) key: String,
    pub(crate) draft_hash: [u8; 32],
}

impl Once {
    /// Returns the key of a verb and its arguments.
    ///
    /// # Errors
    /// `invalid` where the key is empty, too long, or not printable.
    pub fn new(key: String, verb: &str, asked: &impl Serialize) -> Result<Self, OfficeError> {
        amb_core::draft::check_idempotency_key(&key)?;
        // Objects are sorted by key, so equal requests have equal bytes.
        let text = serde_json::to_vec(&(verb, asked)).map_err(OfficeError::internal)?;
        Ok(Self { key, draft_hash: Sha256::digest(text).into() })
    }
}

/// The SHA-256 of an API key. The key itself is never stored.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct KeyHash(pub(crate) [u8; 32]);

impl KeyHash {
    /// Hashes a key.
    pub fn of(key: &str) -> Self {
        Self(Sha256::digest(key.as_bytes()).into())
    }

    /// Returns the hash as it is stored: 64 lower-case hex digits.
    pub fn to_hex(self) -> String {
        hex::encode(self.0)
    }
}

impl fmt::Debug for KeyHash {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // Not secret, but a log does not need all of it.
        write!(f, "KeyHash({}…)", hex::encode(&self.0[..4]))
    }
}

/// An agent to register.
#[derive(Debug, Clone)]
pub struct NewAgent {
    /// Its name, checked against the rules for servers.
    pub name: AgentName,
    /// The hash of its key.
    pub key_hash: KeyHash,
    /// The first characters of its key, by which its owner recognises it.
    pub key_prefix: String,
    /// Contact data of the owner.
    pub owner_contact: Option<String>,
    /// Its card.
    pub card: Card,
    /// The household to join.
    pub join: Option<Join>,
}

/// A household to join.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Join {
    /// The hash of the household's token.
    pub token: KeyHash,
    /// Whether to join as its person, which needs the owner's token. A household has one person.
    pub person: bool,
}

/// A key that replaces another.
#[derive(Debug, Clone)]
pub struct NewKey {
    /// Its hash.
    pub hash: KeyHash,
    /// Its first characters, by which its owner recognises it.
    pub prefix: String,
}

/// Generates a verification code. Called again when a code is taken.
pub type CodeMaker = Arc<dyn Fn() -> Result<String, OfficeError> + Send + Sync>;

/// A connection request.
#[derive(Clone)]
pub struct Ask {
    /// The agent that has to approve it.
    pub target: AgentName,
    /// A message to the target.
    pub intro: Option<String>,
    /// The generator of codes: [`random_code`], except in tests.
    pub codes: CodeMaker,
    /// Whether the code is left out of the target's inbox and event, so that a person has to pass it on.
    pub private_code: bool,
    /// When the request expires; `None` for never.
    pub expires_at: Option<Timestamp>,
    /// Most pending requests of the caller; `None` for any number.
    pub max_pending: Option<u32>,
}

impl Ask {
    /// Returns a request with random codes and without limits.
    pub fn new(target: AgentName, intro: Option<String>) -> Self {
        Self { target, intro, codes: Arc::new(random_code), private_code: false, expires_at: None, max_pending: None }
    }
}

impl fmt::Debug for Ask {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Ask").field("target", &self.target).finish_non_exhaustive()
    }
}

/// A decision of a person about a connection of an agent.
#[derive(Debug, Clone)]
pub enum ConnectionDecision {
    /// Requests a connection.
    Ask(Ask),
    /// Approves the request that has this code.
    Approve {
        /// The code.
        code: String,
    },
    /// Rejects, revokes, blocks or unblocks.
    Change {
        /// The other side.
        peer: AgentName,
        /// The change.
        change: ConnectionChange,
    },
}

/// Returns a random code such as `XC-992`, uniformly distributed over 676,000 codes.
pub fn random_code() -> Result<String, OfficeError> {
    const LETTERS: u32 = 26;
    const CODES: u32 = LETTERS * LETTERS * 1_000;
    // The largest multiple of CODES; numbers above it would favour the first codes.
    const FAIR: u32 = u32::MAX - u32::MAX % CODES;
    loop {
        let mut bytes = [0; 4];
        getrandom::fill(&mut bytes).map_err(OfficeError::internal)?;
        let number = u32::from_le_bytes(bytes);
        if number < FAIR {
            let (letters, digits) = (number / 1_000 % (LETTERS * LETTERS), number % 1_000);
            let letter = |n: u32| char::from(b'A' + u8::try_from(n % LETTERS).unwrap_or(0));
            return Ok(format!("{}{}-{digits:03}", letter(letters / LETTERS), letter(letters)));
        }
    }
}

/// A version of what an agent sees of its mail. While it is the same, nothing has changed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ViewVersion(pub(crate) u64);

impl From<u64> for ViewVersion {
    /// For the in-memory store of tests.
    fn from(count: u64) -> Self {
        Self(count)
    }
}

/// An entry of an agent's log.
#[derive(Debug, Clone, PartialEq)]
pub struct LogEntry {
    /// The agent whose log it is in.
    pub agent: AgentKey,
    /// The entry. Its cursor is always a number.
    pub entry: Entry,
}

/// The result of a verb that writes, which is durable.
#[derive(Debug, Clone, PartialEq)]
pub struct Written<T> {
    /// The answer to the caller.
    pub answer: T,
    /// The log entries that the verb appended, in the order of each log. Empty where it changed nothing, as for a
    /// repeated send.
    pub entries: Vec<LogEntry>,
}

impl<T> Written<T> {
    /// Returns an answer without log entries.
    pub fn quiet(answer: T) -> Self {
        Self { answer, entries: Vec::new() }
    }
}

impl<T> Written<Vec<T>> {
    /// Combines several results, with the log entries of all.
    pub(crate) fn gather(all: impl IntoIterator<Item = Written<T>>) -> Self {
        let mut gathered = Self::quiet(Vec::new());
        for one in all {
            gathered.answer.push(one.answer);
            gathered.entries.extend(one.entries);
        }
        gathered
    }
}

/// The id, ttl and trace of a message that another office accepted. The hop was counted there.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Crossing {
    /// The id of the message here, and of its task if it is one.
    pub id: Uuid,
    /// Its ttl and trace.
    pub hop: Hop,
}

/// Converts a log number, which is never negative.
pub(crate) fn log_number(number: i64) -> u64 {
    u64::try_from(number).unwrap_or(0)
}

/// Returns the folded subject, which identifies sessions: the same for `Plan` and ` plan`.
pub fn fold_subject(subject: &str) -> String {
    subject.trim().to_lowercase()
}

/// Rounds an instant to what both databases store, microseconds from [`FIRST_TIME`] on, so that a verb returns the same time
/// as a later read.
pub fn to_micros(at: Timestamp) -> Timestamp {
    Timestamp::from_microsecond(at.as_microsecond()).unwrap_or(at).max(FIRST_TIME)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_code_has_two_letters_and_three_digits() {
        for _ in 0..1_000 {
            let code = random_code().unwrap();
            let bytes = code.as_bytes();
            assert_eq!(bytes.len(), 6, "{code}");
            assert!(bytes[..2].iter().all(u8::is_ascii_uppercase) && bytes[2] == b'-', "{code}");
            assert!(bytes[3..].iter().all(u8::is_ascii_digit), "{code}");
        }
    }

    #[test]
    fn a_key_is_stored_as_the_hex_of_its_sha256() {
        let hex = KeyHash::of("abc").to_hex();
        assert_eq!(hex, "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad");
    }

    #[test]
    fn subjects_fold_case_and_outer_space() {
        assert_eq!(fold_subject(" Größe A "), fold_subject("größe a"));
        assert_ne!(fold_subject("a b"), fold_subject("ab"));
    }
}
