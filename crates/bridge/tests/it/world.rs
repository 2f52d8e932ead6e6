//! Two agents, a gateway and a bridge between them.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use amb_bridge::openclaw::{Gateway as Reached, GatewayRoute};
use amb_bridge::{Bridge, BridgeOptions, BridgeStatus, Conversations, Ledger, Runtime, Step, TaskHandling};
use amb_core::mailbox::{HistoryPage, Mailbox};
use amb_core::{Backoff, Draft, MessageId, OfficeError, SessionId};
use amb_testing::memory::{MemoryMailbox, MemoryOffice};
use tokio::sync::oneshot;
use tokio::task::JoinHandle;

use crate::gateway::Gateway;

pub(crate) const ROUTES: [GatewayRoute; 3] = [GatewayRoute::Chat, GatewayRoute::WebSocket, GatewayRoute::SessionsSend];

/// A message that was sent to the bridged agent.
pub(crate) struct Mail {
    pub(crate) id: MessageId,
    pub(crate) session: SessionId,
}

pub(crate) struct World {
    pub(crate) office: Arc<MemoryOffice>,
    pub(crate) alice: MemoryMailbox,
    pub(crate) bob: MemoryMailbox,
    pub(crate) gateway: Gateway,
    pub(crate) state: tempfile::TempDir,
    sent: AtomicUsize,
}

/// A running bridge.
pub(crate) struct Running {
    task: JoinHandle<Result<(), OfficeError>>,
    stop: Option<oneshot::Sender<()>>,
    ledger: PathBuf,
}

impl Running {
    /// Shuts it down.
    pub(crate) async fn stop(mut self) {
        let _ = self.stop.take().unwrap().send(());
        self.task.await.unwrap().unwrap();
    }

    /// Stops it as kill -9 does: it releases nothing.
    pub(crate) async fn kill(self) {
        self.task.abort();
        let _ = self.task.await;
        ledger_is_unlocked(&self.ledger).await;
    }

    /// Waits until it has died at a checkpoint.
    pub(crate) async fn dies(self) {
        let ended = tokio::time::timeout(Duration::from_secs(20), self.task).await.expect("it goes on living");
        assert!(ended.unwrap_err().is_panic());
        ledger_is_unlocked(&self.ledger).await;
    }

    pub(crate) async fn ends(self) -> Result<(), OfficeError> {
        tokio::time::timeout(Duration::from_secs(20), self.task).await.expect("it goes on").unwrap()
    }
}

impl World {
    pub(crate) async fn new() -> Self {
        let office = MemoryOffice::new();
        let (alice, bob) = (office.mailbox("alice".parse().unwrap()), office.mailbox("bob".parse().unwrap()));
        let state = tempfile::tempdir().unwrap();
        Self { office, alice, bob, gateway: Gateway::start().await, state, sent: AtomicUsize::new(0) }
    }

    pub(crate) fn ledger(&self) -> PathBuf {
        self.state.path().join("bob")
    }

    pub(crate) fn openclaw(&self, route: Option<GatewayRoute>) -> Arc<dyn Runtime> {
        Arc::new(Reached::new(&self.gateway.url(), "secret".into()).unwrap().route(route))
    }

    /// Bob's bridge.
    pub(crate) fn start(&self, route: GatewayRoute, options: BridgeOptions) -> Running {
        self.start_with(self.openclaw(Some(route)), options)
    }

    pub(crate) fn start_with(&self, runtime: Arc<dyn Runtime>, options: BridgeOptions) -> Running {
        start(Arc::new(self.bob.clone()), runtime, &self.ledger(), options)
    }

    /// Alice writes to bob, in a session of its own.
    pub(crate) async fn mail(&self) -> Mail {
        let number = self.sent.fetch_add(1, Ordering::Relaxed);
        let draft = Draft::text("bob".parse().unwrap(), format!("subject {number}"), format!("question {number}"));
        let sent = self.alice.send(draft).await.unwrap();
        Mail { id: sent.message_id, session: sent.session_id }
    }

