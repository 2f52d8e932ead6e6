//! Stepping in, through the binary: the person pauses, ends, cancels and reassigns.

use std::process::Stdio;

use serde_json::{Value, json};
use tokio::io::AsyncWriteExt;

use crate::hook;
use crate::household::{User, office_of, sqlite};
use crate::mcp_client::amb;
use crate::server_office::{Agent, soon};

#[tokio::test]
async fn the_person_pauses_ends_cancels_and_reassigns() {
    let ann = User::new();
    let office = office_of(&ann, &sqlite(ann.0.path())).await;
    let url = office.url("");
    for name in ["coder", "writer", "tester"] {
        ann.does(&["register", name, "--household", "--server", &url]).await;
    }
    let at = |args: &[&'static str]| {
        let mut all = vec!["--server", url.as_str()];
        all.extend(args);
        all.into_iter().map(str::to_owned).collect::<Vec<_>>()
    };
    let does = async |args: &[&'static str]| {
        let args = at(args);
        ann.does(&args.iter().map(String::as_str).collect::<Vec<_>>()).await
    };
    let json = async |args: &[&'static str]| {
        let args = at(args);
        ann.json(&args.iter().map(String::as_str).collect::<Vec<_>>()).await
    };
    let fails = async |args: &[&'static str]| {
        let args = at(args);
        ann.fails(&args.iter().map(String::as_str).collect::<Vec<_>>()).await
    };
    // The person is claimed by the first command that speaks for it.
    assert!(does(&["pause", "coder"]).await.contains("amb resume coder"));
    let sent = json(&["--as", "writer", "send", "coder", "later", "--subject", "Plan"]).await;
    assert_eq!(sent["paused"], true);
    assert!(does(&["agents"]).await.contains("paused"));
    assert!(does(&["household"]).await.contains("paused by ann"));
    assert_eq!(json(&["--as", "coder", "agents"]).await["agents"][1]["paused"], true);
    assert_eq!(json(&["resume", "coder"]).await["paused"], serde_json::Value::Null);
    assert_eq!(fails(&["--as", "coder", "pause", "writer"]).await.0, 4, "an agent is no person");
    assert_eq!(fails(&["pause", "nobody"]).await.0, 3);

    let task = json(&["--as", "coder", "send", "writer", "build it", "--subject", "Build", "--kind", "task"]).await;
    let id = task["task"]["id"].as_str().unwrap();
    let listed = json(&["task", "list", "--household", "--open"]).await;
    assert_eq!(listed["tasks"][0]["id"], id);
    let call = async |args: &[&str]| ann.json(&[&["--server", url.as_str()], args].concat()).await;
    // By as much of the id as no other has.
    let moved = call(&["task", "reassign", &id[..id.len() - 2], "tester"]).await;
    assert_eq!((&moved["assignee"], &moved["state"]), (&"tester".into(), &"pending".into()));
    let mail = json(&["--as", "tester", "inbox", "--unread"]).await;
    assert_eq!(mail["sessions"][0]["recent_messages"][0]["content"], "build it");
    let canceled = call(&["task", "cancel", id, "not needed"]).await;
    assert_eq!((&canceled["canceled_by"], &canceled["note"]), (&"ann".into(), &"canceled by ann: not needed".into()));
    assert!(does(&["--as", "coder", "task", "list"]).await.contains("canceled by ann"));

    let sessions = json(&["household", "sessions"]).await;
    let plan = sessions["sessions"].as_array().unwrap().iter().find(|session| session["subject"] == "Plan").unwrap();
    let plan = plan["session_id"].as_str().unwrap();
    assert_eq!(call(&["end", &plan[..plan.len() - 2]]).await["ended_by"], "ann");
    let (_, text) = fails(&["--as", "coder", "send", "writer", "more", "--subject", "Plan"]).await;
    assert!(text.contains("ann ended this conversation") && text.contains("new subject"), "{text}");
    assert!(does(&["--as", "coder", "log"]).await.contains("ann ended the conversation"));
    assert!(does(&["household", "sessions"]).await.contains("ended by ann"));
}

