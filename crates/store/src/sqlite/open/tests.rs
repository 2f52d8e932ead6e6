//! Tests of the write-ahead log and of failed syncs.

use std::io;
use std::sync::atomic::{AtomicUsize, Ordering};

use super::*;
use crate::testing::new_agent;
use crate::{AgentVerbs, LogVerbs, PruneVerbs, ReceiptVerbs, Store};

#[tokio::test]
async fn a_log_left_by_a_killed_process_is_synced_before_anything_is_read() {
    let directory = tempfile::tempdir().unwrap();
    let (first, crashed) = (directory.path().join("mail.db"), directory.path().join("crashed.db"));
    let store = SqliteStore::open(&first).await.unwrap();
    for suffix in ["", "-wal"] {
        let of = |path: &Path| format!("{}{suffix}", path.display());
        fs_err::copy(of(&first), of(&crashed)).unwrap();
    }
    fs_err::copy(format!("{}-wal", first.display()), format!("{}-left", crashed.display())).unwrap();
    store.close().await;
    let synced = Arc::new(AtomicUsize::new(0));
    let count = synced.clone();
    let path = crashed.clone();
    let opened = tokio::task::spawn_blocking(move || {
        SqliteStore::open_now(&path, move |log| {
            assert!(log.metadata()?.len() > 0, "the log that was left");
            count.fetch_add(1, Ordering::SeqCst);
            Ok(())
        })
    });
    let store = opened.await.unwrap().unwrap();
    assert_eq!(synced.load(Ordering::SeqCst), 1);
    store.close().await;
    // The log as it was left, without a checkpoint.
    fs_err::copy(format!("{}-left", crashed.display()), format!("{}-wal", crashed.display())).unwrap();
    let before = fs_err::read(&crashed).unwrap();
    let path = crashed.clone();
    let refused =
        tokio::task::spawn_blocking(move || SqliteStore::open_now(&path, |_| Err(io::Error::other("broken"))));
    assert!(refused.await.unwrap().is_err(), "a failed sync fails the opening");
    assert!(fs_err::read(&crashed).unwrap() == before, "no checkpoint after a failed sync");
    assert!(fs_err::metadata(format!("{}-wal", crashed.display())).unwrap().len() > 0);
}

#[tokio::test]
async fn reads_and_unchanged_transactions_cost_no_commit() {
    let directory = tempfile::tempdir().unwrap();
    let store = SqliteStore::open(&directory.path().join("mail.db")).await.unwrap();
    let now = amb_core::Timestamp::now();
    let alice = store.register_agent(new_agent("alice"), now).await.unwrap().answer;
    let before = store.disk.commits();
    for _ in 0..3 {
        store.ready().await.unwrap();
        store.inbox(&alice, false, now).await.unwrap();
        store.events(alice.key, 0, 10).await.unwrap();
        // Transactions that change nothing.
        store.delivered(&alice, 0, 10, now).await.unwrap();
        store.prune(now).await.unwrap();
    }
    assert_eq!(store.disk.commits(), before);
    store.close().await;
}

#[tokio::test]
async fn after_a_failed_sync_nothing_is_accepted_or_checkpointed() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("mail.db");
    let store = SqliteStore::open(&path).await.unwrap();
    store.ready().await.unwrap();
    store.disk.fail(&io::Error::other("broken"));
    let refused = store.register_agent(new_agent("alice"), amb_core::Timestamp::now()).await.unwrap_err();
    assert_eq!(refused.code(), amb_core::Code::Unavailable);
    let before = fs_err::read(&path).unwrap();
    store.close().await;
    assert!(fs_err::read(&path).unwrap() == before, "closing does not change the database file");
    let log = fs_err::metadata(format!("{}-wal", path.display())).unwrap();
    assert!(log.len() > 0, "nor the write-ahead log");
}

#[test]
fn the_writer_syncs_at_each_commit() {
    let directory = tempfile::tempdir().unwrap();
    let db = Connection::open(directory.path().join("mail.db")).unwrap();
    prepare_writer(&db).unwrap();
    let full = 2;
    assert_eq!(db.pragma_query_value(None, "synchronous", |row| row.get::<_, i64>(0)).unwrap(), full);
}
