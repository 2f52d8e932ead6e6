//! Several bridges in one process, and the service that keeps them running.

use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use serde_json::Value;
use tokio::io::{AsyncBufReadExt, BufReader};

use crate::local_office::Home;
use crate::server_office::soon;

struct Machine {
    home: tempfile::TempDir,
}

impl Machine {
    fn new(agents: &[&str]) -> Self {
        let machine = Self { home: tempfile::tempdir().unwrap() };
        for name in agents {
            machine.amb(&["--dir", "mail", "register", name]);
        }
        machine
    }

    fn path(&self, name: &str) -> PathBuf {
        self.home.path().join(name)
    }

    fn command(&self, arguments: &[&str]) -> Command {
        let mut command = Command::new(assert_cmd::cargo::cargo_bin!("amb"));
        command.env_clear().env("PATH", std::env::var_os("PATH").unwrap()).env("HOME", self.home.path());
        command.current_dir(self.home.path()).args(arguments);
        command
    }

    fn amb(&self, arguments: &[&str]) -> String {
        let output = self.command(arguments).output().unwrap();
        assert!(output.status.success(), "{arguments:?}: {}", String::from_utf8_lossy(&output.stderr));
        String::from_utf8(output.stdout).unwrap()
    }

    fn json(&self, arguments: &[&str]) -> Value {
        serde_json::from_str(&self.amb(&[arguments, &["--json"]].concat())).unwrap()
    }

    /// Sends to an agent; returns the thread.
    fn send(&self, to: &str) -> String {
        let sent = self.json(&["--dir", "mail", "--as", "ann", "send", to, "question", "--subject", to]);
        sent["session_id"].as_str().unwrap().to_owned()
    }

    fn replies(&self, session: &str, by: &str) -> Vec<String> {
        let history = self.json(&["--dir", "mail", "--as", "ann", "read", session]);
        let messages = history["messages"].as_array().unwrap().iter();
        let said = messages.filter(|message| message["sender_name"] == by);
        said.map(|message| message["content"].as_str().unwrap().to_owned()).collect()
    }

    fn status(&self, agent: &str) -> Option<Value> {
        let all = self.json(&["bridge", "status"]);
        all.as_array().unwrap().iter().find(|status| status["agent"] == agent).cloned()
    }

    fn run(&self, file: &str) -> Run {
        Run(self.command(&["bridge", "run", file]).stdin(Stdio::null()).stderr(Stdio::null()).spawn().unwrap())
    }
}

/// A process that does not outlive its test.
struct Run(Child);

impl Run {
    fn stop(&mut self) {
        let pid = rustix::process::Pid::from_raw(i32::try_from(self.0.id()).unwrap()).unwrap();
        rustix::process::kill_process(pid, rustix::process::Signal::TERM).unwrap();
        assert!(self.0.wait().unwrap().success());
    }
}

