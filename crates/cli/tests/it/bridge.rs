//! A bridge as its users run it: a process that is killed at any time.

use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use serde_json::Value;

struct Office {
    home: tempfile::TempDir,
}

impl Office {
    fn new() -> Self {
        let office = Self { home: tempfile::tempdir().unwrap() };
        for name in ["ann", "ben"] {
            office.amb(name, &["register", name]);
        }
        office
    }

    fn command(&self, me: &str, arguments: &[&str]) -> Command {
        let mut command = Command::new(assert_cmd::cargo::cargo_bin!("amb"));
        command.env_clear().env("PATH", std::env::var_os("PATH").unwrap()).env("HOME", self.home.path());
        command.arg("--dir").arg(self.home.path().join("mail")).args(["--as", me]).args(arguments);
        command
    }

    /// Runs a verb and answers what it printed.
    fn amb(&self, me: &str, arguments: &[&str]) -> String {
        let output = self.command(me, arguments).output().unwrap();
        assert!(output.status.success(), "{arguments:?}: {}", String::from_utf8_lossy(&output.stderr));
        String::from_utf8(output.stdout).unwrap()
    }

    fn json(&self, me: &str, arguments: &[&str]) -> Value {
        serde_json::from_str(&self.amb(me, &[arguments, &["--json"]].concat())).unwrap()
    }

    fn send(&self, subject: &str, text: &str) -> Value {
        self.json("ann", &["send", "ben", text, "--subject", subject])
    }

    /// What ben has said in a thread.
    fn replies(&self, sent: &Value) -> Vec<String> {
        let history = self.json("ann", &["read", sent["session_id"].as_str().unwrap(), "--limit", "50"]);
        let messages = history["messages"].as_array().unwrap().iter();
        let said = messages.filter(|message| message["sender_name"] == "ben");
        said.map(|message| message["content"].as_str().unwrap().to_owned()).collect()
    }

    fn bridge(&self, arguments: &[&str]) -> Bridge {
        let mut command = self.command("ben", &[&["bridge", "exec"], arguments].concat());
        Bridge(command.stdin(Stdio::null()).stderr(Stdio::null()).spawn().unwrap())
    }
}

/// A bridge that does not outlive its test.
struct Bridge(Child);

impl Drop for Bridge {
    fn drop(&mut self) {
        self.0.kill().unwrap();
        self.0.wait().unwrap();
    }
}

fn until(what: &str, mut is: impl FnMut() -> bool) {
    let deadline = Instant::now() + Duration::from_secs(60);
    while !is() {
        assert!(Instant::now() < deadline, "still no {what}");
        std::thread::sleep(Duration::from_millis(20));
    }
}

#[test]
fn a_command_answers_mail_and_its_bridge_says_how_it_is() {
    let office = Office::new();
    let bridge = office.bridge(&["--", "tr", "a-z", "A-Z"]);
    let sent = office.send("greeting", "hello");
    until("answer", || !office.replies(&sent).is_empty());
    assert_eq!(office.replies(&sent), ["HELLO"]);
    let is = |running: bool| {
        let status = office.json("ben", &["bridge", "status"]);
        status[0]["running"] == running && status[0]["agent"] == "ben" && status[0]["replied"] == 1
    };
    until("status of a bridge that runs", || is(true));
    assert!(office.amb("ben", &["bridge", "status"]).contains("command tr a-z A-Z"));
    drop(bridge);
    until("status of a bridge that was killed", || is(false));
}

#[test]
fn a_bridge_killed_at_random_leaves_one_reply_for_each_mail() {
    let office = Office::new();
    let mut mail = Vec::new();
    let mut bridge = office.bridge(&["--", "tr", "a-z", "A-Z"]);
    // Any number does: it scatters the kills over the steps of a mail.
    let mut dice = u64::from(std::process::id()).wrapping_mul(6_364_136_223_846_793_005);
    for number in 0..20 {
        mail.push(office.send(&format!("mail {number}"), &format!("question {number}")));
        dice = dice.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        std::thread::sleep(Duration::from_millis(dice >> 58));
        drop(bridge);
        bridge = office.bridge(&["--", "tr", "a-z", "A-Z"]);
    }
    let last = office.send("marker", "the last");
    until("answers", || mail.iter().chain([&last]).all(|sent| !office.replies(sent).is_empty()));
    drop(bridge);
    for (number, sent) in mail.iter().enumerate() {
        assert_eq!(office.replies(sent), [format!("QUESTION {number}")]);
    }
    assert!(office.json("ben", &["inbox", "--unread"])["sessions"].as_array().unwrap().is_empty());
}

#[test]
fn mail_that_was_given_up_is_listed_and_can_be_tried_again() {
    let office = Office::new();
    let flag = office.home.path().join("mended");
    let script = format!("test -e {} && echo yes", flag.display());
    let _bridge = office.bridge(&["--max-failures", "1", "--", "sh", "-c", &script]);
    let sent = office.send("question", "does it work?");
    let dead = || office.json("ben", &["bridge", "dead", "list"]);
    until("dead letter", || !dead().as_array().unwrap().is_empty());
    assert_eq!(dead()[0]["message_id"], sent["message_id"]);
    fs_err::write(&flag, "").unwrap();
    office.amb("ben", &["bridge", "dead", "retry", sent["message_id"].as_str().unwrap()]);
    until("answer", || !office.replies(&sent).is_empty());
    assert_eq!(office.replies(&sent), ["yes"]);
    let again = office.command("ben", &["bridge", "dead", "retry", "no-such"]).output().unwrap();
    assert_eq!(again.status.code(), Some(3));
}

#[test]
fn a_command_can_speak_for_its_agent() {
    let office = Office::new();
    let amb = Path::new(assert_cmd::cargo::cargo_bin!("amb")).display().to_string();
    let _bridge =
        office.bridge(&["--", "sh", "-c", &format!("{amb} send ann \"from $AMB_AS\" --subject aside; echo ok")]);
    let sent = office.send("question", "who are you?");
    until("answer", || !office.replies(&sent).is_empty());
    let inbox = office.amb("ann", &["inbox", "--json"]);
    assert!(inbox.contains("from ben"), "{inbox}");
}
