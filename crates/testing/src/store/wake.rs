//! Reports about wake-ups.

use amb_core::wake::{MAX_WAKE_SESSIONS, WakeReason, WakeReport, WakeSession, WakeState};
use amb_core::{Code, Timestamp};
use amb_store::NewWakeUps;

use super::household::OWNER;
use super::*;

const DAY: i64 = 24 * 60 * 60;

fn report(session: &str, state: WakeState) -> WakeReport {
    WakeReport {
        session: session.into(),
        client: "claude".into(),
        door: Some("claude inbox socket".into()),
        state,
        reason: None,
        rung: 0,
        held: 0,
        failed: 0,
    }
}

fn new(rung: u64, held: u64, failed: u64) -> NewWakeUps {
    NewWakeUps { rung, held, failed }
}

impl TestStore {
    async fn tell_wake(&self, agent: &Agent, session: &str, state: WakeState, now: Timestamp) {
        self.report_wake(agent, report(session, state), now).await.unwrap();
    }

    /// The agents that need their person, with the state of their wake-ups.
    async fn unwoken(&self, person: &Agent, now: Timestamp) -> Vec<(String, WakeState)> {
        let household = self.viewer(person).await.unwrap().household.unwrap();
        let needs = self.needs(household, now).await.unwrap();
        needs.unwoken.into_iter().map(|(agent, session)| (agent.to_string(), session.report.state)).collect()
    }
}

pub async fn a_report_replaces_the_previous_one_and_counts_new_rings(store: TestStore) {
    let (alice, _) = store.pair().await;
    let first = WakeReport { rung: 2, held: 1, failed: 1, ..report("one", WakeState::Rung) };
    assert_eq!(store.report_wake(&alice, first.clone(), at(1)).await.unwrap(), new(2, 1, 1));
    assert_eq!(store.report_wake(&alice, first.clone(), at(2)).await.unwrap(), new(0, 0, 0), "a repeat counts nothing");
    let kept = store.wake_sessions(&alice, &alice.name, at(2)).await.unwrap();
    let wanted = WakeSession { report: first, since: at(1), reported_at: at(2), stale: false };
    assert_eq!(kept, [wanted]);
    let failed = WakeReport {
        rung: 2,
        held: 1,
        failed: 4,
        door: None,
        reason: Some(WakeReason::ClientGone),
        ..report("one", WakeState::Failed)
    };
    assert_eq!(store.report_wake(&alice, failed.clone(), at(3)).await.unwrap(), new(0, 0, 3));
    let kept = store.wake_sessions(&alice, &alice.name, at(3)).await.unwrap();
    assert_eq!((kept.len(), &kept[0].report, kept[0].since), (1, &failed, at(3)));
    // A restarted process counts from 0, and no report can inflate the office's counters.
    let anew = WakeReport { rung: 1, ..report("one", WakeState::Rung) };
    assert_eq!(store.report_wake(&alice, anew, at(4)).await.unwrap(), new(1, 0, 0));
    let boast = WakeReport { rung: 1_000_000_000, ..report("two", WakeState::Rung) };
    assert_eq!(store.report_wake(&alice, boast, at(5)).await.unwrap(), new(1_000, 0, 0));
}

pub async fn a_limited_number_of_client_sessions_is_kept_for_a_day(store: TestStore) {
    let (alice, bob) = store.pair().await;
    store.tell_wake(&bob, "other", WakeState::Ready, at(0)).await;
    for second in 0..12 {
        store.tell_wake(&alice, &format!("s{second}"), WakeState::Ready, at(second)).await;
    }
    // The session that reports is kept although all have the same time.
    store.tell_wake(&alice, "a", WakeState::Ready, at(11)).await;
    let names = async |now| -> Vec<String> {
        let kept = store.wake_sessions(&alice, &alice.name, now).await.unwrap();
        kept.into_iter().map(|session| session.report.session).collect()
    };
    let kept = names(at(12)).await;
    assert_eq!(kept, ["a", "s11", "s10", "s9", "s8", "s7", "s6", "s5"]);
    assert_eq!(kept.len(), MAX_WAKE_SESSIONS);
    assert_eq!(names(at(DAY + 10)).await, ["a", "s11"], "after a day they are forgotten");
    store.tell_wake(&alice, "new", WakeState::Ready, at(DAY + 20)).await;
    assert_eq!(names(at(12)).await, ["new"], "and removed");
    assert_eq!(store.wake_sessions(&bob, &bob.name, at(12)).await.unwrap().len(), 1, "nobody else's");
}

