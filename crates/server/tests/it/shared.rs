//! Transcripts, search and groups.

use serde_json::{Value, json};

use crate::test_server::{TestServer, soon};

async fn a_transcript_is_shared_with_the_agents_its_owner_names(server: TestServer) {
    let (alice, bob) = server.pair().await;
    let line = |id: &str| json!({"role": "user", "content": "hello", "sender": "ann", "message_id": id});
    let path = "/transcripts/feishu:oc_1";
    assert_eq!(server.post(&alice, path, line("m1")).await.expect(201), json!({"number": 1, "duplicate": false}));
    assert_eq!(server.post(&alice, path, line("m1")).await.expect(201), json!({"number": 1, "duplicate": true}));
    let alices = "/transcripts/feishu:oc_1?owner=alice-agent";
    server.post(&bob, alices, line("m2")).await.problem(404, "not_found");
    let share = |access: Value| json!({"agent_name": "bob-agent", "access": access});
    assert_eq!(server.post(&alice, &format!("{path}/share"), share(json!("write"))).await.status, 204);
    let follow = server.get(&alice, "/transcripts/feishu:oc_1?after=1&wait=30");
    let (followed, _) = soon(async { tokio::join!(follow, server.post(&bob, alices, line("m2"))) }).await;
    assert_eq!(followed.expect(200)["lines"][0]["message_id"], "m2");
    let recent = server.get(&bob, &format!("{alices}&limit=1")).await.expect(200);
    assert_eq!(recent["lines"].as_array().unwrap().len(), 1);
    assert_eq!(server.post(&alice, &format!("{path}/share"), share(Value::Null)).await.status, 204);
    server.get(&bob, alices).await.problem(404, "not_found");
    server.get(&bob, &format!("{path}?limit=0")).await.problem(422, "invalid");
}

async fn a_search_finds_only_the_callers_own_mail(server: TestServer) {
    let (alice, bob) = server.pair().await;
    let carol = server.register("carol-agent").await;
    server.send(&alice, &bob, "Harvest", "the apples are ripe").await;
    server.send(&alice, &bob, "Weather", "rain is coming").await;
    soon(async {
        while server.get(&bob, "/search?q=apples").await.expect(200)["hits"].as_array().unwrap().is_empty() {
            tokio::task::yield_now().await;
        }
    })
    .await;
    let hits = server.get(&bob, "/search?q=apples&from=alice-agent&subject=harvest").await.expect(200);
    assert_eq!(hits["hits"].as_array().unwrap().len(), 1);
    assert!(hits["hits"][0]["snippet"].as_str().unwrap().contains("apples"), "{hits}");
    assert_eq!(server.get(&carol, "/search?q=apples").await.expect(200)["hits"], json!([]));
    for odd in ["%22", "a%20AND%20OR", "*", "%22a%20b", "a%3Ab", "-", "(", "%F0%9F%98%80"] {
        server.get(&bob, &format!("/search?q={odd}")).await.expect(200);
    }
    server.get(&bob, "/search?q=%00").await.problem(422, "invalid");
    server.get(&bob, "/search?q=x&after=yesterday").await.problem(422, "invalid");
}

async fn a_message_goes_to_all_recipients_or_to_none(server: TestServer) {
    let (alice, bob) = server.pair().await;
    let carol = server.register("carol-agent").await;
    let body = json!({"to": ["bob-agent", "carol-agent"], "subject": "All", "content": "hello all"});
    assert_eq!(server.post(&alice, "/messages/send-many", body.clone()).await.status, 403);
    assert_eq!(server.get(&bob, "/inbox").await.expect(200)["sessions"], json!([]), "all or none");
    server.connect(&alice, &carol).await;
    let sent = server.post(&alice, "/messages/send-many", body).await.expect(201);
    assert_eq!(sent["sent"].as_array().unwrap().len(), 2);
    for agent in [&bob, &carol] {
        assert_eq!(server.get(agent, "/inbox").await.expect(200)["sessions"][0]["unread_count"], 1);
    }
    let nobody = json!({"to": [], "subject": "All", "content": "x"});
    server.post(&alice, "/messages/send-many", nobody).await.problem(422, "invalid");
}

async fn members_get_mail_to_a_group_after_they_joined(server: TestServer) {
    let (alice, bob) = server.pair().await;
    server.post(&alice, "/groups", json!({"name": "team-a"})).await.expect(201);
    server.post(&alice, "/groups", json!({"name": "team-a"})).await.problem(409, "conflict");
    server.post(&alice, "/groups/team-a/invite", json!({"agent_name": "bob-agent"})).await.expect(200);
    let body = json!({"to": "team-a", "subject": "Plan", "content": "hello team"});
    let joined = server.post(&bob, "/groups/team-a/join", json!({})).await.expect(200);
    assert_eq!(joined["members"].as_array().unwrap().len(), 2, "{joined}");
    server.post(&alice, "/messages/send", body).await.expect(201);
    let inbox = server.get(&bob, "/inbox").await.expect(200);
    assert_eq!(inbox["sessions"][0]["recent_messages"][0]["content"], "hello team");
    let mine = server.get(&bob, "/groups").await.expect(200);
    assert_eq!(mine["groups"][0]["name"], "team-a");
}

crate::on_every_store!(
    a_transcript_is_shared_with_the_agents_its_owner_names,
    a_search_finds_only_the_callers_own_mail,
    a_message_goes_to_all_recipients_or_to_none,
    members_get_mail_to_a_group_after_they_joined,
);
