//! The loop: take a mail, see to it, look for the next, wait.

use std::sync::Arc;
use std::time::Duration;

use amb_core::office::{ClaimRequest, Office};
use amb_core::{Code, Cursor, Message, MessageId, OfficeError, ReceiptState, Timestamp};
use tokio::time::{Instant, sleep, timeout_at};

use crate::error::{BridgeError, Stop, is_lasting};
use crate::ledger::Ledger;
use crate::options::Options;
use crate::page::{Answer, Page};
use crate::runtime::{Runtime, Trouble, TurnError};
use crate::status::{Connection, Status};

/// How long one look at the log waits. Only a bound: mail ends the wait at once.
const WAIT: Duration = Duration::from_secs(25);
/// How often the bridge looks whether somebody wants a mail tried again.
const LOOK: Duration = Duration::from_millis(500);
/// How often the bridge says that its agent is alive.
const HEARTBEAT: Duration = Duration::from_secs(10);

/// One agent's bridge to one runtime.
pub struct Bridge {
    pub(crate) office: Arc<dyn Office>,
    pub(crate) runtime: Arc<dyn Runtime>,
    pub(crate) ledger: Ledger,
    pub(crate) options: Options,
    pub(crate) status: Status,
    /// Mail that failed and waits for its next try.
    waiting: Vec<(Instant, Held)>,
    /// Failures of the runtime itself, in a row.
    outages: u32,
}

/// A mail that this bridge has to see to.
#[derive(Clone)]
struct Held {
    mail: Message,
    /// Until when it is claimed. None for a mail that no claim brings: revived, or read by the agent itself meanwhile.
    until: Option<Timestamp>,
}

impl Bridge {
    /// A bridge that begins with [`run`](Self::run).
    pub fn new(office: Arc<dyn Office>, runtime: Arc<dyn Runtime>, ledger: Ledger, options: Options) -> Self {
        let status = Status::new(office.me().clone(), office.describe(), runtime.describe());
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
        self.let_go().await;
        if let Err(error) = self.office.leave().await {
            tracing::debug!(%error, "no goodbye");
        }
        ended
    }

    /// Gives back what is claimed, so that another bridge, or the next one, has it at once.
    async fn let_go(&mut self) {
        let claimed = self.waiting.drain(..).filter(|(_, held)| held.until.is_some()).map(|(_, held)| held.mail.id);
        for id in claimed.chain(self.status.under_way.take()).collect::<Vec<_>>() {
            if let Err(error) = self.give_back(&id).await {
                tracing::warn!(mail = %id, %error, "cannot give claimed mail back; it comes back when the lease ends");
            }
        }
        if let Err(error) = self.save_status() {
            tracing::warn!(%error, "the last status is not written");
        }
    }

    async fn work(&mut self) -> Result<(), OfficeError> {
        let mut cursor = None;
        let mut resumed = false;
        let mut failures = 0;
        loop {
            let round = async {
                if !resumed {
                    self.resume().await?;
                    resumed = true;
                }
                self.save_status()?;
                self.round(&mut cursor).await
            };
            match round.await {
                Ok(()) => failures = 0,
                Err(BridgeError::Ledger(error)) => {
                    return Err(OfficeError::unavailable(format!("the bridge's ledger: {error}")).caused_by(error));
                }
                Err(BridgeError::Office(error)) if error.code() == Code::Unauthorized => return Err(error),
                Err(BridgeError::Office(error)) => {
                    failures += 1;
                    tracing::warn!(%error, failures, "the office cannot be used now");
                    self.note_error(&error.to_string());
                    sleep(error.wait().unwrap_or_default().max(self.options.pace.after(failures))).await;
                }
            }
        }
    }

    /// Takes up what the bridge before this one left when it died.
    async fn resume(&mut self) -> Result<(), BridgeError> {
        let mut ours = Vec::new();
        for page in self.ledger.pages()? {
            if self.waiting.iter().any(|(_, held)| held.mail.id == page.message_id) {
                continue;
            }
            let found = match self.office.message(&page.message_id).await {
                Ok(found) => found,
                Err(error) if is_lasting(error.code()) => {
                    tracing::warn!(mail = %page.message_id, %error, "the office does not have it any more");
                    self.ledger.close(&page.message_id)?;
                    continue;
                }
                Err(error) => return Err(error.into()),
            };
            let is_read = found
                .receipts
                .iter()
                .any(|receipt| receipt.recipient == *self.office.me() && receipt.state == ReceiptState::Read);
            if page.outcome.is_some() || page.revived || (is_read && page.begun) {
                // An answer to send; or a turn that no claim brings back, since the agent has read the mail itself.
                self.waiting.push((self.due(&page), Held { mail: found.message, until: None }));
            } else if is_read {
                self.ledger.close(&page.message_id)?;
            } else if page.claimed_until.is_some_and(|until| until > Timestamp::now()) {
                ours.push(page.message_id);
            }
        }
        if !ours.is_empty() {
            // Claimed by the process that died. Given back, it is claimed anew like any other.
            self.office.release(&ours).await?;
        }
        Ok(())
    }

    /// When a mail may be tried.
    fn due(&self, page: &Page) -> Instant {
        let wait = page
            .next_try
            .map_or(Duration::ZERO, |at| Duration::try_from(at.duration_since(Timestamp::now())).unwrap_or_default());
        Instant::now() + wait.min(self.options.pace.longest)
    }

    /// Handles all mail that can be had, then waits for more.
    async fn round(&mut self, cursor: &mut Option<Cursor>) -> Result<(), BridgeError> {
        let since = match cursor.take() {
            Some(since) => since,
            // The end of the log is taken before looking, so that nothing falls between looking and waiting.
            None => self.office.events(None, Duration::ZERO).await?.cursor,
        };
        while let Some(held) = self.next_mail().await? {
            self.see_to(held).await?;
        }
        *cursor = Some(self.wait(since).await?);
        Ok(())
    }

