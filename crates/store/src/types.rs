//! What the store's verbs take and give beyond the words of core.

use std::fmt;
use std::sync::Arc;

use amb_core::doc::ConnectionChange;
use amb_core::limits::FIRST_TIME;
use amb_core::route::Hop;
use amb_core::{AgentName, Card, Entry, OfficeError, Timestamp};
use serde::Serialize;
use sha2::{Digest, Sha256};
use uuid::Uuid;

/// An agent within one store: short, `Copy`, good as the key of a map. Means nothing outside this database.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Default)]
pub struct AgentKey(pub(crate) i64);

impl AgentKey {
    /// The number, for logs and metrics.
    pub fn number(self) -> i64 {
        self.0
    }
}

impl std::str::FromStr for AgentKey {
    type Err = std::num::ParseIntError;

    /// Reads the number that another process on the same database wrote.
    fn from_str(text: &str) -> Result<Self, Self::Err> {
        text.parse().map(Self)
    }
}

impl fmt::Display for AgentKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// A registered agent: the caller of every verb. Only the store makes one, from a key that it knows.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Agent {
    /// Its number here.
    pub key: AgentKey,
    /// Its id for the world.
    pub id: Uuid,
    /// Its name.
    pub name: AgentName,
    /// Whether it is a person, which never changes.
    pub person: bool,
    /// The idempotency key of its request, where that has one. Verbs that create something heed it.
    pub once: Option<Once>,
}

impl Agent {
    /// The agent with the idempotency key of its request.
    pub fn under(self, once: Option<Once>) -> Self {
        Self { once, ..self }
    }
}

/// An idempotency key, and a hash of what it is used for: a repeat returns what the first call returned and changes nothing, anything
/// else under the same key is a `conflict`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Once {
    pub(crate) key: String,
    pub(crate) draft_hash: [u8; 32],
}

impl Once {
    /// A key for a verb and what is asked of it.
    ///
    /// # Errors
    /// `invalid` where the key is empty, too long, or not printable.
    pub fn new(key: String, verb: &str, asked: &impl Serialize) -> Result<Self, OfficeError> {
        amb_core::draft::check_idempotency_key(&key)?;
        // Objects are kept in the order of their keys, so equal requests give equal bytes.
        let text = serde_json::to_vec(&(verb, asked)).map_err(OfficeError::internal)?;
        Ok(Self { key, draft_hash: Sha256::digest(text).into() })
    }
}

/// The SHA-256 of an API key. The key itself is never stored.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct KeyHash(pub(crate) [u8; 32]);

impl KeyHash {
    /// Hashes a key as its owner presented it.
    pub fn of(key: &str) -> Self {
        Self(Sha256::digest(key.as_bytes()).into())
    }

    /// The hash as it is stored: 64 lower-case hex digits.
    pub fn to_hex(self) -> String {
        hex::encode(self.0)
    }
}

impl fmt::Debug for KeyHash {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // Not secret, but nothing that a log needs whole.
        write!(f, "KeyHash({}…)", hex::encode(&self.0[..4]))
    }
}

/// An agent about to be registered.
#[derive(Debug, Clone)]
pub struct NewAgent {
    /// Its name, checked for servers.
    pub name: AgentName,
    /// The hash of its key.
    pub key_hash: KeyHash,
    /// The first characters of its key, by which its owner recognises it.
    pub key_prefix: String,
    /// How to reach the owner.
    pub owner_contact: Option<String>,
    /// What it says about itself.
    pub card: Card,
    /// The household that it joins.
    pub join: Option<Join>,
}

/// The household that a new agent joins: the one of this token.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Join {
    /// The hash of the token that was shown.
    pub token: KeyHash,
    /// As its person, which takes the owner's token, and which a household has once.
    pub person: bool,
}

/// A key about to replace another.
#[derive(Debug, Clone)]
pub struct NewKey {
    /// Its hash.
    pub hash: KeyHash,
    /// Its first characters, by which its owner recognises it.
    pub prefix: String,
}

/// Makes a verification code. Called again when a code is taken.
pub type CodeMaker = Arc<dyn Fn() -> Result<String, OfficeError> + Send + Sync>;

