//! Quotas: to whom messages are charged, what is refused, and what frees them.

use amb_core::doc::{OwnUsage, ProfilePatch};
use amb_core::mailbox::TaskFilter;
use amb_core::transcript::TranscriptKey;
use amb_core::{AllowFrom, Callback, Code, Quotas, TaskState, Usage};

use super::keeping::{line, remove_read_mail};
use super::*;

impl TestStore {
    /// An agent's usage, by its profile.
    async fn used(&self, agent: &Agent) -> (u64, u64) {
        let OwnUsage { messages, bytes, .. } = self.profile(agent, at(1)).await.unwrap().usage;
        (messages, bytes)
    }

    async fn try_say(&self, from: &Agent, to: &Agent, subject: &str, text: &str) -> Result<Written<Sent>> {
        self.send(from, Draft::text(to.name.clone(), subject, text), at(1)).await
    }
}

fn messages(most: u64) -> Quotas {
    Quotas { agent_messages: Some(most), ..Quotas::NONE }
}

pub async fn a_send_at_a_limit_is_refused_and_leaves_nothing(store: TestStore) {
    let (alice, bob) = store.pair().await;
    store.set_quotas(messages(2));
    let keyed = Draft { idempotency_key: Some("k".into()), ..Draft::text(bob.name.clone(), "Plan", "one") };
    let first = store.send(&alice, keyed.clone(), at(1)).await.unwrap().answer;
    store.say(&alice, &bob, "Plan", "two").await;
    let (log, inbox) = (store.event_head(bob.key).await.unwrap(), store.inbox(&bob, false, at(2)).await.unwrap());
    for subject in ["Plan", "Another"] {
        let refused = store.try_say(&alice, &bob, subject, "three").await.unwrap_err();
        assert_eq!(refused.code(), Code::OverQuota);
        assert!(refused.detail().contains("an agent may have 2"), "{refused}");
    }
    assert_eq!(store.event_head(bob.key).await.unwrap(), log);
    assert_eq!(store.inbox(&bob, false, at(2)).await.unwrap(), inbox);
    assert_eq!(store.used(&alice).await, (2, 6), "of which nothing was counted");
    assert_eq!(store.send(&alice, keyed, at(3)).await.unwrap().answer, first, "a repeat stores nothing");
    store.say(&bob, &alice, "Plan", "of my own").await;
    assert_eq!(store.used(&bob).await, (1, 9));

    // The same for bytes, counted as they are stored.
    store.set_quotas(Quotas { agent_bytes: Some(10), ..Quotas::NONE });
    store.say(&alice, &bob, "Plan", "\u{1F600}").await;
    let refused = store.try_say(&alice, &bob, "Plan", "x").await.unwrap_err();
    assert!(refused.detail().contains("an agent may have 10"), "{refused}");
    let usage = store.profile(&alice, at(1)).await.unwrap().usage;
    assert_eq!(usage, OwnUsage { messages: 3, bytes: 10, max_messages: None, max_bytes: Some(10) });
    store.set_quotas(Quotas::NONE);
    store.say(&alice, &bob, "Plan", "without a limit").await;
}

pub async fn removing_read_mail_frees_quota(store: TestStore) {
    let (alice, bob) = store.pair().await;
    store.set_quotas(messages(3));
    let mut session = None;
    for text in ["one", "two", "three"] {
        session = Some(store.say(&alice, &bob, "Plan", text).await.answer.session_id);
    }
    assert_eq!(code(store.try_say(&alice, &bob, "Plan", "four").await), Code::OverQuota);
    assert_eq!(store.texts(&bob, &session.unwrap(), 9).await.len(), 3);
    assert_eq!(remove_read_mail(&store, 99).await, 2, "the newest of its session stays");
    assert_eq!(store.used(&alice).await, (1, 5));
    store.say(&alice, &bob, "Plan", "four").await;
    store.say(&alice, &bob, "Plan", "five").await;
    assert_eq!(code(store.try_say(&alice, &bob, "Plan", "six").await), Code::OverQuota);
    assert_eq!(store.office_usage().await.unwrap(), Usage { messages: 3, bytes: 13 });
}