    /// Waits for the log to grow, for a mail to be due, or for somebody who wants one tried again.
    async fn wait(&mut self, since: Cursor) -> Result<Cursor, BridgeError> {
        let latest = Instant::now() + WAIT;
        let until = self.waiting.iter().map(|(at, _)| *at).min().map_or(latest, |soonest| soonest.min(latest));
        let office = Arc::clone(&self.office);
        let mut events = office.events(Some(since.clone()), WAIT);
        loop {
            match timeout_at(until.min(Instant::now() + LOOK), &mut events).await {
                Ok(page) => return Ok(page?.cursor),
                Err(_) if Instant::now() >= until || !self.ledger.revived()?.is_empty() => return Ok(since),
                Err(_) => {}
            }
        }
    }

    /// A mail whose next try is due, one that somebody revived, or a new one.
    async fn next_mail(&mut self) -> Result<Option<Held>, BridgeError> {
        let now = Instant::now();
        if let Some(due) = self.waiting.iter().position(|(at, _)| *at <= now) {
            let (_, held) = self.waiting.swap_remove(due);
            if held.until.is_none_or(|until| until > Timestamp::now() + self.options.longest_turn()) {
                return Ok(Some(held));
            }
            // The claim does not last for another turn. Given back, it can be claimed for longer.
            self.give_back(&held.mail.id).await?;
        }
        if let Some(held) = self.take_up_revived().await? {
            return Ok(Some(held));
        }
        let lease = self.options.lease();
        loop {
            let until = Timestamp::now().saturating_add(lease).unwrap_or(Timestamp::MAX);
            let request = ClaimRequest { limit: 1, urgent_first: true, lease };
            let Some(mail) = self.office.claim(request).await?.pop() else { return Ok(None) };
            let mut page = self.ledger.page(&mail.id)?;
            page.claimed_until = Some(until);
            self.ledger.note(&page)?;
            self.waiting.retain(|(_, held)| held.mail.id != mail.id);
            let held = Held { mail, until: Some(until) };
            match self.due(&page) {
                later if later > Instant::now() => self.waiting.push((later, held)),
                _ => return Ok(Some(held)),
            }
        }
    }

    /// Gives a mail back that this bridge has not come to the end of. Whoever claims it next has it.
    async fn give_back(&mut self, id: &MessageId) -> Result<(), BridgeError> {
        let mut page = self.ledger.page(id)?;
        page.claimed_until = None;
        self.ledger.note(&page)?;
        Ok(self.office.release(std::slice::from_ref(id)).await?)
    }

    async fn take_up_revived(&mut self) -> Result<Option<Held>, BridgeError> {
        for mut dead in self.ledger.revived()? {
            match self.office.message(&dead.message_id).await {
                Ok(found) => {
                    let mut page = Page::new(dead.message_id.clone());
                    page.revived = true;
                    page.failed_turns = dead.failed_turns;
                    page.outcome = dead.answer.map(Answer::Reply);
                    self.ledger.write(&page)?;
                    self.ledger.taken_up(&dead.message_id)?;
                    return Ok(Some(Held { mail: found.message, until: None }));
                }
                Err(error) if is_lasting(error.code()) => {
                    tracing::warn!(mail = %dead.message_id, %error, "cannot be tried again");
                    dead.reason = format!("cannot be tried again: {error}");
                    self.ledger.bury(&dead)?;
                    self.ledger.taken_up(&dead.message_id)?;
                }
                Err(error) => return Err(error.into()),
            }
        }
        Ok(None)
    }

    async fn see_to(&mut self, held: Held) -> Result<(), BridgeError> {
        let id = held.mail.id.clone();
        self.status.under_way = Some(id.clone());
        self.save_status()?;
        let mut stop = self.handle(&held.mail).await.err();
        if let Some(Stop::Broken(error)) = &stop
            && let Some(lasting) = error.lasting()
        {
            // The office will never let this one through: it must not stand in the way of the others.
            let reason = lasting.to_string();
            stop = self.set_aside(&held.mail, Trouble::Refused, reason).await.err();
        }
        self.status.under_way = None;
        match stop {
            None => {}
            Some(Stop::Later) => {
                let at = self.due(&self.ledger.page(&id)?);
                self.waiting.push((at, held));
            }
            Some(Stop::Pause(trouble)) => {
                if held.until.is_some() {
                    self.give_back(&id).await?;
                } else {
                    self.waiting.push((Instant::now(), held));
                }
                self.pause(&trouble).await?;
            }
            Some(Stop::Broken(error)) => {
                // Kept for the next round: the claim may still be ours.
                self.waiting.push((Instant::now(), held));
                return Err(error);
            }
        }
        self.save_status()
    }

    /// The runtime is down: all mail waits, unread.
    async fn pause(&mut self, error: &TurnError) -> Result<(), BridgeError> {
        self.outages += 1;
        let wait = self.options.pace.after(self.outages);
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

    /// The runtime takes turns.
    pub(crate) fn is_up(&mut self) {
        self.outages = 0;
        self.status.connection = Connection::Up;
        self.status.runtime = self.runtime.describe();
    }

    pub(crate) fn note_error(&mut self, error: &str) {
        self.status.last_error = Some(error.to_owned());
    }

    fn save_status(&mut self) -> Result<(), BridgeError> {
        self.status.updated_at = Timestamp::now();
        self.status.waiting = self.waiting.len();
        Ok(self.ledger.write_status(&self.status)?)
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
