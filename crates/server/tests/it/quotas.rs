//! Quotas of stored mail.

use amb_core::Quotas;
use amb_server::Config;
use serde_json::json;

use crate::test_server::TestServer;

fn two_messages() -> Config {
    let quotas = Quotas { agent_messages: Some(2), agent_bytes: Some(1_000), ..Quotas::NONE };
    Config { rate_limits: None, quotas, ..Config::default() }
}

async fn exceeding_a_quota_is_507_and_names_the_limit(server: TestServer) {
    let (alice, bob) = server.pair().await;
    let body = |text: &str| json!({"to": bob.name, "subject": "Plan", "content": text});
    server.post(&alice, "/messages/send", body("é")).await.expect(201);
    server.wait_for_metric("amb_stored_messages 1").await;
    server.wait_for_metric("amb_stored_bytes 2").await;
    let large = server.post(&alice, "/messages/send", body(&"x".repeat(999))).await.problem(507, "over_quota");
    assert!(large["detail"].as_str().unwrap().contains("an agent may have 1000"), "{large}");
    server
        .post(&alice, "/transcripts/team", json!({"role": "user", "sender": "ann", "content": "hi"}))
        .await
        .expect(201);
    let refused = server.post(&alice, "/messages/send", body("more")).await.problem(507, "over_quota");
    assert!(refused["detail"].as_str().unwrap().contains("--agent-messages"), "{refused}");
    let line = json!({"role": "user", "sender": "ann", "content": "hi"});
    server.post(&alice, "/transcripts/team", line).await.problem(507, "over_quota");
    let usage = server.get(&alice, "/agents/me").await.expect(200)["usage"].clone();
    assert_eq!((usage["messages"].as_u64(), usage["max_messages"].as_u64()), (Some(2), Some(2)), "{usage}");
    assert!(usage["bytes"].as_u64() > Some(2) && usage["max_bytes"] == 1_000, "{usage}");
    server.send(&bob, &alice, "Plan", "mine is not full").await;
}

async fn only_a_move_of_a_task_passes_a_full_quota(server: TestServer) {
    let (alice, bob) = server.pair().await;
    let task = json!({"to": bob.name, "subject": "Work", "content": "do it", "kind": "task"});
    let task = server.post(&alice, "/messages/send", task).await.expect(201)["task"]["id"].as_str().unwrap().to_owned();
    let path = format!("/tasks/{task}/state");
    let state = |state: &str| json!({"state": state, "note": "n".repeat(50)});
    server.post(&bob, &path, state("working")).await.expect(200);
    server.post(&bob, &path, state("working")).await.expect(200);
    server.post(&bob, &path, state("working")).await.problem(507, "over_quota");
    server.post(&bob, &path, state("completed")).await.expect(200);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn only_a_move_of_a_task_passes_a_full_quota_on_sqlite() {
    only_a_move_of_a_task_passes_a_full_quota(TestServer::sqlite_with(two_messages()).await).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn only_a_move_of_a_task_passes_a_full_quota_on_postgres() {
    only_a_move_of_a_task_passes_a_full_quota(TestServer::postgres_with(two_messages()).await).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn exceeding_a_quota_on_sqlite_is_507_and_names_the_limit() {
    exceeding_a_quota_is_507_and_names_the_limit(TestServer::sqlite_with(two_messages()).await).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn exceeding_a_quota_on_postgres_is_507_and_names_the_limit() {
    exceeding_a_quota_is_507_and_names_the_limit(TestServer::postgres_with(two_messages()).await).await;
}
