//! Interruptible waits of a mailbox's threads.

use parking_lot::Mutex;
use tokio::sync::Notify;

/// Waits that other threads can end.
#[derive(Default)]
pub(crate) struct Waits {
    state: Mutex<WaitState>,
    wake: Notify,
}

#[derive(Default)]
struct WaitState {
    waiting: usize,
    /// Woken while nobody waited: the next wait ends at once.
    woken: bool,
    closed: bool,
}

impl Waits {
    /// Ends all waits; if there are none, the following one.
    pub(crate) fn wake(&self) {
        let mut state = self.state.lock();
        match state.waiting {
            0 => state.woken = true,
            _ => self.wake.notify_waiters(),
        }
    }

    /// Ends all waits, for good. Returns whether it was the first call.
    pub(crate) fn close(&self) -> bool {
        let mut state = self.state.lock();
        self.wake.notify_waiters();
        !std::mem::replace(&mut state.closed, true)
    }

    pub(crate) fn is_closed(&self) -> bool {
        self.state.lock().closed
    }

    /// Runs `work`, which gets a future that ends when it is to stop waiting. If it was woken before, that future has
    /// ended already.
    pub(crate) async fn run<T, W>(&self, work: impl FnOnce(StopSignal) -> W) -> Option<T>
    where
        W: Future<Output = T>,
    {
        let mut stop = Box::pin(self.wake.notified());
        {
            let mut state = self.state.lock();
            if state.closed || std::mem::take(&mut state.woken) {
                return None;
            }
            stop.as_mut().enable();
            state.waiting += 1;
        }
        let (ended, when_ended) = tokio::sync::oneshot::channel();
        let _waiting = CountedWait(self);
        let mut work = std::pin::pin!(work(StopSignal(when_ended)));
        tokio::select! {
            done = &mut work => return Some(done),
            () = stop => {}
        }
        // An error means that the work has ended.
        let _over = ended.send(());
        Some(work.await)
    }
}

/// Ends when the work is to stop waiting.
pub(crate) struct StopSignal(tokio::sync::oneshot::Receiver<()>);

impl StopSignal {
    pub(crate) async fn ended(self) {
        // The sender is dropped only when the work has ended.
        let _told = self.0.await;
    }
}

struct CountedWait<'w>(&'w Waits);

impl Drop for CountedWait<'_> {
    fn drop(&mut self) {
        self.0.state.lock().waiting -= 1;
    }
}
