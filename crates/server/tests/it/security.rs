//! The table in SECURITY.md: what every route answers to a request without a key, with a wrong one, with another agent's,
//! with one that has ended, and with one in its grace. Made by asking the office, for every route that it describes.

use std::path::Path;
use std::time::Duration;

use amb_server::Config;
use reqwest::Method;
use serde_json::{Value, json};

use crate::test_server::{Agent, TestServer};

const BEGIN: &str = "<!-- routes: made by a test; UPDATE_DOCS=1 cargo nextest run -p amb-server security -->\n";
const END: &str = "<!-- end of routes -->\n";
/// Of the right form, and nobody's.
const WRONG: &str = "amb_0000000000000000000000000000000000000000000000000000000000000000";

/// An agent with things of its own, and the keys that it has had.
struct World {
    ended: String,
    in_grace: String,
    peer: Agent,
    stranger: Agent,
    owner: String,
    code: String,
    asker: Agent,
    message: String,
    session: String,
    task: String,
}

impl World {
    async fn new(server: &TestServer, number: usize) -> Self {
        let register = async |role: &str| server.register(&format!("{role}-{number}")).await;
        let (mut owner, peer) = (register("owner").await, register("peer").await);
        let (stranger, asker) = (register("stranger").await, register("asker").await);
        server.connect(&owner, &peer).await;
        let code = server.ask(&asker, &owner).await;
        let task = json!({"to": owner.name, "subject": "Work", "content": "do it", "kind": "task"});
        let sent = server.post(&peer, "/messages/send", task).await.expect(201);
        let text = |value: &Value| value.as_str().unwrap().to_owned();
        server.post(&owner, "/groups", json!({"name": format!("crew-{number}")})).await.expect(201);
        let line = json!({"role": "user", "sender": "ann", "content": "hello"});
        server.post(&owner, &format!("/transcripts/chat-{number}"), line).await.expect(201);
        let mut rotate = async |grace: u32| {
            let body = json!({"grace_seconds": grace});
            let rotated = server.post(&owner, "/agents/me/rotate-key", body).await.expect(200);
            std::mem::replace(&mut owner.key, text(&rotated["api_key"]))
        };
        let ended = rotate(0).await;
        let in_grace = rotate(3_600).await;
        Self {
            ended,
            in_grace,
            peer,
            stranger,
            owner: owner.name,
            code,
            asker,
            message: text(&sent["message_id"]),
            session: text(&sent["session_id"]),
            task: text(&sent["task"]["id"]),
        }
    }

    fn path(&self, template: &str, number: usize) -> String {
        let path = template
            .replace("{session_id}", &self.session)
            .replace("{message_id}", &self.message)
            .replace("{task_id}", &self.task)
            .replace("{key}", &format!("chat-{number}"));
        match template.starts_with("/groups/") {
            true => path.replace("{name}", &format!("crew-{number}")),
            false => path.replace("{name}", &self.owner),
        }
    }

    /// A body with which the owner would succeed.
    fn body(&self, method: &str, path: &str, new: &str) -> Option<Value> {
        let peer = &self.peer.name;
        Some(match (method, path) {
            ("get" | "delete", _) => return None,
            (
                _,
                "/agents/me/heartbeat"
                | "/agents/me/leave"
                | "/groups/{name}/join"
                | "/groups/{name}/leave"
                | "/household/members/{name}/pause"
                | "/household/members/{name}/resume"
                | "/sessions/{session_id}/end"
                | "/dashboard/links",
            ) => return None,
            ("post", "/agents/register") => json!({"name": format!("new-{new}")}),
            ("post", "/agents/me/rotate-key") => json!({}),
            ("post", "/household/person") => json!({"name": format!("ann-{new}")}),
            ("post", "/household/machines") => json!({"label": "laptop"}),
            // Nobody's token: whoever may ask is told that.
            ("post", "/household/members") => json!({"household_token": "ambh_none"}),
            ("put", "/agents/me/wake") => {
                json!({"session": "s", "client": "claude", "state": "ready", "rung": 0, "held": 0, "failed": 0})
            }
            ("patch", "/agents/me") => json!({"description": "busy"}),
            ("post", "/connections/request") => json!({"target_agent_name": self.stranger.name}),
            ("post", "/connections/approve") => json!({"verification_code": self.code}),
            ("post", "/connections/reject") => json!({"agent_name": self.asker.name}),
            ("post", "/connections/revoke" | "/connections/block") => json!({"agent_name": peer}),
            ("post", "/connections/unblock") => json!({"agent_name": peer}),
            ("post", "/messages/send") => json!({"to": peer, "subject": "Plan", "content": "hello"}),
            ("post", "/messages/send-many") => json!({"to": [peer], "subject": "Plan", "content": "hello"}),
            ("post", "/messages/ack" | "/messages/rung" | "/messages/release" | "/messages/renew") => {
                json!({"message_ids": [self.message]})
            }
            ("post", "/messages/claim") => json!({}),
            ("post", "/tasks/{task_id}/cancel") => json!({"note": "not needed"}),
            ("post", "/tasks/{task_id}/reassign") => json!({"to": peer}),
            ("post", "/tasks/{task_id}/state") => json!({"state": "accepted"}),
            ("post", "/groups") => json!({"name": format!("club-{new}")}),
            ("post", "/groups/{name}/invite" | "/groups/{name}/remove") => json!({"agent_name": peer}),
            ("post", "/transcripts/{key}") => json!({"role": "user", "sender": "ann", "content": "hello"}),
            ("post", "/transcripts/{key}/share") => json!({"agent_name": peer, "access": "read"}),
            _ => panic!("{method} {path} is new: say here with which body its caller succeeds"),
        })
    }
}