pub async fn mail_to_several_agents_is_charged_for_each_and_refused_as_a_whole(store: TestStore) {
    let (alice, bob) = store.pair().await;
    let carol = store.enter("carol").await;
    store.connect(&alice, &carol).await;
    let crew = name("crew");
    store.create_group(&alice, &crew, at(1)).await.unwrap();
    for member in [&bob, &carol] {
        store.invite_to_group(&alice, &crew, &member.name, at(1)).await.unwrap();
        store.join_group(member, &crew, true).await.unwrap();
    }
    let (invited, bytes) = store.used(&alice).await;
    assert_eq!(invited, 2, "an invitation is a message of the one who invites");
    store.set_quotas(messages(7));
    let both = [bob.name.clone(), carol.name.clone()];
    store.send_all(&alice, &both, Draft::text(bob.name.clone(), "Plan", "abc"), at(1)).await.unwrap();
    assert_eq!(store.used(&alice).await, (4, bytes + 6), "two messages");
    let all = store.send(&alice, Draft::text(crew.clone(), "Standup", "abc"), at(1)).await.unwrap().answer;
    assert_eq!(store.used(&alice).await, (6, bytes + 9), "two copies of one text");

    let before = store.event_head(bob.key).await.unwrap();
    let one_left = Draft::text(bob.name.clone(), "Other", "abc");
    assert_eq!(code(store.send_all(&alice, &both, one_left, at(1)).await), Code::OverQuota);
    for subject in ["Standup", "Fresh"] {
        let to_all = Draft::text(crew.clone(), subject, "abc");
        assert_eq!(code(store.send(&alice, to_all, at(1)).await), Code::OverQuota);
    }
    assert_eq!(store.event_head(bob.key).await.unwrap(), before, "nobody got any of it");
    assert_eq!(store.inbox(&bob, false, at(2)).await.unwrap().sessions.len(), 3);
    store.say(&alice, &bob, "Plan", "d").await;
    assert_eq!(store.used(&alice).await, (7, bytes + 10));
    let dora = store.enter("dora").await;
    store.connect(&alice, &dora).await;
    assert_eq!(code(store.invite_to_group(&alice, &crew, &dora.name, at(1)).await), Code::OverQuota);
    assert!(store.groups(&dora).await.unwrap().is_empty());

    store.set_quotas(Quotas::NONE);
    store.send(&alice, Draft::text(crew, "Standup", "newer"), at(1)).await.unwrap();
    for member in [&bob, &carol] {
        store.ack(member, std::slice::from_ref(&all.message_id), at(2)).await.unwrap();
    }
    assert_eq!(remove_read_mail(&store, 99).await, 1);
    assert_eq!(store.used(&alice).await, (7, bytes + 12), "both copies are gone, and the text once");
}

pub async fn a_task_can_end_at_the_limit(store: TestStore) {
    let (alice, bob) = store.pair().await;
    let callback = Callback { channel: Some("chat".into()), ..Callback::default() };
    let draft = Draft { callback: Some(callback), ..Draft::task(bob.name.clone(), "Work", "do it") };
    let task = store.send(&alice, draft, at(1)).await.unwrap().answer.task.unwrap().id;
    store.say(&bob, &alice, "Work", "hm").await;
    store.set_quotas(messages(1));
    assert_eq!(code(store.try_say(&bob, &alice, "Work", "no room").await), Code::OverQuota);
    store.set_task_state(&bob, &task, TaskState::Accepted, None, at(2)).await.unwrap();
    store.set_task_state(&bob, &task, TaskState::Completed, Some("42".into()), at(3)).await.unwrap();
    assert_eq!(store.used(&bob).await.0, 3, "counted all the same");
    let another = Draft::task(bob.name.clone(), "Work", "more");
    assert_eq!(code(store.send(&alice, another, at(4)).await), Code::OverQuota);
    assert_eq!(store.tasks(&alice, TaskFilter::default(), 9).await.unwrap().len(), 1);
}

