//! An office whose calls fail, before or after they took effect.

use std::sync::Mutex;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use amb_core::doc::{AgentEntry, History, Inbox, MessageWithReceipts, Sent};
use amb_core::event::{Cursor, EventPage};
use amb_core::mailbox::{ClaimRequest, HistoryPage, Mailbox, Result, TaskFilter};
use amb_core::{AgentName, Card, Draft, Message, MessageId, OfficeError, SessionId, Task, TaskId, TaskState};
use amb_testing::memory::MemoryMailbox;
use async_trait::async_trait;

pub(crate) struct Flaky {
    mailbox: MemoryMailbox,
    every: AtomicU32,
    calls: AtomicU32,
    refusal: Mutex<Option<OfficeError>>,
}

impl Flaky {
    pub(crate) fn new(mailbox: MemoryMailbox) -> Self {
        Self { mailbox, every: AtomicU32::new(u32::MAX), calls: AtomicU32::new(0), refusal: Mutex::new(None) }
    }

    /// One in n calls fails, before or after it took effect.
    pub(crate) fn fail_every(&self, n: u32) {
        self.every.store(n, Ordering::Relaxed);
    }

    /// The error of the next call.
    pub(crate) fn refuse(&self, error: OfficeError) {
        *self.refusal.lock().unwrap() = Some(error);
    }

    async fn try_it<T>(&self, call: impl Future<Output = Result<T>>) -> Result<T> {
        if let Some(error) = self.refusal.lock().unwrap().take() {
            return Err(error);
        }
        // Scattered, since a fixed interval could hit the same call of the bridge each time.
        let number = self.calls.fetch_add(1, Ordering::Relaxed).wrapping_mul(2_654_435_761) >> 16;
        let fails = number.is_multiple_of(self.every.load(Ordering::Relaxed));
        let before = number.count_ones().is_multiple_of(2);
        if fails && before {
            return Err(OfficeError::unavailable("not now"));
        }
        let done = call.await?;
        if fails { Err(OfficeError::unavailable("done, but nobody heard")) } else { Ok(done) }
    }
}

#[async_trait]
impl Mailbox for Flaky {
    fn me(&self) -> &AgentName {
        self.mailbox.me()
    }

    fn describe(&self) -> String {
        "flaky".into()
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
        self.try_it(self.mailbox.send(draft)).await
    }

    async fn inbox(&self, unread_only: bool) -> Result<Inbox> {
        self.mailbox.inbox(unread_only).await
    }

    async fn read(&self, session: &SessionId, page: HistoryPage) -> Result<History> {
        self.mailbox.read(session, page).await
    }

    async fn message(&self, id: &MessageId) -> Result<MessageWithReceipts> {
        self.try_it(self.mailbox.message(id)).await
    }

    async fn ack(&self, ids: &[MessageId]) -> Result<u64> {
        self.try_it(self.mailbox.ack(ids)).await
    }

    async fn claim(&self, request: ClaimRequest) -> Result<Vec<Message>> {
        // A claim whose response is lost is released only when its lease expires, so this call fails before it takes
        // effect.
        if let Some(error) = self.refusal.lock().unwrap().take() {
            return Err(error);
        }
        self.mailbox.claim(request).await
    }

    async fn release(&self, ids: &[MessageId]) -> Result<()> {
        self.try_it(self.mailbox.release(ids)).await
    }

    async fn tasks(&self, filter: TaskFilter) -> Result<Vec<Task>> {
        self.try_it(self.mailbox.tasks(filter)).await
    }

    async fn set_task_state(&self, id: &TaskId, state: TaskState, note: Option<String>) -> Result<Task> {
        self.try_it(self.mailbox.set_task_state(id, state, note)).await
    }

    async fn events(&self, since: Option<Cursor>, wait: Duration) -> Result<EventPage> {
        self.try_it(self.mailbox.events(since, wait)).await
    }
}
