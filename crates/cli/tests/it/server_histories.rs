//! Random histories on the network office, with kill -9: what the clients were told is compared with what everybody
//! sees in the end. Several clients for each agent send, move tasks, acknowledge, claim and read at once.

use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};

use amb_core::TaskState;
use amb_testing::NatsServer;
use amb_testing::{PostgresDatabase, SqliteFile};
use reqwest::{Client, Method, StatusCode};
use serde_json::{Value, json};
use tokio::sync::{Notify, watch};

use crate::server_histories_check::check;
use crate::server_kill::rounds;
use crate::server_office::{Agent, Answer, Office, client, serve_command, soon};

const AGENTS: usize = 4;
/// Clients that act for one agent at the same time.
const CLIENTS: usize = 2;
/// The quota of the last agent, small enough that the office rejects tasks by itself.
const SMALL_QUOTA: u64 = 2;

/// What became of a request, as its client knows it.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum Outcome {
    Done(Value),
    /// Answered with an error: nothing may have happened.
    Refused,
    /// Never answered, or answered with 503: it happened once or not at all.
    Unknown,
}

/// Requests and what their clients know of them.
#[derive(Debug, Default)]
pub(crate) struct Told {
    /// Contents are unique: sender, content, recipient, whether it was a task, and the outcome.
    pub(crate) sends: Vec<(usize, String, usize, bool, Outcome)>,
    /// Notes are unique: task id, note, the state that was asked for, and the outcome.
    pub(crate) moves: Vec<(String, String, TaskState, Outcome)>,
    /// Message id and the outcome.
    pub(crate) acks: Vec<(String, Outcome)>,
    /// Message id, once for each claim that was answered with it.
    pub(crate) claims: Vec<String>,
    /// Message id, once for each attempt to release it.
    pub(crate) releases: Vec<String>,
}

struct World {
    /// Where each replica is now; it may be gone already.
    places: Vec<watch::Sender<SocketAddr>>,
    agents: Vec<Agent>,
    told: Mutex<Told>,
    answered: AtomicUsize,
    progress: Notify,
    stop: AtomicBool,
}

/// A small generator of pseudo-random numbers (splitmix64), so that a seed repeats the choices of a run.
struct Random(u64);

impl Random {
    fn below(&mut self, bound: usize) -> usize {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        ((mixed ^ (mixed >> 31)) % bound as u64) as usize
    }
}

/// One client of one agent.
struct Actor {
    world: Arc<World>,
    http: Client,
    me: usize,
    /// Tells this client's contents, notes and keys from those of the others.
    label: String,
    count: usize,
    random: Random,
    places: Vec<watch::Receiver<SocketAddr>>,
}

impl Actor {
    fn fresh(&mut self) -> String {
        self.count += 1;
        format!("{}-{}", self.label, self.count)
    }

    /// One request to some replica. With a key it is repeated until it is answered.
    async fn ask(&mut self, method: Method, path: &str, body: Option<Value>, key: Option<&str>) -> Outcome {
        loop {
            let replica = self.random.below(self.places.len());
            let address = *self.places[replica].borrow_and_update();
            let url = format!("http://{address}{path}");
            let mut request =
                self.http.request(method.clone(), url).header("X-API-Key", &self.world.agents[self.me].key);
            if let Some(body) = &body {
                request = request.json(body);
            }
            if let Some(key) = key {
                request = request.header("Idempotency-Key", key);
            }
            let answer = match request.send().await {
                Ok(response) => Answer::read(response).await,
                Err(error) => Err(error),
            };
            match answer {
                Ok(answer) if answer.status.is_success() => return Outcome::Done(answer.body),
                Ok(answer) if answer.status == StatusCode::SERVICE_UNAVAILABLE => {
                    answer.problem(503, "unavailable");
                    tokio::task::yield_now().await;
                }
                Ok(answer) => {
                    let expected = [StatusCode::CONFLICT, StatusCode::NOT_FOUND];
                    assert!(expected.contains(&answer.status), "{method} {path}: {} {}", answer.status, answer.body);
                    return Outcome::Refused;
                }
                // The server was killed: its successor has another address.
                Err(_) if self.places.len() == 1 => {
                    let place = &mut self.places[0];
                    soon(place.wait_for(|now| *now != address)).await.unwrap();
                }
                Err(_) => {}
            }
            if key.is_none() {
                return Outcome::Unknown;
            }
        }
    }

