//! `mailbox_wait`: returns when there is something that the caller has not been shown, or before the client's own
//! timeout.

use std::sync::Arc;
use std::time::Duration;

use amb_core::doc::{Inbox, SessionSummary};
use amb_core::event::EventPage;
use amb_core::{AgentName, Code, Cursor, Event, OfficeError};
use rmcp::model::{JsonObject, Tool};
use serde::{Deserialize, Serialize};
use tokio::time::{Instant, timeout_at};

use super::check::{MORE_THREADS, is_fresh, show_requests, show_session};
use super::{CallContext, Effect, backoff};
use crate::answer::ToolAnswer;
use crate::arguments::{count, parse};
use crate::budget::{TextBudget, size};
use crate::inbox;
use crate::peer_messages::{PeerMessages, PeerMessagesShown};
use crate::peers::PeerNetwork;
use crate::schema::{answer, arguments, counting, flag, list, object, text, upto, whole};
use crate::show::{self, MAX_SESSIONS};
use crate::view::{MessageShown, RequestShown, UNTRUSTED, is_default, shown_id};

/// Clients abandon a call after 60 s; this leaves time for the result to arrive.
const MAX_SECONDS: u32 = 55;
const DEFAULT_SECONDS: u32 = 45;
/// The most events besides messages in one result; the oldest are left out.
const MAX_EVENTS: usize = 20;
/// How long a read of the mailbox may go on after the end of the wait.
const READ_GRACE: Duration = Duration::from_secs(1);
/// The least time for a call, also one that does not wait.
const MIN_TIME: Duration = Duration::from_secs(5);

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct WaitArguments {
    #[serde(default, deserialize_with = "count")]
    timeout_seconds: Option<u32>,
}

/// How long a call with these arguments waits.
pub(super) fn timeout(arguments: Option<&JsonObject>) -> Result<Duration, OfficeError> {
    let WaitArguments { timeout_seconds } = parse(arguments.cloned())?;
    let seconds = timeout_seconds.unwrap_or(DEFAULT_SECONDS);
    if seconds > MAX_SECONDS {
        return Err(OfficeError::invalid(format!(
            "timeout_seconds is at most {MAX_SECONDS}: clients give up after 60; call again to go on waiting"
        )));
    }
    Ok(Duration::from_secs(seconds.into()))
}

pub(super) fn tool() -> Tool {
    let message = object(&[("id", text()), ("session_id", text()), ("content", text())]);
    super::tool(
        "mailbox_wait",
        "Wait for mail. Answers at once with unread mail not shown before, else when some comes or time is up.",
        Effect::Reads,
        arguments(&[("timeout_seconds", upto(MAX_SECONDS, DEFAULT_SECONDS))]),
        answer(&[
            ("timed_out!", flag()),
            ("unread!", whole()),
            ("messages!", list(message)),
            ("more_sessions", counting("call again for these")),
        ]),
    )
}

#[derive(Serialize)]
struct Waited {
    #[serde(skip_serializing_if = "Option::is_none")]
    note: Option<&'static str>,
    timed_out: bool,
    /// Unread messages in the mailbox, shown or not.
    unread: u64,
    messages: Vec<MessageShown>,
    /// Sessions with unread messages that were not shown yet: the next call shows them.
    #[serde(skip_serializing_if = "is_default")]
    more_sessions: usize,
    pending_connections: Vec<RequestShown>,
    news: Vec<WaitEvent>,
    #[serde(flatten)]
    peer_messages: PeerMessagesShown,
}

