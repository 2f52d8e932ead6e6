//! `mailbox_wait`: answers when there is something the caller has not been shown, or before the client loses patience.

use std::sync::Arc;
use std::time::Duration;

use amb_core::doc::{Inbox, PendingConnection, SessionSummary};
use amb_core::event::{EventPage, NewMessage};
use amb_core::wire::inbox::InboxMessage;
use amb_core::{AgentName, Code, Cursor, Event, OfficeError, TaskId, Timestamp};
use rmcp::model::{JsonObject, Tool};
use serde::{Deserialize, Serialize};
use tokio::time::Instant;

use super::{Desk, Effect, check};
use crate::answer::Answer;
use crate::arguments::{count, parse};
use crate::peers::LivePeers;
use crate::schema::{answer, arguments, between, flag, list, object, text};
use crate::show;
use crate::view::{MessageShown, RequestShown, UNTRUSTED, message_of};
use crate::words::{self, WordShown, Words};

/// Clients give a call up after 60 s; this leaves room for the answer to travel.
const LONGEST: u32 = 55;
const USUAL: u32 = 45;

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Arguments {
    #[serde(default, deserialize_with = "count")]
    timeout_seconds: Option<u32>,
}

pub(super) fn tool() -> Tool {
    let message = object(&[
        ("id!", text()),
        ("session_id!", text()),
        ("subject!", text()),
        ("sender_name!", text()),
        ("content!", text()),
        ("truncated", flag()),
    ]);
    super::tool(
        "mailbox_wait",
        "Wait for mail. Answers at once with unread mail not shown before, else when some comes or time is up.",
        Effect::Reads,
        arguments(&[("timeout_seconds", between(0, LONGEST))]),
        answer(&[
            ("timed_out!", flag()),
            ("messages!", list(message)),
            ("pending_connections!", list(object(&[("from_agent_name!", text())]))),
            ("news!", list(object(&[("type!", text())]))),
            ("peer_messages", list(object(&[("from!", text()), ("body!", text())]))),
        ]),
    )
}

#[derive(Serialize)]
struct Waited {
    timed_out: bool,
    messages: Vec<MessageShown>,
    pending_connections: Vec<RequestShown>,
    news: Vec<News>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    peer_messages: Vec<WordShown>,
    #[serde(skip_serializing_if = "Option::is_none")]
    note: Option<&'static str>,
}

