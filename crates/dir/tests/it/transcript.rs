//! Transcripts: append, recent, follow.

use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;
use std::process::Command;
use std::time::Duration;

use amb_core::transcript::{Line, TranscriptKey};
use amb_core::{Code, OfficeError};
use amb_dir::transcript::{AppendOutcome, Follow, HistorySource, TranscriptStore};
use serde_json::json;

pub(crate) fn key(text: &str) -> TranscriptKey {
    text.parse().unwrap()
}

pub(crate) fn said(content: impl Into<String>) -> Line {
    Line {
        role: "user".into(),
        content: content.into(),
        sender: "ann".into(),
        author: None,
        message_id: None,
        ts: None,
    }
}

fn at(content: &str, id: Option<&str>, ts: f64) -> Line {
    Line { message_id: id.map(str::to_owned), ts: Some(ts), ..said(content) }
}

pub(crate) fn contents(lines: Vec<Line>) -> Vec<String> {
    lines.into_iter().map(|line| line.content).collect()
}

fn store() -> (tempfile::TempDir, TranscriptStore) {
    let dir = tempfile::tempdir().unwrap();
    let store = TranscriptStore::open(dir.path().join("transcripts")).unwrap();
    (dir, store)
}

async fn next(follow: &mut Follow) -> String {
    let line = tokio::time::timeout(Duration::from_secs(20), follow.recv()).await.expect("a line in time");
    line.expect("the stream goes on").unwrap().content
}

#[tokio::test]
async fn recent_lines_are_ordered_by_time_with_each_message_once() {
    let (_dir, store) = store();
    let chat = key("feishu:oc_1");
    assert!(store.recent(&chat, 20).await.unwrap().is_empty());
    for line in [
        at("two", Some("m2"), 2.0),
        at("one", Some("m1"), 1.0),
        at("two again", Some("m2"), 9.0),
        at("three", None, 3.0),
    ] {
        store.append(&chat, line).await.unwrap();
    }
    assert_eq!(contents(store.recent(&chat, 20).await.unwrap()), ["one", "two", "three"]);
    assert_eq!(contents(store.recent(&chat, 2).await.unwrap()), ["two", "three"]);
    assert!(store.recent(&chat, 0).await.unwrap().is_empty());
    let last = store.recent(&chat, 1).await.unwrap().remove(0);
    assert_eq!((last.role.as_str(), last.content.as_str(), last.sender.as_str()), ("user", "three", "ann"));
}

#[tokio::test]
async fn a_line_without_a_time_gets_the_current_one() {
    let (_dir, store) = store();
    store.append(&key("c:1"), said("now")).await.unwrap();
    let line = store.recent(&key("c:1"), 1).await.unwrap().remove(0);
    assert!(line.ts.unwrap() > 1.7e12, "{:?}", line.ts);
}

#[tokio::test]
async fn only_group_chats_are_written() {
    let (_dir, store) = store();
    let chat = key("feishu:oc_1");
    assert_eq!(store.append_if_group("p2p", &chat, said("secret")).await.unwrap(), AppendOutcome::Skipped);
    assert_eq!(store.append_if_group("group", &chat, said("open")).await.unwrap(), AppendOutcome::Written);
    assert_eq!(contents(store.recent(&chat, 9).await.unwrap()), ["open"]);
}

#[tokio::test]
async fn keys_whose_names_collide_never_mix() {
    let (dir, store) = store();
    let keys = ["a:b", "a_b", "a/b", "a|b", " a:b "].map(key);
    for (n, chat) in keys.iter().enumerate() {
        store.append(chat, said(n.to_string())).await.unwrap();
    }
    let again = TranscriptStore::open(dir.path().join("transcripts")).unwrap();
    for (n, chat) in keys.iter().enumerate() {
        assert_eq!(contents(again.recent(chat, 9).await.unwrap()), [n.to_string()], "{chat}");
    }
}

