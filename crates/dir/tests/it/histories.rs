//! Random histories: many processes that send, move tasks, read and wait for events, killed at random. At the end the
//! results that they got are compared with the state that all agents see.
//!
//! A few seconds by default. `AMB_TEST_KILLS=300 cargo nextest run -p amb-dir histories` is a long run, and
//! `AMB_TEST_SEED` repeats the choices (not the timing) of one that failed.

use std::collections::{BTreeMap, HashMap};
use std::io::{BufRead as _, BufReader, Write as _};
use std::process::{Command, Stdio};
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use amb_core::event::{Cursor, Event};
use amb_core::mailbox::{ClaimRequest, HistoryPage, TaskFilter};
use amb_core::{Card, Draft, Mailbox, MessageId, TaskId, TaskState};
use amb_dir::archive::{ArchiveOptions, archive};
use amb_dir::{DELAYS, Layout, doctor};
use serde::{Deserialize, Serialize};

use crate::agreement::{everybody_agrees, mail_files, told};
use crate::world::{World, name, open};

const PART: &str = "AMB_TEST_PART";
const AGENTS: [&str; 3] = ["ann", "bob", "cat"];
/// Processes of each agent at a time.
const PROCESSES: usize = 2;

/// What a process reports on stdout.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
enum Report {
    /// It is about to send this.
    Sends(Box<Draft>),
    /// The send under this key has returned; a task was in this state.
    Sent(String, Option<TaskState>),
    Moved(TaskId, TaskState),
    Acknowledged(Vec<MessageId>, u64),
    /// The send of a message without a key has returned.
    SentOnce(String),
    /// It got these events up to this cursor, where its successor continues.
    Events(Cursor, Vec<String>),
}

#[derive(Serialize, Deserialize)]
struct Part {
    root: std::path::PathBuf,
    layout: String,
    agent: String,
    seed: u64,
    /// The cursor of its predecessor.
    cursor: Cursor,
}

/// Random choices that a seed repeats.
struct Dice(u64);

impl Dice {
    fn next(&mut self, sides: usize) -> usize {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        usize::try_from(self.0 >> 33).unwrap() % sides
    }
}

fn report(said: &Report) {
    let mut out = std::io::stdout().lock();
    writeln!(out, "\nsaid {}", serde_json::to_string(said).unwrap()).unwrap();
    out.flush().unwrap();
}

/// One process of an agent: runs verbs until it is killed. Does nothing when run as a test.
#[tokio::test]
async fn a_part_in_a_history() {
    let Ok(part) = std::env::var(PART) else { return };
    let part: Part = serde_json::from_str(&part).unwrap();
    let office = open(&part.root, part.layout.parse().unwrap());
    let mailbox = office.mailbox(name(&part.agent));
    let (mut dice, mut cursor) = (Dice(part.seed), part.cursor);
    for n in 0_u32.. {
        match dice.next(18) {
            kind @ 0..4 => {
                let (key, to) = (format!("{}-{n}", part.seed), name(AGENTS[dice.next(AGENTS.len())]));
                let draft = match kind {
                    0..2 => Draft::text(to, "Talk", &key),
                    _ => Draft::task(to, "Work", &key),
                };
                let draft = Draft { idempotency_key: Some(key.clone()), ..draft };
                report(&Report::Sends(Box::new(draft.clone())));
                let sent = mailbox.send(draft).await.unwrap();
                report(&Report::Sent(key, sent.task.map(|task| task.state)));
            }
            4..7 => {
                let open = TaskFilter { owned: Some(false), open: true, ..TaskFilter::default() };
                let mut tasks = mailbox.tasks(open).await.unwrap();
                tasks.retain(|task| task.assignee == *mailbox.me());
                if tasks.is_empty() {
                    continue;
                }
                let task = tasks.swap_remove(dice.next(tasks.len()));
                let next = match (task.state, dice.next(4)) {
                    (TaskState::Pending, 0) => TaskState::Rejected,
                    (TaskState::Pending, 1) => TaskState::Completed,
                    (TaskState::Pending, _) => TaskState::Accepted,
                    (_, 0) => TaskState::Failed,
                    (TaskState::Accepted, 1..3) => TaskState::Working,
                    _ => TaskState::Completed,
                };
                // Another process of the agent may have moved it meanwhile, or the quota is full.
                if next != task.state && mailbox.set_task_state(&task.id, next, None).await.is_ok() {
                    report(&Report::Moved(task.id, next));
                }
            }
            7..9 => {
                let request = ClaimRequest { limit: 1 + dice.next(3), ..ClaimRequest::default() };
                let ids: Vec<MessageId> =
                    mailbox.claim(request).await.unwrap().into_iter().map(|message| message.id).collect();
                let done = mailbox.ack(&ids).await.unwrap();
                report(&Report::Acknowledged(ids, done));
            }
            // Another process may have claimed or acknowledged it: only one counts.
            9..12 => {
                let unread =
                    mailbox.inbox(true).await.unwrap().sessions.into_iter().flat_map(|thread| thread.recent_messages);
                let unread = unread.filter(|message| !message.is_read && message.sender_name != *mailbox.me());
                let ids: Vec<MessageId> = unread.take(2).map(|message| message.id).collect();
                let done = mailbox.ack(&ids).await.unwrap();
                report(&Report::Acknowledged(ids, done));
            }
            12 => {
                let threads = mailbox.inbox(false).await.unwrap().sessions;
                if !threads.is_empty() {
                    let thread = &threads[dice.next(threads.len())].session_id;
                    mailbox.read(thread, HistoryPage::newest(2).unwrap()).await.unwrap();
                }
            }
            13 => {
                let text = format!("{}-{n}-once", part.seed);
                mailbox.send(Draft::text(name(AGENTS[dice.next(AGENTS.len())]), "Talk", &text)).await.unwrap();
                report(&Report::SentOnce(text));
            }
            14 => {
                let old = ArchiveOptions { older_than: Duration::ZERO, keep_unread: true, ..ArchiveOptions::default() };
                archive(&office, Some(mailbox.me()), old).await.unwrap();
            }
            15 if dice.next(3) == 0 => drop(doctor::examine(&office, true).await.unwrap()),
            15 | 16 => {
                let page = mailbox.events(Some(cursor), Duration::ZERO).await.unwrap();
                cursor = page.cursor.clone();
                report(&Report::Events(page.cursor, page.events.iter().map(|entry| describe(&entry.event)).collect()));
            }
            _ => drop(mailbox.inbox(dice.next(2) == 0).await.unwrap()),
        }
    }
}

