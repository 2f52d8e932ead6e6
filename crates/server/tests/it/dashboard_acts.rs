//! Stepping in from the dashboard's pages.

use amb_core::Timestamp;
use amb_server::Config;
use reqwest::Method;
use serde_json::{Value, json};

use crate::dashboard::Home;
use crate::test_server::{Agent, TestServer};

async fn an_agent_is_paused_and_resumed_on_its_page(server: TestServer) {
    let home = Home::of(&server, "pat").await;
    let (coder, tester) = (home.agent(&server, "coder").await, home.agent(&server, "tester").await);
    let page = home.page(&server, "/dashboard/agents/coder").await;
    assert!(page.contains("/dashboard/agents/coder/pause") && !page.contains("paused by"), "{page}");
    let done = home.post(&server, "/dashboard/agents/coder/pause", &[]).await;
    assert_eq!((done.url().path(), done.url().query()), ("/dashboard/agents/coder", Some("done=paused")));
    let page = done.text().await.unwrap();
    assert!(page.contains("paused by pat") && page.contains("/dashboard/agents/coder/resume"), "{page}");
    for path in ["/dashboard", "/dashboard/agents"] {
        assert!(home.page(&server, path).await.contains(">paused<"), "{path}");
    }
    let sent = server.send(&tester, &coder, "Plan", "waits").await;
    assert_eq!(sent["paused"], json!(true));
    home.post(&server, "/dashboard/agents/coder/resume", &[]).await;
    assert_eq!(server.get(&tester, "/agents/coder").await.expect(200)["paused"], Value::Null);
    assert!(!home.page(&server, "/dashboard").await.contains(">paused<"));
    // Neither the person nor a stranger can be paused.
    assert!(!home.page(&server, "/dashboard/agents/pat").await.contains("/pause"));
    assert_eq!(home.post(&server, "/dashboard/agents/pat/pause", &[]).await.status(), 409);
    assert_eq!(home.post(&server, "/dashboard/agents/nobody/pause", &[]).await.status(), 404);
}

async fn a_conversation_is_ended_on_its_page(server: TestServer) {
    let home = Home::of(&server, "pat").await;
    let (coder, tester) = (home.agent(&server, "coder").await, home.agent(&server, "tester").await);
    let sent = server.send(&coder, &tester, "Loop", "ping").await;
    let at = format!("/dashboard/conversations/{}", sent["session_id"].as_str().unwrap());
    assert!(home.page(&server, &at).await.contains("End this conversation"));
    let page = home.post(&server, &format!("{at}/end"), &[]).await.text().await.unwrap();
    assert!(page.contains("pat ended this conversation") && page.contains("ping"), "{page}");
    assert!(
        !page.contains("End this conversation") && !page.contains("name=\"content\""),
        "nothing more to do: {page}"
    );
    assert!(home.page(&server, "/dashboard/conversations").await.contains(">ended<"));
    let more = json!({"to": "tester", "subject": "Loop", "content": "pong"});
    server.post(&coder, "/messages/send", more).await.problem(410, "gone");
}

async fn a_task_is_reassigned_and_canceled_on_its_page(server: TestServer) {
    let home = Home::of(&server, "pat").await;
    let (coder, tester) = (home.agent(&server, "coder").await, home.agent(&server, "tester").await);
    home.agent(&server, "writer").await;
    let task = json!({"to": "tester", "subject": "Test", "content": "all of it", "kind": "task"});
    let sent = server.post(&coder, "/messages/send", task).await.expect(201);
    let id = sent["task"]["id"].as_str().unwrap();
    let at = format!("/dashboard/tasks/{id}");
    let page = home.page(&server, &at).await;
    assert!(page.contains("value=\"writer\"") && !page.contains("value=\"tester\""), "{page}");
    let reassign = format!("{at}/reassign");
    assert_eq!(home.post(&server, &reassign, &[("to", "nobody")]).await.status(), 404);
    assert_eq!(home.post(&server, &reassign, &[("to", "")]).await.status(), 422);
    assert_eq!(home.post(&server, &reassign, &[("to", "coder")]).await.status(), 409, "it gave it itself");
    let moved = home.post(&server, &reassign, &[("to", "writer")]).await;
    assert_eq!(moved.url().query(), Some("done=reassigned"));
    let kept = home.post(&server, &reassign, &[("to", "writer")]).await.text().await.unwrap();
    assert!(kept.contains("nothing has changed") && !kept.contains("Given to another"), "{kept}");
    assert_eq!(server.get(&coder, &format!("/tasks/{id}")).await.expect(200)["assignee"], "writer");
    assert_eq!(server.get(&tester, &format!("/tasks/{id}")).await.status, 404);
    let note = "x".repeat(10_001);
    assert_eq!(home.post(&server, &format!("{at}/cancel"), &[("note", &note)]).await.status(), 422);
    let page = home.post(&server, &format!("{at}/cancel"), &[("note", "not <needed>")]).await.text().await.unwrap();
    assert!(page.contains("canceled by pat") && !page.contains("not <needed>"), "{page}");
    assert!(!page.contains("Cancel the task"), "what has ended is left alone: {page}");
    let task = server.get(&coder, &format!("/tasks/{id}")).await.expect(200);
    assert_eq!(task["note"], "canceled by pat: not <needed>");
    assert_eq!(home.post(&server, &reassign, &[("to", "tester")]).await.status(), 409);
}

