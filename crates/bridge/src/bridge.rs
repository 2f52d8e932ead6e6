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

use crate::error::{BridgeError, Stop};
use crate::ledger::Ledger;
use crate::options::{BridgeOptions, Conversations};
use crate::queue::{HeldMessage, MessageQueue};
use crate::requests::Requests;
use crate::runtime::{Runtime, Trouble, TurnError};
use crate::status::{BridgeStatus, RuntimeState};

/// How long one read of the log waits. A new entry ends the wait at once.
const WAIT: Duration = Duration::from_secs(25);
/// The first delay before a message that the log announced is claimed again; it doubles up to [`MAX_LOOKS`] times.
const LOOK_FOR_ANNOUNCED: Duration = Duration::from_millis(50);
const MAX_LOOKS: u32 = 8;
/// The most announced messages that are retried like this.
const MAX_ANNOUNCED: usize = 1_000;
/// How often the bridge looks for dead letters that somebody wants retried.
const LOOK: Duration = Duration::from_millis(500);
/// How soon connection requests are offered again to a conversation that was busy.
const BUSY: Duration = Duration::from_secs(1);
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
    /// Whether the ledger entries of an earlier process have been taken up.
    is_resumed: bool,
    /// Until when no turn is started because the runtime is down; then it is checked first.
    paused: Option<Instant>,
    /// Consecutive failures of the runtime itself.
    outages: u32,
    requests: Requests,
    /// The last warning about the runtime, while it is down.
    warned: Option<String>,
    /// Whether the runtime was reported as ready since it was last down.
    is_announced: bool,
}

/// What the loop shares with the running turns.
pub(crate) struct BridgeContext {
    pub(crate) office: Arc<dyn Mailbox>,
    pub(crate) runtime: Arc<dyn Runtime>,
    pub(crate) ledger: Ledger,
    pub(crate) options: BridgeOptions,
    status: Mutex<BridgeStatus>,
}

/// Messages that the log announced and that could not be claimed yet, because their sender still holds them for a moment.
#[derive(Debug, Default)]
struct Announced {
    ids: Vec<MessageId>,
    /// How often claiming them failed.
    looks: u32,
}

impl Announced {
    /// The delay before the next attempt; `None` where nothing was announced.
    fn next_look(&self) -> Option<Duration> {
        (!self.ids.is_empty()).then(|| LOOK_FOR_ANNOUNCED.saturating_mul(1 << self.looks.min(5)))
    }

    /// Counts an attempt that found nothing. After [`MAX_LOOKS`] of them somebody else has handled the messages.
    fn missed(&mut self) {
        self.looks += 1;
        if self.looks > MAX_LOOKS {
            *self = Self::default();
        }
    }
}

/// What a turn was for.
enum TurnSubject {
    Mail(Box<HeldMessage>),
    Requests(Vec<Request>),
}

