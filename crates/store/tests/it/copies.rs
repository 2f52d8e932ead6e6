//! Backup and restore of a SQLite file.

use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use amb_core::mailbox::SearchQuery;
use amb_core::{Code, SessionId};
use amb_store::{Agent, Contents, Restored, Result, SqliteStore};
use amb_testing::SqliteFile;
use amb_testing::store::TestStore;
use tempfile::TempDir;

async fn open(file: &SqliteFile) -> TestStore {
    TestStore(Arc::new(SqliteStore::open(&file.path()).await.unwrap()))
}

async fn backup(file: &SqliteFile, to: &Path, replace: bool) -> Result<Contents> {
    amb_store::backup(&file.path(), to, replace, |_| {}).await
}

async fn restore(from: &Path, file: &SqliteFile) -> Result<Restored> {
    amb_store::restore(from, &file.path(), |_| {}).await
}

fn names_in(directory: &Path) -> Vec<String> {
    let entries = fs_err::read_dir(directory).unwrap();
    let mut names: Vec<_> = entries.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
    names.sort();
    names
}

/// An open office with one message, and a backup of it.
struct Backed {
    file: SqliteFile,
    store: TestStore,
    alice: Agent,
    bob: Agent,
    session: SessionId,
    /// The directory of the backup.
    copies: TempDir,
    copy: PathBuf,
}

async fn backed(text: &str) -> Backed {
    let file = SqliteFile::fresh();
    let store = open(&file).await;
    let (alice, bob) = store.pair().await;
    let session = store.say(&alice, &bob, "Plan", text).await.answer.session_id;
    let copies = tempfile::tempdir().unwrap();
    let copy = copies.path().join("copy");
    backup(&file, &copy, false).await.unwrap();
    Backed { file, store, alice, bob, session, copies, copy }
}

#[tokio::test]
async fn a_backup_of_an_open_office_is_complete_and_private() {
    let file = SqliteFile::fresh();
    let store = open(&file).await;
    let (alice, bob) = store.pair().await;
    let session = store.say(&alice, &bob, "Plan", "before").await.answer.session_id;
    let copy = SqliteFile::fresh();
    let contents = backup(&file, &copy.path(), false).await.unwrap();
    assert_eq!((contents.agents, contents.messages), (2, 1));
    assert_eq!(fs_err::metadata(copy.path()).unwrap().permissions().mode() & 0o777, 0o600);
    assert_eq!(names_in(copy.path().parent().unwrap()), ["mail.db"], "no other files are left");
    store.say(&alice, &bob, "Plan", "after").await;
    assert_eq!(
        backup(&file, &copy.path(), false).await.unwrap_err().code(),
        Code::Conflict,
        "an existing file is not replaced"
    );
    let copied = open(&copy).await;
    assert_eq!(copied.texts(&bob, &session, 3).await, ["before"]);
    copied.say(&alice, &bob, "Plan", "on").await;
    copied.close().await;
    assert_eq!(backup(&file, &copy.path(), true).await.unwrap().messages, 2, "unless `replace` is set");
    store.say(&alice, &bob, "Plan", "still at work").await;
}

#[tokio::test]
async fn a_backup_during_many_sends_has_each_session_without_a_gap() {
    let file = SqliteFile::fresh();
    let store = open(&file).await;
    let (alice, bob) = store.pair().await;
    let session = store.say(&alice, &bob, "Plan", "0").await.answer.session_id;
    let storm = tokio::spawn({
        let (store, alice, bob) = (store.clone(), alice.clone(), bob.clone());
        async move {
            for n in 1.. {
                store.say(&alice, &bob, "Plan", &n.to_string()).await;
            }
        }
    });
    let mut counts = Vec::new();
    for _ in 0..5 {
        let copy = SqliteFile::fresh();
        let contents = backup(&file, &copy.path(), false).await.unwrap();
        let copied = open(&copy).await;
        let texts = copied.texts(&alice, &session, u32::MAX).await;
        let expected: Vec<_> = (0..contents.messages).rev().map(|n| n.to_string()).collect();
        assert_eq!(texts, expected);
        counts.push(contents.messages);
        copied.close().await;
    }
    storm.abort();
    assert!(counts.is_sorted(), "{counts:?}");
}

