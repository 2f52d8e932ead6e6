//! Other runtimes on the same NATS: what they publish we read, and what we publish they read.

use std::time::Duration;

use amb_live::{InboxMessage, LivePeers, NatsOptions, inbox_subject};
use futures_util::StreamExt;
use serde_json::{Value, json};

use crate::world::{bodies, fresh, join, name, soon};
use amb_testing::NatsServer;

#[tokio::test]
async fn a_runtime_that_never_acknowledges_is_reported_as_published_to() {
    let server = NatsServer::start();
    let impatient = NatsOptions { ack_timeout: Duration::from_millis(300), ..server.options() };
    let peers = LivePeers::connect(impatient).await.unwrap();
    let theirs = fresh();
    let client = async_nats::connect(server.url()).await.unwrap();
    let mut inbox = client.subscribe(inbox_subject(theirs)).await.unwrap();
    client.flush().await.unwrap();
    peers.directory().add_goal(name("nexo-agent"), theirs);
    // The server may not have processed the subscription yet.
    let report = soon("somebody listens", async {
        loop {
            let report = peers.send(name("alice"), "nexo-agent", "hi", None).await.unwrap();
            if report.unreachable_reasons.is_empty() {
                break report;
            }
        }
    })
    .await;
    assert_eq!(json!(report), json!({"delivered_to": [], "published_to": [theirs], "unreachable_reasons": []}));
    let message = soon("the message", inbox.next()).await.unwrap();
    let value: Value = serde_json::from_slice(&message.payload).unwrap();
    let mut fields: Vec<_> = value.as_object().unwrap().keys().cloned().collect();
    fields.sort_unstable();
    assert_eq!(fields, ["body", "from_agent_id", "from_goal_id", "sent_at", "to_agent_id"], "the bare form, no more");
    assert_eq!((&value["from_agent_id"], &value["body"]), (&json!("alice"), &json!("hi")));
    serde_json::from_value::<InboxMessage>(value).unwrap();
}

#[tokio::test]
async fn both_forms_of_another_runtimes_message_are_read() {
    let server = NatsServer::start();
    let peers = LivePeers::connect(server.options()).await.unwrap();
    let bob = join(&peers, "bob").await;
    let bare = |body: &str| {
        json!({
            "from_agent_id": "nexo-agent",
            "from_goal_id": "b91c2d3a-0000-4000-8000-000000000001",
            "to_agent_id": "bob",
            "body": body,
            "sent_at": "2026-04-30T14:00:00.123456789Z",
        })
    };
    let envelope = json!({
        "id": "0f0e0d0c-0000-4000-8000-000000000002",
        "timestamp": "2026-04-30T14:00:01Z",
        "topic": inbox_subject(bob.id()),
        "source": "nexo-agent",
        "session_id": null,
        "payload": bare("in an envelope"),
    });
    let client = async_nats::connect(server.url()).await.unwrap();
    for payload in [bare("bare"), envelope] {
        client.publish(inbox_subject(bob.id()), payload.to_string().into()).await.unwrap();
    }
    let mut got = Vec::new();
    soon("both", async {
        while got.len() < 2 {
            let batch = bob.next().await;
            got.extend(batch.iter().cloned());
            batch.confirm();
        }
    })
    .await;
    assert_eq!(bodies(&got), ["bare", "in an envelope"]);
    assert!(got.iter().all(|message| message.from_agent_id == "nexo-agent"));
}

#[tokio::test]
async fn a_plain_request_gets_an_answer_of_its_own() {
    let server = NatsServer::start();
    let peers = LivePeers::connect(server.options()).await.unwrap();
    let bob = join(&peers, "bob").await;
    let client = async_nats::connect(server.url()).await.unwrap();
    let good = serde_json::to_string(&crate::world::message("bob", "hi")).unwrap();
    let answer = soon("the answer", client.request(inbox_subject(bob.id()), good.into())).await.unwrap();
    assert_eq!(&answer.payload[..], b"+OK");
    let answer = soon("the answer", client.request(inbox_subject(bob.id()), "garbage".into())).await.unwrap();
    assert!(answer.payload.starts_with(b"!"), "{answer:?}");
}

#[tokio::test]
async fn a_runtime_that_reads_envelopes_only_gets_envelopes_where_asked_for() {
    let server = NatsServer::start();
    let enveloping = LivePeers::connect(NatsOptions { envelope: true, ..server.options() }).await.unwrap();
    let bob = join(&enveloping, "bob").await;
    let client = async_nats::connect(server.url()).await.unwrap();
    let mut tap = client.subscribe(inbox_subject(bob.id())).await.unwrap();
    client.flush().await.unwrap();
    let mut seen = None;
    while seen.is_none() {
        // The tap's subscription may come after the first message.
        enveloping.send(name("alice"), "bob", "hi", None).await.unwrap();
        seen = tokio::time::timeout(Duration::from_millis(200), tap.next()).await.ok().flatten();
    }
    let value: Value = serde_json::from_slice(&seen.unwrap().payload).unwrap();
    assert_eq!(value["topic"], json!(inbox_subject(bob.id())));
    assert_eq!((&value["source"], &value["payload"]["body"]), (&json!("alice"), &json!("hi")));
    assert_eq!(bob.inbox().drain()[0].body, "hi", "and we read our own");
}
