//! Wakes the client when messages wait that it was not shown. The rules and the interfaces of clients are in
//! [`amb_wake`]; this module supplies the facts about the office and the client.

use std::ffi::OsString;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use amb_core::{Mailbox, MessageId, OfficeError, Timestamp};
use amb_wake::{
    Bell, ClaudeInbox, CodexQueue, Door, FailedRing, Lease, Limits, Process, QwenInbox, Reporter, RingDecision,
    RingError, RingErrorKind, RingFacts, Rung, SessionKey, SpentCache, Summary, WaitingMessage, WakeDirectory,
};
use tokio::sync::broadcast::error::RecvError;
use tokio::sync::watch;
use tokio::task::JoinHandle;
use tokio::time::{Instant, sleep_until};

use crate::channel::CLAUDE_CODE;
use crate::client_memory::ClientMemory;
use crate::inbox;
use crate::lazy_mailbox::LazyMailbox;
use crate::watch::LogWatch;

/// The least time between two reads of the mailbox, however fast messages come.
const MIN_INTERVAL: Duration = Duration::from_millis(100);
/// The longest time without a read of the mailbox: a hint may be lost.
const MAX_INTERVAL: Duration = Duration::from_secs(60);
/// How soon messages that another consumer has claimed are checked again.
const CLAIMED_RETRY: Duration = Duration::from_secs(1);
/// The most characters of a client's name in a ledger's name.
const CLIENT_CHARS: usize = 40;
/// The most messages in the list that hooks do not mention again.
const MAX_SHOWN: usize = 256;

/// How clients can be woken. The caller reads the environment; this crate does not.
#[derive(Debug, Clone)]
pub struct WakeOptions {
    /// The directory of this office's ring ledgers, with one directory for each mailbox.
    pub root: PathBuf,
    /// The rate limits.
    pub limits: Limits,
    /// Whether every session of the agent is rung, not only the most recently active one.
    pub all: bool,
    /// Claude Code's inbox, where it started this process.
    pub claude: Option<ClaudeInbox>,
    /// Qwen Code's inbox, where it started this process.
    pub qwen: Option<QwenInbox>,
    /// The command `codex`.
    pub codex: OsString,
    /// The socket of Codex' app server, which may not exist.
    pub codex_control: Option<PathBuf>,
}

impl WakeOptions {
    /// The interface of a client with this name, last seen in this thread. A client started from another one inherits
    /// its variables, so a variable alone does not identify the client.
    fn door(&self, client: Option<&str>, thread: Option<String>) -> Option<Door> {
        if let Some(thread) = thread {
            let control = self.codex_control.clone().filter(|path| path.exists());
            return Some(Door::Codex(CodexQueue { program: self.codex.clone(), thread, control }));
        }
        match client? {
            CLAUDE_CODE => self.claude.clone().map(Door::Claude),
            name if name.contains("qwen") => self.qwen.clone().map(Door::Qwen),
            _ => None,
        }
    }

    /// When the turn of a client with this name began, where it reports that elsewhere than in its calls.
    pub(crate) fn turn_began(&self, client: Option<&str>) -> Option<Timestamp> {
        self.claude.as_ref().filter(|_| client == Some(CLAUDE_CODE))?.turn_began()
    }
}

/// The messages that wait.
struct InboxSnapshot {
    waiting: Vec<WaitingMessage>,
    unread: u64,
    /// Unread messages that the client was shown.
    shown: Vec<MessageId>,
}

pub(crate) struct Waker {
    pub(crate) options: WakeOptions,
    pub(crate) mailbox: LazyMailbox,
    pub(crate) seen: Arc<ClientMemory>,
    pub(crate) watch: LogWatch,
    pub(crate) client: watch::Receiver<Option<String>>,
}

