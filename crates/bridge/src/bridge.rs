//! The loop: take mail, give it its turns, several at once, look for more, wait.

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
use crate::options::{Conversations, Options};
use crate::queue::{Held, Queue};
use crate::requests::Requests;
use crate::runtime::{Runtime, Trouble, TurnError};
use crate::status::{Connection, Status};

/// How long one look at the log waits. Only a bound: mail ends the wait at once.
const WAIT: Duration = Duration::from_secs(25);
/// The first wait before mail that the log has told of is looked for again; it doubles up to [`MAX_LOOKS`] times.
const LOOK_FOR_ANNOUNCED: Duration = Duration::from_millis(50);
const MAX_LOOKS: u32 = 8;
/// The most mail that is looked for like this.
const MAX_ANNOUNCED: usize = 1_000;
/// How often the bridge looks whether somebody wants a mail tried again.
const LOOK: Duration = Duration::from_millis(500);
/// How soon a busy conversation is asked again whether it can be told of requests for a connection.
const BUSY: Duration = Duration::from_secs(1);
/// The most mail that one request gives back.
const MAX_RELEASED: usize = 100;
/// How often the bridge says that its agent is alive.
const HEARTBEAT: Duration = Duration::from_secs(10);

/// One agent's bridge to one runtime.
pub struct Bridge {
    shared: Arc<Shared>,
    queue: Queue,
    turns: JoinSet<Ended>,
    /// Turns that ended and are not seen to yet.
    ended: Vec<Ended>,
    cursor: Option<Cursor>,
    announced: Announced,
    /// Whether what a bridge before this one left has been taken up.
    is_resumed: bool,
    /// Until when no turn is begun, since the runtime is down; then it is checked first.
    paused: Option<Instant>,
    /// Failures of the runtime itself, in a row.
    outages: u32,
    requests: Requests,
    /// What was last said to be wrong with the runtime, while it is.
    warned: Option<String>,
    /// Whether it was said that the runtime takes turns, and not since that it does not.
    is_announced: bool,
}

/// What the loop and the turns under way have in common.
pub(crate) struct Shared {
    pub(crate) office: Arc<dyn Mailbox>,
    pub(crate) runtime: Arc<dyn Runtime>,
    pub(crate) ledger: Ledger,
    pub(crate) options: Options,
    status: Mutex<Status>,
}

/// Mail that the log has told of and that could not be claimed yet: its sender may hold it for a moment longer.
#[derive(Debug, Default)]
struct Announced {
    ids: Vec<MessageId>,
    /// How often it was looked for in vain.
    looks: u32,
}

impl Announced {
    /// How long to wait before the next look; none where there is nothing to look for.
    fn next_look(&self) -> Option<Duration> {
        (!self.ids.is_empty()).then(|| LOOK_FOR_ANNOUNCED.saturating_mul(1 << self.looks.min(5)))
    }

    /// It was looked for in vain once more. What does not come in the end was handled by others.
    fn missed(&mut self) {
        self.looks += 1;
        if self.looks > MAX_LOOKS {
            *self = Self::default();
        }
    }
}

/// What had a turn.
enum Work {
    Mail(Box<Held>),
    Requests(Vec<Request>),
}

/// A turn that ended.
struct Ended {
    work: Work,
    conversation: String,
    stop: Option<Stop>,
}

