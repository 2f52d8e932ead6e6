//! Commands as people remember them: the beginning of an id, an agent's name, the last conversation.

use std::process::{Output, Stdio};

use amb_core::{Draft, Mailbox};
use amb_dir::{DirOffice, DirOptions};
use serde_json::Value;
use tempfile::TempDir;
use tokio::io::{AsyncBufReadExt, AsyncWriteExt, BufReader};
use tokio::process::Command;

use crate::server_office::soon;

/// Agents ann, ben and cat in a directory.
struct World {
    root: TempDir,
}

impl World {
    async fn new() -> Self {
        let world = Self { root: tempfile::tempdir().unwrap() };
        for name in ["ann", "ben", "cat"] {
            world.amb(name, &["register"]).await;
        }
        world
    }

    fn command(&self, me: &str, arguments: &[&str]) -> Command {
        let mut amb = Command::new(env!("CARGO_BIN_EXE_amb"));
        amb.env_clear().env("HOME", self.root.path()).env("AMB_DIR", self.root.path().join("mail"));
        amb.args(["--as", me]).args(arguments).kill_on_drop(true);
        amb.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
        amb
    }

    async fn run_with(&self, me: &str, arguments: &[&str], stdin: &str) -> Output {
        let mut child = self.command(me, arguments).stdin(Stdio::piped()).spawn().unwrap();
        child.stdin.take().unwrap().write_all(stdin.as_bytes()).await.unwrap();
        soon(child.wait_with_output()).await.unwrap()
    }

    async fn amb(&self, me: &str, arguments: &[&str]) -> String {
        let ended = soon(self.command(me, arguments).output()).await.unwrap();
        assert!(ended.status.success(), "{arguments:?}: {}", String::from_utf8_lossy(&ended.stderr));
        String::from_utf8(ended.stdout).unwrap()
    }

    async fn json(&self, me: &str, arguments: &[&str]) -> Value {
        let mut all = vec!["--json"];
        all.extend(arguments);
        serde_json::from_str(&self.amb(me, &all).await).unwrap()
    }

    async fn refused(&self, me: &str, arguments: &[&str]) -> (i32, String) {
        let ended = soon(self.command(me, arguments).output()).await.unwrap();
        (ended.status.code().unwrap(), String::from_utf8(ended.stderr).unwrap())
    }
}

fn text<'a>(document: &'a Value, field: &str) -> &'a str {
    document[field].as_str().unwrap()
}

/// As much of the beginning as the other does not have.
fn beginning<'a>(id: &'a str, other: &str) -> &'a str {
    let same = id.bytes().zip(other.bytes()).take_while(|(a, b)| a == b).count();
    &id[..=same]
}

#[tokio::test]
async fn a_session_is_found_by_the_beginning_of_its_id_and_by_who_is_in_it() {
    let world = World::new().await;
    let plan = world.json("ann", &["send", "ben", "one", "--subject", "Plan"]).await;
    let other = world.json("cat", &["send", "ben", "two", "--subject", "Other"]).await;
    let (plan, other) = (text(&plan, "session_id"), text(&other, "session_id"));
    let read = world.json("ben", &["read", beginning(plan, other)]).await;
    assert_eq!(read["session_id"], plan);
    assert_eq!(world.json("ben", &["read", "cat"]).await["session_id"], other);
    // A reply continues it, by the beginning of its id, too.
    let sent = world.json("ben", &["send", "ann", "more", "--session", beginning(plan, other)]).await;
    assert_eq!(sent["session_id"], plan);
    // Without saying which: what is not read yet, else the newest.
    world.amb("ann", &["send", "ben", "one more", "--session", plan]).await;
    for _ in 0..2 {
        assert_eq!(world.json("ben", &["read"]).await["session_id"], plan);
    }
    let (code, words) = world.refused("ben", &["read", "ca"]).await;
    assert!(code == 3 && words.contains("did you mean \"cat\"?"), "{code} {words}");
    let (code, words) = world.refused("cat", &["read", "ann"]).await;
    assert!(code == 3 && words.contains("amb send ann"), "{code} {words}");
}

