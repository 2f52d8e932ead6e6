//! `GET /inbox` and `GET /sessions/{id}/history`.

use reqwest::Method;
use serde_json::{Value, json};

use crate::test_server::{Agent, TestServer};

async fn history(desk: &TestServer, agent: &Agent, session: &Value, query: &str) -> Value {
    desk.get(agent, &format!("/sessions/{}/history{query}", session.as_str().unwrap())).await.expect(200)
}

async fn test_inbox_empty(desk: TestServer) {
    let alice = desk.register("alice-agent").await;
    let inbox = desk.get(&alice, "/inbox").await.expect(200);
    assert_eq!(inbox, json!({"sessions": [], "pending_connections": []}));
}

async fn test_inbox_with_messages(desk: TestServer) {
    let (alice, bob) = desk.pair().await;
    let mut last = Value::Null;
    for number in 1..=5 {
        last = desk.send(&alice, &bob, "Plan", &format!("message {number}")).await;
    }
    let inbox = desk.get(&bob, "/inbox").await.expect(200);
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
    let mine = desk.get(&alice, "/inbox").await.expect(200);
    assert_eq!(mine["sessions"][0]["unread_count"], 0, "what one sent is not unread");
    assert_eq!(mine["sessions"][0]["other_agent_name"], "bob-agent");
}

async fn an_inbox_that_was_asked_for_before_shows_what_came_since(desk: TestServer) {
    let (alice, bob) = desk.pair().await;
    let mut session = Value::Null;
    for number in 1..=3 {
        let sent = desk.send(&alice, &bob, "Plan", &format!("message {number}")).await;
        session = sent["session_id"].clone();
        for _ in 0..2 {
            let inbox = desk.get(&bob, "/inbox").await.expect(200);
            assert_eq!(inbox["sessions"][0]["recent_messages"][0]["id"], sent["message_id"]);
            assert_eq!(inbox["sessions"][0]["unread_count"], number);
            let mine = desk.get(&alice, "/inbox").await.expect(200);
            assert_eq!(mine["sessions"][0]["recent_messages"][0]["is_read"], false);
        }
    }
    for _ in 0..2 {
        let shown = history(&desk, &bob, &session, "?limit=20").await;
        assert_eq!(shown["messages"].as_array().unwrap().len(), 3);
        assert_eq!(desk.get(&bob, "/inbox").await.expect(200)["sessions"][0]["unread_count"], 0);
        let mine = desk.get(&alice, "/inbox").await.expect(200);
        assert_eq!(mine["sessions"][0]["recent_messages"][0]["is_read"], true, "bob read it");
    }
    // Somebody else's key, the same question.
    let carol = desk.register("carol-agent").await;
    desk.get(&carol, &format!("/sessions/{}/history?limit=20", session.as_str().unwrap()))
        .await
        .problem(403, "forbidden");
}

async fn test_inbox_unread_only(desk: TestServer) {
    let (alice, bob) = desk.pair().await;
    let read = desk.send(&alice, &bob, "Read", "one").await;
    let unread = desk.send(&alice, &bob, "Unread", "two").await;
    history(&desk, &bob, &read["session_id"], "").await;
    for flag in ["true", "True", "TRUE"] {
        let inbox = desk.get(&bob, &format!("/inbox?unread_only={flag}")).await.expect(200);
        let sessions = inbox["sessions"].as_array().unwrap();
        assert_eq!(sessions.len(), 1, "{inbox}");
        assert_eq!(sessions[0]["session_id"], unread["session_id"]);
    }
    let all = desk.get(&bob, "/inbox?unread_only=false").await.expect(200);
    assert_eq!(all["sessions"].as_array().unwrap().len(), 2);
    desk.get(&bob, "/inbox?unread_only=perhaps").await.problem(422, "invalid");
}

