//! `mailbox_check`: the mailbox at a glance. Marks nothing as read.

use amb_core::doc::{Inbox, MessageView, SessionSummary};
use amb_core::{AgentName, OfficeError, SessionId, Timestamp};
use rmcp::model::{JsonObject, Tool};
use serde::{Deserialize, Serialize};

use super::{Desk, Effect};
use crate::answer::Answer;
use crate::arguments::{count, parse};
use crate::schema::{answer, arguments, flag, list, object, text, whole};
use crate::seen::Seen;
use crate::show::{self, MOST_REQUESTS, MOST_SESSIONS};
use crate::view::{ANSWER_CHARS, FRAME_CHARS, MessageShown, PREVIEW_CHARS, RequestShown, UNTRUSTED, line};
use crate::words::{self, WordShown};

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Arguments {
    #[serde(default)]
    unread_only: Option<bool>,
    #[serde(default, deserialize_with = "count")]
    skip: Option<u32>,
}

pub(super) fn tool() -> Tool {
    let session = object(&[("session_id!", text()), ("unread_count!", whole())]);
    super::tool(
        "mailbox_check",
        "Look at your mailbox: threads, previews of unread mail, connection requests. Marks nothing as read.",
        Effect::Reads,
        arguments(&[("unread_only", flag()), ("skip", whole())]),
        answer(&[("unread!", whole()), ("sessions!", list(session))]),
    )
}

#[derive(Serialize)]
struct Checked {
    #[serde(skip_serializing_if = "Option::is_none")]
    note: Option<&'static str>,
    unread: u64,
    sessions: Vec<SessionShown>,
    #[serde(skip_serializing_if = "is_zero")]
    more_sessions: usize,
    pending_connections: Vec<RequestShown>,
    #[serde(skip_serializing_if = "is_zero")]
    more_connections: usize,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    peer_messages: Vec<WordShown>,
    #[serde(skip_serializing_if = "Option::is_none")]
    peer_note: Option<&'static str>,
}

#[derive(Serialize)]
struct SessionShown {
    session_id: SessionId,
    subject: String,
    other_agent_name: AgentName,
    #[serde(skip_serializing_if = "Option::is_none")]
    group: Option<String>,
    unread_count: u64,
    last_message_at: Timestamp,
    /// Oldest first, as in the text.
    recent_messages: Vec<MessageShown>,
}

pub(super) fn is_zero(count: &usize) -> bool {
    *count == 0
}

pub(super) async fn call(desk: &Desk, arguments: Option<JsonObject>) -> Result<Answer, OfficeError> {
    let Arguments { unread_only, skip } = parse(arguments)?;
    let skip = skip.unwrap_or(0) as usize;
    let mut inbox = desk.office.inbox(unread_only.unwrap_or(false)).await?;
    let unread = inbox.unread();
    let words = desk.words();
    let me = desk.office.me();
    // Threads with unread mail come first, so that those are the ones shown.
    inbox.sessions.sort_by_key(|session| session.unread_count == 0);
    let mut budget = ANSWER_CHARS;
    let mut shown = 0;
    for session in inbox.sessions.iter_mut().skip(skip).take(MOST_SESSIONS) {
        session.recent_messages.retain(|message| is_fresh(message, me, &desk.seen));
        let Some(left) = budget.checked_sub(cost(session)).or((shown == 0).then_some(0)) else { break };
        budget = left;
        shown += 1;
        show_session(session, desk);
    }
    let requests = show_requests(&inbox, desk, true);
    let more = show::Shown { skip, threads: shown, requests, hint: "call mailbox_check with skip=" };
    let text = words::block(&words) + &show::inbox(&inbox, me, &more);
    let sessions: Vec<_> =
        inbox.sessions.iter().skip(skip).take(shown).map(|session| SessionShown::of(session, me)).collect();
    let pending_connections: Vec<_> = inbox.pending_connections.iter().take(requests).map(RequestShown::of).collect();
    let theirs = !sessions.is_empty() || !pending_connections.is_empty() || !words.is_empty();
    let checked = Checked {
        note: theirs.then_some(UNTRUSTED),
        unread,
        more_sessions: inbox.sessions.len().saturating_sub(skip + sessions.len()),
        sessions,
        more_connections: inbox.pending_connections.len() - pending_connections.len(),
        pending_connections,
        peer_note: words::note(&words),
        peer_messages: words.iter().map(WordShown::from).collect(),
    };
    Answer::new(text, &checked)
}

impl SessionShown {
    fn of(session: &SessionSummary, me: &AgentName) -> Self {
        Self {
            session_id: session.session_id.clone(),
            subject: line(&session.subject),
            other_agent_name: session.other_agent_name.clone(),
            group: session.group.as_deref().map(line),
            unread_count: session.unread_count,
            last_message_at: session.last_message_at,
            recent_messages: session
                .recent_messages
                .iter()
                .rev()
                .map(|message| MessageShown::preview(message, me))
                .collect(),
        }
    }
}

/// Whether the caller has neither read this nor been shown it.
pub(super) fn is_fresh(message: &MessageView, me: &AgentName, seen: &Seen) -> bool {
    message.sender_name != *me && !message.is_read && !seen.knows(message.id.as_str())
}

/// Characters that a thread takes in an answer.
pub(super) fn cost(session: &SessionSummary) -> usize {
    let previews =
        session.recent_messages.iter().map(|message| FRAME_CHARS + message.content.chars().take(PREVIEW_CHARS).count());
    FRAME_CHARS + previews.sum::<usize>()
}

/// Remembers that what is left of this thread is shown now.
pub(super) fn show_session(session: &mut SessionSummary, desk: &Desk) {
    // Of two calls at once one shows it.
    session.recent_messages.retain(|message| desk.seen.first_time(message.id.as_str()));
    for message in session.recent_messages.iter().rev() {
        desk.seen.work.shown(message, &session.session_id);
    }
}

/// How many requests are shown, which is remembered; of `again`, those that were shown before too.
pub(super) fn show_requests(inbox: &Inbox, desk: &Desk, again: bool) -> usize {
    let shown = inbox.pending_connections.iter().take(MOST_REQUESTS);
    shown.filter(|request| desk.seen.first_time(request.connection_id.as_str()) || again).count()
}
