//! The bridge's main loop: claim messages, run their turns, several at once, and wait for more.

mod health;
mod taking;

use std::sync::Arc;
use std::time::Duration;

use amb_core::doc::Connection as Request;
use amb_core::event::Event;
use amb_core::mailbox::Mailbox;
use amb_core::{Code, Cursor, Message, MessageId, OfficeError, SessionId, Timestamp};
use parking_lot::{Mutex, MutexGuard};
use tokio::task::{JoinError, JoinSet};
use tokio::time::{Instant, sleep, sleep_until};

use crate::error::{BridgeError, Stop, is_permanent};
use crate::ledger::Ledger;
use crate::options::{BridgeOptions, Conversations};
use crate::queue::{HeldMessage, MessageQueue};
use crate::requests::RequestSchedule;
use crate::runtime::{FailureKind, Runtime, TurnError};
use crate::status::{BridgeStatus, RuntimeState};

/// How long one read of the log waits. A new entry ends the wait at once.
const LOG_WAIT: Duration = Duration::from_secs(25);
/// The first delay before claiming a message that the log announced is retried; it doubles up to five times.
const ANNOUNCED_RETRY: Duration = Duration::from_millis(50);
const MAX_ANNOUNCED_RETRIES: u32 = 8;
/// The most announced messages that are retried like this.
const MAX_ANNOUNCED: usize = 1_000;
/// How often the bridge checks for dead letters that somebody wants retried.
const REVIVED_POLL: Duration = Duration::from_millis(500);
/// How soon connection requests are offered again to a conversation that was busy.
const BUSY_RETRY: Duration = Duration::from_secs(1);
/// The most messages that one call releases.
const MAX_RELEASED: usize = 100;
/// The interval of the agent's heartbeats.
const HEARTBEAT: Duration = Duration::from_secs(10);

/// One agent's bridge to one runtime.
pub struct Bridge {
    shared: Arc<BridgeContext>,
    queue: MessageQueue,
    turns: JoinSet<EndedTurn>,
    /// Turns that ended and are not processed yet.
    ended: Vec<EndedTurn>,
    cursor: Option<Cursor>,
    announced: Announced,
    /// Whether the ledger entries of an earlier process have been resumed.
    is_resumed: bool,
    /// Set while the runtime is down: no turn starts before this time, and the runtime is checked first.
    paused: Option<Instant>,
    /// Consecutive failures of the runtime itself.
    outages: u32,
    requests: RequestSchedule,
    /// The last warning about the runtime, while it is down.
    warned: Option<String>,
    /// Whether the runtime was reported as ready since it was last down.
    ready_reported: bool,
}

/// What the loop shares with the running turns.
pub(crate) struct BridgeContext {
    pub(crate) office: Arc<dyn Mailbox>,
    pub(crate) runtime: Arc<dyn Runtime>,
    pub(crate) ledger: Ledger,
    pub(crate) options: BridgeOptions,
    status: Mutex<BridgeStatus>,
}

/// Messages that the log announced and that could not be claimed yet: their sender holds them until the send is
/// complete.
#[derive(Debug, Default)]
struct Announced {
    ids: Vec<MessageId>,
    /// Failed attempts to claim them.
    retries: u32,
}

impl Announced {
    /// The delay before the next attempt; `None` where nothing was announced.
    fn next_retry(&self) -> Option<Duration> {
        (!self.ids.is_empty()).then(|| ANNOUNCED_RETRY.saturating_mul(1 << self.retries.min(5)))
    }

    /// Counts an attempt that found nothing. After [`MAX_ANNOUNCED_RETRIES`] of them another consumer has the messages.
    fn missed(&mut self) {
        self.retries += 1;
        if self.retries > MAX_ANNOUNCED_RETRIES {
            *self = Self::default();
        }
    }
}

enum TurnSubject {
    Mail(Box<HeldMessage>),
    Requests(Vec<Request>),
}

struct EndedTurn {
    work: TurnSubject,
    conversation: String,
    stop: Option<Stop>,
}

