//! Load that survives its server: senders that note what was answered, listeners that resume where they were.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;

use futures_util::StreamExt;
use reqwest::Client;
use serde_json::{Value, json};
use tokio::sync::{Notify, watch};
use tokio::task::JoinHandle;
use tokio_tungstenite::tungstenite::Message;

use crate::server_office::{Agent, Answer, Office, client, connect_socket, soon};

const PAIRS: usize = 8;

/// What one sender knows.
#[derive(Debug, Default)]
struct Log {
    /// Contents in the order in which they were sent first, with the id where the send was answered.
    sends: Vec<(String, Option<String>)>,
    session: Option<String>,
}

struct Shared {
    /// Where each replica is now; it may be gone already.
    places: Vec<watch::Sender<SocketAddr>>,
    answered: AtomicUsize,
    /// Somebody was answered.
    progress: Notify,
    stop: AtomicBool,
    /// Returns other than success and 503.
    odd: std::sync::Mutex<Vec<String>>,
    unavailable: AtomicUsize,
}

/// Senders and listeners at work.
pub(crate) struct Load {
    shared: Arc<Shared>,
    pairs: Vec<(Agent, Agent)>,
    senders: Vec<JoinHandle<Log>>,
    listeners: Vec<JoinHandle<Vec<Value>>>,
    /// How far each listener shall go; known at the end.
    ends: Vec<watch::Sender<Option<u64>>>,
}

impl Load {
    /// Pairs of agents; in each one sends and the other listens. Every second sender repeats what was not answered,
    /// under one Idempotency-Key; the others go on to the next message. With several replicas each message goes to
    /// another, and whoever finds one gone turns to the next.
    pub(crate) async fn begin(offices: &[&Office]) -> Self {
        let shared = Arc::new(Shared {
            places: offices.iter().map(|office| watch::Sender::new(office.address)).collect(),
            answered: AtomicUsize::new(0),
            progress: Notify::new(),
            stop: AtomicBool::new(false),
            odd: Default::default(),
            unavailable: AtomicUsize::new(0),
        });
        let mut load = Self { shared, pairs: Vec::new(), senders: Vec::new(), listeners: Vec::new(), ends: Vec::new() };
        for number in 0..PAIRS {
            let (from, to) = offices[0].pair(number).await;
            let end = watch::Sender::new(None);
            load.senders.push(tokio::spawn(send(load.shared.clone(), from.clone(), to.clone(), number % 2 == 0)));
            load.listeners.push(tokio::spawn(listen(load.shared.clone(), to.clone(), number / 2, end.subscribe())));
            load.ends.push(end);
            load.pairs.push((from, to));
        }
        load
    }

    /// Waits until this many sends more were answered with success.
    pub(crate) async fn advance(&self, sends: usize) {
        let goal = self.shared.answered.load(Ordering::SeqCst) + sends;
        soon(async {
            loop {
                let progress = self.shared.progress.notified();
                if self.shared.answered.load(Ordering::SeqCst) >= goal {
                    return;
                }
                progress.await;
            }
        })
        .await;
    }

    /// Waits until somebody was told that the office cannot take mail now.
    pub(crate) async fn is_refused(&self) {
        let before = self.shared.unavailable.load(Ordering::SeqCst);
        soon(async {
            loop {
                let progress = self.shared.progress.notified();
                if self.shared.unavailable.load(Ordering::SeqCst) > before {
                    return;
                }
                progress.await;
            }
        })
        .await;
    }

    /// This replica is somewhere else now.
    pub(crate) fn moved_to(&self, replica: usize, office: &Office) {
        self.shared.places[replica].send_replace(office.address);
    }

    /// Ends the load, and checks the promises against what the office has. Returns how many sends were answered.
    pub(crate) async fn check(self, office: &Office) -> usize {
        self.shared.stop.store(true, Ordering::SeqCst);
        let mut logs = Vec::new();
        for sender in self.senders {
            logs.push(soon(sender).await.unwrap());
        }
        assert_eq!(*self.shared.odd.lock().unwrap(), Vec::<String>::new(), "answers other than success and 503");
        let mut answered = 0;
        for (number, ((pair, log), listener)) in self.pairs.iter().zip(&logs).zip(self.listeners).enumerate() {
            let (from, to) = pair;
            let session = log.session.as_ref().expect("at least one send was answered");
            let kept = office.history(from, session).await;
            check_history(log, &kept, number % 2 == 0);
            // Everything that is in the log was told, in order, once.
            let head = office.get(to, "/events").await.expect(200)["cursor"].as_u64().unwrap();
            self.ends[number].send_replace(Some(head));
            let heard = soon(listener).await.unwrap();
            check_events(&heard, head, &kept);
            answered += log.sends.iter().filter(|(_, id)| id.is_some()).count();
        }
        answered
    }
}

