//! The storage usage of agents equals a recount of all rows, whatever happened before.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;

use amb_core::doc::{Access, ConnectionChange, ProfilePatch};
use amb_core::mailbox::{HistoryPage, TaskFilter};
use amb_core::transcript::Line;
use amb_core::{AllowFrom, Callback, Draft, Message, Part, Quotas, TaskState};
use amb_store::{Agent, MessageQuery, PostgresStore, SqliteStore};
use amb_testing::store::{TestStore, at, hash_of, name};
use amb_testing::{PostgresDatabase, SqliteFile};

const AGENTS: [&str; 5] = ["alice", "bob", "carol", "dora", "eve"];

/// A pseudo-random generator with a fixed seed.
struct Dice(u64);

impl Dice {
    fn roll(&mut self, sides: usize) -> usize {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) as usize % sides
    }
}

/// Counts everything that agents store. The update of a task that the office rejected is charged to the task's sender.
const RECOUNT: &str = "
    SELECT payer, CAST(sum(copies) AS bigint), CAST(sum(bytes) AS bigint) FROM (
        SELECT CASE WHEN m.kind = 'task_update' AND EXISTS (
                        SELECT 1 FROM messages n WHERE n.public_id = m.reply_to
                        AND NOT EXISTS (SELECT 1 FROM deliveries d WHERE d.message_id = n.id))
                    THEN (SELECT agent_id FROM deliveries d WHERE d.message_id = m.id) ELSE m.sender_id END AS payer,
               (SELECT CASE count(*) WHEN 0 THEN 1 ELSE count(*) END FROM deliveries d WHERE d.message_id = m.id) AS copies,
               octet_length(m.content) + coalesce(octet_length(m.parts), 0) + coalesce(octet_length(m.metadata), 0)
               + coalesce(octet_length(m.callback), 0) AS bytes
        FROM messages m
        UNION ALL
        SELECT author_id, 1, octet_length(line) FROM transcript_lines
    ) stored GROUP BY payer";

/// Registers agents that are all connected, three of them in a group.
async fn office(store: &TestStore) -> Vec<Agent> {
    let mut agents = Vec::new();
    for text in AGENTS {
        let agent = store.enter(text).await;
        for other in &agents {
            store.connect(&agent, other).await;
        }
        agents.push(agent);
    }
    store.create_group(&agents[0], &name("crew"), at(1)).await.unwrap();
    for member in &agents[1..3] {
        store.invite_to_group(&agents[0], &name("crew"), &member.name, at(1)).await.unwrap();
        store.join_group(member, &name("crew"), true).await.unwrap();
    }
    // One accepts few tasks, so that the office rejects some.
    let few = ProfilePatch { max_concurrent_tasks: Some(1), ..Default::default() };
    store.update_profile(&agents[4], few, at(1)).await.unwrap();
    agents
}

