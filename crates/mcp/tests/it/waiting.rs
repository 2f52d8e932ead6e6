//! `mailbox_wait`: returns waiting mail at once, new mail when it arrives, and nothing twice.

use std::sync::Arc;

use amb_core::{Draft, Mailbox, OfficeError};
use amb_mcp::LazyMailbox;
use amb_testing::memory::MemoryOffice;
use serde_json::json;

use crate::faltering::Faltering;

use crate::client::{Client, ERAS, Era, name, quiet, town};

#[tokio::test]
async fn waiting_mail_is_returned_at_once() {
    let office = town();
    let bob = office.mailbox(name("bob"));
    bob.send(Draft::text(name("alice"), "Plan", "early")).await.unwrap();
    let mut alice = Client::open(&office, "alice", Era::Stateless).await;
    let (text, data) = alice.call("mailbox_wait", json!({"timeout_seconds": 55})).await;
    assert_eq!(data["timed_out"], false);
    assert_eq!(data["messages"][0]["content"], "early");
    assert_eq!(data["messages"][0]["sender_name"], "bob");
    assert!(text.contains("early"), "{text}");
    alice.close().await;
}

#[tokio::test]
async fn new_mail_ends_the_wait_and_is_returned_once() {
    for era in ERAS {
        let office = town();
        let bob = office.mailbox(name("bob"));
        let mut alice = Client::open(&office, "alice", era).await;
        alice.call("mailbox_check", json!({})).await;
        let waits =
            alice.send("tools/call", json!({"name": "mailbox_wait", "arguments": {"timeout_seconds": 55}})).await;
        let sent = bob.send(Draft::text(name("alice"), "Plan", "late")).await.unwrap();
        let answer = alice.answer(waits).await;
        let data = &answer["result"]["structuredContent"];
        assert_eq!(data["messages"][0]["id"], sent.message_id.as_str(), "{answer}");
        assert_eq!(data["messages"][0]["session_id"], sent.session_id.as_str());
        let (_, data) = alice.call("mailbox_wait", json!({"timeout_seconds": 0})).await;
        assert_eq!(data["timed_out"], true, "{data}");
        let (_, data) = alice.call("mailbox_check", json!({})).await;
        assert_eq!(data["unread"], 1, "the wait marks nothing as read");
        assert_eq!(data["sessions"][0]["recent_messages"], json!([]));
        alice.close().await;
    }
}

#[tokio::test]
async fn an_approval_between_two_waits_is_returned_by_the_second() {
    let office = MemoryOffice::with_connections(true);
    let bob = office.mailbox(name("bob"));
    let mut alice = Client::open(&office, "alice", Era::Stateless).await;
    let (_, data) = alice.call("mailbox_wait", json!({"timeout_seconds": 0})).await;
    assert_eq!(data["timed_out"], true);
    let (_, asked) = alice.call("mailbox_connect", json!({"target_agent_name": "bob"})).await;
    bob.approve(asked["verification_code"].as_str().unwrap()).await.unwrap();
    let (text, data) = alice.call("mailbox_wait", json!({"timeout_seconds": 55})).await;
    assert_eq!(data["news"][0]["type"], "connection_approved", "{data}");
    assert_eq!(data["news"][0]["agent"], "bob");
    assert!(text.contains("bob approved"), "{text}");
    alice.close().await;
}

#[tokio::test]
async fn a_connection_request_ends_the_wait() {
    let office = MemoryOffice::with_connections(true);
    let bob = office.mailbox(name("bob"));
    let mut alice = Client::open_with(Arc::new(office.mailbox(name("alice"))), Era::Stateless, quiet()).await;
    alice.call("mailbox_check", json!({})).await;
    let waits = alice.send("tools/call", json!({"name": "mailbox_wait", "arguments": {}})).await;
    bob.connect(&name("alice"), Some("let me in".into())).await.unwrap();
    let answer = alice.answer(waits).await;
    let data = &answer["result"]["structuredContent"];
    assert_eq!(data["pending_connections"][0]["from_agent_name"], "bob", "{answer}");
    let (_, data) = alice.call("mailbox_wait", json!({"timeout_seconds": 0})).await;
    assert_eq!(data["timed_out"], true, "{data}");
    alice.close().await;
}

#[tokio::test]
async fn the_callers_own_messages_do_not_end_the_wait() {
    let office = town();
    office.mailbox(name("bob"));
    let mut alice = Client::open(&office, "alice", Era::Stateless).await;
    alice.call("mailbox_send", json!({"to": "bob", "subject": "Plan", "content": "mine"})).await;
    let (text, data) = alice.call("mailbox_wait", json!({"timeout_seconds": 0})).await;
    assert_eq!(data["timed_out"], true, "{data}");
    assert!(text.contains("mailbox_wait again"), "{text}");
    alice.close().await;
}

