//! Groups, and drafts to several agents.

use amb_core::limits::{MAX_GROUP_MEMBERS, MAX_GROUPS};
use amb_core::{Code, Event, ReceiptState};

use super::*;

async fn crew(store: &TestStore) -> (Agent, Agent, Agent) {
    let (alice, bob) = store.pair().await;
    let carol = store.enter("carol").await;
    store.connect(&alice, &carol).await;
    store.create_group(&alice, &name("crew"), at(1)).await.unwrap();
    for agent in [&bob, &carol] {
        let invited = store.invite_to_group(&alice, &name("crew"), &agent.name, at(1)).await.unwrap();
        assert_eq!(invited.entries.iter().map(|one| one.agent).collect::<Vec<_>>(), [agent.key]);
        store.join_group(agent, &name("crew"), true).await.unwrap();
    }
    (alice, bob, carol)
}

pub async fn a_groups_mail_reaches_every_other_member_once(store: TestStore) {
    let (alice, bob, carol) = crew(&store).await;
    let sent = store.send(&bob, Draft::text(name("crew"), "Standup", "hello all"), at(2)).await.unwrap();
    assert_eq!(sent.entries.iter().map(|one| one.agent).collect::<Vec<_>>(), [alice.key, carol.key]);
    for member in [&alice, &carol] {
        let inbox = store.inbox(member, true, at(3)).await.unwrap();
        let session = inbox.sessions.iter().find(|session| session.group.is_some()).unwrap();
        assert_eq!((session.group.as_deref(), session.unread_count), (Some("crew"), 1));
        assert_eq!(session.session_id, sent.answer.session_id);
        let head = store.event_head(member.key).await.unwrap();
        let log = store.events(member.key, head - 1, 1).await.unwrap();
        assert_eq!(
            log,
            sent.entries.iter().filter(|one| one.agent == member.key).map(|one| one.entry.clone()).collect::<Vec<_>>()
        );
    }
    // Each recipient has a receipt of its own.
    store.texts(&alice, &sent.answer.session_id, 10).await;
    let receipts = store.message(&bob, &sent.answer.message_id).await.unwrap().receipts;
    let seen: Vec<_> = receipts.iter().map(|receipt| (receipt.recipient.as_str(), receipt.state)).collect();
    assert_eq!(seen, [("alice", ReceiptState::Read), ("carol", ReceiptState::Queued)]);
    assert_eq!(store.message(&carol, &sent.answer.message_id).await.unwrap().receipts.len(), 1, "its own");
    let is_read = async || {
        store.history(&bob, &sent.answer.session_id, HistoryPage::default(), at(3)).await.unwrap().answer.messages[0]
            .is_read
    };
    assert!(!is_read().await, "one has not read it");
    store.ack(&carol, std::slice::from_ref(&sent.answer.message_id), at(4)).await.unwrap();
    assert!(is_read().await);

    let again = store.send(&carol, Draft::text(name("crew"), "standup", "hi"), at(5)).await.unwrap();
    assert_eq!(again.answer.session_id, sent.answer.session_id, "a subject like any session's");
    let within = Draft { session: Some(sent.answer.session_id.clone()), ..Draft::text(name("crew"), "", "yo") };
    store.send(&alice, within, at(6)).await.unwrap();
    assert_eq!(store.texts(&bob, &sent.answer.session_id, 10).await, ["yo", "hi", "hello all"]);
    // A reply to all belongs to the session of what it answers, and a conversation continues as between two.
    let mut last = again.answer;
    for n in 0..5 {
        let member = [&bob, &carol, &alice][n % 3];
        let reply = Draft { reply_to: Some(last.message_id), ..Draft::text(name("crew"), "", "re") };
        last = store.send(member, Draft { subject: None, ..reply }, at(7)).await.unwrap().answer;
        assert_eq!(last.session_id, sent.answer.session_id);
    }
    let automatic = |id| Draft { reply_to: Some(id), ..Draft::text(name("crew"), "Standup", "re") }.automatic();
    let second = store.send(&alice, automatic(last.message_id), at(8)).await.unwrap().answer;
    let third = store.send(&bob, automatic(second.message_id), at(8)).await.unwrap().answer;
    assert_eq!(code(store.send(&carol, automatic(third.message_id), at(8)).await), Code::LoopRefused);
}