impl Waker {
    /// Rings until the client disconnects.
    pub(crate) async fn run(mut self) {
        let parent = Process::parent();
        let began = Timestamp::now();
        let mut changes = self.watch.listen();
        tokio::select! {
            () = self.watch.ready() => {}
            () = self.watch.closing().cancelled() => return,
        }
        let closing = self.watch.closing().clone();
        let mut session: Option<ClientSession> = None;
        let mut last_read = Instant::now();
        let mut next = Some(Instant::now());
        loop {
            tokio::select! {
                change = changes.recv() => match change {
                    Ok(_) | Err(RecvError::Lagged(_)) => while changes.try_recv().is_ok() {},
                    Err(RecvError::Closed) => break,
                },
                () = self.seen.activity.hinted() => {}
                changed = self.client.changed() => if changed.is_err() { break },
                () = at(next) => {}
                () = closing.cancelled() => break,
            }
            tokio::select! {
                () = sleep_until(last_read + MIN_INTERVAL) => {}
                () = closing.cancelled() => break,
            }
            // A client that died must not be rung, even if something else keeps our stdin open.
            if Process::parent() != parent {
                tracing::info!("the client is gone; no more wake-ups");
                break;
            }
            last_read = Instant::now();
            next = tokio::select! {
                next = self.step(&mut session, began) => next,
                () = closing.cancelled() => break,
            };
        }
        if let Some(session) = session {
            let _ = session.end().await;
        }
    }

    /// Reads the mailbox once and acts by the rules; returns when to read again.
    async fn step(&mut self, session: &mut Option<ClientSession>, began: Timestamp) -> Option<Instant> {
        let later = Some(Instant::now() + MAX_INTERVAL);
        let client = self.client.borrow().clone()?;
        let door = self.options.door(Some(&client), self.seen.activity.codex_thread());
        let Ok(office) = self.mailbox.office().await else { return later };
        let current = match ClientSession::of(session.take(), &client, door, &self.options, office) {
            Ok(current) => session.insert(current),
            Err(error) => {
                tracing::warn!(%error, "no wake-ups: the ledger cannot be kept");
                return later;
            }
        };
        match current.step(&self.options, &**office, &self.seen, began).await {
            Ok(next) => next,
            Err(error) => {
                tracing::debug!(%error, "cannot look for mail to wake the client for");
                later
            }
        }
    }
}

async fn at(moment: Option<Instant>) {
    match moment {
        Some(moment) => sleep_until(moment).await,
        None => std::future::pending().await,
    }
}

struct ClientSession {
    key: SessionKey,
    /// The client's interface, if it has one.
    door: Option<Door>,
    place: WakeDirectory,
    bell: Bell,
    spent: SpentCache,
    reporter: Reporter,
    /// When a ring found the client gone. Until it calls again, any other session of the agent is rung first.
    gone_at: Option<Timestamp>,
}

impl ClientSession {
    /// The client's current session: the one before, or another.
    fn of(
        before: Option<Self>,
        client: &str,
        door: Option<Door>,
        options: &WakeOptions,
        office: &Arc<dyn Mailbox>,
    ) -> std::io::Result<Self> {
        let key = door.as_ref().map_or_else(|| key_without_door(client), Door::key);
        if let Some(before) = before {
            if before.key == key {
                return Ok(Self { door, ..before });
            }
            before.end();
        }
        let reporter = Reporter::start(Arc::clone(office), &key, door.as_ref().map(Door::name));
        let place = WakeDirectory::new(options.root.join(office.me().as_str()));
        if let Err(error) = place.clean() {
            tracing::debug!(%error, "old ledgers stay");
        }
        let mut ledger = place.ledger(&key)?;
        let me = Process::me();
        if ledger.process != Some(me) {
            // Another run of the client: rings of the previous one may not have reached its model.
            (ledger.process, ledger.tries, ledger.given_up_at) = (Some(me), 0, None);
            ledger.rung_for.clear();
        }
        (ledger.office, ledger.parent, ledger.no_door) = (office.describe(), Process::parent(), door.is_none());
        let bell = Bell::new(options.limits.clone(), ledger);
        let session = Self { key, door, place, bell, spent: SpentCache::default(), reporter, gone_at: None };
        session.save()?;
        Ok(session)
    }

