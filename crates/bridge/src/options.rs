//! How a bridge works, and the steps at which it can be interrupted.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use amb_core::Backoff;

/// Added to a turn's time before the bridge stops waiting for a runtime that should have spoken by then.
pub(crate) const OVERTIME: Duration = Duration::from_secs(30);
/// Added to that for the claim, so that nobody else takes a mail whose turn is still running.
const LEASE_MARGIN: Duration = Duration::from_secs(60);

/// How many turns run at once by default.
pub const DEFAULT_CONCURRENCY: usize = 4;
/// How long a mail that failed holds back its thread: five tries with the usual waits between them take 15 seconds and their
/// turns.
const DEFAULT_HOLD_THREAD: Duration = Duration::from_secs(60);

/// Which conversation of the runtime a mail goes to. A thread stays in the conversation in which it began.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Conversations {
    /// One for each thread.
    Thread,
    /// One for each peer: what stands before the peer's name.
    Peer(String),
    /// One for all mail.
    One(String),
}

/// What is done about a task before its turn, and what an answer means that says nothing about it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Tasks {
    /// Nothing: the turn decides. A plain answer is sent as words, and the task stays as it is.
    Ask,
    /// The task is accepted before the turn; a plain answer completes it.
    Accept,
}

/// Told the description of a runtime that takes turns.
pub type OnReady = Arc<dyn Fn(&str) + Send + Sync>;

/// How a bridge works.
#[derive(Clone)]
pub struct Options {
    /// How long a turn may take.
    pub turn_timeout: Duration,
    /// After so many failures a mail is given up.
    pub max_failures: u32,
    /// How many turns run at once. Those of one conversation follow each other.
    pub concurrency: usize,
    /// Which conversation of the runtime a mail goes to.
    pub conversations: Conversations,
    /// What is done about a task before its turn, and what an answer means that says nothing about it.
    pub tasks: Tasks,
    /// The conversation that is told of requests for a connection. None where nobody is there to be told.
    pub requests: Option<String>,
    /// How long to wait after a failure.
    pub backoff: Backoff,
    /// How long a mail that failed holds back what came after it in its thread. Then those go first.
    pub hold_thread: Duration,
    /// Called with the runtime's description when it was found to take turns: at the start, and after it was down.
    pub on_ready: Option<OnReady>,
    /// Called between any two steps. Tests end the bridge there, as a crash would.
    pub checkpoint: Option<Arc<dyn Fn(Step) + Send + Sync>>,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            turn_timeout: Duration::from_secs(120),
            max_failures: 5,
            concurrency: DEFAULT_CONCURRENCY,
            conversations: Conversations::Thread,
            tasks: Tasks::Ask,
            requests: None,
            backoff: Backoff::default(),
            hold_thread: DEFAULT_HOLD_THREAD,
            on_ready: None,
            checkpoint: None,
        }
    }
}

impl fmt::Debug for Options {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Options")
            .field("turn_timeout", &self.turn_timeout)
            .field("max_failures", &self.max_failures)
            .field("concurrency", &self.concurrency)
            .field("conversations", &self.conversations)
            .field("tasks", &self.tasks)
            .field("requests", &self.requests)
            .field("backoff", &self.backoff)
            .field("hold_thread", &self.hold_thread)
            .finish_non_exhaustive()
    }
}

impl Options {
    /// The longest that the bridge itself waits for a turn.
    pub(crate) fn longest_turn(&self) -> Duration {
        self.turn_timeout.saturating_add(OVERTIME)
    }

    /// For how long a mail is claimed: enough for a turn that begins now.
    pub(crate) fn lease(&self) -> Duration {
        self.longest_turn().saturating_add(LEASE_MARGIN)
    }

    pub(crate) fn reached(&self, step: Step) {
        if let Some(checkpoint) = &self.checkpoint {
            checkpoint(step);
        }
    }
}

/// The steps of a mail, each of which a crash may follow.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Step {
    /// The mail is claimed.
    Claimed,
    /// It is written down that its turn begins; a task is taken on.
    Begun,
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
    pub const ALL: [Step; 6] =
        [Step::Claimed, Step::Begun, Step::Turned, Step::Recorded, Step::Replied, Step::Acknowledged];
}