/// Describes an event in a word.
fn describe(event: &Event) -> String {
    match event {
        Event::NewMessage(new) => format!("message {}", new.message_id),
        Event::Receipt { message_id, receipt } => format!("receipt of {message_id} by {}", receipt.recipient),
        other => format!("{other:?}"),
    }
}

/// Runs a process until it has reported a few times, kills it, and returns its reports.
fn killed(world: &World, agent: &str, dice: &mut Dice, cursor: Cursor) -> Vec<Report> {
    let (layout, seed) = (world.layout.to_string(), dice.0);
    let part = Part { root: world.path().to_owned(), layout, agent: agent.to_owned(), seed, cursor };
    let mut child = Command::new(std::env::current_exe().unwrap())
        .args(["--exact", "histories::a_part_in_a_history", "--nocapture"])
        .env(PART, serde_json::to_string(&part).unwrap())
        .env(DELAYS, seed.to_string())
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::inherit())
        .spawn()
        .unwrap();
    let lines = BufReader::new(child.stdout.take().unwrap()).lines().map_while(Result::ok);
    let mut said = lines.filter_map(|line| Some(serde_json::from_str(line.strip_prefix("said ")?).unwrap()));
    let mut reports: Vec<Report> = said.by_ref().take(1 + dice.next(12)).collect();
    // Somewhere in the middle of the next verb.
    let moment = Instant::now() + Duration::from_micros(dice.next(4_000) as u64);
    while Instant::now() < moment {
        std::hint::spin_loop();
    }
    child.kill().unwrap();
    let status = child.wait().unwrap();
    assert_eq!(std::os::unix::process::ExitStatusExt::signal(&status), Some(9), "{agent} failed; its words are above");
    reports.extend(said);
    reports
}