    /// The client is gone, or in another session. The handle resolves when the office has the report.
    fn end(self) -> JoinHandle<()> {
        self.release();
        self.reporter.end()
    }

    /// Releases the lease, so that another session is rung. A session without a door has none; its ledger is removed.
    fn release(&self) {
        let ended = match self.door {
            Some(_) => self.place.release(Process::me()),
            None => self.place.remove(&self.key),
        };
        if let Err(error) = ended {
            tracing::debug!(%error, "the lease stays until others see that this process is gone");
        }
    }

    fn save(&self) -> std::io::Result<()> {
        self.place.save(&self.key, self.bell.ledger())
    }

    async fn step(
        &mut self,
        options: &WakeOptions,
        office: &dyn Mailbox,
        seen: &ClientMemory,
        began: Timestamp,
    ) -> Result<Option<Instant>, OfficeError> {
        let before = self.bell.ledger().clone();
        let next = match self.door {
            Some(_) => self.check_and_ring(options, office, seen, began).await?,
            None => {
                let ledger = self.bell.ledger_mut();
                ledger.wait_open = seen.is_waiting();
                ledger.shown = seen.latest(MAX_SHOWN).iter().filter_map(|id| id.parse().ok()).collect();
                None
            }
        };
        if *self.bell.ledger() != before
            && let Err(error) = self.save()
        {
            tracing::warn!(%error, "the ledger of wake-ups cannot be written");
        }
        self.reporter.update(self.bell.ledger().state(Timestamp::now()));
        Ok(next)
    }

    async fn check_and_ring(
        &mut self,
        options: &WakeOptions,
        office: &dyn Mailbox,
        seen: &ClientMemory,
        began: Timestamp,
    ) -> Result<Option<Instant>, OfficeError> {
        let hooks = self.place.hooks(&self.key).unwrap_or_default();
        seen.activity.set_user_turn(hooks.user_turn_at);
        let called_at = seen.activity.called_at();
        // Claimed even if no messages wait: the most recently active session is the one to ring.
        let is_gone = self.gone_at.is_some_and(|gone| called_at.is_none_or(|called| called < gone));
        let active_at = if is_gone { Timestamp::UNIX_EPOCH } else { called_at.unwrap_or(began) };
        let holds_lease = self.claim(options, active_at);
        let mut snapshot = read_inbox(office, seen, &mut self.spent).await?;
        let now = Timestamp::now();
        let client = if snapshot.waiting.is_empty() { Default::default() } else { self.client_state(now).await };
        let wait_open = seen.is_waiting();
        let ledger = self.bell.ledger_mut();
        ledger.shown.clone_from(&snapshot.shown);
        ledger.wait_open = wait_open;
        // What a hook has mentioned counts as rung for.
        self.bell.mark_shown_elsewhere(now, snapshot.waiting.iter().filter(|mail| hooks.knows(mail.id.as_str())));
        let decide = |bell: &mut Bell, waiting: &[WaitingMessage]| {
            let user_turn_at = hooks.user_turn_at;
            bell.decide(&RingFacts { now, waiting, wait_open, called_at, user_turn_at, client, holds_lease })
        };
        let mut decision = decide(&mut self.bell, &snapshot.waiting);
        if decision == RingDecision::Ring {
            amb_wake::leave_out_held(office, &mut snapshot.waiting).await?;
            // Decides again, since the rest may have been rung for already.
            if snapshot.waiting.is_empty() {
                return Ok(Some(Instant::now() + CLAIMED_RETRY));
            }
            decision = decide(&mut self.bell, &snapshot.waiting);
        }
        tracing::trace!(?decision, waiting = snapshot.waiting.len(), holds_lease, "looked");
        let wait = match decision {
            RingDecision::Quiet(_) => MAX_INTERVAL,
            RingDecision::Later(at) => Duration::try_from(at.duration_since(now)).unwrap_or_default().min(MAX_INTERVAL),
            RingDecision::GiveUp => {
                self.bell.given_up(now);
                tracing::warn!(
                    unread = snapshot.unread,
                    advice = self.door.as_ref().map(Door::advice),
                    "rung in vain, giving up until more mail comes"
                );
                MAX_INTERVAL
            }
            RingDecision::Ring => {
                self.ring(office, seen, &snapshot, now).await;
                MIN_INTERVAL
            }
        };
        Ok(Some(Instant::now() + wait))
    }