impl Drop for Run {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

fn until(what: &str, is: impl Fn() -> bool) {
    let deadline = Instant::now() + Duration::from_secs(60);
    while !is() {
        assert!(Instant::now() < deadline, "still no {what}");
        std::thread::sleep(Duration::from_millis(20));
    }
}

const BRIDGES: &str = r#"
[bridges.loud]
kind = "exec"
as = "loud"
dir = "mail"
command = ["tr", "a-z", "A-Z"]

[bridges.late]
kind = "exec"
as = "late"
dir = "mail"
command = ["./late.sh"]
"#;

#[test]
fn a_failed_bridge_is_restarted_while_the_other_works() {
    let machine = Machine::new(&["ann", "loud", "late"]);
    fs_err::write(machine.path("bridges.toml"), BRIDGES).unwrap();
    let mut run = machine.run("bridges.toml");
    let (loud, late) = (machine.send("loud"), machine.send("late"));
    until("answer", || machine.replies(&loud, "loud") == ["QUESTION"]);
    until("word of the one that failed", || {
        machine.status("late").is_some_and(|status| {
            let detail = status["connection"]["down"]["detail"].as_str().unwrap_or_default().to_owned();
            status["running"] == true && detail.contains("./late.sh")
        })
    });
    let failed = machine.status("late").unwrap();
    let mail = fs_err::canonicalize(machine.path("mail")).unwrap();
    assert_eq!(failed["runtime"], "command ./late.sh", "{failed}");
    assert_eq!(failed["office"], format!("directory {}", mail.display()), "{failed}");
    assert!(machine.replies(&late, "late").is_empty());
    let script = machine.path("late.sh.new");
    fs_err::write(&script, "#!/bin/sh\necho here I am\n").unwrap();
    fs_err::set_permissions(&script, std::fs::Permissions::from_mode(0o755)).unwrap();
    fs_err::rename(&script, machine.path("late.sh")).unwrap();
    until("late answer", || machine.replies(&late, "late") == ["here I am"]);
    run.stop();
    for agent in ["loud", "late"] {
        assert_eq!(machine.status(agent).unwrap()["running"], false, "{agent}");
    }
}

#[test]
fn a_file_with_a_mistake_runs_nothing() {
    let machine = Machine::new(&[]);
    fs_err::write(machine.path("bridges.toml"), BRIDGES.replace("late.sh\"]", "late.sh\"]\ncolour = 'red'")).unwrap();
    let refused = machine.command(&["bridge", "run", "bridges.toml"]).output().unwrap();
    assert_eq!(refused.status.code(), Some(2));
    let said = String::from_utf8(refused.stderr).unwrap();
    assert!(said.contains("bridges.late") && said.contains("--colour"), "{said}");
    fs_err::write(machine.path("bridges.toml"), BRIDGES).unwrap();
    let shown = machine.amb(&["bridge", "run", "--check", "bridges.toml"]);
    assert!(shown.contains("bridge exec -- tr a-z A-Z"), "{shown}");
}

#[tokio::test]
async fn a_bridge_waits_for_the_local_office() {
    let home = Home::new();
    let file = BRIDGES.replace("dir = \"mail\"", "office = \"local\"");
    fs_err::write(home.root.path().join("bridges.toml"), file).unwrap();
    let shown = home.amb(&["bridge", "run", "--check", "bridges.toml"]).await;
    assert!(shown.contains("--office=local -- tr a-z A-Z"), "{shown}");
    let mut run = home.command(&["bridge", "run", "bridges.toml"]);
    run.env("PATH", std::env::var_os("PATH").unwrap()).stderr(Stdio::piped());
    let mut run = run.spawn().unwrap();
    let mut said = BufReader::new(run.stderr.take().unwrap()).lines();
    while !soon(said.next_line()).await.unwrap().unwrap().contains("no local office runs; `amb up` starts it") {}
    home.amb(&["up"]).await;
    home.amb(&["register", "ann", "loud"]).await;
    home.amb(&["--as", "ann", "send", "loud", "question"]).await;
    let answered = async {
        while !home.amb(&["--as", "ann", "inbox", "--json"]).await.contains("QUESTION") {
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    };
    soon(answered).await;
    run.kill().await.unwrap();
}

fn mode(path: &Path) -> u32 {
    fs_err::metadata(path).unwrap().permissions().mode() & 0o777
}

#[test]
fn a_service_is_written_without_keys_and_taken_away_again() {
    let machine = Machine::new(&[]);
    let file = BRIDGES.replace("as = \"late\"", "as = \"late\"\nenv = [\"MODEL_KEY\", \"ABSENT\"]");
    fs_err::write(machine.path("team.toml"), file).unwrap();
    let install = |arguments: &[&str]| {
        let mut command =
            machine.command(&[&["bridge", "install", "team.toml", "--manager", "systemd"], arguments].concat());
        let output = command.env("MODEL_KEY", "hunter2 $x").output().unwrap();
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        (String::from_utf8(output.stdout).unwrap(), String::from_utf8(output.stderr).unwrap())
    };
    let (shown, _) = install(&["--print"]);
    assert!(shown.contains("[Service]") && shown.contains("MODEL_KEY=•••") && !shown.contains("hunter2"), "{shown}");
    assert!(!machine.path(".config").exists(), "--print writes nothing");

    let unit = machine.path(".config/systemd/user/amb-bridge-team.service");
    let environment = machine.path(".config/amb/bridge-team.env");
    let link = machine.path(".config/systemd/user/default.target.wants/amb-bridge-team.service");
    for _ in 0..2 {
        let (_, said) = install(&[]);
        assert!(said.contains("ABSENT is not in your environment") && said.contains("enable-linger"), "{said}");
        let text = fs_err::read_to_string(&unit).unwrap();
        assert!(text.contains("bridge run") && text.contains("team.toml\"\n") && !text.contains("hunter2"), "{text}");
        assert_eq!(mode(&environment), 0o600);
        let kept = fs_err::read_to_string(&environment).unwrap();
        assert!(kept.contains("MODEL_KEY=\"hunter2 \\$x\"\n") && kept.contains("PATH="), "{kept}");
        assert_eq!(fs_err::canonicalize(&link).unwrap(), fs_err::canonicalize(&unit).unwrap());
    }
    install(&["--remove"]);
    assert!(!unit.exists() && !environment.exists() && fs_err::symlink_metadata(&link).is_err());
}

#[test]
fn a_launch_agent_reads_its_keys_from_the_same_file() {
    let machine = Machine::new(&[]);
    fs_err::write(machine.path("team.toml"), BRIDGES).unwrap();
    let shown = machine.amb(&["bridge", "install", "team.toml", "--manager", "launchd", "--print"]);
    assert!(shown.contains("Library/LaunchAgents/agent-mailbox.bridge.team.plist"), "{shown}");
    assert!(shown.contains("bridge-team.env</string>") && shown.contains("<key>KeepAlive</key>"), "{shown}");
}
