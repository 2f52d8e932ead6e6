//! Who answers whom, and how often.

use std::sync::Arc;

use amb_bridge::openclaw::GatewayRoute;
use amb_bridge::{BridgeOptions, Conversations, Ledger, Step};
use amb_core::Draft;
use amb_core::mailbox::{HistoryPage, Mailbox};

use crate::gateway::Fault;
use crate::world::{Mail, World, quick, start, until};

#[tokio::test]
async fn two_bridged_agents_do_not_answer_each_other_for_ever() {
    let world = World::new().await;
    let ledger = world.state.path().join("alice");
    let hers = start(Arc::new(world.alice.clone()), world.openclaw(Some(GatewayRoute::Chat)), &ledger, quick());
    let his = world.start(GatewayRoute::Chat, quick());
    let mail = world.mail().await;
    // The question, the answer, the answer to that; the last has its turn and stays unanswered.
    world.status_says("end of the exchange", |status| status.unanswered == 1).await;
    let page = HistoryPage::newest(50).unwrap();
    let history = world.bob.read(&mail.session, page).await.unwrap();
    let said: Vec<_> = history.messages.iter().rev().map(|message| message.sender_name.as_str()).collect();
    assert_eq!(said, ["alice", "bob", "alice"]);
    assert_eq!(world.gateway.lock().runs.len(), 3);
    hers.stop().await;
    his.stop().await;
}

#[tokio::test]
async fn ten_rounds_of_questions_by_reply_to_are_all_answered() {
    let world = World::new().await;
    let bridge = world.start(GatewayRoute::WebSocket, quick());
    let mut question = world.mail().await;
    for round in 1..=10 {
        until("an answer", async || world.replies(&question).await.len() == round).await;
        let page = HistoryPage::newest(1).unwrap();
        let answer = world.alice.read(&question.session, page).await.unwrap().messages.remove(0);
        assert_eq!(answer.content, format!("answer to {}", question.id), "round {round}");
        // As a person or a model asks on: by the message alone, without a session or a subject.
        let next = amb_core::Draft {
            subject: None,
            reply_to: Some(answer.id),
            ..amb_core::Draft::text("bob".parse().unwrap(), "", format!("and {round}?"))
        };
        let sent = world.alice.send(next).await.unwrap();
        assert_eq!(sent.session_id, question.session);
        question = Mail { id: sent.message_id, session: sent.session_id };
    }
    world.settle().await;
    assert_eq!(world.replies(&question).await.len(), 11);
    assert!(world.gateway.lock().prompts.iter().all(|prompt| !prompt.contains("needs no answer")));
    bridge.stop().await;
}

#[tokio::test]
async fn twenty_turns_by_reply_to_by_session_and_by_a_new_subject_are_each_answered_once() {
    let world = World::new().await;
    let options = BridgeOptions { conversations: Conversations::Peer("agent:main:mailbox:".into()), ..quick() };
    let bridge = world.start(GatewayRoute::WebSocket, options);
    let mut asked = vec![world.mail().await];
    while asked.len() < 20 {
        let last = asked.last().unwrap();
        let answer = format!("answer to {}", last.id);
        until("an answer", async || world.replies(last).await.contains(&answer)).await;
        let newest = world.alice.read(&last.session, HistoryPage::newest(1).unwrap()).await.unwrap().messages.remove(0);
        let text = format!("question {}", asked.len());
        let draft = match asked.len() % 3 {
            0 => Draft::text("bob".parse().unwrap(), format!("talk {}", asked.len()), text),
            1 => Draft { subject: None, reply_to: Some(newest.id), ..Draft::text("bob".parse().unwrap(), "", text) },
            _ => Draft { session: Some(last.session.clone()), ..Draft::text("bob".parse().unwrap(), "", text) },
        };
        let sent = world.alice.send(draft).await.unwrap();
        asked.push(Mail { id: sent.message_id, session: sent.session_id });
    }
    world.settle().await;
    for (turn, mail) in asked.iter().enumerate() {
        let answer = format!("answer to {}", mail.id);
        assert_eq!(world.replies(mail).await.iter().filter(|said| **said == answer).count(), 1, "turn {turn}");
        assert_eq!(world.gateway.runs_of(mail.id.as_str()), 1, "turn {turn}");
    }
    assert!(world.gateway.lock().prompts.iter().all(|prompt| !prompt.contains("needs no answer")));
    bridge.stop().await;
}

#[tokio::test]
async fn two_bridges_for_one_agent_answer_each_mail_once() {
    let world = World::new().await;
    let other = world.state.path().join("elsewhere");
    let second = start(Arc::new(world.bob.clone()), world.openclaw(Some(GatewayRoute::Chat)), &other, quick());
    let first = world.start(GatewayRoute::Chat, quick());
    let mut mail = Vec::new();
    for _ in 0..20 {
        mail.push(world.mail().await);
    }
    for mail in &mail {
        world.is_answered(mail).await;
    }
    first.stop().await;
    second.stop().await;
    for mail in &mail {
        assert_eq!(world.replies(mail).await, [format!("answer to {}", mail.id)]);
        assert_eq!(world.gateway.runs_of(mail.id.as_str()), 1);
    }
}

#[tokio::test]
async fn a_mail_delivered_to_two_bridges_has_one_answer() {
    let world = World::new().await;
    world.gateway.fault([Fault::Hangs]);
    let mail = world.mail().await;
    let mut patient = quick();
    patient.turn_timeout = std::time::Duration::from_secs(2);
    let first = world.start(GatewayRoute::Chat, patient);
    until("a turn", async || world.gateway.lock().faults.is_empty()).await;
    // The office lets it be claimed a second time while the first bridge works on it.
    world.bob.release(std::slice::from_ref(&mail.id)).await.unwrap();
    let other = world.state.path().join("elsewhere");
    let quicker = Arc::new(amb_bridge::exec::Exec {
        command: vec!["echo".into(), "another answer".into()],
        ..Default::default()
    });
    let second = start(Arc::new(world.bob.clone()), quicker, &other, quick());
    world.is_answered(&mail).await;
    second.stop().await;
    // The first has an answer of its own by now, and cannot send it any more.
    world.status_says("end of the mail", |status| status.unanswered == 1).await;
    assert_eq!(world.replies(&mail).await, ["another answer"]);
    first.stop().await;
}

#[tokio::test]
async fn a_second_bridge_with_the_same_ledger_is_refused() {
    let world = World::new().await;
    let first = world.start(GatewayRoute::Chat, quick());
    let refused = Ledger::open(&world.ledger()).unwrap_err();
    assert!(refused.to_string().contains("another bridge"), "{refused}");
    assert!(Ledger::open_read_only(&world.ledger()).is_held().unwrap());
    first.stop().await;
    assert!(!Ledger::open_read_only(&world.ledger()).is_held().unwrap());
}

#[tokio::test]
async fn a_mail_whose_claim_expired_is_left_to_its_new_consumer() {
    let world = World::new().await;
    let mail = world.mail().await;
    world.start(GatewayRoute::Chat, crate::world::deadly(Step::Claimed)).dies().await;
    // Its page is there, its claim is gone, and somebody else has the mail and ends it.
    world.bob.release(std::slice::from_ref(&mail.id)).await.unwrap();
    world.bob.ack(std::slice::from_ref(&mail.id)).await.unwrap();
    let bridge = world.start(GatewayRoute::Chat, quick());
    world.settle().await;
    assert!(world.replies(&Mail { ..mail }).await.is_empty());
    bridge.stop().await;
}
