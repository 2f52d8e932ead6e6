//! The time of a search for an agent with 10,000 messages among a million of others.
//!
//! `cargo bench -p amb-store --bench search [-- DATABASE_URL [MESSAGES [fill]]]`. Without a URL: SQLite in a temporary
//! directory. An empty database is filled first; with `fill` nothing else is done. A database that an earlier run
//! filled is used as it is, so that the same mail can be measured on both backends after `amb move`.

#![allow(clippy::unwrap_used, clippy::print_stdout)]

use std::sync::Arc;
use std::time::{Duration, Instant};

use amb_core::mailbox::SearchQuery;
use amb_core::{Card, Draft, Timestamp};
use amb_store::{Agent, Ask, KeyHash, NewAgent, Store};
use amb_testing::SqliteFile;
use tokio::task::JoinSet;

/// Messages of the searching agent, and of each pair of the others.
const MINE: usize = 10_000;
const OTHERS_EACH: usize = 1_000;
/// Agents that exchange mail with the searching agent.
const PEERS: usize = 20;
/// Concurrent sends.
const TOGETHER: usize = 512;
/// The number of different words, and of words in a text.
const WORDS: u64 = 20_000;
const LENGTH: usize = 30;
/// Runs of each search.
const TIMES: usize = 50;

#[tokio::main]
async fn main() {
    let arguments: Vec<String> = std::env::args().skip(1).filter(|argument| argument != "--bench").collect();
    let file = SqliteFile::fresh();
    let url = arguments.first().filter(|url| *url != "-").cloned().unwrap_or_else(|| file.url());
    let messages: usize = arguments.get(1).map_or(1_000_000, |text| text.parse().unwrap());
    let store = amb_store::open(&url).await.unwrap();
    let me = match store.agent_by_name(&"searcher".parse().unwrap()).await.unwrap() {
        Some(me) => me,
        None => fill(&store, messages).await,
    };
    if arguments.get(2).is_none_or(|word| word != "fill") {
        let begun = Instant::now();
        let mut indexed = 0;
        loop {
            match store.index_mail().await.unwrap() {
                0 => break,
                some => indexed += some,
            }
        }
        println!("indexed {indexed} entries in {:.0} s", begun.elapsed().as_secs_f64());
        measure(&store, &me).await;
    }
    store.close().await;
}

/// A pseudo-random generator with a fixed seed.
struct Dice(u64);

impl Dice {
    fn roll(&mut self, most: u64) -> u64 {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) % most
    }

    /// Returns a word; some are far more frequent than others.
    fn word(&mut self) -> String {
        let most = self.roll(WORDS) + 1;
        format!("word{}", self.roll(most))
    }

    fn text(&mut self, more: &str) -> String {
        let words: Vec<_> = (0..LENGTH).map(|_| self.word()).collect();
        format!("{} {more}", words.join(" "))
    }
}

async fn fill(store: &Arc<dyn Store>, messages: usize) -> Agent {
    let begun = Instant::now();
    let me = enter(store, "searcher").await;
    let mut mine = Vec::new();
    for n in 0..PEERS {
        let peer = enter(store, &format!("peer-{n}")).await;
        connect(store, &me, &peer).await;
        mine.push(peer);
    }
    let mut others = Vec::new();
    for n in 0..messages.saturating_sub(MINE).div_ceil(OTHERS_EACH) {
        let (left, right) = (enter(store, &format!("left-{n}")).await, enter(store, &format!("right-{n}")).await);
        connect(store, &left, &right).await;
        others.push((left, right));
    }
    let mut dice = Dice(7);
    let mut sends = JoinSet::new();
    let rounds = OTHERS_EACH;
    for round in 0..rounds {
        let mut drafts = Vec::new();
        for n in 0..MINE / rounds {
            let number = round * (MINE / rounds) + n;
            let peer = &mine[number % PEERS];
            let (from, to) = if number.is_multiple_of(2) { (&me, peer) } else { (peer, &me) };
            // `everywhere` is in all mail; `theirs` in half of everybody else's, and in ten of mine.
            let more =
                if number % 1_000 == 500 { "everywhere theirs quick brown fox" } else { "everywhere quick fox brown" };
            drafts.push((from.clone(), Draft::text(to.name.clone(), format!("Topic {}", number % 7), dice.text(more))));
        }
        for (n, (left, right)) in others.iter().enumerate() {
            let more = if (round + n) % 2 == 0 { "everywhere theirs" } else { "everywhere" };
            let (from, to) = if round % 3 == 0 { (right, left) } else { (left, right) };
            drafts.push((from.clone(), Draft::text(to.name.clone(), format!("Topic {}", round % 7), dice.text(more))));
        }
        for (from, draft) in drafts {
            let store = store.clone();
            sends.spawn(async move { store.send(&from, draft, Timestamp::now()).await });
            if sends.len() >= TOGETHER {
                sends.join_next().await.unwrap().unwrap().unwrap();
            }
        }
    }
    while let Some(sent) = sends.join_next().await {
        sent.unwrap().unwrap();
    }
    println!("filled with {messages} messages in {:.0} s", begun.elapsed().as_secs_f64());
    me
}

