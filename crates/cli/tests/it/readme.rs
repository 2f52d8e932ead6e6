//! The README's first minute, and the first steps of the pages that it leads to, run as they stand there.

use std::path::Path;
use std::process::Stdio;

use tempfile::TempDir;
use tokio::io::{AsyncBufReadExt, BufReader};
use tokio::process::Command;

use crate::server_office::{Office, soon};

const README: &str = include_str!("../../../../README.md");
const SERVER: &str = include_str!("../../../../docs/server.md");
const DIRECTORY: &str = include_str!("../../../../docs/directory.md");
const INSTALL: &str = include_str!("../../../../docs/install.md");
const PYTHON: &str = include_str!("../../../../docs/python.md");
const WORKSPACE: &str = include_str!("../../../../Cargo.toml");
const WHEEL: &str = include_str!("../../../../packaging/pypi/pyproject.toml");
const LIBRARY: &str = include_str!("../../../../python/pyproject.toml");
const NPM: &str = include_str!("../../../../packaging/npm/amb/package.json");

/// The commands of the block of a page that contains a text.
fn block(page: &'static str, containing: &str) -> Vec<&'static str> {
    let found = page.split("```sh\n").skip(1).filter_map(|rest| rest.split("```").next());
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

/// `amb down` at the end, also of a test that failed: a local office outlives its command.
struct Down<'a>(&'a TempDir);

impl Drop for Down<'_> {
    fn drop(&mut self) {
        let mut down = std::process::Command::new(env!("CARGO_BIN_EXE_amb"));
        let _ = down.env_clear().env("HOME", self.0.path()).arg("down").output();
    }
}

/// Runs the commands, with the code that one of them prints in place of the page's. Returns what the last one said.
async fn follow(home: &TempDir, commands: impl IntoIterator<Item = String>) -> String {
    let (mut code, mut last): (Option<String>, _) = (None, String::new());
    for mut command in commands {
        if let Some(code) = &code {
            command = command.replace("XC-992", code);
        }
        last = run(home, &command).await;
        if command.contains(" connect ") {
            let words = last.split_whitespace().map(|word| word.trim_matches(['.', ',', ';']));
            code = Some(words.into_iter().find(|word| is_code(word)).expect("a code").to_owned());
        }
    }
    last
}

#[tokio::test]
async fn two_own_agents_exchange_mail_after_four_commands_without_a_flag() {
    let home = tempfile::tempdir().unwrap();
    let _down = Down(&home);
    let commands = block(README, "amb up");
    assert!(commands.len() <= 4, "{commands:?}");
    let flag = |command: &&&str| command.split_whitespace().any(|word| word.starts_with('-'));
    assert_eq!(commands.iter().find(flag), None);
    let inbox = follow(&home, commands.into_iter().map(str::to_owned)).await;
    assert!(inbox.contains("which test fails?") && inbox.contains("ann"), "{inbox}");
}

#[tokio::test]
async fn the_demo_of_the_readme_plays() {
    let home = tempfile::tempdir().unwrap();
    for command in block(README, "amb demo") {
        let shown = run(&home, &format!("{command} --fast")).await;
        assert!(shown.contains("The end"), "{shown}");
    }
}

/// The packages cannot be made here; `scripts/packages` and `scripts/first-minute` install them by the same lines.
#[test]
fn packages_and_pages_have_the_names_of_the_workspace() {
    let value = |text: &'static str, key: &str| {
        let found = text
            .lines()
            .find_map(|line| line.trim().strip_prefix(key)?.trim_start_matches([' ', '=', ':', '"']).split('"').next());
        found.unwrap_or_else(|| panic!("no {key}"))
    };
    let names = WORKSPACE.split("[workspace.metadata.distributions]").nth(1).unwrap();
    let (program, python) = (value(names, "program"), value(names, "python"));
    assert_eq!((value(WHEEL, "name"), value(LIBRARY, "name"), value(NPM, "\"name\"")), (program, python, program));
    assert_eq!(block(README, "pip install"), [format!("pip install {program}")]);
    for command in
        [format!("`pip install {program}`"), format!("`uvx {program} demo`"), format!("`npm install -g {program}`")]
    {
        assert!(INSTALL.contains(&command), "{command}");
    }
    assert!(PYTHON.contains(&format!("The package `{python}`")));
}

#[tokio::test]
async fn strangers_on_a_server_connect_by_a_code_and_write() {
    let home = tempfile::tempdir().unwrap();
    let office = Office::start(&format!("sqlite:{}", home.path().join("mail.db").display())).await;
    let own = |command: &str| command.replace("http://127.0.0.1:8000", office.url("").trim_end_matches('/'));
    let sent = follow(&home, block(SERVER, "--as ann connect ben").into_iter().map(own)).await;
    let inbox = run(&home, &own("amb --server http://127.0.0.1:8000 --as ben inbox")).await;
    assert!(inbox.contains("hello") && inbox.contains("ann") && inbox.contains("Plan"), "{sent} {inbox}");
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
    for command in block(DIRECTORY, "--dir mail register ann") {
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
