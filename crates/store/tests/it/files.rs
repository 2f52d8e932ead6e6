//! SQLite files: one server per file, durability, migrations of older schemas.

use std::sync::Arc;

use amb_core::mailbox::HistoryPage;
use amb_core::{Code, Draft};
use amb_store::{PostgresStore, SqliteStore, Store};
use amb_testing::store::{TestStore, at};
use amb_testing::{PostgresDatabase, SqliteFile};

async fn open(file: &SqliteFile) -> TestStore {
    TestStore(Arc::new(SqliteStore::open(&file.path()).await.unwrap()))
}

#[tokio::test]
async fn a_second_server_on_one_file_is_refused_until_the_first_is_gone() {
    let file = SqliteFile::fresh();
    let first = open(&file).await;
    let error = SqliteStore::open(&file.path()).await.unwrap_err();
    assert_eq!(error.code(), Code::Conflict);
    assert!(error.detail().contains("another server"), "{error}");
    first.close().await;
    assert_eq!(first.ready().await.unwrap_err().code(), Code::Unavailable);
    open(&file).await.ready().await.unwrap();
}

#[tokio::test]
async fn a_second_name_of_an_open_file_is_refused_and_a_symbolic_link_is_followed() {
    let file = SqliteFile::fresh();
    let store = open(&file).await;
    let (alice, bob) = store.pair().await;
    let sent = store.say(&alice, &bob, "Plan", "one").await.answer;
    let elsewhere = tempfile::tempdir_in(file.path().parent().unwrap()).unwrap();
    let (hard, soft) = (elsewhere.path().join("hard.db"), elsewhere.path().join("soft.db"));
    fs_err::hard_link(file.path(), &hard).unwrap();
    fs_err::os::unix::fs::symlink(file.path(), &soft).unwrap();
    for other in [&hard, &soft] {
        let error = SqliteStore::open(other).await.unwrap_err();
        assert_eq!(error.code(), Code::Conflict);
        assert!(error.detail().contains("another server"), "{error}");
    }
    store.say(&alice, &bob, "Plan", "two").await;
    store.close().await;
    let store = TestStore(Arc::new(SqliteStore::open(&soft).await.unwrap()));
    assert_eq!(store.texts(&bob, &sent.session_id, 3).await, ["two", "one"]);
    store.ready().await.unwrap();
    store.close().await;
    let made = elsewhere.path().join("made.db");
    let dangling = elsewhere.path().join("dangling.db");
    fs_err::os::unix::fs::symlink("made.db", &dangling).unwrap();
    SqliteStore::open(&dangling).await.unwrap().close().await;
    assert!(made.exists(), "created at the target of the link");
}

#[tokio::test]
async fn mail_survives_a_store_that_was_dropped_without_close() {
    let file = SqliteFile::fresh();
    let store = open(&file).await;
    let (alice, bob) = store.pair().await;
    let sent = store.say(&alice, &bob, "Plan", "kept").await.answer;
    drop(store);
    let store = open(&file).await;
    assert_eq!(store.texts(&bob, &sent.session_id, 3).await, ["kept"]);
    let next = store.say(&alice, &bob, "plan", "next").await;
    assert_eq!(next.answer.session_id, sent.session_id);
    assert_eq!(next.entries[0].entry.cursor.as_number(), Some(3), "log numbers continue");
}

#[tokio::test]
async fn mail_survives_a_crash() {
    let file = SqliteFile::fresh();
    let store = open(&file).await;
    let (alice, bob) = store.pair().await;
    for n in 0..1_500 {
        let (from, to) = if n % 3 == 0 { (&bob, &alice) } else { (&alice, &bob) };
        store.say(from, to, &format!("Plan {}", n % 2), &n.to_string()).await;
        if n == 1_450 {
            // Indexes the mail so far; the rest is not indexed when the process dies.
            store.index_mail().await.unwrap();
        }
    }
    // The files as a killed process leaves them: without a checkpoint.
    let crashed = SqliteFile::fresh();
    for suffix in ["", "-wal"] {
        let of = |file: &SqliteFile| format!("{}{suffix}", file.path().display());
        fs_err::copy(of(&file), of(&crashed)).unwrap();
    }
    let store = open(&crashed).await;
    let inbox = store.inbox(&bob, false, at(2)).await.unwrap();
    assert_eq!((inbox.sessions.len(), inbox.unread()), (2, 1_000));
    for session in &inbox.sessions {
        let parity = if session.subject == "Plan 0" { 0 } else { 1 };
        let expected: Vec<_> = (0..1_500).rev().filter(|n| n % 2 == parity).map(|n: u32| n.to_string()).collect();
        assert_eq!(store.texts(&bob, &session.session_id, 1_000).await, expected, "all, once each, in order");
    }
    let log: Vec<_> = store.events(bob.key, 0, 2_000).await.unwrap();
    let numbers: Vec<_> = log.iter().map(|entry| entry.cursor.as_number().unwrap()).collect();
    assert!(numbers.iter().copied().eq(1..=numbers.len() as u64), "no gaps and no duplicates");
}

