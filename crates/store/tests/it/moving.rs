//! Moving an office from SQLite to PostgreSQL.

use std::ops::ControlFlow;
use std::sync::Arc;

use amb_core::mailbox::TaskFilter;
use amb_core::transcript::Line;
use amb_core::{Code, Draft, Entry, Event, TaskState};
use amb_store::{
    Agent, Copied, ExportQuery, Join, KeyHash, NewAgent, PostgresStore, Result, SqliteStore, copy_to_postgres,
};
use amb_testing::store::{TestStore, at, name, new_agent};
use amb_testing::{PostgresDatabase, SqliteFile};

async fn move_it(file: &SqliteFile, database: &PostgresDatabase, start_over: bool) -> Result<Copied> {
    copy_to_postgres(&file.path(), &database.url(), start_over, |_| ControlFlow::Continue(())).await
}

/// Returns a closed office with two agents and some mail.
async fn small_office() -> (SqliteFile, Agent, Agent) {
    let file = SqliteFile::fresh();
    let store = TestStore(Arc::new(SqliteStore::open(&file.path()).await.unwrap()));
    let (alice, bob) = store.pair().await;
    store.say(&alice, &bob, "Plan", "one").await;
    store.close().await;
    (file, alice, bob)
}

/// Copies a few pages, and stops.
async fn move_partially(file: &SqliteFile, database: &PostgresDatabase) {
    let mut pages = 0;
    let (path, url) = (file.path(), database.url());
    let outcome = copy_to_postgres(&path, &url, false, |_| {
        pages += 1;
        if pages == 12 { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
    });
    assert_eq!(outcome.await.unwrap_err().code(), Code::Unavailable);
}

/// Returns the texts of a log that have the person's mark.
fn marked(log: &[Entry]) -> Vec<&str> {
    let marked = log.iter().filter_map(|entry| match &entry.event {
        Event::NewMessage(mail) if mail.from_person => Some(mail.content.as_str()),
        _ => None,
    });
    marked.collect()
}

#[tokio::test]
async fn a_target_with_something_else_in_it_is_refused() {
    let (file, ..) = small_office().await;
    let foreign = PostgresDatabase::empty().await;
    foreign.run("CREATE TABLE orders (id INT)").await;
    let refused = move_it(&file, &foreign, true).await.unwrap_err();
    assert_eq!(refused.code(), Code::Conflict);
    assert!(refused.detail().contains("something else"), "{refused}");

    let lived_in = PostgresDatabase::fresh().await;
    let store = TestStore(Arc::new(PostgresStore::open(&lived_in.url()).await.unwrap()));
    let working = move_it(&file, &lived_in, true).await.unwrap_err();
    assert!(working.detail().contains("stop it"), "{working}");
    let carol = store.enter("carol").await;
    store.close().await;
    drop(store);
    lived_in.alone().await;
    let refused = move_it(&file, &lived_in, true).await.unwrap_err();
    assert!(refused.detail().contains("agents of its own"), "{refused}");
    let store = TestStore(Arc::new(PostgresStore::open(&lived_in.url()).await.unwrap()));
    assert_eq!(store.agent_by_name(&carol.name).await.unwrap(), Some(carol), "and it is unchanged");
    store.close().await;
}

#[tokio::test]
async fn a_partial_copy_of_a_changed_file_is_not_continued() {
    let (file, alice, bob) = small_office().await;
    let database = PostgresDatabase::fresh().await;
    move_partially(&file, &database).await;
    let store = TestStore(Arc::new(SqliteStore::open(&file.path()).await.unwrap()));
    let sent = store.say(&alice, &bob, "Plan", "two").await.answer;
    store.close().await;
    let refused = move_it(&file, &database, false).await.unwrap_err();
    assert_eq!(refused.code(), Code::Conflict);
    assert!(refused.detail().contains("--start-over"), "{refused}");
    move_it(&file, &database, true).await.unwrap();
    let store = TestStore(Arc::new(PostgresStore::open(&database.url()).await.unwrap()));
    assert_eq!(store.texts(&bob, &sent.session_id, 9).await, ["two", "one"]);
    store.say(&alice, &bob, "Plan", "three").await;
    store.close().await;
    drop(store);
    database.alone().await;
    // The old file again, after one more message: the finished copy is not changed.
    let store = TestStore(Arc::new(SqliteStore::open(&file.path()).await.unwrap()));
    store.say(&alice, &bob, "Plan", "too late").await;
    store.close().await;
    let refused = move_it(&file, &database, true).await.unwrap_err();
    assert!(refused.detail().contains("finished move"), "{refused}");
    let store = TestStore(Arc::new(PostgresStore::open(&database.url()).await.unwrap()));
    assert_eq!(store.texts(&bob, &sent.session_id, 9).await, ["three", "two", "one"]);
    store.close().await;
}

#[tokio::test]
async fn a_copy_that_is_not_the_same_is_found_out() {
    let (file, ..) = small_office().await;
    let database = PostgresDatabase::fresh().await;
    move_partially(&file, &database).await;
    // Not the text of a message, which anybody would look at first.
    database.run("UPDATE connections SET updated_at = updated_at + interval '1 microsecond'").await;
    let refused = move_it(&file, &database, false).await.unwrap_err();
    assert_eq!(refused.code(), Code::Conflict);
    assert!(refused.detail().contains("connections"), "{refused}");
    PostgresStore::open(&database.url()).await.unwrap_err();
    move_it(&file, &database, true).await.unwrap();
}

#[tokio::test]
async fn a_move_that_was_interrupted_twice_arrives_whole() {
    let file = SqliteFile::fresh();
    let store = TestStore(Arc::new(SqliteStore::open(&file.path()).await.unwrap()));
    let (alice, bob) = store.pair().await;
    let carol = store.enter("carol").await;
    store.connect(&alice, &carol).await;
    for n in 0..30 {
        store.say(&alice, &bob, &format!("s{}", n % 3), &format!("text {n} \"quoted\" é \0 end")).await;
    }
    let task =
        store.send(&alice, Draft::task(bob.name.clone(), "s0", "work"), at(1)).await.unwrap().answer.task.unwrap();
    store.set_task_state(&bob, &task.id, TaskState::Working, Some("on it".into()), at(2)).await.unwrap();
    store.create_group(&alice, &name("crew"), at(1)).await.unwrap();
    store.invite_to_group(&alice, &name("crew"), &carol.name, at(1)).await.unwrap();
    store.join_group(&carol, &name("crew"), true).await.unwrap();
    store.send(&alice, Draft::text(name("crew"), "Standup", "hi"), at(1)).await.unwrap();
    let line = Line {
        role: "user".into(),
        content: "x".into(),
        sender: "ann".into(),
        author: None,
        message_id: Some("m".into()),
        ts: None,
    };
    store.transcript_append(&alice, None, &"feishu:1".parse().unwrap(), line, at(1)).await.unwrap();
    // The person of bob's household writes to him, and to a group with a stranger in it.
    store.found_household(KeyHash::of("owner"), true, at(1)).await.unwrap().unwrap();
    let join = Some(Join { token: KeyHash::of("owner"), person: true });
    let kim = store.register_agent(NewAgent { join, ..new_agent("kim") }, at(1)).await.unwrap().answer;
    store.join_household(&bob, KeyHash::of("owner"), at(1)).await.unwrap();
    store.say(&kim, &bob, "s0", "look at the failing test").await;
    store.connect(&carol, &bob).await;
    store.create_group(&bob, &name("mixed"), at(1)).await.unwrap();
    for member in [&kim, &carol] {
        store.invite_to_group(&bob, &name("mixed"), &member.name, at(1)).await.unwrap();
        store.join_group(member, &name("mixed"), true).await.unwrap();
    }
    store.send(&kim, Draft::text(name("mixed"), "Standup", "to all"), at(2)).await.unwrap();
    let once = Draft { idempotency_key: Some("k".into()), ..Draft::text(bob.name.clone(), "s0", "once") };
    let first = store.send(&alice, once.clone(), at(3)).await.unwrap().answer;
    store.texts(&bob, &first.session_id, 2).await;
    let before = (store.inbox(&bob, false, at(9)).await.unwrap(), store.events(bob.key, 0, 500).await.unwrap());
    let all = ExportQuery { limit: 100, ..ExportQuery::default() };
    let exported = store.export(&carol, all.clone()).await.unwrap();
    assert_eq!(marked(&before.1), ["look at the failing test", "to all"]);
    assert!(marked(&store.events(carol.key, 0, 500).await.unwrap()).is_empty());
    let database = PostgresDatabase::fresh().await;
    let busy = move_it(&file, &database, false).await;
    assert_eq!(busy.unwrap_err().code(), Code::Conflict, "not while a server has it open");
    store.close().await;
    drop(store);

    for stop in [3, 8] {
        let mut pages = 0;
        let (path, url) = (file.path(), database.url());
        let interrupted = copy_to_postgres(&path, &url, false, |_| {
            pages += 1;
            if pages == stop { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
        });
        assert_eq!(interrupted.await.unwrap_err().code(), Code::Unavailable);
    }
    let early = PostgresStore::open(&database.url()).await.unwrap_err();
    assert!(early.detail().contains("amb move"), "no server opens a partial copy: {early}");
    let copied = move_it(&file, &database, false).await.unwrap();
    assert!(copied.rows.iter().any(|(table, rows)| *table == "messages" && *rows > 30), "{copied:?}");
    let again = move_it(&file, &database, true).await.unwrap();
    assert_eq!(again, copied, "a finished copy is detected");

    let store = TestStore(Arc::new(PostgresStore::open(&database.url()).await.unwrap()));
    assert_eq!((store.inbox(&bob, false, at(9)).await.unwrap(), store.events(bob.key, 0, 500).await.unwrap()), before);
    assert_eq!(store.export(&carol, all).await.unwrap(), exported);
    assert!(marked(&store.events(carol.key, 0, 500).await.unwrap()).is_empty());
    assert_eq!(store.send(&alice, once, at(10)).await.unwrap().answer, first, "an idempotency key is still valid");
    assert_eq!(store.tasks(&bob, TaskFilter::default(), 9).await.unwrap()[0].state, TaskState::Working);
    let next = store.say(&alice, &bob, "s1", "on PostgreSQL").await;
    assert_eq!(next.entries[0].entry.cursor.as_number(), Some(before.1.len() as u64 + 1));
    store.enter("dave").await;
    while store.index_mail().await.unwrap() > 0 {}
    let query = amb_core::mailbox::SearchQuery { text: "quoted".into(), limit: Some(50), ..Default::default() };
    assert_eq!(store.search(&bob, query).await.unwrap().len(), 30);
    store.close().await;
}
