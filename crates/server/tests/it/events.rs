//! `GET /events`: the log by long poll.

use serde_json::{Value, json};

use crate::test_server::{TestServer, soon};

fn kinds(page: &Value) -> Vec<&str> {
    page["events"].as_array().unwrap().iter().map(|event| event["type"].as_str().unwrap()).collect()
}

async fn the_log_has_all_events_in_order(server: TestServer) {
    let (alice, bob) = server.pair().await;
    for number in 0..5 {
        server.send(&alice, &bob, "Plan", &number.to_string()).await;
    }
    let page = server.get(&bob, "/events?since=0").await.expect(200);
    let expected = ["connection_request", "new_message", "new_message", "new_message", "new_message", "new_message"];
    assert_eq!(kinds(&page), expected);
    assert_eq!(page["events"][0]["from_agent"], "alice-agent");
    let cursors: Vec<_> = page["events"].as_array().unwrap().iter().map(|e| e["cursor"].as_u64().unwrap()).collect();
    assert!(cursors.is_sorted() && cursors.windows(2).all(|pair| pair[0] < pair[1]), "{cursors:?}");
    assert_eq!(page["cursor"], *cursors.last().unwrap());

    // By pages, each entry once.
    let (mut since, mut seen) = (0, Vec::new());
    loop {
        let page = server.get(&bob, &format!("/events?since={since}&limit=2")).await.expect(200);
        since = page["cursor"].as_u64().unwrap();
        match page["events"].as_array().unwrap().as_slice() {
            [] => break,
            events => seen.extend(events.iter().map(|event| event["cursor"].as_u64().unwrap())),
        }
    }
    assert_eq!(seen, cursors);
    let approved = server.get(&alice, "/events?since=0").await.expect(200);
    assert_eq!(kinds(&approved)[0], "connection_approved");
    assert_eq!(approved["events"][0]["connected_agent"], "bob-agent");
}

async fn without_a_cursor_the_response_is_the_end_of_the_log(server: TestServer) {
    let (alice, bob) = server.pair().await;
    server.send(&alice, &bob, "Plan", "before").await;
    let page = server.get(&bob, "/events?wait=30").await.expect(200);
    assert_eq!(page["events"], json!([]), "it does not wait");
    server.send(&alice, &bob, "Plan", "after").await;
    let next = server.get(&bob, &format!("/events?since={}", page["cursor"])).await.expect(200);
    assert_eq!(next["events"].as_array().unwrap().len(), 1);
    assert_eq!(next["events"][0]["content"], "after");
    // A cursor of another database must not block events for ever.
    let beyond = server.get(&bob, "/events?since=999999").await.expect(200);
    assert_eq!(beyond["cursor"], next["cursor"]);
}

async fn a_message_answers_a_waiting_poll(server: TestServer) {
    let (alice, bob) = server.pair().await;
    let end = server.get(&bob, "/events").await.expect(200)["cursor"].clone();
    let path = format!("/events?since={end}&wait=30");
    let poll = server.get(&bob, &path);
    let (page, _) = soon(async { tokio::join!(poll, server.send(&alice, &bob, "Plan", "now")) }).await;
    let page = page.expect(200);
    assert_eq!(page["events"][0]["content"], "now");
    let quiet = server.get(&bob, &format!("/events?since={}&wait=1", page["cursor"])).await.expect(200);
    assert_eq!((&quiet["events"], &quiet["cursor"]), (&json!([]), &page["cursor"]));
}

async fn only_a_waiting_poll_counts_as_a_subscriber(mut server: TestServer) {
    server.close().await;
    let config = amb_server::Config { ws_per_agent: 1, rate_limits: None, ..amb_server::Config::default() };
    server.start(config).await;
    let bob = server.register("bob-agent").await;
    let _socket = server.live(&bob).await;
    server.get(&bob, "/events").await.expect(200);
    server.get(&bob, "/events?since=0").await.expect(200);
    server.get(&bob, "/events?wait=5").await.expect(200);
    server.get(&bob, "/events?since=0&wait=1").await.problem(429, "too_many_requests");
}

async fn bad_query_parameters_are_rejected(server: TestServer) {
    let alice = server.register("alice-agent").await;
    for bad in
        ["since=-1", "since=x", "wait=61", "wait=-1", "limit=0", "limit=501", "since=1&since=2", "since=1&previous=x"]
    {
        server.get(&alice, &format!("/events?{bad}")).await.problem(422, "invalid");
    }
}

crate::on_every_store!(
    the_log_has_all_events_in_order,
    without_a_cursor_the_response_is_the_end_of_the_log,
    a_message_answers_a_waiting_poll,
    only_a_waiting_poll_counts_as_a_subscriber,
    bad_query_parameters_are_rejected,
);