pub async fn only_the_agent_and_its_person_see_its_wake_up_state(store: TestStore) {
    let ann = store.household_of("ann").await;
    let (coder, writer) = (store.join("coder", OWNER).await, store.join("writer", OWNER).await);
    let friend = store.enter("friend").await;
    store.connect(&friend, &coder).await;
    for agent in [&coder, &friend] {
        store.tell_wake(agent, "one", WakeState::Ready, at(1)).await;
    }
    for who in [&ann, &coder] {
        assert_eq!(store.wake_sessions(who, &coder.name, at(2)).await.unwrap().len(), 1, "{}", who.name);
    }
    for nobody in [&writer, &friend] {
        assert_eq!(code(store.wake_sessions(nobody, &coder.name, at(2)).await), Code::Forbidden, "{}", nobody.name);
    }
    assert_eq!(code(store.wake_sessions(&ann, &friend.name, at(2)).await), Code::NotFound);
    assert_eq!(code(store.wake_sessions(&ann, &name("nobody"), at(2)).await), Code::NotFound);
    let household = store.viewer(&ann).await.unwrap().household.unwrap();
    assert_eq!(store.member(household, &coder.name, at(2)).await.unwrap().1.wake.len(), 1);
    // It is gone with the agent.
    store.leave_household(&coder, &coder.name, at(3)).await.unwrap();
    assert_eq!(code(store.wake_sessions(&ann, &coder.name, at(4)).await), Code::NotFound);
    store.delete_agent(&coder, hash_of("coder"), at(5)).await.unwrap();
    assert_eq!(code(store.wake_sessions(&ann, &coder.name, at(6)).await), Code::NotFound);
}

pub async fn an_agent_that_cannot_be_woken_for_its_mail_needs_its_person(store: TestStore) {
    let ann = store.household_of("ann").await;
    let (coder, writer) = (store.join("coder", OWNER).await, store.join("writer", OWNER).await);
    store.tell_wake(&coder, "one", WakeState::Failed, at(2)).await;
    assert_eq!(store.unwoken(&ann, at(3)).await, [], "nothing waits for it");
    let sent = store.say(&writer, &coder, "Plan", "wake up").await.answer;
    for state in [WakeState::Failed, WakeState::Unheard, WakeState::GivenUp, WakeState::Held] {
        store.tell_wake(&coder, "one", state, at(4)).await;
        assert_eq!(store.unwoken(&ann, at(5)).await, [("coder".to_owned(), state)]);
    }
    store.set_paused(&ann, &coder.name, true, at(6)).await.unwrap();
    assert_eq!(store.unwoken(&ann, at(7)).await, [], "whom the person paused is not to be woken");
    store.set_paused(&ann, &coder.name, false, at(8)).await.unwrap();
    store.tell_wake(&coder, "two", WakeState::Rung, at(9)).await;
    assert_eq!(store.unwoken(&ann, at(10)).await, [], "another session of it is rung");
    store.tell_wake(&coder, "two", WakeState::Ended, at(11)).await;
    assert_eq!(store.unwoken(&ann, at(12)).await, [("coder".to_owned(), WakeState::Held)]);
    assert_eq!(store.unwoken(&ann, at(100)).await, [], "its heartbeats have stopped");
    store.seen(&[coder.key], at(99)).await.unwrap();
    assert_eq!(store.unwoken(&ann, at(100)).await, [("coder".to_owned(), WakeState::Held)]);
    store.history(&coder, &sent.session_id, HistoryPage::default(), at(101)).await.unwrap();
    assert_eq!(store.unwoken(&ann, at(102)).await, [], "it has read its mail");
}