async fn ask(server: &TestServer, method: &str, path: &str, key: Option<&str>, body: Option<&Value>) -> String {
    let method: Method = method.to_uppercase().parse().unwrap();
    server.call(method, path, key, body).await.status.as_u16().to_string()
}

/// How a socket with this key ends, or that it stays.
async fn socket(server: &TestServer, key: Option<&str>) -> String {
    let mut socket = server.socket(&key.map(|key| format!("?api_key={key}")).unwrap_or_default()).await;
    match tokio::time::timeout(Duration::from_secs(2), socket.hear_out()).await {
        Ok((_, frame)) => format!("101, closed with {}", u16::from(frame.unwrap().code)),
        Err(_) => "101".to_owned(),
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_table_of_routes_and_keys_in_security_md_is_what_the_office_answers() {
    let config = Config { rate_limits: None, ws_auth_timeout: Duration::from_millis(100), ..Config::default() };
    let server = TestServer::sqlite_with(config).await;
    let document: Value = serde_json::from_str(&amb_server::openapi_json().unwrap()).unwrap();
    let mut table = String::from(
        "| route | no key | wrong key | another agent's | ended | in its grace |\n|---|---|---|---|---|---|\n",
    );
    let mut number = 0;
    let mut paths = document["paths"].as_object().unwrap().clone();
    // The document does not describe itself.
    paths.insert("/openapi.json".to_owned(), json!({"get": {}}));
    for (template, item) in &paths {
        for (method, operation) in item.as_object().unwrap() {
            let needs_key = operation.get("security").is_some();
            number += 1;
            let world = World::new(&server, number).await;
            let path = world.path(template, number);
            let mut answers = Vec::new();
            let keys = [None, Some(WRONG), Some(&*world.stranger.key), Some(&*world.ended), Some(&*world.in_grace)];
            for (attempt, key) in keys.into_iter().enumerate() {
                let body = world.body(method, template, &format!("{number}-{attempt}"));
                answers.push(match template.as_str() {
                    "/ws" => socket(&server, key).await,
                    _ => ask(&server, method, &path, key, body.as_ref()).await,
                });
            }
            if needs_key {
                assert_eq!([&answers[0], &answers[1], &answers[3]], ["401", "401", "401"], "{method} {template}");
            }
            let told = ["{session_id}", "{message_id}", "{task_id}"].iter().any(|part| template.contains(part));
            assert!(!told || !answers[2].starts_with('2'), "{method} {template} serves strangers: {answers:?}");
            let method = method.to_uppercase();
            table.push_str(&format!("| `{method} {template}` | {} |\n", answers.join(" | ")));
        }
    }
    let page = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../SECURITY.md");
    let text = fs_err::read_to_string(&page).unwrap();
    let (before, rest) = text.split_once(BEGIN).expect("the mark where the table begins");
    let (written, after) = rest.split_once(END).expect("the mark where the table ends");
    if std::env::var_os("UPDATE_DOCS").is_some() {
        fs_err::write(&page, format!("{before}{BEGIN}{table}{END}{after}")).unwrap();
        return;
    }
    assert_eq!(written, table, "SECURITY.md is not what the office answers; run with UPDATE_DOCS=1");
}
