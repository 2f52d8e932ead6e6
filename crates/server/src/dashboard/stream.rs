//! `GET /dashboard/events`: Server-Sent Events for a page that is open.
//!
//! Two kinds: `mail`, an entry of the person's own log, whose number is the event's id, so that a browser that reconnects sends it
//! and misses none; and `changed`, a hint that something changed in the household, at most a few times a second. The page then
//! reads the office again.

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
use tokio::time::{Instant, sleep_until, timeout_at};

use super::frame::{PageError, guard};
use super::html::line;
use super::session::Visitor;
use crate::app::App;

/// How long changes are collected before a hint is sent.
const GATHER: Duration = Duration::from_millis(250);
/// Interval of heartbeats, and of reading the household's members again.
const BEAT: Duration = Duration::from_secs(15);
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
    let named = headers.get("last-event-id").and_then(|id| id.to_str().ok()).and_then(|id| id.parse::<u64>().ok());
    let since = match named {
        Some(named) => app.resume(&agent, named).await?,
        None => head,
    };
    let (to_browser, from_task) = mpsc::channel::<Bytes>(QUEUE);
    let (key, browser, household) = (visitor.key, visitor.browser(), visitor.viewer.household);
    let stream = PageStream { app: app.clone(), agent, key, browser, household, to_browser };
    app.tasks.spawn(stream.run(since));
    let frames = futures_util::stream::unfold(from_task, |mut from_task| async move {
        from_task.recv().await.map(|frame| (Ok::<_, Infallible>(frame), from_task))
    });
    let mut response = Response::new(Body::from_stream(frames));
    guard(&mut response);
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
    to_browser: mpsc::Sender<Bytes>,
}

/// The connection is closed, or must be.
struct Gone;

impl PageStream {
    /// Runs until the browser disconnects or is signed out, the office closes, or the key ends.
    async fn run(self, since: u64) {
        let closing = self.app.closing.clone();
        let browser = self.to_browser.clone();
        tokio::select! {
            _ = self.serve(since) => {}
            () = browser.closed() => {}
            // The browser reconnects by itself.
            () = closing.cancelled() => {}
        }
    }

    async fn serve(&self, mut cursor: u64) -> Result<(), Gone> {
        let app = &self.app;
        let Some(ticket) = app.hub.subscribe(self.agent.key, Some(self.key), app.config.ws_per_agent) else {
            return self.say("event: bye\ndata: too many pages are open\n\n".to_owned()).await;
        };
        let Some(place) = app.watchers.watch() else {
            return self.say("event: bye\ndata: too many pages are open\n\n".to_owned()).await;
        };
        place.watcher.set_members(self.members().await.map_err(|_| Gone)?);
        // The current id, so that a browser that reconnects before the first event sends it.
        self.say(format!("retry: 1000\nid: {cursor}\nevent: hello\ndata: {cursor}\n\n")).await?;
        ticket.subscriber.is_at(cursor);
        let mut beat = Instant::now() + BEAT;
        loop {
            cursor = self.mail_after(cursor).await?;
            ticket.subscriber.is_at(cursor);
            let woken = async {
                tokio::select! {
                    () = ticket.subscriber.woken() => {}
                    () = place.watcher.woken() => {}
                }
            };
            let woken = timeout_at(beat, woken).await.is_ok();
            if ticket.subscriber.is_evicted() {
                return self.say("event: bye\ndata: the key ended\n\n".to_owned()).await;
            }
            if woken {
                sleep_until(Instant::now() + GATHER).await;
            }
            // Before anything is sent: the browser may have been signed out at another page, or at another replica.
            if app.store.browser(self.browser, Timestamp::now()).await.map_err(|_| Gone)?.is_none() {
                return self.say("event: bye\ndata: this browser is signed out\n\n".to_owned()).await;
            }
            if !woken {
                beat = Instant::now() + BEAT;
                if let Ok(members) = self.members().await {
                    place.watcher.set_members(members);
                }
                self.say(": still here\n\n".to_owned()).await?;
            }
            let changed = place.watcher.take();
            if !changed.is_empty() {
                self.say(format!("event: changed\ndata: {changed}\n\n")).await?;
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

    /// Sends the entries of the person's log after the cursor; returns the new cursor.
    async fn mail_after(&self, mut cursor: u64) -> Result<u64, Gone> {
        loop {
            let entries = match self.app.store.events(self.agent.key, cursor, PAGE).await {
                Ok(entries) => entries,
                // The browser reconnects with its last id.
                Err(error) if error.code() == Code::Unavailable => return Err(Gone),
                Err(error) => {
                    tracing::warn!(%error, "a page's stream cannot read its log");
                    return Err(Gone);
                }
            };
            let more = entries.len() == PAGE;
            for entry in entries {
                cursor = entry.cursor.as_number().unwrap_or(cursor);
                self.say(frame(cursor, &entry)).await?;
            }
            if !more {
                return Ok(cursor);
            }
        }
    }

    async fn say(&self, frame: String) -> Result<(), Gone> {
        self.to_browser.send(Bytes::from(frame)).await.map_err(|_| Gone)
    }
}

/// An entry of the log as an event: mail with the text of a notification, anything else as a hint.
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
