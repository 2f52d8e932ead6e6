//! Tests of tasks.

use std::sync::Arc;

use jiff::{SignedDuration, Timestamp};

use super::{TestOffice, mailbox, name, pair};
use amb_core::card::{AllowFrom, Card, Status};
use amb_core::doc::Sent;
use amb_core::draft::Draft;
use amb_core::error::Code;
use amb_core::id::TaskId;
use amb_core::mailbox::{ClaimRequest, Mailbox, TaskFilter};
use amb_core::message::{Callback, Kind, Message};
use amb_core::task::TaskState;

fn task(to: &dyn Mailbox, text: &str) -> Draft {
    Draft::task(to.me().clone(), "Work", text)
}

fn task_id(sent: &Sent) -> TaskId {
    sent.task.as_ref().expect("a task was sent").id.clone()
}

/// Unread task updates of an agent, in order, acknowledged.
async fn updates(owner: &dyn Mailbox) -> Vec<Message> {
    let all = owner.claim(ClaimRequest { limit: 100, ..ClaimRequest::default() }).await.unwrap();
    let ids: Vec<_> = all.iter().map(|message| message.id.clone()).collect();
    owner.ack(&ids).await.unwrap();
    all.into_iter().filter(|message| message.kind == Kind::TaskUpdate).collect()
}

fn state_of(update: &Message) -> TaskState {
    update.task.as_ref().expect("an update names its task").state
}

/// Pending, accepted, working, completed; the owner gets an update for each, and the agent is busy in between.
pub async fn a_task_goes_from_pending_to_completed(post: &dyn TestOffice) {
    let (alice, bob) = pair(post).await;
    let sent = alice.send(task(&*bob, "sort the files")).await.unwrap();
    let id = task_id(&sent);
    assert_eq!(sent.task.as_ref().unwrap().state, TaskState::Pending);
    let given = bob.tasks(TaskFilter { owned: Some(false), ..TaskFilter::default() }).await.unwrap();
    assert_eq!((given.len(), given[0].state, &given[0].owner), (1, TaskState::Pending, alice.me()));

    bob.heartbeat().await.unwrap();
    for (next, note) in [
        (TaskState::Accepted, None),
        (TaskState::Working, Some("half way")),
        (TaskState::Completed, Some("sort_by_mtime() is done")),
    ] {
        let moved = bob.set_task_state(&id, next, note.map(str::to_owned)).await.unwrap();
        assert_eq!(moved.state, next);
        let agents = alice.agents().await.unwrap();
        let seen = agents.iter().find(|agent| agent.name == *bob.me()).unwrap();
        let expected = if next == TaskState::Completed { Status::Idle } else { Status::Busy };
        assert_eq!(seen.presence.status, expected, "while {next}");
    }
    let updates = updates(&*alice).await;
    let states: Vec<_> = updates.iter().map(state_of).collect();
    assert_eq!(states, [TaskState::Accepted, TaskState::Working, TaskState::Completed]);
    assert!(updates[2].text().contains("sort_by_mtime() is done"));
    assert_eq!(updates[2].reply_to.as_ref(), Some(&sent.message_id));
    assert_eq!(updates[2].session.as_ref(), Some(&sent.session_id));
    let owned = alice.tasks(TaskFilter { owned: Some(true), ..TaskFilter::default() }).await.unwrap();
    assert_eq!(owned[0].state, TaskState::Completed);
    assert!(alice.tasks(TaskFilter { open: true, ..TaskFilter::default() }).await.unwrap().is_empty());
}

