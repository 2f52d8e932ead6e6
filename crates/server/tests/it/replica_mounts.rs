//! A directory mounted at one replica is reachable from every replica; hints go both ways.

use std::time::Duration;

use amb_core::{AgentName, Card, Draft, Mailbox as _};
use amb_dir::{DirMailbox, DirOffice, DirOptions, Layout};
use amb_live::NatsOptions;
use amb_server::Config;
use amb_testing::NatsServer;
use serde_json::json;

use crate::test_server::{Socket, TestServer, soon};

/// Waits until a condition holds.
#[track_caller]
fn until(mut so: impl AsyncFnMut() -> bool) -> impl Future<Output = ()> {
    soon(async move {
        while !so().await {
            tokio::task::yield_now().await;
        }
    })
}

/// Receives the next event of this kind.
async fn receives(socket: &mut Socket, kind: &str) -> serde_json::Value {
    loop {
        let heard = socket.receive().await;
        if heard["type"] == kind {
            return heard;
        }
    }
}

fn name(text: &str) -> AgentName {
    text.parse().unwrap()
}

async fn resident(root: &std::path::Path) -> DirMailbox {
    let options = DirOptions { layout: Some(Layout::Nanobot), ..DirOptions::default() };
    let coder = DirOffice::open(root, options).unwrap().mailbox(name("coder"));
    coder.register(Card::default()).await.unwrap();
    coder
}

/// The socket's replica never polls in this test, so everything it pushes was hinted at by the mount's replica.
async fn mail_crosses_through_the_other_replica(nats: Option<NatsOptions>) {
    let root = tempfile::tempdir().unwrap();
    let coder = resident(root.path()).await;
    let plain =
        Config { rate_limits: None, poll_interval: Duration::from_secs(24 * 60 * 60), nats, ..Config::default() };
    let one =
        TestServer::postgres_with(Config { mounts: vec![root.path().into()], mount_open: true, ..plain.clone() }).await;
    let other = one.replica(plain).await;
    one.wait_for_metric("amb_replicas 2").await;
    other.wait_for_metric("amb_replicas 2").await;

    let ann = other.register("ann-mcp").await;
    let mut socket = other.live_with_receipts(&ann).await;
    until(async || other.get(&ann, "/agents/coder").await.status == 200).await;
    other.post(&ann, "/connections/request", json!({"target_agent_name": "coder"})).await.expect(201);
    let approved = receives(&mut socket, "connection_approved").await;
    assert_eq!(approved["connected_agent"], "coder", "the mount answered for coder: {approved}");

    // From a file to the socket on the replica without the mount.
    until(async || coder.agents().await.unwrap().iter().any(|agent| agent.name.as_str() == "ann-mcp")).await;
    coder.send(Draft::text(name("ann-mcp"), "Plan", "from a file")).await.unwrap();
    let heard = receives(&mut socket, "new_message").await;
    assert_eq!((&heard["from_agent"], &heard["content"]), (&json!("coder"), &json!("from a file")), "{heard}");

    // And back: accepted by one replica, written to a file by the other, with a receipt at the first.
    let answer = json!({"to": "coder", "subject": "Plan", "content": "from the other replica"});
    let sent = other.post(&ann, "/messages/send", answer).await.expect(201);
    let mut came = None;
    until(async || {
        came = coder.claim(Default::default()).await.unwrap().pop();
        came.is_some()
    })
    .await;
    assert_eq!(came.unwrap().text(), "from the other replica");
    let receipt = receives(&mut socket, "receipt").await;
    assert_eq!(receipt["message_id"], sent["message_id"], "{receipt}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_mount_and_another_replica_exchange_hints_by_the_database() {
    mail_crosses_through_the_other_replica(None).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_mount_and_another_replica_exchange_hints_by_nats() {
    let nats = NatsServer::start();
    mail_crosses_through_the_other_replica(Some(nats.options())).await;
}