#[tokio::test]
async fn an_ambiguous_beginning_lists_the_candidates() {
    let world = World::new().await;
    let one = world.json("ann", &["send", "ben", "one", "--kind", "task", "--subject", "First"]).await;
    let two = world.json("ann", &["send", "ben", "two", "--kind", "task", "--subject", "Second"]).await;
    let (one, two) = (text(&one["task"], "id"), text(&two["task"], "id"));
    let (code, words) = world.refused("ben", &["task", "accept", &one[..2]]).await;
    assert!(code == 2 && words.contains(one) && words.contains(two) && words.contains("Second"), "{code} {words}");
    let accepted = world.json("ben", &["task", "accept", beginning(two, one)]).await;
    assert_eq!((&accepted["id"], &accepted["state"]), (&two.into(), &"accepted".into()));
    let (code, words) = world.refused("ben", &["task", "done", "nonsense"]).await;
    assert_eq!(code, 3, "{words}");
}

#[tokio::test]
async fn a_message_is_acknowledged_by_the_beginning_of_its_id() {
    let world = World::new().await;
    let sent = world.json("ann", &["send", "ben", "one"]).await;
    let acked = world.json("ben", &["ack", &text(&sent, "message_id")[..6]]).await;
    assert_eq!(acked["acknowledged"], 1);
}

#[tokio::test]
async fn a_reply_goes_to_the_conversation_that_was_shown_last_and_says_so() {
    let world = World::new().await;
    let (code, words) = world.refused("ben", &["reply", "yes"]).await;
    assert!(code == 3 && words.contains("amb send"), "{code} {words}");
    let plan = world.json("ann", &["send", "ben", "shall we?", "--subject", "Plan"]).await;
    let told = world.amb("ben", &["reply", "yes"]).await;
    assert!(told.contains("ann") && told.contains("Plan"), "where nothing was shown, what came last: {told}");
    let history = world.json("ann", &["read", "ben"]).await;
    assert_eq!(history["session_id"], plan["session_id"]);
    assert_eq!(history["messages"][0]["content"], "yes");
    assert_eq!(history["messages"][0]["reply_to"], plan["message_id"]);

    world.amb("ben", &["read", "ann"]).await;
    world.amb("cat", &["send", "ben", "and me?", "--subject", "Other"]).await;
    let ended = soon(world.command("ben", &["reply", "good"]).output()).await.unwrap();
    assert!(String::from_utf8_lossy(&ended.stdout).contains("ann"), "what was shown goes before what merely came");
    assert!(String::from_utf8_lossy(&ended.stderr).contains("cat wrote too"), "and what came is told");
    world.amb("ben", &["inbox"]).await;
    assert!(world.amb("ben", &["reply", "you too"]).await.contains("cat"), "the inbox has shown it");
    assert!(world.amb("ben", &["reply", "--to", "ann", "bye"]).await.contains("ann"));
}

#[tokio::test]
async fn a_message_without_a_text_is_read_from_stdin_or_an_editor() {
    let world = World::new().await;
    let ended = world.run_with("ann", &["send", "ben"], "from a pipe\n").await;
    assert!(ended.status.success(), "{}", String::from_utf8_lossy(&ended.stderr));
    assert_eq!(world.json("ben", &["read", "ann"]).await["messages"][0]["content"], "from a pipe\n");
    let (code, words) = world.refused("ann", &["send", "ben"]).await;
    assert!(code == 2 && words.contains("the message is empty"), "{code} {words}");
}

