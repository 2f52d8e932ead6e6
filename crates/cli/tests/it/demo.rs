//! `amb demo`: it shows what happened, ends by itself, and leaves nothing.

use std::process::Stdio;

use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;
use tempfile::TempDir;
use tokio::io::{AsyncBufReadExt, AsyncReadExt, BufReader};
use tokio::process::Command;

use crate::server_office::soon;

/// A machine on which nothing is configured.
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

    // Whatever somebody was told of, the office had accepted from another before.
    let mut accepted: Vec<&Value> = Vec::new();
    for line in &lines {
        accepted.extend(line["answer"].get("message_id"));
        let mail = &line["event"];
        if mail["type"] == "new_message" && mail["kind"] != "task_update" {
            assert!(accepted.contains(&&mail["message_id"]), "told of what nobody sent: {line}");
        }
    }
    // Progress and the result of the task, in their order.
    let updates: Vec<&str> = of_type("event")
        .iter()
        .filter(|line| line["agent"] == "planner" && line["event"]["kind"] == "task_update")
        .map(|line| line["event"]["task"]["state"].as_str().unwrap())
        .collect();
    assert_eq!(updates, ["accepted", "working", "working", "completed"]);
    // Two messages waited for whoever was away, and came after it was back.
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
    insta::assert_snapshot!(without_chance(&text, &temporary));
}

/// The text without what differs from one run to the next.
fn without_chance(text: &str, temporary: &str) -> String {
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
async fn whoever_interrupts_the_demo_finds_nothing_left() {
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
async fn a_reader_that_goes_away_ends_the_demo_without_a_trace() {
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
    // Nobody listens there.
    let mut command = machine.demo(&["--fast", "--json"]);
    command.env("HTTP_PROXY", "http://127.0.0.1:9").env("http_proxy", "http://127.0.0.1:9");
    let ended = soon(command.output()).await.unwrap();
    assert!(ended.status.success(), "{}", String::from_utf8_lossy(&ended.stderr));
}

#[tokio::test]
async fn whoever_watches_gets_a_link_to_the_dashboard_that_shows_the_demo() {
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
    // Once for the whole process; a second time is no harm.
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
