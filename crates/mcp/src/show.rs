//! The readable half of every answer. Whatever others wrote goes through [`amb_core::render`].

use amb_core::AgentName;
use amb_core::doc::{History, Inbox};
use amb_core::render::fence::attribute;
use amb_core::render::{InboxView, Nonce, render_conversation, render_inbox, render_transcript};
use amb_core::transcript::{Line, TranscriptKey};

use crate::peers::Peer;
use crate::tools::TaskShown;
use crate::view::PREVIEW_CHARS;

/// Threads shown at once; the others are counted.
pub(crate) const MOST_SESSIONS: usize = 20;
/// Connection requests shown at once; the others are counted.
pub(crate) const MOST_REQUESTS: usize = 10;

pub(crate) fn inbox(inbox: &Inbox, me: &AgentName) -> String {
    let view = InboxView {
        preview_chars: PREVIEW_CHARS,
        max_threads: MOST_SESSIONS,
        max_requests: MOST_REQUESTS,
        read_hint: "call mailbox_read with its id as session_id",
        approve_hint: "ask your user, then call mailbox_approve with the code they give you",
    };
    render_inbox(inbox, me, &Nonce::fresh(), &view)
}

pub(crate) fn conversation(history: &History, me: &AgentName) -> String {
    render_conversation(history, me, &Nonce::fresh())
}

pub(crate) fn transcript(key: &TranscriptKey, lines: &[Line], me: &AgentName) -> String {
    render_transcript(lines, me, &Nonce::fresh())
        .unwrap_or_else(|| format!("Nothing is recorded for {}.", attribute(key.as_str())))
}

pub(crate) fn peers(peers: &[Peer]) -> String {
    if peers.is_empty() {
        return "No other agent is here.".into();
    }
    let mut text = String::from("Descriptions are the peers' own words.\n");
    for peer in peers {
        text.push_str(&format!("- {}", peer.agent_id));
        if let Some(status) = &peer.status {
            text.push_str(&format!(" ({})", attribute(status)));
        }
        if !peer.reachable {
            text.push_str(", not reachable");
        }
        if !peer.description.is_empty() {
            text.push_str(&format!(": \"{}\"", attribute(&peer.description)));
        }
        text.push('\n');
    }
    text
}

pub(crate) fn tasks(me: &AgentName, tasks: &[TaskShown]) -> String {
    if tasks.is_empty() {
        return "No open tasks.".into();
    }
    let mut text = String::from("Open tasks. Subjects and notes in quotes are the agents' own words.\n");
    for task in tasks {
        let side = if task.assignee == *me {
            format!("from {} to you", task.owner)
        } else {
            format!("yours, given to {}", task.assignee)
        };
        text.push_str(&format!("- {} [{}] {side}", attribute(task.id.as_str()), task.state));
        if let Some(deadline) = task.deadline {
            text.push_str(&format!(", due {deadline}{}", if task.overdue { " (overdue)" } else { "" }));
        }
        if let Some(subject) = &task.subject {
            text.push_str(&format!(", \"{}\"", attribute(subject)));
        }
        if let Some(note) = &task.note {
            text.push_str(&format!(", note \"{}\"", attribute(note)));
        }
        if let Some(session) = &task.session_id {
            text.push_str(&format!(", session {}", attribute(session.as_str())));
        }
        text.push('\n');
    }
    text
}