/// What happened that is not mail.
#[derive(Debug, Serialize)]
#[serde(tag = "type", rename_all = "snake_case")]
enum News {
    ConnectionApproved { agent: AgentName },
    ConnectionChanged { agent: AgentName, status: &'static str },
    TaskOverdue { task_id: TaskId },
}

impl News {
    fn sentence(&self) -> String {
        match self {
            News::ConnectionApproved { agent } => format!("{agent} approved your request: you can write to it now."),
            News::ConnectionChanged { agent, status } => format!("Your connection with {agent} is now {status}."),
            News::TaskOverdue { task_id } => format!("Task {task_id} is past its deadline."),
        }
    }
}

pub(super) async fn call(desk: &Desk, arguments: Option<JsonObject>) -> Result<Answer, OfficeError> {
    let Arguments { timeout_seconds } = parse(arguments)?;
    let seconds = timeout_seconds.unwrap_or(USUAL);
    if seconds > LONGEST {
        return Err(OfficeError::invalid(format!(
            "timeout_seconds is at most {LONGEST}: clients give up after 60; call again to go on waiting"
        )));
    }
    let deadline = Instant::now() + Duration::from_secs(seconds.into());
    let waiting = desk.seen.wait_begins();

    // The place in the log is taken before the inbox is looked at, so that nothing falls between the two.
    let (mut news, mut cursor) = since_last_time(desk).await?;
    let mut inbox = desk.office.inbox(true).await?;
    let me = desk.office.me();
    check::take_fresh(&mut inbox, me, &desk.seen);
    let live = desk.peers.as_deref().map(LivePeers::words);
    let silent = || live.is_none_or(|words| words.len() == 0);
    while inbox.sessions.is_empty() && inbox.pending_connections.is_empty() && news.is_empty() && silent() {
        let left = deadline.saturating_duration_since(Instant::now());
        if left.is_zero() {
            break;
        }
        let page = tokio::select! {
            page = desk.office.events(Some(cursor.clone()), left) => page?,
            () = spoken_to(live) => break,
            () = desk.over.cancelled() => break,
            () = desk.closing.cancelled() => break,
        };
        cursor = page.cursor;
        for entry in page.events {
            gather(desk, entry.event, &mut inbox, &mut news);
        }
    }
    desk.seen.set_cursor(Some(cursor));
    drop(waiting);
    told(me, &inbox, news, &desk.words())
}

/// A live peer says something; where there are none, never.
async fn spoken_to(words: Option<&Arc<Words>>) {
    match words {
        Some(words) => words.arrived().await,
        None => std::future::pending().await,
    }
}

/// What is not mail of that which happened since the last wait, and where the log ends now. Mail is left to the inbox,
/// which knows what has been read meanwhile.
async fn since_last_time(desk: &Desk) -> Result<(Vec<News>, Cursor), OfficeError> {
    let mut news = Vec::new();
    let mut cursor = desk.seen.cursor();
    loop {
        let EventPage { events, cursor: next } = match desk.office.events(cursor.clone(), Duration::ZERO).await {
            // The office has forgotten our place; its end will do.
            Err(error) if cursor.is_some() && matches!(error.code(), Code::Invalid | Code::Gone | Code::NotFound) => {
                desk.office.events(None, Duration::ZERO).await?
            }
            page => page?,
        };
        if events.is_empty() {
            return Ok((news, next));
        }
        news.extend(events.into_iter().filter_map(|entry| news_of(entry.event)));
        cursor = Some(next);
    }
}

fn news_of(event: Event) -> Option<News> {
    match event {
        Event::ConnectionApproved { connected_agent, .. } => Some(News::ConnectionApproved { agent: connected_agent }),
        Event::ConnectionChanged { agent, status, .. } => {
            Some(News::ConnectionChanged { agent, status: status.as_str() })
        }
        Event::TaskOverdue { task } => Some(News::TaskOverdue { task_id: task.id }),
        Event::NewMessage(_) | Event::ConnectionRequest { .. } | Event::Receipt { .. } => None,
    }
}

/// Puts an event where it belongs in the answer, unless the caller has been shown it.
fn gather(desk: &Desk, event: Event, inbox: &mut Inbox, news: &mut Vec<News>) {
    match event {
        Event::NewMessage(new) => {
            if new.from_agent != *desk.office.me() && desk.seen.first_time(new.message_id.as_str()) {
                add_mail(inbox, new);
            }
        }
        Event::ConnectionRequest { connection_id, from_agent, message, verification_code } => {
            if desk.seen.first_time(connection_id.as_str()) {
                inbox.pending_connections.push(PendingConnection {
                    connection_id,
                    from_agent_name: from_agent,
                    message,
                    verification_code,
                    created_at: Timestamp::now(),
                });
            }
        }
        other => news.extend(news_of(other)),
    }
}

fn add_mail(inbox: &mut Inbox, new: NewMessage) {
    let message = message_of(&new);
    match inbox.sessions.iter_mut().find(|session| session.session_id == new.session_id) {
        Some(session) => {
            session.unread_count += 1;
            // Newest first, as in every inbox.
            session.recent_messages.insert(0, message);
        }
        None => inbox.sessions.push(SessionSummary {
            session_id: new.session_id,
            subject: new.subject,
            other_agent_name: new.from_agent,
            unread_count: 1,
            last_message_at: new.created_at,
            recent_messages: vec![message],
            group: None,
        }),
    }
}

fn told(me: &AgentName, inbox: &Inbox, news: Vec<News>, words: &[InboxMessage]) -> Result<Answer, OfficeError> {
    let messages: Vec<_> = inbox
        .sessions
        .iter()
        .flat_map(|session| {
            let shown = |message| MessageShown::preview(message).within(&session.session_id, &session.subject);
            session.recent_messages.iter().rev().map(shown)
        })
        .collect();
    let pending_connections: Vec<_> = inbox.pending_connections.iter().map(RequestShown::of).collect();
    let mail = !messages.is_empty() || !pending_connections.is_empty();
    let mut text = String::new();
    for item in &news {
        text.push_str(&item.sentence());
        text.push('\n');
    }
    text.push_str(&words::block(words));
    if mail {
        text.push_str(&show::inbox(inbox, me));
    }
    let timed_out = text.is_empty();
    if timed_out {
        text.push_str("Nothing new. Call mailbox_wait again to go on waiting.");
    }
    let peer_messages: Vec<_> = words.iter().map(WordShown::from).collect();
    let note = (mail || !words.is_empty()).then_some(UNTRUSTED);
    Answer::new(text, &Waited { timed_out, messages, pending_connections, news, peer_messages, note })
}