pub async fn only_members_who_joined_get_a_groups_mail(store: TestStore) {
    let (alice, bob) = store.pair().await;
    let carol = store.enter("carol").await;
    let crew = name("crew");
    let group = store.create_group(&alice, &crew, at(1)).await.unwrap();
    assert_eq!((&group.owner, group.members.len()), (&alice.name, 1));
    assert_eq!(code(store.create_group(&bob, &crew, at(1)).await), Code::Conflict);
    assert_eq!(code(store.create_group(&bob, &alice.name, at(1)).await), Code::Conflict, "an agent has that name");
    let taken = NewAgent { key_hash: KeyHash::of("x"), ..new_agent("crew") };
    assert_eq!(code(store.register_agent(taken, at(1)).await), Code::Conflict, "a group has that name");
    assert_eq!(code(store.invite_to_group(&alice, &crew, &carol.name, at(1)).await), Code::NotConnected);
    store.invite_to_group(&alice, &crew, &bob.name, at(1)).await.unwrap();
    let head = store.event_head(bob.key).await.unwrap();
    store.send(&alice, Draft::text(crew.clone(), "Standup", "early"), at(2)).await.unwrap();
    assert_eq!(store.event_head(bob.key).await.unwrap(), head, "invited is not joined");
    assert_eq!(code(store.send(&bob, Draft::text(crew.clone(), "Standup", "x"), at(2)).await), Code::Forbidden);
    assert_eq!(code(store.send(&carol, Draft::text(crew.clone(), "Standup", "x"), at(2)).await), Code::NotConnected);
    assert_eq!(code(store.join_group(&carol, &crew, true).await), Code::NotFound);
    store.join_group(&bob, &crew, true).await.unwrap();
    assert_eq!(code(store.invite_to_group(&bob, &crew, &alice.name, at(3)).await), Code::Forbidden);
    let sent = store.send(&alice, Draft::text(crew.clone(), "Standup", "now"), at(4)).await.unwrap().answer;
    assert_eq!(store.texts(&bob, &sent.session_id, 10).await, ["now"], "what was said before is not theirs");
    assert_eq!(store.groups(&bob).await.unwrap().len(), 1);
    store.join_group(&bob, &crew, false).await.unwrap();
    store.send(&alice, Draft::text(crew.clone(), "Standup", "late"), at(6)).await.unwrap();
    assert_eq!(store.texts(&bob, &sent.session_id, 10).await, ["now"], "nor what is said after they left");
    assert!(store.groups(&bob).await.unwrap().is_empty());
    assert_eq!(code(store.send(&alice, Draft::task(crew, "Standup", "x"), at(6)).await), Code::Invalid);
}

pub async fn a_draft_to_several_agents_reaches_all_or_none(store: TestStore) {
    let (alice, bob) = store.pair().await;
    let carol = store.enter("carol").await;
    let draft = Draft::text(bob.name.clone(), "News", "to all");
    let to = [bob.name.clone(), carol.name.clone()];
    assert_eq!(code(store.send_all(&alice, &to, draft.clone(), at(1)).await), Code::NotConnected);
    assert_eq!(store.event_head(bob.key).await.unwrap(), 1, "none got it");
    store.connect(&alice, &carol).await;
    let sent = store.send_all(&alice, &to, draft, at(2)).await.unwrap();
    assert_eq!(sent.entries.iter().map(|one| one.agent).collect::<Vec<_>>(), [bob.key, carol.key]);
    assert_eq!(sent.answer.len(), 2);
    assert_ne!(sent.answer[0].session_id, sent.answer[1].session_id);
    for (n, agent) in [&bob, &carol].into_iter().enumerate() {
        let head = store.event_head(agent.key).await.unwrap();
        let log = store.events(agent.key, head - 1, 1).await.unwrap();
        assert!(matches!(&log[0].event, Event::NewMessage(event) if event.content == "to all"));
        assert_eq!(store.message(&alice, &sent.answer[n].message_id).await.unwrap().receipts.len(), 1);
    }
}