pub async fn the_rejection_of_a_task_is_charged_to_its_sender(store: TestStore) {
    let (alice, bob) = store.pair().await;
    let nobody = ProfilePatch { allow_from: Some(AllowFrom(Vec::new())), ..Default::default() };
    store.update_profile(&bob, nobody, at(1)).await.unwrap();
    let sent = store.send(&alice, Draft::task(bob.name.clone(), "Work", "do it"), at(1)).await.unwrap();
    assert_eq!(sent.answer.task.unwrap().state, TaskState::Rejected);
    assert_eq!(store.used(&bob).await, (0, 0), "else one agent could fill up another's account");
    let (kept, bytes) = store.used(&alice).await;
    assert_eq!(kept, 2);
    // And freed in the same way.
    let patch = ProfilePatch { allow_from: Some(AllowFrom::default()), ..Default::default() };
    store.update_profile(&bob, patch, at(1)).await.unwrap();
    store.say(&bob, &alice, "Work", "newer").await;
    assert_eq!(store.texts(&alice, &sent.answer.session_id, 9).await.len(), 3);
    assert_eq!(remove_read_mail(&store, 99).await, 1);
    let update = bytes - 5;
    assert_eq!((store.used(&alice).await, store.used(&bob).await), ((1, bytes - update), (1, 5)));
}

pub async fn lines_of_a_transcript_are_charged_to_their_author(store: TestStore) {
    let (alice, bob) = store.pair().await;
    let key: TranscriptKey = "team".parse().unwrap();
    store.set_quotas(messages(2));
    store.transcript_append(&alice, None, &key, line("one", Some("m1")), at(1)).await.unwrap();
    store.transcript_share(&alice, &key, &bob.name, Some(amb_core::doc::Access::Write)).await.unwrap();
    store.transcript_append(&bob, Some(&alice.name), &key, line("two", None), at(1)).await.unwrap();
    assert_eq!((store.used(&alice).await.0, store.used(&bob).await.0), (1, 1));
    store.transcript_append(&alice, None, &key, line("three", None), at(1)).await.unwrap();
    let full = store.transcript_append(&alice, None, &key, line("four", None), at(1)).await;
    assert_eq!(code(full), Code::OverQuota);
    let fresh = "fresh".parse().unwrap();
    assert_eq!(code(store.transcript_append(&alice, None, &fresh, line("x", None), at(1)).await), Code::OverQuota);
    assert_eq!(code(store.transcript_recent(&alice, None, &fresh, 9).await), Code::NotFound, "of it nothing stays");
    let known = store.transcript_append(&alice, None, &key, line("one", Some("m1")), at(2)).await.unwrap();
    assert!(known.duplicate, "a line that is there stores nothing");
    assert_eq!(store.transcript_recent(&alice, None, &key, 9).await.unwrap().len(), 3);
    assert!(store.used(&alice).await.1 > 8, "the whole line, as it is stored");
}

pub async fn the_office_has_limits_of_its_own(store: TestStore) {
    let (alice, bob) = store.pair().await;
    store.say(&alice, &bob, "Plan", "one").await;
    assert_eq!(store.office_usage().await.unwrap(), Usage { messages: 1, bytes: 3 });
    store.set_quotas(Quotas { office_messages: Some(2), office_bytes: Some(100), ..Quotas::NONE });
    store.say(&bob, &alice, "Plan", "two").await;
    for (from, to) in [(&alice, &bob), (&bob, &alice)] {
        let refused = store.try_say(from, to, "Plan", "three").await.unwrap_err();
        assert_eq!(refused.code(), Code::OverQuota);
        assert!(refused.detail().contains("the office stores as many messages as it may, 2"), "{refused}");
    }
    store.set_quotas(Quotas { office_bytes: Some(8), ..Quotas::NONE });
    store.say(&alice, &bob, "Plan", "ab").await;
    let refused = store.try_say(&alice, &bob, "Plan", "c").await.unwrap_err();
    assert!(refused.detail().contains("as many bytes of mail as it may, 8"), "{refused}");
    assert_eq!(store.office_usage().await.unwrap(), Usage { messages: 3, bytes: 8 });
}
