//! Every tool, in every era.

use std::sync::Arc;

use amb_core::transcript::Line;
use amb_core::{AllowFrom, Card, Draft, Mailbox};
use amb_testing::memory::MemoryOffice;
use serde_json::{Value, json};

use crate::client::{Client, ERAS, Era, name, quiet, town};

const NOW: Era = Era::Stateless;

#[tokio::test]
async fn two_agents_connect_by_a_code_and_write_to_each_other() {
    for era in ERAS {
        let office = MemoryOffice::with_connections(true);
        let mut alice = Client::open(&office, "alice", era).await;
        let mut bob = Client::open(&office, "bob", era).await;

        let refused = alice.fails("mailbox_send", json!({"to": "bob", "subject": "Plan", "content": "Hello"})).await;
        assert!(refused.starts_with("not_connected: ") && refused.contains("mailbox_connect"), "{refused}");

        let (text, asked) = alice.call("mailbox_connect", json!({"target_agent_name": "bob", "message": "hi"})).await;
        let code = asked["verification_code"].as_str().unwrap();
        assert!(text.contains(code), "{text}");
        assert_eq!(asked["status"], "PENDING");

        let to_oneself = json!({"to": "alice", "subject": "Plan", "content": "Hello"});
        let refused = alice.fails("mailbox_send", to_oneself).await;
        assert!(refused.contains("your own name") && !refused.contains("mailbox_connect"), "{refused}");

        let (text, inbox) = bob.call("mailbox_check", json!({})).await;
        assert_eq!(inbox["pending_connections"][0]["from_agent_name"], "alice");
        assert!(text.contains("alice"), "{text}");
        assert!(!text.contains(code) && !inbox.to_string().contains(code), "a code is for people: {text}");
        let resource = bob.result("resources/read", json!({"uri": "mailbox://inbox"})).await;
        assert!(!resource.to_string().contains(code), "{resource}");

        let wrong = bob.fails("mailbox_approve", json!({"code": "ZZ-000"})).await;
        assert!(wrong.contains("Next: "), "{wrong}");
        let (_, connected) = bob.call("mailbox_approve", json!({"code": code})).await;
        assert_eq!(connected["connected_agent_name"], "alice");
        assert_eq!(connected["status"], "ACTIVE");

        let (_, sent) =
            alice.call("mailbox_send", json!({"to": "bob", "subject": "Plan", "content": "Hello Bob"})).await;
        let session = sent["session_id"].as_str().unwrap();
        let (text, inbox) = bob.call("mailbox_check", json!({"unread_only": true})).await;
        assert_eq!(inbox["unread"], 1);
        assert_eq!(inbox["sessions"][0]["session_id"], session);
        assert_eq!(inbox["sessions"][0]["recent_messages"][0]["content"], "Hello Bob");
        assert!(text.contains("Hello Bob") && text.contains("mailbox_read"), "{text}");

        let (text, read) = bob.call("mailbox_read", json!({"session_id": session})).await;
        assert_eq!(read["messages"][0]["content"], "Hello Bob");
        assert!(text.contains("Hello Bob"), "{text}");
        let reply = json!({"to": "alice", "subject": "Plan", "content": "Hello Alice", "session_id": session, "reply_to": sent["message_id"]});
        let (_, replied) = bob.call("mailbox_send", reply).await;
        assert_eq!(replied["session_id"], session);
        let (_, read) = alice.call("mailbox_read", json!({"session_id": session, "limit": 1})).await;
        assert_eq!(read["messages"].as_array().unwrap().len(), 1);
        assert_eq!(read["messages"][0]["reply_to"], sent["message_id"]);
        alice.close().await;
        bob.close().await;
    }
}

#[tokio::test]
async fn an_office_without_connections_says_what_to_do_instead() {
    let office = MemoryOffice::new();
    let mut alice = Client::open(&office, "alice", NOW).await;
    office.mailbox(name("bob"));
    for (tool, arguments) in
        [("mailbox_connect", json!({"target_agent_name": "bob"})), ("mailbox_approve", json!({"code": "XC-992"}))]
    {
        let told = alice.fails(tool, arguments).await;
        assert!(
            told.starts_with("unsupported: ") && told.contains("allow_from") && told.contains("mailbox_send"),
            "{told}"
        );
    }
    alice.close().await;
}