#[tokio::test]
async fn chat_and_reply_leave_an_ended_conversation() {
    let ann = User::new();
    let office = office_of(&ann, &sqlite(ann.0.path())).await;
    let url = office.url("");
    let does = async |args: &[&str]| ann.does(&[&["--server", url.as_str()], args].concat()).await;
    let json = async |args: &[&str]| ann.json(&[&["--server", url.as_str()], args].concat()).await;
    let chat = async |line: &str| {
        let mut chat = amb(ann.0.path());
        chat.args(["--server", &url, "--json", "--as", "coder", "chat", "writer"]);
        let mut child = chat.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
        child.stdin.take().unwrap().write_all(line.as_bytes()).await.unwrap();
        let ended = soon(child.wait_with_output()).await.unwrap();
        assert!(ended.status.success(), "{line}: {ended:?}");
        let sent = String::from_utf8(ended.stdout).unwrap();
        serde_json::from_str::<Value>(sent.lines().last().unwrap()).unwrap()["session_id"].as_str().unwrap().to_owned()
    };
    for name in ["coder", "writer", "tester"] {
        ann.does(&["register", name, "--household", "--server", &url]).await;
    }
    let first = chat("one\n").await;
    assert_eq!(chat("two\n").await, first);
    does(&["end", &first]).await;
    let second = chat("three\n").await;
    assert_ne!(second, first);
    does(&["end", &second]).await;
    assert!(![first, second.clone()].contains(&chat("four\n").await));

    // What was shown last has ended: the reply goes to the same agent, or to nobody.
    does(&["--as", "tester", "send", "writer", "hello", "--subject", "Other"]).await;
    does(&["--as", "writer", "read", &second]).await;
    does(&["--as", "writer", "reply", "yes"]).await;
    let inbox = json(&["--as", "coder", "inbox"]).await;
    assert_eq!(inbox["sessions"][0]["recent_messages"][0]["content"], "yes", "{inbox}");
    does(&["end", inbox["sessions"][0]["session_id"].as_str().unwrap()]).await;
    let refused = ["--server", &url, "--as", "writer", "reply", "more"];
    assert!(ann.fails(&refused).await.1.contains("ann ended this conversation"));
    does(&["--as", "writer", "reply", "--to", "tester", "hi"]).await;
}

#[tokio::test]
async fn nothing_wakes_a_paused_agent() {
    let ann = User::new();
    let office = office_of(&ann, &sqlite(ann.0.path())).await;
    let url = office.url("");
    for name in ["coder", "writer"] {
        ann.does(&["register", name, "--household", "--server", &url]).await;
    }
    let told = async || {
        let mut command = amb(ann.0.path());
        command.args(["--server", &url, "--as", "coder"]);
        let input = json!({"session_id": "s", "stop_hook_active": false});
        hook::run(&mut command, "claude", "stop", &input).await
    };
    ann.does(&["--server", &url, "pause", "coder"]).await;
    ann.does(&["--server", &url, "--as", "writer", "send", "coder", "later"]).await;
    assert_eq!(told().await, "", "its mail waits");
    ann.does(&["--server", &url, "resume", "coder"]).await;
    assert!(told().await.contains("block"), "it is told of what waited");
}

#[tokio::test]
async fn a_long_list_of_the_households_tasks_says_that_there_are_more() {
    let ann = User::new();
    let office = office_of(&ann, &sqlite(ann.0.path())).await;
    let url = office.url("");
    for name in ["coder", "writer"] {
        ann.does(&["register", name, "--household", "--server", &url]).await;
    }
    let coder = Agent { name: "coder".into(), key: ann.key("coder") };
    for _ in 0..101 {
        let body = json!({"to": "writer", "subject": "Build", "content": "build it", "kind": "task"});
        office.post(&coder, "/messages/send", body).await.expect(201);
    }
    let list = ["--server", &url, "task", "list", "--household"];
    let cut = ann.run(&list).await;
    assert_eq!(String::from_utf8_lossy(&cut.stdout).lines().count(), 101, "100 and the head");
    assert!(String::from_utf8_lossy(&cut.stderr).contains("--state"), "{cut:?}");
    assert_eq!(ann.json(&list).await["truncated"], true);
    let whole = ann.run(&[&list[..], &["--state", "pending"]].concat()).await;
    assert_eq!(String::from_utf8_lossy(&whole.stdout).lines().count(), 102);
    assert_eq!(String::from_utf8_lossy(&whole.stderr), "");
    assert_eq!(ann.json(&[&list[..], &["--state", "failed"]].concat()).await, json!({"tasks": []}));
}
