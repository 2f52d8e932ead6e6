//! Many at once: what must happen once happens once.

use std::future::Future;

use amb_core::{Code, Event};

use super::*;

/// Runs them all at once, each as a task of its own.
async fn at_once<T: Send + 'static, F: Future<Output = T> + Send + 'static>(
    count: usize,
    make: impl Fn(usize) -> F,
) -> Vec<T> {
    let tasks: Vec<_> = (0..count).map(|n| tokio::spawn(make(n))).collect();
    let mut answers = Vec::with_capacity(count);
    for task in tasks {
        answers.push(task.await.unwrap());
    }
    answers
}

fn only_one_and_the_rest<T: std::fmt::Debug>(answers: Vec<Result<T>>, rest: &[Code]) -> T {
    let (won, lost): (Vec<_>, Vec<_>) = answers.into_iter().partition(|answer| answer.is_ok());
    for answer in lost {
        let error = answer.unwrap_err();
        assert!(rest.contains(&error.code()), "{error:?}");
    }
    let mut won: Vec<_> = won.into_iter().map(|answer| answer.unwrap()).collect();
    assert_eq!(won.len(), 1, "{won:?}");
    won.remove(0)
}

pub async fn a_name_registered_at_once_has_one_winner(desk: Desk) {
    let answers = at_once(32, |n| {
        let desk = desk.clone();
        async move {
            let new = NewAgent { key_hash: KeyHash::of(&format!("key {n}")), ..new_agent("alice") };
            desk.register_agent(new, at(1)).await
        }
    })
    .await;
    let winner = only_one_and_the_rest(answers, &[Code::Conflict]);
    assert_eq!(desk.agent_by_name(&name("alice")).await.unwrap(), Some(winner));
}

pub async fn one_subject_sent_at_once_makes_one_session(desk: Desk) {
    let (alice, bob) = desk.pair().await;
    let answers = at_once(40, |n| {
        let (desk, alice, bob) = (desk.clone(), alice.clone(), bob.clone());
        async move {
            let (from, to) = if n % 2 == 0 { (&alice, &bob) } else { (&bob, &alice) };
            desk.say(from, to, if n % 3 == 0 { "plan" } else { "PLAN" }, "x").await.answer.session_id
        }
    })
    .await;
    assert!(answers.iter().all(|session| *session == answers[0]));
    assert_eq!(desk.inbox(&alice, false, at(2)).await.unwrap().sessions.len(), 1);
    assert_eq!(desk.texts(&alice, &answers[0], 50).await.len(), 40);
}

pub async fn requests_at_once_make_one_pending_row(desk: Desk) {
    let (alice, bob) = (desk.enter("alice").await, desk.enter("bob").await);
    let answers = at_once(32, |_| {
        let (desk, alice, bob) = (desk.clone(), alice.clone(), bob.clone());
        async move { desk.request_connection(&alice, Ask::new(bob.name.clone(), None), at(1)).await }
    })
    .await;
    let asked = only_one_and_the_rest(answers, &[Code::Conflict]).answer;
    let waiting = desk.inbox(&bob, false, at(2)).await.unwrap().pending_connections;
    assert_eq!(waiting.len(), 1);
    assert_eq!(waiting[0].verification_code.as_deref(), Some(asked.verification_code.as_str()));
    assert_eq!(desk.event_head(bob.key).await.unwrap(), 1);
}

pub async fn approvals_at_once_make_one_connection(desk: Desk) {
    let (alice, bob) = (desk.enter("alice").await, desk.enter("bob").await);
    let asked = desk.request_connection(&alice, Ask::new(bob.name.clone(), None), at(1)).await.unwrap().answer;
    let answers = at_once(100, |_| {
        let (desk, bob, key) = (desk.clone(), bob.clone(), asked.verification_code.clone());
        async move { desk.approve_connection(&bob, &key, at(2)).await }
    })
    .await;
    only_one_and_the_rest(answers, &[Code::NotFound]);
    assert_eq!(desk.event_head(alice.key).await.unwrap(), 1);
}

pub async fn a_key_used_at_once_sends_one_message(desk: Desk) {
    let (alice, bob) = desk.pair().await;
    let answers = at_once(32, |_| {
        let (desk, alice) = (desk.clone(), alice.clone());
        let draft = Draft { idempotency_key: Some("k".into()), ..Draft::text(bob.name.clone(), "Plan", "once") };
        async move { desk.send(&alice, draft, at(1)).await.unwrap() }
    })
    .await;
    assert!(answers.iter().all(|sent| sent.answer == answers[0].answer));
    assert_eq!(answers.iter().filter(|sent| !sent.news.is_empty()).count(), 1);
    assert_eq!(desk.texts(&bob, &answers[0].answer.session_id, 50).await, ["once"]);
}

pub async fn sends_at_once_are_numbered_without_gaps(desk: Desk) {
    let bob = desk.enter("bob").await;
    let mut senders = Vec::new();
    for n in 0..8 {
        let sender = desk.enter(&format!("sender-{n}")).await;
        desk.connect(&sender, &bob).await;
        senders.push(sender);
    }
    let head = desk.event_head(bob.key).await.unwrap();
    let answers = at_once(8, |n| {
        let (desk, sender, bob) = (desk.clone(), senders[n].clone(), bob.clone());
        async move {
            let mut sent = Vec::new();
            for m in 0..20 {
                sent.push(desk.say(&sender, &bob, "Plan", &m.to_string()).await);
            }
            sent
        }
    })
    .await;
    let told = desk.events(bob.key, head, 500).await.unwrap();
    let numbers: Vec<_> = told.iter().map(|entry| entry.cursor.as_number().unwrap()).collect();
    assert_eq!(numbers, (head + 1..=head + 160).collect::<Vec<_>>());
    let mut pushed: Vec<_> = answers.into_iter().flatten().flat_map(|sent| sent.news).map(|news| news.entry).collect();
    pushed.sort_by_key(|entry| entry.cursor.as_number());
    assert_eq!(pushed, told);
    for sender in &senders {
        let of_sender = told.iter().filter_map(|entry| match &entry.event {
            Event::NewMessage(message) if message.from_agent == sender.name => Some(message.content.clone()),
            _ => None,
        });
        assert!(of_sender.eq((0..20).map(|n| n.to_string())), "each sender's messages are in their order");
    }
    assert_eq!(desk.inbox(&bob, false, at(2)).await.unwrap().unread(), 160);
}