    fn claim(&self, options: &WakeOptions, active_at: Timestamp) -> bool {
        let SessionKey { client, session } = self.key.clone();
        let mine = Lease { process: Process::me(), client, session, active_at };
        match self.place.claim(&mine) {
            Ok(held) => held || options.all,
            Err(error) => {
                tracing::warn!(%error, "the lease of wake-ups cannot be read");
                options.all
            }
        }
    }

    /// What the client is doing; asked only before a reminder, where it matters.
    async fn client_state(&self, now: Timestamp) -> amb_wake::ClientState {
        let ledger = self.bell.ledger();
        let is_reminder =
            ledger.rung_at.is_some_and(|rung| now.duration_since(rung) > jiff::SignedDuration::from_secs(1));
        match &self.door {
            Some(door) if is_reminder => door.state().await,
            _ => Default::default(),
        }
    }

    async fn ring(&mut self, office: &dyn Mailbox, seen: &ClientMemory, snapshot: &InboxSnapshot, now: Timestamp) {
        let Some(door) = &self.door else { return };
        self.bell.ringing(now, &snapshot.waiting);
        if let Err(error) = self.save() {
            // A ring that is not recorded could be made again and again.
            tracing::warn!(%error, "not rung: the ledger of wake-ups cannot be written");
            return;
        }
        let summary = Summary::of(office.me(), snapshot.unread, &snapshot.waiting);
        let urgent = snapshot.waiting.iter().any(|mail| mail.urgent);
        // The turn may begin before the ring returns.
        let ring_before = seen.activity.record_ring(now);
        match door.ring(&summary.line(), urgent).await {
            Ok(Rung { door, receipt }) => {
                tracing::info!(door, unread = snapshot.unread, "rung");
                let ledger = self.bell.ledger_mut();
                self.reporter.rung(door, receipt.as_deref());
                (ledger.door, ledger.receipt) = (Some(door.to_owned()), receipt);
                self.gone_at = None;
                amb_wake::report_rung(office, &snapshot.waiting).await;
            }
            Err(RingError { kind, detail }) => {
                tracing::warn!(detail, "the client could not be woken; its mail waits");
                seen.activity.ring_failed(ring_before);
                if kind == RingErrorKind::Gone {
                    // Another session of the agent may be reachable.
                    self.gone_at = Some(now);
                    self.release();
                }
                self.reporter.failed(kind);
                self.bell.ledger_mut().failed = Some(FailedRing { at: now, detail });
            }
        }
    }
}

/// The key of a client that cannot be rung: the characters of its name that are safe in a file name.
fn key_without_door(client: &str) -> SessionKey {
    let is_plain = |c: &char| c.is_ascii_alphanumeric() || matches!(c, '-' | '_');
    let client: String = client.chars().filter(is_plain).take(CLIENT_CHARS).collect();
    SessionKey {
        client: if client.is_empty() { "unknown".into() } else { client },
        session: Process::me().pid.to_string(),
    }
}

/// The messages that may be rung for: unread, worth a ring, not shown to this client.
async fn read_inbox(
    office: &dyn Mailbox,
    seen: &ClientMemory,
    spent: &mut SpentCache,
) -> Result<InboxSnapshot, OfficeError> {
    let inbox = inbox::all_pages(office, true).await?;
    let mails = inbox.sessions.iter().flat_map(|session| &session.recent_messages);
    let shown = mails.filter(|mail| !mail.is_read && seen.was_shown(mail.id.as_str())).take(MAX_SHOWN);
    let shown = shown.map(|mail| mail.id.clone()).collect();
    let waiting = amb_wake::unread(office, &inbox, spent, |mail| seen.was_shown(mail.id.as_str())).await?;
    Ok(InboxSnapshot { waiting, unread: inbox.unread(), shown })
}
