//! `/agents`: who is here.

use reqwest::Method;
use serde_json::json;

use crate::test_server::TestServer;

async fn an_agent_sees_and_changes_its_own_card(desk: TestServer) {
    let alice = desk.register("alice-agent").await;
    let me = desk.get(&alice, "/agents/me").await.expect(200);
    assert_eq!((&me["name"], &me["discoverable"]), (&json!("alice-agent"), &json!(true)));
    assert_eq!(me["api_key_prefix"].as_str().unwrap(), &alice.key[..8]);
    assert!(!me.to_string().contains(&alice.key));
    let patch = json!({"description": "writes plans", "capabilities": ["plan"], "max_concurrent_tasks": 7});
    let changed = desk.call(Method::PATCH, "/agents/me", Some(&alice.key), Some(&patch)).await.expect(200);
    assert_eq!((&changed["description"], &changed["max_concurrent_tasks"]), (&json!("writes plans"), &json!(7)));
    let again = desk.call(Method::PATCH, "/agents/me", Some(&alice.key), Some(&json!({"discoverable": false}))).await;
    let again = again.expect(200);
    assert_eq!((&again["description"], &again["discoverable"]), (&json!("writes plans"), &json!(false)));
    for bad in [
        json!({"description": "x".repeat(1_001)}),
        json!({"capabilities": [""]}),
        json!({"allow_from": ["../x"]}),
        json!({"max_concurrent_tasks": -1}),
        json!({"max_concurrent_tasks": 1.5}),
    ] {
        desk.call(Method::PATCH, "/agents/me", Some(&alice.key), Some(&bad)).await.problem(422, "invalid");
    }
}

async fn strangers_find_those_who_want_to_be_found(desk: TestServer) {
    let (alice, bob) = desk.pair().await;
    let carol = desk.register("carol-agent").await;
    let hide = json!({"discoverable": false});
    desk.call(Method::PATCH, "/agents/me", Some(&bob.key), Some(&hide)).await.expect(200);
    let names = async |agent| {
        let got = desk.get(agent, "/agents").await.expect(200);
        let agents = got["agents"].as_array().unwrap().clone();
        agents.iter().map(|agent| agent["name"].as_str().unwrap().to_owned()).collect::<Vec<_>>()
    };
    assert_eq!(names(&alice).await, ["alice-agent", "bob-agent", "carol-agent"]);
    assert_eq!(names(&carol).await, ["alice-agent", "carol-agent"]);
    desk.get(&carol, "/agents/alice-agent").await.expect(200);
    desk.get(&carol, "/agents/bob-agent").await.problem(404, "not_found");
    desk.get(&carol, "/agents/no such").await.problem(422, "invalid");
    let page = desk.get(&alice, "/agents?limit=1").await.expect(200);
    let next = page["next"].as_str().unwrap();
    let second = desk.get(&alice, &format!("/agents?limit=1&after={next}")).await.expect(200);
    assert_eq!(second["agents"][0]["name"], "bob-agent");
}

async fn a_heartbeat_is_a_sign_of_life_and_a_goodbye_is_none(desk: TestServer) {
    let (alice, bob) = desk.pair().await;
    let status = async || desk.get(&alice, "/agents/bob-agent").await.expect(200)["status"].clone();
    let beat = desk.call(Method::POST, "/agents/me/heartbeat", Some(&bob.key), None).await;
    assert_eq!(beat.status, 204);
    assert_eq!(status().await, "idle");
    assert_eq!(desk.call(Method::POST, "/agents/me/leave", Some(&bob.key), None).await.status, 204);
    assert_eq!(status().await, "offline");
}

async fn a_rotated_key_works_and_the_old_one_only_for_its_grace(desk: TestServer) {
    let alice = desk.register("alice-agent").await;
    let rotate = async |key: &str, body| {
        let got = desk.call(Method::POST, "/agents/me/rotate-key", Some(key), Some(&body)).await.expect(200);
        got["api_key"].as_str().unwrap().to_owned()
    };
    let second = rotate(&alice.key, json!({})).await;
    for key in [&alice.key, &second] {
        desk.call(Method::GET, "/inbox", Some(key), None).await.expect(200);
    }
    let mut socket = desk.socket(&format!("?api_key={second}")).await;
    socket.say(json!({"type": "ping"})).await;
    assert_eq!(socket.hear().await["type"], "pong");
    let third = rotate(&second, json!({"grace_seconds": 0})).await;
    desk.call(Method::GET, "/inbox", Some(&second), None).await.problem(401, "unauthorized");
    desk.call(Method::GET, "/inbox", Some(&third), None).await.expect(200);
    assert_eq!(socket.closed().await.0, 4001, "a socket does not outlive its key");
}

async fn a_deleted_agent_is_gone_and_its_mail_stays_with_others(desk: TestServer) {
    let (alice, bob) = desk.pair().await;
    let sent = desk.send(&alice, &bob, "Plan", "remember me").await;
    assert_eq!(desk.call(Method::DELETE, "/agents/me", Some(&alice.key), None).await.status, 204);
    desk.get(&alice, "/inbox").await.problem(401, "unauthorized");
    let path = format!("/sessions/{}/history", sent["session_id"].as_str().unwrap());
    let history = desk.get(&bob, &path).await.expect(200);
    assert_eq!(history["messages"][0]["content"], "remember me");
    let body = json!({"name": "alice-agent"});
    desk.call(Method::POST, "/agents/register", None, Some(&body)).await.problem(409, "conflict");
    let body = json!({"to": "alice-agent", "subject": "Plan", "content": "still there?"});
    assert_eq!(desk.post(&bob, "/messages/send", body).await.status, 403);
}

crate::on_every_store!(
    an_agent_sees_and_changes_its_own_card,
    strangers_find_those_who_want_to_be_found,
    a_heartbeat_is_a_sign_of_life_and_a_goodbye_is_none,
    a_rotated_key_works_and_the_old_one_only_for_its_grace,
    a_deleted_agent_is_gone_and_its_mail_stays_with_others,
);
