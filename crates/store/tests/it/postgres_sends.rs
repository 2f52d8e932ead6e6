//! Batches of sends on PostgreSQL: pipelined with BEGIN and COMMIT.

use amb_core::Draft;
use amb_store::Agent;
use amb_testing::PostgresDatabase;
use amb_testing::store::at;

use crate::support::fresh;

fn text(to: &Agent, content: &str) -> Draft {
    Draft::text(to.name.clone(), "Plan", content)
}

/// Returns the number of connections that are idle in a transaction.
async fn open_transactions(database: &PostgresDatabase) -> i64 {
    let idle = "SELECT count(*) FROM pg_stat_activity
                WHERE datname = current_database() AND state LIKE 'idle in transaction%'";
    database.connection().await.query_one(idle, &[]).await.unwrap().get(0)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_mailbox_is_locked_until_its_mail_is_committed() {
    let (database, store) = fresh().await;
    let (alice, bob) = store.pair().await;
    store.say(&alice, &bob, "Plan", "first").await;
    let gate = database.wait_at("messages", "NEW.content = 'slow'").await;
    let sending = tokio::spawn({
        let (store, alice, draft) = (store.clone(), alice.clone(), text(&bob, "slow"));
        async move { store.send(&alice, draft, at(5)).await }
    });
    while !database.is_somebody_waiting().await {
        tokio::task::yield_now().await;
    }
    let free = format!("SELECT FROM mailboxes WHERE agent_id = {} FOR NO KEY UPDATE SKIP LOCKED", bob.key);
    let other = database.connection().await;
    assert!(other.query(&free, &[]).await.unwrap().is_empty(), "the send holds it");
    drop(gate);
    sending.await.unwrap().unwrap();
    assert_eq!(other.query(&free, &[]).await.unwrap().len(), 1);
    assert_eq!(open_transactions(&database).await, 0);
    store.close().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_failed_message_leaves_nothing_and_the_rest_of_its_batch_is_sent() {
    let (database, store) = fresh().await;
    let (alice, bob) = store.pair().await;
    store.say(&alice, &bob, "Plan", "first").await;
    database
        .run(
            "CREATE FUNCTION refuse() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN RAISE 'refused'; END $$;
             CREATE TRIGGER refuse BEFORE INSERT ON messages FOR EACH ROW WHEN (NEW.content = 'bad')
             EXECUTE FUNCTION refuse()",
        )
        .await;
    let used = store.profile(&alice, at(5)).await.unwrap().usage;
    store.send(&alice, text(&bob, "bad"), at(5)).await.unwrap_err();
    assert_eq!(store.profile(&alice, at(5)).await.unwrap().usage, used, "nothing was counted");
    assert_eq!(open_transactions(&database).await, 0);
    // Concurrent sends share transactions; those in one with a bad message are sent all the same.
    let sends = (0..40).map(|i| {
        let (store, alice) = (store.clone(), alice.clone());
        let draft = text(&bob, if i % 10 == 3 { "bad" } else { "good" });
        tokio::spawn(async move { store.send(&alice, draft, at(6)).await.is_ok() })
    });
    let mut sent = 0;
    for send in sends.collect::<Vec<_>>() {
        sent += u64::from(send.await.unwrap());
    }
    assert_eq!(sent, 36);
    let now = store.profile(&alice, at(7)).await.unwrap().usage;
    assert_eq!(now.messages - used.messages, 36);
    assert_eq!(store.event_head(bob.key).await.unwrap(), store.events(bob.key, 0, 100).await.unwrap().len() as u64);
    assert_eq!(open_transactions(&database).await, 0);
    store.close().await;
}
