//! The loop: claim a mail, give the runtime its turn, send the answer, acknowledge.

use std::io;
use std::sync::Arc;
use std::time::Duration;

use amb_core::office::{ClaimRequest, Office};
use amb_core::render::{Nonce, render_incoming};
use amb_core::{Code, Cursor, Draft, Message, OfficeError, SessionId, TaskState, Timestamp};
use tokio::time::{Instant, sleep, timeout_at};

use crate::ledger::{Answer, Dead, Ledger, Page};
use crate::runtime::{Outcome, Runtime, Trouble, Turn, TurnError};
use crate::status::{Connection, Status};
use crate::{pace, task};

/// How long one look at the log waits. Only a bound: mail ends the wait at once.
const WAIT: Duration = Duration::from_secs(25);
/// How often the bridge says that its agent is alive.
const HEARTBEAT: Duration = Duration::from_secs(10);
/// Added to a turn's time for the claim, so that nobody else takes a mail whose turn is still running.
const LEASE_MARGIN: Duration = Duration::from_secs(60);
/// The longest answer that the office takes; what is beyond is cut, and the answer says so.
const MAX_REPLY_CHARS: usize = amb_core::limits::MAX_CONTENT_CHARS;

/// How a bridge works.
#[derive(Clone)]
pub struct Options {
    /// How long a turn may take.
    pub turn_timeout: Duration,
    /// After so many failures a mail is given up.
    pub max_failures: u32,
    /// The conversation of the runtime that mail goes to.
    pub main_session: String,
    /// A conversation for each peer instead: what stands before the peer's name.
    pub session_per_peer: Option<String>,
    /// Called between any two steps. Tests end the bridge there, as a crash would.
    pub checkpoint: Option<Arc<dyn Fn(Step) + Send + Sync>>,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            turn_timeout: Duration::from_secs(120),
            max_failures: 5,
            main_session: "agent:main:main".into(),
            session_per_peer: None,
            checkpoint: None,
        }
    }
}

/// The steps of a mail, each of which a crash may follow.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Step {
    /// The mail is claimed.
    Claimed,
    /// The turn has run; its answer is only in memory.
    Turned,
    /// The answer is in the ledger.
    Recorded,
    /// The answer was sent.
    Replied,
    /// The mail is acknowledged.
    Acknowledged,
}

impl Step {
    /// All of them, in order.
    pub const ALL: [Step; 5] = [Step::Claimed, Step::Turned, Step::Recorded, Step::Replied, Step::Acknowledged];
}

/// One agent's bridge to one runtime.
pub struct Bridge {
    office: Arc<dyn Office>,
    runtime: Arc<dyn Runtime>,
    ledger: Ledger,
    options: Options,
    status: Status,
    /// Mail that failed and is kept claimed until its next try.
    waiting: Vec<(Instant, Message)>,
    /// Failures of the runtime itself, in a row.
    outages: u32,
}

/// Why the loop cannot go on with a mail.
enum Stop {
    /// This mail later, others meanwhile.
    Later(u32),
    /// Nothing goes through now.
    Pause(TurnError),
    /// The office or the ledger failed.
    Broken(BridgeError),
}