pub async fn a_member_gets_no_group_mail_from_senders_outside_its_allow_from(store: TestStore) {
    let (alice, bob, carol) = crew(&store).await;
    let picky = amb_core::doc::ProfilePatch {
        allow_from: Some(amb_core::AllowFrom(vec![alice.name.to_string()])),
        ..amb_core::doc::ProfilePatch::default()
    };
    store.update_profile(&carol, picky, at(1)).await.unwrap();
    let sent = store.send(&bob, Draft::text(name("crew"), "Standup", "hello"), at(2)).await.unwrap();
    assert_eq!(sent.entries.iter().map(|one| one.agent).collect::<Vec<_>>(), [alice.key]);
    assert!(store.inbox(&carol, true, at(3)).await.unwrap().sessions.iter().all(|session| session.group.is_none()));
    let sent = store.send(&alice, Draft::text(name("crew"), "Standup", "hi"), at(4)).await.unwrap();
    assert_eq!(sent.entries.iter().map(|one| one.agent).collect::<Vec<_>>(), [bob.key, carol.key]);
    assert_eq!(store.texts(&carol, &sent.answer.session_id, 10).await, ["hi"]);
}

pub async fn members_leave_and_are_removed_and_a_group_changes_its_owner(store: TestStore) {
    let (alice, bob, carol) = crew(&store).await;
    let crew = name("crew");
    assert_eq!(code(store.remove_from_group(&bob, &crew, &carol.name).await), Code::Forbidden, "not the owner");
    assert_eq!(code(store.remove_from_group(&alice, &crew, &alice.name).await), Code::Invalid, "that is leaving");
    assert_eq!(code(store.remove_from_group(&alice, &crew, &name("nobody")).await), Code::NotFound);
    let dave = store.enter("dave").await;
    assert_eq!(code(store.remove_from_group(&dave, &crew, &bob.name).await), Code::NotFound, "no group of dave's");
    let left = store.remove_from_group(&alice, &crew, &carol.name).await.unwrap();
    assert_eq!(left.members.iter().map(|member| member.name.as_str()).collect::<Vec<_>>(), ["alice", "bob"]);
    assert_eq!(code(store.remove_from_group(&alice, &crew, &carol.name).await), Code::NotFound);
    let sent = store.send(&bob, Draft::text(crew.clone(), "Standup", "hello"), at(2)).await.unwrap();
    assert_eq!(sent.entries.iter().map(|one| one.agent).collect::<Vec<_>>(), [alice.key]);
    assert_eq!(code(store.send(&carol, Draft::text(crew.clone(), "Standup", "x"), at(2)).await), Code::NotConnected);
    assert_eq!(code(store.join_group(&carol, &crew, true).await), Code::NotFound, "not without an invitation");

    let handed = store.join_group(&alice, &crew, false).await.unwrap();
    assert_eq!(handed.owner, bob.name);
    store.connect(&bob, &carol).await;
    store.invite_to_group(&bob, &crew, &carol.name, at(4)).await.unwrap();
    store.join_group(&carol, &crew, true).await.unwrap();
    store.delete_agent(&bob, hash_of("bob"), at(5)).await.unwrap();
    assert_eq!(store.groups(&carol).await.unwrap()[0].owner, carol.name, "an owner that goes hands on too");
    let over = store.join_group(&carol, &crew, false).await.unwrap();
    assert!(over.members.is_empty());
    assert_eq!(code(store.create_group(&dave, &crew, at(7)).await), Code::Conflict, "its name stays taken");
}

