//! Tasks.

use amb_core::doc::{ChainTask, ConnectionChange, ProfilePatch};
use amb_core::mailbox::{SearchQuery, TaskFilter};
use amb_core::{Callback, Code, Event, Kind, Status, TaskId, TaskState};

use super::*;
use amb_store::ExportQuery;

async fn give(store: &TestStore, from: &Agent, to: &Agent, text: &str) -> TaskId {
    let sent = store.send(from, Draft::task(to.name.clone(), "Work", text), at(1)).await.unwrap();
    let task = sent.answer.task.unwrap();
    assert_eq!(task.state, TaskState::Pending);
    task.id
}

async fn updates(store: &TestStore, agent: &Agent) -> Vec<(TaskState, String)> {
    let log = store.events(agent.key, 0, 500).await.unwrap();
    log.into_iter()
        .filter_map(|entry| match entry.event {
            Event::NewMessage(message) if message.kind == Kind::TaskUpdate => {
                Some((message.task.unwrap().state, message.content))
            }
            _ => None,
        })
        .collect()
}

pub async fn a_task_goes_from_pending_to_completed_with_updates_to_its_owner(store: TestStore) {
    let (alice, bob) = store.pair().await;
    let callback = Callback { channel: Some("feishu".into()), ..Callback::default() };
    let draft = Draft {
        deadline: Some(at(1_000)),
        callback: Some(callback.clone()),
        ..Draft::task(bob.name.clone(), "Work", "do it")
    };
    let sent = store.send(&alice, draft, at(1)).await.unwrap().answer;
    let id = sent.task.clone().unwrap().id;
    let log = store.events(bob.key, 1, 10).await.unwrap();
    assert!(
        matches!(&log[0].event, Event::NewMessage(message) if message.task.as_ref().unwrap().id == id && message.kind == Kind::Task)
    );

    for (state, note) in
        [(TaskState::Accepted, None), (TaskState::Working, Some("half way")), (TaskState::Completed, Some("42"))]
    {
        let moved = store.set_task_state(&bob, &id, state, note.map(Into::into), at(5)).await.unwrap();
        assert_eq!(moved.answer.state, state);
        assert_eq!(moved.entries.len(), 1);
        assert_eq!(moved.entries[0].agent, alice.key);
    }
    assert_eq!(
        updates(&store, &alice).await,
        [
            (TaskState::Accepted, "accepted".into()),
            (TaskState::Working, "half way".into()),
            (TaskState::Completed, "42".into())
        ]
    );
    let task = store.task(&alice, &id).await.unwrap();
    assert_eq!(
        (task.state, task.note.as_deref(), &task.owner, &task.assignee),
        (TaskState::Completed, Some("42"), &alice.name, &bob.name)
    );
    assert_eq!(
        (task.message_id, task.session_id, task.deadline),
        (sent.message_id, Some(sent.session_id.clone()), Some(at(1_000)))
    );
    assert_eq!(task.callback, Some(callback.clone()));
    assert_eq!(store.task(&bob, &id).await.unwrap().callback, None, "a callback is its owner's");
    let history = store.history(&alice, &sent.session_id, HistoryPage::default(), at(6)).await.unwrap().answer;
    assert_eq!(history.messages[0].callback, Some(callback), "and comes back to it with the update");

    let again = store.set_task_state(&bob, &id, TaskState::Working, None, at(7)).await;
    assert_eq!(code(again), Code::IllegalMove);
    assert_eq!(code(store.set_task_state(&alice, &id, TaskState::Failed, None, at(7)).await), Code::Forbidden);
    let carol = store.enter("carol").await;
    assert_eq!(code(store.task(&carol, &id).await), Code::NotFound);
    assert_eq!(code(store.set_task_state(&carol, &id, TaskState::Failed, None, at(7)).await), Code::NotFound);
}

pub async fn skipped_states_are_passed_through(store: TestStore) {
    let (alice, bob) = store.pair().await;
    let id = give(&store, &alice, &bob, "quick").await;
    let done = store.set_task_state(&bob, &id, TaskState::Completed, Some("done".into()), at(2)).await.unwrap();
    assert_eq!(done.answer.state, TaskState::Completed);
    assert_eq!(updates(&store, &alice).await, [(TaskState::Completed, "done".into())], "one word for all of it");
    let id = give(&store, &alice, &bob, "no").await;
    let no = store.set_task_state(&bob, &id, TaskState::Rejected, Some("not me".into()), at(2)).await.unwrap();
    assert_eq!(no.answer.state, TaskState::Rejected);
    assert_eq!(code(store.set_task_state(&bob, &id, TaskState::Completed, None, at(2)).await), Code::IllegalMove);
}