impl Bridge {
    /// Creates a bridge; [`run`](Self::run) starts it.
    pub fn new(office: Arc<dyn Mailbox>, runtime: Arc<dyn Runtime>, ledger: Ledger, options: BridgeOptions) -> Self {
        let status = Mutex::new(BridgeStatus::new(office.me().clone(), office.describe(), runtime.describe()));
        let queue = MessageQueue::new(options.hold_session);
        Self {
            shared: Arc::new(BridgeContext { office, runtime, ledger, options, status }),
            queue,
            turns: JoinSet::new(),
            ended: Vec::new(),
            cursor: None,
            announced: Announced::default(),
            is_resumed: false,
            // Checked before the first turn.
            paused: Some(Instant::now()),
            outages: 0,
            requests: RequestSchedule::default(),
            warned: None,
            ready_reported: false,
        }
    }

    /// Runs until `shutdown` resolves; then releases its claims and sets the agent offline.
    ///
    /// # Errors
    /// Where the office rejects the agent's key, or the ledger cannot be written. Failures that may pass (an
    /// unreachable office, a runtime that is down) are retried.
    pub async fn run(mut self, shutdown: impl Future<Output = ()>) -> Result<(), OfficeError> {
        let heartbeat = tokio::spawn(heartbeats(Arc::clone(&self.shared.office)));
        let ended = tokio::select! {
            ended = self.work() => ended,
            () = shutdown => Ok(()),
        };
        heartbeat.abort();
        self.release_all_claims().await;
        if let Err(error) = self.shared.office.leave().await {
            tracing::debug!(%error, "cannot mark the agent as offline");
        }
        ended
    }

    /// Releases all claims, so that another bridge, or the next process, gets the messages at once.
    async fn release_all_claims(&mut self) {
        self.turns.shutdown().await;
        let claimed = self.queue.drain_claimed();
        if let Err(error) = self.shared.release(&claimed).await {
            let count = claimed.len();
            tracing::warn!(count, %error, "cannot release claimed mail; it is released when the lease expires");
        }
        if let Err(error) = self.save_status() {
            tracing::warn!(%error, "cannot write the last status");
        }
    }

    async fn work(&mut self) -> Result<(), OfficeError> {
        if let Err(error) = self.shared.runtime.end_leftovers().await {
            tracing::error!(%error, "cannot kill processes that an earlier bridge has left running");
        }
        let mut failures = 0;
        loop {
            match self.round().await {
                Ok(()) => failures = 0,
                Err(BridgeError::Ledger(error)) => {
                    return Err(OfficeError::unavailable(format!("the bridge's ledger: {error}")).caused_by(error));
                }
                Err(BridgeError::Office(error)) if error.code() == Code::Unauthorized => return Err(error),
                Err(BridgeError::Office(error)) => {
                    failures += 1;
                    tracing::warn!(%error, failures, "the office is unavailable; retrying");
                    self.shared.note_error(&error.to_string());
                    sleep(error.wait().unwrap_or_default().max(self.shared.options.backoff.after(failures))).await;
                }
            }
        }
    }

    /// Processes turns that ended, starts those that can start, then waits for a reason to do so again.
    async fn round(&mut self) -> Result<(), BridgeError> {
        self.process_ended_turns().await?;
        if !self.is_resumed {
            self.resume().await?;
            self.is_resumed = true;
        }
        let since = match self.cursor.take() {
            Some(since) => since,
            None => {
                self.requests.check_soon();
                // The end of the log is read before messages are claimed, so that nothing is missed between claiming
                // and waiting.
                self.shared.office.events(None, Duration::ZERO).await?.cursor
            }
        };
        self.check_runtime().await?;
        self.report_requests().await?;
        while self.has_room()
            && let Some(held) = self.next_message().await?
        {
            self.begin(held);
        }
        match self.has_room() {
            true => self.announced.missed(),
            false => self.count_unread().await,
        }
        self.save_status()?;
        self.cursor = Some(self.wait(since).await?);
        Ok(())
    }

    fn has_room(&self) -> bool {
        self.paused.is_none() && self.turns.len() < self.shared.options.concurrency.max(1)
    }

