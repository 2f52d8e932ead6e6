//! Several processes on one PostgreSQL: what they tell each other, and what they share.

use std::future::Future;
use std::sync::Arc;
use std::time::Duration;

use amb_store::{AgentKey, Charge, ChargeMode, Hint, KeyHash, PostgresStore};
use amb_testing::PostgresDatabase;
use amb_testing::store::{TestStore, at, hash_of, key_of, new_key};
use tokio::sync::broadcast::Receiver;

async fn soon<F: Future>(what: F) -> F::Output {
    tokio::time::timeout(Duration::from_secs(60), what).await.expect("waited in vain")
}

/// Two processes on one database, as far as the database can tell.
async fn two() -> (PostgresDatabase, TestStore, TestStore) {
    let database = PostgresDatabase::fresh().await;
    let open = async || TestStore(Arc::new(PostgresStore::open(&database.url()).await.unwrap()));
    let (one, other) = (open().await, open().await);
    (database, one, other)
}

/// Hears until this is heard; what is heard before it is passed over.
async fn hear(hints: &mut Receiver<Hint>, wanted: Hint) {
    soon(async { while hints.recv().await.unwrap() != wanted {} }).await;
}

/// What `store` hears, from when it does: `from` knocks until it is heard.
async fn listening(store: &TestStore, from: &TestStore, agent: AgentKey) -> Receiver<Hint> {
    let mut hints = store.hints().unwrap();
    soon(async {
        loop {
            from.hint(&[(agent, 0)]).await.unwrap();
            let knock = hear(&mut hints, Hint::Grew(agent, 0));
            if tokio::time::timeout(Duration::from_millis(100), knock).await.is_ok() {
                return;
            }
        }
    })
    .await;
    hints
}

#[tokio::test]
async fn a_process_hears_whose_logs_another_let_grow_and_nothing_of_its_own() {
    let (_database, one, other) = two().await;
    let (alice, bob) = one.pair().await;
    let mut heard = listening(&other, &one, bob.key).await;
    let mut own = listening(&one, &other, bob.key).await;
    one.hint(&[(alice.key, 3), (bob.key, 4)]).await.unwrap();
    hear(&mut heard, Hint::Grew(alice.key, 3)).await;
    hear(&mut heard, Hint::Grew(bob.key, 4)).await;
    other.hint(&[(bob.key, 9)]).await.unwrap();
    // Notifications come in order, so its own would have come before this one.
    let first = soon(async {
        loop {
            // Knocks that came late aside.
            if let Hint::Grew(agent, number @ 1..) = own.recv().await.unwrap() {
                return (agent, number);
            }
        }
    });
    assert_eq!(first.await, (bob.key, 9));
}

#[tokio::test]
async fn a_long_hint_arrives_whole() {
    let (_database, one, other) = two().await;
    let bob = one.enter("bob").await;
    let mut heard = listening(&other, &one, bob.key).await;
    let grown: Vec<_> = (1..=1_000).map(|number| (bob.key, number)).collect();
    one.hint(&grown).await.unwrap();
    for number in 1..=1_000 {
        hear(&mut heard, Hint::Grew(bob.key, number)).await;
    }
}

#[tokio::test]
async fn a_key_that_ends_in_one_process_is_unknown_to_the_other_once_it_heard_of_it() {
    let (_database, one, other) = two().await;
    let bob = one.enter("bob").await;
    let mut heard = listening(&other, &one, bob.key).await;
    let key = KeyHash::of(&key_of("bob"));
    assert_eq!(other.agent_by_key_hash(key, at(1)).await.unwrap().as_ref(), Some(&bob));
    one.rotate_key(&bob, hash_of("bob"), new_key("new", "amb_new0"), None, at(1)).await.unwrap();
    hear(&mut heard, Hint::Keys(bob.key)).await;
    assert_eq!(other.agent_by_key_hash(key, at(1)).await.unwrap(), None);
    one.delete_agent(&bob, KeyHash::of("new"), at(2)).await.unwrap();
    hear(&mut heard, Hint::Keys(bob.key)).await;
}

#[tokio::test]
async fn processes_know_how_many_they_are_and_who_hears() {
    let (_database, one, other) = two().await;
    let mut heard = one.hints().unwrap();
    let alone = one.heartbeat(true).await.unwrap();
    assert_eq!((alone.others, alone.others_hear), (0, true));
    let both = other.heartbeat(false).await.unwrap();
    assert_eq!((both.others, both.others_hear, both.office), (1, true, alone.office));
    hear(&mut heard, Hint::Replicas).await;
    let both = one.heartbeat(true).await.unwrap();
    assert_eq!((both.others, both.others_hear), (1, false), "the other said that it hears by the database alone");
    other.close().await;
    hear(&mut heard, Hint::Replicas).await;
    assert_eq!(one.heartbeat(true).await.unwrap().others, 0);
}

#[tokio::test]
async fn a_limit_is_spent_by_all_processes_together() {
    let (_database, one, other) = two().await;
    let hour = Duration::from_secs(3_600);
    let charge =
        |key: &str| Charge { of: "guess", key: key.into(), cost: hour, room: hour * 3, mode: ChargeMode::IfRoom };
    for store in [&one, &other, &one] {
        assert!(!store.charge(&[charge("bob")]).await.unwrap()[0].refused);
    }
    for store in [&one, &other] {
        let refused = store.charge(&[charge("bob"), charge("ann")]).await.unwrap();
        assert!(refused[0].refused && refused[0].owed > hour * 2 && refused[0].owed <= hour * 3, "{refused:?}");
        assert!(!refused[1].refused, "another's is not touched");
    }
    let done = Charge { mode: ChargeMode::Always, ..charge("bob") };
    let owed = other.charge(std::slice::from_ref(&done)).await.unwrap()[0];
    assert!(!owed.refused && owed.owed > hour * 3, "what happened is owed: {owed:?}");
    one.prune_rate_limits().await.unwrap();
    assert!(one.charge(&[charge("bob")]).await.unwrap()[0].refused, "what is owed is kept");
    let back = Charge { mode: ChargeMode::Refund, ..charge("bob") };
    for store in [&one, &other] {
        store.charge(std::slice::from_ref(&back)).await.unwrap();
    }
    assert!(!one.charge(&[charge("bob")]).await.unwrap()[0].refused, "what was given back can be spent");
    assert!(other.charge(&[charge("bob")]).await.unwrap()[0].refused);
}

#[tokio::test]
async fn tries_at_once_in_both_processes_are_all_counted() {
    let (_database, one, other) = two().await;
    let hour = Duration::from_secs(3_600);
    let charge = Charge { of: "guess", key: "bob".into(), cost: hour, room: hour * 10, mode: ChargeMode::IfRoom };
    let tries = (0..40).map(|number| {
        let (store, charge) = (if number % 2 == 0 { one.clone() } else { other.clone() }, charge.clone());
        tokio::spawn(async move { store.charge(&[charge]).await.unwrap()[0].refused })
    });
    let mut let_through = 0;
    for one in tries.collect::<Vec<_>>() {
        let_through += usize::from(!one.await.unwrap());
    }
    assert_eq!(let_through, 10);
}