/// Runs a random verb, which may fail.
async fn step(store: &TestStore, agents: &[Agent], dice: &mut Dice, now: i64) {
    let me = &agents[dice.roll(agents.len())];
    let other = &agents[dice.roll(agents.len())];
    let text = "é".repeat(dice.roll(40) + 1);
    let subject = format!("s{}", dice.roll(4));
    let draft = Draft::text(other.name.clone(), subject.as_str(), text.as_str());
    let newest = async |agent: &Agent| -> Option<Message> {
        let page = MessageQuery { limit: 1, ..Default::default() };
        store.messages(agent, page).await.unwrap().messages.pop().map(|found| found.message)
    };
    match dice.roll(14) {
        0..=3 => drop(store.send(me, draft, at(now)).await),
        4 => {
            let parts = vec![Part::Text { text: text.clone() }, Part::Data { data: serde_json::json!({ "n": now }) }];
            let metadata = serde_json::json!({ "why": text }).as_object().unwrap().clone();
            let key = Some(format!("k{}", dice.roll(3)));
            drop(store.send(me, Draft { parts, metadata, idempotency_key: key, ..draft }, at(now)).await);
        }
        5 => {
            if let Some(parent) = newest(me).await {
                drop(store.send(me, Draft::reply(&parent, &text), at(now)).await);
            }
        }
        6 => drop(store.send(me, Draft { to: name("crew"), ..draft }, at(now)).await),
        7 => {
            let to = [agents[0].name.clone(), agents[3].name.clone(), name("crew")];
            drop(store.send_all(me, &to[..1 + dice.roll(3)], draft, at(now)).await);
        }
        8 => {
            let callback = Some(Callback { channel: Some("chat".into()), ..Callback::default() });
            let deadline = Some(at(now - 5 + 10 * dice.roll(2) as i64));
            let task = Draft { callback, deadline, ..Draft::task(other.name.clone(), "Work", text.as_str()) };
            drop(store.send(me, task, at(now)).await);
        }
        9 => {
            let mine = TaskFilter { owned: Some(false), open: true, ..Default::default() };
            if let Some(task) = store.tasks(me, mine, 1).await.unwrap().pop() {
                let state = [TaskState::Accepted, TaskState::Completed, TaskState::Rejected][dice.roll(3)];
                drop(store.set_task_state(me, &task.id, state, Some(text), at(now)).await);
            }
        }
        10 => {
            let line = Line {
                role: "user".into(),
                content: text,
                sender: "x".into(),
                author: None,
                message_id: Some(format!("m{}", dice.roll(50))),
                ts: None,
            };
            let owner = &agents[0];
            let _ = store.transcript_share(owner, &"t".parse().unwrap(), &other.name, Some(Access::Write)).await;
            drop(store.transcript_append(me, Some(&owner.name), &"t".parse().unwrap(), line, at(now)).await);
        }
        11 => {
            if let Some(message) = newest(me).await {
                let page = HistoryPage { limit: 20, before: None };
                store.history(me, &message.session.unwrap(), page, at(now)).await.unwrap();
            }
        }
        12 => drop(store.remove_read_mail(at(now - 3), None).await.unwrap()),
        _ => {
            let change = [ConnectionChange::Revoke, ConnectionChange::Block, ConnectionChange::Unblock][dice.roll(3)];
            if dice.roll(4) == 0 && store.change_connection(me, &other.name, change, at(now)).await.is_ok() {
                let _ = store.change_connection(me, &other.name, ConnectionChange::Unblock, at(now)).await;
                let ask = amb_store::Ask::new(other.name.clone(), None);
                if let Ok(asked) = store.request_connection(me, ask, at(now)).await {
                    store.approve_connection(other, &asked.answer.verification_code, at(now)).await.unwrap();
                }
            } else {
                let allow_from =
                    if dice.roll(2) == 0 { AllowFrom::default() } else { AllowFrom(vec![other.name.to_string()]) };
                let patch = ProfilePatch { allow_from: Some(allow_from), ..Default::default() };
                store.update_profile(me, patch, at(now)).await.unwrap();
            }
        }
    }
}

/// Returns the usage that each agent sees, by its number.
async fn shown(store: &TestStore, agents: &[Agent]) -> BTreeMap<i64, (i64, i64)> {
    let mut all = BTreeMap::new();
    for agent in agents {
        let usage = store.profile(agent, at(9)).await.unwrap().usage;
        all.insert(agent.key.number(), (usage.messages as i64, usage.bytes as i64));
    }
    let office = store.office_usage().await.unwrap();
    let sum = all.values().fold((0, 0), |sum, one| (sum.0 + one.0, sum.1 + one.1));
    assert_eq!((office.messages as i64, office.bytes as i64), sum);
    all
}

/// Returns a quota that is sometimes exceeded.
fn some_limit(dice: &mut Dice) -> Quotas {
    match dice.roll(3) {
        0 => Quotas::NONE,
        _ => Quotas { agent_messages: Some(30 + dice.roll(60) as u64), agent_bytes: Some(9_000), ..Quotas::NONE },
    }
}

fn recount_sqlite(path: &Path) -> BTreeMap<i64, (i64, i64)> {
    let db = rusqlite::Connection::open(path).unwrap();
    let mut all: BTreeMap<i64, (i64, i64)> = (1..=AGENTS.len() as i64).map(|agent| (agent, (0, 0))).collect();
    let mut select = db.prepare(RECOUNT).unwrap();
    let rows = select.query_map([], |row| Ok((row.get(0)?, (row.get(1)?, row.get(2)?)))).unwrap();
    all.extend(rows.map(Result::unwrap));
    all
}