async fn an_act_on_behalf_of_an_agent_is_in_its_log(server: TestServer) {
    let home = Home::of(&server, "pat").await;
    let (coder, _) = (home.agent(&server, "coder").await, server.register("friend").await);
    let peer = [("agent", "coder"), ("peer", "friend")];
    for what in ["ask", "block", "unblock"] {
        assert_eq!(home.post(&server, &format!("/dashboard/connections/{what}"), &peer).await.status(), 200, "{what}");
    }
    let acts = |page: Value| -> Vec<Value> {
        let events = page["events"].as_array().unwrap().clone();
        events.into_iter().filter(|event| event["type"] == "stepped_in").collect()
    };
    let told = acts(server.get(&coder, "/events?since=0").await.expect(200));
    let words: Vec<_> = told.iter().map(|act| (&act["by"], &act["act"], &act["with"], &act["did"])).collect();
    let [by, act, with] = ["pat", "connection", "friend"].map(Value::from);
    let did = ["asked", "blocked", "unblocked"].map(Value::from);
    assert_eq!(words, did.iter().map(|did| (&by, &act, &with, did)).collect::<Vec<_>>());
    let prefix = server.get(&coder, "/agents/me").await.expect(200)["api_key_prefix"].as_str().unwrap().to_owned();
    home.post(&server, "/dashboard/agents/coder/key", &[("key", &prefix)]).await;
    let told = acts(server.get(&home.person, "/events?since=0").await.expect(200));
    assert_eq!(told.last().unwrap()["act"], "key_renewed", "the person's log has it too");
    assert_eq!(told.len(), 4);
}

async fn a_repeated_form_does_not_end_the_key_that_it_gave(server: TestServer) {
    let home = Home::of(&server, "pat").await;
    let coder = home.agent(&server, "coder").await;
    let prefix = server.get(&coder, "/agents/me").await.expect(200)["api_key_prefix"].as_str().unwrap().to_owned();
    let page = home.page(&server, "/dashboard/agents/coder").await;
    assert!(page.contains(&format!("name=\"key\" value=\"{prefix}\"")), "{page}");
    let renew = async || {
        let answer = home.post(&server, "/dashboard/agents/coder/key", &[("key", &prefix)]).await;
        answer.text().await.unwrap()
    };
    let page = renew().await;
    assert!(page.contains("amb key import coder"), "{page}");
    let (_, rest) = page.split_once("<code class=\"command\">amb_").unwrap();
    let key = format!("amb_{}", rest.split('<').next().unwrap());
    let again = renew().await;
    assert!(again.contains("nothing has changed") && !again.contains("shown this once"), "{again}");
    server.get(&Agent { name: coder.name, key }, "/agents/me").await.expect(200);
}

async fn a_refused_form_is_shown_again_with_what_was_typed(server: TestServer) {
    let home = Home::of(&server, "pat").await;
    let (coder, tester) = (home.agent(&server, "coder").await, home.agent(&server, "tester").await);
    let sent = server.send(&coder, &tester, "Loop", "ping").await;
    let at = format!("/dashboard/conversations/{}", sent["session_id"].as_str().unwrap());
    let page = async |path: &str, status: u16, fields: &[(&str, &str)]| {
        let answer = home.post(&server, path, fields).await;
        assert_eq!(answer.status(), status, "{path}");
        let text = answer.text().await.unwrap();
        assert!(text.contains("class=\"flash bad\"") && text.contains("data-address=\"/dashboard/"), "{path}: {text}");
        text
    };
    // A reply to an agent that has left, and one in a conversation that has ended.
    let reply = [("to", "nobody"), ("content", "typed <with> care")];
    let text = page(&format!("{at}/send"), 403, &reply).await;
    assert!(text.contains("care</textarea>") && !text.contains("<with>") && text.contains("ping"), "{text}");
    let direct = server.send(&coder, &home.person, "Direct", "hello").await;
    let direct = format!("/dashboard/conversations/{}", direct["session_id"].as_str().unwrap());
    home.post(&server, &format!("{direct}/end"), &[]).await;
    let text = page(&format!("{direct}/send"), 410, &[("to", "coder"), ("content", "typed late")]).await;
    assert!(text.contains(">typed late</textarea>"), "{text}");
    // Connections: a name that is none, and a wrong code.
    let ask = [("agent", "tester"), ("peer", "no name"), ("intro", "hello there")];
    let text = page("/dashboard/connections/ask", 422, &ask).await;
    assert!(text.contains("With: ") && text.contains("value=\"no name\"") && text.contains("hello there"), "{text}");
    assert!(text.contains("<option selected>tester<"), "{text}");
    let text = page("/dashboard/connections/approve", 404, &[("agent", "coder"), ("code", "AA-000")]).await;
    assert!(text.contains("Requests that wait") && !text.contains("There is nothing here"), "{text}");
    // A message: a priority that is none, and a recipient that cannot be selected.
    let write = [("to", "coder"), ("content", "typed"), ("priority", "huge")];
    assert!(page("/dashboard/write", 422, &write).await.contains("Priority: "));
    let text = page("/dashboard/write", 403, &[("to", "nobody"), ("content", "typed")]).await;
    assert!(text.contains("<option value=\"\" selected>"), "no other agent is selected instead: {text}");
}

