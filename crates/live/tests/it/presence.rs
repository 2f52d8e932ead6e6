//! Who is live, across processes.

use std::time::Duration;

use amb_live::{LivePeers, NatsOptions};
use serde_json::json;

use crate::world::{join, name, sees, until};
use amb_testing::NatsServer;

fn quick(server: &NatsServer) -> NatsOptions {
    NatsOptions { expiry: Duration::from_millis(600), ..server.options() }
}

#[tokio::test]
async fn a_newcomer_sees_who_was_there_before() {
    let server = NatsServer::start();
    let first = LivePeers::connect(server.options()).await.unwrap();
    let bob = join(&first, "bob").await;
    let second = LivePeers::connect(server.options()).await.unwrap();
    assert_eq!(
        second.directory().live_goals("bob"),
        Some(vec![bob.id()]),
        "at once, without waiting for a sign of life"
    );
    assert_eq!(
        json!(second.peers()),
        json!([{"agent_id": "bob", "description": "bob agent", "live_goals": [bob.id()]}])
    );
}

#[tokio::test]
async fn a_living_process_stays_listed_far_beyond_the_expiry() {
    let server = NatsServer::start();
    let (here, there) =
        (LivePeers::connect(quick(&server)).await.unwrap(), LivePeers::connect(quick(&server)).await.unwrap());
    let bob = join(&there, "bob").await;
    sees(&here, &bob).await;
    assert_eq!(here.broker().expiry(), Some(Duration::from_millis(600)));
    tokio::time::sleep(Duration::from_secs(2)).await;
    // A busy machine may delay a heartbeat; without any, bob would never be listed again.
    sees(&here, &bob).await;
    let late = LivePeers::connect(quick(&server)).await.unwrap();
    sees(&late, &bob).await;
}

#[tokio::test]
async fn more_goals_than_fit_one_entry_are_all_listed_and_all_withdrawn() {
    let server = NatsServer::start();
    let (here, there) =
        (LivePeers::connect(server.options()).await.unwrap(), LivePeers::connect(server.options()).await.unwrap());
    let joins = (0..150).map(|number| there.join(name(&format!("worker-{}", number % 7)), "works"));
    let goals = futures_util::future::try_join_all(joins).await.unwrap();
    let listed = || here.peers().iter().map(|peer| peer.live_goals.len()).sum::<usize>();
    until("all are listed", || listed() == 150).await;
    let late = LivePeers::connect(server.options()).await.unwrap();
    assert_eq!(late.peers().iter().map(|peer| peer.live_goals.len()).sum::<usize>(), 150);
    drop(goals);
    until("all are gone", || listed() == 0).await;
}

#[tokio::test]
async fn deployments_with_different_buckets_do_not_see_each_other() {
    let server = NatsServer::start();
    let ours = LivePeers::connect(server.options()).await.unwrap();
    let _bob = join(&ours, "bob").await;
    let bucket = NatsOptions { presence_bucket: "staging".into(), ..server.options() };
    let theirs = LivePeers::connect(bucket).await.unwrap();
    assert!(theirs.peers().is_empty());
}

#[tokio::test]
async fn the_first_to_come_decides_the_expiry() {
    let server = NatsServer::start();
    let connect = |seconds| {
        let options = NatsOptions { expiry: Duration::from_secs(seconds), ..server.options() };
        LivePeers::connect(options)
    };
    let first = connect(60).await.unwrap();
    let rest = futures_util::future::try_join_all((1..6).map(connect)).await.unwrap();
    assert_eq!(first.broker().expiry(), Some(Duration::from_secs(60)));
    assert!(rest.iter().all(|other| other.broker().expiry() == first.broker().expiry()));
}

#[tokio::test]
async fn garbage_in_the_bucket_harms_nobody() {
    let server = NatsServer::start();
    let here = LivePeers::connect(server.options()).await.unwrap();
    let client = async_nats::connect(server.url()).await.unwrap();
    for (key, value) in
        [("a", "{"), ("b.0", r#"{"goals":[{"goal_id":"x"}]}"#), ("c.0", r#"{"goals":[{"agent_id":"../x"}]}"#)]
    {
        client.publish(format!("$KV.amb_presence.{key}"), value.into()).await.unwrap();
    }
    let bob = join(&here, "bob").await;
    let late = LivePeers::connect(server.options()).await.unwrap();
    sees(&late, &bob).await;
    assert_eq!((here.peers().len(), late.peers().len()), (1, 1));
}

#[tokio::test]
async fn a_server_without_jetstream_is_named_as_the_reason() {
    let server = NatsServer::with_config("accounts { A { users [{user: u, password: p}] } }");
    let options = NatsOptions {
        auth: amb_live::NatsAuth::UserPassword { user: "u".into(), password: "p".into() },
        ..server.options()
    };
    let error = LivePeers::connect(options).await.err().expect("presence needs JetStream").to_string();
    assert!(error.contains("JetStream"), "{error}");
}