pub async fn the_office_rejects_tasks_that_may_not_be_accepted(store: TestStore) {
    let (alice, bob) = store.pair().await;
    let full = ProfilePatch { max_concurrent_tasks: Some(1), ..ProfilePatch::default() };
    store.update_profile(&bob, full, at(1)).await.unwrap();
    let head = store.event_head(bob.key).await.unwrap();

    let late = Draft { deadline: Some(at(0)), ..Draft::task(bob.name.clone(), "Work", "late") };
    let sent = store.send(&alice, late, at(5)).await.unwrap();
    assert_eq!(sent.answer.task.as_ref().unwrap().state, TaskState::Rejected);
    assert!(sent.answer.reason.as_deref().unwrap().starts_with("deadline"), "{:?}", sent.answer.reason);
    assert_eq!(store.event_head(bob.key).await.unwrap(), head, "the assignee is not bothered");
    assert_eq!(sent.entries.iter().map(|one| one.agent).collect::<Vec<_>>(), [alice.key]);
    assert_eq!(store.events(alice.key, 1, 10).await.unwrap(), [sent.entries[0].entry.clone()]);
    assert!(store.message(&alice, &sent.answer.message_id).await.unwrap().receipts.is_empty());

    let running = give(&store, &alice, &bob, "one").await;
    store.set_task_state(&bob, &running, TaskState::Working, None, at(2)).await.unwrap();
    let sent = store.send(&alice, Draft::task(bob.name.clone(), "Work", "two"), at(3)).await.unwrap().answer;
    assert!(sent.reason.as_deref().unwrap().starts_with("quota"));
    store.set_task_state(&bob, &running, TaskState::Completed, None, at(4)).await.unwrap();
    give(&store, &alice, &bob, "three").await;

    let nobody = ProfilePatch { allow_from: Some(amb_core::AllowFrom(vec![])), ..ProfilePatch::default() };
    store.update_profile(&bob, nobody, at(5)).await.unwrap();
    let sent = store.send(&alice, Draft::task(bob.name.clone(), "Work", "four"), at(6)).await.unwrap().answer;
    assert!(sent.reason.as_deref().unwrap().starts_with("unauthorized"));
    let states: Vec<_> =
        store.tasks(&alice, TaskFilter::default(), 10).await.unwrap().iter().map(|task| task.state).collect();
    use TaskState::*;
    assert_eq!(states, [Rejected, Pending, Rejected, Completed, Rejected], "newest first");
}

pub async fn concurrent_accepts_respect_the_quota(store: TestStore) {
    let (alice, bob) = store.pair().await;
    let mut ids = Vec::new();
    for n in 0..50 {
        ids.push(give(&store, &alice, &bob, &n.to_string()).await);
    }
    let accepts: Vec<_> = ids
        .into_iter()
        .map(|id| {
            let (store, bob) = (store.clone(), bob.clone());
            tokio::spawn(
                async move { store.set_task_state(&bob, &id, TaskState::Accepted, None, at(2)).await.unwrap() },
            )
        })
        .collect();
    let mut accepted = 0;
    for accept in accepts {
        match accept.await.unwrap().answer.state {
            TaskState::Accepted => accepted += 1,
            TaskState::Rejected => {}
            state => panic!("{state}"),
        }
    }
    assert_eq!(accepted, 3, "the quota of a card that says nothing");
    let current =
        store.tasks(&bob, TaskFilter { state: Some(TaskState::Accepted), ..TaskFilter::default() }, 99).await.unwrap();
    assert_eq!(current.len(), 3);
    store.seen(&[bob.key], at(2)).await.unwrap();
    let presence = store.agent(&alice, &bob.name, at(2)).await.unwrap().presence;
    assert_eq!((presence.status, presence.current_tasks.len()), (Status::Busy, 3));
}

pub async fn an_overdue_task_is_reported_to_both_sides_once(store: TestStore) {
    let (alice, bob) = store.pair().await;
    let draft = Draft { deadline: Some(at(10)), ..Draft::task(bob.name.clone(), "Work", "soon") };
    let id = store.send(&alice, draft.clone(), at(1)).await.unwrap().answer.task.unwrap().id;
    let ended = store.send(&alice, draft, at(1)).await.unwrap().answer.task.unwrap().id;
    store.set_task_state(&bob, &ended, TaskState::Completed, None, at(2)).await.unwrap();
    assert_eq!(store.sweep_overdue(at(10)).await.unwrap().answer, 0, "the last moment still counts");
    let swept = store.sweep_overdue(at(11)).await.unwrap();
    assert_eq!((swept.answer, swept.entries.len()), (1, 2));
    for agent in [&alice, &bob] {
        let log = store.events(agent.key, 0, 50).await.unwrap();
        let overdue = log
            .iter()
            .filter(|entry| matches!(&entry.event, Event::TaskOverdue { task } if task.id == id && task.overdue));
        assert_eq!(overdue.count(), 1);
    }
    assert_eq!(store.sweep_overdue(at(99)).await.unwrap().answer, 0, "once");
    // A pending task past its deadline can no longer be accepted.
    let late = store.set_task_state(&bob, &id, TaskState::Accepted, None, at(12)).await.unwrap().answer;
    assert_eq!(late.state, TaskState::Rejected);
    assert!(late.note.unwrap().starts_with("deadline"));
}