async fn history(layout: Layout) {
    let number = |name: &str| std::env::var(name).ok().and_then(|text| text.parse::<u64>().ok());
    let kills = number("AMB_TEST_KILLS").unwrap_or(60);
    let seed = number("AMB_TEST_SEED").unwrap_or_else(from_the_clock);
    println!("AMB_TEST_SEED={seed}");
    let world = World::in_memory(layout);
    for agent in AGENTS {
        world.agent_with(agent, Card { max_concurrent_tasks: 2, ..Card::default() }).await;
    }
    let (left, reports, watched) = (AtomicU64::new(kills), Mutex::new(Vec::new()), Mutex::new(Vec::new()));
    std::thread::scope(|scope| {
        for slot in 0..AGENTS.len() * PROCESSES {
            let (world, left, reports, watched) = (&world, &left, &reports, &watched);
            scope.spawn(move || {
                let mut dice = Dice(seed.wrapping_add(slot as u64).wrapping_mul(0x9e37_79b9_7f4a_7c15));
                let (mut cursor, mut told_here) = (Cursor::from(0), Vec::new());
                while left.fetch_update(Ordering::SeqCst, Ordering::SeqCst, |left| left.checked_sub(1)).is_ok() {
                    dice.next(2);
                    let agent = AGENTS[slot % AGENTS.len()];
                    let said = killed(world, agent, &mut dice, cursor.clone());
                    for said in &said {
                        if let Report::Events(to, events) = said {
                            cursor = to.clone();
                            told_here.extend(events.iter().cloned());
                        }
                    }
                    reports.lock().unwrap().extend(said.into_iter().map(|said| (agent, said)));
                }
                watched.lock().unwrap().push((AGENTS[slot % AGENTS.len()], told_here));
            });
        }
    });
    let reports = reports.into_inner().unwrap();
    check(&world, reports).await;
    // The watchers, each continuing after a kill, got the events of the log in order, each once.
    for (agent, reports) in watched.into_inner().unwrap() {
        let log: Vec<String> = told(&world.office().mailbox(name(agent))).await.iter().map(describe).collect();
        assert!(log.starts_with(&reports), "{agent} heard {reports:#?}, and there is {log:#?}");
    }
}

fn from_the_clock() -> u64 {
    std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap().as_nanos() as u64
}

/// Compares the reported results with the state.
async fn check(world: &World, reports: Vec<(&str, Report)>) {
    let mut answered: HashMap<&String, Option<TaskState>> = HashMap::new();
    for (_, said) in &reports {
        if let Report::Sent(key, state) = said {
            answered.insert(key, *state);
        }
    }
    // A client whose send did not return sends again.
    let mut sent: BTreeMap<String, Option<TaskState>> = BTreeMap::new();
    let office = world.office();
    for (agent, said) in &reports {
        let Report::Sends(draft) = said else { continue };
        let key = draft.idempotency_key.clone().unwrap();
        let state = match answered.get(&key) {
            Some(state) => *state,
            None => office.mailbox(name(agent)).send(Draft::clone(draft)).await.unwrap().task.map(|task| task.state),
        };
        sent.insert(key, state);
    }
    everybody_agrees(world, &AGENTS, &format!("{} sends", sent.len())).await;
    let mail_files: Vec<_> = AGENTS.iter().flat_map(|agent| mail_files(world, agent)).collect();
    for (key, state) in &sent {
        let there: Vec<_> = mail_files.iter().filter(|mail| mail.text == *key && mail.kind != "task_update").collect();
        assert_eq!(there.len(), 1, "{key} was answered");
        match (state, &there[0].task) {
            // At once, or by the office when its recipient accepted it before the repeat.
            (Some(TaskState::Rejected), Some((id, _))) => {
                let told = mail_files.iter().filter(|mail| mail.kind == "task_update");
                let told = told.filter(|mail| mail.task.as_ref() == Some(&(id.clone(), TaskState::Rejected)));
                assert_eq!(told.count(), 1, "{key} was answered with rejected");
            }
            _ => assert!(!there[0].is_rejected(), "{key} was answered with {state:?}"),
        }
    }
    let (mut moves, mut acks) = (0, 0);
    for (_, said) in &reports {
        match said {
            Report::Moved(id, state) => {
                moves += 1;
                let told = mail_files.iter().filter(|mail| {
                    mail.kind == "task_update" && mail.task.as_ref().is_some_and(|task| *task == (id.clone(), *state))
                });
                // Progress may be reported more than once: two processes of one agent may both start it.
                let told = told.count();
                assert!(told == 1 || *state == TaskState::Working && told > 1, "{id} was moved to {state}: {told}");
            }
            Report::Acknowledged(ids, done) => {
                acks += done;
                for id in ids {
                    assert!(mail_files.iter().any(|mail| mail.id == *id && mail.read), "{id} was acknowledged");
                }
            }
            Report::SentOnce(text) => {
                assert_eq!(mail_files.iter().filter(|mail| mail.text == *text).count(), 1, "{text} was answered");
            }
            Report::Sends(_) | Report::Sent(..) | Report::Events(..) => {}
        }
    }
    println!("{} sends, {moves} moves, {acks} acknowledgements", sent.len());
    assert!(sent.len() > 10 && moves > 0 && acks > 0, "a history of nothing");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn results_that_clients_got_match_the_state_in_the_nanobot_layout() {
    history(Layout::Nanobot).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn results_that_clients_got_match_the_state_in_the_chipset_layout() {
    history(Layout::Chipset).await;
}
