//! Receipts, and acknowledging and claiming messages.

use reqwest::Method;
use serde_json::{Value, json};

use crate::test_server::{Agent, TestServer, soon};

pub(crate) async fn state(server: &TestServer, sender: &Agent, sent: &Value) -> String {
    let path = format!("/messages/{}", sent["message_id"].as_str().unwrap());
    let message = server.get(sender, &path).await.expect(200);
    message["receipts"][0]["state"].as_str().unwrap().to_owned()
}

pub(crate) async fn until(server: &TestServer, sender: &Agent, sent: &Value, wanted: &str) {
    soon(async {
        while state(server, sender, sent).await != wanted {
            tokio::task::yield_now().await;
        }
    })
    .await;
}

async fn a_receipt_goes_from_queued_to_delivered_to_read(server: TestServer) {
    let (alice, bob) = server.pair().await;
    let sent = server.send(&alice, &bob, "Plan", "hello").await;
    assert_eq!(state(&server, &alice, &sent).await, "queued");
    let mut to_alice = server.live_with_receipts(&alice).await;
    // The socket is read, so its pings are answered: the message is delivered.
    let mut to_bob = server.since(&bob, 0).await;
    assert_eq!(to_bob.receive().await["type"], "connection_request");
    assert_eq!(to_bob.receive().await["content"], "hello");
    let reading = tokio::spawn(async move { to_bob.receive_until_close().await });
    until(&server, &alice, &sent, "delivered").await;
    let receipt = to_alice.receive().await;
    assert_eq!((&receipt["type"], &receipt["receipt"]["state"]), (&json!("receipt"), &json!("delivered")));
    let path = format!("/sessions/{}/history", sent["session_id"].as_str().unwrap());
    server.get(&bob, &path).await.expect(200);
    until(&server, &alice, &sent, "read").await;
    assert_eq!(to_alice.receive().await["receipt"]["state"], "read");
    reading.abort();
}

async fn a_socket_without_a_cursor_gets_messages_and_no_receipts(server: TestServer) {
    let (alice, bob) = server.pair().await;
    let (mut to_alice, mut to_bob) = (server.live(&alice).await, server.live(&bob).await);
    let sent = server.send(&alice, &bob, "Plan", "hello").await;
    assert_eq!(to_bob.receive().await["content"], "hello");
    let reading = tokio::spawn(async move { to_bob.receive_until_close().await });
    until(&server, &alice, &sent, "delivered").await;
    let path = format!("/sessions/{}/history", sent["session_id"].as_str().unwrap());
    server.get(&bob, &path).await.expect(200);
    until(&server, &alice, &sent, "read").await;
    server.send(&bob, &alice, "Plan", "hello back").await;
    assert_eq!(to_alice.receive().await["content"], "hello back", "the next event is the answer");
    reading.abort();
}

async fn the_next_poll_acknowledges_the_previous_page(server: TestServer) {
    let (alice, bob) = server.pair().await;
    let sent = server.send(&alice, &bob, "Plan", "hello").await;
    let page = server.get(&bob, "/events?since=0").await.expect(200);
    assert_eq!(state(&server, &alice, &sent).await, "queued", "an answer on its way has not arrived");
    server.get(&bob, &format!("/events?since={}", page["cursor"])).await.expect(200);
    until(&server, &alice, &sent, "delivered").await;
}

async fn a_page_without_a_next_poll_is_not_delivered(server: TestServer) {
    let (alice, bob) = server.pair().await;
    let lost = server.send(&alice, &bob, "Plan", "lost on its way").await;
    let poll = async |since: &Value| server.get(&bob, &format!("/events?since={since}")).await.expect(200);
    // The response to this is lost.
    let page = poll(&json!(0)).await;
    // Another process with the same key, at other cursors.
    server.send(&alice, &bob, "Plan", "read elsewhere").await;
    let later = json!(page["cursor"].as_u64().unwrap() + 1);
    assert_eq!(poll(&later).await["events"], json!([]));
    let end = server.get(&bob, "/events").await.expect(200)["cursor"].clone();
    poll(&end).await;
    let last = server.send(&alice, &bob, "Plan", "last").await;
    let answer = poll(&end).await;
    assert_eq!(answer["events"].as_array().unwrap().len(), 1);
    poll(&answer["cursor"]).await;
    // Receipts are written in the order of the acknowledgements.
    until(&server, &alice, &last, "delivered").await;
    assert_eq!(state(&server, &alice, &lost).await, "queued");
    // A poll with the last cursor of the lost response acknowledges it.
    poll(&page["cursor"]).await;
    until(&server, &alice, &lost, "delivered").await;
}

