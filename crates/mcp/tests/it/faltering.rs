//! An office that is unreachable for a while, as during a restart.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;

use amb_core::doc::{AgentEntry, History, Inbox, MessageWithReceipts, Sent};
use amb_core::event::EventPage;
use amb_core::mailbox::{ClaimRequest, HistoryPage, Mailbox, Result, TaskFilter};
use amb_core::{AgentName, Card, Cursor, Draft, Message, MessageId, OfficeError, SessionId, Task, TaskId, TaskState};
use amb_testing::memory::MemoryMailbox;
use async_trait::async_trait;
use tokio::sync::watch;

/// A mailbox whose next reads fail.
pub(crate) struct Faltering {
    mailbox: MemoryMailbox,
    /// Reads that still fail.
    left: AtomicUsize,
    failed: AtomicUsize,
    hangs: AtomicBool,
    /// Reads of the log that wait.
    waiting: watch::Sender<usize>,
}

impl Faltering {
    pub(crate) fn new(mailbox: MemoryMailbox) -> Arc<Self> {
        let waiting = watch::Sender::new(0);
        Arc::new(Self {
            mailbox,
            left: AtomicUsize::new(0),
            failed: AtomicUsize::new(0),
            hangs: AtomicBool::new(false),
            waiting,
        })
    }

    pub(crate) fn fail(&self, times: usize) {
        self.left.store(times, Ordering::SeqCst);
    }

    pub(crate) fn failed(&self) -> usize {
        self.failed.load(Ordering::SeqCst)
    }

    /// Waits until somebody waits for events.
    pub(crate) async fn waiting(&self) {
        self.waiting.subscribe().wait_for(|waiting| *waiting > 0).await.unwrap();
    }

    /// From now on no read returns.
    pub(crate) fn hang(&self) {
        self.hangs.store(true, Ordering::SeqCst);
    }

    async fn look(&self) -> Result<()> {
        if self.hangs.load(Ordering::SeqCst) {
            std::future::pending::<()>().await;
        }
        match self.left.fetch_update(Ordering::SeqCst, Ordering::SeqCst, |left| left.checked_sub(1)) {
            Ok(_) => {
                self.failed.fetch_add(1, Ordering::SeqCst);
                Err(OfficeError::unavailable("the office restarts").retry_after(Duration::from_millis(1)))
            }
            Err(_) => Ok(()),
        }
    }
}

#[async_trait]
impl Mailbox for Faltering {
    fn me(&self) -> &AgentName {
        self.mailbox.me()
    }

    fn describe(&self) -> String {
        self.mailbox.describe()
    }

    async fn register(&self, card: Card) -> Result<AgentEntry> {
        self.mailbox.register(card).await
    }

    async fn agents(&self) -> Result<Vec<AgentEntry>> {
        self.mailbox.agents().await
    }

    async fn heartbeat(&self) -> Result<()> {
        self.mailbox.heartbeat().await
    }

    async fn leave(&self) -> Result<()> {
        self.mailbox.leave().await
    }

    async fn send(&self, draft: Draft) -> Result<Sent> {
        self.mailbox.send(draft).await
    }

    async fn inbox(&self, unread_only: bool) -> Result<Inbox> {
        self.look().await?;
        self.mailbox.inbox(unread_only).await
    }

    async fn read(&self, session: &SessionId, page: HistoryPage) -> Result<History> {
        self.mailbox.read(session, page).await
    }

    async fn message(&self, id: &MessageId) -> Result<MessageWithReceipts> {
        self.mailbox.message(id).await
    }

    async fn ack(&self, ids: &[MessageId]) -> Result<u64> {
        self.mailbox.ack(ids).await
    }

    async fn claim(&self, request: ClaimRequest) -> Result<Vec<Message>> {
        self.mailbox.claim(request).await
    }

    async fn release(&self, ids: &[MessageId]) -> Result<()> {
        self.mailbox.release(ids).await
    }

    async fn claimed(&self) -> Result<Vec<Message>> {
        self.mailbox.claimed().await
    }

    async fn tasks(&self, filter: TaskFilter) -> Result<Vec<Task>> {
        self.mailbox.tasks(filter).await
    }

    async fn set_task_state(&self, id: &TaskId, state: TaskState, note: Option<String>) -> Result<Task> {
        self.mailbox.set_task_state(id, state, note).await
    }

    async fn events(&self, since: Option<Cursor>, wait: Duration) -> Result<EventPage> {
        self.look().await?;
        if !wait.is_zero() {
            self.waiting.send_modify(|waiting| *waiting += 1);
        }
        let page = self.mailbox.events(since, wait).await;
        // An office that hangs meanwhile returns nothing any more.
        if self.hangs.load(Ordering::SeqCst) {
            std::future::pending::<()>().await;
        }
        page
    }
}
