//! Hints: resource updates in both eras, and the channel notification. They carry no text of a sender.

use std::sync::Arc;

use amb_core::{Draft, Mailbox};
use amb_mcp::McpOptions;
use serde_json::json;

use crate::client::{Client, ERAS, Era, name, quiet, town};

const LEGACY: Era = Era::Handshake("2025-11-25");

#[tokio::test]
async fn the_mailbox_is_a_resource_and_reading_it_marks_nothing() {
    for era in ERAS {
        let office = town();
        let bob = office.mailbox(name("bob"));
        let sent = bob.send(Draft::text(name("alice"), "Plan", "Hello")).await.unwrap();
        let mut alice = Client::open(&office, "alice", era).await;
        let listed = alice.result("resources/list", json!({})).await;
        assert_eq!(listed["resources"][0]["uri"], "mailbox://inbox");
        let templates = alice.result("resources/templates/list", json!({})).await;
        assert_eq!(templates["resourceTemplates"][0]["uriTemplate"], "mailbox://sessions/{session_id}");
        for uri in ["mailbox://inbox".to_owned(), format!("mailbox://sessions/{}", sent.session_id)] {
            let read = alice.result("resources/read", json!({"uri": uri})).await;
            assert!(read["contents"][0]["text"].as_str().unwrap().contains("Hello"), "{read}");
            assert_eq!(read["contents"][0]["uri"], uri);
        }
        let (_, data) = alice.call("mailbox_check", json!({})).await;
        assert_eq!(data["unread"], 1);
        let code = if era == Era::Stateless { -32602 } else { -32002 };
        for uri in ["mailbox://sessions/none", "file:///etc/passwd"] {
            let answer = alice.request("resources/read", json!({"uri": uri})).await;
            assert_eq!(answer["error"]["code"], code, "{answer}");
            assert_eq!(answer["error"]["data"]["uri"], uri, "{answer}");
        }
        alice.close().await;
    }
}

#[tokio::test]
async fn a_subscriber_of_the_older_protocols_gets_updates_until_it_unsubscribes() {
    let office = town();
    let bob = office.mailbox(name("bob"));
    let mut alice = Client::open(&office, "alice", LEGACY).await;
    alice.result("resources/subscribe", json!({"uri": "mailbox://inbox"})).await;
    let sent = bob.send(Draft::text(name("alice"), "Plan", "secret words")).await.unwrap();
    let notice = alice.notice("notifications/resources/updated").await;
    assert_eq!(notice["params"]["uri"], "mailbox://inbox");
    assert!(!notice.to_string().contains("secret"), "{notice}");

    let session = format!("mailbox://sessions/{}", sent.session_id);
    alice.result("resources/unsubscribe", json!({"uri": "mailbox://inbox"})).await;
    alice.result("resources/subscribe", json!({"uri": session})).await;
    bob.send(Draft::text(name("alice"), "Other", "elsewhere")).await.unwrap();
    bob.send(Draft::text(name("alice"), "Plan", "again")).await.unwrap();
    let notice = alice.notice("notifications/resources/updated").await;
    assert_eq!(notice["params"]["uri"], session, "the other thread is not subscribed to");

    let unknown = alice.request("resources/subscribe", json!({"uri": "file:///x"})).await;
    assert_eq!(unknown["error"]["code"], -32002, "{unknown}");
    assert!(alice.notices().is_empty(), "{:?}", alice.notices());
    alice.close().await;
}

#[tokio::test]
async fn a_listener_of_the_stateless_protocol_gets_the_updates_it_asked_for() {
    let office = town();
    let bob = office.mailbox(name("bob"));
    let mut alice = Client::open(&office, "alice", Era::Stateless).await;
    let filter = json!({"resourceSubscriptions": ["mailbox://inbox", "file:///etc/passwd"], "toolsListChanged": true});
    let listening = alice.send("subscriptions/listen", json!({"notifications": filter})).await;
    let acknowledged = alice.notice("notifications/subscriptions/acknowledged").await;
    assert_eq!(
        acknowledged["params"]["notifications"]["resourceSubscriptions"],
        json!(["mailbox://inbox"]),
        "{acknowledged}"
    );
    bob.send(Draft::text(name("alice"), "Plan", "secret words")).await.unwrap();
    let notice = alice.notice("notifications/resources/updated").await;
    assert_eq!(notice["params"]["uri"], "mailbox://inbox");
    assert_eq!(notice["params"]["_meta"]["io.modelcontextprotocol/subscriptionId"], listening, "{notice}");
    let rest = alice.close().await;
    assert!(rest.iter().any(|answer| answer["id"] == listening && answer.get("result").is_some()), "{rest:?}");
}

