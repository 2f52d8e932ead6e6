//! The household over HTTP: the person, the machines and the members.

use amb_core::Timestamp;
use amb_server::{Config, HouseholdToken, Rate, RateLimits};
use reqwest::Method;
use serde_json::{Value, json};

use crate::test_server::{Agent, Answer, TestServer};

impl TestServer {
    /// Creates a household, as `amb serve` and `amb admin household` do. Returns the owner's token.
    pub(crate) async fn found(&self) -> String {
        let token = HouseholdToken::fresh().unwrap();
        self.store.found_household(token.hash(), false, Timestamp::now()).await.unwrap().unwrap();
        token.reveal().to_owned()
    }

    pub(crate) async fn try_person(&self, token: Option<&str>, name: &str) -> Answer {
        let mut request = self.http.post(self.url("/household/person")).json(&json!({"name": name}));
        if let Some(token) = token {
            request = request.header("X-Household-Token", token);
        }
        self.request(request).await
    }

    async fn try_token(&self, token: Option<&str>) -> Answer {
        let mut request = self.http.get(self.url("/household/token"));
        if let Some(token) = token {
            request = request.header("X-Household-Token", token);
        }
        self.request(request).await
    }

    async fn try_join(&self, token: &str, name: &str) -> Answer {
        let body = json!({"name": name, "household_token": token});
        self.call(Method::POST, "/agents/register", None, Some(&body)).await
    }

    pub(crate) async fn join(&self, token: &str, name: &str) -> Agent {
        agent(&self.try_join(token, name).await.expect(201))
    }

    async fn delete(&self, caller: &Agent, path: &str) -> Answer {
        self.call(Method::DELETE, path, Some(&caller.key), None).await
    }
}

pub(crate) fn agent(registered: &Value) -> Agent {
    let text = |field: &str| registered[field].as_str().unwrap().to_owned();
    Agent { name: text("name"), key: text("api_key") }
}

async fn a_household_from_creation_to_a_revoked_machine(server: TestServer) {
    let owner = server.found().await;
    server.try_person(None, "ann").await.problem(401, "unauthorized");
    server.try_person(Some("ambh_wrong"), "ann").await.problem(401, "unauthorized");
    server.try_person(Some(&owner), "admin").await.problem(422, "invalid");
    let ann = agent(&server.try_person(Some(&owner), "person").await.expect(201));
    assert_eq!(ann.name, "person", "a name that no agent gets");
    server.try_join(&owner, "person").await.problem(422, "invalid");
    server.try_person(Some(&owner), "ann").await.problem(409, "conflict");

    let problem = server.try_join("ambh_wrong", "coder").await.problem(401, "unauthorized");
    assert!(problem["detail"].as_str().unwrap().contains("household"), "{problem}");
    let (coder, stranger) = (server.join(&owner, "coder").await, server.register("stranger").await);
    server.send(&ann, &coder, "Plan", "look at the failing test").await;
    server.send(&coder, &ann, "Plan", "done").await;
    let refused = json!({"to": "coder", "subject": "Plan", "content": "let me in"});
    server.post(&stranger, "/messages/send", refused).await.problem(403, "not_connected");

    let agents = server.get(&coder, "/agents").await.expect(200)["agents"].clone();
    assert_eq!(
        (&agents[0]["name"], &agents[0]["household"], &agents[0]["person"]),
        (&json!("coder"), &json!(true), &Value::Null)
    );
    assert_eq!(
        (&agents[1]["name"], &agents[1]["household"], &agents[1]["person"]),
        (&json!("person"), &json!(true), &json!(true))
    );
    assert_eq!((&agents[2]["name"], &agents[2]["household"]), (&json!("stranger"), &Value::Null));
    server.get(&stranger, "/agents/person").await.problem(404, "not_found");
    server.get(&stranger, "/household").await.problem(404, "not_found");

    let laptop = json!({"label": "laptop"});
    server.post(&coder, "/household/machines", laptop.clone()).await.problem(403, "forbidden");
    let machine = server.post(&ann, "/household/machines", laptop).await.expect(201);
    assert_eq!(machine["label"], "laptop");
    let (id, token) = (machine["id"].as_str().unwrap(), machine["token"].as_str().unwrap());
    for (token, owner) in [(owner.as_str(), true), (token, false)] {
        let info = server.try_token(Some(token)).await.expect(200);
        assert_eq!(info, json!({"owner": owner, "person": "person"}));
    }
    for token in [None, Some("ambh_wrong"), Some(ann.key.as_str())] {
        server.try_token(token).await.problem(401, "unauthorized");
    }
    server.try_person(Some(token), "bea").await.problem(403, "forbidden");
    let there = server.join(token, "there").await;
    server.send(&there, &coder, "Plan", "from the other machine").await;
    let household = server.get(&there, "/household").await.expect(200);
    let names: Vec<&str> =
        household["members"].as_array().unwrap().iter().map(|m| m["name"].as_str().unwrap()).collect();
    assert_eq!(names, ["coder", "person", "there"]);
    assert_eq!((&household["members"][1]["person"], &household["members"][2]["machine"]), (&json!(true), &json!(id)));
    assert_eq!(household["machines"][1]["revoked_at"], Value::Null);

    let mut socket = server.live(&there).await;
    server.delete(&coder, &format!("/household/machines/{id}")).await.problem(403, "forbidden");
    server.delete(&ann, "/household/machines/x").await.problem(422, "invalid");
    server.delete(&ann, &format!("/household/machines/{id}")).await.expect(204);
    let told = socket.receive().await;
    assert_eq!(
        (&told["type"], &told["change"], &told["by"]),
        (&json!("household_changed"), &json!("left"), &json!("person"))
    );
    let again = json!({"to": "coder", "subject": "Plan", "content": "still there?"});
    server.post(&there, "/messages/send", again).await.problem(403, "not_connected");
    server.try_join(token, "late").await.problem(401, "unauthorized");
    server.delete(&ann, &format!("/household/machines/{id}")).await.problem(404, "not_found");

    server.delete(&ann, "/household/members/person").await.problem(409, "conflict");
    server.delete(&stranger, "/household/members/coder").await.problem(404, "not_found");
    server.delete(&coder, "/household/members/coder").await.expect(204);
    server.get(&coder, "/household").await.problem(404, "not_found");
}

