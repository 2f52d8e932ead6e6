//! The state of wake-ups of an agent's client sessions, as the process that rings reports it to the office.
//!
//! A report has counts and words of a fixed set, never a sender's text, a path or a token. Only the agent and its
//! person see it.

use std::time::Duration;

use jiff::{SignedDuration, Timestamp};
use serde::{Deserialize, Deserializer, Serialize};

use crate::card::Status;
use crate::error::OfficeError;
use crate::limits::HEARTBEAT_TIMEOUT;

/// Maximum number of client sessions that an office keeps for one agent; the oldest report is dropped first.
pub const MAX_WAKE_SESSIONS: usize = 8;
/// A report that was not renewed for this long is dropped.
pub const WAKE_REPORT_KEPT: Duration = Duration::from_secs(24 * 60 * 60);
/// Maximum length of the name of a client, a door or a session.
pub const MAX_WAKE_WORD: usize = 40;
/// Maximum of each count in a report.
pub const MAX_WAKE_COUNT: u64 = 1_000_000_000;

/// The state of wake-ups of one client session.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "snake_case")]
pub enum WakeState {
    /// The client has a door and was not rung yet.
    Ready,
    /// A ring was delivered to its door; there is no sign of a reaction yet.
    Rung,
    /// The client called a tool after the ring.
    Heard,
    /// The client did not react to the ring within a minute.
    Unheard,
    /// The client holds the ring back until a person confirms.
    Held,
    /// The last ring failed.
    Failed,
    /// All attempts to ring were used up without a reaction.
    GivenUp,
    /// There is no way to ring this client.
    NoDoor,
    /// The session is over.
    Ended,
}

impl WakeState {
    /// All states.
    pub const ALL: [Self; 9] = [
        Self::Ready,
        Self::Rung,
        Self::Heard,
        Self::Unheard,
        Self::Held,
        Self::Failed,
        Self::GivenUp,
        Self::NoDoor,
        Self::Ended,
    ];

    /// As text, for people and for the database.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Ready => "ready",
            Self::Rung => "rung",
            Self::Heard => "heard",
            Self::Unheard => "unheard",
            Self::Held => "held",
            Self::Failed => "failed",
            Self::GivenUp => "given up",
            Self::NoDoor => "no door",
            Self::Ended => "ended",
        }
    }

    /// Parses the text of [`WakeState::as_str`].
    pub fn parse(text: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|state| state.as_str() == text)
    }

    /// Whether the client was rung, or should have been, and does not react.
    pub fn is_unresponsive(self) -> bool {
        matches!(self, Self::Unheard | Self::Held | Self::Failed | Self::GivenUp)
    }
}

/// Why a ring failed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "snake_case")]
pub enum WakeReason {
    /// The client has exited.
    ClientGone,
    /// The client refused the ring.
    Refused,
    /// The command or the socket that rings failed.
    DoorFailed,
}

impl WakeReason {
    const ALL: [Self; 3] = [Self::ClientGone, Self::Refused, Self::DoorFailed];

    /// As text, for people and for the database.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::ClientGone => "nobody is behind the door",
            Self::Refused => "the client turned the ring away",
            Self::DoorFailed => "the door did not take the ring",
        }
    }

    /// Parses the text of [`WakeReason::as_str`].
    pub fn parse(text: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|reason| reason.as_str() == text)
    }
}

/// A report about one client session.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct WakeReport {
    /// A hash of the client's id for the session.
    #[cfg_attr(feature = "openapi", schema(min_length = 1, max_length = 40, pattern = "^[A-Za-z0-9_-]+$"))]
    pub session: String,
    /// The client.
    #[cfg_attr(
        feature = "openapi",
        schema(min_length = 1, max_length = 40, pattern = "^[A-Za-z0-9_-]+$", example = "claude")
    )]
    pub client: String,
    /// The door by which it is rung, if known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[cfg_attr(
        feature = "openapi",
        schema(
            min_length = 1,
            max_length = 40,
            pattern = "^[A-Za-z0-9_-]+( [A-Za-z0-9_-]+)*$",
            example = "claude inbox socket"
        )
    )]
    pub door: Option<String>,
    /// Its state.
    pub state: WakeState,
    /// Why the last ring failed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<WakeReason>,
    /// Rings delivered since the reporting process started.
    #[serde(deserialize_with = "count")]
    #[cfg_attr(feature = "openapi", schema(minimum = 0, maximum = 1000000000))]
    pub rung: u64,
    /// Those of them that the client held back.
    #[serde(deserialize_with = "count")]
    #[cfg_attr(feature = "openapi", schema(minimum = 0, maximum = 1000000000))]
    pub held: u64,
    /// Rings that failed.
    #[serde(deserialize_with = "count")]
    #[cfg_attr(feature = "openapi", schema(minimum = 0, maximum = 1000000000))]
    pub failed: u64,
}

/// Deserializes a whole number, also one written as `3.0`, which JSON Schema accepts as an integer.
fn count<'de, D: Deserializer<'de>>(de: D) -> Result<u64, D::Error> {
    match f64::deserialize(de)? {
        // In these bounds the conversion is exact.
        number if number.fract() == 0.0 && (0.0..=MAX_WAKE_COUNT as f64).contains(&number) => Ok(number as u64),
        _ => Err(serde::de::Error::custom(format!("must be a whole number from 0 to {MAX_WAKE_COUNT}"))),
    }
}

