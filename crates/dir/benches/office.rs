//! What the office in a directory costs, as ratios measured in one run on one file system.
//!
//! `cargo bench -p amb-dir --bench office [DIRECTORY]`; the directory decides the file system.
#![allow(clippy::unwrap_used, clippy::print_stdout, reason = "a benchmark may fail by panicking, and prints its table")]

use std::fs::File;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

use amb_core::{AgentName, Card, Draft, Mailbox};
use amb_dir::{DirOffice, DirOptions, Layout, doctor};
use tempfile::TempDir;

/// Sends in one measurement. Measurements alternate, so that a slow moment of the disk hits all alike.
const SENDS: usize = 200;
const ROUNDS: usize = 3;

fn name(text: &str) -> AgentName {
    AgentName::parse(text).unwrap()
}

fn open(root: &Path, layout: Layout) -> DirOffice {
    DirOffice::open(root, DirOptions { layout: Some(layout), ..DirOptions::default() }).unwrap()
}

fn draft() -> Draft {
    Draft::text(name("bob"), "Plan", "the quick brown fox jumps over the lazy dog ".repeat(8))
}

/// What any durable write of one file costs: write, sync, rename, sync the directory.
fn bare(root: &Path, count: usize, who: usize) {
    let body = vec![b'x'; 700];
    for n in 0..count {
        let (temp, path) = (root.join(format!(".{who}-{n}.tmp")), root.join(format!("{who}-{n}.json")));
        let mut file = File::options().write(true).create_new(true).open(&temp).unwrap();
        file.write_all(&body).unwrap();
        file.sync_all().unwrap();
        fs_err::rename(&temp, &path).unwrap();
        fs_err::File::open(root).unwrap().sync_all().unwrap();
    }
}

/// What the two descriptions do in Python: nanobot's writes and renames, the chipset's also syncs the file.
const PYTHON: &str = r#"
import json, os, sys, time
root, count, sync = sys.argv[1], int(sys.argv[2]), sys.argv[3] == "sync"
os.makedirs(root, exist_ok=True)
begin = time.perf_counter()
for n in range(count):
    body = json.dumps({"from": "ann", "to": "bob", "type": "message", "ttl": 3, "trace": ["ann"], "id": f"msg_{n}_ann",
        "content": {"parts": [{"type": "text", "text": "the quick brown fox jumps over the lazy dog " * 8}]}}, sort_keys=True)
    temporary = os.path.join(root, ".msg.tmp")
    with open(temporary, "w") as file:
        file.write(body)
        file.flush()
        if sync:
            os.fsync(file.fileno())
    os.rename(temporary, os.path.join(root, f"{n}_ann.msg.json"))
print(time.perf_counter() - begin)
"#;

fn python(root: &Path, sync: &str) -> Option<f64> {
    let output =
        Command::new("python3").args(["-c", PYTHON]).arg(root).arg(SENDS.to_string()).arg(sync).output().ok()?;
    String::from_utf8(output.stdout).ok()?.trim().parse().ok()
}

fn timed(work: impl FnOnce()) -> f64 {
    let begin = Instant::now();
    work();
    begin.elapsed().as_secs_f64()
}

fn median(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    values[values.len() / 2]
}

fn fresh(base: &Path) -> TempDir {
    TempDir::new_in(base).unwrap()
}