/// What was answered is there once, in order; what was not is there once at most, and nothing else is there.
fn check_history(log: &Log, kept: &[(String, String)], repeats: bool) {
    let mut kept = kept.iter();
    let mut next = kept.next();
    for (content, id) in &log.sends {
        match (next, id) {
            (Some((kept_id, kept_content)), _) if kept_content == content => {
                if let Some(id) = id {
                    assert_eq!(id, kept_id, "{content} was answered with another id");
                }
                next = kept.next();
            }
            (_, None) if !repeats => {}
            (found, _) => {
                panic!("{content} was sent (answered with {id:?}), but the office has {found:?} in its place")
            }
        }
    }
    assert_eq!(next, None, "the office has more than was sent, or in another order");
}

fn check_events(heard: &[Value], head: u64, kept: &[(String, String)]) {
    let cursors: Vec<u64> = heard.iter().map(|entry| entry["cursor"].as_u64().unwrap()).collect();
    assert_eq!(cursors, (1..=head).collect::<Vec<_>>(), "an event was missed or doubled");
    let mail: Vec<&str> = heard
        .iter()
        .filter(|entry| entry["type"] == "new_message")
        .map(|entry| entry["message_id"].as_str().unwrap())
        .collect();
    let ids: Vec<&str> = kept.iter().map(|(id, _)| id.as_str()).collect();
    assert_eq!(mail, ids, "the events are not the session's messages in order");
}

async fn send(shared: Arc<Shared>, from: Agent, to: Agent, repeats: bool) -> Log {
    let http = client();
    let mut log = Log::default();
    let mut places: Vec<_> = shared.places.iter().map(watch::Sender::subscribe).collect();
    let replicas = places.len();
    let mut replica = 0;
    for number in 0.. {
        let content = format!("{}-{number}", from.name);
        let body = json!({"to": to.name, "subject": "Load", "content": content});
        let key = repeats.then_some(content.as_str());
        let mut id = None;
        while id.is_none() {
            replica = (replica + 1) % replicas;
            let place = &mut places[replica];
            let address = *place.borrow_and_update();
            match attempt(&http, address, &from, key, &body).await {
                Ok(answer) if answer.status == 201 => {
                    id = Some(answer.body["message_id"].as_str().unwrap().to_owned());
                    log.session = Some(answer.body["session_id"].as_str().unwrap().to_owned());
                    shared.answered.fetch_add(1, Ordering::SeqCst);
                }
                Ok(answer) if answer.status == 503 => {
                    answer.problem(503, "unavailable");
                    shared.unavailable.fetch_add(1, Ordering::SeqCst);
                    shared.progress.notify_waiters();
                    // Not a wait for something to be up: a client that is told to come later does.
                    tokio::time::sleep(Duration::from_millis(20)).await;
                    if !repeats {
                        break;
                    }
                }
                Ok(answer) => {
                    shared.odd.lock().unwrap().push(format!("{}: {}", answer.status, answer.body));
                    return log;
                }
                // Not answered: the server died. Go on where there is another.
                Err(_) => {
                    if replicas == 1 && *place.borrow() == address {
                        soon(place.changed()).await.unwrap();
                    }
                    if !repeats {
                        break;
                    }
                }
            }
        }
        log.sends.push((content, id));
        shared.progress.notify_waiters();
        if shared.stop.load(Ordering::SeqCst) {
            break;
        }
    }
    log
}

async fn attempt(
    http: &Client,
    address: SocketAddr,
    from: &Agent,
    key: Option<&str>,
    body: &Value,
) -> reqwest::Result<Answer> {
    let mut request = http.post(format!("http://{address}/messages/send")).header("X-API-Key", &from.key).json(body);
    if let Some(key) = key {
        request = request.header("Idempotency-Key", key);
    }
    Answer::read(request.send().await?).await
}

/// Hears everything from the beginning of the agent's log to its end, over as many sockets as it takes.
async fn listen(
    shared: Arc<Shared>,
    agent: Agent,
    mut replica: usize,
    mut end: watch::Receiver<Option<u64>>,
) -> Vec<Value> {
    let mut heard: Vec<Value> = Vec::new();
    let mut cursor = 0;
    let mut places: Vec<_> = shared.places.iter().map(watch::Sender::subscribe).collect();
    loop {
        replica = (replica + 1) % places.len();
        let place = &mut places[replica];
        let address = *place.borrow_and_update();
        if let Ok(mut socket) = connect_socket(address, &agent, cursor).await {
            loop {
                if end.borrow().is_some_and(|end| cursor >= end) {
                    return heard;
                }
                let said = tokio::select! {
                    said = socket.next() => said,
                    _ = end.changed() => continue,
                };
                match said {
                    Some(Ok(Message::Text(text))) => {
                        let entry: Value = serde_json::from_str(&text).unwrap();
                        cursor = entry["cursor"].as_u64().unwrap();
                        heard.push(entry);
                    }
                    Some(Ok(Message::Close(_)) | Err(_)) | None => break,
                    Some(Ok(_)) => {}
                }
            }
        }
        // The socket ended: there is another server, or the same one could not read its log for a moment.
        let _ = tokio::time::timeout(Duration::from_millis(50), place.changed()).await;
    }
}