/// The next task of an agent with a full quota is rejected at once; the response and the update say why.
pub async fn a_task_over_quota_is_rejected_with_its_reason(post: &dyn TestOffice) {
    let alice = mailbox(post, "alice").await;
    let bob = post.mailbox(&name("bob-agent"), Card { max_concurrent_tasks: 1, ..Card::default() }).await;
    post.acquaint(&*alice, &*bob).await;
    let first = alice.send(task(&*bob, "one")).await.unwrap();
    bob.set_task_state(&task_id(&first), TaskState::Accepted, None).await.unwrap();
    updates(&*alice).await;

    let second = alice.send(task(&*bob, "two")).await.unwrap();
    assert_eq!(second.task.as_ref().unwrap().state, TaskState::Rejected);
    assert!(second.reason.as_ref().unwrap().contains("quota"), "{second:?}");
    let updates = updates(&*alice).await;
    assert_eq!((updates.len(), state_of(&updates[0])), (1, TaskState::Rejected));
    assert!(updates[0].text().contains("quota"));
    assert_eq!(updates[0].from, *bob.me());

    bob.set_task_state(&task_id(&first), TaskState::Completed, None).await.unwrap();
    let third = alice.send(task(&*bob, "three")).await.unwrap();
    assert_eq!(third.task.as_ref().unwrap().state, TaskState::Pending, "there is room again");
}

/// A task whose deadline has passed when it is sent.
pub async fn a_task_past_its_deadline_is_rejected_with_its_reason(post: &dyn TestOffice) {
    let (alice, bob) = pair(post).await;
    let deadline = Timestamp::now() - SignedDuration::from_secs(60);
    let late = alice.send(Draft { deadline: Some(deadline), ..task(&*bob, "yesterday") }).await.unwrap();
    assert_eq!(late.task.as_ref().unwrap().state, TaskState::Rejected);
    assert!(late.reason.unwrap().contains("deadline"));
    assert!(updates(&*alice).await[0].text().contains("deadline"));
    let soon = Timestamp::now() + SignedDuration::from_secs(3600);
    let fine = alice.send(Draft { deadline: Some(soon), ..task(&*bob, "tomorrow") }).await.unwrap();
    assert_eq!(fine.task.unwrap().state, TaskState::Pending);
}

/// A sender that is not in `allow_from`.
pub async fn a_task_from_a_stranger_is_rejected_with_its_reason(post: &dyn TestOffice) {
    let alice = mailbox(post, "alice").await;
    let card = Card { allow_from: AllowFrom(vec!["carol".into()]), ..Card::default() };
    let bob = post.mailbox(&name("bob-agent"), card).await;
    post.acquaint(&*alice, &*bob).await;
    let sent = alice.send(task(&*bob, "please")).await.unwrap();
    assert_eq!(sent.task.as_ref().unwrap().state, TaskState::Rejected);
    assert!(sent.reason.unwrap().contains("unauthorized"));
    assert!(updates(&*alice).await[0].text().contains("unauthorized"));
    assert_eq!(bob.inbox(true).await.unwrap().unread(), 0, "it does not bother the agent");
    let message = alice.send(Draft::text(bob.me().clone(), "Hi", "psst")).await.unwrap_err();
    assert_eq!(message.code(), Code::NotAllowed);
}

/// An undelivered task is shown to its sender only.
pub async fn a_task_rejected_at_once_is_shown_only_to_its_owner(post: &dyn TestOffice) {
    let (alice, bob) = pair(post).await;
    let deadline = Timestamp::now() - SignedDuration::from_secs(60);
    let late = alice.send(Draft { deadline: Some(deadline), ..task(&*bob, "a secret") }).await.unwrap();
    assert_eq!(late.task.as_ref().unwrap().state, TaskState::Rejected);
    for filter in [TaskFilter::default(), TaskFilter { owned: Some(false), ..TaskFilter::default() }] {
        assert_eq!(bob.tasks(filter).await.unwrap(), [], "its recipient knows nothing of it");
    }
    let owned = alice.tasks(TaskFilter { owned: Some(true), ..TaskFilter::default() }).await.unwrap();
    assert_eq!((owned.len(), owned[0].state), (1, TaskState::Rejected));
    bob.set_task_state(&task_id(&late), TaskState::Accepted, None).await.unwrap_err();
    // A task that its recipient has seen stays in both lists, whoever rejects it.
    let seen = alice.send(task(&*bob, "a question")).await.unwrap();
    bob.set_task_state(&task_id(&seen), TaskState::Rejected, None).await.unwrap();
    assert_eq!(bob.tasks(TaskFilter::default()).await.unwrap().len(), 1);
}

