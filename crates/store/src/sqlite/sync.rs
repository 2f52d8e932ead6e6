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

use rusqlite::Connection;
use rusqlite::config::DbConfig;
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
    /// Transactions whose commit has begun.
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

    /// A sync failed: from now on nothing is taken, and nothing of what was seen is told.
    pub(super) fn fail(&self, error: &dyn std::error::Error) {
        tracing::error!(%error, "the disk failed; the office takes nothing more until it is started again");
        self.synced.send_replace(None);
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

/// The answers of one transaction.
struct Lot {
    replies: Vec<Reply>,
    /// Whether it counts among those that were begun, and has to become durable.
    begun: bool,
}

/// The way to the thread that syncs.
#[derive(Debug)]
pub(super) struct Syncer {
    lots: SyncSender<Lot>,
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

    /// Answers these when all transactions up to theirs are durable. One call for each [`Durability::begin`], whatever
    /// became of the commit; and one with `begun` false for a transaction that changed nothing, which needs no sync of its
    /// own.
    pub(super) fn answer(&self, replies: Vec<Reply>, begun: bool) {
        if begun || !replies.is_empty() {
            // Gone only after a panic, and then every caller learns it from its closed channel.
            let _ = self.lots.send(Lot { replies, begun });
        }
    }

    /// Ends the thread when everything is answered.
    pub(super) fn finish(self) {
        drop(self.lots);
        let _ = self.thread.join();
    }
}

fn run(durability: &Durability, waiting: &Receiver<Lot>, mut sync: impl FnMut() -> io::Result<()>) {
    let (mut done, mut synced) = (0, 0);
    while let Ok(Lot { mut replies, begun }) = waiting.recv() {
        done += u64::from(begun);
        while let Ok(more) = waiting.try_recv() {
            done += u64::from(more.begun);
            replies.extend(more.replies);
        }
        // After a failed sync the kernel may have dropped what it could not write: nothing here can be trusted again.
        if done > synced && durability.holds().is_ok() {
            synced = done;
            match sync() {
                // Unless another sync failed meanwhile.
                Ok(()) => durability.synced.send_modify(|synced| *synced = synced.map(|_| done)),
                Err(error) => durability.fail(&error),
            }
        }
        let holds = durability.holds().is_ok();
        replies.into_iter().for_each(|reply| reply(if holds { Ok(()) } else { Err(failed()) }));
    }
}

/// After a failed sync: makes sure that closing this connection folds nothing of the write-ahead log into the database,
/// because the disk may claim now to have what it did not take. Returns whether that was so.
pub(super) fn keep_log_after_failure(db: &Connection, durability: &Durability) -> bool {
    let failed = durability.holds().is_err();
    if failed && let Err(error) = db.set_db_config(DbConfig::SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE, true) {
        tracing::error!(%error, "the write-ahead log may be folded in after the disk failed");
    }
    failed
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
            syncer.answer(vec![reply(&answers)], true);
            began.recv().unwrap();
            assert!(answered.try_recv().is_err(), "answered while the disk was still at it");
            result.send(outcome).unwrap();
            assert_eq!(answered.recv().unwrap(), expected);
        }
        // No other sync is tried: it would say that all is well.
        durability.begin();
        syncer.answer(vec![reply(&answers)], true);
        assert!(!answered.recv().unwrap());
        assert!(durability.holds().is_err());
        syncer.finish();
    }

    #[test]
    fn a_transaction_that_changed_nothing_waits_for_those_before_it_and_costs_no_sync() {
        let (begin, began) = sync_channel(8);
        let (result, results) = sync_channel::<io::Result<()>>(8);
        let durability = Arc::new(Durability::default());
        let syncer = Syncer::start(durability.clone(), move || {
            begin.send(()).unwrap();
            results.recv().unwrap()
        });
        let syncer = syncer.unwrap();
        let (answers, answered) = sync_channel(8);
        syncer.answer(vec![reply(&answers)], false);
        assert!(answered.recv().unwrap());
        durability.begin();
        syncer.answer(vec![reply(&answers)], true);
        began.recv().unwrap();
        syncer.answer(vec![reply(&answers)], false);
        assert!(answered.try_recv().is_err(), "it may have seen what is not durable yet");
        result.send(Ok(())).unwrap();
        assert!(answered.recv().unwrap() && answered.recv().unwrap());
        syncer.finish();
        assert!(began.try_recv().is_err(), "one sync for one change");
    }

    #[tokio::test]
    async fn what_was_seen_is_told_only_when_it_is_durable() {
        let (result, results) = sync_channel::<io::Result<()>>(8);
        let durability = Arc::new(Durability::default());
        durability.of_what_was_seen().await.unwrap();
        let syncer = Syncer::start(durability.clone(), move || results.recv().unwrap()).unwrap();
        durability.begin();
        syncer.answer(Vec::new(), true);
        let waiting = tokio::spawn({
            let durability = durability.clone();
            async move { durability.of_what_was_seen().await }
        });
        tokio::task::yield_now().await;
        assert!(!waiting.is_finished());
        result.send(Ok(())).unwrap();
        waiting.await.unwrap().unwrap();
        durability.begin();
        syncer.answer(Vec::new(), true);
        result.send(Err(io::Error::other("broken"))).unwrap();
        assert!(durability.of_what_was_seen().await.is_err());
        syncer.finish();
    }
}
