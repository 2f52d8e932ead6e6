//! Texts and colours of wake-up states.

use amb_core::wake::{WakeReason, WakeSession, WakeState};

/// What a state means, and what to do about it.
pub(super) fn advice(session: &WakeSession) -> &'static str {
    match session.report.state {
        WakeState::Ready => "can be rung",
        WakeState::Rung => "handed to its door, not answered yet",
        WakeState::Heard => "the client looked at its mail after the last ring",
        WakeState::Unheard => "rung, and nothing followed",
        WakeState::Held => "the client holds rings for review: look at its screen",
        WakeState::Failed => session.report.reason.map_or("the last ring failed", WakeReason::as_str),
        WakeState::GivenUp => session.report.reason.map_or("rung as often as it may be, in vain", WakeReason::as_str),
        WakeState::NoDoor => "nothing can ring this client: it sees mail when it looks",
        WakeState::Ended => "the session is over",
    }
}

/// The CSS class of a state.
pub(super) fn tone(session: &WakeSession) -> &'static str {
    match session.report.state {
        _ if session.stale => "",
        state if state.is_unresponsive() => "bad",
        WakeState::Heard | WakeState::Ready => "good",
        _ => "",
    }
}
