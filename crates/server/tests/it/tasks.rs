//! `/tasks`.

use futures_util::StreamExt;
use reqwest::Method;
use serde_json::{Value, json};

use crate::test_server::{Agent, Answer, TestServer};

async fn give(server: &TestServer, from: &Agent, to: &Agent, more: Value) -> Value {
    let mut body = json!({"to": to.name, "subject": "Work", "content": "do it", "kind": "task"});
    body.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
    server.post(from, "/messages/send", body).await.expect(201)
}

async fn set(server: &TestServer, agent: &Agent, sent: &Value, state: &str) -> Answer {
    let path = format!("/tasks/{}/state", sent["task"]["id"].as_str().unwrap());
    server.post(agent, &path, json!({"state": state, "note": "so it is"})).await
}

async fn a_task_goes_from_pending_to_completed_with_updates_to_its_owner(server: TestServer) {
    let (alice, bob) = server.pair().await;
    let mut to_alice = server.live(&alice).await;
    let sent = give(&server, &alice, &bob, json!({"callback": {"channel": "feishu", "chat_id": "c1"}})).await;
    assert_eq!(sent["task"]["state"], "pending");
    for state in ["accepted", "working", "completed"] {
        assert_eq!(set(&server, &bob, &sent, state).await.expect(200)["state"], state);
    }
    let mut states = Vec::new();
    while states.last() != Some(&json!("completed")) {
        let event = to_alice.receive().await;
        if event["kind"] == "task_update" {
            states.push(event["task"]["state"].clone());
        }
    }
    assert_eq!(states, ["accepted", "working", "completed"]);
    set(&server, &bob, &sent, "failed").await.problem(409, "illegal_move");
    let path = format!("/tasks/{}", sent["task"]["id"].as_str().unwrap());
    let mine = server.get(&alice, &path).await.expect(200);
    assert_eq!((&mine["state"], &mine["callback"]["channel"]), (&json!("completed"), &json!("feishu")));
    let theirs = server.get(&bob, &path).await.expect(200);
    assert!(theirs.get("callback").is_none(), "a callback is its owner's alone: {theirs}");
    let carol = server.register("carol-agent").await;
    server.get(&carol, &path).await.problem(404, "not_found");
    assert_eq!(server.get(&bob, "/tasks?open=true").await.expect(200)["tasks"], json!([]));
    assert_eq!(server.get(&alice, "/tasks?owned=true").await.expect(200)["tasks"].as_array().unwrap().len(), 1);
    let chain = server.get(&alice, &format!("{path}/chain")).await.expect(200);
    assert_eq!(chain["tasks"][0]["id"], sent["task"]["id"]);
}

async fn fifty_concurrent_accepts_with_a_quota_of_three_give_exactly_three(server: TestServer) {
    let (alice, bob) = server.pair().await;
    let mut tasks = Vec::new();
    for _ in 0..50 {
        tasks.push(give(&server, &alice, &bob, json!({})).await);
    }
    let accepts = tasks.iter().map(|task| set(&server, &bob, task, "accepted"));
    let answers: Vec<_> = futures_util::stream::iter(accepts).buffer_unordered(50).collect().await;
    let accepted = answers.iter().filter(|answer| answer.body["state"] == "accepted").count();
    assert_eq!(accepted, 3);
    assert!(answers.iter().all(|answer| !answer.status.is_server_error()));
    let current = server.get(&bob, "/tasks?state=accepted").await.expect(200);
    assert_eq!(current["tasks"].as_array().unwrap().len(), 3);
}

async fn an_overdue_task_is_an_event_for_both_sides(server: TestServer) {
    let (alice, bob) = server.pair().await;
    let (mut to_alice, mut to_bob) = (server.live(&alice).await, server.live(&bob).await);
    let soon = amb_core::Timestamp::now().checked_add(std::time::Duration::from_millis(1_500)).unwrap();
    let sent = give(&server, &alice, &bob, json!({"deadline": soon.to_string()})).await;
    for socket in [&mut to_alice, &mut to_bob] {
        loop {
            let event = socket.receive().await;
            if event["type"] == "task_overdue" {
                assert_eq!(event["task"]["id"], sent["task"]["id"]);
                break;
            }
        }
    }
    server.call(Method::GET, "/tasks?state=never", Some(&bob.key), None).await.problem(422, "invalid");
}

crate::on_every_store!(
    a_task_goes_from_pending_to_completed_with_updates_to_its_owner,
    fifty_concurrent_accepts_with_a_quota_of_three_give_exactly_three,
    an_overdue_task_is_an_event_for_both_sides,
);