    /// A document that is only read: asked for until it is answered.
    async fn look(&mut self, path: &str) -> Value {
        loop {
            match self.ask(Method::GET, path, None, None).await {
                Outcome::Done(document) => return document,
                Outcome::Refused => return Value::Null,
                Outcome::Unknown => {}
            }
        }
    }

    async fn post(&mut self, path: &str, body: Value) -> Outcome {
        self.ask(Method::POST, path, Some(body), None).await
    }

    async fn run(mut self) {
        while !self.world.stop.load(Ordering::SeqCst) {
            match self.random.below(10) {
                0..=2 => self.send(false).await,
                3..=4 => self.send(true).await,
                5..=6 => self.move_task().await,
                7 => self.ack().await,
                8 => self.claim().await,
                _ => self.read().await,
            }
            self.world.answered.fetch_add(1, Ordering::SeqCst);
            self.world.progress.notify_waiters();
        }
    }

    async fn send(&mut self, task: bool) {
        let to = (self.me + 1 + self.random.below(AGENTS - 1)) % AGENTS;
        let content = self.fresh();
        let kind = if task { "task" } else { "message" };
        let subject = format!("Subject {}", self.random.below(2));
        let body = json!({"to": self.world.agents[to].name, "subject": subject, "content": content, "kind": kind});
        let key = (self.random.below(3) > 0).then(|| content.clone());
        let outcome = self.ask(Method::POST, "/messages/send", Some(body), key.as_deref()).await;
        self.world.told.lock().unwrap().sends.push((self.me, content, to, task, outcome));
    }

    async fn move_task(&mut self) {
        let open = self.look("/tasks?owned=false&open=true&limit=20").await;
        let open = open["tasks"].as_array().cloned().unwrap_or_default();
        if open.is_empty() {
            return;
        }
        let id = open[self.random.below(open.len())]["id"].as_str().unwrap().to_owned();
        let states =
            [TaskState::Accepted, TaskState::Working, TaskState::Completed, TaskState::Failed, TaskState::Rejected];
        let state = states[self.random.below(states.len())];
        let note = self.fresh();
        let outcome = self.post(&format!("/tasks/{id}/state"), json!({"state": state, "note": note})).await;
        self.world.told.lock().unwrap().moves.push((id, note, state, outcome));
    }

    async fn unread(&mut self) -> Option<String> {
        let page = self.look("/messages?unread=true&limit=20").await;
        let page = page["messages"].as_array()?;
        (!page.is_empty()).then(|| page[self.random.below(page.len())]["id"].as_str().unwrap().to_owned())
    }

    async fn ack(&mut self) {
        let Some(id) = self.unread().await else { return };
        let outcome = self.post("/messages/ack", json!({"message_ids": [id]})).await;
        self.world.told.lock().unwrap().acks.push((id, outcome));
    }

    async fn claim(&mut self) {
        let Outcome::Done(taken) = self.post("/messages/claim", json!({"limit": 3, "lease_seconds": 3600})).await
        else {
            return;
        };
        for message in taken["messages"].as_array().unwrap() {
            let id = message["id"].as_str().unwrap().to_owned();
            self.world.told.lock().unwrap().claims.push(id.clone());
            if self.random.below(2) == 0 {
                self.world.told.lock().unwrap().releases.push(id.clone());
                self.post("/messages/release", json!({"message_ids": [id]})).await;
            } else {
                let outcome = self.post("/messages/ack", json!({"message_ids": [id]})).await;
                self.world.told.lock().unwrap().acks.push((id, outcome));
            }
        }
    }

    async fn read(&mut self) {
        let inbox = self.look("/inbox").await;
        let sessions = inbox["sessions"].as_array().cloned().unwrap_or_default();
        if !sessions.is_empty() {
            let session = sessions[self.random.below(sessions.len())]["session_id"].as_str().unwrap().to_owned();
            self.look(&format!("/sessions/{session}/history?limit=3")).await;
        }
    }
}

/// The replicas under test, and how another one is started in the place of one that was killed.
struct Offices {
    database_url: String,
    nats: Option<NatsServer>,
    running: Vec<Office>,
}