async fn test_session_history(desk: TestServer) {
    let (alice, bob) = desk.pair().await;
    let mut ids = Vec::new();
    let mut session = Value::Null;
    for number in 1..=7 {
        let sent = desk.send(&alice, &bob, "Plan", &format!("message {number}")).await;
        ids.insert(0, sent["message_id"].clone());
        session = sent["session_id"].clone();
    }
    let page = history(&desk, &bob, &session, "").await;
    assert_eq!((&page["session_id"], &page["subject"]), (&session, &json!("Plan")));
    let of = |page: &Value| -> Vec<Value> {
        page["messages"].as_array().unwrap().iter().map(|message| message["id"].clone()).collect()
    };
    assert_eq!(of(&page), ids[..3]);

    // The whole of it by pages, each message once.
    let mut seen = of(&history(&desk, &bob, &session, "?limit=2").await);
    loop {
        let query = format!("?limit=2&before={}", seen.last().unwrap().as_str().unwrap());
        let page = of(&history(&desk, &bob, &session, &query).await);
        if page.is_empty() {
            break;
        }
        seen.extend(page);
    }
    assert_eq!(seen, ids);

    let path = format!("/sessions/{}/history", session.as_str().unwrap());
    desk.get(&bob, &format!("{path}?limit=50")).await.expect(200);
    for bad in ["limit=0", "limit=51", "limit=-1", "limit=x", "limit=3&limit=4", "limit=", "before=7"] {
        let problem = desk.get(&bob, &format!("{path}?{bad}")).await.problem(422, "invalid").to_string();
        assert!(!problem.contains("invalid digit") && !problem.contains("cannot parse"), "{problem}");
    }
    let unknown = format!("{path}?before=0190b4a0-0000-7000-8000-000000000000");
    desk.get(&bob, &unknown).await.problem(404, "not_found");
}

async fn test_session_history_marks_read(desk: TestServer) {
    let (alice, bob) = desk.pair().await;
    let mut session = Value::Null;
    for number in 1..=4 {
        session = desk.send(&alice, &bob, "Plan", &format!("message {number}")).await["session_id"].clone();
    }
    let unread = async |agent: &Agent| {
        desk.get(agent, "/inbox").await.expect(200)["sessions"][0]["unread_count"].as_u64().unwrap()
    };
    history(&desk, &alice, &session, "").await;
    assert_eq!(unread(&bob).await, 4, "the sender's reading is not the recipient's");
    let path = format!("/sessions/{}/history", session.as_str().unwrap());
    let head = desk.call(Method::HEAD, &path, Some(&bob.key), None).await;
    assert_eq!((head.status.as_u16(), head.headers["allow"].to_str().unwrap()), (405, "GET"));
    assert_eq!(unread(&bob).await, 4, "nothing was shown, so nothing was read");
    let page = history(&desk, &bob, &session, "?limit=3").await;
    assert_eq!(page["messages"].as_array().unwrap().len(), 3);
    assert_eq!(unread(&bob).await, 1, "only what was fetched is read");
    let seen = history(&desk, &alice, &session, "?limit=4").await;
    let read: Vec<_> = seen["messages"].as_array().unwrap().iter().map(|m| m["is_read"].as_bool().unwrap()).collect();
    assert_eq!(read, [true, true, true, false]);
}

async fn test_session_history_not_participant(desk: TestServer) {
    let (alice, bob) = desk.pair().await;
    let carol = desk.register("carol-agent").await;
    let sent = desk.send(&alice, &bob, "Plan", "secret").await;
    let path = format!("/sessions/{}/history", sent["session_id"].as_str().unwrap());
    let problem = desk.get(&carol, &path).await.problem(403, "forbidden");
    assert!(!problem.to_string().contains("secret") && !problem.to_string().contains("Plan"));
    let unknown = "/sessions/0190b4a0-0000-7000-8000-000000000000/history";
    desk.get(&carol, unknown).await.problem(404, "not_found");
    desk.get(&carol, "/sessions/7/history").await.problem(422, "invalid");
}

crate::on_every_store!(
    test_inbox_empty,
    test_inbox_with_messages,
    test_inbox_unread_only,
    an_inbox_that_was_asked_for_before_shows_what_came_since,
    test_session_history,
    test_session_history_marks_read,
    test_session_history_not_participant,
);
