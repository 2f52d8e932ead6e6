//! What follows from a ring and what does not: turns of the user's own, clients that cannot be rung, offices that are
//! servers.

use std::process::Stdio;

use amb_core::Timestamp;
use jiff::SignedDuration;
use serde_json::{Value, json};

use crate::mcp_client::{Model, amb};
use crate::server_office::{Agent, Office, soon};
use crate::wake_world::{Inbox, TOKEN, Town, called};

const THREAD: &str = "019a2b3c-4d5e-7f60-8123-456789abcdef";

/// What ann got in this session, the newest first: whether each is automatic.
async fn automatic(town: &Town, session: &Value) -> Vec<bool> {
    let said = town.run(town.mailbox("ann").args(["read", session.as_str().unwrap(), "--json"])).await;
    let history: Value = serde_json::from_str(&said).unwrap();
    let by_ben = history["messages"].as_array().unwrap().iter().filter(|mail| mail["sender_name"] == "ben");
    by_ben.map(|mail| mail["metadata"]["automatic"] == true).collect()
}

#[tokio::test]
async fn an_answer_without_reply_to_is_automatic_too() {
    let town = Town::new().await;
    let mut inbox = Inbox::new(town.home.path(), "one");
    let mut model = Model::start(&mut town.claude(&inbox)).await;
    town.mail("question").await;
    inbox.ring().await;
    model.call("mailbox_check", json!({})).await;
    let first =
        model.call("mailbox_send", json!({"to": "ann", "content": "an answer", "subject": "Re: question"})).await;
    assert_eq!(automatic(&town, &first["session_id"]).await, [true]);
    // Ann's program answers under a new subject, too: its hops count on, so ben is not woken, and the next is refused.
    let back = ["send", "ben", "thanks", "--automatic", "--reply-to", first["message_id"].as_str().unwrap()];
    town.run(town.mailbox("ann").args(back)).await;
    model.call("mailbox_check", json!({})).await;
    let told =
        model.fails("mailbox_send", json!({"to": "ann", "content": "and you", "subject": "something new"})).await;
    assert!(told.contains("loop_refused"), "{told}");
    assert_eq!((inbox.more(), &town.status().await["sessions"][0]["total"]), (0, &json!(1)));
}

#[tokio::test]
async fn a_task_that_a_woken_model_hands_back_costs_a_hop_too() {
    let town = Town::new().await;
    let mut inbox = Inbox::new(town.home.path(), "one");
    let mut model = Model::start(&mut town.claude(&inbox)).await;
    let given = ["send", "ben", "look after the tests", "--subject", "tests", "--kind", "task", "--json"];
    let given: Value = serde_json::from_str(&town.run(town.mailbox("ann").args(given)).await).unwrap();
    inbox.ring().await;
    model.call("mailbox_check", json!({})).await;
    // Done, and something is asked of ann in turn; what it is said to answer changes nothing.
    model.call("mailbox_task", json!({"action": "done", "task_id": given["task"]["id"]})).await;
    let task = |subject: &str| json!({"to": "ann", "content": "now you", "kind": "task", "subject": subject});
    let back = model.call("mailbox_send", task("your turn")).await;
    assert_eq!(automatic(&town, &back["session_id"]).await.first(), Some(&true));
    // Ann's program does the same, with the last hop. It is a task, so ben hears of it; one more is refused.
    let again = ["send", "ben", "yours", "--kind", "task", "--automatic", "--json", "--reply-to"];
    let again = town.run(town.mailbox("ann").args(again).arg(back["message_id"].as_str().unwrap())).await;
    let again: Value = serde_json::from_str(&again).unwrap();
    assert!(model.call("mailbox_check", json!({})).await.to_string().contains(again["message_id"].as_str().unwrap()));
    let told = model.fails("mailbox_send", task("once more")).await;
    assert!(told.contains("loop_refused"), "{told}");
    let mut own = task("once more");
    own["reply_to"] = back["message_id"].clone();
    assert!(model.fails("mailbox_send", own).await.contains("loop_refused"), "nor as a word after one's own");
    model.call("mailbox_task", json!({"action": "done", "task_id": again["task"]["id"]})).await;
}