#[tokio::test]
async fn a_refused_send_fails_no_other_of_its_batch() {
    let file = SqliteFile::fresh();
    let store = open(&file).await;
    let (alice, bob) = store.pair().await;
    let group = store.create_group(&alice, &"crew".parse().unwrap(), at(1)).await.unwrap();
    let sends: Vec<_> = (0..200)
        .map(|n| {
            let (store, alice, bob, group) = (store.clone(), alice.clone(), bob.clone(), group.name.clone());
            tokio::spawn(async move {
                match n % 4 {
                    0 => store.send(&alice, Draft::text("nobody".parse().unwrap(), "Plan", "x"), at(1)).await.is_ok(),
                    // A group whose only member is the sender.
                    1 => store.send(&alice, Draft::text(group, "Plan", "x"), at(1)).await.is_ok(),
                    _ => {
                        store.say(&alice, &bob, "Plan", "x").await;
                        true
                    }
                }
            })
        })
        .collect();
    let mut accepted = 0;
    for sent in sends {
        accepted += u32::from(sent.await.unwrap());
    }
    assert_eq!(store.inbox(&bob, false, at(2)).await.unwrap().unread(), 100);
    assert!(accepted >= 100);
}

#[tokio::test]
async fn a_database_with_an_unknown_migration_is_refused() {
    let file = SqliteFile::fresh();
    open(&file).await.close().await;
    let db = rusqlite::Connection::open(file.path()).unwrap();
    db.execute("UPDATE refinery_schema_history SET checksum = '1' WHERE version = 1", []).unwrap();
    drop(db);
    let error = SqliteStore::open(&file.path()).await.unwrap_err();
    assert!(error.detail().contains("schema"), "{error}");
}

/// Agents, a connection, a session and a message in the first schema.
const OLD_ROWS: [&str; 5] = [
    "INSERT INTO agents (id, public_id, name, api_key_hash, api_key_prefix, description, capabilities, allow_from,
                         max_concurrent_tasks, created_at)
     VALUES (1, {id1}, 'alice', 'a', 'amb_0000', '', '[]', '[\"*\"]', 3, {then}),
            (2, {id2}, 'bob', 'b', 'amb_0000', '', '[]', '[\"*\"]', 3, {then})",
    "INSERT INTO connections (id, public_id, requester_id, target_id, low_id, high_id, status, created_at, updated_at)
     VALUES (1, {id1}, 1, 2, 1, 2, 'ACTIVE', {then}, {then})",
    "INSERT INTO sessions (id, public_id, subject, subject_key, initiator_id, participant_id, low_id, high_id, created_at)
     VALUES (1, {id1}, 'Plan', 'plan', 1, 2, 1, 2, {then})",
    "INSERT INTO session_members (agent_id, session_id, unread) VALUES (1, 1, 0), (2, 1, 1)",
    "",
];

fn rows(id: impl Fn(u8) -> String, then: &str, rest: &[&str]) -> Vec<String> {
    OLD_ROWS
        .iter()
        .chain(rest)
        .filter(|sql| !sql.is_empty())
        .map(|sql| sql.replace("{id1}", &id(1)).replace("{id2}", &id(2)).replace("{then}", then))
        .collect()
}

async fn old_mail_works(store: TestStore) {
    let alice = store.agent_by_name(&"alice".parse().unwrap()).await.unwrap().unwrap();
    let bob = store.agent_by_name(&"bob".parse().unwrap()).await.unwrap().unwrap();
    let inbox = store.inbox(&bob, true, at(0)).await.unwrap();
    assert_eq!((inbox.sessions.len(), inbox.unread()), (1, 1));
    let usage = store.profile(&alice, at(0)).await.unwrap().usage;
    assert_eq!((usage.messages, usage.bytes), (1, 3), "mail from before quotas existed is counted");
    let sent = store.say(&alice, &bob, "PLAN", "new").await;
    assert_eq!(sent.answer.session_id, inbox.sessions[0].session_id);
    assert_eq!(sent.entries[0].entry.cursor.as_number(), Some(2));
    let history = store.history(&bob, &sent.answer.session_id, HistoryPage::default(), at(1)).await.unwrap().answer;
    assert_eq!(history.messages.iter().map(|m| m.content.as_str()).collect::<Vec<_>>(), ["new", "old"]);
    let task =
        store.send(&alice, Draft::task(bob.name.clone(), "Plan", "work"), at(2)).await.unwrap().answer.task.unwrap();
    store.task(&bob, &task.id).await.unwrap();
    while store.index_mail().await.unwrap() > 0 {}
    let query = amb_core::mailbox::SearchQuery { text: "old".into(), ..Default::default() };
    assert_eq!(store.search(&bob, query).await.unwrap().len(), 1);
    store.close().await;
}