async fn sends(base: &Path) {
    println!("\ndurable sends, {SENDS} a round, median of {ROUNDS} rounds");
    let mut rates: [Vec<f64>; 8] = Default::default();
    for _ in 0..ROUNDS {
        let dir = fresh(base);
        rates[0].push(SENDS as f64 / timed(|| bare(dir.path(), SENDS, 0)));
        for (at, layout) in [(1, Layout::Nanobot), (2, Layout::Chipset)] {
            rates[at].push(SENDS as f64 / one_sender(base, layout).await);
            rates[at + 3].push((16 * SENDS / 4) as f64 / sixteen_senders(base, layout).await);
        }
        let dir = fresh(base);
        rates[3].push(
            (16 * SENDS / 4) as f64
                / timed(|| {
                    std::thread::scope(|scope| {
                        for who in 0..16 {
                            let root = dir.path();
                            scope.spawn(move || bare(root, SENDS / 4, who));
                        }
                    });
                }),
        );
        for (at, sync) in [(6, "no"), (7, "sync")] {
            let dir = fresh(base);
            rates[at].extend(python(&dir.path().join("bob"), sync).map(|seconds| SENDS as f64 / seconds));
        }
    }
    let rates = rates.map(|rates| if rates.is_empty() { f64::NAN } else { median(rates) });
    let rows = [
        ("bare loop, 1 thread", rates[0], rates[0]),
        ("nanobot layout, 1 sender", rates[1], rates[0]),
        ("chipset layout, 1 sender", rates[2], rates[0]),
        ("bare loop, 16 threads", rates[3], rates[0]),
        ("nanobot layout, 16 senders", rates[4], rates[1]),
        ("chipset layout, 16 senders", rates[5], rates[2]),
        ("Python, nanobot's way (no sync at all)", rates[6], rates[0]),
        ("Python, the chipset's way (file synced, directory not)", rates[7], rates[0]),
    ];
    println!("{:<56} {:>10}  {:>6}", "", "per second", "ratio");
    for (at, (what, rate, of)) in rows.into_iter().enumerate() {
        let of_what = if matches!(at, 4 | 5) { "x its 1 sender" } else { "x bare loop" };
        println!("{what:<56} {rate:>10.0}  {:>6.2} {of_what}", rate / of);
    }
}

async fn one_sender(base: &Path, layout: Layout) -> f64 {
    let dir = fresh(base);
    let office = open(dir.path(), layout);
    let (ann, bob) = (office.mailbox(name("ann")), office.mailbox(name("bob")));
    ann.register(Card::default()).await.unwrap();
    bob.register(Card::default()).await.unwrap();
    let begin = Instant::now();
    for _ in 0..SENDS {
        ann.send(draft()).await.unwrap();
    }
    begin.elapsed().as_secs_f64()
}

async fn sixteen_senders(base: &Path, layout: Layout) -> f64 {
    let dir = fresh(base);
    let office = open(dir.path(), layout);
    office.mailbox(name("bob")).register(Card::default()).await.unwrap();
    let begin = Instant::now();
    let senders: Vec<_> = (0..16)
        .map(|who| {
            let mailbox = office.mailbox(name(&format!("sender-{who}")));
            tokio::spawn(async move {
                for _ in 0..SENDS / 4 {
                    mailbox.send(draft()).await.unwrap();
                }
            })
        })
        .collect();
    for sender in senders {
        sender.await.unwrap();
    }
    begin.elapsed().as_secs_f64()
}

async fn latency(base: &Path) {
    let dir = fresh(base);
    let office = open(dir.path(), Layout::Nanobot);
    let (ann, bob) = (office.mailbox(name("ann")), open(dir.path(), Layout::Nanobot).mailbox(name("bob")));
    ann.register(Card::default()).await.unwrap();
    bob.register(Card::default()).await.unwrap();
    let mut cursor = bob.events(None, Duration::ZERO).await.unwrap().cursor;
    let (seen, mut seen_at) = tokio::sync::mpsc::channel(16);
    let reader = tokio::spawn(async move {
        loop {
            let page = bob.events(Some(cursor), Duration::from_secs(10)).await.unwrap();
            let now = Instant::now();
            cursor = page.cursor;
            if seen.send(now).await.is_err() {
                return;
            }
        }
    });
    let (mut from_call, mut from_answer) = (Vec::new(), Vec::new());
    for _ in 0..300 {
        // The reader is waiting again before the next one is sent.
        tokio::time::sleep(Duration::from_millis(3)).await;
        let called = Instant::now();
        ann.send(draft()).await.unwrap();
        let answered = Instant::now();
        let seen = seen_at.recv().await.unwrap();
        from_call.push(seen.saturating_duration_since(called).as_secs_f64() * 1e3);
        from_answer.push(seen.saturating_duration_since(answered).as_secs_f64() * 1e3);
    }
    reader.abort();
    println!("\nsend to handled by watching, ms (polling every 5 s would be 2500 on average)");
    println!("{:<56} {:>10}  {:>6}", "", "p50", "p99");
    for (what, mut values) in [("from the call of send", from_call), ("from the answer of send", from_answer)] {
        values.sort_by(f64::total_cmp);
        println!("{what:<56} {:>10.2}  {:>6.2}", values[values.len() / 2], values[values.len() * 99 / 100]);
    }
}

