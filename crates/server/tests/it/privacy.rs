//! Access to transcripts, groups, names and chains of tasks.

use reqwest::Method;
use serde_json::{Value, json};

use crate::test_server::TestServer;

async fn a_transcript_of_another_agent_is_identified_by_its_owner(server: TestServer) {
    let (alice, bob) = server.pair().await;
    let mallory = server.register("mallory-agent").await;
    let line = json!({"role": "assistant", "sender": "bob-agent", "author": "bob-agent", "content": "I agree"});
    for agent in [&mallory, &alice] {
        server.post(agent, "/transcripts/team:1", line.clone()).await.expect(201);
    }
    let share = async |from, with: &str| {
        let body = json!({"agent_name": with, "access": "write"});
        server.post(from, "/transcripts/team:1/share", body).await
    };
    share(&mallory, "bob-agent").await.problem(403, "not_connected");
    assert_eq!(share(&alice, "bob-agent").await.status, 204);
    server.get(&bob, "/transcripts/team:1").await.problem(404, "not_found");
    server.get(&bob, "/transcripts/team:1?owner=mallory-agent").await.problem(404, "not_found");
    let said = json!({"role": "assistant", "sender": "bob-agent", "content": "not I"});
    server.post(&bob, "/transcripts/team:1?owner=alice-agent", said).await.expect(201);
    let got = server.get(&bob, "/transcripts/team:1?owner=alice-agent").await.expect(200);
    let authors: Vec<&Value> = got["lines"].as_array().unwrap().iter().map(|line| &line["author"]).collect();
    assert_eq!(authors, ["alice-agent", "bob-agent"], "whatever the line says");
}

async fn members_are_removed_and_leave(server: TestServer) {
    let (alice, bob) = server.pair().await;
    server.post(&alice, "/groups", json!({"name": "crew"})).await.expect(201);
    let member = json!({"agent_name": "bob-agent"});
    server.post(&alice, "/groups/crew/invite", member.clone()).await.expect(200);
    server.post(&bob, "/groups/crew/join", json!({})).await.expect(200);
    server.post(&bob, "/groups/crew/remove", json!({"agent_name": "alice-agent"})).await.problem(403, "forbidden");
    let left = server.post(&alice, "/groups/crew/remove", member.clone()).await.expect(200);
    assert_eq!(left["members"], json!([{"name": "alice-agent", "joined": true}]));
    server.post(&alice, "/groups/crew/remove", member.clone()).await.problem(404, "not_found");
    server.post(&alice, "/groups/crew/invite", member).await.expect(200);
    server.post(&bob, "/groups/crew/join", json!({})).await.expect(200);
    assert_eq!(server.post(&alice, "/groups/crew/leave", json!({})).await.expect(200)["owner"], "bob-agent");
}

async fn names_are_compared_without_case_and_some_are_reserved(server: TestServer) {
    let (alice, bob) = server.pair().await;
    let register =
        async |name: &str| server.call(Method::POST, "/agents/register", None, Some(&json!({"name": name}))).await;
    register("Alice-Agent").await.problem(409, "conflict");
    for word in ["system", "Admin", "ROOT", "assistant", "user"] {
        let problem = register(word).await.problem(422, "invalid");
        assert!(problem["detail"].as_str().unwrap().contains("reserved"), "{problem}");
    }
    let problem = register("_alice").await.problem(422, "invalid");
    assert!(problem["detail"].as_str().unwrap().contains("hidden files"), "{problem}");
    let body = json!({"to": "BOB-agent", "subject": "Plan", "content": "hi"});
    server.post(&alice, "/messages/send", body).await.expect(201);
    assert_eq!(server.get(&bob, "/inbox").await.expect(200)["sessions"][0]["unread_count"], 1);
}

async fn a_chain_shows_only_the_state_of_other_agents_tasks(server: TestServer) {
    let (alice, bob) = server.pair().await;
    let carol = server.register("carol-agent").await;
    server.connect(&bob, &carol).await;
    let task = |to: &str, relay: Option<&str>| json!({"to": to, "subject": "Secret plan", "content": "x", "kind": "task", "relay_of": relay});
    let first = server.post(&alice, "/messages/send", task("bob-agent", None)).await.expect(201);
    let relay = first["message_id"].as_str().unwrap();
    let piece = server.post(&bob, "/messages/send", task("carol-agent", Some(relay))).await.expect(201);
    let path = format!("/tasks/{}/chain", piece["task"]["id"].as_str().unwrap());
    let chain = server.get(&carol, &path).await.expect(200);
    assert_eq!(chain["tasks"][0], json!({"id": first["task"]["id"], "state": "pending"}));
    assert_eq!(chain["tasks"][1]["owner"], "bob-agent");
}

async fn a_blocked_agent_cannot_send_task_updates(server: TestServer) {
    let (alice, bob) = server.pair().await;
    let body = json!({"to": "bob-agent", "subject": "Work", "content": "x", "kind": "task"});
    let sent = server.post(&alice, "/messages/send", body).await.expect(201);
    let path = format!("/tasks/{}/state", sent["task"]["id"].as_str().unwrap());
    server.post(&bob, &path, json!({"state": "working"})).await.expect(200);
    server.post(&alice, "/connections/block", json!({"agent_name": "bob-agent"})).await.expect(200);
    server.post(&bob, &path, json!({"state": "working", "note": "again"})).await.problem(403, "not_connected");
    let tasks = server.get(&bob, "/tasks").await.expect(200);
    assert_eq!(tasks["tasks"][0]["state"], "failed");
}

crate::on_every_store!(
    a_transcript_of_another_agent_is_identified_by_its_owner,
    members_are_removed_and_leave,
    names_are_compared_without_case_and_some_are_reserved,
    a_chain_shows_only_the_state_of_other_agents_tasks,
    a_blocked_agent_cannot_send_task_updates,
);
