//! The activity of a client, on which waking it depends.

use std::time::Duration;

use amb_core::Timestamp;
use amb_wake::CodexQueue;
use jiff::SignedDuration;
use parking_lot::Mutex;
use rmcp::model::JsonObject;
use tokio::sync::Notify;

/// The request metadata in which Codex names the thread of a call.
const CODEX_TURN: &str = "x-codex-turn-metadata";
/// How long after a ring the client's calls count as its effect, unless its user is known to have given a prompt since.
const WOKEN_FOR: SignedDuration = SignedDuration::from_mins(30);

/// The activity of one client.
#[derive(Debug, Default)]
pub(crate) struct Activity {
    state: Mutex<ActivityState>,
    hints: Notify,
}

#[derive(Debug, Default, Clone)]
struct ActivityState {
    called_at: Option<Timestamp>,
    codex_thread: Option<String>,
    /// When the turn of the last call began, where the client reports it.
    turn_began: Option<Timestamp>,
    ring: LastRing,
    user_turn_at: Option<Timestamp>,
}

/// The last ring.
#[derive(Debug, Default, Clone, Copy)]
pub(crate) struct LastRing {
    at: Option<Timestamp>,
    /// When the first turn after it began: the one that it started.
    turn: Option<Timestamp>,
}

impl Activity {
    /// Records a tool call; the newest thread is the one that the client is in. `turn_began` is asked where the call's
    /// metadata does not tell when the turn began.
    pub(crate) fn record_call(&self, meta: &JsonObject, turn_began: impl FnOnce() -> Option<Timestamp>) {
        let now = Timestamp::now();
        let mut state = self.state.lock();
        state.called_at = Some(now);
        if let Some(thread) = thread_of(meta) {
            state.codex_thread = Some(thread);
        }
        // Evaluated only after a ring, when it matters.
        let began = if state.was_rung(now) { turn_of(meta).or_else(turn_began) } else { None };
        state.turn_began = began;
        if state.ring.turn.is_none() && began > state.ring.at {
            state.ring.turn = began;
        }
    }

    /// Hints that messages may have been shown or read, or that a wait began or ended.
    pub(crate) fn hint(&self) {
        self.hints.notify_one();
    }

    /// Waits for a hint.
    pub(crate) async fn hinted(&self) {
        self.hints.notified().await;
    }

    pub(crate) fn called_at(&self) -> Option<Timestamp> {
        self.state.lock().called_at
    }

    pub(crate) fn codex_thread(&self) -> Option<String> {
        self.state.lock().codex_thread.clone()
    }

    /// Records a ring that is about to be made; returns the one before it.
    pub(crate) fn record_ring(&self, at: Timestamp) -> LastRing {
        std::mem::replace(&mut self.state.lock().ring, LastRing { at: Some(at), turn: None })
    }

    /// Restores the previous ring after one that failed.
    pub(crate) fn ring_failed(&self, before: LastRing) {
        self.state.lock().ring = before;
    }

    pub(crate) fn set_user_turn(&self, at: Option<Timestamp>) {
        self.state.lock().user_turn_at = at;
    }

    /// Whether the client's current calls follow from a ring rather than from its user: it is in the turn that the ring
    /// started, or in one that was running then. Where the client does not report when its turns begin: all calls
    /// within [`WOKEN_FOR`].
    pub(crate) fn is_woken(&self, now: Timestamp) -> bool {
        let state = self.state.lock();
        let is_of_ring = state.turn_began.is_none_or(|began| Some(began) <= state.ring.turn.max(state.ring.at));
        state.was_rung(now) && state.user_turn_at < state.ring.at && is_of_ring
    }

    /// How long ago the last ring was made.
    pub(crate) fn since_ring(&self, now: Timestamp) -> Duration {
        let rung = self.state.lock().ring.at.unwrap_or(now);
        Duration::try_from(now.duration_since(rung)).unwrap_or_default()
    }
}

impl ActivityState {
    fn was_rung(&self, now: Timestamp) -> bool {
        self.ring.at.is_some_and(|rung| now < rung + WOKEN_FOR)
    }
}

/// When the turn began, from a request's metadata.
fn turn_of(meta: &JsonObject) -> Option<Timestamp> {
    Timestamp::from_millisecond(meta.get(CODEX_TURN)?["turn_started_at_unix_ms"].as_i64()?).ok()
}

/// The thread in a request's metadata, if it may be passed to a command.
fn thread_of(meta: &JsonObject) -> Option<String> {
    let turn = meta.get(CODEX_TURN)?;
    let id = turn["thread_id"].as_str().or_else(|| turn["session_id"].as_str())?;
    CodexQueue::is_thread(id).then(|| id.to_owned())
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn meta(turn: serde_json::Value) -> JsonObject {
        [(CODEX_TURN.to_owned(), turn)].into_iter().collect()
    }

    #[test]
    fn the_newest_thread_is_remembered() {
        let activity = Activity::default();
        for thread in ["thread-one", "thread-two", "--remote=ws://evil"] {
            activity.record_call(&meta(json!({"thread_id": thread})), || None);
        }
        activity.record_call(&JsonObject::new(), || None);
        assert_eq!(activity.codex_thread().as_deref(), Some("thread-two"));
    }

    #[test]
    fn a_client_that_reports_no_turns_counts_as_woken_until_its_user_gives_a_prompt() {
        let (activity, now) = (Activity::default(), Timestamp::now());
        assert!(!activity.is_woken(now));
        let before = activity.record_ring(now);
        activity.record_call(&JsonObject::new(), || None);
        assert!(activity.is_woken(now) && !activity.is_woken(now + WOKEN_FOR));
        activity.set_user_turn(Some(now + SignedDuration::from_secs(1)));
        assert!(!activity.is_woken(now));
        activity.set_user_turn(None);
        activity.ring_failed(before);
        assert!(!activity.is_woken(now), "a failed ring wakes nobody");
    }

    #[test]
    fn the_turn_after_the_one_that_a_ring_began_is_the_users_own() {
        let (activity, now) = (Activity::default(), Timestamp::now());
        let at = |seconds: i64| now + SignedDuration::from_secs(seconds);
        let in_turn = |seconds: i64, of_codex: bool| match of_codex {
            true => {
                activity.record_call(&meta(json!({"turn_started_at_unix_ms": at(seconds).as_millisecond()})), || None)
            }
            false => activity.record_call(&JsonObject::new(), || Some(at(seconds))),
        };
        for of_codex in [true, false] {
            activity.record_ring(now);
            in_turn(-5, of_codex);
            assert!(activity.is_woken(now), "rung in the middle of a turn");
            for _ in 0..2 {
                in_turn(1, of_codex);
                assert!(activity.is_woken(now), "the turn that the ring began");
            }
            in_turn(60, of_codex);
            assert!(!activity.is_woken(now), "the user's own");
        }
    }
}