async fn only_the_person_can_step_in(server: TestServer) {
    let (home, other) = (Home::of(&server, "pat").await, Home::of(&server, "kim").await);
    let (coder, tester) = (home.agent(&server, "coder").await, home.agent(&server, "tester").await);
    let task = json!({"to": "tester", "subject": "Test", "content": "all of it", "kind": "task"});
    let sent = server.post(&coder, "/messages/send", task).await.expect(201);
    let [session, id] = [&sent["session_id"], &sent["task"]["id"]].map(|id| id.as_str().unwrap());
    let acts = [
        "/dashboard/agents/coder/pause".to_owned(),
        "/dashboard/agents/coder/resume".to_owned(),
        format!("/dashboard/conversations/{session}/end"),
        format!("/dashboard/tasks/{id}/cancel"),
        format!("/dashboard/tasks/{id}/reassign"),
    ];
    let form = [("to", "coder")];
    for act in &acts {
        assert_eq!(home.form(&server, act, &form).await.status(), 403, "{act} without the token of the form");
        assert_eq!(other.post(&server, act, &form).await.status(), 404, "{act} of another household");
        assert_eq!(home.get(&server, act).await.status(), 405, "{act} is no link");
    }
    assert_eq!(server.get(&tester, "/agents/coder").await.expect(200)["paused"], Value::Null);
    assert_eq!(server.get(&coder, &format!("/tasks/{id}")).await.expect(200)["state"], "pending");
    server.send(&coder, &tester, "Test", "still open").await;
}

async fn operators_read_mail_only_if_all_users_are_told(mut server: TestServer) {
    let home = Home::of(&server, "pat").await;
    let (coder, eye) = (home.agent(&server, "coder").await, Home::of(&server, "kim").await);
    for number in 0..31 {
        server.send(&coder, &home.person, "Plan", &format!("the vault is <b>{number}</b>")).await;
    }
    server.store.set_operator(&"kim".parse().unwrap(), true, Timestamp::now()).await.unwrap();
    let told = json!({"name": "told"});
    assert_eq!(eye.get(&server, "/dashboard/mail").await.status(), 403, "off by default");
    assert_eq!(server.get(&coder, "/agents/me").await.expect(200)["operators_read_mail"], Value::Null);
    assert!(!eye.page(&server, "/dashboard/health").await.contains("can read all mail"));
    let port: u16 = server.host.rsplit_once(':').unwrap().1.parse().unwrap();
    server.close().await;
    let config = Config { rate_limits: None, operators_read_mail: true, ..Config::default() };
    server.start_on(&format!("127.0.0.1:{port}"), config).await;
    let page = eye.page(&server, "/dashboard/mail").await;
    assert!(page.contains("the vault is &lt;b&gt;30") && !page.contains("&lt;b&gt;0&lt;"), "{page}");
    assert!(page.len() < 50_000, "{} bytes", page.len());
    let (_, older) = page.split_once("/dashboard/mail?before=").unwrap();
    let older = older.split('"').next().unwrap();
    let page = eye.page(&server, &format!("/dashboard/mail?before={older}")).await;
    assert!(page.contains("the vault is &lt;b&gt;0&lt;") && !page.contains("&lt;b&gt;30"), "{page}");
    // Nobody else can read it, and every page says so.
    assert_eq!(home.get(&server, "/dashboard/mail").await.status(), 403);
    assert!(home.page(&server, "/dashboard").await.contains("can read all mail"));
    assert_eq!(server.get(&coder, "/agents/me").await.expect(200)["operators_read_mail"], true);
    let registered = server.call(Method::POST, "/agents/register", None, Some(&told)).await.expect(201);
    assert_eq!(registered["operators_read_mail"], true);
    assert_eq!(server.call(Method::GET, "/health", None, None).await.expect(200)["operators_read_mail"], true);
}

crate::on_every_store!(
    operators_read_mail_only_if_all_users_are_told,
    an_agent_is_paused_and_resumed_on_its_page,
    a_conversation_is_ended_on_its_page,
    a_task_is_reassigned_and_canceled_on_its_page,
    an_act_on_behalf_of_an_agent_is_in_its_log,
    a_repeated_form_does_not_end_the_key_that_it_gave,
    a_refused_form_is_shown_again_with_what_was_typed,
    only_the_person_can_step_in,
);
