//! `POST /messages/send`.

use serde_json::json;

use crate::test_server::TestServer;

async fn test_send_message_new_session(server: TestServer) {
    let (alice, bob) = server.pair().await;
    let sent = server.send(&alice, &bob, "Project collaboration", "Hello Bob, shall we start?").await;
    assert!(sent["message_id"].as_str().unwrap().parse::<uuid::Uuid>().is_ok());
    assert!(sent["session_id"].as_str().unwrap().parse::<uuid::Uuid>().is_ok());
    assert_eq!(sent["subject"], "Project collaboration");
    assert!(sent["created_at"].as_str().unwrap().ends_with('Z'));
    assert_eq!(sent.as_object().unwrap().len(), 4, "{sent}");
}

async fn test_send_message_existing_session(server: TestServer) {
    let (alice, bob) = server.pair().await;
    let first = server.send(&alice, &bob, "Plan", "one").await;
    let second = server.send(&alice, &bob, "Plan", "two").await;
    let back = server.send(&bob, &alice, " plan ", "three").await;
    assert_eq!(first["session_id"], second["session_id"]);
    assert_eq!(first["session_id"], back["session_id"]);
    let other = server.send(&alice, &bob, "Another plan", "four").await;
    assert_ne!(first["session_id"], other["session_id"]);
}

async fn test_send_message_no_connection(server: TestServer) {
    let (alice, bob) = (server.register("alice-agent").await, server.register("bob-agent").await);
    let body = json!({"to": bob.name, "subject": "Plan", "content": "hello"});
    server.post(&alice, "/messages/send", body.clone()).await.problem(403, "not_connected");
    server.ask(&alice, &bob).await;
    server.post(&alice, "/messages/send", body).await.problem(403, "not_connected");
    let body = json!({"to": "nobody-here", "subject": "Plan", "content": "hello"});
    let answer = server.post(&alice, "/messages/send", body).await;
    assert_eq!(answer.status, 403, "{}", answer.body);
}

async fn an_agent_cannot_write_to_itself(server: TestServer) {
    let (alice, near) = (server.register("alice-agent").await, server.register("alice-agenda").await);
    server.connect(&alice, &near).await;
    for me in ["alice-agent", "ALICE-AGENT"] {
        let body = json!({"to": me, "subject": "Plan", "content": "hello"});
        let many = json!({"to": [me, near.name], "subject": "Plan", "content": "hello"});
        for (path, body) in [("/messages/send", body), ("/messages/send-many", many)] {
            let problem = server.post(&alice, path, body).await.problem(403, "not_connected");
            assert_eq!(problem["detail"], "an agent cannot write to itself; name another agent");
        }
    }
    let line = json!({"role": "user", "content": "x", "sender": "ann"});
    server.post(&alice, "/transcripts/chat:1", line).await.expect(201);
    let share = json!({"agent_name": alice.name, "access": "read"});
    let problem = server.post(&alice, "/transcripts/chat:1/share", share).await.problem(403, "not_connected");
    assert_eq!(problem["detail"], "an agent reads and writes its own transcripts; name another agent");
}

async fn test_send_message_to_session(server: TestServer) {
    let (alice, bob) = server.pair().await;
    let carol = server.register("carol-agent").await;
    server.connect(&alice, &carol).await;
    let first = server.send(&alice, &bob, "Plan", "one").await;
    let session = &first["session_id"];
    let body = json!({"to": alice.name, "content": "two", "session_id": session});
    let second = server.post(&bob, "/messages/send", body).await.expect(201);
    assert_eq!((&second["session_id"], &second["subject"]), (session, &json!("Plan")));

    // Clients that fill in every field send a blank subject with the session.
    let blank = json!({"to": bob.name, "subject": "", "content": "three", "session_id": session});
    assert_eq!(server.post(&alice, "/messages/send", blank).await.expect(201)["subject"], "Plan");

    let unknown = json!({"to": bob.name, "content": "x", "session_id": "0190b4a0-0000-7000-8000-000000000000"});
    server.post(&alice, "/messages/send", unknown).await.problem(404, "not_found");
    let others = json!({"to": carol.name, "content": "x", "session_id": session});
    server.post(&alice, "/messages/send", others).await.problem(403, "forbidden");
    let no_uuid = json!({"to": bob.name, "content": "x", "session_id": "7"});
    server.post(&alice, "/messages/send", no_uuid).await.problem(422, "invalid");
}

