//! The text of results. Text of other agents goes through [`amb_core::render`].

use amb_core::doc::{History, Inbox};
use amb_core::render::fence::attribute;
use amb_core::render::{InboxView, Nonce, render_conversation, render_inbox, render_transcript};
use amb_core::transcript::{Line, TranscriptKey};
use amb_core::{AgentName, MessageId};

use crate::peers::PeerListing;
use crate::tools::TaskShown;
use crate::view::PREVIEW_CHARS;

/// Sessions shown at once; the others are counted.
pub(crate) const MAX_SESSIONS: usize = 20;
/// Connection requests shown at once; the others are counted.
pub(crate) const MAX_REQUESTS: usize = 10;

/// How much of an inbox a result shows.
pub(crate) struct InboxExcerpt<'h> {
    /// Sessions that are skipped.
    pub(crate) skip: usize,
    pub(crate) threads: usize,
    pub(crate) requests: usize,
    /// Sessions that are left for another result.
    pub(crate) left: usize,
    /// How to see those.
    pub(crate) hint: &'h str,
}

pub(crate) fn inbox(inbox: &Inbox, me: &AgentName, shown: &InboxExcerpt<'_>) -> String {
    let view = InboxView {
        preview_chars: PREVIEW_CHARS,
        skip_threads: shown.skip,
        max_threads: shown.threads,
        max_requests: shown.requests,
        read_hint: "call mailbox_read with its id as session_id",
        threads_left: Some(shown.left),
        more_hint: shown.hint,
        approve_hint: "ask your user, who has the code from the other side, then call mailbox_approve with it",
    };
    render_inbox(inbox, me, &Nonce::fresh(), &view)
}

/// A session, with the number of characters that each message lacks.
pub(crate) fn conversation(history: &History, me: &AgentName, left: impl Fn(&MessageId) -> usize) -> String {
    render_conversation(history, me, &Nonce::fresh(), left)
}

pub(crate) fn transcript(key: &TranscriptKey, lines: &[Line], me: &AgentName) -> String {
    render_transcript(lines, me, &Nonce::fresh())
        .unwrap_or_else(|| format!("Nothing is recorded for {}.", attribute(key.as_str())))
}

/// The line before a list of peers.
pub(crate) const PEERS_HEAD: &str = "Descriptions are the peers' own words.\n";
/// The line before a list of tasks.
pub(crate) const TASKS_HEAD: &str = "Open tasks. Subjects and notes in quotes are the agents' own words.\n";

/// Quotes text whose tags are neutralised already. A second line could imitate the list, and a quote end the text.
fn quoted(text: &str) -> String {
    format!("\"{}\"", text.replace('"', "&quot;").replace(['\n', '\r'], "⏎"))
}

/// One line of a list of peers.
pub(crate) fn peer(peer: &PeerListing) -> String {
    let mut text = format!("- {}", peer.agent_id);
    if let Some(status) = &peer.status {
        text.push_str(&format!(" ({})", attribute(status)));
    }
    if !peer.reachable {
        text.push_str(", not reachable");
    }
    if !peer.description.is_empty() {
        text.push_str(&format!(": {}", quoted(&peer.description)));
    }
    text.push('\n');
    text
}

/// One line of a list of tasks.
pub(crate) fn task(me: &AgentName, task: &TaskShown) -> String {
    let side = if task.assignee == *me {
        format!("from {} to you", task.owner)
    } else {
        format!("yours, given to {}", task.assignee)
    };
    let mut text = format!("- {} [{}] {side}", task.id, task.state);
    if let Some(deadline) = task.deadline {
        text.push_str(&format!(", due {deadline}{}", if task.overdue { " (overdue)" } else { "" }));
    }
    if let Some(subject) = &task.subject {
        text.push_str(&format!(", {}", quoted(subject)));
    }
    if let Some(note) = &task.note {
        text.push_str(&format!(", note {}", quoted(note)));
    }
    if let Some(callback) = task.callback.as_ref().and_then(|callback| serde_json::to_string(callback).ok()) {
        text.push_str(&format!(", callback \"{}\"", attribute(&callback)));
    }
    if let Some(session) = &task.session_id {
        text.push_str(&format!(", session {}", session));
    }
    text.push('\n');
    text
}