#[tokio::test]
async fn a_cancelled_wait_does_not_block_other_calls() {
    let office = town();
    let mut alice = Client::open(&office, "alice", Era::Handshake("2025-11-25")).await;
    let waits = alice.send("tools/call", json!({"name": "mailbox_wait", "arguments": {}})).await;
    alice.notify("notifications/cancelled", json!({"requestId": waits, "reason": "impatient"})).await;
    alice.call("mailbox_check", json!({})).await;
    alice.close().await;
}

#[tokio::test]
async fn a_wait_survives_a_restart_of_the_office() {
    for era in ERAS {
        let office = town();
        let bob = office.mailbox(name("bob"));
        let mailbox = Faltering::new(office.mailbox(name("alice")));
        let mut alice = Client::open_with(Arc::clone(&mailbox) as Arc<dyn Mailbox>, era, quiet()).await;
        alice.call("mailbox_check", json!({})).await;
        let waits = alice.send("tools/call", json!({"name": "mailbox_wait", "arguments": {}})).await;
        mailbox.waiting().await;
        mailbox.fail(4);
        let sent = bob.send(Draft::text(name("alice"), "Plan", "after the restart")).await.unwrap();
        let answer = alice.answer(waits).await;
        let data = &answer["result"]["structuredContent"];
        assert_eq!(data["messages"][0]["id"], sent.message_id.as_str(), "{answer}");
        assert_eq!(mailbox.failed(), 4);

        // One that begins while the office is down, too; and it says so when its time is up.
        mailbox.fail(2);
        bob.send(Draft::text(name("alice"), "Plan", "again")).await.unwrap();
        let (_, data) = alice.call("mailbox_wait", json!({})).await;
        assert_eq!(data["messages"][0]["content"], "again");
        mailbox.fail(usize::MAX);
        let failed = alice.fails("mailbox_wait", json!({"timeout_seconds": 1})).await;
        assert!(failed.starts_with("unavailable: "), "{failed}");
        mailbox.fail(0);
        alice.close().await;
    }
}

#[tokio::test]
async fn a_wait_before_the_office_is_up_finds_it_when_it_comes() {
    let office = town();
    office.mailbox(name("bob")).send(Draft::text(name("alice"), "Plan", "early")).await.unwrap();
    let mailbox: Arc<dyn Mailbox> = Arc::new(office.mailbox(name("alice")));
    let tries = Arc::new(std::sync::atomic::AtomicUsize::new(0));
    let late = LazyMailbox::opened_by(move || {
        let up = tries.fetch_add(1, std::sync::atomic::Ordering::SeqCst) > 3;
        let mailbox = Arc::clone(&mailbox);
        std::future::ready(if up { Ok(mailbox) } else { Err(OfficeError::unavailable("not up yet")) })
    });
    let mut alice = Client::silent(late, Era::Stateless, quiet());
    let (_, data) = alice.call("mailbox_wait", json!({})).await;
    assert_eq!(data["messages"][0]["content"], "early");
    alice.close().await;
}

#[tokio::test]
async fn a_wait_ends_in_time_even_if_the_office_hangs() {
    let office = town();
    let mailbox = Faltering::new(office.mailbox(name("alice")));
    let mut alice = Client::open_with(mailbox.clone(), Era::Stateless, quiet()).await;
    alice.call("mailbox_check", json!({})).await;
    let began = std::time::Instant::now();
    let waits = alice.send("tools/call", json!({"name": "mailbox_wait", "arguments": {"timeout_seconds": 4}})).await;
    mailbox.waiting().await;
    mailbox.hang();
    let answer = alice.answer(waits).await;
    let told = answer["result"]["content"][0]["text"].as_str().unwrap();
    assert!(told.starts_with("unavailable: the office did not answer in time"), "{answer}");
    assert!(began.elapsed() < std::time::Duration::from_secs(15), "{:?}", began.elapsed());
}

#[tokio::test]
async fn more_unread_than_previews_show_are_not_called_shown() {
    let office = town();
    let bob = office.mailbox(name("bob"));
    for n in 0..9 {
        bob.send(Draft::text(name("alice"), "Plan", format!("word {n}"))).await.unwrap();
    }
    let mut alice = Client::open(&office, "alice", Era::Stateless).await;
    let (_, data) = alice.call("mailbox_wait", json!({})).await;
    assert_eq!(data["messages"].as_array().unwrap().len(), 3, "previews: {data}");
    let (text, data) = alice.call("mailbox_wait", json!({"timeout_seconds": 0})).await;
    assert_eq!(data["unread"], 9);
    assert!(text.starts_with("Nothing new. 9 unread: ") && !text.contains("shown"), "{text}");
}
