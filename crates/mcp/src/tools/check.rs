//! `mailbox_check`: an overview of the mailbox. Marks nothing as read.

use amb_core::doc::{Inbox, MessageView, PendingConnection, SessionSummary};
use amb_core::{AgentName, OfficeError, Timestamp};
use rmcp::model::{JsonObject, Tool};
use serde::{Deserialize, Serialize};

use super::{CallContext, Effect};
use crate::answer::ToolAnswer;
use crate::arguments::{count, parse};
use crate::budget::{TextBudget, size};
use crate::client_memory::ClientMemory;
use crate::inbox;
use crate::peer_messages::PeerMessagesShown;
use crate::schema::{answer, arguments, counting, list, object, off, text, whole};
use crate::show::{self, MAX_REQUESTS, MAX_SESSIONS};
use crate::view::{MessageShown, RequestShown, UNTRUSTED, is_default, line, shown_id};

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct CheckArguments {
    unread_only: Option<bool>,
    #[serde(default, deserialize_with = "count")]
    skip: Option<u32>,
}

pub(super) fn tool() -> Tool {
    let session = object(&[("session_id", text()), ("unread_count", whole())]);
    super::tool(
        "mailbox_check",
        "Look at your mailbox: threads, previews of unread mail, connection requests. Marks nothing as read.",
        Effect::Reads,
        arguments(&[("unread_only", off()), ("skip", counting("threads to pass over"))]),
        answer(&[("unread!", whole()), ("sessions!", list(session)), ("next_skip", counting("skip for the rest"))]),
    )
}

#[derive(Serialize)]
struct Checked {
    #[serde(skip_serializing_if = "Option::is_none")]
    note: Option<&'static str>,
    unread: u64,
    sessions: Vec<SessionShown>,
    #[serde(skip_serializing_if = "is_default")]
    more_sessions: usize,
    /// The `skip` for the next page.
    #[serde(skip_serializing_if = "Option::is_none")]
    next_skip: Option<usize>,
    pending_connections: Vec<RequestShown>,
    #[serde(skip_serializing_if = "is_default")]
    more_connections: usize,
    #[serde(flatten)]
    peer_messages: PeerMessagesShown,
}

#[derive(Serialize)]
struct SessionShown {
    session_id: String,
    subject: String,
    other_agent_name: AgentName,
    #[serde(skip_serializing_if = "Option::is_none")]
    group: Option<String>,
    unread_count: u64,
    last_message_at: Timestamp,
    /// Oldest first, as in the text.
    recent_messages: Vec<MessageShown>,
}

pub(super) async fn call(call: &CallContext, arguments: Option<JsonObject>) -> Result<ToolAnswer, OfficeError> {
    let CheckArguments { unread_only, skip } = parse(arguments)?;
    let mut inbox = inbox::all_pages(&*call.office, unread_only.unwrap_or(false)).await?;
    let unread = inbox.unread();
    let me = call.office.me();
    let mut budget = TextBudget::new();
    let peer_messages = call.take_peer_messages(&mut budget);
    let requests = show_requests(&inbox, call, true, &mut budget);
    // Sessions with unread messages come first, so that those are the ones shown.
    inbox.sessions.sort_by_key(|session| session.unread_count == 0);
    let skip = inbox.sessions.len().min(skip.unwrap_or(0) as usize);
    let mut sessions = Vec::new();
    for session in inbox.sessions.iter_mut().skip(skip).take(MAX_SESSIONS) {
        session.recent_messages.retain(|message| is_fresh(message, me, &call.seen));
        let shown = SessionShown::of(session, me);
        if !budget.try_spend(size(&shown)) {
            break;
        }
        // Of two calls at the same time only one shows it.
        let mine = show_session(session, call);
        sessions.push(if mine { shown } else { SessionShown::of(session, me) });
    }
    let next_skip = skip + sessions.len();
    let left = inbox.sessions.len() - next_skip;
    let hint = format!("call mailbox_check with skip={next_skip}");
    let shown = show::InboxExcerpt { skip, threads: sessions.len(), requests, left, hint: &hint };
    let mut text = peer_messages.text() + &show::inbox(&inbox, me, &shown);
    if inbox.next.is_some() {
        text.push_str(MORE_THREADS);
    }
    let pending_connections: Vec<_> = inbox.pending_connections.iter().take(requests).map(RequestShown::of).collect();
    let theirs = !sessions.is_empty() || !pending_connections.is_empty() || !peer_messages.messages.is_empty();
    let checked = Checked {
        note: theirs.then_some(UNTRUSTED),
        unread,
        sessions,
        more_sessions: left,
        next_skip: (left > 0).then_some(next_skip),
        more_connections: inbox.pending_connections.len() - pending_connections.len(),
        pending_connections,
        peer_messages: peer_messages.shown(),
    };
    ToolAnswer::new(text, &checked)
}

/// Added where there are more pages than are read.
pub(super) const MORE_THREADS: &str = "There are more threads behind these, not counted: read or answer some first.\n";

impl SessionShown {
    fn of(session: &SessionSummary, me: &AgentName) -> Self {
        Self {
            session_id: shown_id(&session.session_id),
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

/// Whether the caller has neither read nor been shown this message.
pub(super) fn is_fresh(message: &MessageView, me: &AgentName, seen: &ClientMemory) -> bool {
    message.sender_name != *me && !message.is_read && !seen.was_shown(message.id.as_str())
}

/// Records that the messages of this session are shown now; removes those that another call has shown, and returns
/// whether there were none.
pub(super) fn show_session(session: &mut SessionSummary, call: &CallContext) -> bool {
    let before = session.recent_messages.len();
    session.recent_messages.retain(|message| call.seen.mark_shown(message.id.as_str()));
    for message in session.recent_messages.iter().rev() {
        call.seen.work.shown(message, &session.session_id);
    }
    session.recent_messages.len() == before
}

/// Returns how many requests are shown, and records that; with `again`, includes those shown before.
pub(super) fn show_requests(inbox: &Inbox, call: &CallContext, again: bool, budget: &mut TextBudget) -> usize {
    let mut fits = |request: &&PendingConnection| budget.try_spend(size(&RequestShown::of(request)));
    let shown = inbox.pending_connections.iter().take(MAX_REQUESTS).take_while(|request| fits(request));
    shown.filter(|request| call.seen.mark_shown(request.connection_id.as_str()) || again).count()
}