#[tokio::test]
async fn no_key_writes_outside_the_root_or_hides_there() {
    let (dir, store) = store();
    let long = "k".repeat(255);
    let wide = "群".repeat(255);
    let hostile = [
        "../x",
        "..",
        ".",
        "/abs",
        ".hidden",
        ".owners/a",
        "a\u{202e}b",
        "e\u{301}",
        "-n",
        "~root",
        " ",
        "%2e%2e",
        &long,
        &wide,
    ];
    for text in hostile {
        let chat = key(text);
        store.append(&chat, said(text)).await.unwrap();
        assert_eq!(contents(store.recent(&chat, 9).await.unwrap()), [text]);
    }
    let outside: Vec<_> = fs_err::read_dir(dir.path()).unwrap().map(|entry| entry.unwrap().file_name()).collect();
    assert_eq!(outside, ["transcripts"]);
    let mut files = 0;
    for entry in fs_err::read_dir(dir.path().join("transcripts")).unwrap() {
        let name = entry.unwrap().file_name().into_string().unwrap();
        files += usize::from(name.ends_with(".jsonl") && !name.starts_with('.'));
        assert!(name == ".owners" || name.ends_with(".jsonl"), "{name}");
    }
    assert_eq!(files, hostile.len());
}

#[tokio::test]
async fn a_link_in_the_root_is_not_followed() {
    let (dir, store) = store();
    let outside = dir.path().join("outside");
    fs_err::write(&outside, "").unwrap();
    fs_err::os::unix::fs::symlink(&outside, dir.path().join("transcripts/c_1.jsonl")).unwrap();
    assert_eq!(store.append(&key("c:1"), said("x")).await.unwrap_err().code(), Code::Unavailable);
    assert!(fs_err::read(&outside).unwrap().is_empty());
}

#[tokio::test]
async fn files_are_private_to_their_owner() {
    let (dir, store) = store();
    store.append(&key("c:1"), said("x")).await.unwrap();
    let mode = |path: &str| fs_err::metadata(dir.path().join(path)).unwrap().permissions().mode() & 0o777;
    assert_eq!(mode("transcripts"), 0o700);
    assert_eq!(mode("transcripts/.owners"), 0o700);
    assert_eq!(mode("transcripts/.owners/c_1"), 0o600);
    assert_eq!(mode("transcripts/c_1.jsonl"), 0o600);
}

#[tokio::test]
async fn a_torn_line_does_not_damage_others() {
    let (dir, store) = store();
    let chat = key("c:1");
    let file = dir.path().join("transcripts/c_1.jsonl");
    fs_err::write(&file, "\n{\"content\":\"no role\"}\nnot json\n[1]\n\u{feff}{}\n{\"role\":\"user\",\"content\":\"to")
        .unwrap();
    assert_eq!(contents(store.recent(&chat, 9).await.unwrap()), ["no role"]);
    store.append(&chat, said("after")).await.unwrap();
    assert_eq!(contents(store.recent(&chat, 9).await.unwrap()), ["no role", "after"]);
    let text = fs_err::read_to_string(&file).unwrap();
    assert!(text.contains("\"to\n{") && text.ends_with('\n'), "{text}");
}

#[tokio::test]
async fn a_line_whose_newline_was_left_out_counts() {
    let (dir, store) = store();
    let file = dir.path().join("transcripts/c_1.jsonl");
    fs_err::write(&file, "{\"role\":\"user\",\"content\":\"whole\",\"sender\":\"a\",\"ts\":1}").unwrap();
    assert_eq!(contents(store.recent(&key("c:1"), 9).await.unwrap()), ["whole"]);
    store.append(&key("c:1"), said("next")).await.unwrap();
    assert_eq!(contents(store.recent(&key("c:1"), 9).await.unwrap()), ["whole", "next"]);
}

#[tokio::test]
async fn a_file_of_copies_and_a_file_of_nothing_are_read_within_bounds() {
    let (dir, store) = store();
    let copy = "{\"role\":\"user\",\"content\":\"copy\",\"sender\":\"a\",\"message_id\":\"m\",\"ts\":5}\n";
    fs_err::write(dir.path().join("transcripts/copies.jsonl"), copy.repeat(100_000)).unwrap();
    assert_eq!(contents(store.recent(&key("copies"), 20).await.unwrap()), ["copy"]);
    fs_err::write(dir.path().join("transcripts/blank.jsonl"), "\n".repeat(8 * 1024 * 1024)).unwrap();
    assert!(store.recent(&key("blank"), 20).await.unwrap().is_empty());
}

