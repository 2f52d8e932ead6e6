//! `amb demo`: it shows what happened, ends by itself, and leaves nothing.

use std::process::Stdio;

use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;
use tempfile::TempDir;
use tokio::io::{AsyncBufReadExt, AsyncReadExt, BufReader};
use tokio::process::Command;

use crate::server_office::soon;

/// A machine without configuration.
struct Machine {
    home: TempDir,
    temporary: TempDir,
}

impl Machine {
    fn new() -> Self {
        Self { home: tempfile::tempdir().unwrap(), temporary: tempfile::tempdir().unwrap() }
    }

    fn demo(&self, arguments: &[&str]) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_amb"));
        command.env_clear().env("HOME", self.home.path()).env("TMPDIR", self.temporary.path());
        command.arg("demo").args(arguments).current_dir(self.home.path());
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped()).kill_on_drop(true);
        command
    }

    async fn play(&self, arguments: &[&str]) -> String {
        let ended = soon(self.demo(arguments).output()).await.unwrap();
        assert!(ended.status.success(), "{}", String::from_utf8_lossy(&ended.stderr));
        assert!(ended.stderr.is_empty(), "{}", String::from_utf8_lossy(&ended.stderr));
        String::from_utf8(ended.stdout).unwrap()
    }

    #[track_caller]
    fn is_as_before(&self) {
        for place in [&self.home, &self.temporary] {
            let left: Vec<_> = fs_err::read_dir(place.path()).unwrap().map(|entry| entry.unwrap().path()).collect();
            assert!(left.is_empty(), "left behind: {left:?}");
        }
    }
}

#[tokio::test]
async fn the_demo_shows_what_the_office_said_and_leaves_nothing() {
    let machine = Machine::new();
    let lines: Vec<Value> =
        machine.play(&["--fast", "--json"]).await.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    machine.is_as_before();
    let of_type = |kind: &str| lines.iter().filter(|line| line["type"] == kind).collect::<Vec<_>>();

    // Every pushed event follows from a request that the office had accepted.
    let mut accepted: Vec<&Value> = Vec::new();
    for line in &lines {
        accepted.extend(line["answer"].get("message_id"));
        let mail = &line["event"];
        if mail["type"] == "new_message" && mail["kind"] != "task_update" {
            assert!(accepted.contains(&&mail["message_id"]), "told of what nobody sent: {line}");
        }
    }
    // The progress and the result of the task, in order.
    let updates: Vec<&str> = of_type("event")
        .iter()
        .filter(|line| line["agent"] == "planner" && line["event"]["kind"] == "task_update")
        .map(|line| line["event"]["task"]["state"].as_str().unwrap())
        .collect();
    assert_eq!(updates, ["accepted", "working", "working", "completed"]);
    // Two messages were queued for the offline agent and delivered after its return.
    let back = lines.iter().position(|line| line["verb"] == "follow").expect("somebody who comes back");
    let late = |line: &&Value| line["event"]["type"] == "new_message" && line["event"]["subject"] == "Fixture";
    assert!(!lines[..back].iter().any(|line| late(&line)));
    let caught_up = lines[back..].iter().filter(late).filter(|line| line["agent"] == "reviewer").count();
    assert_eq!(caught_up, 2);
    let codes: Vec<&str> = of_type("refused").iter().map(|line| line["code"].as_str().unwrap()).collect();
    assert_eq!(codes, ["not_connected", "loop_refused", "loop_refused"]);
    assert_eq!(of_type("end").len(), 1);
}

#[tokio::test]
async fn the_text_of_the_demo_fits_a_terminal_and_has_no_colour_outside_one() {
    let machine = Machine::new();
    let text = machine.play(&["--fast"]).await;
    assert!(!text.contains('\x1b'), "{text}");
    let temporary = machine.temporary.path().display().to_string();
    let wide: Vec<&str> = text.lines().filter(|line| !line.contains(&temporary) && line.chars().count() > 84).collect();
    assert!(wide.is_empty(), "{wide:#?}");
    insta::assert_snapshot!(normalized(&text, &temporary));
}