/// An illegal move is refused without an update.
pub async fn an_illegal_move_changes_nothing(post: &dyn TestOffice) {
    let (alice, bob) = pair(post).await;
    let id = task_id(&alice.send(task(&*bob, "x")).await.unwrap());
    bob.set_task_state(&id, TaskState::Rejected, Some("cannot".into())).await.unwrap();
    updates(&*alice).await;
    for next in TaskState::ALL {
        let error = bob.set_task_state(&id, next, None).await.unwrap_err();
        assert_eq!(error.code(), Code::IllegalMove, "rejected to {next}");
    }
    assert!(updates(&*alice).await.is_empty());
    let missing =
        bob.set_task_state(&"00000000-0000-4000-8000-000000000000".parse().unwrap(), TaskState::Accepted, None).await;
    assert_eq!(missing.unwrap_err().code(), Code::NotFound);
}

/// Neither the owner nor a stranger moves a task.
pub async fn only_the_assignee_moves_a_task(post: &dyn TestOffice) {
    let (alice, bob) = pair(post).await;
    let eve = mailbox(post, "eve").await;
    let id = task_id(&alice.send(task(&*bob, "x")).await.unwrap());
    assert_eq!(alice.set_task_state(&id, TaskState::Completed, None).await.unwrap_err().code(), Code::Forbidden);
    let stranger = eve.set_task_state(&id, TaskState::Accepted, None).await.unwrap_err();
    assert!(matches!(stranger.code(), Code::NotFound | Code::Forbidden), "{stranger:?}");
    assert!(eve.tasks(TaskFilter::default()).await.unwrap().is_empty());
    assert_eq!(bob.tasks(TaskFilter::default()).await.unwrap()[0].state, TaskState::Pending);
}

/// The quota holds under concurrency, and those beyond it are rejected with their reason.
pub async fn concurrent_accepts_stop_at_the_quota(post: &dyn TestOffice) {
    let (alice, bob) = pair(post).await;
    let mut running = Vec::new();
    for n in 0..12 {
        let id = task_id(&alice.send(task(&*bob, &format!("t{n}"))).await.unwrap());
        running.push((Arc::clone(&bob), id));
    }
    let running: Vec<_> = running
        .into_iter()
        .map(|(bob, id)| tokio::spawn(async move { bob.set_task_state(&id, TaskState::Accepted, None).await }))
        .collect();
    let mut accepted = 0;
    for accept in running {
        match accept.await.unwrap() {
            Ok(task) => {
                assert_eq!(task.state, TaskState::Accepted);
                accepted += 1;
            }
            Err(refused) => assert_eq!(refused.code(), Code::Conflict, "{refused:?}"),
        }
    }
    assert_eq!(accepted, 3, "the default quota");
    let all = bob.tasks(TaskFilter::default()).await.unwrap();
    assert_eq!(all.iter().filter(|task| task.state == TaskState::Rejected).count(), 9);
}

/// Failing says why; skipping the states between is allowed.
pub async fn a_failed_task_reports_its_reason_to_the_owner(post: &dyn TestOffice) {
    let (alice, bob) = pair(post).await;
    let id = task_id(&alice.send(task(&*bob, "impossible")).await.unwrap());
    bob.set_task_state(&id, TaskState::Failed, Some("no such file".into())).await.unwrap();
    let updates = updates(&*alice).await;
    assert_eq!(updates.iter().map(state_of).collect::<Vec<_>>(), [TaskState::Failed], "one update for the last state");
    assert!(updates[0].text().contains("no such file"));
}

