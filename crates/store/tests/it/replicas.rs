//! Several processes on one PostgreSQL: hints, heartbeats and shared rate limits.

use std::time::Duration;

use amb_store::{AgentKey, Charge, ChargeMode, Hint, KeyHash};
use amb_testing::PostgresDatabase;
use amb_testing::store::{TestStore, at, hash_of, key_of, new_key};
use tokio::sync::broadcast::Receiver;

use crate::support::{open, soon};

/// Two processes on one database, as far as the database can tell.
async fn two() -> (PostgresDatabase, TestStore, TestStore) {
    let database = PostgresDatabase::fresh().await;
    let (one, other) = (open(&database).await, open(&database).await);
    (database, one, other)
}

/// Receives hints until this one arrives.
async fn receive(hints: &mut Receiver<Hint>, wanted: Hint) {
    soon(async { while hints.recv().await.unwrap() != wanted {} }).await;
}

/// Subscribes `store` to hints. `from` sends hints until one arrives.
async fn subscribe(store: &TestStore, from: &TestStore, agent: AgentKey) -> Receiver<Hint> {
    let mut hints = store.hints().unwrap();
    soon(async {
        loop {
            from.hint(&[(agent, 0)]).await.unwrap();
            let received = receive(&mut hints, Hint::Grew(agent, 0));
            if tokio::time::timeout(Duration::from_millis(100), received).await.is_ok() {
                return;
            }
        }
    })
    .await;
    hints
}

#[tokio::test]
async fn a_process_gets_the_hints_of_others_and_not_its_own() {
    let (_database, one, other) = two().await;
    let (alice, bob) = one.pair().await;
    let mut hints = subscribe(&other, &one, bob.key).await;
    let mut own = subscribe(&one, &other, bob.key).await;
    one.hint(&[(alice.key, 3), (bob.key, 4)]).await.unwrap();
    receive(&mut hints, Hint::Grew(alice.key, 3)).await;
    receive(&mut hints, Hint::Grew(bob.key, 4)).await;
    other.hint(&[(bob.key, 9)]).await.unwrap();
    // Notifications are in order, so its own would have arrived before this one.
    let first = soon(async {
        loop {
            // Skips late hints of `subscribe`.
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
    let mut hints = subscribe(&other, &one, bob.key).await;
    let grown: Vec<_> = (1..=1_000).map(|number| (bob.key, number)).collect();
    one.hint(&grown).await.unwrap();
    for number in 1..=1_000 {
        receive(&mut hints, Hint::Grew(bob.key, number)).await;
    }
}

#[tokio::test]
async fn a_key_revoked_by_one_process_is_unknown_to_the_other_after_the_hint() {
    let (_database, one, other) = two().await;
    let bob = one.enter("bob").await;
    let mut hints = subscribe(&other, &one, bob.key).await;
    let key = KeyHash::of(&key_of("bob"));
    assert_eq!(other.agent_by_key_hash(key, at(1)).await.unwrap().as_ref(), Some(&bob));
    one.rotate_key(&bob, hash_of("bob"), new_key("new", "amb_new0"), None, at(1)).await.unwrap();
    receive(&mut hints, Hint::Keys(bob.key)).await;
    assert_eq!(other.agent_by_key_hash(key, at(1)).await.unwrap(), None);
    one.delete_agent(&bob, KeyHash::of("new"), at(2)).await.unwrap();
    receive(&mut hints, Hint::Keys(bob.key)).await;
}

#[tokio::test]
async fn a_heartbeat_returns_the_other_processes() {
    let (_database, one, other) = two().await;
    let mut hints = one.hints().unwrap();
    let alone = one.heartbeat(true).await.unwrap();
    assert_eq!((alone.others, alone.others_use_broker), (0, true));
    let both = other.heartbeat(false).await.unwrap();
    assert_eq!((both.others, both.others_use_broker, both.office), (1, true, alone.office));
    receive(&mut hints, Hint::Replicas).await;
    let both = one.heartbeat(true).await.unwrap();
    assert_eq!((both.others, both.others_use_broker), (1, false), "the other gets hints by the database only");
    other.close().await;
    receive(&mut hints, Hint::Replicas).await;
    assert_eq!(one.heartbeat(true).await.unwrap().others, 0);
}

#[tokio::test]
async fn a_rate_limit_is_shared_by_all_processes() {
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
        assert!(!refused[1].refused, "another agent's limit is not charged");
    }
    let done = Charge { mode: ChargeMode::Always, ..charge("bob") };
    let owed = other.charge(std::slice::from_ref(&done)).await.unwrap()[0];
    assert!(!owed.refused && owed.owed > hour * 3, "charged beyond the limit: {owed:?}");
    one.prune_rate_limits().await.unwrap();
    assert!(one.charge(&[charge("bob")]).await.unwrap()[0].refused, "what is owed is kept");
    let back = Charge { mode: ChargeMode::Refund, ..charge("bob") };
    for store in [&one, &other] {
        store.charge(std::slice::from_ref(&back)).await.unwrap();
    }
    assert!(!one.charge(&[charge("bob")]).await.unwrap()[0].refused, "a refund can be spent again");
    assert!(other.charge(&[charge("bob")]).await.unwrap()[0].refused);
}

#[tokio::test]
async fn concurrent_charges_of_two_processes_are_all_counted() {
    let (_database, one, other) = two().await;
    let hour = Duration::from_secs(3_600);
    let charge = Charge { of: "guess", key: "bob".into(), cost: hour, room: hour * 10, mode: ChargeMode::IfRoom };
    let tries = (0..40).map(|number| {
        let (store, charge) = (if number % 2 == 0 { one.clone() } else { other.clone() }, charge.clone());
        tokio::spawn(async move { store.charge(&[charge]).await.unwrap()[0].refused })
    });
    let mut allowed = 0;
    for one in tries.collect::<Vec<_>>() {
        allowed += usize::from(!one.await.unwrap());
    }
    assert_eq!(allowed, 10);
}
