//! Concurrent operations.

use std::future::Future;

use amb_core::doc::{ConnectionChange, History, Inbox};
use amb_core::mailbox::{ClaimRequest, HistoryPage};
use amb_core::{Code, Event, Kind, TaskState};

use super::*;
use amb_store::ViewVersion;

/// Runs all futures concurrently, each as a task.
pub(super) async fn at_once<T: Send + 'static, F: Future<Output = T> + Send + 'static>(
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

pub async fn concurrent_registrations_of_a_name_have_one_winner(store: TestStore) {
    let answers = at_once(32, |n| {
        let store = store.clone();
        async move {
            let new = NewAgent { key_hash: KeyHash::of(&format!("key {n}")), ..new_agent("alice") };
            store.register_agent(new, at(1)).await
        }
    })
    .await;
    let winner = only_one_and_the_rest(answers, &[Code::Conflict]);
    assert_eq!(store.agent_by_name(&name("alice")).await.unwrap(), Some(winner.answer));
}

pub async fn concurrent_sends_of_one_subject_make_one_session(store: TestStore) {
    let (alice, bob) = store.pair().await;
    let answers = at_once(40, |n| {
        let (store, alice, bob) = (store.clone(), alice.clone(), bob.clone());
        async move {
            let (from, to) = if n % 2 == 0 { (&alice, &bob) } else { (&bob, &alice) };
            store.say(from, to, if n % 3 == 0 { "plan" } else { "PLAN" }, "x").await.answer.session_id
        }
    })
    .await;
    assert!(answers.iter().all(|session| *session == answers[0]));
    assert_eq!(store.inbox(&alice, false, at(2)).await.unwrap().sessions.len(), 1);
    assert_eq!(store.texts(&alice, &answers[0], 50).await.len(), 40);
}

pub async fn concurrent_requests_make_one_pending_row(store: TestStore) {
    let (alice, bob) = (store.enter("alice").await, store.enter("bob").await);
    let answers = at_once(32, |_| {
        let (store, alice, bob) = (store.clone(), alice.clone(), bob.clone());
        async move { store.request_connection(&alice, Ask::new(bob.name.clone(), None), at(1)).await }
    })
    .await;
    let asked = only_one_and_the_rest(answers, &[Code::Conflict]).answer;
    let waiting = store.inbox(&bob, false, at(2)).await.unwrap().pending_connections;
    assert_eq!(waiting.len(), 1);
    assert_eq!(waiting[0].verification_code.as_deref(), Some(asked.verification_code.as_str()));
    assert_eq!(store.event_head(bob.key).await.unwrap(), 1);
}

pub async fn concurrent_approvals_make_one_connection(store: TestStore) {
    let (alice, bob) = (store.enter("alice").await, store.enter("bob").await);
    let asked = store.request_connection(&alice, Ask::new(bob.name.clone(), None), at(1)).await.unwrap().answer;
    let answers = at_once(100, |_| {
        let (store, bob, key) = (store.clone(), bob.clone(), asked.verification_code.clone());
        async move { store.approve_connection(&bob, &key, at(2)).await }
    })
    .await;
    only_one_and_the_rest(answers, &[Code::NotFound]);
    assert_eq!(store.event_head(alice.key).await.unwrap(), 1);
}

pub async fn concurrent_sends_with_one_idempotency_key_send_one_message(store: TestStore) {
    let (alice, bob) = store.pair().await;
    let answers = at_once(32, |_| {
        let (store, alice) = (store.clone(), alice.clone());
        let draft = Draft { idempotency_key: Some("k".into()), ..Draft::text(bob.name.clone(), "Plan", "once") };
        async move { store.send(&alice, draft, at(1)).await.unwrap() }
    })
    .await;
    assert!(answers.iter().all(|sent| sent.answer == answers[0].answer));
    assert_eq!(answers.iter().filter(|sent| !sent.entries.is_empty()).count(), 1);
    assert_eq!(store.texts(&bob, &answers[0].answer.session_id, 50).await, ["once"]);
}

pub async fn concurrent_sends_are_numbered_without_gaps(store: TestStore) {
    let bob = store.enter("bob").await;
    let mut senders = Vec::new();
    for n in 0..8 {
        let sender = store.enter(&format!("sender-{n}")).await;
        store.connect(&sender, &bob).await;
        senders.push(sender);
    }
    let head = store.event_head(bob.key).await.unwrap();
    let answers = at_once(8, |n| {
        let (store, sender, bob) = (store.clone(), senders[n].clone(), bob.clone());
        async move {
            let mut sent = Vec::new();
            for m in 0..20 {
                sent.push(store.say(&sender, &bob, "Plan", &m.to_string()).await);
            }
            sent
        }
    })
    .await;
    let log = store.events(bob.key, head, 500).await.unwrap();
    let numbers: Vec<_> = log.iter().map(|entry| entry.cursor.as_number().unwrap()).collect();
    assert_eq!(numbers, (head + 1..=head + 160).collect::<Vec<_>>());
    let mut pushed: Vec<_> = answers.into_iter().flatten().flat_map(|sent| sent.entries).map(|one| one.entry).collect();
    pushed.sort_by_key(|entry| entry.cursor.as_number());
    assert_eq!(pushed, log);
    for sender in &senders {
        let of_sender = log.iter().filter_map(|entry| match &entry.event {
            Event::NewMessage(message) if message.from_agent == sender.name => Some(message.content.clone()),
            _ => None,
        });
        assert!(of_sender.eq((0..20).map(|n| n.to_string())), "each sender's messages are in their order");
    }
    assert_eq!(store.inbox(&bob, false, at(2)).await.unwrap().unread(), 160);
}

pub async fn times_of_reordered_messages_are_monotonic(store: TestStore) {
    let (alice, bob) = store.pair().await;
    let mut answered = Vec::new();
    // Each has an earlier time than the one stored before it.
    for n in 0..20 {
        let (from, to) = if n % 2 == 0 { (&alice, &bob) } else { (&bob, &alice) };
        let sent_at = at(10) - std::time::Duration::from_millis(n);
        let sent = store.send(from, Draft::text(to.name.clone(), "Plan", n.to_string()), sent_at).await.unwrap();
        answered.push(sent.answer);
    }
    let page = HistoryPage { limit: 50, before: None };
    let shown = store.history(&alice, &answered[0].session_id, page, at(11)).await.unwrap().answer.messages;
    let shown: Vec<_> = shown.iter().rev().map(|message| (message.id.clone(), message.created_at)).collect();
    assert_eq!(shown, answered.iter().map(|sent| (sent.message_id.clone(), sent.created_at)).collect::<Vec<_>>());
    assert!(shown.is_sorted_by_key(|(_, at)| *at), "{shown:?}");
}

pub async fn a_log_has_no_gap_for_a_concurrent_reader(store: TestStore) {
    const SENDERS: usize = 6;
    const EACH: usize = 60;
    let hub = store.enter("hub").await;
    let mut senders = Vec::new();
    for n in 0..SENDERS {
        let sender = store.enter(&format!("sender{n}")).await;
        store.connect(&sender, &hub).await;
        senders.push(sender);
    }
    let start = store.event_head(hub.key).await.unwrap();
    let sending: Vec<_> = senders
        .into_iter()
        .map(|sender| {
            let (store, hub) = (store.clone(), hub.clone());
            tokio::spawn(async move {
                for n in 0..EACH {
                    let sent = store.say(&sender, &hub, &format!("Plan {}", n % 3), "x").await.answer;
                    match n % 6 {
                        // Others of the same pair read and answer at the same time.
                        1 => drop(store.inbox(&sender, false, at(2)).await.unwrap()),
                        3 => drop(store.texts(&hub, &sent.session_id, 2).await),
                        5 => {
                            let mut answer = Draft::text(sender.name.clone(), "Plan 0", "y");
                            answer.reply_to = Some(sent.message_id);
                            store.send(&hub, answer, at(2)).await.unwrap();
                        }
                        _ => {}
                    }
                }
            })
        })
        .collect();
    let indexing = tokio::spawn({
        let store = store.clone();
        async move {
            loop {
                store.index_mail().await.unwrap();
                tokio::task::yield_now().await;
            }
        }
    });
    let (mut last, mut mail) = (start, 0);
    while mail < SENDERS * EACH {
        for entry in store.events(hub.key, last, 50).await.unwrap() {
            let number = entry.cursor.as_number().unwrap();
            assert_eq!(number, last + 1, "an entry was passed over");
            last = number;
            mail += usize::from(matches!(entry.event, Event::NewMessage(_)));
        }
        tokio::task::yield_now().await;
    }
    for task in sending {
        task.await.unwrap();
    }
    indexing.abort();
}

/// Runs one change after another, and checks after each that an inbox with the same view version is the same.
pub async fn an_inbox_is_unchanged_while_its_view_version_is(store: TestStore) {
    let (alice, bob) = store.pair().await;
    let carol = store.enter("carol").await;
    let everybody = [&alice, &bob, &carol];
    let mut before: Vec<Option<(Option<ViewVersion>, Inbox)>> = vec![None; 3];
    macro_rules! then {
        ($act:expr) => {{
            let done = $act;
            for (agent, before) in everybody.iter().zip(&mut before) {
                let now = (store.view_version(agent.key), store.inbox(agent, false, at(9)).await.unwrap());
                if let Some((Some(version), shown)) = before.take()
                    && now.0 == Some(version)
                {
                    assert_eq!(shown, now.1, "{} after {}", agent.name, stringify!($act));
                }
                *before = Some(now);
            }
            done
        }};
    }
    let first = then!(store.say(&alice, &bob, "Plan", "one").await.answer);
    let second = then!(store.say(&bob, &alice, "Plan", "two").await.answer);
    let mut answer = Draft::text(bob.name.clone(), "Plan", "three");
    answer.reply_to = Some(second.message_id.clone());
    then!(store.send(&alice, answer, at(3)).await.unwrap());
    then!(store.delivered(&bob, 0, 100, at(3)).await.unwrap());
    then!(store.ack(&bob, std::slice::from_ref(&first.message_id), at(4)).await.unwrap());
    then!(store.texts(&bob, &first.session_id, 3).await);
    then!(store.texts(&alice, &first.session_id, 3).await);
    let task = Draft { kind: Kind::Task, ..Draft::text(bob.name.clone(), "Work", "do it") };
    let task = then!(store.send(&alice, task, at(4)).await.unwrap()).answer.task.unwrap().id;
    for state in [TaskState::Accepted, TaskState::Completed] {
        then!(store.set_task_state(&bob, &task, state, None, at(5)).await.unwrap());
    }
    then!(store.request_connection(&carol, Ask::new(alice.name.clone(), None), at(5)).await.unwrap());
    then!(store.accept_connection(&alice, &carol.name, at(5)).await.unwrap());
    let crew = name("crew");
    then!(store.create_group(&alice, &crew, at(5)).await.unwrap());
    for agent in [&bob, &carol] {
        then!(store.invite_to_group(&alice, &crew, &agent.name, at(5)).await.unwrap());
        then!(store.join_group(agent, &crew, true).await.unwrap());
    }
    let said = then!(store.send(&bob, Draft::text(crew.clone(), "All", "hello"), at(6)).await.unwrap().answer);
    then!(store.texts(&carol, &said.session_id, 3).await);
    then!(store.texts(&alice, &said.session_id, 3).await);
    then!(store.join_group(&carol, &crew, false).await.unwrap());
    let both = [bob.name.clone(), carol.name.clone()];
    then!(store.send_all(&alice, &both, Draft::text(bob.name.clone(), "Both", "x"), at(6)).await.unwrap());
    then!(store.claim(&bob, ClaimRequest { limit: 5, ..Default::default() }, at(7)).await.unwrap());
    then!(store.remove_read_mail(at(8), None).await.unwrap());
    then!(store.change_connection(&alice, &carol.name, ConnectionChange::Block, at(8)).await.unwrap());
    then!(store.delete_agent(&carol, hash_of("carol"), at(8)).await.unwrap());
}

/// The same for a history, which shows its sender what the recipient has read.
pub async fn a_history_is_unchanged_while_its_view_version_is(store: TestStore) {
    let (alice, bob) = store.pair().await;
    let session = store.say(&alice, &bob, "Plan", "one").await.answer.session_id;
    let mut before: Option<(ViewVersion, History)> = None;
    let mut look = async |done: &str| {
        let version = store.view_version(alice.key);
        let page = HistoryPage { limit: 50, before: None };
        let seen = store.history(&alice, &session, page, at(9)).await.unwrap();
        if let Some((same, shown)) = before.take()
            && version == Some(same)
        {
            assert_eq!(shown, seen.answer, "after {done}");
        }
        let read: Vec<_> = seen.answer.messages.iter().map(|message| message.is_read).collect();
        // What the read itself changed is not cached.
        before = version.filter(|_| seen.entries.is_empty()).map(|version| (version, seen.answer));
        read
    };
    assert_eq!(look("a send").await, [false]);
    store.delivered(&bob, 0, 100, at(3)).await.unwrap();
    look("a delivery").await;
    store.texts(&bob, &session, 3).await;
    assert_eq!(look("a read history").await, [true]);
    let second = store.say(&alice, &bob, "Plan", "two").await.answer;
    look("another send").await;
    store.ack(&bob, &[second.message_id], at(4)).await.unwrap();
    assert_eq!(look("an acknowledgement").await, [true, true]);
    store.say(&alice, &bob, "Plan", "three").await;
    look("a third send").await;
    assert_eq!(
        store.claim(&bob, ClaimRequest { limit: 5, ..Default::default() }, at(5)).await.unwrap().answer.len(),
        1
    );
    look("a claim").await;
    store.say(&bob, &alice, "Plan", "four").await;
    look("an answer").await;
    look("a look at the answer").await;
    let task = Draft { kind: Kind::Task, ..Draft::text(bob.name.clone(), "Plan", "do it") };
    let task = store.send(&alice, task, at(5)).await.unwrap().answer.task.unwrap().id;
    look("a task").await;
    for state in [TaskState::Accepted, TaskState::Completed] {
        store.set_task_state(&bob, &task, state, None, at(6)).await.unwrap();
        look("a step of the task").await;
    }
    store.remove_read_mail(at(8), None).await.unwrap();
    look("a removal").await;
    store.delete_agent(&bob, hash_of("bob"), at(8)).await.unwrap();
    look("the end of the other").await;
}

pub async fn a_key_rotation_that_races_a_removal_revives_no_agent(store: TestStore) {
    for round in 0..20 {
        let who = format!("agent-{round}");
        let (agent, shown) = (store.enter(&who).await, hash_of(&who));
        let fresh = format!("fresh {round}");
        let rotated = tokio::spawn({
            let (store, agent, new) = (store.clone(), agent.clone(), new_key(&fresh, "amb_new0"));
            async move { store.rotate_key(&agent, shown, new, None, at(1)).await }
        });
        let removed = store.delete_agent(&agent, shown, at(1)).await;
        match (rotated.await.unwrap(), removed) {
            (Ok(()), Err(late)) => {
                assert_eq!(late.code(), Code::Unauthorized, "{late}");
                let found = store.agent_by_key_hash(KeyHash::of(&fresh), at(2)).await.unwrap();
                assert_eq!(found, Some(agent));
            }
            (Err(late), Ok(_)) => {
                assert_eq!(late.code(), Code::Unauthorized, "{late}");
                assert_eq!(store.agent_by_key_hash(KeyHash::of(&fresh), at(2)).await.unwrap(), None);
                assert_eq!(store.agent_by_name(&agent.name).await.unwrap(), None);
            }
            both => panic!("one of the two happened, not {both:?}"),
        }
    }
}

pub async fn times_within_a_session_are_monotonic_under_concurrency(store: TestStore) {
    const EACH: usize = 20;
    let (alice, bob) = store.pair().await;
    let carol = store.enter("carol").await;
    store.connect(&alice, &carol).await;
    store.create_group(&alice, &name("crew"), at(1)).await.unwrap();
    for agent in [&bob, &carol] {
        store.invite_to_group(&alice, &name("crew"), &agent.name, at(1)).await.unwrap();
        store.join_group(agent, &name("crew"), true).await.unwrap();
    }
    let task = store.send(&alice, Draft::task(bob.name.clone(), "Plan", "work"), at(1)).await.unwrap().answer;
    let task = task.task.unwrap().id;
    store.set_task_state(&bob, &task, TaskState::Working, None, Timestamp::now()).await.unwrap();
    let answers = at_once(EACH * 4, |n| {
        let (store, alice, bob, carol, task) = (store.clone(), alice.clone(), bob.clone(), carol.clone(), task.clone());
        async move {
            let now = Timestamp::now();
            let text = n.to_string();
            let sent = match n % 4 {
                0 => {
                    let from = [&alice, &bob, &carol][n / 4 % 3];
                    store.send(from, Draft::text(name("crew"), "Standup", text), now).await.unwrap().answer
                }
                1 => store.send(&alice, Draft::text(bob.name.clone(), "Plan", text), now).await.unwrap().answer,
                2 => {
                    let draft = Draft::text(bob.name.clone(), "Plan", text);
                    let to = [bob.name.clone(), carol.name.clone(), name("crew")];
                    store.send_all(&alice, &to, draft, now).await.unwrap().answer.remove(0)
                }
                _ => {
                    let moved = store.set_task_state(&bob, &task, TaskState::Working, Some(text), now).await.unwrap();
                    let Event::NewMessage(update) = &moved.entries[0].entry.event else { panic!("{moved:?}") };
                    return (update.message_id.clone(), update.created_at);
                }
            };
            (sent.message_id, sent.created_at)
        }
    })
    .await;
    let mut kept = std::collections::HashMap::new();
    for session in store.inbox(&alice, false, Timestamp::now()).await.unwrap().sessions {
        let page = HistoryPage { limit: 500, before: None };
        let shown = store.history(&alice, &session.session_id, page, Timestamp::now()).await.unwrap().answer.messages;
        let times: Vec<_> = shown.iter().rev().map(|message| message.created_at).collect();
        assert!(times.is_sorted(), "{}: {times:?}", session.subject);
        kept.extend(shown.into_iter().map(|message| (message.id, message.created_at)));
    }
    for (id, answered) in answers {
        assert_eq!(kept[&id], answered, "what was answered is what is kept");
    }
}