    /// Alice writes to bob, in this session.
    pub(crate) async fn mail_in(&self, session: &SessionId, text: &str) -> Mail {
        let draft = Draft { session: Some(session.clone()), ..Draft::text("bob".parse().unwrap(), "", text) };
        let sent = self.alice.send(draft).await.unwrap();
        Mail { id: sent.message_id, session: sent.session_id }
    }

    /// Bob's answers, oldest first, without task updates.
    pub(crate) async fn replies(&self, mail: &Mail) -> Vec<String> {
        let history = self.alice.read(&mail.session, HistoryPage::newest(50).unwrap()).await.unwrap();
        let by_bob =
            |m: &amb_core::doc::MessageView| m.sender_name.as_str() == "bob" && m.kind != amb_core::Kind::TaskUpdate;
        let mut said: Vec<_> = history.messages.into_iter().filter(by_bob).map(|m| m.content).collect();
        said.reverse();
        said
    }

    pub(crate) async fn is_answered(&self, mail: &Mail) {
        until("an answer", async || !self.replies(mail).await.is_empty()).await;
    }

    /// Waits until all mail sent so far is handled: a later one has its answer.
    pub(crate) async fn settle(&self) {
        let marker = self.mail().await;
        self.is_answered(&marker).await;
    }

    /// Asserts that there is one answer, the model's, also after all mail was handled.
    pub(crate) async fn has_one_answer(&self, mail: &Mail, what: &str) {
        self.is_answered(mail).await;
        self.settle().await;
        assert_eq!(self.replies(mail).await, [format!("answer to {}", mail.id)], "{what}");
    }

    pub(crate) fn status(&self) -> Option<BridgeStatus> {
        Ledger::open_read_only(&self.ledger()).status().unwrap()
    }

    pub(crate) async fn status_says(&self, what: &str, is: impl Fn(&BridgeStatus) -> bool) -> BridgeStatus {
        until(what, async || self.status().is_some_and(|status| is(&status))).await;
        self.status().unwrap()
    }
}

/// Waits until the ledger is unlocked: the turns of a bridge that died end a moment after it.
async fn ledger_is_unlocked(ledger: &Path) {
    until("end of its turns", async || !Ledger::open_read_only(ledger).is_held().unwrap()).await;
}

pub(crate) fn start(
    office: Arc<dyn Mailbox>,
    runtime: Arc<dyn Runtime>,
    ledger: &Path,
    options: BridgeOptions,
) -> Running {
    let (stop, stopped) = oneshot::channel();
    let bridge = Bridge::new(office, runtime, Ledger::open(ledger).unwrap(), options);
    let task = tokio::spawn(bridge.run(async {
        let _ = stopped.await;
    }));
    Running { task, stop: Some(stop), ledger: ledger.to_owned() }
}

/// Short waits, so that tests are quick; one message at a time, so that a later one's answer means that all before it
/// are done.
pub(crate) fn quick() -> BridgeOptions {
    BridgeOptions {
        turn_timeout: Duration::from_millis(800),
        concurrency: 1,
        conversations: Conversations::One("agent:main:main".into()),
        tasks: TaskHandling::Accept,
        backoff: Backoff::new(Duration::from_millis(5), Duration::from_millis(40)),
        ..BridgeOptions::default()
    }
}

/// Options with which the bridge dies when it first reaches this step, without a panic message.
pub(crate) fn deadly(step: Step) -> BridgeOptions {
    let died = AtomicUsize::new(0);
    let checkpoint = move |reached| {
        if reached == step && died.fetch_add(1, Ordering::Relaxed) == 0 {
            std::panic::resume_unwind(Box::new("killed"));
        }
    };
    BridgeOptions { checkpoint: Some(Arc::new(checkpoint)), ..quick() }
}

/// Polls until the condition holds.
pub(crate) async fn until(what: &str, is: impl AsyncFn() -> bool) {
    let deadline = tokio::time::Instant::now() + Duration::from_secs(20);
    while !is().await {
        assert!(tokio::time::Instant::now() < deadline, "still no {what}");
        tokio::time::sleep(Duration::from_millis(3)).await;
    }
}
