//! Making commits durable.
//!
//! The writer commits without a sync. This thread syncs the write-ahead log, and only then are the operations answered: the
//! writer works on the next transaction while the disk works on this one, and one sync serves all that were committed
//! before it began. SQLite itself still syncs around checkpoints, as it does for `synchronous = NORMAL`.

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::thread::JoinHandle;

use tokio::sync::watch;

use crate::StoreError;
use crate::error::Result;

/// Answers an operation, once it is known whether what it did will last.
pub(super) type Reply = Box<dyn FnOnce(Result<()>) + Send>;

/// Transactions that may wait for the disk. Beyond this the writer waits too, and its next transaction grows meanwhile.
const WAITING: usize = 1;

/// How far the disk is behind the writer. What a reader saw is told to nobody before it is durable, or else a failing power
/// supply could take back what somebody has read.
#[derive(Debug)]
pub(super) struct Durability {
    /// Transactions whose commit has begun, but for those that only sort: what they show was shown, durable, in the tray.
    begun: AtomicU64,
    /// Transactions that are durable; `None` once the disk failed.
    synced: watch::Sender<Option<u64>>,
}

impl Default for Durability {
    fn default() -> Self {
        Self { begun: AtomicU64::new(0), synced: watch::Sender::new(Some(0)) }
    }
}

impl Durability {
    /// Waits until everything that could be seen by now is durable.
    pub(super) async fn of_what_was_seen(&self) -> Result<()> {
        let begun = self.begun();
        let reached = |synced: &Option<u64>| synced.is_none_or(|synced| synced >= begun);
        let mut synced = *self.synced.borrow();
        if !reached(&synced) {
            synced = *self.synced.subscribe().wait_for(reached).await.map_err(StoreError::internal)?;
        }
        synced.map(drop).ok_or_else(failed)
    }

    /// Whether the disk still does what it is told.
    pub(super) fn holds(&self) -> Result<()> {
        self.synced.borrow().map(drop).ok_or_else(failed)
    }

    /// Transactions whose commit has begun.
    pub(super) fn begun(&self) -> u64 {
        self.begun.load(Ordering::Acquire)
    }

    /// To be called before a commit: whoever sees what it wrote then waits for it.
    pub(super) fn begin(&self) {
        self.begun.fetch_add(1, Ordering::AcqRel);
    }
}

/// The way to the thread that syncs.
#[derive(Debug)]
pub(super) struct Syncer {
    lots: SyncSender<Vec<Reply>>,
    thread: JoinHandle<()>,
}

impl Syncer {
    /// Starts the thread; `sync` makes everything durable that was committed before it is called.
    pub(super) fn start(
        durability: Arc<Durability>,
        sync: impl FnMut() -> io::Result<()> + Send + 'static,
    ) -> io::Result<Self> {
        let (lots, waiting) = sync_channel(WAITING);
        let thread = std::thread::Builder::new()
            .name("amb-sqlite-sync".into())
            .spawn(move || run(&durability, &waiting, sync))?;
        Ok(Self { lots, thread })
    }

    /// Answers these after the next sync. One call for each [`Durability::begin`], whatever became of the commit.
    pub(super) fn answer(&self, lot: Vec<Reply>) {
        // Gone only after a panic, and then every caller learns it from its closed channel.
        let _ = self.lots.send(lot);
    }

    /// Ends the thread when everything is answered.
    pub(super) fn finish(self) {
        drop(self.lots);
        let _ = self.thread.join();
    }
}

fn run(durability: &Durability, waiting: &Receiver<Vec<Reply>>, mut sync: impl FnMut() -> io::Result<()>) {
    let mut done = 0;
    while let Ok(mut lot) = waiting.recv() {
        done += 1;
        while let Ok(more) = waiting.try_recv() {
            done += 1;
            lot.extend(more);
        }
        // After a failed sync the kernel may have dropped what it could not write: nothing here can be trusted again.
        if durability.holds().is_ok() {
            let synced = sync().inspect_err(|error| {
                tracing::error!(%error, "the disk failed; the office takes nothing more until it is started again");
            });
            durability.synced.send_replace(synced.ok().map(|()| done));
        }
        let holds = durability.holds().is_ok();
        lot.into_iter().for_each(|reply| reply(if holds { Ok(()) } else { Err(failed()) }));
    }
}

fn failed() -> StoreError {
    StoreError::unavailable(
        "the office's disk failed: what was sent just now may be lost, and nothing more is taken until the office is \
         started again",
    )
}

#[cfg(test)]
mod tests {

    use super::*;

    fn reply(answers: &SyncSender<bool>) -> Reply {
        let answers = answers.clone();
        Box::new(move |outcome| answers.send(outcome.is_ok()).unwrap())
    }

    #[test]
    fn nothing_is_answered_before_the_sync_and_nothing_is_well_after_a_failed_one() {
        let (begin, began) = sync_channel(8);
        let (result, results) = sync_channel::<io::Result<()>>(8);
        let durability = Arc::new(Durability::default());
        let syncer = Syncer::start(durability.clone(), move || {
            begin.send(()).unwrap();
            results.recv().unwrap()
        });
        let syncer = syncer.unwrap();
        let (answers, answered) = sync_channel(8);
        for (outcome, expected) in [(Ok(()), true), (Err(io::Error::other("broken")), false)] {
            durability.begin();
            syncer.answer(vec![reply(&answers)]);
            began.recv().unwrap();
            assert!(answered.try_recv().is_err(), "answered while the disk was still at it");
            result.send(outcome).unwrap();
            assert_eq!(answered.recv().unwrap(), expected);
        }
        // No other sync is tried: it would say that all is well.
        durability.begin();
        syncer.answer(vec![reply(&answers)]);
        assert!(!answered.recv().unwrap());
        assert!(durability.holds().is_err());
        syncer.finish();
    }

    #[tokio::test]
    async fn what_was_seen_is_told_only_when_it_is_durable() {
        let (result, results) = sync_channel::<io::Result<()>>(8);
        let durability = Arc::new(Durability::default());
        durability.of_what_was_seen().await.unwrap();
        let syncer = Syncer::start(durability.clone(), move || results.recv().unwrap()).unwrap();
        durability.begin();
        syncer.answer(Vec::new());
        let waiting = tokio::spawn({
            let durability = durability.clone();
            async move { durability.of_what_was_seen().await }
        });
        tokio::task::yield_now().await;
        assert!(!waiting.is_finished());
        result.send(Ok(())).unwrap();
        waiting.await.unwrap().unwrap();
        durability.begin();
        syncer.answer(Vec::new());
        result.send(Err(io::Error::other("broken"))).unwrap();
        assert!(durability.of_what_was_seen().await.is_err());
        syncer.finish();
    }
}