    /// Waits for the log to grow, for a turn to end, for a retry to be due, or for a dead letter that somebody wants
    /// retried.
    async fn wait(&mut self, since: Cursor) -> Result<Cursor, BridgeError> {
        let latest = Instant::now() + LOG_WAIT;
        let next = match self.paused {
            Some(until) => Some(until),
            None if self.has_room() => {
                let look = self.announced.next_retry().map(|wait| Instant::now() + wait);
                self.queue.next_due().into_iter().chain(self.requests.due).chain(look).min()
            }
            None => None,
        };
        let until = next.map_or(latest, |next| next.min(latest));
        let office = Arc::clone(&self.shared.office);
        let mut events = office.events(Some(since.clone()), LOG_WAIT);
        loop {
            tokio::select! {
                page = &mut events => {
                    let page = page?;
                    let is_about_connections = |event: &Event| {
                        matches!(event, Event::ConnectionRequest { .. } | Event::ConnectionChanged { .. })
                    };
                    if page.events.iter().any(|entry| is_about_connections(&entry.event)) {
                        self.requests.check_soon();
                    }
                    self.announced.retries = 0;
                    self.announced.ids.extend(page.events.into_iter().filter_map(|entry| match entry.event {
                        Event::NewMessage(mail) => Some(mail.message_id),
                        _ => None,
                    }));
                    // Messages beyond the bound are found too, since a claim takes whatever there is.
                    self.announced.ids.truncate(MAX_ANNOUNCED);
                    return Ok(page.cursor);
                }
                Some(ended) = self.turns.join_next() => {
                    self.ended.push(turn_result(ended));
                    return Ok(since);
                }
                () = sleep_until(until.min(Instant::now() + REVIVED_POLL)) => {
                    let is_wanted = self.has_room() && !self.shared.ledger.revived()?.is_empty();
                    if Instant::now() >= until || is_wanted {
                        return Ok(since);
                    }
                }
            }
        }
    }

    fn begin(&mut self, held: HeldMessage) {
        self.queue.begin(&held.conversation, Some(&held));
        let shared = Arc::clone(&self.shared);
        self.turns.spawn(async move {
            let stop = shared.run_turn(&held).await.err();
            EndedTurn { conversation: held.conversation.clone(), work: TurnSubject::Mail(Box::new(held)), stop }
        });
    }

    /// Tells the runtime about new connection requests, where that is due.
    async fn report_requests(&mut self) -> Result<(), BridgeError> {
        let is_due = self.requests.due.is_some_and(|due| due <= Instant::now());
        if !is_due || !self.has_room() {
            return Ok(());
        }
        let (asking, new) = self.shared.requests().await?;
        self.requests.due = None;
        self.shared.status().requests = asking.into_iter().map(|request| request.agent_name).collect();
        if new.is_empty() {
            return Ok(());
        }
        let Some(conversation) = self.shared.options.requests.clone() else {
            for request in &new {
                tracing::warn!(from = %request.agent_name, "asks for a connection; `amb approve CODE` or `amb reject` answers");
            }
            return self.shared.mark_reported(&new);
        };
        if self.queue.is_busy(&conversation) {
            self.requests.check_after(BUSY_RETRY);
            return Ok(());
        }
        self.requests.reported_at = Some(Instant::now());
        self.queue.begin(&conversation, None);
        let (shared, failures) = (Arc::clone(&self.shared), self.requests.failures);
        self.turns.spawn(async move {
            let stop = shared.run_request_turn(&new, &conversation, failures).await.err().map(Stop::Pause);
            EndedTurn { work: TurnSubject::Requests(new), conversation, stop }
        });
        Ok(())
    }

    async fn process_ended_turns(&mut self) -> Result<(), BridgeError> {
        while let Some(ended) = self.turns.try_join_next() {
            self.ended.push(turn_result(ended));
        }
        let mut first_error = None;
        for ended in std::mem::take(&mut self.ended) {
            self.queue.end(&ended.conversation);
            let processed = match ended.work {
                TurnSubject::Mail(held) => self.mail_ended(*held, ended.stop).await,
                TurnSubject::Requests(asking) => self.requests_ended(&asking, ended.stop).await,
            };
            // After an error too, the rest must be processed, or their messages would stay claimed.
            if let Err(error) = processed {
                first_error.get_or_insert(error);
            }
        }
        first_error.map_or(Ok(()), Err)
    }

    async fn mail_ended(&mut self, held: HeldMessage, stop: Option<Stop>) -> Result<(), BridgeError> {
        if self.shared.status().connection == RuntimeState::Up {
            self.outages = 0;
        }
        match stop {
            None => Ok(()),
            Some(Stop::Later) => {
                let at = self.due(&self.shared.ledger.entry(&held.mail.id)?);
                self.queue.wait(at, held);
                Ok(())
            }
            Some(Stop::Pause(error)) => {
                self.queue.park(held);
                // Releases all: those kept would otherwise overtake those claimed anew.
                let claimed = self.queue.take_claimed();
                let released = self.release_held(claimed).await;
                self.pause(&error)?;
                released
            }
            Some(Stop::Broken(error)) => {
                // Kept for the next round: the claim may still be valid.
                self.queue.wait(Instant::now(), held);
                Err(error)
            }
        }
    }