#[tokio::test]
async fn lines_out_of_bounds_are_refused_and_nothing_is_written() {
    let (_dir, store) = store();
    let chat = key("c:1");
    let bad = [
        (said("x".repeat(100_001)), Code::TooLarge),
        (Line { role: String::new(), ..said("x") }, Code::Invalid),
        (Line { sender: "s".repeat(256), ..said("x") }, Code::Invalid),
        (Line { message_id: Some("i".repeat(201)), ..said("x") }, Code::Invalid),
        (Line { ts: Some(f64::NAN), ..said("x") }, Code::Invalid),
    ];
    for (line, code) in bad {
        assert_eq!(store.append(&chat, line).await.unwrap_err().code(), code);
    }
    assert!(store.recent(&chat, 9).await.unwrap().is_empty());
    let largest = "\u{1}".repeat(100_000);
    store.append(&chat, said(largest.clone())).await.unwrap();
    assert_eq!(contents(store.recent(&chat, 9).await.unwrap()), [largest]);
}

#[tokio::test]
async fn a_root_that_is_a_file_is_a_clear_error() {
    let dir = tempfile::tempdir().unwrap();
    let root = dir.path().join("root");
    fs_err::write(&root, "").unwrap();
    assert_eq!(TranscriptStore::open(&root).unwrap_err().code(), Code::Unavailable);
    let store = TranscriptStore::open(dir.path().join("later")).unwrap();
    fs_err::remove_dir(dir.path().join("later")).unwrap();
    fs_err::write(dir.path().join("later"), "").unwrap();
    assert_eq!(store.append(&key("c:1"), said("x")).await.unwrap_err().code(), Code::Unavailable);
    assert_eq!(store.recent(&key("c:1"), 1).await.unwrap_err().code(), Code::Unavailable);
}

#[tokio::test]
async fn a_follower_gets_each_new_line_once_across_rotation_and_emptying() {
    let (dir, store) = store();
    let chat = key("c:1");
    let file = dir.path().join("transcripts/c_1.jsonl");
    store.append(&chat, at("old", Some("m0"), 1.0)).await.unwrap();
    let (before, mut follow) = store.recent_and_follow(&chat, 5).await.unwrap();
    assert_eq!(contents(before), ["old"]);
    store.append(&chat, at("old, from another process", Some("m0"), 1.0)).await.unwrap();
    store.append(&chat, at("one", Some("m1"), 2.0)).await.unwrap();
    store.append(&chat, at("one again", Some("m1"), 2.0)).await.unwrap();
    assert_eq!(next(&mut follow).await, "one");
    fs_err::rename(&file, dir.path().join("transcripts/c_1.jsonl.1")).unwrap();
    store.append(&chat, said("two")).await.unwrap();
    assert_eq!(next(&mut follow).await, "two");
    fs_err::write(&file, "").unwrap();
    store.append(&chat, said("three")).await.unwrap();
    assert_eq!(next(&mut follow).await, "three");
}

#[tokio::test]
async fn a_follower_gets_a_burst_longer_than_its_channel_in_order() {
    let (_dir, store) = store();
    let chat = key("c:1");
    let mut follow = store.follow(&chat).await.unwrap();
    let writer = tokio::spawn({
        let (store, chat) = (store.clone(), chat.clone());
        async move {
            let burst: Vec<_> = (0..1_000)
                .map(|n| {
                    let (store, chat) = (store.clone(), chat.clone());
                    tokio::spawn(async move { store.append(&chat, said(n.to_string())).await.unwrap() })
                })
                .collect();
            for one in burst {
                one.await.unwrap();
            }
        }
    });
    let mut got = Vec::new();
    while got.len() < 1_000 {
        got.push(next(&mut follow).await.parse::<u32>().unwrap());
    }
    writer.await.unwrap();
    let in_file = contents(store.recent(&chat, 1_000).await.unwrap());
    assert_eq!(in_file.len(), 1_000);
    got.sort_unstable();
    assert_eq!(got, (0..1_000).collect::<Vec<_>>());
}

