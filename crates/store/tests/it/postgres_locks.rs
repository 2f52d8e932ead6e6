//! Locks of the store on PostgreSQL: a change that has returned holds for all later verbs, and there are no deadlocks.

use std::future::Future;
use std::time::Duration;

use amb_core::doc::{Access, ConnectionChange};
use amb_core::mailbox::ClaimRequest;
use amb_core::transcript::Line;
use amb_core::{AgentName, Code, Draft, TaskState};
use amb_store::{Agent, Ask, StoreError};
use amb_testing::PostgresDatabase;
use amb_testing::store::{TestStore, at, hash_of, name};
use tokio::task::JoinHandle;

use crate::support::{fresh, open, soon};

/// Waits until so many connections wait for a lock.
async fn waiting(database: &PostgresDatabase, count: i64) {
    let client = database.connection().await;
    let sql = "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND wait_event_type = 'Lock'";
    soon(async {
        while client.query_one(sql, &[]).await.unwrap().get::<_, i64>(0) < count {
            tokio::task::yield_now().await;
        }
    })
    .await;
}

/// Starts a verb and stops it at an insert into `table`; starts a second verb, which must not return before the first;
/// lets both continue, and returns both outcomes.
async fn answered_after<A, B>(
    database: &PostgresDatabase,
    table: &str,
    first: impl Future<Output = A> + Send + 'static,
    second: impl Future<Output = B> + Send + 'static,
) -> (A, B)
where
    A: Send + 'static,
    B: Send + 'static,
{
    let held = database.wait_at(table, "TRUE").await;
    let first = tokio::spawn(first);
    waiting(database, 1).await;
    let mut second: JoinHandle<B> = tokio::spawn(second);
    tokio::select! {
        () = waiting(database, 2) => {}
        answered = &mut second => panic!("returned before the first verb was done: {}", answered.is_ok()),
    }
    held.batch_execute("SELECT pg_advisory_unlock(77)").await.unwrap();
    let outcomes = (soon(first).await.unwrap(), soon(second).await.unwrap());
    database.run(&format!("DROP TRIGGER wait ON {table}")).await;
    outcomes
}

