//! Many processes on one transcript. The test binary starts itself as the other processes.

use std::collections::HashSet;
use std::io::{BufRead as _, BufReader, Write as _};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use amb_core::transcript::Line;
use amb_dir::transcript::TranscriptStore;

use crate::transcript::{contents, key, said};

const ROOT: &str = "AMB_TEST_TRANSCRIPT_ROOT";
const KEY: &str = "AMB_TEST_TRANSCRIPT_KEY";
const WHO: &str = "AMB_TEST_TRANSCRIPT_WHO";
const COUNT: &str = "AMB_TEST_TRANSCRIPT_COUNT";

fn start(root: &Path, chat: &str, who: usize, count: usize) -> Child {
    spawn(Command::new(std::env::current_exe().unwrap()), root, chat, who, count)
}

fn spawn(mut command: Command, root: &Path, chat: &str, who: usize, count: usize) -> Child {
    command
        .args(["--exact", "transcript_processes::an_appending_process", "--nocapture"])
        .env(ROOT, root)
        .env(KEY, chat)
        .env(WHO, who.to_string())
        .env(COUNT, count.to_string())
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .unwrap()
}

/// The other process: appends from four tasks and prints each line that was written. Does nothing when run as a test.
#[tokio::test]
async fn an_appending_process() {
    let Ok(root) = std::env::var(ROOT) else { return };
    let store = TranscriptStore::open(root).unwrap();
    let chat = key(&std::env::var(KEY).unwrap());
    let who: usize = std::env::var(WHO).unwrap().parse().unwrap();
    let count: usize = std::env::var(COUNT).unwrap().parse().unwrap();
    let tasks: Vec<_> = (0..4)
        .map(|task| {
            let (store, chat) = (store.clone(), chat.clone());
            tokio::spawn(async move {
                for n in (task..count).step_by(4) {
                    let content = format!("{who}-{n}-{}", "长".repeat(n % 400));
                    let line = Line { message_id: Some(format!("{who}-{n}")), ..said(content) };
                    let verdict = store.append(&chat, line).await.map_or("refused", |()| "answered");
                    let mut out = std::io::stdout().lock();
                    writeln!(out, "\n{verdict} {who}-{n}").unwrap();
                    out.flush().unwrap();
                }
            })
        })
        .collect();
    for task in tasks {
        task.await.unwrap();
    }
}

/// Returns the lines that the process reported as written.
fn answered(child: &mut Child) -> Vec<String> {
    let out = BufReader::new(child.stdout.take().unwrap());
    out.lines().map_while(Result::ok).filter_map(|line| line.strip_prefix("answered ").map(str::to_owned)).collect()
}

/// Checks that every line of the file parses, and returns the ids.
fn ids_in(file: &Path) -> Vec<String> {
    let text = fs_err::read_to_string(file).unwrap();
    let id = |line: &str| {
        serde_json::from_str::<serde_json::Value>(line).unwrap()["message_id"].as_str().unwrap().to_owned()
    };
    text.lines().map(id).collect()
}

#[test]
fn eight_processes_append_at_once_and_no_line_is_torn_or_lost() {
    let root = tempfile::tempdir().unwrap();
    let mut children: Vec<_> = (0..8).map(|who| start(root.path(), "feishu:oc_8", who, 500)).collect();
    let said: usize = children.iter_mut().map(|child| answered(child).len()).sum();
    assert!(children.iter_mut().all(|child| child.wait().unwrap().success()));
    assert_eq!(said, 4_000);
    let ids = ids_in(&root.path().join("feishu_oc_8.jsonl"));
    assert_eq!(ids.len(), 4_000);
    assert_eq!(ids.iter().collect::<HashSet<_>>().len(), 4_000);
}

#[test]
fn an_append_that_returned_before_a_kill_survives_it() {
    let root = tempfile::tempdir().unwrap();
    let file = root.path().join("feishu_oc_9.jsonl");
    let mut promised = Vec::new();
    for round in 0..10_usize {
        let mut children: Vec<_> = (0..2).map(|n| start(root.path(), "feishu:oc_9", round * 2 + n, 100_000)).collect();
        // Each is killed at another time, after it has written something.
        for (n, child) in children.iter_mut().enumerate() {
            let mut out = BufReader::new(child.stdout.take().unwrap()).lines().map_while(Result::ok);
            let mut said = out.by_ref().filter_map(|line| line.strip_prefix("answered ").map(str::to_owned));
            promised.extend(said.by_ref().take(1 + (round * 7 + n * 3) % 23));
            std::thread::sleep(Duration::from_micros((round * 377 + n * 91) as u64 % 1_500));
            child.kill().unwrap();
            promised.extend(said);
            child.wait().unwrap();
        }
    }
    let there: HashSet<String> = ids_in(&file).into_iter().collect();
    let lost: Vec<_> = promised.iter().filter(|id| !there.contains(*id)).collect();
    assert!(lost.is_empty(), "lost: {lost:?}");
    assert!(promised.len() >= 20);
}

#[test]
fn processes_that_race_for_one_name_with_different_keys_do_not_mix() {
    let root = tempfile::tempdir().unwrap();
    let chats = ["r:x", "r_x", "r/x", "r?x"];
    let mut children: Vec<_> = chats.iter().enumerate().map(|(who, chat)| start(root.path(), chat, who, 40)).collect();
    for child in &mut children {
        assert_eq!(answered(child).len(), 40);
        assert!(child.wait().unwrap().success());
    }
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let store = TranscriptStore::open(root.path()).unwrap();
    for (who, chat) in chats.iter().enumerate() {
        let lines = contents(runtime.block_on(store.recent(&key(chat), 100)).unwrap());
        assert_eq!(lines.len(), 40);
        assert!(lines.iter().all(|line| line.starts_with(&format!("{who}-"))), "{chat} has lines of another");
    }
    let left = fs_err::read_dir(root.path().join(".owners")).unwrap().count();
    assert_eq!(left, 4, "no temporary file stays");
}

#[test]
fn a_line_refused_on_a_full_disk_is_absent_and_acknowledged_ones_are_present() {
    let root = tempfile::tempdir().unwrap();
    let file = root.path().join("full.jsonl");
    // A limit on file size makes a write fail in the middle, as on a full disk.
    let mut limited = Command::new("sh");
    limited.args(["-c", "trap '' XFSZ; ulimit -f 101; exec \"$0\" \"$@\""]).arg(std::env::current_exe().unwrap());
    let mut child = spawn(limited, root.path(), "full", 0, 600);
    let answered = answered(&mut child);
    assert!(child.wait().unwrap().success());
    assert!(!answered.is_empty() && answered.len() < 600, "{} answered", answered.len());
    let mut there = ids_in(&file);
    assert!(fs_err::read(&file).unwrap().ends_with(b"\n"), "the last line is whole");
    there.sort_unstable();
    let mut promised = answered;
    promised.sort_unstable();
    assert_eq!(there, promised);
}
