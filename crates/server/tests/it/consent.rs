//! Rejecting, revoking and blocking.

use futures_util::StreamExt;
use serde_json::json;

use crate::test_server::{Agent, TestServer};

fn peer(agent: &Agent) -> serde_json::Value {
    json!({"agent_name": agent.name})
}

async fn connections_are_listed_with_their_state(server: TestServer) {
    let (alice, bob) = server.pair().await;
    let carol = server.register("carol-agent").await;
    server.ask(&carol, &alice).await;
    let pending = server.get(&alice, "/connections/pending").await.expect(200);
    assert_eq!(pending["pending_connections"][0]["from_agent_name"], "carol-agent");
    let rejected = server.post(&alice, "/connections/reject", peer(&carol)).await.expect(200);
    assert_eq!(rejected["status"], "REJECTED");
    let all = server.get(&alice, "/connections").await.expect(200);
    let states: Vec<_> =
        all["connections"].as_array().unwrap().iter().map(|c| (&c["agent_name"], &c["status"])).collect();
    assert_eq!(states.len(), 2, "{all}");
    assert!(states.contains(&(&json!("bob-agent"), &json!("ACTIVE"))), "{all}");
    assert!(states.contains(&(&json!("carol-agent"), &json!("REJECTED"))), "{all}");
    server.post(&bob, "/connections/reject", peer(&carol)).await.problem(404, "not_found");
    server.post(&bob, "/connections/reject", peer(&bob)).await.problem(422, "invalid");
}

async fn a_block_holds_until_it_is_removed(server: TestServer) {
    let (alice, bob) = server.pair().await;
    let blocked = server.post(&bob, "/connections/block", peer(&alice)).await.expect(200);
    assert_eq!(blocked["status"], "BLOCKED");
    let body = json!({"to": bob.name, "subject": "Plan", "content": "hello"});
    assert_eq!(server.post(&alice, "/messages/send", body).await.status, 403);
    let ask = json!({"target_agent_name": bob.name});
    let refused = server.post(&alice, "/connections/request", ask.clone()).await;
    assert_eq!(refused.status, 403, "{}", refused.body);
    server.post(&bob, "/connections/unblock", peer(&alice)).await.expect(200);
    server.post(&alice, "/connections/request", ask).await.expect(201);
}

async fn no_send_succeeds_after_a_revocation_returned(server: TestServer) {
    let (alice, bob) = server.pair().await;
    let revoked = std::sync::atomic::AtomicBool::new(false);
    let send = async |number: usize| {
        // Read before the send begins: a send that began after the response must fail.
        let late = revoked.load(std::sync::atomic::Ordering::SeqCst);
        let body = json!({"to": bob.name, "subject": "Plan", "content": number.to_string()});
        let status = server.post(&alice, "/messages/send", body).await.status.as_u16();
        assert!(matches!(status, 201 | 403), "{status}");
        assert!(!(late && status == 201), "a send got through after the revocation was answered");
        status
    };
    let storm = futures_util::stream::iter((0..300).map(send)).buffer_unordered(16).collect::<Vec<_>>();
    let revoke = async {
        server.post(&bob, "/connections/revoke", peer(&alice)).await.expect(200);
        revoked.store(true, std::sync::atomic::Ordering::SeqCst);
    };
    let (statuses, ()) = tokio::join!(storm, revoke);
    assert!(statuses.contains(&403));
    let through = statuses.iter().filter(|status| **status == 201).count() as u64;
    let inbox = server.get(&bob, "/inbox").await.expect(200);
    assert_eq!(inbox["sessions"][0]["unread_count"].as_u64().unwrap_or(0), through);
}

crate::on_every_store!(
    connections_are_listed_with_their_state,
    a_block_holds_until_it_is_removed,
    no_send_succeeds_after_a_revocation_returned,
);