#[tokio::test]
async fn a_follower_of_a_key_without_a_file_never_sees_lines_of_a_colliding_key() {
    let (_dir, store) = store();
    let mut follow = store.follow(&key("a_b")).await.unwrap();
    store.append(&key("a:b"), said("not for you")).await.unwrap();
    store.append(&key("a_b"), said("for you")).await.unwrap();
    assert_eq!(next(&mut follow).await, "for you");
}

struct Fallback(Result<Vec<Line>, Code>);

#[async_trait::async_trait]
impl HistorySource for Fallback {
    async fn recent(&self, _key: &TranscriptKey, limit: usize) -> Result<Vec<Line>, OfficeError> {
        match &self.0 {
            Ok(lines) => Ok(lines.iter().take(limit).cloned().collect()),
            Err(code) => Err(OfficeError::new(*code, "no")),
        }
    }
}

#[tokio::test]
async fn the_fallback_is_used_only_when_the_transcript_is_empty() {
    let (_dir, store) = store();
    let chat = key("feishu:oc_1");
    let source = Fallback(Ok(vec![said("from the service")]));
    assert_eq!(contents(store.recent_or_fallback(&chat, 5, &source).await.unwrap()), ["from the service"]);
    let broken = Fallback(Err(Code::Unavailable));
    assert_eq!(store.recent_or_fallback(&chat, 5, &broken).await.unwrap_err().code(), Code::Unavailable);
    store.append(&chat, said("from the file")).await.unwrap();
    assert_eq!(contents(store.recent_or_fallback(&chat, 5, &broken).await.unwrap()), ["from the file"]);
}

/// A GroupTranscriptStore in Python, as short as its description.
const PYTHON: &str = r#"
import json, re, sys, time
from pathlib import Path
def path(root, key): return Path(root) / (re.sub(r'[<>:"/\\|?*]', "_", key).strip() + ".jsonl")
def append(root, key, role, content, sender, message_id=None):
    line = {"role": role, "content": content, "sender": sender, "ts": time.time() * 1000}
    if message_id: line["message_id"] = message_id
    with path(root, key).open("a", encoding="utf-8") as f: f.write(json.dumps(line, ensure_ascii=sys.argv[3] == "ascii") + "\n")
def recent(root, key, n):
    rows, seen = [], set()
    for text in path(root, key).read_text(encoding="utf-8").splitlines():
        row = json.loads(text)
        if row.get("message_id") and row["message_id"] in seen: continue
        seen.add(row.get("message_id")); rows.append(row)
    rows.sort(key=lambda row: row["ts"])
    return [{k: row[k] for k in ("role", "content", "sender")} for row in rows[-n:]]
root, key = sys.argv[1:3]
append(root, key, "user", "说 \U0001f600 \"quoted\"\n<b>", "ou_1", "om_1")
append(root, key, "user", "a copy", "ou_1", "om_1")
print(json.dumps(recent(root, key, 20)))
"#;

fn python(root: &Path, key: &str, how: &str) -> serde_json::Value {
    let ran = Command::new("python3").args(["-c", PYTHON]).arg(root).args([key, how]).output().expect("python3 runs");
    assert!(ran.status.success(), "{}", String::from_utf8_lossy(&ran.stderr));
    serde_json::from_slice(&ran.stdout).unwrap()
}

#[tokio::test]
async fn python_after_the_seed_reads_ours_and_we_read_its() {
    let (dir, store) = store();
    let root = dir.path().join("transcripts");
    for how in ["ascii", "utf8"] {
        let chat = key(&format!("feishu:oc_{how}"));
        // The last characters end a line for Python's splitlines, so they must be escaped in the file.
        let ours = said("答 from Rust\n\u{2028}\u{2029}\u{85}");
        let ours = Line { role: "assistant".into(), sender: "agent_a".into(), ..ours };
        store.append(&chat, ours).await.unwrap();
        let theirs = python(&root, chat.as_str(), how);
        let lines = store.recent(&chat, 20).await.unwrap().into_iter();
        let shape = |line: Line| json!({"role": line.role, "content": line.content, "sender": line.sender});
        let ours: Vec<_> = lines.map(shape).collect();
        assert_eq!(json!(ours), theirs);
        assert_eq!(ours.len(), 2);
        assert_eq!(ours[1]["content"], "说 😀 \"quoted\"\n<b>");
    }
}
