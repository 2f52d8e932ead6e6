//! `GET /inbox` and `GET /sessions/{id}/history`.

use reqwest::Method;
use serde_json::{Value, json};

use crate::test_server::{Agent, TestServer};

async fn history(server: &TestServer, agent: &Agent, session: &Value, query: &str) -> Value {
    server.get(agent, &format!("/sessions/{}/history{query}", session.as_str().unwrap())).await.expect(200)
}

async fn test_inbox_empty(server: TestServer) {
    let alice = server.register("alice-agent").await;
    let inbox = server.get(&alice, "/inbox").await.expect(200);
    assert_eq!(inbox, json!({"sessions": [], "pending_connections": []}));
}

async fn test_inbox_with_messages(server: TestServer) {
    let (alice, bob) = server.pair().await;
    let mut last = Value::Null;
    for number in 1..=5 {
        last = server.send(&alice, &bob, "Plan", &format!("message {number}")).await;
    }
    let inbox = server.get(&bob, "/inbox").await.expect(200);
    let session = &inbox["sessions"][0];
    assert_eq!(session["session_id"], last["session_id"]);
    assert_eq!(session["last_message_at"], last["created_at"]);
    assert_eq!((&session["subject"], &session["other_agent_name"]), (&json!("Plan"), &json!("alice-agent")));
    assert_eq!(session["unread_count"], 5);
    assert_eq!(session.as_object().unwrap().len(), 6, "{session}");
    let recent = session["recent_messages"].as_array().unwrap();
    let texts: Vec<_> = recent.iter().map(|message| message["content"].as_str().unwrap()).collect();
    assert_eq!(texts, ["message 5", "message 4", "message 3"]);
    assert_eq!(
        recent[0],
        json!({
            "id": last["message_id"], "sender_name": "alice-agent", "content": "message 5",
            "created_at": last["created_at"], "is_read": false,
        })
    );
    let mine = server.get(&alice, "/inbox").await.expect(200);
    assert_eq!(mine["sessions"][0]["unread_count"], 0, "what one sent is not unread");
    assert_eq!(mine["sessions"][0]["other_agent_name"], "bob-agent");
}

async fn a_cached_inbox_shows_new_mail(server: TestServer) {
    let (alice, bob) = server.pair().await;
    let mut session = Value::Null;
    for number in 1..=3 {
        let sent = server.send(&alice, &bob, "Plan", &format!("message {number}")).await;
        session = sent["session_id"].clone();
        for _ in 0..2 {
            let inbox = server.get(&bob, "/inbox").await.expect(200);
            assert_eq!(inbox["sessions"][0]["recent_messages"][0]["id"], sent["message_id"]);
            assert_eq!(inbox["sessions"][0]["unread_count"], number);
            let mine = server.get(&alice, "/inbox").await.expect(200);
            assert_eq!(mine["sessions"][0]["recent_messages"][0]["is_read"], false);
        }
    }
    for _ in 0..2 {
        let shown = history(&server, &bob, &session, "?limit=20").await;
        assert_eq!(shown["messages"].as_array().unwrap().len(), 3);
        assert_eq!(server.get(&bob, "/inbox").await.expect(200)["sessions"][0]["unread_count"], 0);
        let mine = server.get(&alice, "/inbox").await.expect(200);
        assert_eq!(mine["sessions"][0]["recent_messages"][0]["is_read"], true, "bob read it");
    }
    // Another agent, the same request.
    let carol = server.register("carol-agent").await;
    server
        .get(&carol, &format!("/sessions/{}/history?limit=20", session.as_str().unwrap()))
        .await
        .problem(403, "forbidden");
}

async fn test_inbox_unread_only(server: TestServer) {
    let (alice, bob) = server.pair().await;
    let read = server.send(&alice, &bob, "Read", "one").await;
    let unread = server.send(&alice, &bob, "Unread", "two").await;
    history(&server, &bob, &read["session_id"], "").await;
    for flag in ["true", "True", "TRUE"] {
        let inbox = server.get(&bob, &format!("/inbox?unread_only={flag}")).await.expect(200);
        let sessions = inbox["sessions"].as_array().unwrap();
        assert_eq!(sessions.len(), 1, "{inbox}");
        assert_eq!(sessions[0]["session_id"], unread["session_id"]);
    }
    let all = server.get(&bob, "/inbox?unread_only=false").await.expect(200);
    assert_eq!(all["sessions"].as_array().unwrap().len(), 2);
    server.get(&bob, "/inbox?unread_only=perhaps").await.problem(422, "invalid");
}