async fn all_of_a_long_backlog_is_delivered(server: TestServer) {
    const MANY: usize = 1_300;
    let (alice, bob) = server.pair().await;
    let server = std::sync::Arc::new(server);
    let me = server.store.agent_by_name(&alice.name.parse().unwrap()).await.unwrap().unwrap();
    let sending: Vec<_> = (0..MANY)
        .map(|number| {
            let draft = amb_core::Draft::text(bob.name.parse().unwrap(), "Plan", number.to_string());
            let (server, me) = (server.clone(), me.clone());
            tokio::spawn(async move { server.store.send(&me, draft, amb_core::Timestamp::now()).await.unwrap().answer })
        })
        .collect();
    let mut ids = Vec::new();
    for sent in sending {
        ids.push(sent.await.unwrap().message_id);
    }
    // As one range, like that of a socket that reads a long backlog fast.
    let mut socket = server.since(&bob, 0).await;
    for _ in 0..=MANY {
        socket.receive().await;
    }
    let reading = tokio::spawn(async move { socket.receive_until_close().await });
    for id in ids {
        until(&server, &alice, &json!({ "message_id": id }), "delivered").await;
    }
    reading.abort();
}

async fn acknowledging_twice_marks_as_read_once(server: TestServer) {
    let (alice, bob) = server.pair().await;
    let sent = server.send(&alice, &bob, "Plan", "hello").await;
    let ids = json!({"message_ids": [sent["message_id"]]});
    assert_eq!(server.post(&bob, "/messages/ack", ids.clone()).await.expect(200)["acknowledged"], 1);
    assert_eq!(server.post(&bob, "/messages/ack", ids.clone()).await.expect(200)["acknowledged"], 0);
    assert_eq!(state(&server, &alice, &sent).await, "read");
    server.post(&alice, "/messages/ack", ids).await.problem(404, "not_found");
    server.post(&bob, "/messages/ack", json!({"message_ids": ["x"]})).await.problem(422, "invalid");
}

async fn a_ring_is_recorded_in_the_receipt_and_changes_no_state(server: TestServer) {
    let (alice, bob) = server.pair().await;
    let sent = server.send(&alice, &bob, "Plan", "hello").await;
    let ids = json!({"message_ids": [sent["message_id"]]});
    let path = format!("/messages/{}", sent["message_id"].as_str().unwrap());
    let receipt = async || server.get(&alice, &path).await.expect(200)["receipts"][0].clone();
    assert!(receipt().await.get("rung_at").is_none(), "absent where there is nothing to say");
    assert_eq!(server.post(&bob, "/messages/rung", ids.clone()).await.status, 204);
    assert_eq!(server.post(&bob, "/messages/rung", ids.clone()).await.status, 204, "twice is no error");
    let rung = receipt().await;
    assert_eq!(rung["state"], "queued");
    assert!(rung["rung_at"].is_string() && rung.get("delivered_at").is_none(), "{rung}");
    server.post(&alice, "/messages/rung", ids).await.problem(404, "not_found");
    server.post(&bob, "/messages/rung", json!({"message_ids": ["x"]})).await.problem(422, "invalid");
}

