//! What a client was seen to do, as far as waking it depends on that.

use std::sync::{Mutex, MutexGuard, PoisonError};

use amb_core::Timestamp;
use amb_wake::CodexQueue;
use jiff::SignedDuration;
use rmcp::model::JsonObject;
use tokio::sync::Notify;

/// Where Codex says in which thread a call was made.
const CODEX_TURN: &str = "x-codex-turn-metadata";
/// How long after a ring what the client does is taken for its effect, unless its user is known to have spoken since.
const WOKEN: SignedDuration = SignedDuration::from_mins(30);

/// The activity of one client.
#[derive(Debug, Default)]
pub(crate) struct Activity {
    state: Mutex<State>,
    changed: Notify,
}

#[derive(Debug, Default, Clone)]
struct State {
    called_at: Option<Timestamp>,
    codex_thread: Option<String>,
    rung_at: Option<Timestamp>,
    user_turn_at: Option<Timestamp>,
}

impl Activity {
    /// The client calls a tool. The newest thread is the one that it is in.
    pub(crate) fn called(&self, meta: &JsonObject) {
        let thread = thread_of(meta);
        let mut state = self.state();
        state.called_at = Some(Timestamp::now());
        if thread.is_some() {
            state.codex_thread = thread;
        }
    }

    /// A call was answered: mail may have been shown or read, and a wait may have ended.
    pub(crate) fn answered(&self) {
        self.changed.notify_one();
    }

    /// Waits until a call was answered.
    pub(crate) async fn changed(&self) {
        self.changed.notified().await;
    }

    pub(crate) fn called_at(&self) -> Option<Timestamp> {
        self.state().called_at
    }

    pub(crate) fn codex_thread(&self) -> Option<String> {
        self.state().codex_thread.clone()
    }

    /// Notes when the client was last rung; returns when it had been before.
    pub(crate) fn rung(&self, at: Option<Timestamp>) -> Option<Timestamp> {
        std::mem::replace(&mut self.state().rung_at, at)
    }

    pub(crate) fn user_spoke(&self, at: Option<Timestamp>) {
        self.state().user_turn_at = at;
    }

    /// Whether what the client does now follows from a ring rather than from its user.
    pub(crate) fn is_woken(&self, now: Timestamp) -> bool {
        let state = self.state();
        state.rung_at.is_some_and(|rung| now < rung + WOKEN) && state.user_turn_at < state.rung_at
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The thread in a request's metadata, where it has one that can be given to a command.
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
        activity.called(&meta(json!({"thread_id": "thread-one"})));
        activity.called(&meta(json!({"thread_id": "thread-two"})));
        activity.called(&meta(json!({"thread_id": "--remote=ws://evil"})));
        activity.called(&JsonObject::new());
        assert_eq!(activity.codex_thread().as_deref(), Some("thread-two"));
    }

    #[test]
    fn a_client_is_woken_until_its_user_speaks() {
        let (activity, now) = (Activity::default(), Timestamp::now());
        assert!(!activity.is_woken(now));
        activity.rung(Some(now));
        assert!(activity.is_woken(now) && !activity.is_woken(now + WOKEN));
        activity.user_spoke(Some(now + SignedDuration::from_secs(1)));
        assert!(!activity.is_woken(now));
    }
}