/// Copies the files as a kill would leave them.
fn killed(from: &Path, to: &Path) {
    for suffix in ["", "-wal"] {
        let of = |path: &Path| format!("{}{suffix}", path.display());
        fs_err::copy(of(from), of(to)).unwrap();
    }
}

#[tokio::test]
async fn usage_on_sqlite_equals_a_recount_after_random_verbs_and_kills() {
    for seed in 0..6 {
        let (file, copy) = (SqliteFile::fresh(), SqliteFile::fresh());
        let mut dice = Dice(seed);
        let mut store = TestStore(Arc::new(SqliteStore::open(&file.path()).await.unwrap()));
        let agents = office(&store).await;
        for now in 10..410 {
            step(&store, &agents, &mut dice, now).await;
            match dice.roll(50) {
                0 => {
                    let before = shown(&store, &agents).await;
                    store.close().await;
                    assert_eq!(before, recount_sqlite(&file.path()), "seed {seed}, step {now}");
                    store = TestStore(Arc::new(SqliteStore::open(&file.path()).await.unwrap()));
                    store.set_quotas(some_limit(&mut dice));
                }
                1 => {
                    killed(&file.path(), &copy.path());
                    let reopened = TestStore(Arc::new(SqliteStore::open(&copy.path()).await.unwrap()));
                    let after = shown(&reopened, &agents).await;
                    reopened.close().await;
                    assert_eq!(shown(&store, &agents).await, after, "seed {seed}, step {now}");
                    assert_eq!(recount_sqlite(&copy.path()), after, "seed {seed}, step {now}");
                }
                2 => store.set_quotas(some_limit(&mut dice)),
                _ => {}
            }
        }
        let before = shown(&store, &agents).await;
        store.delete_agent(&agents[2], hash_of("carol"), at(999)).await.unwrap();
        store.close().await;
        let after = recount_sqlite(&file.path());
        assert!(before.values().any(|one| one.0 > 25), "some verbs succeeded: {before:?}");
        let store = TestStore(Arc::new(SqliteStore::open(&file.path()).await.unwrap()));
        let here: Vec<Agent> = agents.iter().filter(|agent| agent.name != name("carol")).cloned().collect();
        for agent in &here {
            let usage = store.profile(agent, at(999)).await.unwrap().usage;
            assert_eq!((usage.messages as i64, usage.bytes as i64), after[&agent.key.number()]);
        }
        store.close().await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn usage_on_postgres_equals_a_recount_after_concurrent_verbs() {
    let database = PostgresDatabase::fresh().await;
    let open = async || TestStore(Arc::new(PostgresStore::open(&database.url()).await.unwrap()));
    let (one, two) = (open().await, open().await);
    let agents = office(&one).await;
    let mut writers = tokio::task::JoinSet::new();
    for seed in 0..6 {
        let (store, agents) = (if seed % 2 == 0 { one.clone() } else { two.clone() }, agents.clone());
        writers.spawn(async move {
            let mut dice = Dice(seed);
            for now in 10..110 {
                step(&store, &agents, &mut dice, now).await;
                if dice.roll(20) == 0 {
                    store.set_quotas(some_limit(&mut dice));
                }
            }
        });
    }
    while let Some(done) = writers.join_next().await {
        done.unwrap();
    }
    let stored = shown(&one, &agents).await;
    let mut all: BTreeMap<i64, (i64, i64)> = agents.iter().map(|agent| (agent.key.number(), (0, 0))).collect();
    all.extend(database.connection().await.query(RECOUNT, &[]).await.unwrap().iter().map(|row| {
        let stored: (i64, i64) = (row.get(1), row.get(2));
        (row.get::<_, i64>(0), stored)
    }));
    assert_eq!(stored, all);
    one.close().await;
    two.close().await;
    drop((one, two));
    database.alone().await;
    assert_eq!(database.deadlocks().await, 0);
}