pub async fn a_delegated_task_knows_its_chain(store: TestStore) {
    let (alice, bob) = store.pair().await;
    let carol = store.enter("carol").await;
    store.connect(&bob, &carol).await;
    let first = store.send(&alice, Draft::task(bob.name.clone(), "Work", "all"), at(1)).await.unwrap().answer;
    let relay =
        Draft { relay_of: Some(first.message_id.clone()), ..Draft::task(carol.name.clone(), "Work", "a piece") };
    let piece = store.send(&bob, relay, at(2)).await.unwrap().answer.task.unwrap().id;
    let root = first.task.unwrap().id;
    assert_eq!(store.task(&carol, &piece).await.unwrap().parent, Some(root.clone()));
    for (viewer, id) in [(&carol, &piece), (&bob, &root), (&bob, &piece)] {
        let chain = store.task_chain(viewer, id).await.unwrap();
        assert_eq!(chain.iter().map(|task| task.id().clone()).collect::<Vec<_>>(), [root.clone(), piece.clone()]);
    }
    let chain = store.task_chain(&carol, &piece).await.unwrap();
    assert_eq!(
        chain[0],
        ChainTask::Other { id: root.clone(), state: TaskState::Pending },
        "alice's is not carol's to read"
    );
    assert!(matches!(&chain[1], ChainTask::Own(task) if task.subject.as_deref() == Some("Work")));
    assert_eq!(code(store.task_chain(&alice, &piece).await), Code::NotFound);
    let given = store.tasks(&bob, TaskFilter { owned: Some(true), ..TaskFilter::default() }, 10).await.unwrap();
    assert_eq!(given.iter().map(|task| &task.id).collect::<Vec<_>>(), [&piece]);
    let open =
        store.tasks(&bob, TaskFilter { owned: Some(false), open: true, ..TaskFilter::default() }, 10).await.unwrap();
    assert_eq!(open.iter().map(|task| &task.id).collect::<Vec<_>>(), [&root]);
}

pub async fn an_undelivered_task_is_shown_only_to_its_sender(store: TestStore) {
    let (alice, bob) = store.pair().await;
    let nobody = ProfilePatch { allow_from: Some(amb_core::AllowFrom(vec![])), ..ProfilePatch::default() };
    store.update_profile(&bob, nobody, at(1)).await.unwrap();
    let sent = store.send(&alice, Draft::task(bob.name.clone(), "Buy gold", "xyzzy"), at(2)).await.unwrap().answer;
    let id = sent.task.unwrap().id;
    while store.index_mail().await.unwrap() > 0 {}
    let search = async |agent: &Agent, text: &str| {
        let query = SearchQuery { text: text.into(), ..SearchQuery::default() };
        store.search(agent, query).await.unwrap().len()
    };
    let export = async |agent: &Agent| {
        let query = ExportQuery { limit: 50, ..ExportQuery::default() };
        store.export(agent, query).await.unwrap().len()
    };

    assert!(store.inbox(&bob, false, at(3)).await.unwrap().sessions.is_empty(), "not even the subject");
    assert_eq!(code(store.history(&bob, &sent.session_id, HistoryPage::default(), at(3)).await), Code::NotFound);
    assert_eq!(code(store.message(&bob, &sent.message_id).await), Code::NotFound);
    assert_eq!(code(store.task(&bob, &id).await), Code::NotFound);
    assert_eq!(code(store.task_chain(&bob, &id).await), Code::NotFound);
    assert_eq!(code(store.set_task_state(&bob, &id, TaskState::Accepted, None, at(3)).await), Code::NotFound);
    assert!(store.tasks(&bob, TaskFilter::default(), 10).await.unwrap().is_empty());
    assert_eq!((search(&bob, "gold").await, export(&bob).await), (0, 0));

    let inbox = store.inbox(&alice, false, at(3)).await.unwrap();
    assert_eq!((inbox.sessions[0].unread_count, inbox.sessions[0].recent_messages.len()), (1, 2));
    let shown = store.history(&alice, &sent.session_id, HistoryPage::default(), at(3)).await.unwrap().answer.messages;
    assert_eq!(shown.iter().map(|message| message.content.as_str()).next_back(), Some("xyzzy"));
    assert!(!shown[1].is_read, "nobody read it");
    assert!(store.message(&alice, &sent.message_id).await.unwrap().receipts.is_empty());
    assert_eq!(store.task(&alice, &id).await.unwrap().state, TaskState::Rejected);
    assert_eq!(export(&alice).await, 2);
    assert_eq!((search(&alice, "xyzzy").await, search(&bob, "xyzzy").await), (1, 0));
    assert_eq!(search(&alice, "gold").await, 2, "the task and its rejection have the subject");

    // A delivered message shows the session to the recipient, without the undelivered one.
    store
        .update_profile(&bob, ProfilePatch { allow_from: Some(Default::default()), ..ProfilePatch::default() }, at(4))
        .await
        .unwrap();
    store.say(&alice, &bob, "Buy gold", "hello").await;
    let inbox = store.inbox(&bob, false, at(5)).await.unwrap();
    assert_eq!((inbox.sessions[0].unread_count, inbox.sessions[0].recent_messages.len()), (1, 1));
    assert_eq!(store.texts(&bob, &sent.session_id, 10).await, ["hello"]);
    assert_eq!(export(&bob).await, 1);
}