#[tokio::test]
async fn a_task_goes_from_pending_to_completed() {
    for era in ERAS {
        let office = MemoryOffice::new();
        let mut alice = Client::open(&office, "alice", era).await;
        let mut bob = Client::open(&office, "bob", era).await;
        let task = json!({"to": "bob", "subject": "Tests", "content": "Run them", "kind": "task", "priority": "high", "deadline": "2099-01-01T00:00:00Z"});
        let (text, sent) = alice.call("mailbox_send", task).await;
        let id = sent["task"]["id"].as_str().unwrap();
        assert_eq!(sent["task"]["state"], "pending");
        assert!(text.contains("pending"), "{text}");

        let (text, listed) = bob.call("mailbox_task", json!({"action": "list"})).await;
        assert_eq!(listed["tasks"][0]["id"], id);
        assert!(text.contains("from alice to you") && text.contains("Tests"), "{text}");
        for (action, state) in [("accept", "accepted"), ("working", "working"), ("done", "completed")] {
            let (_, moved) =
                bob.call("mailbox_task", json!({"action": action, "task_id": id, "note": "all green"})).await;
            assert_eq!(moved["tasks"][0]["state"], state);
        }
        let owner = alice.fails("mailbox_task", json!({"action": "done", "task_id": id})).await;
        assert!(owner.contains("given to moves it") && owner.contains("mailbox_send"), "{owner}");
        let ended = bob.fails("mailbox_task", json!({"action": "accept", "task_id": id})).await;
        assert!(ended.starts_with("illegal_move: "), "{ended}");
        let (text, inbox) = alice.call("mailbox_check", json!({})).await;
        assert_eq!(inbox["unread"], 3, "one update for each step");
        assert!(text.contains("all green"), "{text}");
        let (text, listed) = alice.call("mailbox_task", json!({"action": "list"})).await;
        assert_eq!(listed["tasks"], json!([]));
        assert_eq!(text, "No open tasks.");
        alice.close().await;
        bob.close().await;
    }
}

#[tokio::test]
async fn a_task_can_be_rejected_and_failed() {
    let office = MemoryOffice::new();
    let mut alice = Client::open(&office, "alice", NOW).await;
    let mut bob = Client::open(&office, "bob", NOW).await;
    for (action, state) in [("reject", "rejected"), ("fail", "failed")] {
        let task = json!({"to": "bob", "subject": "Tests", "content": "Run them", "kind": "task"});
        let (_, sent) = alice.call("mailbox_send", task).await;
        let arguments = json!({"action": action, "task_id": sent["task"]["id"], "note": "no time"});
        let (_, moved) = bob.call("mailbox_task", arguments).await;
        assert_eq!(moved["tasks"][0]["state"], state);
    }
    let missing = bob.fails("mailbox_task", json!({"action": "done"})).await;
    assert!(missing.contains("task_id"), "{missing}");
    alice.close().await;
    bob.close().await;
}

#[tokio::test]
async fn a_task_that_the_office_rejects_says_why() {
    let office = MemoryOffice::new();
    let bob = office.mailbox(name("bob"));
    bob.register(Card { max_concurrent_tasks: 0, ..Card::default() }).await.unwrap();
    let mut alice = Client::open(&office, "alice", NOW).await;
    let task = json!({"to": "bob", "subject": "Tests", "content": "Run them", "kind": "task"});
    let (text, sent) = alice.call("mailbox_send", task).await;
    assert_eq!(sent["task"]["state"], "rejected");
    assert!(text.contains(sent["reason"].as_str().unwrap()), "{text}");
    alice.close().await;
}