async fn lengths_count_characters(server: TestServer) {
    let (alice, bob) = server.pair().await;
    let body = |subject: usize, content: usize| json!({"to": bob.name, "subject": "é".repeat(subject), "content": "😀".repeat(content)});
    server.post(&alice, "/messages/send", body(255, 10_000)).await.expect(201);
    server.post(&alice, "/messages/send", body(256, 1)).await.problem(422, "invalid");
    server.post(&alice, "/messages/send", body(1, 10_001)).await.problem(422, "invalid");
    // A longer text goes in parts, and documents show the whole of it.
    let long = |texts: &[usize]| {
        let parts: Vec<_> = texts.iter().map(|chars| json!({"type": "text", "text": "é".repeat(*chars)})).collect();
        json!({"to": bob.name, "subject": "Long", "parts": parts})
    };
    let sent = server.post(&alice, "/messages/send", long(&[100_000])).await.expect(201);
    let path = format!("/sessions/{}/history", sent["session_id"].as_str().unwrap());
    let history = server.get(&bob, &path).await.expect(200);
    assert_eq!(history["messages"][0]["content"].as_str().unwrap().chars().count(), 100_000);
    server.post(&alice, "/messages/send", long(&[100_001])).await.problem(422, "invalid");
    server.post(&alice, "/messages/send", long(&[60_000, 40_000])).await.problem(422, "invalid");
    server.post(&alice, "/messages/send", body(0, 1)).await.problem(422, "invalid");
    server.post(&alice, "/messages/send", body(1, 0)).await.problem(422, "invalid");
    for body in [
        json!({"to": bob.name, "content": "x"}),
        json!({"to": bob.name, "subject": "x"}),
        json!({"to": "not a name", "subject": "x", "content": "x"}),
        json!({"subject": "x", "content": "x"}),
        json!({"to": bob.name, "subject": "x", "content": "x", "priority": "asap"}),
        json!({"to": bob.name, "subject": "x", "content": "x", "kind": "task_update"}),
    ] {
        server.post(&alice, "/messages/send", body).await.problem(422, "invalid");
    }
}

async fn parts_priority_and_metadata_arrive_as_they_were_sent(server: TestServer) {
    let (alice, bob) = server.pair().await;
    let body = json!({
        "to": bob.name, "subject": "Plan", "content": "see the data", "kind": "work_assignment", "priority": "urgent",
        "parts": [{"type": "data", "data": {"n": 1.5, "list": [1, null]}}, {"type": "file", "path": "/srv/x.txt"}],
        "correlation_id": "c-1", "metadata": {"k": [1, 2]},
    });
    let sent = server.post(&alice, "/messages/send", body).await.expect(201);
    let path = format!("/sessions/{}/history", sent["session_id"].as_str().unwrap());
    let got = server.get(&bob, &path).await.expect(200);
    let message = &got["messages"][0];
    assert_eq!(message["content"], "see the data");
    assert_eq!((&message["kind"], &message["priority"]), (&json!("work_assignment"), &json!("urgent")));
    assert_eq!(message["parts"][0], json!({"type": "text", "text": "see the data"}));
    assert_eq!(message["parts"][1]["data"], json!({"n": 1.5, "list": [1, null]}));
    assert_eq!((&message["correlation_id"], &message["metadata"]), (&json!("c-1"), &json!({"k": [1, 2]})));
}

crate::on_every_store!(
    test_send_message_new_session,
    test_send_message_existing_session,
    test_send_message_no_connection,
    an_agent_cannot_write_to_itself,
    test_send_message_to_session,
    lengths_count_characters,
    parts_priority_and_metadata_arrive_as_they_were_sent,
);