/// What ends a bridge, or makes it wait: its office or its ledger fails.
#[derive(Debug, thiserror::Error)]
pub(crate) enum BridgeError {
    #[error("the office: {0}")]
    Office(#[from] OfficeError),
    #[error("the ledger: {0}")]
    Ledger(#[from] io::Error),
}

impl<E: Into<BridgeError>> From<E> for Stop {
    fn from(error: E) -> Self {
        Stop::Broken(error.into())
    }
}

impl Bridge {
    /// A bridge that begins with [`run`](Self::run).
    pub fn new(office: Arc<dyn Office>, runtime: Arc<dyn Runtime>, ledger: Ledger, options: Options) -> Self {
        let now = Timestamp::now();
        let status = Status {
            agent: office.me().clone(),
            office: office.describe(),
            runtime: runtime.describe(),
            pid: std::process::id(),
            started_at: now,
            updated_at: now,
            connection: Connection::Unknown,
            under_way: None,
            waiting: 0,
            replied: 0,
            unanswered: 0,
            given_up: 0,
            last_error: None,
        };
        Self { office, runtime, ledger, options, status, waiting: Vec::new(), outages: 0 }
    }

    /// Works until `shutdown` resolves; then gives back what it holds and says goodbye.
    ///
    /// # Errors
    /// Where the office lets the agent in no more, or the ledger cannot be written. What passes by itself (an office
    /// out of reach, a runtime that is down) is waited for.
    pub async fn run(mut self, shutdown: impl Future<Output = ()>) -> Result<(), OfficeError> {
        let beating = tokio::spawn(heartbeats(Arc::clone(&self.office)));
        let ended = tokio::select! {
            ended = self.work() => ended,
            () = shutdown => Ok(()),
        };
        beating.abort();
        let held: Vec<_> =
            self.waiting.iter().map(|(_, mail)| mail.id.clone()).chain(self.status.under_way.take()).collect();
        if !held.is_empty()
            && let Err(error) = self.office.release(&held).await
        {
            tracing::warn!(%error, "cannot give claimed mail back; it comes back when the lease ends");
        }
        if let Err(error) = self.office.leave().await {
            tracing::debug!(%error, "no goodbye");
        }
        ended
    }

    async fn work(&mut self) -> Result<(), OfficeError> {
        let mut cursor = None;
        let mut failures = 0;
        loop {
            match self.round(&mut cursor).await {
                Ok(()) => failures = 0,
                Err(BridgeError::Ledger(error)) => {
                    return Err(OfficeError::unavailable(format!("the bridge's ledger: {error}")).caused_by(error));
                }
                Err(BridgeError::Office(error)) if error.code() == Code::Unauthorized => return Err(error),
                Err(BridgeError::Office(error)) => {
                    failures += 1;
                    tracing::warn!(%error, failures, "the office cannot be used now");
                    self.note_error(&error.to_string());
                    sleep(error.wait().unwrap_or_default().max(pace::after(failures))).await;
                }
            }
        }
    }

    /// Handles all mail that can be had, then waits for more.
    async fn round(&mut self, cursor: &mut Option<Cursor>) -> Result<(), BridgeError> {
        let since = match cursor.take() {
            Some(since) => since,
            // The end of the log is taken before looking, so that nothing falls between looking and waiting.
            None => self.office.events(None, Duration::ZERO).await?.cursor,
        };
        *cursor = Some(since.clone());
        while let Some(mail) = self.next_mail().await? {
            let id = mail.id.clone();
            self.status.under_way = Some(id.clone());
            self.save_status()?;
            let stop = self.handle(&mail).await.err();
            self.status.under_way = None;
            match stop {
                None => {}
                Some(Stop::Later(failures)) => self.waiting.push((Instant::now() + pace::after(failures), mail)),
                Some(Stop::Pause(trouble)) => {
                    self.office.release(&[id]).await?;
                    self.pause(&trouble).await?;
                }
                Some(Stop::Broken(error)) => {
                    // Kept for the next round: the claim may still be ours.
                    self.waiting.push((Instant::now(), mail));
                    return Err(error);
                }
            }
            self.save_status()?;
        }
        let soonest = self.waiting.iter().map(|(at, _)| *at).min();
        let until = soonest.unwrap_or_else(|| Instant::now() + WAIT).min(Instant::now() + WAIT);
        let waited = timeout_at(until, self.office.events(Some(since), WAIT)).await;
        if let Ok(page) = waited {
            *cursor = Some(page?.cursor);
        }
        Ok(())
    }

    /// A mail whose next try is due, one that somebody revived, or a new one.
    async fn next_mail(&mut self) -> Result<Option<Message>, BridgeError> {
        let now = Instant::now();
        if let Some(due) = self.waiting.iter().position(|(at, _)| *at <= now) {
            return Ok(Some(self.waiting.swap_remove(due).1));
        }
        for id in self.ledger.revived()? {
            self.ledger.taken_up(&id)?;
            match self.office.message(&id).await {
                Ok(found) => return Ok(Some(found.message)),
                Err(error) => tracing::warn!(%id, %error, "cannot be tried again"),
            }
        }
        let lease = self.options.turn_timeout + LEASE_MARGIN;
        let mut claimed = self.office.claim(ClaimRequest { limit: 1, urgent_first: true, lease }).await?;
        Ok(claimed.pop())
    }

    fn reached(&self, step: Step) {
        if let Some(checkpoint) = &self.options.checkpoint {
            checkpoint(step);
        }
    }

    async fn handle(&mut self, mail: &Message) -> Result<(), Stop> {
        self.reached(Step::Claimed);
        let mut page = self.ledger.page(&mail.id)?;
        let task = task::brought(mail);
        if page.outcome.is_none() {
            let wanted = match task {
                Some(id) => task::begin(&*self.office, id).await?,
                None => true,
            };
            page.outcome = Some(if wanted { self.turn(mail, &mut page).await?.into() } else { Answer::NoReply });
            self.reached(Step::Turned);
            self.ledger.write(&mail.id, &page)?;
        }
        self.reached(Step::Recorded);
        let answer = page.outcome.unwrap_or(Answer::NoReply);
        match (task, answer) {
            (Some(id), Answer::Reply(text)) => {
                task::end(&*self.office, id, TaskState::Completed, Some(cut(text))).await?;
                self.status.replied += 1;
            }
            (Some(id), Answer::NoReply) => task::end(&*self.office, id, TaskState::Completed, None).await?,
            (None, Answer::Reply(text)) if mail.provokes_answer() => self.reply(mail, text).await?,
            (None, _) => self.status.unanswered += 1,
        }
        self.reached(Step::Replied);
        self.office.ack(std::slice::from_ref(&mail.id)).await?;
        self.reached(Step::Acknowledged);
        self.ledger.close(&mail.id)?;
        Ok(())
    }

    async fn turn(&mut self, mail: &Message, page: &mut Page) -> Result<Outcome, Stop> {
        let turn = self.prepare(mail)?;
        let error = match self.runtime.turn(&turn).await {
            Ok(outcome) => {
                self.outages = 0;
                self.status.connection = Connection::Up;
                return Ok(outcome);
            }
            Err(error) => error,
        };
        tracing::warn!(mail = %mail.id, trouble = ?error.trouble, %error, "the turn failed");
        self.note_error(&error.detail);
        if error.trouble.is_general() {
            return Err(Stop::Pause(error));
        }
        self.status.connection = Connection::Up;
        page.failures += 1;
        page.last_error = Some(error.detail.clone());
        self.ledger.write(&mail.id, page)?;
        if page.failures < self.options.max_failures && error.trouble != Trouble::Refused {
            return Err(Stop::Later(page.failures));
        }
        self.give_up(mail, page.failures, error).await?;
        Ok(Outcome::NoReply)
    }

    fn prepare(&self, mail: &Message) -> Result<Turn, BridgeError> {
        let subject = mail.subject.as_deref().unwrap_or_default();
        let session = mail.session.clone().unwrap_or_else(|| SessionId::between(&mail.from, &mail.to, subject));
        let make = || match &self.options.session_per_peer {
            Some(prefix) => format!("{prefix}{}", mail.from),
            None => self.options.main_session.clone(),
        };
        let (session_key, known) = self.ledger.session_key(&session, make)?;
        let nonce = Nonce::fresh();
        let incoming = amb_core::render::Incoming::from(mail);
        let prompt = render_incoming(if known { incoming.without_subject() } else { incoming }, &nonce);
        let key = mail.id.to_string();
        Ok(Turn { mail: mail.clone(), session_key, prompt, key, timeout: self.options.turn_timeout })
    }

    /// Sends the answer, once.
    async fn reply(&mut self, mail: &Message, text: String) -> Result<(), BridgeError> {
        let key = format!("bridge:{}", mail.id);
        let draft = Draft { idempotency_key: Some(key), ..Draft::reply(mail, cut(text)) };
        match self.office.send(draft).await {
            Ok(_) => self.status.replied += 1,
            // The exchange has reached its ttl: that is what it is for.
            Err(error) if error.code() == Code::LoopRefused => self.status.unanswered += 1,
            // The peer has ended the connection, or is gone: nobody is left to answer.
            Err(error)
                if matches!(error.code(), Code::NotConnected | Code::NotAllowed | Code::NotFound | Code::Forbidden) =>
            {
                tracing::warn!(mail = %mail.id, %error, "the answer has nowhere to go");
                self.note_error(&error.to_string());
                self.status.unanswered += 1;
            }
            Err(error) => return Err(error.into()),
        }
        Ok(())
    }

    async fn give_up(&mut self, mail: &Message, failures: u32, error: TurnError) -> Result<(), BridgeError> {
        tracing::error!(mail = %mail.id, failures, %error, "given up; `amb bridge dead` lists it");
        if let Some(id) = task::brought(mail) {
            task::end(&*self.office, id, TaskState::Failed, Some(error.detail.clone())).await?;
        }
        self.ledger.bury(&Dead {
            message_id: mail.id.clone(),
            from: mail.from.clone(),
            subject: mail.subject.clone(),
            failures,
            trouble: error.trouble,
            reason: error.detail,
            at: Timestamp::now(),
        })?;
        self.status.given_up += 1;
        Ok(())
    }

    /// The runtime is down: all mail waits, unread.
    async fn pause(&mut self, error: &TurnError) -> Result<(), BridgeError> {
        self.outages += 1;
        let wait = pace::after(self.outages);
        let now = Timestamp::now();
        let since = match &self.status.connection {
            Connection::Down { since, .. } => *since,
            _ => now,
        };
        let next_try = now.checked_add(wait).unwrap_or(now);
        let detail = error.detail.clone();
        self.status.connection = Connection::Down { trouble: error.trouble, detail, since, next_try };
        self.save_status()?;
        sleep(wait).await;
        Ok(())
    }

    fn note_error(&mut self, error: &str) {
        self.status.last_error = Some(error.to_owned());
    }

    fn save_status(&mut self) -> Result<(), BridgeError> {
        self.status.updated_at = Timestamp::now();
        self.status.waiting = self.waiting.len();
        Ok(self.ledger.write_status(&self.status)?)
    }
}

/// What the office takes of a long answer, with a word that there was more.
fn cut(text: String) -> String {
    const NOTE: &str = "\n[cut: the answer was longer than a message may be]";
    match text.char_indices().nth(MAX_REPLY_CHARS) {
        None => text,
        Some(_) => {
            let kept: String = text.chars().take(MAX_REPLY_CHARS - NOTE.chars().count()).collect();
            kept + NOTE
        }
    }
}

async fn heartbeats(office: Arc<dyn Office>) {
    loop {
        if let Err(error) = office.heartbeat().await {
            tracing::debug!(%error, "no heartbeat");
        }
        sleep(HEARTBEAT).await;
    }
}
