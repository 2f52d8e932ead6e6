//! Sends, inboxes and histories per second, with 64 callers in 32 pairs.
//!
//! `cargo bench -p amb-store [-- SECONDS [DATABASE_URL [MESSAGES]]]`. Without a URL: SQLite in a temporary directory.
//! MESSAGES are sent first, to check that the rates do not depend on the amount of mail.

#![allow(clippy::unwrap_used, clippy::print_stdout)]

use std::future::Future;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use amb_core::mailbox::HistoryPage;
use amb_core::{Card, Draft, SessionId, Timestamp};
use amb_store::{Agent, Ask, KeyHash, NewAgent, Store};
use amb_testing::SqliteFile;

const CALLERS: usize = 64;

#[tokio::main]
async fn main() {
    let arguments: Vec<String> = std::env::args().skip(1).filter(|argument| argument != "--bench").collect();
    let seconds = arguments.first().map_or(3.0, |text| text.parse().unwrap());
    let file = SqliteFile::fresh();
    let url = arguments.get(1).filter(|url| *url != "-").cloned().unwrap_or_else(|| file.url());
    let store = amb_store::open(&url).await.unwrap();
    let pairs = pairs(&store).await;

    let before: usize = arguments.get(2).map_or(0, |text| text.parse().unwrap());
    let each = before / CALLERS;
    let tasks = (0..CALLERS).map(|n| {
        let (store, (from, to, _)) = (store.clone(), pairs[n].clone());
        tokio::spawn(async move {
            for _ in 0..each {
                send(&store, &from, &to).await;
            }
        })
    });
    for task in tasks.collect::<Vec<_>>() {
        task.await.unwrap();
    }

    let rate =
        measure(seconds, &store, &pairs, |store, (from, to, _)| async move { send(&store, &from, &to).await }).await;
    println!("send        {rate:>9.0}/s");
    let rate = measure(seconds, &store, &pairs, |store, (_, to, _)| async move {
        store.inbox(&to, false, Timestamp::now()).await.unwrap();
    })
    .await;
    println!("inbox       {rate:>9.0}/s");
    let rate = measure(seconds, &store, &pairs, |store, (_, to, session)| async move {
        store.history(&to, &session, HistoryPage::newest(20).unwrap(), Timestamp::now()).await.unwrap();
    })
    .await;
    println!("history(20) {rate:>9.0}/s");
    store.close().await;
}

type Pair = (Agent, Agent, SessionId);

async fn send(store: &Arc<dyn Store>, from: &Agent, to: &Agent) {
    let draft = Draft::text(to.name.clone(), "Bench", "x".repeat(200));
    store.send(from, draft, Timestamp::now()).await.unwrap();
}

/// Returns 32 pairs of connected agents, each pair in both directions.
async fn pairs(store: &Arc<dyn Store>) -> Vec<Pair> {
    let now = Timestamp::now();
    let mut pairs = Vec::new();
    for n in 0..CALLERS / 2 {
        let mut sides = Vec::new();
        for side in ["left", "right"] {
            let name = format!("{side}-{n}-{}", now.as_microsecond());
            let new = NewAgent {
                key_hash: KeyHash::of(&name),
                name: name.parse().unwrap(),
                key_prefix: "amb_0000".into(),
                owner_contact: None,
                card: Card::default(),
                join: None,
            };
            sides.push(store.register_agent(new, now).await.unwrap().answer);
        }
        let (left, right) = (sides[0].clone(), sides[1].clone());
        let asked = store.request_connection(&left, Ask::new(right.name.clone(), None), now).await.unwrap();
        store.approve_connection(&right, &asked.answer.verification_code, now).await.unwrap();
        let draft = Draft::text(right.name.clone(), "Bench", "first");
        let session = store.send(&left, draft, now).await.unwrap().answer.session_id;
        pairs.push((left.clone(), right.clone(), session.clone()));
        pairs.push((right, left, session));
    }
    pairs
}

/// Runs `work` concurrently for all callers until the time is over. Returns the rate per second.
async fn measure<F, W>(seconds: f64, store: &Arc<dyn Store>, pairs: &[Pair], work: W) -> f64
where
    F: Future<Output = ()> + Send + 'static,
    W: Fn(Arc<dyn Store>, Pair) -> F + Copy + Send + Sync + 'static,
{
    let done = Arc::new(AtomicU64::new(0));
    let start = Instant::now();
    let tasks = (0..CALLERS).map(|n| {
        let (store, pair, done) = (store.clone(), pairs[n].clone(), done.clone());
        tokio::spawn(async move {
            while start.elapsed() < Duration::from_secs_f64(seconds) {
                work(store.clone(), pair.clone()).await;
                done.fetch_add(1, Ordering::Relaxed);
            }
        })
    });
    for task in tasks.collect::<Vec<_>>() {
        task.await.unwrap();
    }
    done.load(Ordering::Relaxed) as f64 / start.elapsed().as_secs_f64()
}
