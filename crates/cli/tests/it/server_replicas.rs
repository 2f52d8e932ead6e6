//! Two servers on one PostgreSQL, with kill -9 under load: every message that was accepted by either reaches its
//! subscriber, at either, once.

use amb_testing::NatsServer;
use amb_testing::PostgresDatabase;
use serde_json::json;

use crate::server_kill::rounds;
use crate::server_load::Load;
use crate::server_office::{Office, serve_command};

async fn replica(database: &PostgresDatabase, nats: Option<&NatsServer>) -> Office {
    let mut command = serve_command(&database.url());
    if let Some(nats) = nats {
        command.args(["--nats-url", &nats.url()]);
    }
    Office::start_with(command).await
}

async fn kill_one_again_and_again(mut nats: Option<NatsServer>) {
    let database = PostgresDatabase::fresh().await;
    let mut replicas = [replica(&database, nats.as_ref()).await, replica(&database, nats.as_ref()).await];
    let load = Load::begin(&[&replicas[0], &replicas[1]]).await;
    for round in 0..rounds() {
        load.advance(1 + round * 37 % 90).await;
        // Now one, now the other.
        let which = round % 2;
        let fresh = replica(&database, nats.as_ref()).await;
        std::mem::replace(&mut replicas[which], fresh).kill().await;
        load.moved_to(which, &replicas[which]);
        if let Some(nats) = nats.as_mut().filter(|_| round % 5 == 3) {
            nats.restart();
        }
    }
    load.advance(40).await;
    let answered = load.check(&replicas[0]).await;
    println!("{} kills, {answered} sends answered", rounds());
    for replica in replicas {
        replica.terminate();
        assert!(replica.ended().await.success());
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_either_replica_accepted_is_heard_once_though_one_is_killed_with_notifications() {
    kill_one_again_and_again(None).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_either_replica_accepted_is_heard_once_though_one_is_killed_with_nats() {
    kill_one_again_and_again(Some(NatsServer::start())).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_message_sent_to_one_replica_is_heard_at_the_other() {
    let database = PostgresDatabase::fresh().await;
    let nats = NatsServer::start();
    let (one, other) = (replica(&database, Some(&nats)).await, replica(&database, Some(&nats)).await);
    let (from, to) = one.pair(0).await;
    let mut socket = other.socket(&to, 0).await;
    crate::server_office::greeted(&mut socket).await;
    let sent = one.send(&from, &to, "over there").await.expect(201);
    let told = other.get(&to, "/events?since=1&wait=30").await.expect(200);
    assert_eq!(told["events"][0]["message_id"], sent["message_id"], "{told}");
    one.call(reqwest::Method::DELETE, "/agents/me", Some(&to.key), None).await.expect(204);
    // The other replica is told by the database, a moment after the deletion was answered.
    loop {
        let asked = other.get(&to, "/inbox").await;
        match asked.status.as_u16() {
            200 => tokio::task::yield_now().await,
            401 => break,
            status => panic!("{status}: {}", json!(asked.body)),
        }
    }
}
