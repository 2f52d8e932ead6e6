//! `mailbox_check`: the mailbox at a glance. Marks nothing as read.

use amb_core::doc::{Inbox, SessionSummary};
use amb_core::{AgentName, OfficeError, SessionId, Timestamp};
use rmcp::model::{JsonObject, Tool};
use serde::{Deserialize, Serialize};

use super::{Desk, Effect};
use crate::answer::Answer;
use crate::arguments::parse;
use crate::schema::{answer, arguments, flag, list, object, text, whole};
use crate::seen::Seen;
use crate::show::{self, MOST_REQUESTS, MOST_SESSIONS};
use crate::view::{MessageShown, RequestShown, UNTRUSTED, line};
use crate::words::{self, WordShown};

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Arguments {
    #[serde(default)]
    unread_only: Option<bool>,
}

pub(super) fn tool() -> Tool {
    let message = object(&[("id!", text()), ("sender_name!", text()), ("content!", text()), ("truncated", flag())]);
    let session = object(&[
        ("session_id!", text()),
        ("subject!", text()),
        ("other_agent_name!", text()),
        ("unread_count!", whole()),
        ("recent_messages!", list(message)),
    ]);
    let request = object(&[("from_agent_name!", text()), ("message", text()), ("verification_code", text())]);
    super::tool(
        "mailbox_check",
        "Look at your mailbox: threads, previews of unread mail, connection requests. Marks nothing as read.",
        Effect::Reads,
        arguments(&[("unread_only", flag())]),
        answer(&[("unread!", whole()), ("sessions!", list(session)), ("pending_connections!", list(request))]),
    )
}

#[derive(Serialize)]
struct Checked {
    unread: u64,
    sessions: Vec<SessionShown>,
    #[serde(skip_serializing_if = "is_zero")]
    more_sessions: usize,
    pending_connections: Vec<RequestShown>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    peer_messages: Vec<WordShown>,
    #[serde(skip_serializing_if = "Option::is_none")]
    note: Option<&'static str>,
}

#[derive(Serialize)]
struct SessionShown {
    session_id: SessionId,
    subject: String,
    other_agent_name: AgentName,
    unread_count: u64,
    last_message_at: Timestamp,
    recent_messages: Vec<MessageShown>,
}

fn is_zero(count: &usize) -> bool {
    *count == 0
}

pub(super) async fn call(desk: &Desk, arguments: Option<JsonObject>) -> Result<Answer, OfficeError> {
    let Arguments { unread_only } = parse(arguments)?;
    let mut inbox = desk.office.inbox(unread_only.unwrap_or(false)).await?;
    let unread = inbox.unread();
    let me = desk.office.me();
    // Threads with unread mail come first, so that those are the ones shown.
    inbox.sessions.sort_by_key(|session| session.unread_count == 0);
    let more_sessions = inbox.sessions.len().saturating_sub(MOST_SESSIONS);
    for session in inbox.sessions.iter_mut().take(MOST_SESSIONS) {
        keep_fresh(session, me, &desk.seen);
    }
    for request in inbox.pending_connections.iter().take(MOST_REQUESTS) {
        desk.seen.first_time(request.connection_id.as_str());
    }
    let words = desk.words();
    let text = words::block(&words) + &show::inbox(&inbox, me);
    let sessions: Vec<_> = inbox.sessions.iter().take(MOST_SESSIONS).map(SessionShown::of).collect();
    let pending_connections: Vec<_> =
        inbox.pending_connections.iter().take(MOST_REQUESTS).map(RequestShown::of).collect();
    let peer_messages: Vec<_> = words.iter().map(WordShown::from).collect();
    let theirs = !sessions.is_empty() || !pending_connections.is_empty() || !peer_messages.is_empty();
    let note = theirs.then_some(UNTRUSTED);
    Answer::new(text, &Checked { unread, sessions, more_sessions, pending_connections, peer_messages, note })
}

impl SessionShown {
    fn of(session: &SessionSummary) -> Self {
        Self {
            session_id: session.session_id.clone(),
            subject: line(&session.subject),
            other_agent_name: session.other_agent_name.clone(),
            unread_count: session.unread_count,
            last_message_at: session.last_message_at,
            recent_messages: session.recent_messages.iter().map(MessageShown::preview).collect(),
        }
    }
}

/// Keeps the messages that the caller has neither read nor been shown, and remembers that they are shown now.
pub(super) fn keep_fresh(session: &mut SessionSummary, me: &AgentName, seen: &Seen) {
    session
        .recent_messages
        .retain(|message| message.sender_name != *me && !message.is_read && seen.first_time(message.id.as_str()));
}

/// Whether there is anything in it that the caller has not been shown.
pub(super) fn take_fresh(inbox: &mut Inbox, me: &AgentName, seen: &Seen) -> bool {
    for session in &mut inbox.sessions {
        keep_fresh(session, me, seen);
    }
    inbox.sessions.retain(|session| !session.recent_messages.is_empty());
    inbox.pending_connections.retain(|request| seen.first_time(request.connection_id.as_str()));
    !inbox.sessions.is_empty() || !inbox.pending_connections.is_empty()
}