#[tokio::test]
async fn after_an_answer_a_woken_model_goes_on_with_the_next_task() {
    let town = Town::new().await;
    let mut inbox = Inbox::new(town.home.path(), "one");
    let mut model = Model::start(&mut town.claude(&inbox)).await;
    let task = |subject: &str| json!({"to": "ann", "content": "do it", "kind": "task", "subject": subject});
    let mut sent = model.call("mailbox_send", task("first")).await;
    for subject in ["second", "third", "fourth"] {
        let answer = ["send", "ben", "here it is", "--automatic", "--reply-to", sent["message_id"].as_str().unwrap()];
        town.run(town.mailbox("ann").args(answer)).await;
        if subject == "second" {
            inbox.ring().await;
        }
        model.call("mailbox_check", json!({})).await;
        sent = model.call("mailbox_send", task(subject)).await;
        assert_eq!(automatic(&town, &sent["session_id"]).await.first(), Some(&false), "{subject}");
    }
}

#[tokio::test]
async fn messages_that_the_user_asks_for_after_a_ring_are_not_automatic() {
    let town = Town::new().await;
    let (mut command, log) = town.codex("echo Queued");
    let mut model = Model::start_as(&mut command, json!({"name": "codex-mcp-client", "version": "1"})).await;
    let began = Timestamp::now();
    let in_turn = |seconds: i64, tool: &str, arguments: Value| {
        let at = (began + SignedDuration::from_secs(seconds)).as_millisecond();
        let meta = json!({"x-codex-turn-metadata": {"thread_id": THREAD, "turn_started_at_unix_ms": at}});
        json!({"name": tool, "arguments": arguments, "_meta": meta})
    };
    model.request("tools/call", in_turn(-60, "mailbox_check", json!({}))).await;
    let sent = town.mail("question").await;
    called(&log, 1).await;
    let answer = |text: &str| json!({"to": "ann", "content": text, "reply_to": sent["message_id"]});
    // The turn that the ring began, then one of the user's own.
    for (seconds, text) in [(30, "woken"), (90, "asked for")] {
        model.request("tools/call", in_turn(seconds, "mailbox_check", json!({}))).await;
        let told = model.request("tools/call", in_turn(seconds, "mailbox_send", answer(text))).await;
        assert_ne!(told["isError"], true, "{told}");
    }
    assert_eq!(automatic(&town, &sent["session_id"]).await, [false, true], "the newest first");
}

#[tokio::test]
async fn a_session_that_was_cleared_is_known_by_its_new_id() {
    let town = Town::new().await;
    let mut inbox = Inbox::new(town.home.path(), "before-clear");
    let mut model = Model::start(&mut town.claude(&inbox)).await;
    town.status_until(|status| status["sessions"][0]["session"] == "before-clear").await;
    // What Claude Code writes about itself: this process is the one that started `amb mcp`.
    let registry = town.home.path().join(".claude/sessions");
    fs_err::create_dir_all(&registry).unwrap();
    let record = json!({"pid": std::process::id(), "sessionId": "after-clear", "status": "idle",
        "messagingSocketPath": inbox.path});
    fs_err::write(registry.join(format!("{}.json", std::process::id())), record.to_string()).unwrap();
    town.mail("after the clear").await;
    assert!(inbox.ring().await.contains("1 unread"));
    let status = town.status_until(|status| status["sessions"][0]["door"].is_string()).await;
    assert_eq!(status["sessions"][0]["session"], "after-clear", "{status}");
    assert_eq!(model.call("mailbox_check", json!({})).await["unread"], 1);
}