/// Alice's group of bob and carol, who joined, and dave, who was invited.
async fn crew(store: &TestStore) -> [Agent; 4] {
    let (alice, bob) = store.pair().await;
    let (carol, dave) = (store.enter("carol").await, store.enter("dave").await);
    store.create_group(&alice, &name("crew"), at(1)).await.unwrap();
    for agent in [&bob, &carol, &dave] {
        if agent.key != bob.key {
            store.connect(&alice, agent).await;
        }
        store.invite_to_group(&alice, &name("crew"), &agent.name, at(1)).await.unwrap();
        if agent.key != dave.key {
            store.join_group(agent, &name("crew"), true).await.unwrap();
        }
    }
    [alice, bob, carol, dave]
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn no_mail_reaches_a_member_after_its_removal_has_returned() {
    let (database, store) = fresh().await;
    let [alice, bob, carol, _] = crew(&store).await;
    let send = |from: &Agent| {
        let (store, from) = (store.clone(), from.clone());
        async move { store.send(&from, Draft::text(name("crew"), "Standup", "x"), at(1)).await.unwrap().entries.len() }
    };
    let remove = {
        let (store, alice, bob) = (store.clone(), alice.clone(), bob.clone());
        async move { store.remove_from_group(&alice, &name("crew"), &bob.name).await.unwrap() }
    };
    let (recipients, _) = answered_after(&database, "messages", send(&carol), remove).await;
    assert_eq!(recipients, 2, "a send in progress reaches all members of before");
    let leave = {
        let (store, carol) = (store.clone(), carol.clone());
        async move { store.join_group(&carol, &name("crew"), false).await.unwrap() }
    };
    answered_after(&database, "messages", send(&alice), leave).await;
    assert_eq!(send(&alice).await, 0, "nobody is left");
    store.close().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_send_to_a_group_reaches_its_members_as_of_the_locks() {
    let (database, store) = fresh().await;
    let [alice, bob, carol, dave] = crew(&store).await;
    // Bob's mailbox is held, so that the removal waits for it, and the send for the removal.
    let held = database.connection().await;
    let lock = |agent: &Agent| format!("BEGIN; SELECT FROM mailboxes WHERE agent_id = {} FOR NO KEY UPDATE", agent.key);
    held.batch_execute(&lock(&bob)).await.unwrap();
    let removing = tokio::spawn({
        let (store, alice, bob) = (store.clone(), alice.clone(), bob.clone());
        async move { store.remove_from_group(&alice, &name("crew"), &bob.name).await }
    });
    waiting(&database, 1).await;
    store.join_group(&dave, &name("crew"), true).await.unwrap();
    let sending = tokio::spawn({
        let (store, carol) = (store.clone(), carol.clone());
        async move { store.send(&carol, Draft::text(name("crew"), "Standup", "x"), at(1)).await }
    });
    waiting(&database, 2).await;
    held.batch_execute("COMMIT").await.unwrap();
    soon(removing).await.unwrap().unwrap();
    let recipients: Vec<_> = soon(sending).await.unwrap().unwrap().entries.iter().map(|one| one.agent).collect();
    assert_eq!(recipients, [alice.key, dave.key]);
    store.close().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn joining_fails_after_the_owner_removed_the_invitation() {
    let (database, store) = fresh().await;
    let [_, _, _, dave] = crew(&store).await;
    let removing = database.connection().await;
    let remove = format!("BEGIN; DELETE FROM group_members WHERE agent_id = {}", dave.key);
    removing.batch_execute(&remove).await.unwrap();
    let joining = tokio::spawn({
        let (store, dave) = (store.clone(), dave.clone());
        async move { store.join_group(&dave, &name("crew"), true).await }
    });
    waiting(&database, 1).await;
    removing.batch_execute("COMMIT").await.unwrap();
    assert_eq!(soon(joining).await.unwrap().unwrap_err().code(), Code::NotFound);
    assert!(store.groups(&dave).await.unwrap().is_empty());
    store.close().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn no_line_is_appended_to_a_transcript_after_a_block_has_returned() {
    let (database, store) = fresh().await;
    let (alice, bob) = store.pair().await;
    let key = "chat".parse().unwrap();
    let line = || Line {
        role: "user".into(),
        content: "hello".into(),
        sender: "bob".into(),
        author: None,
        message_id: None,
        ts: None,
    };
    store.transcript_append(&alice, None, &key, line(), at(1)).await.unwrap();
    store.transcript_share(&alice, &key, &bob.name, Some(Access::Write)).await.unwrap();
    let append = {
        let (store, alice, bob, key) = (store.clone(), alice.clone(), bob.clone(), key.clone());
        async move { store.transcript_append(&bob, Some(&alice.name), &key, line(), at(1)).await }
    };
    let block = {
        let (store, alice, bob) = (store.clone(), alice.clone(), bob.clone());
        async move { store.change_connection(&alice, &bob.name, ConnectionChange::Block, at(2)).await }
    };
    let (appended, blocked) = answered_after(&database, "transcript_lines", append, block).await;
    appended.unwrap();
    blocked.unwrap();
    let refused = store.transcript_append(&bob, Some(&alice.name), &key, line(), at(3)).await.unwrap_err();
    assert_eq!(refused.code(), Code::NotFound);
    store.close().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_request_to_an_agent_that_is_being_deleted_is_refused() {
    let (database, store) = fresh().await;
    let (alice, bob) = (store.enter("alice").await, store.enter("bob").await);
    let held = database.connection().await;
    let gone = format!(
        "BEGIN; SELECT FROM mailboxes WHERE agent_id = {0} FOR NO KEY UPDATE;
         UPDATE agents SET deleted_at = now() WHERE id = {0}",
        bob.key
    );
    held.batch_execute(&gone).await.unwrap();
    let asking = tokio::spawn({
        let (store, alice, bob) = (store.clone(), alice.clone(), bob.clone());
        async move { store.request_connection(&alice, Ask::new(bob.name, None), at(1)).await }
    });
    waiting(&database, 1).await;
    held.batch_execute("COMMIT").await.unwrap();
    assert_eq!(soon(asking).await.unwrap().unwrap_err().code(), Code::NotFound);
    assert!(store.connections(&alice).await.unwrap().is_empty());
    store.close().await;
}

/// Accepts the errors that concurrent blocks and deletions cause.
fn allowed<T>(outcome: Result<T, StoreError>) {
    if let Err(error) = outcome {
        let codes = [Code::NotConnected, Code::NotFound, Code::NotAllowed, Code::Conflict, Code::IllegalMove];
        assert!(codes.contains(&error.code()), "{error:?}");
    }
}

/// Returns the name in upper case.
fn shouted(name: &AgentName) -> AgentName {
    name.as_str().to_ascii_uppercase().parse().unwrap()
}

const ROUNDS: usize = 40;

async fn send(store: TestStore, me: Agent, peers: Vec<Agent>) {
    for round in 0..ROUNDS {
        let to: Vec<_> = peers.iter().map(|peer| peer.name.clone()).collect();
        let draft = Draft::text(peers[round % 3].name.clone(), "Plan", "x");
        // The same key from both processes: one sends, the other gets the same answer.
        let keyed = Draft { idempotency_key: Some(format!("{round}")), ..draft.clone() };
        match round % 6 {
            0 => drop(store.send_all(&me, &to, draft, at(1)).await.unwrap()),
            1 => drop(store.send(&me, Draft { to: name("crew"), ..draft }, at(1)).await.unwrap()),
            2 => {
                let to = [shouted(&to[0]), name("CREW")];
                store.send_all(&me, &to, draft, at(1)).await.unwrap();
            }
            3 => {
                let to: Vec<_> = to.iter().rev().map(shouted).collect();
                store.send_all(&me, &to, keyed, at(1)).await.unwrap();
            }
            4 => drop(store.send(&me, keyed, at(1)).await.unwrap()),
            _ => drop(store.send(&me, draft, at(1)).await.unwrap()),
        }
    }
}

async fn claim(store: TestStore, me: Agent) {
    for round in 0..ROUNDS {
        let request = ClaimRequest { limit: 20, urgent_first: round % 2 == 0, lease: Duration::from_secs(1) };
        let taken = store.claim(&me, request, at(round as i64)).await.unwrap().answer;
        let ids: Vec<_> = taken.into_iter().map(|message| message.id).collect();
        match round % 3 {
            _ if ids.is_empty() => {}
            0 => drop(store.ack(&me, &ids, at(2)).await.unwrap()),
            1 => store.release(&me, &ids).await.unwrap(),
            _ => {}
        }
    }
}

/// Marks mail as delivered, like a socket.
async fn deliver(store: TestStore, me: Agent) {
    for _ in 0..ROUNDS {
        let head = store.event_head(me.key).await.unwrap();
        store.delivered(&me, 0, head, at(3)).await.unwrap();
        store.index_mail().await.unwrap();
    }
}

/// Sends tasks and moves them.
async fn work(store: TestStore, me: Agent, peer: Agent) {
    for round in 0..ROUNDS / 2 {
        let given = store.send(&me, Draft::task(shouted(&peer.name), "Work", "x"), at(1)).await.unwrap().answer;
        let task = given.task.unwrap().id;
        for state in [TaskState::Working, TaskState::Completed] {
            allowed(store.set_task_state(&peer, &task, state, None, at(round as i64)).await);
        }
    }
}

/// Registers agents that connect with everybody, are blocked, and are deleted or removed from the group.
async fn come_and_go(store: TestStore, me: usize, all: Vec<Agent>) {
    for round in 0..4 {
        let text = format!("guest{me}-{round}");
        let guest = store.enter(&text).await;
        for one in &all {
            store.connect(&guest, one).await;
            allowed(store.send(one, Draft::task(guest.name.clone(), "Work", "x"), at(1)).await);
        }
        let to: Vec<_> = all.iter().rev().map(|one| one.name.clone()).collect();
        store.send_all(&guest, &to, Draft::task(to[0].clone(), "Work", "x"), at(1)).await.unwrap();
        allowed(store.invite_to_group(&all[0], &name("crew"), &guest.name, at(1)).await);
        allowed(store.join_group(&guest, &name("crew"), true).await);
        for one in &all[2..] {
            allowed(store.change_connection(one, &guest.name, ConnectionChange::Block, at(2)).await);
        }
        match round % 2 {
            0 => drop(store.delete_agent(&guest, hash_of(&text), at(3)).await.unwrap()),
            _ => allowed(store.remove_from_group(&all[0], &name("crew"), &guest.name).await),
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn verbs_of_many_agents_in_two_processes_do_not_deadlock() {
    let (database, store) = fresh().await;
    let other = open(&database).await;
    let mut agents = Vec::new();
    for n in 0..4 {
        agents.push(store.enter(&format!("agent{n}")).await);
    }
    for (n, one) in agents.iter().enumerate() {
        for peer in &agents[n + 1..] {
            store.connect(one, peer).await;
        }
    }
    store.create_group(&agents[0], &name("crew"), at(1)).await.unwrap();
    for agent in &agents[1..] {
        store.invite_to_group(&agents[0], &name("crew"), &agent.name, at(1)).await.unwrap();
        store.join_group(agent, &name("crew"), true).await.unwrap();
    }
    let mut tasks = Vec::new();
    for (n, me) in agents.iter().enumerate() {
        let peers: Vec<Agent> = agents.iter().filter(|agent| agent.key != me.key).cloned().collect();
        // Each verb from both processes, so that only the database serializes them.
        for store in [store.clone(), other.clone()] {
            tasks.push(tokio::spawn(send(store.clone(), me.clone(), peers.clone())));
            tasks.push(tokio::spawn(claim(store.clone(), me.clone())));
            tasks.push(tokio::spawn(deliver(store.clone(), me.clone())));
            tasks.push(tokio::spawn(work(store.clone(), me.clone(), peers[n % 3].clone())));
        }
    }
    for (n, store) in [store.clone(), other.clone()].into_iter().enumerate() {
        tasks.push(tokio::spawn(come_and_go(store.clone(), n, agents.clone())));
        tasks.push(tokio::spawn(async move {
            for _ in 0..ROUNDS {
                store.remove_read_mail(at(100), None).await.unwrap();
                store.prune(at(0)).await.unwrap();
            }
        }));
    }
    for task in tasks {
        task.await.unwrap();
    }
    for store in [store, other] {
        store.close().await;
    }
    database.alone().await;
    assert_eq!(database.deadlocks().await, 0);
}
