//! A bridge as its users run it: a process that is killed at any time.

use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use serde_json::Value;

use crate::server_office;

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

    /// Runs a verb that must succeed; returns its stdout.
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

    /// Ben's messages in a session.
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
fn a_command_answers_mail_and_the_bridge_reports_its_status() {
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
fn a_second_bridge_for_an_agent_is_a_conflict() {
    let office = Office::new();
    let state = tempfile::tempdir().unwrap();
    let _first = amb_bridge::Ledger::open(state.path()).unwrap();
    let second = ["bridge", "exec", "--state", state.path().to_str().unwrap(), "--", "true"];
    let ended = office.command("ben", &second).output().unwrap();
    let said = String::from_utf8_lossy(&ended.stderr).into_owned();
    assert!(ended.status.code() == Some(5) && said.contains("another bridge for this agent is running"), "{said}");
}

#[test]
fn a_bridge_killed_at_random_leaves_one_reply_for_each_mail() {
    let office = Office::new();
    let mut mail = Vec::new();
    let mut bridge = office.bridge(&["--", "tr", "a-z", "A-Z"]);
    // An arbitrary seed, which spreads the kills over the steps of a message.
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
    until("answer", || office.replies(&sent).len() == 2);
    let said = office.replies(&sent);
    assert!(said[0] == "yes" && said[1].contains("could not work on this"), "newest first: {said:?}");
    let again = office.command("ben", &["bridge", "dead", "retry", "no-such"]).output().unwrap();
    assert_eq!(again.status.code(), Some(3));
}

#[test]
fn a_command_can_act_as_its_agent() {
    let office = Office::new();
    let amb = Path::new(assert_cmd::cargo::cargo_bin!("amb")).display().to_string();
    let _bridge =
        office.bridge(&["--", "sh", "-c", &format!("{amb} send ann \"from $AMB_AS\" --subject aside; echo ok")]);
    let sent = office.send("question", "who are you?");
    until("answer", || !office.replies(&sent).is_empty());
    let inbox = office.amb("ann", &["inbox", "--json"]);
    assert!(inbox.contains("from ben"), "{inbox}");
}

#[test]
fn a_command_of_a_killed_bridge_is_ended_before_the_next_one_runs() {
    let office = Office::new();
    let file = |name: &str| office.home.path().join(name);
    let (pids, done) = (file("pids"), file("done"));
    // No process of the first run may survive into the second, not even one in its own session.
    let script = format!(
        "if [ -e {0} ]; then for pid in $(cat {0}); do if kill -0 $pid 2>/dev/null && ! grep -q 'State:.Z' /proc/$pid/status; \
         then echo beside; fi; done; echo alone; exit; fi; setsid sleep 600 & echo $$ $! > {0}.tmp; mv {0}.tmp {0}; sleep 600; \
         touch {1}",
        pids.display(),
        done.display()
    );
    let bridge = office.bridge(&["--", "sh", "-c", &script]);
    let sent = office.send("question", "who runs?");
    until("command", || pids.exists());
    drop(bridge);
    let _bridge = office.bridge(&["--", "sh", "-c", &script]);
    until("answer", || !office.replies(&sent).is_empty());
    assert_eq!(office.replies(&sent), ["alone"]);
}

#[test]
fn a_command_inherits_the_basic_environment_and_the_named_variables() {
    let office = Office::new();
    let mut command = office.command("ben", &["bridge", "exec", "--env", "WANTED", "--env", "SAID=so", "--"]);
    command.args(["sh", "-c", "echo $HOME; echo ${SECRET-none} ${DATABASE_URL-none} $WANTED $SAID"]);
    command.env("SECRET", "s3cret").env("DATABASE_URL", "postgres://admin:pw@db/x").env("WANTED", "yes");
    let _bridge = Bridge(command.stdin(Stdio::null()).stderr(Stdio::null()).spawn().unwrap());
    let sent = office.send("question", "what do you see?");
    until("answer", || !office.replies(&sent).is_empty());
    assert_eq!(office.replies(&sent), [format!("{}\nnone none yes so", office.home.path().display())]);
}

#[test]
fn an_invalid_command_is_reported_at_the_start() {
    let office = Office::new();
    let plain = office.home.path().join("plain.sh");
    fs_err::write(&plain, "echo hello\n").unwrap();
    let plain = plain.display().to_string();
    let cases: [(&[&str], &str); 3] = [
        (&["--", "no-such-command"], "there is no command no-such-command"),
        (&["--", &plain], "is not executable; `chmod +x`"),
        (&["--env", "NOT_THERE", "--", "true"], "--env NOT_THERE: there is no such variable"),
    ];
    for (arguments, said) in cases {
        let ended = office.command("ben", &[&["bridge", "exec"], arguments].concat()).output().unwrap();
        assert_eq!(ended.status.code(), Some(2), "{arguments:?}");
        let error = String::from_utf8_lossy(&ended.stderr).into_owned();
        assert!(error.contains(said), "{arguments:?}: {error}");
    }
}

#[test]
fn the_gateways_port_comes_from_its_configuration_and_its_absence_is_reported() {
    let office = Office::new();
    let port = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
    let directory = office.home.path().join(".openclaw");
    fs_err::create_dir(&directory).unwrap();
    fs_err::write(directory.join("openclaw.json"), format!("{{ gateway: {{ port: {port}, /* mine */ }} }}")).unwrap();
    let mut command = office.command("ben", &["bridge", "openclaw"]);
    let log = office.home.path().join("log");
    let stderr = fs_err::File::create(&log).unwrap().into_parts().0;
    let _bridge = Bridge(command.stdin(Stdio::null()).stderr(stderr).spawn().unwrap());
    office.send("question", "are you there?");
    let says = || office.json("ben", &["bridge", "status"]);
    until("outage", || {
        says()[0]["connection"]["down"]["detail"].as_str().is_some_and(|detail| detail.contains("--gateway-url"))
    });
    assert!(says()[0]["runtime"].as_str().unwrap().contains(&port.to_string()));
    until("count of what waits", || says()[0]["waiting"] == 1);
    // The error is reported once; retries are not, and success is not claimed.
    let said = || fs_err::read_to_string(&log).unwrap();
    until("another try", || said().contains("still down"));
    assert_eq!(said().matches("--gateway-url").count(), 1, "{}", said());
    assert!(!said().contains("is bridged to"), "{}", said());
}

#[tokio::test]
async fn a_command_gets_its_agents_key_only_if_env_names_it() {
    let home = tempfile::tempdir().unwrap();
    let office = server_office::Office::start(&format!("sqlite:{}", home.path().join("mail.db").display())).await;
    let (ann, ben) = office.pair(1).await;
    for (flags, key) in [(&[][..], "none"), (&["--env", "MAILBOX_API_KEY"], ben.key.as_str())] {
        let mut command = Command::new(assert_cmd::cargo::cargo_bin!("amb"));
        command.env_clear().env("PATH", std::env::var_os("PATH").unwrap()).env("HOME", home.path());
        command.args(["--server", &office.url(""), "bridge", "exec"]).args(flags);
        command.args(["--", "sh", "-c", "echo ${MAILBOX_API_KEY-none}"]).env("MAILBOX_API_KEY", &ben.key);
        let _bridge = Bridge(command.stdin(Stdio::null()).stderr(Stdio::null()).spawn().unwrap());
        let sent = office.send(&ann, &ben, "what do you see?").await.expect(201);
        let path = format!("/sessions/{}/history", sent["session_id"].as_str().unwrap());
        let answer = server_office::soon(async {
            loop {
                let history = office.get(&ann, &path).await.expect(200);
                let newest = history["messages"][0].clone();
                if newest["sender_name"] == ben.name {
                    return newest["content"].clone();
                }
                tokio::time::sleep(Duration::from_millis(20)).await;
            }
        })
        .await;
        assert_eq!(answer, key);
    }
}