#[tokio::test]
async fn errors_say_what_to_do_next() {
    let office = MemoryOffice::new();
    office.mailbox(name("researcher"));
    let mut alice = Client::open(&office, "alice", NOW).await;
    let cases: [(&str, Value, &[&str]); 14] = [
        (
            "mailbox_send",
            json!({"to": "reseacher", "subject": "s", "content": "c"}),
            &["not_found", "researcher", "list_peers"],
        ),
        ("mailbox_send", json!({"to": "../x", "subject": "s", "content": "c"}), &["invalid", "'/'"]),
        ("mailbox_send", json!({"to": "researcher", "content": "c"}), &["invalid", "subject"]),
        ("mailbox_send", json!({"to": "researcher", "subject": "s", "content": ""}), &["invalid", "empty"]),
        ("mailbox_send", json!({"to": "researcher", "subject": "s", "body": "c"}), &["invalid", "body"]),
        (
            "mailbox_send",
            json!({"to": "researcher", "subject": "s", "content": "c", "priority": "asap"}),
            &["invalid", "urgent"],
        ),
        (
            "mailbox_send",
            json!({"to": "researcher", "subject": "s", "content": "c", "session_id": "none"}),
            &["not_found", "Next: mailbox_check"],
        ),
        (
            "mailbox_send",
            json!({"to": "researcher", "content": "c", "reply_to": "none"}),
            &["not_found", "Next: mailbox_check"],
        ),
        (
            "mailbox_send",
            json!({"to": "researcher", "subject": "s", "content": "c", "kind": "task", "deadline": "soon"}),
            &["invalid", "2h"],
        ),
        ("mailbox_read", json!({}), &["invalid", "session_id", "mailbox_check"]),
        ("mailbox_read", json!({"session_id": "none"}), &["not_found", "mailbox_check"]),
        ("mailbox_read", json!({"session_id": "none", "limit": 51}), &["invalid", "50"]),
        ("mailbox_wait", json!({"timeout_seconds": 120}), &["invalid", "55"]),
        ("transcript_recent", json!({"key": "", "limit": 5}), &["invalid", "key"]),
    ];
    for (tool, arguments, words) in cases {
        let told = alice.fails(tool, arguments).await;
        assert!(!told.contains("`amb"), "a model has no command line: {told}");
        for word in words {
            assert!(told.contains(word), "{tool}: {told}");
        }
    }
    alice.close().await;
}

#[tokio::test]
async fn peers_are_listed_without_the_caller_and_say_whether_they_can_be_reached() {
    let office = MemoryOffice::new();
    let writer = office.mailbox(name("writer"));
    let card =
        Card { description: "writes\nwell".into(), allow_from: AllowFrom(vec!["boss".into()]), ..Card::default() };
    writer.register(card).await.unwrap();
    office.mailbox(name("researcher"));
    let mut alice = Client::open(&office, "alice", NOW).await;
    let (text, data) = alice.call("list_peers", json!({})).await;
    let peers = data["peers"].as_array().unwrap();
    assert_eq!(peers.len(), 2, "{data}");
    assert_eq!(peers[0]["agent_id"], "researcher");
    assert_eq!(peers[0]["reachable"], true);
    assert_eq!(peers[1]["agent_id"], "writer");
    assert_eq!(peers[1]["reachable"], false);
    assert!(peers[1]["description"].as_str().unwrap().lines().count() == 1, "{data}");
    assert!(text.contains("writer") && text.contains("not reachable") && !text.contains("alice"), "{text}");
    alice.close().await;

    let mut alone = Client::open(&MemoryOffice::new(), "alice", NOW).await;
    let (_, data) = alone.call("list_peers", json!({})).await;
    assert_eq!(data["peers"], json!([]));
    assert!(data["note"].is_string());
    alone.close().await;
}

#[tokio::test]
async fn where_agents_connect_first_only_the_connected_are_reachable() {
    let office = MemoryOffice::with_connections(true);
    let bob = office.mailbox(name("bob"));
    office.mailbox(name("carol"));
    let alice = office.mailbox(name("alice"));
    let code = alice.connect(&name("bob"), None).await.unwrap().verification_code;
    bob.approve(&code).await.unwrap();
    let mut client = Client::open_with(Arc::new(alice), NOW, quiet()).await;
    let (_, data) = client.call("list_peers", json!({})).await;
    for peer in data["peers"].as_array().unwrap() {
        assert_eq!(peer["reachable"], peer["agent_id"] == "bob", "{data}");
    }
    client.close().await;
}

#[tokio::test]
async fn a_note_to_a_peer_is_durable_mail_with_its_correlation() {
    let office = MemoryOffice::new();
    let mut alice = Client::open(&office, "alice", NOW).await;
    let bob = office.mailbox(name("bob"));
    let id = "7a3b2f00-0000-4000-8000-000000000001";
    let note = json!({"to": "bob", "message": "task #1 ready", "correlation_id": id});
    let (text, data) = alice.call("send_to_peer", note).await;
    assert!(text.starts_with("Left in the mailbox of bob: message_id "), "{text}");
    assert_eq!(data["mailed_to"][0]["agent_id"], "bob", "{data}");
    assert_eq!(data["delivered_to"], json!([data["mailed_to"][0]["message_id"]]), "{data}");
    assert_eq!(data["unreachable_reasons"], json!([]));
    let inbox = bob.inbox(true).await.unwrap();
    assert_eq!(inbox.sessions[0].recent_messages[0].content, "task #1 ready");
    assert_eq!(inbox.sessions[0].recent_messages[0].correlation_id.as_ref().unwrap().as_str(), id);

    let (_, data) = alice.call("send_to_peer", json!({"to": "ghost", "message": "boo"})).await;
    assert_eq!(data["delivered_to"], json!([]));
    assert!(data["unreachable_reasons"][0].as_str().unwrap().starts_with("unknown agent_id `ghost`"), "{data}");
    let (_, data) = alice.call("send_to_peer", json!({"to": "no such", "message": "boo"})).await;
    assert!(data["unreachable_reasons"][0].as_str().unwrap().starts_with("unknown agent_id `no such`"), "{data}");
    alice.close().await;
}