#[tokio::test]
async fn a_restore_replaces_the_database_and_keeps_the_previous_one() {
    let Backed { file, store, alice, bob, session, copies: _copies, copy } = backed("before").await;
    let lost = store.say(&alice, &bob, "Plan", "after").await.entries.remove(0).entry;
    while store.index_mail().await.unwrap() > 0 {}
    let refused = restore(&copy, &file).await.unwrap_err();
    assert!(refused.detail().contains("another server"), "{refused}");
    store.close().await;
    drop(store);

    let restored = restore(&copy, &file).await.unwrap();
    assert_eq!(restored.contents.messages, 1);
    let store = open(&file).await;
    assert_eq!(store.texts(&bob, &session, 9).await, ["before"]);
    while store.index_mail().await.unwrap() > 0 {}
    let search = async |text: &str| {
        let query = SearchQuery { text: text.into(), ..SearchQuery::default() };
        store.search(&bob, query).await.unwrap().len()
    };
    assert_eq!((search("before").await, search("after").await), (1, 0), "the index is that of the backup");
    // A client with the cursor of a lost message sees all new mail.
    let known = lost.cursor.as_number().unwrap();
    let next = store.say(&alice, &bob, "Plan", "again").await.entries.remove(0).entry;
    assert!(next.cursor.as_number().unwrap() > known, "{next:?}");
    assert_eq!(store.events(bob.key, known, 9).await.unwrap(), [next]);
    while store.index_mail().await.unwrap() > 0 {}
    assert_eq!(search("again").await, 1);
    store.close().await;

    let kept = restored.kept.unwrap();
    assert_eq!(kept.parent(), file.path().parent());
    assert_eq!(restore(&kept, &file).await.unwrap().contents.messages, 2, "the restore can be undone");
    let store = open(&file).await;
    assert_eq!(store.texts(&bob, &session, 9).await, ["after", "before"]);
}

#[tokio::test]
async fn a_damaged_or_foreign_backup_is_refused_and_changes_nothing() {
    let file = SqliteFile::fresh();
    let store = open(&file).await;
    let (alice, bob) = store.pair().await;
    for n in 0..300 {
        store.say(&alice, &bob, "Plan", &format!("{n} {}", "x".repeat(400))).await;
    }
    let copies = tempfile::tempdir().unwrap();
    let copy = copies.path().join("copy");
    backup(&file, &copy, false).await.unwrap();
    store.close().await;
    let before = names_in(file.path().parent().unwrap());

    let bytes = fs_err::read(&copy).unwrap();
    let torn = copies.path().join("torn");
    fs_err::write(&torn, &bytes[..bytes.len() / 2]).unwrap();
    let flipped = copies.path().join("flipped");
    let mut changed = bytes.clone();
    for byte in changed.iter_mut().skip(40_000).take(3_000) {
        *byte ^= 0x55;
    }
    fs_err::write(&flipped, &changed).unwrap();
    let text = copies.path().join("text");
    fs_err::write(&text, "not a database").unwrap();
    let other = copies.path().join("other");
    rusqlite::Connection::open(&other).unwrap().execute_batch("CREATE TABLE t (x)").unwrap();
    let newer = copies.path().join("newer");
    fs_err::write(&newer, &bytes).unwrap();
    let db = rusqlite::Connection::open(&newer).unwrap();
    db.execute("UPDATE refinery_schema_history SET version = 999 WHERE version = 1", []).unwrap();
    drop(db);
    for bad in [&torn, &flipped, &text, &other, &newer] {
        let refused = restore(bad, &file).await.unwrap_err();
        assert_eq!(refused.code(), Code::Invalid, "{}: {refused}", bad.display());
    }
    assert_eq!(restore(&copies.path().join("none"), &file).await.unwrap_err().code(), Code::NotFound);
    assert_eq!(restore(&file.path(), &file).await.unwrap_err().code(), Code::Invalid);
    assert_eq!(names_in(file.path().parent().unwrap()), before);
    let none = SqliteFile::fresh();
    assert_eq!(backup(&none, &copies.path().join("x"), false).await.unwrap_err().code(), Code::NotFound);
    let store = open(&file).await;
    assert_eq!(store.inbox(&bob, false, amb_testing::store::at(1)).await.unwrap().unread(), 300);
}

