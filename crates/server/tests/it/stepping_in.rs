//! Stepping in over HTTP and sockets: pause, end, cancel, reassign, by the household's person.

use amb_server::Config;
use reqwest::Method;
use serde_json::{Value, json};

use crate::household::agent;
use crate::test_server::{Agent, Answer, Socket, TestServer};

/// A household: its person, and two agents.
struct Home {
    ann: Agent,
    coder: Agent,
    writer: Agent,
}

impl TestServer {
    async fn home(&self) -> Home {
        let owner = self.found().await;
        let ann = agent(&self.try_person(Some(&owner), "ann").await.expect(201));
        Home { ann, coder: self.join(&owner, "coder").await, writer: self.join(&owner, "writer").await }
    }

    /// A request without a body.
    async fn act(&self, who: &Agent, path: &str) -> Answer {
        self.call(Method::POST, path, Some(&who.key), None).await
    }

    async fn give(&self, from: &Agent, to: &Agent, subject: &str) -> Value {
        let body = json!({"to": to.name, "subject": subject, "content": "do it", "kind": "task"});
        self.post(from, "/messages/send", body).await.expect(201)
    }
}

/// Whether nothing was sent to a socket so far: the next message is the reply to a ping.
async fn is_silent(socket: &mut Socket) -> bool {
    socket.send_json(json!({"type": "ping"})).await;
    socket.receive().await == json!({"type": "pong"})
}

async fn a_paused_agent_gets_nothing(server: TestServer) {
    let Home { ann, coder, writer } = server.home().await;
    let mut live = server.live(&coder).await;
    let paused = server.act(&ann, "/household/members/coder/pause").await.expect(200);
    assert_eq!((&paused["name"], &paused["paused"]), (&json!("coder"), &json!(true)));
    server.act(&ann, "/household/members/coder/pause").await.expect(200);
    let told = live.receive().await;
    assert_eq!(
        (&told["type"], &told["act"], &told["agent"], &told["by"]),
        (&json!("stepped_in"), &json!("paused"), &json!("coder"), &json!("ann"))
    );
    let cursor = told["cursor"].as_u64().unwrap();

    // Accepted as `paused`; neither pushed, nor in a poll, nor claimed.
    let sent = server.send(&writer, &coder, "Plan", "one").await;
    assert_eq!(sent["paused"], json!(true));
    server.send(&ann, &coder, "Plan", "two").await;
    assert!(is_silent(&mut live).await);
    let poll = server.get(&coder, &format!("/events?since={cursor}&wait=1")).await.expect(200);
    assert_eq!((&poll["events"], &poll["cursor"]), (&json!([]), &json!(cursor)));
    assert_eq!(server.get(&coder, "/events").await.expect(200)["cursor"], json!(cursor), "the log ends at the pause");
    let claimed = server.post(&coder, "/messages/claim", json!({})).await.expect(200);
    assert_eq!(claimed["messages"], json!([]));
    // A new socket gets nothing either, from any cursor.
    let (mut late, mut since) = (server.live(&coder).await, server.since(&coder, cursor).await);
    assert!(is_silent(&mut since).await);
    server.send(&writer, &coder, "Plan", "three").await;
    for socket in [&mut live, &mut late, &mut since] {
        assert!(is_silent(socket).await);
    }
    assert_eq!(server.get(&writer, "/agents/coder").await.expect(200)["paused"], json!(true));
    assert_eq!(server.get(&coder, "/agents/me").await.expect(200)["paused"], json!(true));
    let household = server.get(&writer, "/household").await.expect(200);
    assert_eq!(household["members"][1]["paused_by"], "ann");

    // After the resume everything arrives at once and in order.
    let poll =
        async { server.get(&coder, &format!("/events?since={cursor}&wait=30")).await.expect(200)["events"].clone() };
    let (poll, resumed) = tokio::join!(poll, server.act(&ann, "/household/members/coder/resume"));
    assert_eq!(resumed.expect(200)["paused"], Value::Null);
    assert_eq!(poll[0]["content"], "one", "{poll}");
    for socket in [&mut live, &mut late, &mut since] {
        for text in ["one", "two", "three"] {
            assert_eq!(socket.receive().await["content"], text);
        }
        assert_eq!(socket.receive().await["act"], "resumed");
    }
    let sent = server.send(&writer, &coder, "Plan", "four").await;
    assert_eq!(sent["paused"], Value::Null);
    for socket in [&mut live, &mut late, &mut since] {
        assert_eq!(socket.receive().await["content"], "four", "pushed again");
    }
}

#[tokio::test]
async fn a_paused_agent_gets_nothing_on_sqlite() {
    a_paused_agent_gets_nothing(TestServer::sqlite().await).await;
}