/// A turn that ended.
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
            requests: Requests::default(),
            warned: None,
            is_announced: false,
        }
    }

    /// Runs until `shutdown` resolves; then releases its claims and sets the agent offline.
    ///
    /// # Errors
    /// Where the office rejects the agent's key, or the ledger cannot be written. Failures that may pass (an unreachable office,
    /// a runtime that is down) are retried.
    pub async fn run(mut self, shutdown: impl Future<Output = ()>) -> Result<(), OfficeError> {
        let beating = tokio::spawn(heartbeats(Arc::clone(&self.shared.office)));
        let ended = tokio::select! {
            ended = self.work() => ended,
            () = shutdown => Ok(()),
        };
        beating.abort();
        self.let_go().await;
        if let Err(error) = self.shared.office.leave().await {
            tracing::debug!(%error, "no goodbye");
        }
        ended
    }

    /// Releases all claims, so that another bridge, or the next process, gets the messages at once.
    async fn let_go(&mut self) {
        self.turns.shutdown().await;
        let claimed = self.queue.drain_claimed();
        if let Err(error) = self.shared.give_back(&claimed).await {
            let count = claimed.len();
            tracing::warn!(count, %error, "cannot give claimed mail back; it comes back when the lease ends");
        }
        if let Err(error) = self.save_status() {
            tracing::warn!(%error, "the last status is not written");
        }
    }

    async fn work(&mut self) -> Result<(), OfficeError> {
        if let Err(error) = self.shared.runtime.end_leftovers().await {
            tracing::error!(%error, "cannot look for what a bridge before this one has left running");
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
                    tracing::warn!(%error, failures, "the office cannot be used now");
                    self.shared.note_error(&error.to_string());
                    sleep(error.wait().unwrap_or_default().max(self.shared.options.backoff.after(failures))).await;
                }
            }
        }
    }

    /// Processes turns that ended, starts what can start, then waits for either.
    async fn round(&mut self) -> Result<(), BridgeError> {
        self.see_to_ended().await?;
        if !self.is_resumed {
            self.resume().await?;
            self.is_resumed = true;
        }
        let since = match self.cursor.take() {
            Some(since) => since,
            None => {
                self.requests.look();
                // The end of the log is read before messages are claimed, so that nothing is missed between claiming and waiting.
                self.shared.office.events(None, Duration::ZERO).await?.cursor
            }
        };
        self.check_runtime().await?;
        self.see_to_requests().await?;
        while self.has_room()
            && let Some(held) = self.next_mail().await?
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

    /// Whether another turn may begin.
    fn has_room(&self) -> bool {
        self.paused.is_none() && self.turns.len() < self.shared.options.concurrency.max(1)
    }

    /// Waits for the log to grow, for a turn to end, for a retry to be due, or for a dead letter that somebody wants retried.
    async fn wait(&mut self, since: Cursor) -> Result<Cursor, BridgeError> {
        let latest = Instant::now() + WAIT;
        let next = match self.paused {
            Some(until) => Some(until),
            None if self.has_room() => {
                let look = self.announced.next_look().map(|wait| Instant::now() + wait);
                self.queue.next_due().into_iter().chain(self.requests.due()).chain(look).min()
            }
            None => None,
        };
        let until = next.map_or(latest, |next| next.min(latest));
        let office = Arc::clone(&self.shared.office);
        let mut events = office.events(Some(since.clone()), WAIT);
        loop {
            tokio::select! {
                page = &mut events => {
                    let page = page?;
                    let is_about_connections = |event: &Event| {
                        matches!(event, Event::ConnectionRequest { .. } | Event::ConnectionChanged { .. })
                    };
                    if page.events.iter().any(|entry| is_about_connections(&entry.event)) {
                        self.requests.look();
                    }
                    self.announced.looks = 0;
                    self.announced.ids.extend(page.events.into_iter().filter_map(|entry| match entry.event {
                        Event::NewMessage(mail) => Some(mail.message_id),
                        _ => None,
                    }));
                    // Messages beyond the bound are found too, since a claim takes whatever there is.
                    self.announced.ids.truncate(MAX_ANNOUNCED);
                    return Ok(page.cursor);
                }
                Some(ended) = self.turns.join_next() => {
                    self.ended.push(unwind(ended));
                    return Ok(since);
                }
                () = sleep_until(until.min(Instant::now() + LOOK)) => {
                    let is_wanted = self.has_room() && !self.shared.ledger.revived()?.is_empty();
                    if Instant::now() >= until || is_wanted {
                        return Ok(since);
                    }
                }
            }
        }
    }

    /// Starts the turn of a message.
    fn begin(&mut self, held: HeldMessage) {
        self.queue.begin(&held.conversation, Some(&held));
        let shared = Arc::clone(&self.shared);
        self.turns.spawn(async move {
            let stop = shared.see_to(&held).await.err();
            EndedTurn { conversation: held.conversation.clone(), work: TurnSubject::Mail(Box::new(held)), stop }
        });
    }

    /// Tells the runtime about new connection requests, where that is due.
    async fn see_to_requests(&mut self) -> Result<(), BridgeError> {
        let is_due = self.requests.due().is_some_and(|due| due <= Instant::now());
        if !is_due || !self.has_room() {
            return Ok(());
        }
        let (asking, new) = self.shared.requests().await?;
        self.requests.looked();
        self.shared.status().requests = asking.into_iter().map(|request| request.agent_name).collect();
        if new.is_empty() {
            return Ok(());
        }
        let Some(conversation) = self.shared.options.requests.clone() else {
            for request in &new {
                tracing::warn!(from = %request.agent_name, "asks for a connection; `amb approve CODE` or `amb reject` answers");
            }
            return self.shared.told(&new);
        };
        if self.queue.is_busy(&conversation) {
            self.requests.look_after(BUSY);
            return Ok(());
        }
        self.requests.begin();
        self.queue.begin(&conversation, None);
        let (shared, failures) = (Arc::clone(&self.shared), self.requests.failures());
        self.turns.spawn(async move {
            let stop = shared.tell_requests(&new, &conversation, failures).await.err().map(Stop::Pause);
            EndedTurn { work: TurnSubject::Requests(new), conversation, stop }
        });
        Ok(())
    }

    async fn see_to_ended(&mut self) -> Result<(), BridgeError> {
        while let Some(ended) = self.turns.try_join_next() {
            self.ended.push(unwind(ended));
        }
        let mut first_error = None;
        for ended in std::mem::take(&mut self.ended) {
            self.queue.end(&ended.conversation);
            let seen = match ended.work {
                TurnSubject::Mail(held) => self.mail_ended(*held, ended.stop).await,
                TurnSubject::Requests(asking) => self.requests_ended(&asking, ended.stop).await,
            };
            // Every one must be processed, or its message would stay claimed for ever.
            if let Err(error) = seen {
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
            Some(Stop::Pause(trouble)) => {
                self.queue.park(held);
                // All of them together: those kept would otherwise overtake those claimed anew.
                let claimed = self.queue.take_claimed();
                let given_back = self.hand_back(claimed).await;
                self.pause(&trouble)?;
                given_back
            }
            Some(Stop::Broken(error)) => {
                // Kept for the next round: the claim may still be ours.
                self.queue.wait(Instant::now(), held);
                Err(error)
            }
        }
    }

    async fn requests_ended(&mut self, asking: &[Request], stop: Option<Stop>) -> Result<(), BridgeError> {
        let trouble = match stop {
            Some(Stop::Pause(trouble)) => trouble,
            _ => {
                self.requests.succeeded();
                self.shared.is_up();
                return self.shared.told(asking);
            }
        };
        tracing::warn!(%trouble, "the runtime was not told of a request for a connection");
        self.shared.note_error(&trouble.detail);
        if trouble.trouble.is_general() {
            self.requests.look();
            return self.pause(&trouble);
        }
        let BridgeOptions { backoff, max_failures, .. } = &self.shared.options;
        match self.requests.failed(backoff.after(self.requests.failures() + 1), *max_failures) {
            true => self.shared.told(asking),
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
    async fn give_back(&self, ids: &[MessageId]) -> Result<(), BridgeError> {
        for id in ids {
            let mut entry = self.ledger.entry(id)?;
            entry.claimed_until = None;
            self.ledger.note(&entry)?;
        }
        for some in ids.chunks(MAX_RELEASED) {
            self.office.release(some).await?;
        }
        Ok(())
    }

    /// Runs the turn of one message and carries out its result.
    async fn see_to(&self, held: &HeldMessage) -> Result<(), Stop> {
        match self.handle(held).await {
            Err(Stop::Broken(error)) if error.lasting().is_some() => {
                // The office will always refuse this message: it must not block the others.
                let reason = error.lasting().map(ToString::to_string).unwrap_or_default();
                self.set_aside(&held.mail, Trouble::Refused, reason).await
            }
            other => other,
        }
    }

    /// Notes that the runtime would take a turn.
    fn is_ready(&self) {
        let mut status = self.status();
        if matches!(status.connection, RuntimeState::Down { .. }) {
            status.connection = RuntimeState::Unknown;
        }
        status.runtime = self.runtime.describe();
    }

    /// Notes that the runtime took a turn.
    pub(crate) fn is_up(&self) {
        let mut status = self.status();
        status.connection = RuntimeState::Up;
        status.runtime = self.runtime.describe();
    }

    pub(crate) fn note_error(&self, error: &str) {
        self.status().last_error = Some(error.to_owned());
    }

    /// The error for a runtime that exceeded the turn's limit.
    pub(crate) fn too_late(&self) -> TurnError {
        let longest = self.options.longest_turn();
        TurnError::new(
            Trouble::Timeout,
            format!("the runtime said nothing for {longest:?}, longer than a turn may take"),
        )
    }
}

/// Returns the result of a turn's task. A panic there ends the bridge, as a crash would.
fn unwind(ended: Result<EndedTurn, JoinError>) -> EndedTurn {
    match ended {
        Ok(ended) => ended,
        Err(error) => std::panic::resume_unwind(error.into_panic()),
    }
}

async fn heartbeats(office: Arc<dyn Mailbox>) {
    loop {
        if let Err(error) = office.heartbeat().await {
            tracing::debug!(%error, "no heartbeat");
        }
        sleep(HEARTBEAT).await;
    }
}