impl Offices {
    async fn start(database_url: String, nats: Option<NatsServer>, replicas: usize) -> Self {
        let mut offices = Self { database_url, nats, running: Vec::new() };
        for _ in 0..replicas {
            offices.running.push(offices.another().await);
        }
        offices
    }

    async fn another(&self) -> Office {
        let mut command = serve_command(&self.database_url);
        if let Some(nats) = &self.nats {
            command.args(["--nats-url", &nats.url()]);
        }
        Office::start_with(command).await
    }

    /// Kills one replica and starts another in its place.
    async fn replace(&mut self, which: usize) {
        self.running.remove(which).kill().await;
        let fresh = self.another().await;
        self.running.insert(which, fresh);
    }
}

/// Half the kills of the other tests: each history is read whole, by everybody, at the end.
fn kills() -> usize {
    rounds().div_ceil(2)
}

async fn histories(mut offices: Offices) {
    let seed = std::env::var("AMB_HISTORY_SEED").map_or_else(|_| uuid_seed(), |seed| seed.parse().unwrap());
    println!("AMB_HISTORY_SEED={seed}");
    let office = &offices.running[0];
    let mut agents = Vec::new();
    for number in 0..AGENTS {
        let agent = office.register(&format!("agent-{number}")).await;
        let quota = if number + 1 == AGENTS { SMALL_QUOTA } else { 100_000 };
        let card = json!({"max_concurrent_tasks": quota});
        office.call(Method::PATCH, "/agents/me", Some(&agent.key), Some(&card)).await.expect(200);
        for other in &agents {
            office.connect(&agent, other).await;
        }
        agents.push(agent);
    }
    let world = Arc::new(World {
        places: offices.running.iter().map(|office| watch::Sender::new(office.address)).collect(),
        agents,
        told: Mutex::default(),
        answered: AtomicUsize::new(0),
        progress: Notify::new(),
        stop: AtomicBool::new(false),
    });
    let mut actors = Vec::new();
    for number in 0..AGENTS * CLIENTS {
        let actor = Actor {
            world: world.clone(),
            http: client(),
            me: number % AGENTS,
            label: format!("c{number}"),
            count: 0,
            random: Random(seed ^ number as u64),
            places: world.places.iter().map(watch::Sender::subscribe).collect(),
        };
        actors.push(tokio::spawn(actor.run()));
    }
    for round in 0..kills() {
        advance(&world, 5 + round * 37 % 120).await;
        let which = round % offices.running.len();
        offices.replace(which).await;
        world.places[which].send_replace(offices.running[which].address);
    }
    advance(&world, 100).await;
    world.stop.store(true, Ordering::SeqCst);
    for actor in actors {
        soon(actor).await.unwrap();
    }
    let told = std::mem::take(&mut *world.told.lock().unwrap());
    check(&offices.running[0], &world.agents, &told).await;
    println!("{} kills, {} sends, {} moves, {} acks", kills(), told.sends.len(), told.moves.len(), told.acks.len());
    for office in offices.running {
        office.terminate();
        assert!(office.ended().await.success());
    }
}

/// Waits until so many more requests were carried out.
async fn advance(world: &World, requests: usize) {
    let goal = world.answered.load(Ordering::SeqCst) + requests;
    soon(async {
        loop {
            let progress = world.progress.notified();
            if world.answered.load(Ordering::SeqCst) >= goal {
                return;
            }
            progress.await;
        }
    })
    .await;
}

fn uuid_seed() -> u64 {
    amb_core::Timestamp::now().as_nanosecond() as u64
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_clients_were_told_is_what_everybody_sees_after_kills_on_sqlite() {
    let file = SqliteFile::fresh();
    histories(Offices::start(file.url(), None, 1).await).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_clients_were_told_is_what_everybody_sees_after_kills_on_postgres() {
    let database = PostgresDatabase::fresh().await;
    histories(Offices::start(database.url(), None, 1).await).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_clients_were_told_is_what_everybody_sees_after_kills_of_two_replicas() {
    let database = PostgresDatabase::fresh().await;
    histories(Offices::start(database.url(), Some(NatsServer::start()), 2).await).await;
}