#[tokio::test]
async fn a_chat_in_a_pipe_sends_each_line_and_waits_for_the_answer() {
    let world = World::new().await;
    let ended = world.run_with("ann", &["chat", "ben"], "hello\n\nare you there?\n").await;
    assert!(ended.status.success(), "{}", String::from_utf8_lossy(&ended.stderr));
    let history = world.json("ben", &["read", "ann"]).await;
    assert_eq!((&history["subject"], history["messages"].as_array().unwrap().len()), (&"Chat".into(), 2));

    let mut chat = world.command("ann", &["chat", "ben", "--wait", "60s"]).stdin(Stdio::piped()).spawn().unwrap();
    let mut lines = BufReader::new(chat.stdout.take().unwrap()).lines();
    let mut stdin = chat.stdin.take().unwrap();
    stdin.write_all(b"done?\n").await.unwrap();
    drop(stdin);
    let mut watch = world.command("ben", &["watch", "--ack", "--count", "1", "--json"]);
    assert!(soon(watch.output()).await.unwrap().status.success());
    world.amb("ben", &["send", "ann", "yes, done", "--session", text(&history, "session_id")]).await;
    let heard = async {
        while let Some(line) = lines.next_line().await.unwrap() {
            if line.contains("ben: yes, done") {
                return;
            }
        }
        panic!("no answer was shown");
    };
    soon(heard).await;
    assert!(soon(chat.wait()).await.unwrap().success(), "it ends with the answer");
    assert_eq!(
        world.json("ann", &["inbox", "--unread"]).await["sessions"].as_array().unwrap().len(),
        0,
        "it was shown"
    );
    let (code, words) = world.refused("ann", &["chat", "bne"]).await;
    assert!(code == 3 && words.contains("did you mean \"ben\"?"), "{code} {words}");
}

#[tokio::test]
async fn the_log_of_a_directory_tells_what_everybody_does() {
    let world = World::new().await;
    world.amb("ann", &["send", "ben", "sort the files", "--kind", "task", "--subject", "Work"]).await;
    world.amb("cat", &["send", "ann", "hello", "--subject", "Plan"]).await;
    let all = |arguments: &'static [&'static str]| {
        let mut amb = Command::new(env!("CARGO_BIN_EXE_amb"));
        amb.env_clear().env("HOME", world.root.path()).env("AMB_DIR", world.root.path().join("mail"));
        amb.args(arguments).stdin(Stdio::null()).kill_on_drop(true).stdout(Stdio::piped()).stderr(Stdio::piped());
        amb
    };
    let told = String::from_utf8(soon(all(&["log"]).output()).await.unwrap().stdout).unwrap();
    assert!(told.contains("ann → ben") && told.contains("cat → ann") && told.contains("sort the files"), "{told}");
    let tasks = soon(all(&["log", "--kind", "task", "--json"]).output()).await.unwrap().stdout;
    let tasks: Value = serde_json::from_slice(&tasks).unwrap();
    assert_eq!((&tasks["agent"], &tasks["from_agent"]), (&"ben".into(), &"ann".into()));
    let cat = String::from_utf8(soon(all(&["log", "--agent", "cat"]).output()).await.unwrap().stdout).unwrap();
    assert!(cat.contains("cat → ann") && !cat.contains("ann → ben"), "{cat}");

    let mut following = all(&["log", "--follow", "--limit", "1", "--json"]).spawn().unwrap();
    let mut lines = BufReader::new(following.stdout.take().unwrap()).lines();
    soon(lines.next_line()).await.unwrap().expect("what was there");
    world.amb("ben", &["send", "cat", "news", "--subject", "New"]).await;
    let told = async {
        while let Some(line) = lines.next_line().await.unwrap() {
            let line: Value = serde_json::from_str(&line).unwrap();
            if line["content"] == "news" {
                return line["agent"].clone();
            }
        }
        panic!("the log ended without telling of it");
    };
    assert_eq!(soon(told).await, "cat");
    following.kill().await.unwrap();
}

#[tokio::test]
async fn the_log_of_a_directory_is_shown_however_long_it_is() {
    let world = World::new().await;
    let office = DirOffice::open(&world.root.path().join("mail"), DirOptions::default()).unwrap();
    let ann = office.mailbox("ann".parse().unwrap());
    for number in 0..125 {
        ann.send(Draft::text("ben".parse().unwrap(), "Plan", format!("word {number}"))).await.unwrap();
    }
    for arguments in [&["log"][..], &["log", "--since", "1h"], &["log", "--agent", "ann"]] {
        let told = world.amb("ben", arguments).await;
        assert!(told.lines().last().unwrap().contains("word 124"), "{arguments:?}: {told}");
        assert_eq!(told.lines().count(), 20, "{arguments:?}: {told}");
    }
    let all = world.amb("ben", &["log", "--limit", "1000"]).await;
    assert_eq!(all.lines().count(), 125, "{all}");
}