async fn enter(store: &Arc<dyn Store>, name: &str) -> Agent {
    let new = NewAgent {
        key_hash: KeyHash::of(name),
        name: name.parse().unwrap(),
        key_prefix: "amb_0000".into(),
        owner_contact: None,
        card: Card::default(),
        join: None,
    };
    store.register_agent(new, Timestamp::now()).await.unwrap().answer
}

async fn connect(store: &Arc<dyn Store>, from: &Agent, to: &Agent) {
    let asked = store.request_connection(from, Ask::new(to.name.clone(), None), Timestamp::now()).await.unwrap();
    store.approve_connection(to, &asked.answer.verification_code, Timestamp::now()).await.unwrap();
}

async fn measure(store: &Arc<dyn Store>, me: &Agent) {
    let text = |text: &str| SearchQuery { text: text.into(), ..SearchQuery::default() };
    let peer = Some("peer-3".parse().unwrap());
    // A moment in the middle of the agent's own mail.
    let page = store.messages(me, amb_store::MessageQuery { limit: 1, ..Default::default() }).await.unwrap();
    let newest = page.messages[0].message.sent_at;
    let hour = newest - jiff::SignedDuration::from_secs(1);
    let looks = [
        ("one rare word", text("word19990")),
        ("one usual word", text("word900")),
        ("a word in all mail of everybody", text("everywhere")),
        ("a word in half of theirs, in ten of mine", text("theirs")),
        ("two words, one in all mail", text("everywhere word900")),
        ("a phrase in all of mine", text("\"quick fox\"")),
        ("a phrase in ten of mine", text("\"quick brown fox\"")),
        ("a word that is nowhere", text("nowhere")),
        ("from one peer, a usual word", SearchQuery { from: peer.clone(), ..text("word900") }),
        ("from one peer, no word", SearchQuery { from: peer, ..text("") }),
        ("a subject, no word", SearchQuery { subject: Some("topic 3".into()), ..text("") }),
        ("a subject, a word in all mail", SearchQuery { subject: Some("topic 3".into()), ..text("everywhere") }),
        ("in the last second of it all", SearchQuery { after: Some(hour), ..text("everywhere") }),
        ("before the last second", SearchQuery { before: Some(hour), ..text("word900") }),
        ("all of mine, newest first", text("")),
    ];
    println!("{:<44} {:>5} {:>9} {:>9}", "search", "hits", "p50 ms", "p99 ms");
    for (what, query) in looks {
        let mut times = Vec::with_capacity(TIMES);
        let mut hits = 0;
        for _ in 0..TIMES {
            let begun = Instant::now();
            hits = store.search(me, query.clone()).await.unwrap().len();
            times.push(begun.elapsed());
        }
        times.sort();
        let at = |share: f64| times[((TIMES as f64 * share) as usize).min(TIMES - 1)];
        println!("{what:<44} {hits:>5} {:>9.2} {:>9.2}", millis(at(0.5)), millis(at(0.99)));
    }
}

fn millis(time: Duration) -> f64 {
    time.as_secs_f64() * 1_000.0
}