#[tokio::test]
async fn a_household_on_sqlite() {
    a_household_from_creation_to_a_revoked_machine(TestServer::sqlite().await).await;
}

#[tokio::test]
async fn a_household_on_postgres() {
    a_household_from_creation_to_a_revoked_machine(TestServer::postgres().await).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_machine_revoked_at_one_replica_is_revoked_at_the_other_at_once() {
    let one = TestServer::postgres().await;
    let other = one.replica(Config { rate_limits: None, ..Config::default() }).await;
    let owner = one.found().await;
    let ann = agent(&one.try_person(Some(&owner), "ann").await.expect(201));
    let machine = one.post(&ann, "/household/machines", json!({})).await.expect(201);
    let there = other.join(machine["token"].as_str().unwrap(), "there").await;
    // Fills the caches of both.
    for server in [&one, &other] {
        server.send(&there, &ann, "Plan", "hello").await;
        server.send(&ann, &there, "Plan", "hello").await;
    }
    one.delete(&ann, &format!("/household/machines/{}", machine["id"].as_str().unwrap())).await.expect(204);
    for (from, to) in [(&there, &ann), (&ann, &there)] {
        let body = json!({"to": to.name, "subject": "Plan", "content": "after"});
        other.post(from, "/messages/send", body).await.problem(403, "not_connected");
    }
    other.try_join(machine["token"].as_str().unwrap(), "late").await.problem(401, "unauthorized");
}

async fn the_person_sees_what_everybody_does(server: TestServer) {
    let owner = server.found().await;
    let ann = agent(&server.try_person(Some(&owner), "ann").await.expect(201));
    let (coder, tester) = (server.join(&owner, "coder").await, server.join(&owner, "tester").await);
    let stranger = server.register("stranger").await;
    for nobody in [&coder, &stranger] {
        server.get(nobody, "/household/events").await.problem(403, "forbidden");
    }
    server.get(&ann, "/household/events?since=nonsense").await.problem(422, "invalid");
    server.send(&coder, &tester, "Plan", "before").await;
    let texts = |page: &Value| -> Vec<(String, String)> {
        let mail = page["events"].as_array().unwrap().iter().filter(|event| event["type"] == "new_message");
        let text = |value: &Value| value.as_str().unwrap().to_owned();
        mail.map(|event| (text(&event["member"]), text(&event["content"]))).collect()
    };
    let page = server.get(&ann, "/household/events?last=10").await.expect(200);
    assert_eq!(texts(&page), [("tester".to_owned(), "before".to_owned())]);
    let now = server.get(&ann, "/household/events").await.expect(200);
    assert_eq!(texts(&now), []);
    let cursor = now["cursor"].as_str().unwrap().to_owned();
    // A waiting poll returns at once; continuing misses nothing, and reading marks nothing.
    let waiting = format!("/household/events?since={cursor}&wait=20");
    let (told, _) = tokio::join!(server.get(&ann, &waiting), async {
        server.send(&tester, &coder, "Plan", "first").await;
    });
    let mut page = told.expect(200);
    server.send(&coder, &tester, "Plan", "second").await;
    let (mut seen, mut rest) = (texts(&page), 3);
    while seen.len() < 2 && rest > 0 {
        page = server
            .get(&ann, &format!("/household/events?since={}&wait=20", page["cursor"].as_str().unwrap()))
            .await
            .expect(200);
        seen.extend(texts(&page));
        rest -= 1;
    }
    let wanted = [("coder", "first"), ("tester", "second")].map(|(to, text)| (to.to_owned(), text.to_owned()));
    assert_eq!(seen, wanted);
    let inbox = server.get(&coder, "/inbox").await.expect(200);
    assert_eq!(inbox["sessions"][0]["unread_count"], 1, "{inbox}");
}

#[tokio::test]
async fn the_person_sees_what_everybody_does_on_sqlite() {
    the_person_sees_what_everybody_does(TestServer::sqlite().await).await;
}

#[tokio::test]
async fn the_person_sees_what_everybody_does_on_postgres() {
    the_person_sees_what_everybody_does(TestServer::postgres().await).await;
}

#[tokio::test]
async fn a_full_page_of_household_events_skips_no_member() {
    let server = TestServer::sqlite().await;
    let owner = server.found().await;
    let ann = agent(&server.try_person(Some(&owner), "ann").await.expect(201));
    let (coder, tester) = (server.join(&owner, "coder").await, server.join(&owner, "tester").await);
    let large = json!([{"type": "data", "data": {"k": "x".repeat(900_000)}}]);
    for _ in 0..6 {
        let body = json!({"to": "coder", "subject": "Large", "parts": large});
        server.post(&tester, "/messages/send", body).await.expect(201);
    }
    for number in 0..70 {
        server.send(&coder, &tester, "Plan", &format!("number {number}")).await;
    }
    let (mut path, mut seen) = ("/household/events?last=1000".to_owned(), 0);
    loop {
        let page = server.get(&ann, &path).await.expect(200);
        let events = page["events"].as_array().unwrap();
        if events.is_empty() {
            break;
        }
        let mail = |event: &&Value| event["type"] == "new_message" && event["member"] == "tester";
        seen += events.iter().filter(mail).count();
        path = format!("/household/events?since={}", page["cursor"].as_str().unwrap());
    }
    assert_eq!(seen, 70);
}

#[tokio::test]
async fn a_registered_agent_joins_a_household_with_a_token() {
    let server = TestServer::sqlite().await;
    let owner = server.found().await;
    let ann = agent(&server.try_person(Some(&owner), "ann").await.expect(201));
    let late = server.register("late").await;
    server
        .post(&late, "/household/members", json!({"household_token": "ambh_wrong"}))
        .await
        .problem(401, "unauthorized");
    for _ in 0..2 {
        server.post(&late, "/household/members", json!({"household_token": owner})).await.expect(204);
    }
    server.send(&ann, &late, "Plan", "welcome").await;
    let inbox = server.get(&late, "/inbox").await.expect(200);
    assert_eq!(inbox["sessions"][0]["recent_messages"][0]["from_person"], true, "{inbox}");
    server.send(&late, &ann, "Plan", "thanks").await;
    let inbox = server.get(&ann, "/inbox").await.expect(200);
    assert_eq!(inbox["sessions"][0]["recent_messages"][0]["from_person"], Value::Null, "plain mail has no more fields");
}

#[tokio::test]
async fn wrong_household_tokens_are_limited_like_wrong_keys() {
    let limits = RateLimits { wrong_key: Rate::per_minute(1, 3), ..RateLimits::default() };
    let server = TestServer::sqlite_with(Config { rate_limits: Some(limits), ..Config::default() }).await;
    server.try_join("guess", "coder").await.problem(401, "unauthorized");
    server.try_person(Some("guess"), "ann").await.problem(401, "unauthorized");
    server.try_join("guess", "coder").await.problem(401, "unauthorized");
    server.try_person(Some("guess"), "ann").await.problem(429, "too_many_requests");
    server.try_join("guess", "coder").await.problem(429, "too_many_requests");
}

#[tokio::test]
async fn repeated_joining_is_limited() {
    let limits = RateLimits { connect: Rate::per_minute(1, 3), ..RateLimits::default() };
    let server = TestServer::sqlite_with(Config { rate_limits: Some(limits), ..Config::default() }).await;
    let owner = server.found().await;
    let ann = agent(&server.try_person(Some(&owner), "ann").await.expect(201));
    let late = server.register("late").await;
    let join = async || server.post(&late, "/household/members", json!({"household_token": owner})).await;
    for _ in 0..3 {
        join().await.expect(204);
        server.delete(&late, "/household/members/late").await.expect(204);
    }
    join().await.problem(429, "too_many_requests");
    let told = server.get(&ann, "/events?since=0").await.expect(200)["events"].as_array().unwrap().len();
    assert_eq!(told, 6, "the person's log grows no faster than that");
}

#[tokio::test]
async fn a_machine_added_twice_with_one_idempotency_key_is_one_machine() {
    let server = TestServer::sqlite().await;
    let owner = server.found().await;
    let ann = agent(&server.try_person(Some(&owner), "ann").await.expect(201));
    let ask = async || {
        let request = server.http.post(server.url("/household/machines")).header("X-API-Key", &ann.key);
        server.request(request.header("Idempotency-Key", "k1").json(&json!({"label": "laptop"}))).await.expect(201)
    };
    let (first, again) = (ask().await, ask().await);
    assert_eq!(first["id"], again["id"]);
    server.try_join(first["token"].as_str().unwrap(), "coder").await.problem(401, "unauthorized");
    server.join(again["token"].as_str().unwrap(), "coder").await;
}