/// The callback travels with the task and comes back to the agent that set it.
pub async fn a_callback_is_shown_only_to_the_agent_that_set_it(post: &dyn TestOffice) {
    let (alice, bob) = pair(post).await;
    let callback = Callback {
        channel: Some("feishu".into()),
        session_id: Some("feishu:user_123".into()),
        chat_id: Some("user_123".into()),
        ..Callback::default()
    };
    let sent = alice.send(Draft { callback: Some(callback.clone()), ..task(&*bob, "sort") }).await.unwrap();
    let id = task_id(&sent);
    let given = bob.tasks(TaskFilter::default()).await.unwrap();
    assert_eq!(given[0].callback, None, "the assignee has no use for it");
    bob.set_task_state(&id, TaskState::Completed, Some("done".into())).await.unwrap();
    let updates = updates(&*alice).await;
    assert_eq!(updates[0].callback.as_ref(), Some(&callback));
    assert_eq!(alice.tasks(TaskFilter::default()).await.unwrap()[0].callback.as_ref(), Some(&callback));
}

/// Both sides find one task by its id, nobody else does, and one agent by its name.
pub async fn single_tasks_and_agents_can_be_looked_up(post: &dyn TestOffice) {
    let (alice, bob) = pair(post).await;
    let carol = mailbox(post, "carol").await;
    post.acquaint(&*alice, &*carol).await;
    let first = task_id(&alice.send(task(&*bob, "first")).await.unwrap());
    alice.send(task(&*carol, "second")).await.unwrap();
    for (who, is_owner) in [(&alice, true), (&bob, false)] {
        let found = who.task(&first).await.unwrap();
        let listed = who.tasks(TaskFilter::default()).await.unwrap().into_iter().find(|task| task.id == first);
        assert_eq!((Some(&found), found.owner == *who.me()), (listed.as_ref(), is_owner));
    }
    bob.set_task_state(&first, TaskState::Completed, Some("done".into())).await.unwrap();
    assert_eq!(alice.task(&first).await.unwrap().state, TaskState::Completed, "an ended one too");
    assert_eq!(carol.task(&first).await.unwrap_err().code(), Code::NotFound);
    assert_eq!(alice.task(&TaskId::parse("no-such-task").unwrap()).await.unwrap_err().code(), Code::NotFound);
    let found = alice.agent(bob.me()).await.unwrap().map(|agent| agent.name);
    assert_eq!(found.as_ref(), Some(bob.me()));
    assert!(alice.agent(&name("nobody-at-all")).await.unwrap().is_none());
}

/// The owner sees that a task was not done in time.
pub async fn an_open_task_past_its_deadline_is_overdue_for_its_owner(post: &dyn TestOffice) {
    let (alice, bob) = pair(post).await;
    let deadline = Timestamp::now() + SignedDuration::from_millis(400);
    let sent = alice.send(Draft { deadline: Some(deadline), ..task(&*bob, "quick") }).await.unwrap();
    assert_eq!(sent.task.as_ref().unwrap().state, TaskState::Pending);
    let give_up = Timestamp::now() + SignedDuration::from_secs(20);
    loop {
        let tasks = alice.tasks(TaskFilter::default()).await.unwrap();
        if tasks[0].overdue {
            break;
        }
        assert!(Timestamp::now() < give_up, "never overdue: {tasks:?}");
        tokio::task::yield_now().await;
    }
    let late = bob.set_task_state(&task_id(&sent), TaskState::Accepted, None).await.unwrap_err();
    assert_eq!(late.code(), Code::Conflict, "a pending task whose deadline passed is rejected on acceptance");
}

/// A task delegated to a third agent names its parent task.
pub async fn a_delegated_task_knows_its_parent(post: &dyn TestOffice) {
    let (alice, bob) = pair(post).await;
    let carol = mailbox(post, "carol").await;
    post.acquaint(&*bob, &*carol).await;
    let whole = alice.send(task(&*bob, "all of it")).await.unwrap();
    let piece = bob.send(Draft { relay_of: Some(whole.message_id.clone()), ..task(&*carol, "a piece") }).await.unwrap();
    let given = carol.tasks(TaskFilter::default()).await.unwrap();
    assert_eq!(given[0].parent.as_ref(), Some(&task_id(&whole)));
    assert_eq!(given[0].owner, *bob.me(), "the piece belongs to the one who passed it on");
    let brought = carol.message(&piece.message_id).await.unwrap().message;
    assert_eq!((brought.ttl, brought.trace), (1, vec![alice.me().clone(), bob.me().clone()]));
}