#[tokio::test]
async fn a_paused_agent_gets_nothing_on_postgres() {
    a_paused_agent_gets_nothing(TestServer::postgres().await).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_agent_paused_at_one_replica_gets_nothing_at_the_other() {
    let one = TestServer::postgres().await;
    let other = one.replica(Config { rate_limits: None, ..Config::default() }).await;
    let Home { ann, coder, writer } = one.home().await;
    let mut live = other.live(&coder).await;
    one.act(&ann, "/household/members/coder/pause").await.expect(200);
    // Sent at the replica of its socket, before that replica got the hint.
    other.send(&writer, &coder, "Plan", "waits").await;
    assert_eq!(live.receive().await["act"], "paused");
    other.send(&writer, &coder, "Plan", "waits too").await;
    assert!(is_silent(&mut live).await);
    other.act(&ann, "/household/members/coder/resume").await.expect(200);
    for text in ["waits", "waits too"] {
        assert_eq!(live.receive().await["content"], text);
    }
}

async fn a_person_ends_cancels_and_reassigns(server: TestServer) {
    let Home { ann, coder, writer } = server.home().await;
    let stranger = server.register("stranger").await;
    let task = server.give(&coder, &writer, "Build").await;
    let (session, id) = (task["session_id"].as_str().unwrap(), task["task"]["id"].as_str().unwrap());
    let [pause, end, cancel, reassign] = [
        "/household/members/coder/pause".to_owned(),
        format!("/sessions/{session}/end"),
        format!("/tasks/{id}/cancel"),
        format!("/tasks/{id}/reassign"),
    ];
    for nobody in [&coder, &writer, &stranger] {
        server.act(nobody, &pause).await.problem(403, "forbidden");
        server.act(nobody, &end).await.problem(403, "forbidden");
        server.post(nobody, &cancel, json!({})).await.problem(403, "forbidden");
        server.post(nobody, &reassign, json!({"to": "coder"})).await.problem(403, "forbidden");
        server.get(nobody, "/household/tasks").await.problem(403, "forbidden");
        server.get(nobody, "/household/sessions").await.problem(403, "forbidden");
    }
    server.act(&ann, "/household/members/stranger/pause").await.problem(404, "not_found");
    server.act(&ann, "/household/members/ann/pause").await.problem(409, "conflict");
    server.act(&ann, "/sessions/x/end").await.problem(422, "invalid");
    server.post(&ann, "/tasks/x/cancel", json!({})).await.problem(422, "invalid");
    server.post(&ann, &reassign, json!({"to": "nobody"})).await.problem(404, "not_found");
    server.post(&ann, &reassign, json!({"to": "coder"})).await.problem(409, "conflict");

    let listed = server.get(&ann, "/household/tasks?open=true").await.expect(200);
    assert_eq!((listed["tasks"].as_array().unwrap().len(), &listed["tasks"][0]["id"]), (1, &json!(id)));
    let moved = server.post(&ann, &reassign, json!({"to": "ann"})).await.expect(200);
    assert_eq!((&moved["assignee"], &moved["state"], &moved["id"]), (&json!("ann"), &json!("pending"), &json!(id)));
    server.post(&writer, &format!("/tasks/{id}/state"), json!({"state": "completed"})).await.problem(404, "not_found");
    let canceled = server.post(&ann, &cancel, json!({"note": "not needed"})).await.expect(200);
    assert_eq!((&canceled["state"], &canceled["canceled_by"]), (&json!("rejected"), &json!("ann")));
    server.post(&ann, &cancel, json!({})).await.expect(200);
    server.post(&ann, &reassign, json!({"to": "writer"})).await.problem(409, "illegal_move");

    let mut live = server.live(&writer).await;
    let ended = server.act(&ann, &end).await.expect(200);
    assert_eq!((&ended["session_id"], &ended["ended_by"]), (&json!(session), &json!("ann")));
    assert_eq!(server.act(&ann, &end).await.expect(200), ended);
    let told = live.receive().await;
    assert_eq!(
        (&told["act"], &told["session_id"], &told["by"]),
        (&json!("session_ended"), &json!(session), &json!("ann"))
    );
    let more = json!({"to": "writer", "subject": "build", "content": "more"});
    let refused = server.post(&coder, "/messages/send", more).await.problem(410, "gone");
    assert!(refused["detail"].as_str().unwrap().contains("ann ended"), "{refused}");
    server.send(&coder, &writer, "Another", "goes").await;
    let sessions = server.get(&ann, "/household/sessions").await.expect(200)["sessions"].clone();
    let ended: Vec<_> = sessions.as_array().unwrap().iter().filter(|line| line["ended_by"] == "ann").collect();
    assert_eq!((ended.len(), &ended[0]["session_id"]), (1, &json!(session)), "{sessions}");
}

async fn a_long_list_of_the_household_says_that_it_is_cut(server: TestServer) {
    let Home { ann, coder, writer } = server.home().await;
    for number in 0..101 {
        server.give(&coder, &writer, &format!("Build {number}")).await;
    }
    let sessions = server.get(&ann, "/household/sessions").await.expect(200);
    assert_eq!((sessions["sessions"].as_array().unwrap().len(), &sessions["truncated"]), (100, &json!(true)));
    let listed = async |query: &str| {
        let listed = server.get(&ann, &format!("/household/tasks{query}")).await.expect(200);
        (listed["tasks"].as_array().unwrap().len(), listed["truncated"].as_bool())
    };
    assert_eq!(listed("").await, (100, Some(true)));
    assert_eq!(listed("?open=true").await, (100, Some(true)));
    assert_eq!(listed("?state=pending").await, (101, None));
    assert_eq!(listed("?state=completed").await, (0, None));
    assert_eq!(listed("?state=completed&open=true").await, (0, None));
}

#[tokio::test]
async fn a_long_list_of_the_household_says_that_it_is_cut_on_sqlite() {
    a_long_list_of_the_household_says_that_it_is_cut(TestServer::sqlite().await).await;
}

#[tokio::test]
async fn a_long_list_of_the_household_says_that_it_is_cut_on_postgres() {
    a_long_list_of_the_household_says_that_it_is_cut(TestServer::postgres().await).await;
}

#[tokio::test]
async fn a_person_ends_cancels_and_reassigns_on_sqlite() {
    a_person_ends_cancels_and_reassigns(TestServer::sqlite().await).await;
}

#[tokio::test]
async fn a_person_ends_cancels_and_reassigns_on_postgres() {
    a_person_ends_cancels_and_reassigns(TestServer::postgres().await).await;
}
