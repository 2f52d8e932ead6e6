//! The state of wake-ups, over HTTP and on the dashboard.

use amb_core::Timestamp;
use reqwest::Method;
use serde_json::{Value, json};

use crate::dashboard::Home;
use crate::test_server::{Agent, Answer, TestServer, soon};

fn report(state: &str, rung: u64, held: u64, failed: u64) -> Value {
    json!({"session": "0f0f", "client": "claude", "door": "claude inbox socket", "state": state,
           "rung": rung, "held": held, "failed": failed})
}

impl TestServer {
    async fn report(&self, agent: &Agent, report: Value) -> Answer {
        self.call(Method::PUT, "/agents/me/wake", Some(&agent.key), Some(&report)).await
    }
}

async fn wake_reports_are_visible_to_the_agent_and_its_person(server: TestServer) {
    let home = Home::of(&server, "pat").await;
    let (coder, tester) = (home.agent(&server, "coder").await, home.agent(&server, "tester").await);
    let stranger = server.register("stranger").await;
    assert_eq!(server.get(&coder, "/agents/me/wake").await.expect(200), json!({"sessions": []}));
    let mut failed = report("failed", 2, 0, 1);
    failed["reason"] = json!("client_gone");
    server.report(&coder, failed.clone()).await.expect(204);
    let mine = server.get(&coder, "/agents/me/wake").await.expect(200);
    let session = &mine["sessions"][0];
    for (field, value) in failed.as_object().unwrap() {
        assert_eq!(&session[field], value, "{field}");
    }
    assert!(session["since"].is_string() && session["reported_at"].is_string() && session["stale"] == false);
    let at = "/household/members/coder/wake";
    for who in [&coder, &home.person] {
        assert_eq!(server.get(who, at).await.expect(200), mine);
    }
    for nobody in [&tester, &stranger] {
        server.get(nobody, at).await.problem(403, "forbidden");
    }
    server.get(&home.person, "/household/members/stranger/wake").await.problem(404, "not_found");
    // Only known words and plain names; no paths, no sentences, no huge numbers.
    let with = |field: &str, value: Value| {
        let mut bad = report("ready", 0, 0, 0);
        bad[field] = value;
        bad
    };
    for bad in [
        with("state", json!("asleep")),
        with("reason", json!("because ann said so")),
        with("client", json!("/run/user/1000/claude.sock")),
        with("client", json!("")),
        with("session", json!("x".repeat(41))),
        with("door", json!("<script>")),
        with("door", json!("a\u{0}b")),
        with("rung", json!(-1)),
        with("failed", json!(1e18)),
    ] {
        server.report(&coder, bad).await.problem(422, "invalid");
    }
}

async fn a_failed_wake_up_is_shown_to_the_person(server: TestServer) {
    let (home, other) = (Home::of(&server, "pat").await, Home::of(&server, "kim").await);
    let (coder, tester) = (home.agent(&server, "coder").await, home.agent(&server, "tester").await);
    let page = home.page(&server, "/dashboard/agents/coder").await;
    assert!(page.contains("No client of it has reported") && page.contains("amb --as coder wake status"), "{page}");
    server.report(&coder, report("ready", 0, 0, 0)).await.expect(204);
    let sent = server.send(&tester, &coder, "Plan", "wake up").await;
    assert!(!home.page(&server, "/dashboard").await.contains("is not woken"));
    let mut failed = report("failed", 0, 0, 1);
    failed["reason"] = json!("client_gone");
    server.report(&coder, failed).await.expect(204);
    let page = home.page(&server, "/dashboard").await;
    assert!(page.contains("coder has mail and is not woken") && page.contains("amb wake test"), "{page}");
    assert!(page.contains("nobody is behind the door") && page.len() < 50_000, "{page}");
    assert!(!other.page(&server, "/dashboard").await.contains("is not woken"), "another household");
    let page = home.page(&server, "/dashboard/agents/coder").await;
    for words in ["claude inbox socket", "nobody is behind the door", "0 rung, 0 held, 1 failed", "wake status"] {
        assert!(page.contains(words), "{words}: {page}");
    }
    assert!(page.len() < 50_000 && !page.contains("style="), "{page}");
    server.report(&coder, report("unheard", 2, 1, 1)).await.expect(204);
    assert!(home.page(&server, "/dashboard").await.contains(">unheard<"));
    // An agent that has read its mail needs no attention.
    let at = format!("/sessions/{}/history", sent["session_id"].as_str().unwrap());
    server.get(&coder, &at).await.expect(200);
    assert!(!home.page(&server, "/dashboard").await.contains("is not woken"));
    // The operator sees counts, not names.
    server.store.set_operator(&"kim".parse().unwrap(), true, Timestamp::now()).await.unwrap();
    let page = other.page(&server, "/dashboard/health").await;
    assert!(page.contains("Wake-ups") && !page.contains("coder"), "{page}");
    let request = server.http.get(format!("http://{}/metrics", server.metrics));
    let text = soon(soon(request.send()).await.unwrap().text()).await.unwrap();
    for line in ["rung\"} 2", "held\"} 1", "failed\"} 1"] {
        assert!(text.contains(&format!("amb_wakeups_total{{result=\"{line}")), "{text}");
    }
}

crate::on_every_store!(wake_reports_are_visible_to_the_agent_and_its_person, a_failed_wake_up_is_shown_to_the_person,);
