//! kill -9 of a server with a mount, again and again, and readers that die: nothing is lost, nothing comes twice.

use std::collections::BTreeMap;

use amb_core::mailbox::ClaimRequest;
use amb_core::{Card, Draft, Kind, Mailbox as _, TaskState};
use amb_dir::{DirMailbox, Layout};
use serde_json::{Value, json};

use crate::mount_world::{Database, World, name, until};
use crate::server_office::Agent;

/// Messages each way between two kills.
const EACH: usize = 12;

/// How often the server is killed. `AMB_KILL_ROUNDS=50` is the full proof.
fn rounds() -> usize {
    std::env::var("AMB_KILL_ROUNDS").map_or(8, |rounds| rounds.parse().expect("AMB_KILL_ROUNDS is a number"))
}

/// Everything that one side got, in order.
#[derive(Default)]
struct Got {
    words: Vec<String>,
    /// What was said of each task.
    updates: BTreeMap<String, Vec<String>>,
    tasks: Vec<amb_core::TaskId>,
}

impl Got {
    /// Takes some of what lies in a mailbox. A reader that dies first takes one and does nothing with it.
    async fn take(&mut self, world: &World, most: usize) {
        let dying = reader(world);
        let held = dying.claim(ClaimRequest::default()).await.unwrap();
        drop((held, dying));
        let mailbox = reader(world);
        for message in mailbox.claim(ClaimRequest { limit: most, ..ClaimRequest::default() }).await.unwrap() {
            match (&message.kind, &message.task) {
                (Kind::TaskUpdate, Some(task)) => {
                    self.updates.entry(task.id.to_string()).or_default().push(message.text());
                }
                (Kind::Task, Some(task)) => self.tasks.push(task.id.clone()),
                _ => self.words.push(message.text()),
            }
            mailbox.ack(&[message.id]).await.unwrap();
        }
    }
}

/// The file agent's process, begun anew.
fn reader(world: &World) -> DirMailbox {
    world.directory().mailbox(name("coder"))
}

async fn kill_again_and_again(database: Database, layout: Layout) {
    let mut world = World::new(database, layout).await;
    let card = Card { max_concurrent_tasks: 1_000, ..Card::default() };
    let coder = world.resident_with("coder", card).await;
    let ann = world.server.register("ann-mcp").await;
    world.connect(&ann, "coder").await;
    world.shown("ann-mcp").await;
    let mut got = Got::default();
    let mut given = Vec::new();
    for round in 0..rounds() {
        for n in 0..EACH {
            let text = format!("{round}.{n}");
            coder.send(Draft::text(name("ann-mcp"), "Files", format!("f{text}"))).await.unwrap();
            world.send(&ann, "coder", json!({"subject": "Server", "content": format!("s{text}")})).await;
        }
        let draft = Draft::task(name("ann-mcp"), "Given on files", format!("do {round}"));
        given.push(coder.send(draft).await.unwrap().task.unwrap().id);
        let task = json!({"kind": "task", "subject": "Given on the server", "content": format!("do {round}")});
        world.send(&ann, "coder", task).await;
        // At another point each time: at once, or when some of it has come.
        let enough = got.words.len() + round * 5 % EACH;
        until(async || {
            got.take(&world, 3).await;
            got.words.len() >= enough
        })
        .await;
        // Progress on a task of an earlier round, so that kills fall between saying so and telling.
        for id in got.tasks.iter().rev().take(1) {
            for note in ["one", "two"] {
                let note = Some(format!("{round} {note}"));
                reader(&world).set_task_state(id, TaskState::Working, note).await.unwrap();
            }
        }
        world = world.restart().await;
        complete_some(&world, &ann, 2).await;
    }
    let all = rounds() * EACH;
    until(async || {
        got.take(&world, 100).await;
        complete_some(&world, &ann, 100).await;
        let done = |id: &amb_core::TaskId| got.updates.get(id.as_str()).is_some_and(|said| !said.is_empty());
        got.words.len() >= all && got.tasks.len() == rounds() && given.iter().all(done)
    })
    .await;
    for id in &got.tasks {
        reader(&world).set_task_state(id, TaskState::Completed, Some("done".into())).await.unwrap();
    }
    let ended = "/tasks?owned=true&state=completed&limit=200";
    until(async || {
        let page = world.server.get(&ann, ended).await.expect(200);
        page["tasks"].as_array().unwrap().len() == rounds()
    })
    .await;

    let expected = |side: &str| -> Vec<String> {
        (0..rounds())
            .flat_map(|round| (0..EACH).map(move |n| (round, n)))
            .map(|(r, n)| format!("{side}{r}.{n}"))
            .collect()
    };
    assert_eq!(got.words, expected("s"), "what the server's agent wrote, once and in order");
    assert_eq!(texts(&world, &ann, "Files").await, expected("f"), "what the file agent wrote, once and in order");
    for (id, said) in &got.updates {
        assert_eq!(said, &["done"], "the update of {id}, once");
    }
    assert_eq!(got.updates.len(), rounds());
    let said = texts(&world, &ann, "Given on the server").await;
    let mut notes: Vec<&String> = said.iter().filter(|text| !text.starts_with("do ")).collect();
    assert_eq!(notes.iter().filter(|text| **text == "done").count(), rounds());
    let many = notes.len();
    notes.retain(|text| *text != "done");
    notes.sort();
    notes.dedup();
    assert_eq!(notes.len() + rounds(), many, "each word on progress once: {said:?}");
    println!("{} kills, {} messages and {} updates", rounds(), 2 * all + 2 * rounds(), many + rounds());
}

/// Completes some of the tasks that the file agent gave.
async fn complete_some(world: &World, ann: &Agent, most: usize) {
    let open = world.server.get(ann, "/tasks?owned=false&open=true&limit=200").await.expect(200);
    for task in open["tasks"].as_array().unwrap().iter().rev().take(most) {
        let path = format!("/tasks/{}/state", task["id"].as_str().unwrap());
        world.server.post(ann, &path, json!({"state": "completed", "note": "done"})).await.expect(200);
    }
}

/// All texts that came to the server's agent in the thread of a subject, oldest first.
async fn texts(world: &World, ann: &Agent, subject: &str) -> Vec<String> {
    let inbox = world.server.get(ann, "/inbox").await.expect(200);
    let sessions = inbox["sessions"].as_array().unwrap();
    let session = sessions.iter().find(|session| session["subject"] == subject).map(|session| &session["session_id"]);
    let session = session.and_then(Value::as_str).unwrap_or_else(|| panic!("no {subject}: {inbox}"));
    world.server.history(ann, session).await.into_iter().map(|(_, text)| text).collect()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn nothing_is_lost_or_doubled_by_kills_on_sqlite() {
    kill_again_and_again(Database::sqlite(), Layout::Nanobot).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn nothing_is_lost_or_doubled_by_kills_on_postgres() {
    kill_again_and_again(Database::postgres().await, Layout::Nanobot).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn nothing_is_lost_or_doubled_by_kills_in_the_chipsets_layout() {
    kill_again_and_again(Database::sqlite(), Layout::Chipset).await;
}