#[tokio::test]
async fn the_bell_skips_messages_that_a_client_without_a_door_was_shown() {
    let town = Town::new().await;
    let mut model = Model::start_as(town.mailbox("ben").arg("mcp"), json!({"name": "opencode", "version": "1"})).await;
    let status = town.status_until(|status| status["sessions"][0]["state"] == "no door").await;
    assert_eq!(status["sessions"][0]["client"], "opencode", "{status}");
    let first = town.mail("seen by itself").await;
    model.call("mailbox_check", json!({})).await;
    town.status_until(|status| status["sessions"][0]["shown"].as_array().is_some_and(|shown| shown.len() == 1)).await;
    let mut watcher = town.mailbox("ben");
    let watcher = watcher.args(["watch", "--bell", "--count", "1"]).stdout(Stdio::piped()).spawn().unwrap();
    let second = town.mail("rung for").await;
    let said = soon(watcher.wait_with_output()).await.unwrap();
    let said = String::from_utf8_lossy(&said.stdout).into_owned();
    let id = |sent: &Value| sent["message_id"].as_str().unwrap().to_owned();
    assert!(said.contains(&id(&second)) && !said.contains(&id(&first)), "{said}");
    assert!(model.close().await.success());
    assert_eq!(town.status().await["sessions"], json!([]), "nothing is kept of it");
}

#[tokio::test]
async fn a_wait_that_is_open_keeps_the_bell_of_its_client_silent() {
    let town = Town::new().await;
    let mut model = Model::start_as(town.mailbox("ben").arg("mcp"), json!({"name": "opencode", "version": "1"})).await;
    let waiting = model.call("mailbox_wait", json!({"timeout_seconds": 30}));
    let mut watcher = town.mailbox("ben");
    watcher.args(["watch", "--bell", "--count", "1"]).stdout(Stdio::piped());
    let watched = async {
        town.status_until(|status| status["sessions"][0]["wait_open"] == true).await;
        let watcher = watcher.spawn().unwrap();
        let first = town.mail("waited for").await;
        (watcher, first)
    };
    let (waited, (watcher, first)) = tokio::join!(waiting, watched);
    assert_eq!(waited["messages"].as_array().unwrap().len(), 1);
    town.status_until(|status| status["sessions"][0]["shown"].as_array().is_some_and(|shown| shown.len() == 1)).await;
    let second = town.mail("rung for").await;
    let said = soon(watcher.wait_with_output()).await.unwrap();
    let said = String::from_utf8_lossy(&said.stdout).into_owned();
    let id = |sent: &Value| sent["message_id"].as_str().unwrap().to_owned();
    assert!(said.contains(&id(&second)) && !said.contains(&id(&first)), "{said}");
}

/// How waking this agent's only client stands, when it stands so.
async fn wake_until(office: &Office, agent: &Agent, state: &str) -> Value {
    soon(async {
        loop {
            let sessions = office.get(agent, "/agents/me/wake").await.expect(200)["sessions"].clone();
            if sessions[0]["state"] == state {
                assert_eq!(sessions.as_array().unwrap().len(), 1, "{sessions}");
                return sessions[0].clone();
            }
            tokio::time::sleep(std::time::Duration::from_millis(20)).await;
        }
    })
    .await
}

#[tokio::test]
async fn a_server_is_told_of_a_wake_up_that_failed_and_of_a_client_without_a_door() {
    let home = tempfile::tempdir().unwrap();
    let office = Office::start(&format!("sqlite:{}", home.path().join("mail.db").display())).await;
    let (ann, ben) = office.pair(1).await;
    let mut command = amb(home.path());
    command.env("MAILBOX_SERVER_URL", format!("http://{}", office.address)).env("MAILBOX_API_KEY", &ben.key).arg("mcp");
    command.env("CLAUDE_CODE_MESSAGING_SOCKET", home.path().join("nobody.sock"));
    command.env("CLAUDE_CODE_MESSAGING_TOKEN", TOKEN);
    let model = Model::start(&mut command).await;
    wake_until(&office, &ben, "ready").await;
    office.send(&ann, &ben, "words of ann").await.expect(201);
    let failed = wake_until(&office, &ben, "failed").await;
    assert_eq!((&failed["reason"], &failed["rung"], &failed["failed"]), (&json!("client_gone"), &json!(0), &json!(1)));
    let text = failed.to_string();
    for secret in ["nobody.sock", TOKEN, "words", "ann", home.path().to_str().unwrap()] {
        assert!(!text.contains(secret), "{text}");
    }
    // A client that leaves says so.
    model.close().await;
    wake_until(&office, &ben, "ended").await;
    let (_, bea) = office.pair(2).await;
    let mut command = amb(home.path());
    command.env("MAILBOX_SERVER_URL", format!("http://{}", office.address)).env("MAILBOX_API_KEY", &bea.key).arg("mcp");
    let _model = Model::start(&mut command).await;
    assert_eq!(wake_until(&office, &bea, "no_door").await["door"], Value::Null);
}

