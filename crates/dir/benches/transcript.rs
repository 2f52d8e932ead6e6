//! What a transcript costs: `recent` on a small and a large file, and appends against a bare write and sync.
//!
//! Uses the file system of the build directory, since the usual place for temporary files may be memory.

use std::io::{BufWriter, Write as _};
use std::path::Path;
use std::time::{Duration, Instant};

use amb_core::transcript::{Line, TranscriptKey};
use amb_dir::transcript::TranscriptStore;
use criterion::{Criterion, criterion_group, criterion_main};

const MIB: u64 = 1024 * 1024;

fn key(text: &str) -> TranscriptKey {
    text.parse().expect("a good key")
}

fn line(n: u64) -> Line {
    let content = format!("message {n} of a chat between some people and some agents about one piece of work");
    let id = Some(format!("om_{n:016x}"));
    Line {
        role: "user".into(),
        content,
        sender: "ou_7d8a6e6df7621556ce0d21922b676706".into(),
        author: None,
        message_id: id,
        ts: Some(1.7e12 + n as f64),
    }
}

/// Writes a transcript of about this size.
fn fill(path: &Path, bytes: u64) {
    let mut file = BufWriter::with_capacity(1 << 20, fs_err::File::create(path).expect("a file"));
    let mut written = 0;
    for n in 0.. {
        let text = serde_json::to_string(&line(n)).expect("a line");
        writeln!(file, "{text}").expect("room on the disk");
        written += text.len() as u64 + 1;
        if written >= bytes {
            break;
        }
    }
    file.into_inner().expect("room on the disk").sync_all().expect("a sync");
}

fn recent(criterion: &mut Criterion, runtime: &tokio::runtime::Runtime, root: &Path) {
    let store = TranscriptStore::open(root).expect("a root");
    let mut group = criterion.benchmark_group("recent_20");
    for (name, size) in [("of_1_MB", MIB), ("of_1_GB", 1024 * MIB)] {
        let path = root.join(format!("{name}.jsonl"));
        group.bench_function(name, |bencher| {
            // Not before it is known that this is to run: a gigabyte takes its time.
            if !path.exists() {
                fill(&path, size);
            }
            bencher.iter(|| runtime.block_on(store.recent(&key(name), 20)).expect("lines"));
        });
        if path.exists() {
            fs_err::remove_file(path).expect("the file is ours");
        }
    }
}

/// Appends of one writer and of sixteen as ratios to a bare write and sync.
///
/// The three take short turns. Measured one after the other they tell more of what else used the disk meanwhile.
#[allow(clippy::print_stdout, reason = "the ratios are what this is run for")]
fn append(runtime: &tokio::runtime::Runtime, root: &Path) {
    const ROUNDS: usize = 40;
    const TURN: u64 = 32;
    let store = TranscriptStore::open(root).expect("a root");
    let mut file = fs_err::OpenOptions::new().create(true).append(true).open(root.join("bare")).expect("a file");
    let mut rounds = Vec::with_capacity(ROUNDS);
    for round in 0..=ROUNDS {
        let times = [
            bare(&mut file, TURN),
            runtime.block_on(appends(&store, 1, TURN)),
            runtime.block_on(appends(&store, 16, TURN * 4)) / 4,
        ];
        // The first makes the files.
        if round > 0 {
            rounds.push(times.map(|time| time.as_secs_f64() * 1e6 / TURN as f64));
        }
    }
    for (n, name) in ["bare write and sync", "1 writer", "16 writers"].iter().enumerate() {
        let each = median(rounds.iter().map(|times| times[n]));
        let rate = median(rounds.iter().map(|times| times[0] / times[n]));
        println!("append, {name}: {each:.0} us each, {rate:.2} of the bare rate (medians of {ROUNDS} turns)");
    }
    let gain = median(rounds.iter().map(|times| times[1] / times[2]));
    println!("append, 16 writers: {gain:.2} times the rate of 1");
}

fn median(values: impl Iterator<Item = f64>) -> f64 {
    let mut values: Vec<f64> = values.collect();
    values.sort_by(f64::total_cmp);
    values[values.len() / 2]
}

/// The time `count` lines take that are written and synced with nothing around it.
fn bare(file: &mut fs_err::File, count: u64) -> Duration {
    let start = Instant::now();
    for n in 0..count {
        let text = serde_json::to_string(&line(n)).expect("a line") + "\n";
        file.write_all(text.as_bytes()).expect("room on the disk");
        file.sync_data().expect("a sync");
    }
    start.elapsed()
}

/// The time `count` appends take when `writers` share them.
async fn appends(store: &TranscriptStore, writers: u64, count: u64) -> Duration {
    let start = Instant::now();
    let tasks: Vec<_> = (0..writers)
        .map(|writer| {
            let (store, chat) = (store.clone(), key("bench:append"));
            tokio::spawn(async move {
                for n in (writer..count).step_by(writers as usize) {
                    store.append(&chat, line(n)).await.expect("an append");
                }
            })
        })
        .collect();
    for task in tasks {
        task.await.expect("a task");
    }
    start.elapsed()
}

fn all(criterion: &mut Criterion) {
    let root = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).expect("a directory");
    let runtime =
        tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().expect("a runtime");
    append(&runtime, root.path());
    recent(criterion, &runtime, root.path());
}

criterion_group!(benches, all);
criterion_main!(benches);
