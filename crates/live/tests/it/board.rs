//! Notes between the processes of an office.

use amb_live::{BrokerError, Notice, NoticeBoard};
use amb_testing::NatsServer;
use tokio::sync::mpsc::Receiver;

use crate::world::{soon, until};

async fn open(server: &NatsServer) -> (NoticeBoard, Receiver<Notice>) {
    let (board, mut notices) = NoticeBoard::open(&server.options(), "amb.hints.test").await.unwrap();
    assert_eq!(heard(&mut notices).await, Notice::Missed, "whatever was posted before");
    assert!(board.hears());
    (board, notices)
}

async fn heard(notices: &mut Receiver<Notice>) -> Notice {
    soon("a notice", notices.recv()).await.unwrap()
}

fn note(text: &'static str) -> Notice {
    Notice::Note(text.into())
}

#[tokio::test]
async fn a_note_reaches_every_other_process_and_not_its_own() {
    let server = NatsServer::start();
    let (one, mut to_one) = open(&server).await;
    let (two, mut to_two) = open(&server).await;
    let (_three, mut to_three) = open(&server).await;
    one.post("from one".into()).await.unwrap();
    assert_eq!(heard(&mut to_two).await, note("from one"));
    assert_eq!(heard(&mut to_three).await, note("from one"));
    two.post("from two".into()).await.unwrap();
    assert_eq!(heard(&mut to_one).await, note("from two"), "its own note did not come before");
}

#[tokio::test]
async fn after_an_outage_whoever_listens_is_told_that_it_may_have_missed_something() {
    let mut server = NatsServer::start();
    let (one, mut to_one) = open(&server).await;
    let (two, mut to_two) = open(&server).await;
    server.kill();
    until("the loss is noticed", || !one.hears() && !two.hears()).await;
    assert!(matches!(two.post("lost".into()).await, Err(BrokerError::Offline { .. })));
    server.restart();
    assert_eq!(heard(&mut to_one).await, Notice::Missed);
    assert_eq!(heard(&mut to_two).await, Notice::Missed);
    assert!(one.hears() && two.hears());
    two.post("again".into()).await.unwrap();
    assert_eq!(heard(&mut to_one).await, note("again"));
}

#[tokio::test]
async fn a_reader_that_is_too_slow_is_told_that_it_missed_something() {
    let server = NatsServer::start();
    let (one, _to_one) = open(&server).await;
    let (_two, mut to_two) = open(&server).await;
    for _ in 0..20_000 {
        one.post("x".into()).await.unwrap();
    }
    soon("the notice", async { while to_two.recv().await.unwrap() != Notice::Missed {} }).await;
}

#[tokio::test]
async fn a_process_that_may_not_listen_says_that_it_does_not_hear() {
    let users = r#"
        authorization { users: [{ user: "mute", password: "p", permissions: {
            publish: "amb.>", subscribe: { allow: ["_INBOX.>"] } } }] }
    "#;
    let server = NatsServer::with_config(users);
    let auth = amb_live::NatsAuth::UserPassword { user: "mute".into(), password: "p".into() };
    let options = amb_live::NatsOptions { auth, ..server.options() };
    let (board, mut notices) = NoticeBoard::open(&options, "amb.hints.test").await.unwrap();
    heard(&mut notices).await;
    until("it knows that it is deaf", || !board.hears()).await;
}
