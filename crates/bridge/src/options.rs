//! The options of a bridge, and the steps at which it can be interrupted.

use std::sync::Arc;
use std::time::Duration;

use amb_core::Backoff;

/// Added to a turn's limit before the bridge stops waiting for a runtime that should have responded by then.
pub(crate) const OVERTIME: Duration = Duration::from_secs(30);
/// Added to that for the lease, so that nobody else claims a message whose turn is still running.
const LEASE_MARGIN: Duration = Duration::from_secs(60);

/// How many turns run at once by default.
pub const DEFAULT_CONCURRENCY: usize = 4;
/// How long a message that failed holds back its session: five attempts with the default backoff take 15 seconds plus
/// their turns.
const DEFAULT_HOLD_SESSION: Duration = Duration::from_secs(60);

/// Which conversation of the runtime a message goes to. A session stays in the conversation in which it began.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Conversations {
    /// One for each session.
    Session,
    /// One for each peer; the prefix of its key.
    Peer(String),
    /// One for all messages.
    One(String),
}

/// Whether a task is accepted before its turn, and what an answer without a directive does to it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum TaskHandling {
    /// The turn decides. A plain answer is sent as a message, and the task keeps its state.
    Ask,
    /// The task is accepted before the turn; a plain answer completes it.
    Accept,
}

/// Called with the description of a runtime that takes turns.
pub type OnReady = Arc<dyn Fn(&str) + Send + Sync>;

/// The options of a bridge.
#[derive(Clone)]
pub struct BridgeOptions {
    /// How long a turn may take.
    pub turn_timeout: Duration,
    /// After so many failures a message becomes a dead letter.
    pub max_failures: u32,
    /// How many turns run at once. Those of one conversation run one after the other.
    pub concurrency: usize,
    /// Which conversation of the runtime a message goes to.
    pub conversations: Conversations,
    /// Whether a task is accepted before its turn.
    pub tasks: TaskHandling,
    /// The conversation in which connection requests are reported; `None` to only log them.
    pub requests: Option<String>,
    /// The delay after a failure.
    pub backoff: Backoff,
    /// How long a message that failed holds back later ones of its session.
    pub hold_session: Duration,
    /// Called with the runtime's description when it is ready: at the start, and after it was down.
    pub on_ready: Option<OnReady>,
    /// Called after each step. Tests stop the bridge there, as a crash would.
    pub checkpoint: Option<Arc<dyn Fn(Step) + Send + Sync>>,
}

impl Default for BridgeOptions {
    fn default() -> Self {
        Self {
            turn_timeout: Duration::from_secs(120),
            max_failures: 5,
            concurrency: DEFAULT_CONCURRENCY,
            conversations: Conversations::Session,
            tasks: TaskHandling::Ask,
            requests: None,
            backoff: Backoff::default(),
            hold_session: DEFAULT_HOLD_SESSION,
            on_ready: None,
            checkpoint: None,
        }
    }
}

impl BridgeOptions {
    /// The longest that the bridge itself waits for a turn.
    pub(crate) fn longest_turn(&self) -> Duration {
        self.turn_timeout.saturating_add(OVERTIME)
    }

    /// The lease of a claim: enough for a turn that begins now.
    pub(crate) fn lease(&self) -> Duration {
        self.longest_turn().saturating_add(LEASE_MARGIN)
    }

    pub(crate) fn reached(&self, step: Step) {
        if let Some(checkpoint) = &self.checkpoint {
            checkpoint(step);
        }
    }
}

/// The steps of handling a message; a crash may follow each of them.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Step {
    /// The message is claimed.
    Claimed,
    /// The ledger says that its turn begins; a task is accepted.
    Begun,
    /// The turn has ended; its answer is only in memory.
    Turned,
    /// The answer is in the ledger.
    Recorded,
    /// The answer was sent.
    Replied,
    /// The message is acknowledged.
    Acknowledged,
}

impl Step {
    /// All of them, in order.
    pub const ALL: [Step; 6] =
        [Step::Claimed, Step::Begun, Step::Turned, Step::Recorded, Step::Replied, Step::Acknowledged];
}
