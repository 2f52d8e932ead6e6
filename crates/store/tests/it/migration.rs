//! A database that an earlier version left, with mail in its staging table, loses nothing by the migration.

use std::sync::Arc;

use amb_core::mailbox::{SearchQuery, TaskFilter};
use amb_store::{Agent, ExportQuery, MessageQuery, SqliteStore};
use amb_testing::SqliteFile;
use amb_testing::store::{TestStore, at, name};
use serde_json::{Value, json};

const AGENTS: [&str; 4] = ["alice", "bob", "carol", "dora"];

/// Everything that agents can see, without changing any of it.
async fn describe(desk: &TestStore) -> Value {
    while desk.index_mail().await.unwrap() > 0 {}
    let mut all = Vec::new();
    for text in AGENTS {
        let agent = desk.agent_by_name(&name(text)).await.unwrap().unwrap();
        all.push(json!({
            "agent": text,
            "inbox": desk.inbox(&agent, false, at(900)).await.unwrap(),
            "unread": desk.inbox(&agent, true, at(900)).await.unwrap().unread(),
            "events": desk.events(agent.key, 0, 1_000).await.unwrap(),
            "events_after_5": desk.events(agent.key, 5, 1_000).await.unwrap(),
            "head": desk.event_head(agent.key).await.unwrap(),
            "resume": desk.resume(agent.key, 1_000_000).await.unwrap(),
            "messages": messages(desk, &agent, false, None).await,
            "unread_messages": messages(desk, &agent, true, None).await,
            "claimed": messages(desk, &agent, false, Some(900)).await,
            "export": desk.export(&agent, ExportQuery { limit: 1_000, ..Default::default() }).await.unwrap(),
            "tasks": desk.tasks(&agent, TaskFilter::default(), 100).await.unwrap(),
            "groups": desk.groups(&agent).await.unwrap(),
            "connections": desk.connections(&agent).await.unwrap(),
            "transcript": desk.transcript_recent(&agent, Some(&name("alice")), &"chat:1".parse().unwrap(), 9).await.ok(),
            "usage": desk.profile(&agent, at(900)).await.unwrap().usage,
            "search": desk.search(&agent, SearchQuery { text: "plan".into(), limit: Some(100), ..Default::default() })
                .await.unwrap(),
        }));
    }
    Value::Array(all)
}

async fn messages(desk: &TestStore, agent: &Agent, unread: bool, claimed_at: Option<i64>) -> Value {
    let query = MessageQuery { unread, claimed_at: claimed_at.map(at), limit: 1_000, ..Default::default() };
    let page = desk.messages(agent, query).await.unwrap();
    json!({ "messages": page.messages, "next": page.next })
}

/// A file as the form before left it: made by its server, with three of its ten staged messages sorted as well.
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
async fn everything_that_agents_saw_before_the_migration_is_seen_after_it() {
    let file = old_file();
    let before: Value = serde_json::from_str(include_str!("../fixtures/sqlite-v6.json")).unwrap();
    let desk = open(&file).await;
    assert_eq!(describe(&desk).await, before);
    desk.close().await;
    drop(desk);
    let desk = open(&file).await;
    assert_eq!(describe(&desk).await, before, "and after another start");
}

#[tokio::test]
async fn cursors_from_before_the_migration_neither_lose_nor_repeat_mail() {
    let file = old_file();
    let desk = open(&file).await;
    for (from, to) in [("alice", "bob"), ("bob", "alice"), ("carol", "dora"), ("dora", "carol")] {
        let [from, to] = [from, to].map(name);
        let from = desk.agent_by_name(&from).await.unwrap().unwrap();
        let to = desk.agent_by_name(&to).await.unwrap().unwrap();
        let (head, log) = (desk.event_head(to.key).await.unwrap(), desk.events(to.key, 0, 1_000).await.unwrap());
        let sent = desk.say(&from, &to, "Plan 1", "after the migration").await;
        assert_eq!(sent.entries[0].entry.cursor.as_number(), Some(head + 1));
        assert_eq!(desk.resume(to.key, head).await.unwrap(), head);
        for since in 0..=head {
            let numbers = |log: Vec<amb_core::Entry>| log.iter().map(|e| e.cursor.as_number().unwrap()).collect();
            let after: Vec<u64> = numbers(desk.events(to.key, since, 1_000).await.unwrap());
            let mut expected: Vec<u64> = numbers(log.clone());
            expected.retain(|number| *number > since);
            expected.push(head + 1);
            assert_eq!(after, expected);
        }
        let newest = desk.texts(&to, &sent.answer.session_id, 1).await;
        assert_eq!(newest, ["after the migration"], "the newest of its session");
    }
    desk.close().await;
}

#[tokio::test]
async fn a_copy_of_the_form_before_counts_its_staged_mail_and_its_logs_go_forward() {
    let file = old_file();
    let to = file.path().with_extension("copy");
    let copied = amb_store::backup(&file.path(), &to, false, |_| {}).await.unwrap();
    assert_eq!((copied.agents, copied.messages), (4, 44));
    amb_store::restore(&to, &file.path(), |_| {}).await.unwrap();
    let desk = open(&file).await;
    let before: Value = serde_json::from_str(include_str!("../fixtures/sqlite-v6.json")).unwrap();
    let after = describe(&desk).await;
    for (before, after) in before.as_array().unwrap().iter().zip(after.as_array().unwrap()) {
        assert_eq!(before["inbox"], after["inbox"]);
        assert_eq!(before["export"], after["export"]);
        assert!(after["head"].as_u64() > Some(1_000_000));
    }
    desk.close().await;
}