/// A request for a connection.
#[derive(Clone)]
pub struct Ask {
    /// Who is asked.
    pub target: AgentName,
    /// What is said with it.
    pub intro: Option<String>,
    /// Where codes come from: [`random_code`] outside tests.
    pub codes: CodeMaker,
    /// Whether the code is withheld from the target's inbox and event, so that it must travel by a human channel.
    pub private_code: bool,
    /// When the request stops being approvable; `None` is never.
    pub expires_at: Option<Timestamp>,
    /// Most requests of the caller's that may wait at once; `None` is any number.
    pub max_pending: Option<u32>,
}

impl Ask {
    /// A request with random codes and without limits.
    pub fn new(target: AgentName, intro: Option<String>) -> Self {
        Self { target, intro, codes: Arc::new(random_code), private_code: false, expires_at: None, max_pending: None }
    }
}

impl fmt::Debug for Ask {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Ask").field("target", &self.target).finish_non_exhaustive()
    }
}

/// What a person decides about a connection in the name of an agent.
#[derive(Debug, Clone)]
pub enum ConnectionDecision {
    /// Asks for one.
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
        /// Which of these.
        change: ConnectionChange,
    },
}

/// A code such as `XC-992` from the system's randomness, each of the 676,000 as likely as any other.
pub fn random_code() -> Result<String, OfficeError> {
    const LETTERS: u32 = 26;
    const CODES: u32 = LETTERS * LETTERS * 1_000;
    // The largest multiple of CODES; what lies above it would favour the first codes.
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

/// A version of what an agent sees of its mail: the same version, the same mail.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ViewVersion(pub(crate) u64);

impl From<u64> for ViewVersion {
    /// For stores that count.
    fn from(count: u64) -> Self {
        Self(count)
    }
}

/// Something that was put into an agent's log.
#[derive(Debug, Clone, PartialEq)]
pub struct LogEntry {
    /// Whose log.
    pub agent: AgentKey,
    /// What, and at which cursor. The cursor is always a number.
    pub entry: Entry,
}

/// The answer of a verb that writes: durable when it is given.
#[derive(Debug, Clone, PartialEq)]
pub struct Written<T> {
    /// What the caller asked for.
    pub answer: T,
    /// What the verb put into logs, in the order of each log. Empty where it changed nothing, such as a repeated send.
    pub entries: Vec<LogEntry>,
}

impl<T> Written<T> {
    /// An answer that changed no log.
    pub fn quiet(answer: T) -> Self {
        Self { answer, entries: Vec::new() }
    }
}

impl<T> Written<Vec<T>> {
    /// Several results as one, with the log entries of all.
    pub(crate) fn gather(all: impl IntoIterator<Item = Written<T>>) -> Self {
        let mut gathered = Self::quiet(Vec::new());
        for one in all {
            gathered.answer.push(one.answer);
            gathered.entries.extend(one.entries);
        }
        gathered
    }
}

/// How a message that another office accepted goes on here: under the id that whoever carries it chose, with the ttl and
/// trace that it has, since the hop was paid for there.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Crossing {
    /// The id of the message here, and of its task, should it be one.
    pub id: Uuid,
    /// Hops left and hands passed through.
    pub hop: Hop,
}

/// A number in a log, of which none is negative.
pub(crate) fn log_number(number: i64) -> u64 {
    u64::try_from(number).unwrap_or(0)
}

/// The subject by which sessions are found: the same for `Plan` and ` plan`.
pub fn fold_subject(subject: &str) -> String {
    subject.trim().to_lowercase()
}

/// An instant as both databases store it: to the microsecond, and not before [`FIRST_TIME`]. Verbs round what they are given,
/// so that what they answer and what is read back later are the same.
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
    fn a_key_is_kept_as_the_hex_of_its_sha256() {
        let hex = KeyHash::of("abc").to_hex();
        assert_eq!(hex, "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad");
    }

    #[test]
    fn subjects_fold_case_and_outer_space() {
        assert_eq!(fold_subject(" Größe A "), fold_subject("größe a"));
        assert_ne!(fold_subject("a b"), fold_subject("ab"));
    }
}
