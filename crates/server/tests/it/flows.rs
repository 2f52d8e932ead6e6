//! The three integration flows of the plan.

use serde_json::json;

use crate::test_server::TestServer;

async fn connection_flow(server: TestServer) {
    let (alice, bob) = (server.register("agent-a").await, server.register("agent-b").await);
    let code = server.ask(&alice, &bob).await;
    let approved = server.post(&bob, "/connections/approve", json!({"verification_code": code})).await.expect(200);
    assert_eq!(approved["status"], "ACTIVE");
    // Active for both: each can write to the other.
    server.send(&alice, &bob, "Test", "from a").await;
    server.send(&bob, &alice, "Test", "from b").await;
    assert_eq!(server.get(&bob, "/inbox").await.expect(200)["pending_connections"], json!([]));
}

async fn message_flow(server: TestServer) {
    let (alice, bob) = server.pair().await;
    let sent = server.send(&alice, &bob, "Test", "hello").await;
    let inbox = server.get(&bob, "/inbox").await.expect(200);
    assert_eq!(inbox["sessions"][0]["recent_messages"][0]["content"], "hello");
    assert_eq!(inbox["sessions"][0]["unread_count"], 1);
    let path = format!("/sessions/{}/history", sent["session_id"].as_str().unwrap());
    let read = server.get(&bob, &path).await.expect(200);
    assert_eq!(read["messages"][0]["is_read"], true);
    assert_eq!(server.get(&bob, "/inbox").await.expect(200)["sessions"][0]["unread_count"], 0);
    let reply = json!({"to": alice.name, "content": "hello yourself", "session_id": sent["session_id"]});
    server.post(&bob, "/messages/send", reply).await.expect(201);
    let inbox = server.get(&alice, "/inbox").await.expect(200);
    assert_eq!(inbox["sessions"][0]["recent_messages"][0]["content"], "hello yourself");
    assert_eq!(inbox["sessions"][0]["unread_count"], 1);
}

async fn websocket_integration(server: TestServer) {
    let (alice, bob) = server.pair().await;
    let mut socket = server.live(&bob).await;
    let sent = server.send(&alice, &bob, "Project collaboration", "Hello Bob!").await;
    let mut event = socket.receive().await;
    let cursor = event.as_object_mut().unwrap().remove("cursor").unwrap();
    assert!(cursor.is_u64());
    assert_eq!(
        event,
        json!({
            "type": "new_message", "session_id": sent["session_id"], "subject": "Project collaboration",
            "from_agent": "alice-agent", "content": "Hello Bob!", "message_id": sent["message_id"],
            "created_at": sent["created_at"],
        })
    );
}

crate::on_every_store!(connection_flow, message_flow, websocket_integration);
