//! Tests of the log and of presence.

use std::sync::Arc;
use std::time::Duration;

use super::{TestOffice, mailbox, name, pair};
use amb_core::card::{Card, Status};
use amb_core::draft::Draft;
use amb_core::event::{Cursor, Event};
use amb_core::mailbox::Mailbox;

const LONG: Duration = Duration::from_secs(20);

/// The texts of new messages after a cursor, read until `count` are there.
async fn texts_after(office: &dyn Mailbox, mut cursor: Cursor, count: usize) -> (Vec<String>, Cursor) {
    let mut texts = Vec::new();
    while texts.len() < count {
        let page = office.events(Some(cursor), LONG).await.unwrap();
        assert!(!page.events.is_empty(), "only {} of {count} events came", texts.len());
        cursor = page.cursor;
        texts.extend(page.events.into_iter().filter_map(|entry| match entry.event {
            Event::NewMessage(message) => Some(message.content),
            _ => None,
        }));
    }
    (texts, cursor)
}

/// Each entry is returned once, in order, from any cursor, however often it is read.
pub async fn each_entry_after_a_cursor_is_returned_once(post: &dyn TestOffice) {
    let (alice, bob) = pair(post).await;
    alice.send(Draft::text(bob.me().clone(), "Plan", "before")).await.unwrap();
    let start = bob.events(None, Duration::ZERO).await.unwrap();
    assert!(start.events.is_empty(), "without a cursor there is only the end of the log");

    let expected: Vec<String> = (0..5).map(|n| format!("m{n}")).collect();
    for text in &expected {
        alice.send(Draft::text(bob.me().clone(), "Plan", text)).await.unwrap();
    }
    for _ in 0..2 {
        let (texts, end) = texts_after(&*bob, start.cursor.clone(), 5).await;
        assert_eq!(texts, expected);
        let after = bob.events(Some(end), Duration::ZERO).await.unwrap();
        assert!(after.events.is_empty(), "{after:?}");
    }
}

/// A waiting reader returns when a message comes, and not before.
pub async fn a_waiting_reader_is_woken(post: &dyn TestOffice) {
    let (alice, bob) = pair(post).await;
    let start = bob.events(None, Duration::ZERO).await.unwrap().cursor;
    let waiting = tokio::spawn({
        let bob = Arc::clone(&bob);
        async move { texts_after(&*bob, start, 1).await.0 }
    });
    alice.send(Draft::text(bob.me().clone(), "Plan", "wake up")).await.unwrap();
    assert_eq!(waiting.await.unwrap(), ["wake up"]);
}

/// Agents are listed with their cards.
pub async fn agents_are_listed_with_their_cards(post: &dyn TestOffice) {
    let card = Card {
        description: "finds things".into(),
        capabilities: vec!["web_search".into()],
        max_concurrent_tasks: 7,
        ..Card::default()
    };
    let alice = mailbox(post, "alice").await;
    let finder = post.mailbox(&name("finder"), card.clone()).await;
    post.acquaint(&*alice, &*finder).await;
    let agents = alice.agents().await.unwrap();
    let found = agents.iter().find(|agent| agent.name == *finder.me()).expect("the finder is listed");
    assert_eq!(found.card, card);
    assert!(agents.is_sorted_by_key(|agent| agent.name.clone()), "by name");
}

/// Leaving is visible at once; a heartbeat brings an agent back.
pub async fn an_agent_that_leaves_is_offline(post: &dyn TestOffice) {
    let (alice, bob) = pair(post).await;
    async fn status(alice: &dyn Mailbox, of: &dyn Mailbox) -> Status {
        let agents = alice.agents().await.unwrap();
        agents.into_iter().find(|agent| agent.name == *of.me()).expect("listed").presence.status
    }
    bob.heartbeat().await.unwrap();
    assert_eq!(status(&*alice, &*bob).await, Status::Idle);
    bob.leave().await.unwrap();
    assert_eq!(status(&*alice, &*bob).await, Status::Offline);
    assert!(alice.send(Draft::text(bob.me().clone(), "Plan", "for later")).await.is_ok(), "its mail waits");
    bob.heartbeat().await.unwrap();
    assert_eq!(status(&*alice, &*bob).await, Status::Idle);
}