#[tokio::test]
async fn the_gates_of_send_to_peer_hold() {
    let office = MemoryOffice::new();
    office.mailbox(name("bob"));
    let mut alice = Client::open(&office, "alice", NOW).await;
    let long = "x".repeat(65_537);
    let cases = [
        (json!({"message": "m"}), "`to` is required"),
        (json!({"to": " ", "message": "m"}), "`to` is required"),
        (json!({"to": "alice", "message": "m"}), "cannot send to yourself"),
        (json!({"to": "bob"}), "`message` is empty"),
        (json!({"to": "bob", "message": " \n"}), "`message` is empty"),
        (json!({"to": "bob", "message": long}), "65537 bytes, max 65536"),
        (json!({"to": "bob", "message": "m", "correlation_id": "not-a-uuid"}), "`correlation_id` is a UUID"),
    ];
    for (arguments, words) in cases {
        let told = alice.fails("send_to_peer", arguments).await;
        assert!(told.contains(words), "{told}");
    }
    assert!(office.mailbox(name("bob")).inbox(true).await.unwrap().sessions.is_empty());
    alice.close().await;
}

#[tokio::test]
async fn a_group_chat_is_read_in_its_order() {
    let office = MemoryOffice::new();
    let mailbox = office.mailbox(name("alice"));
    let key = "feishu:oc_1".parse().unwrap();
    for n in 1..=3 {
        let line = Line {
            role: "user".into(),
            content: format!("line {n}"),
            sender: "Ann".into(),
            author: None,
            message_id: Some(n.to_string()),
            ts: None,
        };
        mailbox.transcript_append(&key, line).await.unwrap();
    }
    let mut alice = Client::open_with(Arc::new(mailbox), NOW, quiet()).await;
    let (text, data) = alice.call("transcript_recent", json!({"key": "feishu:oc_1", "limit": 2})).await;
    let said: Vec<_> = data["lines"].as_array().unwrap().iter().map(|line| line["content"].as_str().unwrap()).collect();
    assert_eq!(said, ["line 2", "line 3"]);
    assert!(text.contains("line 3") && !text.contains("line 1"), "{text}");
    let line = json!({"key": "feishu:oc_1", "content": "I say", "message_id": "m-1"});
    for _ in 0..2 {
        let (_, added) = alice.call("transcript_append", line.clone()).await;
        assert_eq!(added["appended"], true);
    }
    let (_, data) = alice.call("transcript_recent", json!({"key": "feishu:oc_1", "limit": 2})).await;
    let said = data["lines"].as_array().unwrap();
    assert_eq!((&said[0]["content"], &said[1]["content"]), (&json!("line 3"), &json!("I say")), "{data}");
    assert_eq!((&said[1]["sender"], &said[1]["role"]), (&json!("alice"), &json!("assistant")));
    let (text, data) = alice.call("transcript_recent", json!({"key": "feishu:none"})).await;
    assert_eq!(data["lines"], json!([]));
    assert!(text.contains("Nothing is recorded"), "{text}");
    alice.close().await;
}

#[tokio::test]
async fn many_threads_are_counted_and_the_unread_ones_come_first() {
    let office = town();
    let (alice, bob) = (office.mailbox(name("alice")), office.mailbox(name("bob")));
    bob.send(Draft::text(name("alice"), "oldest, unread", "look")).await.unwrap();
    for n in 0..30 {
        alice.send(Draft::text(name("bob"), format!("mine {n}"), "x")).await.unwrap();
    }
    let mut client = Client::open_with(Arc::new(alice), NOW, quiet()).await;
    let (text, data) = client.call("mailbox_check", json!({})).await;
    assert_eq!(data["sessions"].as_array().unwrap().len(), 20);
    assert_eq!(data["more_sessions"], 11);
    assert_eq!(data["sessions"][0]["subject"], "oldest, unread");
    assert!(text.contains("11 threads more"), "{text}");
    client.close().await;
}