/// The text with the parts replaced that differ between runs.
fn normalized(text: &str, temporary: &str) -> String {
    let word = |word: &str| {
        let trimmed = word.trim_end_matches([',', ':', '.']);
        let rest = &word[trimmed.len()..];
        let shape: String = trimmed.chars().map(|c| if c.is_ascii_digit() { '0' } else { c }).collect();
        match () {
            () if trimmed.starts_with(temporary) => format!("DIRECTORY{rest}"),
            () if trimmed.starts_with("http://127.0.0.1:") => format!("http://127.0.0.1:PORT{rest}"),
            () if shape.len() == 6 && shape.ends_with("-000") => format!("XC-992{rest}"),
            () => word.to_owned(),
        }
    };
    let line = |line: &str| {
        let line = line.split(' ').map(word).collect::<Vec<_>>().join(" ");
        // How long it took.
        match line.rsplit_once("  ") {
            Some((line, time)) if time.ends_with(" ms") => format!("{line}  N ms"),
            _ => match line.split_once("within ") {
                Some((before, after)) => {
                    format!("{before}within N{}", after.trim_start_matches(|c: char| c.is_ascii_digit()))
                }
                None => line,
            },
        }
    };
    text.lines().map(line).collect::<Vec<_>>().join("\n")
}

#[tokio::test]
async fn an_interrupted_demo_leaves_nothing_behind() {
    for signal in [Signal::INT, Signal::TERM, Signal::HUP] {
        let machine = Machine::new();
        let mut child = machine.demo(&[]).spawn().unwrap();
        let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
        // The office is open and an agent is in it.
        while let Some(line) = soon(lines.next_line()).await.unwrap() {
            if line.contains("registers") {
                break;
            }
        }
        let pid = Pid::from_raw(i32::try_from(child.id().unwrap()).unwrap()).unwrap();
        kill_process(pid, signal).unwrap();
        let ended = soon(child.wait()).await.unwrap();
        assert!(ended.success(), "{signal:?}: {ended}");
        let mut said = String::new();
        child.stderr.take().unwrap().read_to_string(&mut said).await.unwrap();
        assert!(said.contains("interrupted"), "{said}");
        machine.is_as_before();
    }
}

#[tokio::test]
async fn a_closed_pipe_ends_the_demo_and_leaves_nothing_behind() {
    let machine = Machine::new();
    let mut child = machine.demo(&["--fast"]).spawn().unwrap();
    drop(child.stdout.take());
    let ended = soon(child.wait()).await.unwrap();
    assert!(ended.success(), "{ended}");
    machine.is_as_before();
}

#[tokio::test]
async fn the_demo_needs_no_network_whatever_proxy_is_set() {
    let machine = Machine::new();
    // A port on which nothing listens.
    let mut command = machine.demo(&["--fast", "--json"]);
    command.env("HTTP_PROXY", "http://127.0.0.1:9").env("http_proxy", "http://127.0.0.1:9");
    let ended = soon(command.output()).await.unwrap();
    assert!(ended.status.success(), "{}", String::from_utf8_lossy(&ended.stderr));
}

#[tokio::test]
async fn the_demo_prints_a_link_to_its_dashboard() {
    let machine = Machine::new();
    let mut child = machine.demo(&["--no-open", "--json"]).spawn().unwrap();
    let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
    let mut link = None;
    while let Some(line) = soon(lines.next_line()).await.unwrap() {
        let line: Value = serde_json::from_str(&line).unwrap();
        if line["type"] == "office" {
            link = line["dashboard"].as_str().map(str::to_owned);
        }
        if line["verb"] == "register" || line["type"] == "event" {
            break;
        }
    }
    let link = link.expect("a link");
    // Once per process; a second call is ignored.
    let _ = rustls::crypto::ring::default_provider().install_default();
    let http = reqwest::Client::builder().redirect(reqwest::redirect::Policy::none()).no_proxy().build().unwrap();
    let signed_in = soon(http.get(&link).send()).await.unwrap();
    let cookie = signed_in.headers()["set-cookie"].to_str().unwrap().split(';').next().unwrap().to_owned();
    let overview = format!("{}/dashboard", link.split("/dashboard").next().unwrap());
    let page = soon(http.get(overview).header("Cookie", cookie).send()).await.unwrap();
    assert!(page.status().is_success(), "{}", page.status());
    let page = soon(page.text()).await.unwrap();
    assert!(page.contains("planner"), "{page}");
    let pid = Pid::from_raw(i32::try_from(child.id().unwrap()).unwrap()).unwrap();
    kill_process(pid, Signal::INT).unwrap();
    assert!(soon(child.wait()).await.unwrap().success());
    machine.is_as_before();
}
