//! The README's first steps, run as they stand there.

use std::path::Path;
use std::process::Stdio;

use tempfile::TempDir;
use tokio::io::{AsyncBufReadExt, BufReader};
use tokio::process::Command;

use crate::server_office::{Office, soon};

const README: &str = include_str!("../../../../README.md");

/// The commands of the block that contains a text.
fn block(containing: &str) -> Vec<&'static str> {
    let found = README.split("```sh\n").skip(1).filter_map(|rest| rest.split("```").next());
    let block = found.into_iter().find(|block| block.contains(containing)).expect("such a block");
    block.lines().filter(|line| !line.is_empty()).collect()
}

/// A user's home, with `amb` on the path.
fn shell(home: &TempDir, command: &str) -> Command {
    let bin = Path::new(env!("CARGO_BIN_EXE_amb")).parent().unwrap().display().to_string();
    let mut shell = Command::new("sh");
    shell.args(["-c", command]).current_dir(home.path()).stdin(Stdio::null()).kill_on_drop(true);
    shell.env_clear().env("PATH", format!("{bin}:{}", std::env::var("PATH").unwrap())).env("HOME", home.path());
    shell
}

async fn run(home: &TempDir, command: &str) -> String {
    let ended = soon(shell(home, command).output()).await.unwrap();
    assert!(ended.status.success(), "{command}: {}", String::from_utf8_lossy(&ended.stderr));
    String::from_utf8(ended.stdout).unwrap()
}

#[tokio::test]
async fn the_first_steps_on_a_server_end_with_mail_in_the_inbox() {
    let home = tempfile::tempdir().unwrap();
    let office = Office::start(&format!("sqlite:{}", home.path().join("mail.db").display())).await;
    let (mut code, mut last): (Option<String>, _) = (None, String::new());
    for command in block("--as ann connect ben") {
        let mut command = command.replace("http://127.0.0.1:8000", office.url("").trim_end_matches('/'));
        if let Some(code) = &code {
            command = command.replace("XC-992", code);
        }
        last = run(&home, &command).await;
        if command.contains(" connect ") {
            code = last
                .split_whitespace()
                .map(|word| word.trim_matches(['.', ',', ';']))
                .find(|word| is_code(word))
                .map(str::to_owned);
            assert!(code.is_some(), "{last}");
        }
    }
    assert!(last.contains("hello") && last.contains("ann") && last.contains("Plan"), "{last}");
}

fn is_code(word: &str) -> bool {
    let shape = |c: char| {
        if c.is_ascii_digit() {
            '0'
        } else if c.is_ascii_uppercase() {
            'A'
        } else {
            c
        }
    };
    word.chars().map(shape).collect::<String>() == "AA-000"
}

#[tokio::test]
async fn the_first_steps_without_a_server_reach_whoever_watches() {
    let home = tempfile::tempdir().unwrap();
    let mut watching = None;
    for command in block("--dir mail register ann") {
        match command.strip_suffix(" &") {
            Some(command) => {
                let mut child = shell(&home, &format!("exec {command}")).stdout(Stdio::piped()).spawn().unwrap();
                let lines = BufReader::new(child.stdout.take().unwrap()).lines();
                watching = Some((child, lines));
            }
            None => drop(run(&home, command).await),
        }
    }
    let (mut child, mut lines) = watching.expect("somebody who watches");
    let told = async {
        while let Some(line) = lines.next_line().await.unwrap() {
            if line.contains("sort the files") {
                return;
            }
        }
        panic!("the watch ended without telling of the task");
    };
    soon(told).await;
    child.kill().await.unwrap();
}
