//! Migrations of databases of earlier versions, with mail in their staging tables.

use std::sync::Arc;

use amb_core::mailbox::{SearchQuery, TaskFilter};
use amb_store::{Agent, ExportQuery, MessageQuery, PostgresStore, SqliteStore};
use amb_testing::store::{TestStore, at, name};
use amb_testing::{PostgresDatabase, SqliteFile};
use serde_json::{Value, json};

const AGENTS: [&str; 4] = ["alice", "bob", "carol", "dora"];

/// Returns everything that agents can see, without changing it.
async fn describe(store: &TestStore) -> Value {
    while store.index_mail().await.unwrap() > 0 {}
    let mut all = Vec::new();
    for text in AGENTS {
        let agent = store.agent_by_name(&name(text)).await.unwrap().unwrap();
        all.push(json!({
            "agent": text,
            "inbox": store.inbox(&agent, false, at(900)).await.unwrap(),
            "unread": store.inbox(&agent, true, at(900)).await.unwrap().unread(),
            "events": store.events(agent.key, 0, 1_000).await.unwrap(),
            "events_after_5": store.events(agent.key, 5, 1_000).await.unwrap(),
            "head": store.event_head(agent.key).await.unwrap(),
            "resume": store.resume(agent.key, 1_000_000).await.unwrap(),
            "messages": messages(store, &agent, false, None).await,
            "unread_messages": messages(store, &agent, true, None).await,
            "claimed": messages(store, &agent, false, Some(900)).await,
            "export": store.export(&agent, ExportQuery { limit: 1_000, ..Default::default() }).await.unwrap(),
            "tasks": store.tasks(&agent, TaskFilter::default(), 100).await.unwrap(),
            "groups": store.groups(&agent).await.unwrap(),
            "connections": store.connections(&agent).await.unwrap(),
            "transcript": store.transcript_recent(&agent, Some(&name("alice")), &"chat:1".parse().unwrap(), 9).await.ok(),
            "usage": store.profile(&agent, at(900)).await.unwrap().usage,
            "search": store.search(&agent, SearchQuery { text: "plan".into(), limit: Some(100), ..Default::default() })
                .await.unwrap(),
        }));
    }
    Value::Array(all)
}

async fn messages(store: &TestStore, agent: &Agent, unread: bool, claimed_at: Option<i64>) -> Value {
    let query = MessageQuery { unread, claimed_at: claimed_at.map(at), limit: 1_000, ..Default::default() };
    let page = store.messages(agent, query).await.unwrap();
    json!({ "messages": page.messages, "next": page.next })
}

/// Returns a file of schema version 6, with ten staged messages, three of which are in `messages` too.
fn old_file() -> SqliteFile {
    let file = SqliteFile::fresh();
    let db = rusqlite::Connection::open(file.path()).unwrap();
    db.execute_batch(include_str!("../fixtures/sqlite-v6.sql")).unwrap();
    file
}

async fn open(file: &SqliteFile) -> TestStore {
    TestStore(Arc::new(SqliteStore::open(&file.path()).await.unwrap()))
}

#[tokio::test]
async fn agents_see_the_same_after_a_migration_of_sqlite() {
    let file = old_file();
    let before: Value = serde_json::from_str(include_str!("../fixtures/sqlite-v6.json")).unwrap();
    let store = open(&file).await;
    assert_eq!(describe(&store).await, before);
    store.close().await;
    drop(store);
    let store = open(&file).await;
    assert_eq!(describe(&store).await, before, "and after another start");
}