#[tokio::test]
async fn a_backup_can_be_restored_to_a_new_path() {
    let Backed { bob, session, copies: _copies, copy, .. } = backed("kept").await;
    let elsewhere = SqliteFile::fresh();
    assert_eq!(restore(&copy, &elsewhere).await.unwrap().kept, None);
    assert_eq!(open(&elsewhere).await.texts(&bob, &session, 9).await, ["kept"]);
}

#[tokio::test]
async fn a_damaged_database_is_replaced_and_kept_with_its_log() {
    let Backed { file, store, bob, session, copies: _copies, copy, .. } = backed("kept").await;
    store.close().await;
    let wal = format!("{}-wal", file.path().display());
    fs_err::write(file.path(), "this was a database").unwrap();
    fs_err::write(&wal, "and this its log").unwrap();
    let kept = restore(&copy, &file).await.unwrap().kept.unwrap();
    assert_eq!(fs_err::read_to_string(&kept).unwrap(), "this was a database");
    assert_eq!(open(&file).await.texts(&bob, &session, 9).await, ["kept"]);
}

#[tokio::test]
async fn a_database_that_another_program_reads_is_not_replaced() {
    let Backed { file, store, alice, bob, session, copies: _copies, copy } = backed("before").await;
    store.close().await;
    drop(store);
    let reader = rusqlite::Connection::open(file.path()).unwrap();
    reader.execute_batch("BEGIN; SELECT count(*) FROM agents").unwrap();
    let store = open(&file).await;
    store.say(&alice, &bob, "Plan", "after").await;
    store.close().await;
    drop(store);
    let before = names_in(file.path().parent().unwrap());
    let refused = restore(&copy, &file).await.unwrap_err();
    assert_eq!(refused.code(), Code::Conflict);
    assert!(refused.detail().contains("another program"), "{refused}");
    assert_eq!(names_in(file.path().parent().unwrap()), before);
    drop(reader);
    restore(&copy, &file).await.unwrap();
    assert_eq!(open(&file).await.texts(&bob, &session, 9).await, ["before"]);
}

#[tokio::test]
async fn a_database_that_another_program_has_locked_is_not_replaced() {
    let Backed { file, store, copies: _copies, copy, .. } = backed("kept").await;
    store.close().await;
    let other = rusqlite::Connection::open(file.path()).unwrap();
    other.execute_batch("PRAGMA locking_mode = EXCLUSIVE; BEGIN IMMEDIATE; COMMIT").unwrap();
    let error = restore(&copy, &file).await.unwrap_err();
    assert_eq!(error.code(), Code::Conflict);
    assert!(error.detail().contains("another program"), "{error}");
    drop(other);
    restore(&copy, &file).await.unwrap();
}

#[tokio::test]
async fn a_link_to_a_database_in_use_is_no_backup() {
    let (used, target) = (SqliteFile::fresh(), SqliteFile::fresh());
    let store = open(&used).await;
    store.pair().await;
    let link = target.path().with_file_name("link.db");
    fs_err::os::unix::fs::symlink(used.path(), &link).unwrap();
    let error = restore(&link, &target).await.unwrap_err();
    assert_eq!(error.code(), Code::Invalid);
    assert!(error.detail().contains("in use"), "{error}");
    store.close().await;
}

#[tokio::test]
async fn logs_are_advanced_while_no_server_runs() {
    let file = SqliteFile::fresh();
    let url = amb_store::DatabaseUrl::parse(&file.url()).unwrap();
    assert_eq!(amb_store::advance_cursors(&url).await.unwrap_err().code(), Code::NotFound);
    let store = open(&file).await;
    let (alice, bob) = store.pair().await;
    let before = store.event_head(bob.key).await.unwrap();
    assert_eq!(amb_store::advance_cursors(&url).await.unwrap_err().code(), Code::Conflict);
    store.close().await;
    assert_eq!(amb_store::advance_cursors(&url).await.unwrap(), 2);
    let store = open(&file).await;
    let next = store.say(&alice, &bob, "Plan", "x").await.entries[0].entry.cursor.as_number();
    assert_eq!(next, Some(before + 1_000_001));
}