impl WakeReport {
    /// Checks the words and counts.
    pub fn check(&self) -> Result<(), OfficeError> {
        let plain = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '_');
        let word = |text: &str| !text.is_empty() && text.chars().all(plain);
        for (field, text) in [("session", &self.session), ("client", &self.client)] {
            if !word(text) || text.len() > MAX_WAKE_WORD {
                let detail = format!("{field} is 1 to {MAX_WAKE_WORD} letters, digits, - and _");
                return Err(OfficeError::invalid(detail));
            }
        }
        if self.door.as_ref().is_some_and(|door| door.len() > MAX_WAKE_WORD || !door.split(' ').all(word)) {
            let detail = format!("door is {MAX_WAKE_WORD} characters at most: words of letters, digits, - and _");
            return Err(OfficeError::invalid(detail));
        }
        if [self.rung, self.held, self.failed].iter().any(|count| *count > MAX_WAKE_COUNT) {
            return Err(OfficeError::invalid(format!("rung, held and failed are {MAX_WAKE_COUNT} at most")));
        }
        Ok(())
    }
}

/// A stored report.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct WakeSession {
    /// What was reported.
    #[serde(flatten)]
    pub report: WakeReport,
    /// When its state last changed, by the office's clock.
    pub since: Timestamp,
    /// When it was last reported.
    pub reported_at: Timestamp,
    /// Whether it may be out of date: the agent's heartbeats have stopped.
    pub stale: bool,
}

impl WakeSession {
    /// Whether a report of an agent with this presence may be out of date. The report itself counts as a heartbeat.
    pub fn is_stale(reported_at: Timestamp, presence: Status, now: Timestamp) -> bool {
        let timeout = SignedDuration::try_from(HEARTBEAT_TIMEOUT).unwrap_or_default();
        presence == Status::Offline && now.duration_since(reported_at) > timeout
    }
}

/// The document of `GET /agents/me/wake`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct WakeSessions {
    /// At most eight, ordered by their last report, newest first.
    pub sessions: Vec<WakeSession>,
}

/// Returns the session because of which an agent is not woken: the last reported one that is alive and has a door, if
/// it does not react.
pub fn unresponsive(sessions: &[WakeSession]) -> Option<&WakeSession> {
    let alive = |session: &&WakeSession| {
        !session.stale && !matches!(session.report.state, WakeState::Ended | WakeState::NoDoor)
    };
    let last = sessions.iter().filter(alive).max_by_key(|session| session.reported_at)?;
    last.report.state.is_unresponsive().then_some(last)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn report() -> WakeReport {
        WakeReport {
            session: "0f".repeat(16),
            client: "claude".into(),
            door: Some("claude inbox socket".into()),
            state: WakeState::Ready,
            reason: None,
            rung: 0,
            held: 0,
            failed: 0,
        }
    }

    #[test]
    fn a_report_has_plain_words_and_nothing_else() {
        assert!(report().check().is_ok());
        assert!(WakeReport { door: None, ..report() }.check().is_ok());
        let bad =
            ["", "/run/user/1000/x.sock", "a\0b", "two\nlines", "<b>", &"x".repeat(41), "a  b", " a", "sk.secret"];
        for text in bad {
            assert!(WakeReport { client: text.into(), ..report() }.check().is_err(), "{text:?}");
            assert!(WakeReport { session: text.into(), ..report() }.check().is_err(), "{text:?}");
            assert!(WakeReport { door: Some(text.into()), ..report() }.check().is_err(), "{text:?}");
        }
        assert!(WakeReport { rung: u64::MAX, ..report() }.check().is_err());
        assert!(WakeReport { failed: MAX_WAKE_COUNT + 1, ..report() }.check().is_err());
    }

    #[test]
    fn states_and_reasons_parse_back() {
        for state in WakeState::ALL {
            assert_eq!(WakeState::parse(state.as_str()), Some(state));
        }
        for reason in WakeReason::ALL {
            assert_eq!(WakeReason::parse(reason.as_str()), Some(reason));
        }
        assert_eq!((WakeState::parse("asleep"), WakeReason::parse("no")), (None, None));
    }

    #[test]
    fn the_session_that_was_reported_last_decides_whether_an_agent_is_woken() {
        let session = |second: i64, state: WakeState, stale: bool| {
            let at = Timestamp::from_second(second).unwrap();
            WakeSession { report: WakeReport { state, ..report() }, since: at, reported_at: at, stale }
        };
        use WakeState::{Ended, Failed, GivenUp, Heard, Held, NoDoor, Ready, Rung, Unheard};
        for state in [Failed, GivenUp, Held, Unheard] {
            assert!(unresponsive(&[session(1, state, false)]).is_some());
            assert!(unresponsive(&[session(1, state, true)]).is_none(), "out of date");
            assert!(unresponsive(&[session(1, Heard, false), session(2, state, false)]).is_some());
            assert!(
                unresponsive(&[session(2, Rung, false), session(1, state, false)]).is_none(),
                "another one is rung"
            );
            for other in [Ended, NoDoor] {
                assert!(unresponsive(&[session(2, other, false), session(1, state, false)]).is_some(), "{other:?}");
            }
        }
        for state in [Ready, Rung, Heard, NoDoor, Ended] {
            assert!(unresponsive(&[session(1, state, false)]).is_none());
        }
        assert!(unresponsive(&[]).is_none());
    }
}