#[tokio::test]
async fn each_era_has_its_own_way_to_subscribe() {
    let office = town();
    let mut alice = Client::open(&office, "alice", Era::Stateless).await;
    alice.result("tools/list", json!({})).await;
    let answer = alice.request("resources/subscribe", json!({"uri": "mailbox://inbox"})).await;
    assert_eq!(answer["error"]["code"], -32601, "{answer}");
    alice.close().await;
    let mut alice = Client::open(&office, "alice", LEGACY).await;
    let answer = alice.request("subscriptions/listen", json!({"notifications": {}})).await;
    assert_eq!(answer["error"]["code"], -32601, "{answer}");
    alice.close().await;
}

#[tokio::test]
async fn the_channel_rings_for_mail_that_waited_and_for_mail_that_comes() {
    for era in ERAS {
        let office = town();
        let (bob, carol) = (office.mailbox(name("bob")), office.mailbox(name("carol")));
        bob.send(Draft::text(name("alice"), "Plan", "secret words")).await.unwrap();
        let mailbox = Arc::new(office.mailbox(name("alice")));
        let mut alice = Client::of_program("claude-code", mailbox, era, McpOptions::default()).await;
        alice.result("tools/list", json!({})).await;
        let ring = alice.notice("notifications/claude/channel").await;
        assert!(ring["params"]["content"].as_str().unwrap().contains("bob (1)"), "{ring}");
        assert_eq!(ring["params"]["meta"]["new_mail"], "1");
        // What Claude Code takes for a key, and passes over otherwise.
        for (key, value) in ring["params"]["meta"].as_object().unwrap() {
            assert!(key.chars().all(|c| c.is_ascii_alphanumeric() || c == '_') && value.is_string(), "{ring}");
        }
        carol.send(Draft::text(name("alice"), "Other", "more secret words")).await.unwrap();
        let ring = alice.notice("notifications/claude/channel").await;
        assert!(ring["params"]["content"].as_str().unwrap().contains("carol (1)"), "{ring}");
        assert!(ring["params"]["content"].as_str().unwrap().contains("mailbox_check"), "{ring}");
        assert!(!ring.to_string().contains("secret"), "{ring}");
        alice.close().await;
    }
}

#[tokio::test]
async fn only_claude_code_gets_channel_notifications() {
    for era in ERAS {
        let office = town();
        let bob = office.mailbox(name("bob"));
        bob.send(Draft::text(name("alice"), "Plan", "one")).await.unwrap();
        let mailbox = Arc::new(office.mailbox(name("alice")));
        let mut alice = Client::of_program("mcp", mailbox, era, McpOptions::default()).await;
        alice.result("tools/list", json!({})).await;
        alice.call("mailbox_check", json!({})).await;
        bob.send(Draft::text(name("alice"), "Plan", "two")).await.unwrap();
        alice.call("mailbox_wait", json!({})).await;
        alice.call("mailbox_check", json!({})).await;
        assert!(alice.notices().is_empty(), "{:?}", alice.notices());
        alice.close().await;
    }
}

#[tokio::test]
async fn there_is_no_channel_notification_while_a_wait_is_open() {
    let office = town();
    let bob = office.mailbox(name("bob"));
    let mailbox = Arc::new(office.mailbox(name("alice")));
    let mut alice = Client::of_program("claude-code", mailbox, LEGACY, McpOptions::default()).await;
    // A first notification shows that the channel is subscribed.
    bob.send(Draft::text(name("alice"), "Plan", "one")).await.unwrap();
    alice.notice("notifications/claude/channel").await;
    alice.call("mailbox_check", json!({})).await;
    let waits = alice.send("tools/call", json!({"name": "mailbox_wait", "arguments": {}})).await;
    // The answer to a later call shows that the wait has begun.
    alice.call("mailbox_check", json!({})).await;
    bob.send(Draft::text(name("alice"), "Plan", "two")).await.unwrap();
    alice.answer(waits).await;
    alice.call("mailbox_check", json!({})).await;
    bob.send(Draft::text(name("alice"), "Plan", "three")).await.unwrap();
    let ring = alice.notice("notifications/claude/channel").await;
    assert_eq!(ring["params"]["meta"]["new_mail"], "1", "the second mail did not ring: {ring}");
    alice.close().await;
}

#[tokio::test]
async fn a_connected_client_is_an_agent_that_is_alive() {
    let office = town();
    let mailbox = office.mailbox(name("alice"));
    mailbox.leave().await.unwrap();
    let bob = office.mailbox(name("bob"));
    let mut alice = Client::open_with(Arc::new(mailbox), LEGACY, quiet()).await;
    let deadline = tokio::time::Instant::now() + crate::client::PATIENCE;
    loop {
        alice.result("tools/list", json!({})).await;
        let agents = bob.agents().await.unwrap();
        let status = agents.iter().find(|agent| agent.name == name("alice")).unwrap().presence.status;
        if status != amb_core::Status::Offline {
            break;
        }
        assert!(tokio::time::Instant::now() < deadline, "no heartbeat came");
    }
    alice.close().await;
}
