//! The errors of offices: one sentence that says what to do, with a stable code for programs.

use std::fmt;
use std::time::Duration;

use serde::{Deserialize, Serialize};

/// The kind of failure. Stable: scripts, clients and the HTTP contract rely on these words.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum Code {
    /// A field is missing, malformed or out of bounds.
    Invalid,
    /// No key, or an unknown one.
    Unauthorized,
    /// Authenticated, but not allowed.
    Forbidden,
    /// The key was replaced and is in its grace period; this needs the key that replaced it.
    OldKey,
    /// There is no active connection between the two agents.
    NotConnected,
    /// The recipient does not accept messages from this sender.
    NotAllowed,
    /// No such agent, session, message, task or code.
    NotFound,
    /// It exists already, or has changed meanwhile.
    Conflict,
    /// It existed and is no longer valid, such as an expired code.
    Gone,
    /// Larger than the office accepts.
    TooLarge,
    /// Too often; try again later.
    TooManyRequests,
    /// More mail would be stored than the sender, or the whole office, may have.
    OverQuota,
    /// ttl or trace forbids this hop.
    LoopRefused,
    /// The task cannot change to this state.
    IllegalMove,
    /// The office does not support this; the detail says what to use instead.
    Unsupported,
    /// The office cannot be reached or cannot write now; nothing was accepted, unless [`OfficeError::may_be_done`] says
    /// so.
    Unavailable,
    /// An internal error; the cause is in the log.
    Internal,
}

impl Code {
    /// The word on the wire.
    pub fn as_str(self) -> &'static str {
        match self {
            Code::Invalid => "invalid",
            Code::Unauthorized => "unauthorized",
            Code::Forbidden => "forbidden",
            Code::OldKey => "old_key",
            Code::NotConnected => "not_connected",
            Code::NotAllowed => "not_allowed",
            Code::NotFound => "not_found",
            Code::Conflict => "conflict",
            Code::Gone => "gone",
            Code::TooLarge => "too_large",
            Code::TooManyRequests => "too_many_requests",
            Code::OverQuota => "over_quota",
            Code::LoopRefused => "loop_refused",
            Code::IllegalMove => "illegal_move",
            Code::Unsupported => "unsupported",
            Code::Unavailable => "unavailable",
            Code::Internal => "internal",
        }
    }

    /// Whether the error is temporary: a repeat may succeed a while later.
    pub fn is_transient(self) -> bool {
        matches!(self, Code::Unavailable | Code::TooManyRequests)
    }

    /// Whether a repeat may succeed later although the caller changes nothing: the error is temporary, or ends once
    /// somebody repairs the office or renews a key. Bridges and mounts retry these; all other errors are final.
    pub fn may_succeed_later(self) -> bool {
        self.is_transient() || matches!(self, Code::Internal | Code::Unauthorized)
    }
}

impl fmt::Display for Code {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.as_str())
    }
}

/// A failure of a verb. `Display` is the detail, made for the caller; the cause, made for the log, is its source.
#[derive(Debug)]
pub struct OfficeError {
    code: Code,
    detail: String,
    retry_after: Option<Duration>,
    may_be_done: bool,
    source: Option<Box<dyn std::error::Error + Send + Sync>>,
}

impl OfficeError {
    /// A failure with its code and one sentence for the caller.
    pub fn new(code: Code, detail: impl Into<String>) -> Self {
        Self { code, detail: detail.into(), retry_after: None, may_be_done: false, source: None }
    }

    /// Keeps the cause for the log.
    pub fn caused_by(mut self, source: impl Into<Box<dyn std::error::Error + Send + Sync>>) -> Self {
        self.source = Some(source.into());
        self
    }

    /// See [`Code::is_transient`].
    pub fn is_transient(&self) -> bool {
        self.code.is_transient()
    }

    /// See [`Code::may_succeed_later`].
    pub fn may_succeed_later(&self) -> bool {
        self.code.may_succeed_later()
    }

    /// Sets when to try again.
    pub fn retry_after(mut self, wait: Duration) -> Self {
        self.retry_after = Some(wait);
        self
    }

    /// Marks that the verb may have been carried out all the same, because its response was lost.
    pub fn perhaps_done(mut self) -> Self {
        self.may_be_done = true;
        self
    }

    /// Bad input.
    pub fn invalid(detail: impl Into<String>) -> Self {
        Self::new(Code::Invalid, detail)
    }

    /// Nothing with that name or id.
    pub fn not_found(detail: impl Into<String>) -> Self {
        Self::new(Code::NotFound, detail)
    }

    /// Larger than the office accepts.
    pub fn too_large(detail: impl Into<String>) -> Self {
        Self::new(Code::TooLarge, detail)
    }

    /// Not supported by this office.
    pub fn unsupported(detail: impl Into<String>) -> Self {
        Self::new(Code::Unsupported, detail)
    }

    /// Unreachable now; nothing was accepted.
    pub fn unavailable(detail: impl Into<String>) -> Self {
        Self::new(Code::Unavailable, detail)
    }

    /// An internal error. The caller gets no details; the cause is for the log.
    pub fn internal(source: impl Into<Box<dyn std::error::Error + Send + Sync>>) -> Self {
        Self::new(Code::Internal, "the office failed inside; its log says how").caused_by(source)
    }

    /// The kind of failure.
    pub fn code(&self) -> Code {
        self.code
    }

    /// One sentence for the caller that says what to do.
    pub fn detail(&self) -> &str {
        &self.detail
    }

    /// Whether the verb may have been carried out although it failed; a repeat might do it twice.
    pub fn may_be_done(&self) -> bool {
        self.may_be_done
    }

    /// When to try again, if the office knows.
    pub fn wait(&self) -> Option<Duration> {
        self.retry_after
    }
}

/// Turns a `not_found` error into `None`.
pub fn if_found<T>(result: Result<T, OfficeError>) -> Result<Option<T>, OfficeError> {
    match result {
        Ok(found) => Ok(Some(found)),
        Err(error) if error.code() == Code::NotFound => Ok(None),
        Err(error) => Err(error),
    }
}

impl fmt::Display for OfficeError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.detail)
    }
}

impl std::error::Error for OfficeError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        self.source.as_deref().map(|source| source as &(dyn std::error::Error + 'static))
    }
}

impl From<crate::name::BadName> for OfficeError {
    fn from(bad: crate::name::BadName) -> Self {
        Self::invalid(bad.to_string())
    }
}

impl From<crate::id::BadId> for OfficeError {
    fn from(bad: crate::id::BadId) -> Self {
        Self::invalid(bad.to_string())
    }
}

impl From<crate::route::Refused> for OfficeError {
    fn from(refused: crate::route::Refused) -> Self {
        Self::new(Code::LoopRefused, refused.to_string())
    }
}

impl From<crate::task::IllegalMove> for OfficeError {
    fn from(illegal: crate::task::IllegalMove) -> Self {
        Self::new(Code::IllegalMove, illegal.to_string())
    }
}