#[tokio::test]
async fn cursors_from_before_the_migration_neither_lose_nor_repeat_mail() {
    let file = old_file();
    let store = open(&file).await;
    for (from, to) in [("alice", "bob"), ("bob", "alice"), ("carol", "dora"), ("dora", "carol")] {
        let [from, to] = [from, to].map(name);
        let from = store.agent_by_name(&from).await.unwrap().unwrap();
        let to = store.agent_by_name(&to).await.unwrap().unwrap();
        let (head, log) = (store.event_head(to.key).await.unwrap(), store.events(to.key, 0, 1_000).await.unwrap());
        let sent = store.say(&from, &to, "Plan 1", "after the migration").await;
        assert_eq!(sent.entries[0].entry.cursor.as_number(), Some(head + 1));
        assert_eq!(store.resume(to.key, head).await.unwrap(), head);
        for since in 0..=head {
            let numbers = |log: Vec<amb_core::Entry>| log.iter().map(|e| e.cursor.as_number().unwrap()).collect();
            let after: Vec<u64> = numbers(store.events(to.key, since, 1_000).await.unwrap());
            let mut expected: Vec<u64> = numbers(log.clone());
            expected.retain(|number| *number > since);
            expected.push(head + 1);
            assert_eq!(after, expected);
        }
        let newest = store.texts(&to, &sent.answer.session_id, 1).await;
        assert_eq!(newest, ["after the migration"], "the newest of its session");
    }
    store.close().await;
}

#[tokio::test]
async fn a_backup_of_schema_6_counts_staged_mail_and_its_restore_advances_the_logs() {
    let file = old_file();
    let to = file.path().with_extension("copy");
    let copied = amb_store::backup(&file.path(), &to, false, |_| {}).await.unwrap();
    assert_eq!((copied.agents, copied.messages), (4, 44));
    amb_store::restore(&to, &file.path(), |_| {}).await.unwrap();
    let store = open(&file).await;
    let before: Value = serde_json::from_str(include_str!("../fixtures/sqlite-v6.json")).unwrap();
    let after = describe(&store).await;
    for (before, after) in before.as_array().unwrap().iter().zip(after.as_array().unwrap()) {
        assert_eq!(before["inbox"], after["inbox"]);
        assert_eq!(before["export"], after["export"]);
        assert!(after["head"].as_u64() > Some(1_000_000));
    }
    store.close().await;
}

/// The same office on PostgreSQL, in the last schema version without message ids.
#[tokio::test]
async fn agents_see_the_same_after_a_migration_of_postgres() {
    let database = PostgresDatabase::empty().await;
    let client = database.migrate_to(16).await;
    client.batch_execute(include_str!("../fixtures/postgres-v16.sql")).await.unwrap();
    drop(client);
    let before: Value = serde_json::from_str(include_str!("../fixtures/sqlite-v6.json")).unwrap();
    for start in ["the first start", "another start"] {
        let store = TestStore(Arc::new(PostgresStore::open(&database.url()).await.unwrap()));
        let after = describe(&store).await;
        for (before, after) in before.as_array().unwrap().iter().zip(after.as_array().unwrap()) {
            for (what, before) in before.as_object().unwrap() {
                let (before, after) = (&mut before.clone(), &mut after[what].clone());
                if what == "search" {
                    // Hits with the same time have no order.
                    for hits in [&mut *before, &mut *after] {
                        hits.as_array_mut().unwrap().sort_by_key(|hit| hit["message_id"].to_string());
                    }
                }
                assert_eq!(after, before, "{what} after {start}");
            }
        }
        store.close().await;
    }
    let store = TestStore(Arc::new(PostgresStore::open(&database.url()).await.unwrap()));
    let [alice, bob] = ["alice", "bob"].map(name);
    let alice = store.agent_by_name(&alice).await.unwrap().unwrap();
    let bob = store.agent_by_name(&bob).await.unwrap().unwrap();
    let head = store.event_head(bob.key).await.unwrap();
    let sent = store.say(&alice, &bob, "Plan 1", "after the migration").await;
    assert_eq!(sent.entries[0].entry.cursor.as_number(), Some(head + 1));
    assert_eq!(
        store.texts(&bob, &sent.answer.session_id, 1).await,
        ["after the migration"],
        "the newest of its session"
    );
    store.close().await;
}
