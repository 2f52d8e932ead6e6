//! The WebSocket and retries across restarts of the server.

use std::time::Duration;

use amb_client::{Client, SecretString};
use amb_core::{Card, Code, Draft, Event, Mailbox};
use amb_testing::office::TestOffice;

use crate::test_server::Server;

async fn pair(server: &Server) -> (Client, Client) {
    let alice = server.client(&"alice".parse().unwrap(), Card::default()).await;
    let bob = server.client(&"bob".parse().unwrap(), Card::default()).await;
    server.acquaint(&alice, &bob).await;
    (alice, bob)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_follower_loses_and_repeats_nothing_when_the_server_restarts() {
    let server = Server::fresh().await;
    let (alice, bob) = pair(&server).await;
    let start = bob.events(None, Duration::ZERO).await.unwrap().cursor;
    let mut follower = bob.follow(start).unwrap();
    let mut expected = Vec::new();
    for round in 0..3 {
        for n in 0..5 {
            let text = format!("{round}/{n}");
            alice.send(Draft::text(bob.me().clone(), "Plan", text.as_str())).await.unwrap();
            expected.push(text);
        }
        server.stop().await;
        server.start().await;
    }
    let mut received = Vec::new();
    while received.len() < expected.len() {
        let entry = tokio::time::timeout(Duration::from_secs(30), follower.next()).await.unwrap().unwrap().unwrap();
        if let Event::NewMessage(mail) = entry.event {
            received.push(mail.content);
        }
    }
    assert_eq!(received, expected);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_send_while_the_server_restarts_is_sent_once() {
    let server = Server::fresh().await;
    let (alice, bob) = pair(&server).await;
    server.stop().await;
    let sending = tokio::spawn({
        let draft = Draft::text(bob.me().clone(), "Plan", "patience");
        async move { alice.send(draft).await }
    });
    server.start().await;
    let sent = sending.await.unwrap().unwrap();
    let history = bob.read(&sent.session_id, Default::default()).await.unwrap();
    assert_eq!(history.messages.len(), 1);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_unreachable_server_is_an_error_that_says_so() {
    let server = Server::fresh().await;
    let (alice, _) = pair(&server).await;
    server.stop().await;
    let error = alice.heartbeat().await.unwrap_err();
    assert_eq!(error.code(), Code::Unavailable);
    assert!(error.detail().contains("amb serve"), "{error}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_unknown_key_is_unauthorized() {
    let server = Server::fresh().await;
    let key = SecretString::from(format!("amb_{}", "0".repeat(64)));
    let error = Client::open(server.url(), key).await.unwrap_err();
    assert_eq!(error.code(), Code::Unauthorized);
}

/// After a restart the office does not know which pages it sent, like another replica.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_page_counts_as_delivered_when_another_process_gets_the_next_request() {
    let server = Server::fresh().await;
    let (alice, bob) = pair(&server).await;
    let start = bob.events(None, Duration::ZERO).await.unwrap().cursor;
    let sent = alice.send(Draft::text(bob.me().clone(), "Plan", "hello")).await.unwrap();
    let page = bob.events(Some(start), Duration::ZERO).await.unwrap();
    server.stop().await;
    server.start().await;
    bob.events(Some(page.cursor), Duration::ZERO).await.unwrap();
    let delivered = async {
        while alice.message(&sent.message_id).await.unwrap().receipts[0].state != amb_core::ReceiptState::Delivered {
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    };
    tokio::time::timeout(Duration::from_secs(30), delivered).await.unwrap();
}