/// An event that is not a message.
#[derive(Debug, Serialize)]
#[serde(tag = "type", rename_all = "snake_case")]
enum WaitEvent {
    ConnectionApproved { agent: AgentName },
    ConnectionChanged { agent: AgentName, status: &'static str },
    TaskOverdue { task_id: String },
}

impl WaitEvent {
    fn sentence(&self) -> String {
        match self {
            WaitEvent::ConnectionApproved { agent } => {
                format!("{agent} approved your request: you can write to it now.")
            }
            WaitEvent::ConnectionChanged { agent, status } => format!("Your connection with {agent} is now {status}."),
            WaitEvent::TaskOverdue { task_id } => format!("Task {task_id} is past its deadline."),
        }
    }
}

/// When a call that arrived at this time must return, whatever the office does: a read that runs at the end of the wait
/// gets [`READ_GRACE`], and a call that does not wait gets [`MIN_TIME`].
pub(super) fn latest(began: Instant, timeout: Duration) -> Instant {
    began + (timeout + READ_GRACE).max(MIN_TIME)
}

pub(super) async fn call(call: &CallContext, arguments: Option<JsonObject>) -> Result<ToolAnswer, OfficeError> {
    let timeout = timeout(arguments.as_ref())?;
    let (deadline, latest) = (call.began + timeout, latest(call.began, timeout));
    let waiting = call.seen.begin_wait();
    let mut news = Vec::new();
    let mut inbox = Inbox::default();
    let (mut has_read, mut last_error) = (false, None);
    let live = call.peers.as_deref().map(PeerNetwork::peer_messages);
    let mut backoff = backoff();
    loop {
        // An office that restarts is waited for like a message.
        let read = read_new(call, &mut inbox, &mut news);
        // The error of an earlier read is more specific than the timeout of the next one.
        let over = |_| Err(last_error.take().unwrap_or_else(office_timeout));
        match timeout_at(latest, read).await.unwrap_or_else(over) {
            Ok(()) => {
                has_read = true;
                backoff.reset();
            }
            Err(error) if error.is_transient() && Instant::now() < deadline => {
                let pause = error.wait().unwrap_or(backoff.pause());
                let wait = pause.min(deadline.saturating_duration_since(Instant::now()));
                last_error = Some(error);
                tokio::select! {
                    () = tokio::time::sleep(wait) => continue,
                    () = peer_message(live) => {}
                    () = call.cancelled.cancelled() => {}
                    () = call.closing.cancelled() => {}
                }
            }
            Err(error) => return Err(error),
        }
        let silent = live.is_none_or(|peer_messages| peer_messages.len() == 0);
        let nothing = inbox.sessions.iter().all(|session| session.recent_messages.is_empty())
            && inbox.pending_connections.is_empty()
            && news.is_empty();
        let left = deadline.saturating_duration_since(Instant::now());
        if !nothing || !silent || left.is_zero() || call.cancelled.is_cancelled() || call.closing.is_cancelled() {
            break;
        }
        // A change is only a hint to read again.
        let happened = tokio::select! {
            page = timeout_at(latest, call.office.events(call.seen.cursor(), left)) => match page {
                Ok(Ok(page)) if page.events.is_empty() && Instant::now() >= deadline => break,
                Ok(page) => page.map(drop),
                Err(_) => Err(office_timeout()),
            },
            () = peer_message(live) => Ok(()),
            () = call.cancelled.cancelled() => Ok(()),
            () = call.closing.cancelled() => Ok(()),
        };
        match happened {
            Err(error) if error.is_transient() && Instant::now() < deadline => {
                tokio::time::sleep(backoff.pause().min(left)).await;
            }
            happened => happened?,
        }
    }
    drop(waiting);
    if call.cancelled.is_cancelled() || call.closing.is_cancelled() {
        // The call was cancelled: nobody sees this result, so nothing counts as shown.
        inbox = Inbox::default();
    } else if !has_read && live.is_none_or(|peer_messages| peer_messages.len() == 0) {
        return Err(last_error.unwrap_or_else(office_timeout));
    }
    show_news(call, inbox, news)
}

/// The error for an office that did not respond in time.
pub(crate) fn office_timeout() -> OfficeError {
    OfficeError::unavailable("the office did not answer in time")
}

/// Waits for a message of a live peer; for ever where there are none.
async fn peer_message(peer_messages: Option<&Arc<PeerMessages>>) {
    match peer_messages {
        Some(peer_messages) => peer_messages.arrived().await,
        None => std::future::pending().await,
    }
}

/// Reads what the caller has not been shown. The cursor is taken before the inbox is read, so that nothing is missed
/// between the two.
async fn read_new(call: &CallContext, found: &mut Inbox, news: &mut Vec<WaitEvent>) -> Result<(), OfficeError> {
    let (more, cursor) = events_since_last_wait(call).await?;
    let mut now = inbox::all_pages(&*call.office, true).await?;
    let me = call.office.me();
    for session in &mut now.sessions {
        session.recent_messages.retain(|message| is_fresh(message, me, &call.seen));
    }
    if now.sessions.iter().any(|session| !session.recent_messages.is_empty()) && call.office.is_paused().await? {
        // A paused agent's messages are held back.
        now.sessions.iter_mut().for_each(|session| session.recent_messages.clear());
    }
    now.pending_connections.retain(|request| !call.seen.was_shown(request.connection_id.as_str()));
    // Only now is it certain that the events will be returned.
    call.seen.set_cursor(Some(cursor));
    news.extend(more);
    let excess = news.len().saturating_sub(MAX_EVENTS);
    news.drain(..excess);
    *found = now;
    Ok(())
}

/// The events besides messages since the last wait, and the end of the log. Messages are left to the inbox, which knows
/// what has been read meanwhile.
async fn events_since_last_wait(call: &CallContext) -> Result<(Vec<WaitEvent>, Cursor), OfficeError> {
    let mut news = Vec::new();
    let mut cursor = call.seen.cursor();
    loop {
        let EventPage { events, cursor: next } = match call.office.events(cursor.clone(), Duration::ZERO).await {
            // The office no longer has this cursor; start again at the end of the log.
            Err(error) if cursor.is_some() && matches!(error.code(), Code::Invalid | Code::Gone | Code::NotFound) => {
                call.office.events(None, Duration::ZERO).await?
            }
            page => page?,
        };
        if events.is_empty() {
            return Ok((news, next));
        }
        news.extend(events.into_iter().filter_map(|entry| wait_event(entry.event)));
        cursor = Some(next);
    }
}

fn wait_event(event: Event) -> Option<WaitEvent> {
    match event {
        Event::ConnectionApproved { connected_agent, .. } => Some(WaitEvent::ConnectionApproved { agent: connected_agent }),
        Event::ConnectionChanged { agent, status, .. } => {
            Some(WaitEvent::ConnectionChanged { agent, status: status.as_str() })
        }
        Event::TaskOverdue { task } => Some(WaitEvent::TaskOverdue { task_id: shown_id(&task.id) }),
        // The household's members are seen where they matter: in the list of agents, and in the error of a refused
        // send.
        Event::NewMessage(_)
        | Event::ConnectionRequest { .. }
        | Event::Receipt { .. }
        | Event::HouseholdChanged { .. }
        // A person's change to a task comes as a message too, and an ended conversation refuses the next send with who
        // ended it.
        | Event::SteppedIn(_)
        | Event::Unknown => None,
    }
}

/// Builds a result of what fits, and remembers that it was shown.
fn show_news(call: &CallContext, mut inbox: Inbox, news: Vec<WaitEvent>) -> Result<ToolAnswer, OfficeError> {
    let me = call.office.me();
    let unread = inbox.unread();
    let mut budget = TextBudget::new();
    let peer_messages = call.take_peer_messages(&mut budget);
    let requests = show_requests(&inbox, call, false, &mut budget);
    // Sessions with something new come first.
    inbox.sessions.sort_by_key(|session| session.recent_messages.is_empty());
    let fresh = inbox.sessions.iter().filter(|session| !session.recent_messages.is_empty()).count();
    let mut messages = Vec::new();
    let mut threads = 0;
    for session in inbox.sessions.iter_mut().take(fresh.min(MAX_SESSIONS)) {
        let frame = size(&(&session.session_id, &session.subject, &session.other_agent_name, &session.group));
        let shown = previews(session, me);
        if !budget.try_spend(frame + shown.iter().map(size).sum::<usize>()) {
            break;
        }
        threads += 1;
        // Of two calls at the same time only one shows it.
        messages.extend(if show_session(session, call) { shown } else { previews(session, me) });
    }
    let left = fresh - threads;
    let pending_connections: Vec<_> = inbox.pending_connections.iter().take(requests).map(RequestShown::of).collect();
    let mail = !messages.is_empty() || !pending_connections.is_empty();
    let mut text = String::new();
    for item in &news {
        text.push_str(&item.sentence());
        text.push('\n');
    }
    text.push_str(&peer_messages.text());
    if mail {
        let shown = show::InboxExcerpt { skip: 0, threads, requests, left, hint: "call mailbox_wait again" };
        text.push_str(&show::inbox(&inbox, me, &shown));
    }
    let timed_out = text.is_empty();
    if timed_out {
        match unread {
            0 => text.push_str("Nothing new."),
            _ => text.push_str(&format!(
                "Nothing new. {unread} unread: mailbox_check lists their threads, mailbox_read reads them."
            )),
        }
        text.push_str(" Call mailbox_wait again to go on waiting.\n");
    }
    if inbox.next.is_some() {
        text.push_str(MORE_THREADS);
    }
    let waited = Waited {
        note: (mail || !peer_messages.messages.is_empty()).then_some(UNTRUSTED),
        timed_out,
        unread,
        messages,
        more_sessions: left,
        pending_connections,
        news,
        peer_messages: peer_messages.shown(),
    };
    ToolAnswer::new(text, &waited)
}

fn previews(session: &SessionSummary, me: &AgentName) -> Vec<MessageShown> {
    let shown = |message| MessageShown::preview(message, me).within(&session.session_id, &session.subject);
    session.recent_messages.iter().rev().map(shown).collect()
}