#[tokio::test]
async fn mail_on_a_server_wakes_the_client_too() {
    let home = tempfile::tempdir().unwrap();
    let office = Office::start(&format!("sqlite:{}", home.path().join("mail.db").display())).await;
    let (ann, ben) = office.pair(1).await;
    let mut inbox = Inbox::new(home.path(), "one");
    let mut command = amb(home.path());
    command.env("MAILBOX_SERVER_URL", format!("http://{}", office.address)).env("MAILBOX_API_KEY", &ben.key).arg("mcp");
    command.env("CLAUDE_CODE_MESSAGING_SOCKET", &inbox.path).env("CLAUDE_CODE_MESSAGING_TOKEN", TOKEN);
    let mut model = Model::start(&mut command).await;
    let sent = office.send(&ann, &ben, "words of ann").await.expect(201);
    let line = inbox.ring().await;
    let id = sent["message_id"].as_str().unwrap();
    let wanted = format!("Agent Mailbox: 1 unread for {} (newest {id}, from {}).", ben.name, ann.name);
    assert!(line.starts_with(&wanted), "{line}");
    assert_eq!(model.call("mailbox_check", json!({})).await["unread"], 1, "a ring reads nothing");
    // The receipt has the time of the ring, and does not name the client.
    let receipt = soon(async {
        loop {
            let receipt = office.get(&ann, &format!("/messages/{id}")).await.expect(200)["receipts"][0].clone();
            if receipt["rung_at"].is_string() {
                return receipt;
            }
            tokio::time::sleep(std::time::Duration::from_millis(20)).await;
        }
    })
    .await;
    assert_ne!(receipt["state"], "read", "{receipt}");
    let session = wake_until(&office, &ben, "heard").await;
    assert_eq!((&session["client"], &session["door"]), (&json!("claude"), &json!("claude inbox socket")));
    assert_eq!((&session["rung"], &session["failed"], &session["stale"]), (&json!(1), &json!(0), &json!(false)));
    assert!(!receipt.to_string().contains("claude"), "{receipt}");
    // A block ends it: who may not write cannot wake.
    office.post(&ben, "/connections/block", json!({"agent_name": ann.name})).await.expect(200);
    assert!(office.send(&ann, &ben, "let me in").await.status.is_client_error());
    assert_eq!(inbox.more(), 0);
}

#[tokio::test]
async fn a_watcher_at_a_server_tells_the_sender_of_its_ring_too() {
    let home = tempfile::tempdir().unwrap();
    let office = Office::start(&format!("sqlite:{}", home.path().join("mail.db").display())).await;
    let (ann, ben) = office.pair(1).await;
    let sent = office.send(&ann, &ben, "words of ann").await.expect(201);
    let mut command = amb(home.path());
    command.env("MAILBOX_SERVER_URL", format!("http://{}", office.address)).env("MAILBOX_API_KEY", &ben.key);
    let said = soon(command.args(["watch", "--bell", "--count", "1"]).output()).await.unwrap();
    assert!(said.status.success() && String::from_utf8_lossy(&said.stdout).contains("1 unread"), "{said:?}");
    let path = format!("/messages/{}", sent["message_id"].as_str().unwrap());
    let receipt = office.get(&ann, &path).await.expect(200)["receipts"][0].clone();
    assert!(receipt["rung_at"].is_string() && receipt["state"] != "read", "{receipt}");
    let session = wake_until(&office, &ben, "ended").await;
    assert_eq!((&session["client"], &session["rung"]), (&json!("bell"), &json!(1)), "{session}");
}