    async fn requests_ended(&mut self, asking: &[Request], stop: Option<Stop>) -> Result<(), BridgeError> {
        let error = match stop {
            Some(Stop::Pause(error)) => error,
            _ => {
                self.requests.failures = 0;
                self.shared.note_up();
                return self.shared.mark_reported(asking);
            }
        };
        tracing::warn!(%error, "cannot report a connection request to the runtime");
        self.shared.note_error(&error.detail);
        if error.kind.is_general() {
            self.requests.check_soon();
            return self.pause(&error);
        }
        match self.requests.failed(&self.shared.options) {
            true => self.shared.mark_reported(asking),
            false => Ok(()),
        }
    }
}

impl BridgeContext {
    pub(crate) fn status(&self) -> MutexGuard<'_, BridgeStatus> {
        self.status.lock()
    }

    /// Pairs a message with the conversation that it belongs to.
    fn hold(&self, mail: Message, until: Option<Timestamp>) -> Result<HeldMessage, BridgeError> {
        let subject = mail.subject.as_deref().unwrap_or_default();
        let session = mail.session.clone().unwrap_or_else(|| SessionId::between(&mail.from, &mail.to, subject));
        let make = || match &self.options.conversations {
            Conversations::Session => session.to_string(),
            Conversations::Peer(prefix) => format!("{prefix}{}", mail.from),
            Conversations::One(key) => key.clone(),
        };
        let (conversation, is_later) = self.ledger.conversation(&session, &mail.id, make)?;
        Ok(HeldMessage { mail, until, session, conversation, is_later, holds_until: None })
    }

    /// Releases claims on messages that are not finished, for whoever claims them next.
    async fn release(&self, ids: &[MessageId]) -> Result<(), BridgeError> {
        for id in ids {
            let mut entry = self.ledger.entry(id)?;
            entry.claimed_until = None;
            self.ledger.write_unsynced(&entry)?;
        }
        for some in ids.chunks(MAX_RELEASED) {
            self.office.release(some).await?;
        }
        Ok(())
    }

    /// Runs the turn of one message and carries out its result.
    async fn run_turn(&self, held: &HeldMessage) -> Result<(), Stop> {
        match self.handle(held).await {
            // The office will always refuse this message: it must not block the others.
            Err(Stop::Broken(BridgeError::Office(error))) if is_permanent(&error) => {
                self.set_aside(&held.mail, FailureKind::Refused, error.to_string()).await
            }
            other => other,
        }
    }

    /// Records that the runtime would take a turn.
    fn note_ready(&self) {
        let mut status = self.status();
        if matches!(status.connection, RuntimeState::Down { .. }) {
            status.connection = RuntimeState::Unknown;
        }
        status.runtime = self.runtime.describe();
    }

    /// Records that the runtime took a turn.
    pub(crate) fn note_up(&self) {
        let mut status = self.status();
        status.connection = RuntimeState::Up;
        status.runtime = self.runtime.describe();
    }

    pub(crate) fn note_error(&self, error: &str) {
        self.status().last_error = Some(error.to_owned());
    }

    /// The error for a runtime that exceeded the turn's limit.
    pub(crate) fn turn_timeout_error(&self) -> TurnError {
        let longest = self.options.longest_turn();
        TurnError::new(
            FailureKind::Timeout,
            format!("the runtime said nothing for {longest:?}, longer than a turn may take"),
        )
    }
}

/// Returns the result of a turn's task. A panic there ends the bridge, as a crash would.
fn turn_result(ended: Result<EndedTurn, JoinError>) -> EndedTurn {
    match ended {
        Ok(ended) => ended,
        Err(error) => std::panic::resume_unwind(error.into_panic()),
    }
}

async fn heartbeats(office: Arc<dyn Mailbox>) {
    loop {
        if let Err(error) = office.heartbeat().await {
            tracing::debug!(%error, "heartbeat failed");
        }
        sleep(HEARTBEAT).await;
    }
}