pub async fn open_tasks_end_with_the_connection(store: TestStore) {
    for change in [ConnectionChange::Revoke, ConnectionChange::Block] {
        let names = if change == ConnectionChange::Revoke { ["ann", "ben"] } else { ["cat", "dan"] };
        let (ann, ben) = (store.enter(names[0]).await, store.enter(names[1]).await);
        store.connect(&ann, &ben).await;
        let (waiting, working) = (give(&store, &ann, &ben, "one").await, give(&store, &ann, &ben, "two").await);
        let given_back = give(&store, &ben, &ann, "three").await;
        store.set_task_state(&ben, &working, TaskState::Working, None, at(2)).await.unwrap();
        let heads = (store.event_head(ann.key).await.unwrap(), store.event_head(ben.key).await.unwrap());
        let ended = store.change_connection(&ann, &ben.name, change, at(3)).await.unwrap();
        for (agent, head) in [(&ann, heads.0), (&ben, heads.1)] {
            let log = store.events(agent.key, head, 50).await.unwrap();
            let entries: Vec<_> =
                ended.entries.iter().filter(|one| one.agent == agent.key).map(|one| one.entry.clone()).collect();
            assert_eq!(log, entries);
            let mut ends: Vec<_> = updates(&store, agent).await;
            ends.retain(|(_, note)| note.contains("ended the connection"));
            ends.sort();
            let states: Vec<_> = ends.iter().map(|(state, _)| *state).collect();
            assert_eq!(states, [TaskState::Failed, TaskState::Rejected, TaskState::Rejected], "{ends:?}");
            assert!(ends.iter().all(|(_, note)| note.starts_with(names[0]) && !note.contains("block")), "{ends:?}");
        }
        for (id, state) in
            [(&waiting, TaskState::Rejected), (&working, TaskState::Failed), (&given_back, TaskState::Rejected)]
        {
            let task = store.task(&ann, id).await.unwrap();
            assert_eq!(task.state, state);
            assert!(task.note.unwrap().contains("ended the connection"));
        }
        let head = store.event_head(ann.key).await.unwrap();
        for state in [TaskState::Working, TaskState::Completed] {
            assert_eq!(
                code(store.set_task_state(&ben, &working, state, Some("still here".into()), at(4)).await),
                Code::NotConnected
            );
        }
        assert_eq!(store.event_head(ann.key).await.unwrap(), head, "there are no more entries");
    }
}

pub async fn open_tasks_end_when_an_agent_is_removed(store: TestStore) {
    let (alice, bob) = store.pair().await;
    let given = give(&store, &alice, &bob, "one").await;
    let gave = give(&store, &bob, &alice, "two").await;
    store.set_task_state(&bob, &given, TaskState::Working, None, at(2)).await.unwrap();
    store.delete_agent(&alice, hash_of("alice"), at(3)).await.unwrap();
    assert_eq!(store.task(&bob, &given).await.unwrap().state, TaskState::Failed, "nobody waits for it");
    assert_eq!(store.task(&bob, &gave).await.unwrap().state, TaskState::Rejected);
    let log = updates(&store, &bob).await;
    assert_eq!(log.iter().filter(|(_, note)| note.contains("left the office")).count(), 2, "{log:?}");
    let presence = store.agent(&bob, &bob.name, at(4)).await.unwrap().presence;
    assert!(presence.current_tasks.is_empty(), "it counts no longer");
}
