//! From "the office has accepted it" to "the runtime's turn begins": how long mail waits in a bridge.
//!
//! On the office in memory and in a directory; on a server too where `AMB` names the binary to start one with.
#![allow(clippy::unwrap_used, clippy::print_stdout, reason = "a program for people that measure")]

use std::io::BufRead;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::time::{Duration, Instant};

use amb_bridge::{Bridge, BridgeOptions, Ledger, Runtime, Turn, TurnError, TurnOutcome};
use amb_client::{Client, ServerUrl};
use amb_core::doc::RegisterBody;
use amb_core::{AgentName, Card, Draft, Mailbox};
use amb_dir::{DirOffice, DirOptions};
use amb_testing::memory::MemoryOffice;
use async_trait::async_trait;
use tokio::sync::mpsc;

const MAILS: usize = 200;

/// Says when a turn begins, and answers nothing.
struct Clock(mpsc::Sender<Instant>);

#[async_trait]
impl Runtime for Clock {
    fn describe(&self) -> String {
        "clock".into()
    }

    async fn turn(&self, _turn: &Turn) -> Result<TurnOutcome, TurnError> {
        let _ = self.0.send(Instant::now()).await;
        Ok(TurnOutcome::NoReply)
    }
}

async fn measure(what: &str, ann: &dyn Mailbox, ben: Arc<dyn Mailbox>, state: &Path) {
    let (begun, mut begins) = mpsc::channel(1);
    let ledger = Ledger::open(&state.join(what)).unwrap();
    let (to, stop) = (ben.me().clone(), Arc::new(tokio::sync::Notify::new()));
    let stopped = Arc::clone(&stop);
    let options = BridgeOptions { concurrency: 1, ..BridgeOptions::default() };
    let bridge = Bridge::new(ben, Arc::new(Clock(begun)), ledger, options);
    let running = tokio::spawn(bridge.run(async move { stopped.notified().await }));
    let mut waits = Vec::with_capacity(MAILS);
    for number in 0..MAILS + 10 {
        ann.send(Draft::text(to.clone(), "latency", format!("mail {number}"))).await.unwrap();
        let accepted = Instant::now();
        let begun = begins.recv().await.unwrap();
        // The first few find cold files and connections.
        if number >= 10 {
            waits.push(begun.saturating_duration_since(accepted));
        }
        // One at a time, with the bridge back at its wait.
        tokio::time::sleep(Duration::from_millis(15)).await;
    }
    stop.notify_one();
    running.await.unwrap().unwrap();
    waits.sort();
    let at = |part: usize| waits[(waits.len() * part / 100).min(waits.len() - 1)].as_secs_f64() * 1e3;
    println!("{what:<10} p50 {:7.2} ms   p90 {:7.2} ms   p99 {:7.2} ms   of {MAILS}", at(50), at(90), at(99));
}

/// `amb serve` in a directory of its own.
struct Server(Child);

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

fn serve(amb: &str, state: &Path) -> (Server, ServerUrl) {
    let database = format!("sqlite:{}", state.join("office.db").display());
    let arguments = ["serve", "--listen", "127.0.0.1:0", "--database-url", &database, "--rate-limits", "off"];
    let mut child = Command::new(amb).args(arguments).env("HOME", state).stdout(Stdio::piped()).spawn().unwrap();
    let mut line = String::new();
    std::io::BufReader::new(child.stdout.take().unwrap()).read_line(&mut line).unwrap();
    (Server(child), line.trim().rsplit(' ').next().unwrap().parse().unwrap())
}

async fn mailbox(server: &ServerUrl, name: &AgentName) -> Client {
    let registered = amb_client::register(server, &RegisterBody::new(name, Card::default())).await.unwrap();
    Client::open(server.clone(), registered.api_key).await.unwrap()
}

#[tokio::main]
async fn main() {
    let state = tempfile::tempdir().unwrap();
    let (ann, ben): (AgentName, AgentName) = ("ann".parse().unwrap(), "ben".parse().unwrap());

    let office = MemoryOffice::new();
    measure("memory", &office.mailbox(ann.clone()), Arc::new(office.mailbox(ben.clone())), state.path()).await;

    let office = DirOffice::open(&state.path().join("mail"), DirOptions::default()).unwrap();
    for name in [&ann, &ben] {
        office.mailbox(name.clone()).register(Card::default()).await.unwrap();
    }
    measure("directory", &office.mailbox(ann.clone()), Arc::new(office.mailbox(ben.clone())), state.path()).await;

    if let Ok(amb) = std::env::var("AMB") {
        let (_server, url) = serve(&amb, state.path());
        let (her, him) = (mailbox(&url, &ann).await, mailbox(&url, &ben).await);
        let request = her.connect(&ben, None).await.unwrap();
        let code = request.verification_code.clone();
        him.approve(&code).await.unwrap();
        measure("server", &her, Arc::new(him), state.path()).await;
    }
}
