//! `GET /dashboard/events`: Server-Sent Events for an open page.
//!
//! Two kinds: `mail`, an entry of the person's own log, whose number is the event's id, which a browser sends when it
//! reconnects, so that it misses none; and `changed`, a hint that something changed in the household, at most a few
//! times a second. The page then fetches itself again.

use std::convert::Infallible;
use std::time::Duration;

use amb_core::{AgentName, Code, Entry, Event, OfficeError, Timestamp};
use amb_store::{Agent, AgentKey, HouseholdKey, KeyHash};
use axum::body::{Body, Bytes};
use axum::extract::State;
use axum::http::{HeaderMap, HeaderValue, header};
use axum::response::Response;
use serde_json::json;
use tokio::sync::mpsc;
use tokio::time::{Instant, sleep, timeout_at};

use super::frame::{PageError, add_headers};
use super::html::line;
use super::session::Visitor;
use super::watch::WatcherGuard;
use crate::app::App;
use crate::hub::SubscriberGuard;

/// How long changes are collected before a hint is sent.
const DEBOUNCE: Duration = Duration::from_millis(250);
/// Interval of heartbeats, and of reading the household's members again.
const HEARTBEAT: Duration = Duration::from_secs(15);
/// Entries of the person's log read at once.
const PAGE: usize = 50;
/// Frames queued for the browser; while the queue is full the stream waits.
const QUEUE: usize = 16;

pub(super) async fn events(
    State(app): State<App>,
    visitor: Visitor,
    headers: HeaderMap,
) -> Result<Response, PageError> {
    let agent = visitor.viewer.agent.clone();
    let head = app.store.event_head(agent.key).await?;
    let last_id = headers.get("last-event-id").and_then(|id| id.to_str().ok()).and_then(|id| id.parse::<u64>().ok());
    let since = match last_id {
        Some(id) => app.resume(&agent, id).await?,
        None => head,
    };
    let (sender, receiver) = mpsc::channel::<Bytes>(QUEUE);
    let (key, browser, household) = (visitor.key, visitor.browser(), visitor.viewer.household);
    let stream = PageStream { app: app.clone(), agent, key, browser, household, sender };
    app.tasks.spawn(stream.run(since));
    let frames = futures_util::stream::unfold(receiver, |mut receiver| async move {
        receiver.recv().await.map(|frame| (Ok::<_, Infallible>(frame), receiver))
    });
    let mut response = Response::new(Body::from_stream(frames));
    add_headers(&mut response);
    response.headers_mut().insert(header::CONTENT_TYPE, HeaderValue::from_static("text/event-stream; charset=utf-8"));
    // Keeps nginx from buffering the events.
    response.headers_mut().insert("x-accel-buffering", HeaderValue::from_static("no"));
    Ok(response)
}

struct PageStream {
    app: App,
    agent: Agent,
    key: KeyHash,
    browser: KeyHash,
    household: Option<HouseholdKey>,
    sender: mpsc::Sender<Bytes>,
}

/// The connection is closed, or must be.
struct Closed;

impl PageStream {
    /// Runs until the browser disconnects or is signed out, the office closes, or the key ends.
    async fn run(self, since: u64) {
        let closing = self.app.closing.clone();
        let sender = self.sender.clone();
        tokio::select! {
            _ = self.serve(since) => {}
            () = sender.closed() => {}
            // The browser reconnects by itself.
            () = closing.cancelled() => {}
        }
    }

    async fn serve(&self, mut cursor: u64) -> Result<(), Closed> {
        let app = &self.app;
        let guards = (app.hub.subscribe(self.agent.key, self.key, app.config.ws_per_agent), app.watchers.watch());
        let (Some(SubscriberGuard { subscriber, .. }), Some(WatcherGuard { watcher, .. })) = &guards else {
            return self.send("event: full\ndata: too many pages are open\n\n".to_owned()).await;
        };
        watcher.set_members(self.members().await.map_err(|_| Closed)?);
        // The current id, so that a browser that reconnects before the first event sends it.
        self.send(format!("retry: 1000\nid: {cursor}\nevent: hello\ndata: {cursor}\n\n")).await?;
        subscriber.set_cursor(cursor);
        let mut heartbeat = Instant::now() + HEARTBEAT;
        loop {
            cursor = self.send_mail(cursor).await?;
            subscriber.set_cursor(cursor);
            let hint = async {
                tokio::select! {
                    () = subscriber.notified() => {}
                    () = watcher.notified() => {}
                }
            };
            let hinted = timeout_at(heartbeat, hint).await.is_ok();
            if subscriber.is_evicted() {
                return self.send("event: bye\ndata: the key ended\n\n".to_owned()).await;
            }
            if hinted {
                sleep(DEBOUNCE).await;
            }
            // Before anything is sent: the browser may have been signed out at another page, or at another replica.
            if app.store.browser(self.browser, Timestamp::now()).await.map_err(|_| Closed)?.is_none() {
                return self.send("event: bye\ndata: this browser is signed out\n\n".to_owned()).await;
            }
            if !hinted {
                heartbeat = Instant::now() + HEARTBEAT;
                if let Ok(members) = self.members().await {
                    watcher.set_members(members);
                }
                self.send(": still here\n\n".to_owned()).await?;
            }
            let changed = watcher.take();
            if !changed.is_empty() {
                self.send(format!("event: changed\ndata: {changed}\n\n")).await?;
            }
        }
    }

    async fn members(&self) -> Result<Vec<(AgentKey, AgentName)>, OfficeError> {
        let members = match self.household {
            Some(household) => self.app.store.members(household, Timestamp::now()).await?,
            None => Vec::new(),
        };
        Ok(members.into_iter().map(|member| (member.key, member.name)).collect())
    }

    /// Sends the entries of the person's log after the cursor. Returns the new cursor.
    async fn send_mail(&self, mut cursor: u64) -> Result<u64, Closed> {
        loop {
            let entries = match self.app.store.events(self.agent.key, cursor, PAGE).await {
                Ok(entries) => entries,
                // The browser reconnects with its last id.
                Err(error) if error.code() == Code::Unavailable => return Err(Closed),
                Err(error) => {
                    tracing::warn!(%error, "reading the log for a dashboard page failed");
                    return Err(Closed);
                }
            };
            let more = entries.len() == PAGE;
            for entry in entries {
                cursor = entry.cursor.as_number().unwrap_or(cursor);
                self.send(frame(cursor, &entry)).await?;
            }
            if !more {
                return Ok(cursor);
            }
        }
    }

    async fn send(&self, frame: String) -> Result<(), Closed> {
        self.sender.send(Bytes::from(frame)).await.map_err(|_| Closed)
    }
}

/// Formats a log entry as an event: mail with the text of a notification, anything else as a hint.
fn frame(cursor: u64, entry: &Entry) -> String {
    match &entry.event {
        Event::NewMessage(mail) => {
            let note = json!({
                "title": format!("{} writes", mail.from_agent),
                "text": line(&mail.content, 140),
                "href": format!("/dashboard/conversations/{}#m-{}", mail.session_id, mail.message_id),
            });
            format!("id: {cursor}\nevent: mail\ndata: {note}\n\n")
        }
        _ => format!("id: {cursor}\nevent: changed\ndata: log\n\n"),
    }
}