pub async fn an_agent_named_twice_gets_one_copy(store: TestStore) {
    let (alice, bob, carol) = crew(&store).await;
    let to = ["bob", "BOB", "Crew", "crew"].map(name);
    let sent = store.send_all(&alice, &to, Draft::text(name("bob"), "News", "once"), at(2)).await.unwrap();
    assert_eq!(sent.answer.len(), 2, "one for bob and one for the group");
    assert_eq!(sent.entries.iter().map(|one| one.agent).collect::<Vec<_>>(), [bob.key, bob.key, carol.key]);
}

pub async fn a_group_is_not_revealed_by_its_name_in_another_case(store: TestStore) {
    let (alice, ..) = crew(&store).await;
    let stranger = store.enter("stranger").await;
    let draft = Draft::text(name("crew"), "Plan", "x");
    for (unknown, other) in [("CREW", "crew"), ("NONE", "none")] {
        let refused = store.send_all(&stranger, &[name(unknown)], draft.clone(), at(2)).await.unwrap_err();
        assert_eq!(refused.code(), Code::NotConnected);
        assert!(refused.detail().contains(unknown) && !refused.detail().contains(other), "{}", refused.detail());
    }
    let sent = store.send_all(&alice, &[name("CREW"), name("crew")], draft, at(3)).await.unwrap();
    assert_eq!((sent.answer.len(), sent.entries.len()), (1, 2), "a member may write it as it likes");
}

pub async fn the_size_of_a_group_is_limited(store: TestStore) {
    let (alice, crew) = (store.enter("alice").await, name("crew"));
    store.create_group(&alice, &crew, at(1)).await.unwrap();
    let mut members = Vec::new();
    for n in 1..=MAX_GROUP_MEMBERS {
        let member = store.enter(&format!("member{n}")).await;
        store.connect(&alice, &member).await;
        let invited = store.invite_to_group(&alice, &crew, &member.name, at(1)).await;
        if n == MAX_GROUP_MEMBERS {
            assert_eq!(code(invited), Code::Conflict, "its owner is the first member");
            assert_eq!(store.event_head(member.key).await.unwrap(), 1, "nothing of the invitation stays");
        } else {
            store.join_group(&member, &crew, true).await.unwrap();
            members.push(member);
        }
    }
    // Half a megabyte is fine for one recipient, and too much for a hundred.
    let large = Draft::text(crew.clone(), "News", "x".repeat(512 * 1024));
    let heads = store.event_head(members[0].key).await.unwrap();
    assert_eq!(code(store.send(&alice, large.clone(), at(2)).await), Code::TooLarge);
    assert_eq!(code(store.send_all(&alice, std::slice::from_ref(&crew), large, at(2)).await), Code::TooLarge);
    assert_eq!(store.event_head(members[0].key).await.unwrap(), heads);
    let small = store.send(&alice, Draft::text(crew, "News", "x"), at(2)).await.unwrap();
    assert_eq!(small.entries.len(), MAX_GROUP_MEMBERS - 1);
}

pub async fn the_number_of_an_agents_groups_is_limited(store: TestStore) {
    let (alice, bob) = store.pair().await;
    for n in 1..=MAX_GROUPS {
        store.create_group(&alice, &name(&format!("group{n}")), at(1)).await.unwrap();
    }
    assert_eq!(code(store.create_group(&alice, &name("other"), at(1)).await), Code::Conflict);
    store.create_group(&bob, &name("other"), at(1)).await.unwrap();
    let head = store.event_head(alice.key).await.unwrap();
    assert_eq!(code(store.invite_to_group(&bob, &name("other"), &alice.name, at(2)).await), Code::Conflict);
    assert_eq!(store.event_head(alice.key).await.unwrap(), head, "nothing of the invitation stays");
    store.join_group(&alice, &name("group1"), false).await.unwrap();
    store.invite_to_group(&bob, &name("other"), &alice.name, at(2)).await.unwrap();
}