#[tokio::test]
async fn an_older_sqlite_schema_with_mail_is_migrated() {
    let file = SqliteFile::fresh();
    amb_testing::migrate_sqlite_to(&file.path(), 1);
    let db = rusqlite::Connection::open(file.path()).unwrap();
    let message = [
        "INSERT INTO messages (id, public_id, sender_id, delivery_id, created_at, priority, ttl, content)
         VALUES ((1 << 32) | 1, {id1}, 1, (2 << 32) | 1, {then}, 1, 2, 'old')",
        "INSERT INTO entries (id, message_id, priority) VALUES ((2 << 32) | 1, (1 << 32) | 1, 1)",
    ];
    for sql in rows(|n| format!("x'{}'", format!("{n:02}").repeat(16)), "1772000000000000", &message) {
        db.execute_batch(&sql).unwrap();
    }
    drop(db);
    old_mail_works(open(&file).await).await;
}

#[tokio::test]
async fn an_older_postgres_schema_with_mail_is_migrated() {
    let database = PostgresDatabase::empty().await;
    let client = database.migrate_to(1).await;
    let message = [
        "INSERT INTO mailboxes (agent_id, head) VALUES (1, 0), (2, 1)",
        "INSERT INTO messages (session_id, seq, public_id, sender_id, recipient_id, delivery_number, created_at, priority,
                               ttl, content) VALUES (1, 1, {id1}, 1, 2, 1, {then}, 1, 2, 'old')",
        "UPDATE sessions SET last_seq = 1",
        "INSERT INTO entries (agent_id, number, session_id, seq, priority) VALUES (2, 1, 1, 1, 1)",
    ];
    for sql in rows(|n| format!("'{}'::uuid", format!("{n:02}").repeat(16)), "now()", &message) {
        client.batch_execute(&sql).await.unwrap();
    }
    drop(client);
    old_mail_works(TestStore(Arc::new(PostgresStore::open(&database.url()).await.unwrap()))).await;
}

/// Metadata that an earlier version, or an agent, wrote is no person's mark: only the column is.
async fn old_metadata_is_no_mark(store: TestStore) {
    let bob = store.agent_by_name(&"bob".parse().unwrap()).await.unwrap().unwrap();
    let inbox = store.inbox(&bob, true, at(0)).await.unwrap();
    let (session, preview) = (&inbox.sessions[0].session_id, &inbox.sessions[0].recent_messages[0]);
    let log = store.events(bob.key, 0, 10).await.unwrap();
    let whole = store.message(&bob, &preview.id).await.unwrap().message;
    let thread = store.history(&bob, session, HistoryPage::default(), at(1)).await.unwrap().answer;
    let event = serde_json::to_value(&log[0].event).unwrap();
    assert_eq!(event["from_person"], serde_json::Value::Null, "{event}");
    assert!(!preview.from_person && !whole.from_person && !thread.messages[0].from_person);
    for metadata in [&preview.metadata, &whole.metadata, &thread.messages[0].metadata] {
        assert_eq!(serde_json::to_string(metadata).unwrap(), r#"{"amb:from_person":true}"#, "shown as it was sent");
    }
    store.close().await;
}

#[tokio::test]
async fn a_persons_mark_in_old_metadata_is_ignored_on_sqlite() {
    let file = SqliteFile::fresh();
    amb_testing::migrate_sqlite_to(&file.path(), 13);
    let db = rusqlite::Connection::open(file.path()).unwrap();
    let message = [
        r#"INSERT INTO messages (id, public_id, session_id, sender_id, created_at, priority, ttl, content, metadata)
           VALUES (1, {id1}, 1, 1, {then}, 1, 2, 'old', '{"amb:from_person":true}')"#,
        "INSERT INTO deliveries (message_id, agent_id, number, priority) VALUES (1, 2, 1, 1)",
    ];
    for sql in rows(|n| format!("x'{}'", format!("{n:02}").repeat(16)), "1772000000000000", &message) {
        db.execute_batch(&sql).unwrap();
    }
    drop(db);
    old_metadata_is_no_mark(open(&file).await).await;
}

#[tokio::test]
async fn a_persons_mark_in_old_metadata_is_ignored_on_postgres() {
    let database = PostgresDatabase::empty().await;
    let client = database.migrate_to(13).await;
    let message = [
        "INSERT INTO mailboxes (agent_id, head) VALUES (1, 0), (2, 1)",
        r#"INSERT INTO messages (session_id, seq, public_id, sender_id, recipient_id, delivery_number, created_at, priority,
                                 ttl, content, metadata)
           VALUES (1, 1, {id1}, 1, 2, 1, {then}, 1, 2, 'old', '{"amb:from_person":true}')"#,
        "UPDATE sessions SET last_seq = 1",
        "INSERT INTO entries (agent_id, number, session_id, seq, priority) VALUES (2, 1, 1, 1, 1)",
    ];
    for sql in rows(|n| format!("'{}'::uuid", format!("{n:02}").repeat(16)), "now()", &message) {
        client.batch_execute(&sql).await.unwrap();
    }
    drop(client);
    old_metadata_is_no_mark(TestStore(Arc::new(PostgresStore::open(&database.url()).await.unwrap()))).await;
}