impl Bridge {
    /// A bridge that begins with [`run`](Self::run).
    pub fn new(office: Arc<dyn Mailbox>, runtime: Arc<dyn Runtime>, ledger: Ledger, options: Options) -> Self {
        let status = Mutex::new(Status::new(office.me().clone(), office.describe(), runtime.describe()));
        let queue = Queue::new(options.hold_thread);
        Self {
            shared: Arc::new(Shared { office, runtime, ledger, options, status }),
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

    /// Works until `shutdown` resolves; then gives back what it holds and says goodbye.
    ///
    /// # Errors
    /// Where the office lets the agent in no more, or the ledger cannot be written. What passes by itself (an office
    /// out of reach, a runtime that is down) is waited for.
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

    /// Gives back what is claimed, so that another bridge, or the next one, has it at once.
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

    /// Sees to what has ended, begins what can begin, then waits for more of either.
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
                // The end of the log is taken before looking, so that nothing falls between looking and waiting.
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

    /// Waits for the log to grow, for a turn to end, for a mail to be due, or for somebody who wants one tried again.
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
                    // What is beyond is found all the same: any look claims whatever there is.
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

    /// Gives a mail its turn.
    fn begin(&mut self, held: Held) {
        self.queue.begin(&held.conversation, Some(&held));
        let shared = Arc::clone(&self.shared);
        self.turns.spawn(async move {
            let stop = shared.see_to(&held).await.err();
            Ended { conversation: held.conversation.clone(), work: Work::Mail(Box::new(held)), stop }
        });
    }

    /// Tells the runtime who asks for a connection, where it is time for that.
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
            Ended { work: Work::Requests(new), conversation, stop }
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
                Work::Mail(held) => self.mail_ended(*held, ended.stop).await,
                Work::Requests(asking) => self.requests_ended(&asking, ended.stop).await,
            };
            // Each of them must be seen to, or a mail would be held for ever.
            if let Err(error) = seen {
                first_error.get_or_insert(error);
            }
        }
        first_error.map_or(Ok(()), Err)
    }

    async fn mail_ended(&mut self, held: Held, stop: Option<Stop>) -> Result<(), BridgeError> {
        if self.shared.status().connection == Connection::Up {
            self.outages = 0;
        }
        match stop {
            None => Ok(()),
            Some(Stop::Later) => {
                let at = self.due(&self.shared.ledger.page(&held.mail.id)?);
                self.queue.wait(at, held);
                Ok(())
            }
            Some(Stop::Pause(trouble)) => {
                self.queue.park(held);
                // All of it together: what is kept would overtake what is claimed anew.
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
        let Options { backoff, max_failures, .. } = &self.shared.options;
        match self.requests.failed(backoff.after(self.requests.failures() + 1), *max_failures) {
            true => self.shared.told(asking),
            false => Ok(()),
        }
    }
}

impl Shared {
    pub(crate) fn status(&self) -> MutexGuard<'_, Status> {
        self.status.lock()
    }

    /// A mail with the conversation that it belongs to.
    fn hold(&self, mail: Message, until: Option<Timestamp>) -> Result<Held, BridgeError> {
        let subject = mail.subject.as_deref().unwrap_or_default();
        let session = mail.session.clone().unwrap_or_else(|| SessionId::between(&mail.from, &mail.to, subject));
        let make = || match &self.options.conversations {
            Conversations::Thread => session.to_string(),
            Conversations::Peer(prefix) => format!("{prefix}{}", mail.from),
            Conversations::One(key) => key.clone(),
        };
        let (conversation, is_later) = self.ledger.conversation(&session, &mail.id, make)?;
        Ok(Held { mail, until, session, conversation, is_later, holds_until: None })
    }

    /// Gives mail back that this bridge has not come to the end of. Whoever claims it next has it.
    async fn give_back(&self, ids: &[MessageId]) -> Result<(), BridgeError> {
        for id in ids {
            let mut page = self.ledger.page(id)?;
            page.claimed_until = None;
            self.ledger.note(&page)?;
        }
        for some in ids.chunks(MAX_RELEASED) {
            self.office.release(some).await?;
        }
        Ok(())
    }

    /// Gives one mail its turn and does what comes of it.
    async fn see_to(&self, held: &Held) -> Result<(), Stop> {
        match self.handle(held).await {
            Err(Stop::Broken(error)) if error.lasting().is_some() => {
                // The office will never let this one through: it must not stand in the way of the others.
                let reason = error.lasting().map(ToString::to_string).unwrap_or_default();
                self.set_aside(&held.mail, Trouble::Refused, reason).await
            }
            other => other,
        }
    }

    /// The runtime would take a turn.
    fn is_ready(&self) {
        let mut status = self.status();
        if matches!(status.connection, Connection::Down { .. }) {
            status.connection = Connection::Unknown;
        }
        status.runtime = self.runtime.describe();
    }

    /// The runtime takes turns.
    pub(crate) fn is_up(&self) {
        let mut status = self.status();
        status.connection = Connection::Up;
        status.runtime = self.runtime.describe();
    }

    pub(crate) fn note_error(&self, error: &str) {
        self.status().last_error = Some(error.to_owned());
    }

    /// The runtime has said nothing for longer than it may.
    pub(crate) fn too_late(&self) -> TurnError {
        let longest = self.options.longest_turn();
        TurnError::new(
            Trouble::Timeout,
            format!("the runtime said nothing for {longest:?}, longer than a turn may take"),
        )
    }
}

/// What a turn returned. One that panicked ends the bridge as a crash does.
fn unwind(ended: Result<Ended, JoinError>) -> Ended {
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