async fn test_session_history(server: TestServer) {
    let (alice, bob) = server.pair().await;
    let mut ids = Vec::new();
    let mut session = Value::Null;
    for number in 1..=7 {
        let sent = server.send(&alice, &bob, "Plan", &format!("message {number}")).await;
        ids.insert(0, sent["message_id"].clone());
        session = sent["session_id"].clone();
    }
    let page = history(&server, &bob, &session, "").await;
    assert_eq!((&page["session_id"], &page["subject"]), (&session, &json!("Plan")));
    let of = |page: &Value| -> Vec<Value> {
        page["messages"].as_array().unwrap().iter().map(|message| message["id"].clone()).collect()
    };
    assert_eq!(of(&page), ids[..3]);

    // All of it by pages, each message once.
    let mut seen = of(&history(&server, &bob, &session, "?limit=2").await);
    loop {
        let query = format!("?limit=2&before={}", seen.last().unwrap().as_str().unwrap());
        let page = of(&history(&server, &bob, &session, &query).await);
        if page.is_empty() {
            break;
        }
        seen.extend(page);
    }
    assert_eq!(seen, ids);

    let path = format!("/sessions/{}/history", session.as_str().unwrap());
    server.get(&bob, &format!("{path}?limit=50")).await.expect(200);
    for bad in ["limit=0", "limit=51", "limit=-1", "limit=x", "limit=3&limit=4", "limit=", "before=7"] {
        let problem = server.get(&bob, &format!("{path}?{bad}")).await.problem(422, "invalid").to_string();
        assert!(!problem.contains("invalid digit") && !problem.contains("cannot parse"), "{problem}");
    }
    let unknown = format!("{path}?before=0190b4a0-0000-7000-8000-000000000000");
    server.get(&bob, &unknown).await.problem(404, "not_found");
}

async fn test_session_history_marks_read(server: TestServer) {
    let (alice, bob) = server.pair().await;
    let mut session = Value::Null;
    for number in 1..=4 {
        session = server.send(&alice, &bob, "Plan", &format!("message {number}")).await["session_id"].clone();
    }
    let unread = async |agent: &Agent| {
        server.get(agent, "/inbox").await.expect(200)["sessions"][0]["unread_count"].as_u64().unwrap()
    };
    history(&server, &alice, &session, "").await;
    assert_eq!(unread(&bob).await, 4, "the sender's reading is not the recipient's");
    let path = format!("/sessions/{}/history", session.as_str().unwrap());
    let head = server.call(Method::HEAD, &path, Some(&bob.key), None).await;
    assert_eq!((head.status.as_u16(), head.headers["allow"].to_str().unwrap()), (405, "GET"));
    assert_eq!(unread(&bob).await, 4, "nothing was shown, so nothing was read");
    let page = history(&server, &bob, &session, "?limit=3").await;
    assert_eq!(page["messages"].as_array().unwrap().len(), 3);
    assert_eq!(unread(&bob).await, 1, "only what was fetched is read");
    let seen = history(&server, &alice, &session, "?limit=4").await;
    let read: Vec<_> = seen["messages"].as_array().unwrap().iter().map(|m| m["is_read"].as_bool().unwrap()).collect();
    assert_eq!(read, [true, true, true, false]);
}

async fn test_session_history_not_participant(server: TestServer) {
    let (alice, bob) = server.pair().await;
    let carol = server.register("carol-agent").await;
    let sent = server.send(&alice, &bob, "Plan", "secret").await;
    let path = format!("/sessions/{}/history", sent["session_id"].as_str().unwrap());
    let problem = server.get(&carol, &path).await.problem(403, "forbidden");
    assert!(!problem.to_string().contains("secret") && !problem.to_string().contains("Plan"));
    let unknown = "/sessions/0190b4a0-0000-7000-8000-000000000000/history";
    server.get(&carol, unknown).await.problem(404, "not_found");
    server.get(&carol, "/sessions/7/history").await.problem(422, "invalid");
}

crate::on_every_store!(
    test_inbox_empty,
    test_inbox_with_messages,
    test_inbox_unread_only,
    a_cached_inbox_shows_new_mail,
    test_session_history,
    test_session_history_marks_read,
    test_session_history_not_participant,
);
