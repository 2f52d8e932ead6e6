//! `/agents`: who is here.

use reqwest::Method;
use serde_json::json;

use crate::test_server::TestServer;

async fn an_agent_sees_and_changes_its_own_card(server: TestServer) {
    let alice = server.register("alice-agent").await;
    let me = server.get(&alice, "/agents/me").await.expect(200);
    assert_eq!((&me["name"], &me["discoverable"]), (&json!("alice-agent"), &json!(true)));
    assert_eq!(me["api_key_prefix"].as_str().unwrap(), &alice.key[..8]);
    assert!(!me.to_string().contains(&alice.key));
    let patch = json!({"description": "writes plans", "capabilities": ["plan"], "max_concurrent_tasks": 7});
    let changed = server.call(Method::PATCH, "/agents/me", Some(&alice.key), Some(&patch)).await.expect(200);
    assert_eq!((&changed["description"], &changed["max_concurrent_tasks"]), (&json!("writes plans"), &json!(7)));
    let again = server.call(Method::PATCH, "/agents/me", Some(&alice.key), Some(&json!({"discoverable": false}))).await;
    let again = again.expect(200);
    assert_eq!((&again["description"], &again["discoverable"]), (&json!("writes plans"), &json!(false)));
    for bad in [
        json!({"description": "x".repeat(1_001)}),
        json!({"capabilities": [""]}),
        json!({"allow_from": ["../x"]}),
        json!({"max_concurrent_tasks": -1}),
        json!({"max_concurrent_tasks": 1.5}),
    ] {
        server.call(Method::PATCH, "/agents/me", Some(&alice.key), Some(&bad)).await.problem(422, "invalid");
    }
}

async fn strangers_see_only_discoverable_agents(server: TestServer) {
    let (alice, bob) = server.pair().await;
    let carol = server.register("carol-agent").await;
    let hide = json!({"discoverable": false});
    server.call(Method::PATCH, "/agents/me", Some(&bob.key), Some(&hide)).await.expect(200);
    let names = async |agent| {
        let got = server.get(agent, "/agents").await.expect(200);
        let agents = got["agents"].as_array().unwrap().clone();
        agents.iter().map(|agent| agent["name"].as_str().unwrap().to_owned()).collect::<Vec<_>>()
    };
    assert_eq!(names(&alice).await, ["alice-agent", "bob-agent", "carol-agent"]);
    assert_eq!(names(&carol).await, ["alice-agent", "carol-agent"]);
    server.get(&carol, "/agents/alice-agent").await.expect(200);
    server.get(&carol, "/agents/bob-agent").await.problem(404, "not_found");
    server.get(&carol, "/agents/no such").await.problem(422, "invalid");
    let page = server.get(&alice, "/agents?limit=1").await.expect(200);
    let next = page["next"].as_str().unwrap();
    let second = server.get(&alice, &format!("/agents?limit=1&after={next}")).await.expect(200);
    assert_eq!(second["agents"][0]["name"], "bob-agent");
}

async fn a_heartbeat_makes_an_agent_idle_and_leave_makes_it_offline(server: TestServer) {
    let (alice, bob) = server.pair().await;
    let status = async || server.get(&alice, "/agents/bob-agent").await.expect(200)["status"].clone();
    let beat = server.call(Method::POST, "/agents/me/heartbeat", Some(&bob.key), None).await;
    assert_eq!(beat.status, 204);
    assert_eq!(status().await, "idle");
    assert_eq!(server.call(Method::POST, "/agents/me/leave", Some(&bob.key), None).await.status, 204);
    assert_eq!(status().await, "offline");
}

async fn after_a_rotation_the_old_key_works_for_its_grace_period(server: TestServer) {
    let alice = server.register("alice-agent").await;
    let rotate = async |key: &str, body| {
        let got = server.call(Method::POST, "/agents/me/rotate-key", Some(key), Some(&body)).await.expect(200);
        got["api_key"].as_str().unwrap().to_owned()
    };
    let second = rotate(&alice.key, json!({})).await;
    for key in [&alice.key, &second] {
        server.call(Method::GET, "/inbox", Some(key), None).await.expect(200);
    }
    let mut socket = server.socket(&format!("?api_key={second}")).await;
    socket.send_json(json!({"type": "ping"})).await;
    assert_eq!(socket.receive().await["type"], "pong");
    let third = rotate(&second, json!({"grace_seconds": 0})).await;
    server.call(Method::GET, "/inbox", Some(&second), None).await.problem(401, "unauthorized");
    server.call(Method::GET, "/inbox", Some(&third), None).await.expect(200);
    assert_eq!(socket.closed().await.0, 4001, "a socket does not outlive its key");
}

async fn a_deleted_agent_is_gone_and_its_mail_stays_with_others(server: TestServer) {
    let (alice, bob) = server.pair().await;
    let sent = server.send(&alice, &bob, "Plan", "remember me").await;
    assert_eq!(server.call(Method::DELETE, "/agents/me", Some(&alice.key), None).await.status, 204);
    server.get(&alice, "/inbox").await.problem(401, "unauthorized");
    let path = format!("/sessions/{}/history", sent["session_id"].as_str().unwrap());
    let history = server.get(&bob, &path).await.expect(200);
    assert_eq!(history["messages"][0]["content"], "remember me");
    let body = json!({"name": "alice-agent"});
    server.call(Method::POST, "/agents/register", None, Some(&body)).await.problem(409, "conflict");
    let body = json!({"to": "alice-agent", "subject": "Plan", "content": "still there?"});
    assert_eq!(server.post(&bob, "/messages/send", body).await.status, 403);
}

crate::on_every_store!(
    an_agent_sees_and_changes_its_own_card,
    strangers_see_only_discoverable_agents,
    a_heartbeat_makes_an_agent_idle_and_leave_makes_it_offline,
    after_a_rotation_the_old_key_works_for_its_grace_period,
    a_deleted_agent_is_gone_and_its_mail_stays_with_others,
);