async fn heartbeats(base: &Path) {
    println!("\none heartbeat, microseconds on average over 3,000");
    let mut first = None;
    for agents in [10, 100, 1_000] {
        let dir = fresh(base);
        let office = open(dir.path(), Layout::Nanobot);
        let mailbox = office.mailbox(name("agent-0"));
        mailbox.register(Card { description: "x".repeat(200), ..Card::default() }).await.unwrap();
        let state = dir.path().join(".amb/agents");
        for n in 1..agents {
            let other = state.join(format!("agent-{n}"));
            fs_err::create_dir_all(&other).unwrap();
            for file in ["card.json", "alive.json"] {
                fs_err::copy(state.join("agent-0").join(file), other.join(file)).unwrap();
            }
        }
        mailbox.leave().await.unwrap();
        mailbox.heartbeat().await.unwrap();
        let begin = Instant::now();
        for _ in 0..3_000 {
            mailbox.heartbeat().await.unwrap();
        }
        let micros = begin.elapsed().as_secs_f64() * 1e6 / 3_000.0;
        let base = *first.get_or_insert(micros);
        println!("{:<56} {micros:>10.0}  {:>6.2} x 10 agents", format!("{agents} agents"), micros / base);
    }
}

async fn inboxes(base: &Path) {
    println!("\ninbox of a new process and of one that has looked before, ms");
    println!("{:<56} {:>10}  {:>6}", "", "new", "again");
    let mut first = None;
    for handled in [1_000, 100_000] {
        let dir = fresh(base);
        let office = open(dir.path(), Layout::Nanobot);
        let (ann, bob) = (office.mailbox(name("ann")), office.mailbox(name("bob")));
        ann.register(Card::default()).await.unwrap();
        bob.register(Card::default()).await.unwrap();
        ann.send(draft()).await.unwrap();
        let processed: PathBuf = dir.path().join("bob/processed");
        let unread = dir.path().join("bob/inbox");
        let sample = fs_err::read_dir(&unread).unwrap().next().unwrap().unwrap().path();
        let text = fs_err::read_to_string(sample).unwrap();
        for n in 0..handled {
            let at = 1_745_659_200_000_u64 + n;
            let unique = text.replacen("msg_", &format!("msg_{n}_"), 1);
            fs_err::write(processed.join(format!("{at}_ann.msg.json")), unique).unwrap();
        }
        doctor::examine(&office, true).await.unwrap();
        let (mut new, mut again) = (Vec::new(), Vec::new());
        for _ in 0..20 {
            let mailbox = open(dir.path(), Layout::Nanobot).mailbox(name("bob"));
            for times in [&mut new, &mut again] {
                let begin = Instant::now();
                mailbox.inbox(false).await.unwrap();
                times.push(begin.elapsed().as_secs_f64() * 1e3);
            }
        }
        let (new, again) = (median(new), median(again));
        let base = *first.get_or_insert(again);
        println!("{:<56} {new:>10.2}  {again:>6.2}  ({:.2} x)", format!("{handled} handled messages"), again / base);
    }
}

fn main() {
    let base = std::env::args()
        .skip(1)
        .find(|word| !word.starts_with('-'))
        .unwrap_or_else(|| env!("CARGO_TARGET_TMPDIR").into());
    let base = PathBuf::from(base);
    fs_err::create_dir_all(&base).unwrap();
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap();
    runtime.block_on(async {
        sends(&base).await;
        latency(&base).await;
        heartbeats(&base).await;
        inboxes(&base).await;
    });
}
