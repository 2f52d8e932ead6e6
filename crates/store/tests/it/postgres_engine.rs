//! Tests of the store on PostgreSQL beyond the conformance suite: current cards, durable commits, connections, dumps,
//! query plans.

use std::sync::Arc;
use std::time::Duration;

use amb_core::mailbox::{ClaimRequest, SearchQuery};
use amb_core::{Code, Draft, Timestamp};
use amb_store::{Agent, DatabaseUrl, PostgresStore, advance_cursors};
use amb_testing::store::{TestStore, at};
use amb_testing::{OwnCluster, PostgresDatabase};

use crate::support::{fresh, open, soon};

/// Changes something while a send waits for the recipient's mailbox lock.
async fn change_under_the_lock(
    database: &PostgresDatabase,
    agent: &Agent,
    change: &str,
) -> tokio::task::JoinHandle<()> {
    let client = database.connection().await;
    let lock = "BEGIN; SELECT FROM mailboxes WHERE agent_id = ";
    client.batch_execute(&format!("{lock}{} FOR NO KEY UPDATE; {change}", agent.key)).await.unwrap();
    let admin = database.connection().await;
    tokio::spawn(async move {
        let waiting = "SELECT EXISTS (SELECT FROM pg_stat_activity WHERE datname = current_database() AND wait_event_type = 'Lock')";
        soon(async {
            while !admin.query_one(waiting, &[]).await.unwrap().get::<_, bool>(0) {
                tokio::task::yield_now().await;
            }
        })
        .await;
        client.batch_execute("COMMIT").await.unwrap();
    })
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_send_is_decided_by_the_card_as_of_its_lock() {
    let (database, store) = fresh().await;
    let (alice, bob) = store.pair().await;
    let change =
        format!("UPDATE agents SET allow_from = '[\"carol\"]', max_concurrent_tasks = 0 WHERE id = {}", bob.key);
    let changed = change_under_the_lock(&database, &bob, &change).await;
    let refused = store.send(&alice, Draft::text(bob.name.clone(), "Plan", "x"), at(1)).await.unwrap_err();
    assert_eq!(refused.code(), Code::NotAllowed);
    changed.await.unwrap();
    let gone = format!("UPDATE agents SET deleted_at = now() WHERE id = {}", bob.key);
    let changed = change_under_the_lock(&database, &bob, &gone).await;
    store.send(&alice, Draft::task(bob.name.clone(), "Plan", "x"), at(1)).await.unwrap_err();
    changed.await.unwrap();
    assert!(store.inbox(&alice, false, at(2)).await.unwrap().sessions.is_empty(), "and nothing was written");
}

#[tokio::test]
async fn a_commit_is_durable_whatever_the_database_is_set_to() {
    let database = PostgresDatabase::fresh().await;
    let name = database.url().rsplit('/').next().unwrap().to_owned();
    database
        .run(&format!(
            "ALTER DATABASE {name} SET synchronous_commit = off;
             CREATE TABLE noted (setting TEXT);
             CREATE FUNCTION note() RETURNS trigger LANGUAGE plpgsql AS $$
             BEGIN INSERT INTO noted VALUES (current_setting('synchronous_commit')); RETURN NEW; END $$;
             CREATE TRIGGER note BEFORE INSERT ON messages FOR EACH ROW EXECUTE FUNCTION note()"
        ))
        .await;
    let store = open(&database).await;
    let (alice, bob) = store.pair().await;
    store.say(&alice, &bob, "Plan", "x").await;
    let client = database.connection().await;
    let noted: String = client.query_one("SELECT setting FROM noted", &[]).await.unwrap().get(0);
    assert_eq!(noted, "on");
    store.close().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_cancelled_read_returns_no_busy_connection_to_the_pool() {
    let (database, store) = fresh().await;
    let (_, bob) = store.pair().await;
    let client = database.connection().await;
    client.batch_execute("BEGIN; LOCK TABLE events IN ACCESS EXCLUSIVE MODE").await.unwrap();
    let reading = tokio::spawn({
        let (store, bob) = (store.clone(), bob.clone());
        async move { store.events(bob.key, 0, 10).await }
    });
    soon(async {
        while !database.is_somebody_waiting().await {
            tokio::task::yield_now().await;
        }
    })
    .await;
    reading.abort();
    assert!(reading.await.unwrap_err().is_cancelled());
    // The pool reuses the connection first that was returned last.
    assert_eq!(soon(store.agent_by_name(&bob.name)).await.unwrap(), Some(bob));
    client.batch_execute("ROLLBACK").await.unwrap();
    store.close().await;
}

#[tokio::test]
async fn mail_whose_indexing_failed_is_indexed_by_a_later_call() {
    let (database, store) = fresh().await;
    let (alice, bob) = store.pair().await;
    while store.index_mail().await.unwrap() > 0 {}
    store.say(&alice, &bob, "Plan", "needle").await;
    database.run("ALTER TABLE search_words RENAME TO hidden").await;
    for _ in 0..3 {
        store.index_mail().await.unwrap_err();
    }
    database.run("ALTER TABLE hidden RENAME TO search_words").await;
    while store.index_mail().await.unwrap() > 0 {}
    let query = SearchQuery { text: "needle".into(), ..SearchQuery::default() };
    assert_eq!(store.search(&bob, query).await.unwrap().len(), 1);
    store.close().await;
}

#[tokio::test]
async fn no_log_number_is_assigned_twice_after_a_dump_was_restored() {
    let (database, store) = fresh().await;
    let (alice, bob) = store.pair().await;
    for n in 0..5 {
        store.say(&alice, &bob, "Plan", &n.to_string()).await;
    }
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("dump");
    let file = file.to_str().unwrap();
    database.tool("pg_dump", &["--format=custom", "--file", file]).await;
    for n in 0..5 {
        store.say(&alice, &bob, "Plan", &format!("lost {n}")).await;
    }
    let remembered = store.event_head(bob.key).await.unwrap();
    store.close().await;
    drop(store);
    database.alone().await;
    database.tool("pg_restore", &["--clean", "--if-exists", "--no-owner", file]).await;

    let store = open(&database).await;
    let mut sent = Vec::new();
    for n in 0..8 {
        sent.push(store.say(&alice, &bob, "Plan", &n.to_string()).await.answer.message_id);
    }
    let seen = store.events(bob.key, store.resume(bob.key, remembered).await.unwrap(), 100).await.unwrap();
    assert_eq!(seen.len(), 8, "a client with a cursor from before the restore sees all new mail");
    store.close().await;
    drop(store);
    let store = open(&database).await;
    let next = store.say(&alice, &bob, "Plan", "x").await.entries[0].entry.cursor.as_number();
    assert_eq!(next, seen.last().unwrap().cursor.as_number().map(|last| last + 1), "the log is advanced once");
    store.close().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_failover_is_detected_while_the_office_runs() {
    let cluster = OwnCluster::plain();
    let url = format!("postgres://mailbox@127.0.0.1:{}/postgres", cluster.port);
    let store = TestStore(Arc::new(PostgresStore::open(&url).await.unwrap()));
    let (alice, bob) = store.pair().await;
    let before = store.say(&alice, &bob, "Plan", "x").await.entries[0].entry.cursor.as_number().unwrap();
    tokio::task::block_in_place(|| cluster.recover());
    // Its old connections are lost; requests in progress on them fail.
    let next = soon(async {
        loop {
            match store.send(&alice, Draft::text(bob.name.clone(), "Plan", "y"), at(1)).await {
                Ok(sent) => break sent.entries[0].entry.cursor.as_number().unwrap(),
                Err(error) => assert_eq!(error.code(), Code::Unavailable, "{error:?}"),
            }
        }
    })
    .await;
    assert_eq!(next, before + 1_000_001);
    store.close().await;
}

#[tokio::test]
async fn logs_are_advanced_while_a_server_runs() {
    let (database, store) = fresh().await;
    let (alice, bob) = store.pair().await;
    let before = store.event_head(bob.key).await.unwrap();
    let url = DatabaseUrl::parse(&database.url()).unwrap();
    assert_eq!(advance_cursors(&url).await.unwrap(), 2);
    let next = store.say(&alice, &bob, "Plan", "x").await.entries[0].entry.cursor.as_number();
    assert_eq!(next, Some(before + 1_000_001));
    let now = Timestamp::now();
    store.delivered(&bob, before, before + 1_000_001, now).await.unwrap();
    store.close().await;
}

/// Without statistics the planner misjudges partial keys and two-sided ranges.
#[tokio::test]
async fn pages_of_a_new_office_read_little_more_than_they_show() {
    const MESSAGES: i64 = 20_000;
    let (database, store) = fresh().await;
    let client = database.connection().await;
    for table in ["messages", "deliveries", "events"] {
        client.batch_execute(&format!("ALTER TABLE {table} SET (autovacuum_enabled = off)")).await.unwrap();
    }
    let (alice, bob) = store.pair().await;
    store.say(&alice, &bob, "Plan", "first").await;
    let fill = format!(
        "INSERT INTO messages (public_id, session_id, sender_id, created_at, priority, ttl, content)
         SELECT gen_random_uuid(), m.session_id, m.sender_id, m.created_at + n * interval '1 microsecond', 1, 2, 'more'
         FROM messages m, generate_series(1, {MESSAGES}) n;
         INSERT INTO deliveries (message_id, agent_id, number, priority)
         SELECT m.id, {bob}, 1000 + row_number() OVER (ORDER BY m.id), 1 FROM messages m WHERE m.content = 'more';
         UPDATE mailboxes SET head = 1000 + {MESSAGES} WHERE agent_id = {bob};
         UPDATE session_members SET unread = unread + {MESSAGES} WHERE agent_id = {bob}",
        bob = bob.key
    );
    client.batch_execute(&fill).await.unwrap();
    store.close().await;
    drop((store, client));
    for verb in ["events", "inbox", "claim", "ack"] {
        database.alone().await;
        database.run("SELECT pg_stat_reset()").await;
        let store = open(&database).await;
        // More often than PostgreSQL makes custom plans of a prepared statement.
        for _ in 0..8 {
            let shown = match verb {
                "events" => store.events(bob.key, 0, 10).await.unwrap().len(),
                "inbox" => 9 + store.inbox(&bob, false, at(2)).await.unwrap().sessions.len(),
                _ => {
                    let claim = ClaimRequest { limit: 10, lease: Duration::from_secs(60), urgent_first: true };
                    let claimed = store.claim(&bob, claim, at(2)).await.unwrap().answer;
                    if verb == "ack" {
                        let ids: Vec<_> = claimed.iter().map(|message| message.id.clone()).collect();
                        assert_eq!(store.ack(&bob, &ids, at(3)).await.unwrap().answer, 10);
                    }
                    claimed.len()
                }
            };
            assert_eq!(shown, 10, "{verb}");
        }
        store.close().await;
        drop(store);
        // A connection reports its statistics when it ends.
        database.alone().await;
        let read = "SELECT relname, coalesce(seq_tup_read, 0) + coalesce(idx_tup_fetch, 0) FROM pg_stat_user_tables
                    WHERE relname IN ('messages', 'deliveries', 'events')";
        for row in database.connection().await.query(read, &[]).await.unwrap() {
            let (table, read): (String, i64) = (row.get(0), row.get(1));
            assert!(read < MESSAGES / 4, "{verb} read {read} rows of {table} for eight pages of ten");
        }
    }
}