async fn a_claimed_message_is_held_by_one_consumer(server: TestServer) {
    let (alice, bob) = server.pair().await;
    let first = server.send(&alice, &bob, "Plan", "first").await;
    let urgent = json!({"to": bob.name, "subject": "Plan", "content": "second", "priority": "urgent"});
    server.post(&alice, "/messages/send", urgent).await.expect(201);
    let claim = async |body| server.post(&bob, "/messages/claim", body).await.expect(200)["messages"].clone();
    let taken = claim(json!({"urgent_first": true})).await;
    assert_eq!(taken[0]["parts"][0]["text"], "second");
    let next = claim(json!({"limit": 10})).await;
    assert_eq!(next.as_array().unwrap().len(), 1);
    assert_eq!(next[0]["id"], first["message_id"]);
    assert_eq!(claim(json!({})).await, json!([]));
    let ids = json!({"message_ids": [first["message_id"]]});
    let longer = json!({"message_ids": [first["message_id"]], "lease_seconds": 600});
    assert_eq!(server.post(&bob, "/messages/renew", longer.clone()).await.status, 204);
    server.post(&alice, "/messages/renew", longer).await.problem(404, "not_found");
    let endless = json!({"message_ids": [first["message_id"]], "lease_seconds": 86_401});
    server.post(&bob, "/messages/renew", endless).await.problem(422, "invalid");
    assert_eq!(server.post(&bob, "/messages/release", ids).await.status, 204);
    assert_eq!(claim(json!({"limit": 10})).await[0]["id"], first["message_id"]);
    for bad in [json!({"limit": 0}), json!({"limit": 101}), json!({"lease_seconds": 0})] {
        server.post(&bob, "/messages/claim", bad).await.problem(422, "invalid");
    }
}

async fn messages_are_listed_by_pages(server: TestServer) {
    let (alice, bob) = server.pair().await;
    for number in 0..5 {
        server.send(&alice, &bob, "Plan", &number.to_string()).await;
    }
    let (mut seen, mut query) = (Vec::new(), "?limit=2".to_owned());
    loop {
        let page = server.get(&bob, &format!("/messages{query}")).await.expect(200);
        let texts =
            page["messages"].as_array().unwrap().iter().map(|m| m["parts"][0]["text"].as_str().unwrap().to_owned());
        seen.extend(texts.collect::<Vec<_>>());
        match page["next"].as_u64() {
            Some(next) => query = format!("?limit=2&before={next}"),
            None => break,
        }
    }
    assert_eq!(seen, ["4", "3", "2", "1", "0"]);
    let none = server.get(&bob, "/messages?from=carol-agent").await.expect(200);
    assert_eq!(none["messages"], json!([]));
    let unknown = "/messages/0190b4a0-0000-7000-8000-000000000000";
    server.call(Method::GET, unknown, Some(&bob.key), None).await.problem(404, "not_found");
}

crate::on_every_store!(
    a_receipt_goes_from_queued_to_delivered_to_read,
    a_socket_without_a_cursor_gets_messages_and_no_receipts,
    the_next_poll_acknowledges_the_previous_page,
    a_page_without_a_next_poll_is_not_delivered,
    all_of_a_long_backlog_is_delivered,
    acknowledging_twice_marks_as_read_once,
    a_ring_is_recorded_in_the_receipt_and_changes_no_state,
    a_claimed_message_is_held_by_one_consumer,
    messages_are_listed_by_pages,
);

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn failed_writes_of_receipts_are_retried() {
    let server = TestServer::postgres().await;
    let (alice, bob) = server.pair().await;
    let sent = server.send(&alice, &bob, "Plan", "hello").await;
    let page = server.get(&bob, "/events?since=0").await.expect(200);
    let database = server.connection().await;
    // A sequence also counts attempts that are rolled back.
    let refuse = "CREATE SEQUENCE tries;
        CREATE FUNCTION refuse() RETURNS trigger LANGUAGE plpgsql AS $$
        BEGIN PERFORM nextval('tries'); RAISE 'not now'; END $$;
        CREATE TRIGGER refuse BEFORE UPDATE OF delivered_at ON deliveries FOR EACH ROW EXECUTE FUNCTION refuse()";
    database.batch_execute(refuse).await.unwrap();
    server.get(&bob, &format!("/events?since={}", page["cursor"])).await.expect(200);
    soon(async {
        while !database.query_one("SELECT is_called FROM tries", &[]).await.unwrap().get::<_, bool>(0) {
            tokio::task::yield_now().await;
        }
    })
    .await;
    database.batch_execute("DROP TRIGGER refuse ON deliveries").await.unwrap();
    until(&server, &alice, &sent, "delivered").await;
}
