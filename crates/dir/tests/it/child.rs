//! Starts the test binary as another process of an agent.

use std::collections::HashMap;
use std::io::{BufRead as _, BufReader, Lines, Write as _};
use std::path::Path;
use std::process::{Child, ChildStdout, Command, Stdio};
use std::time::Duration;

use amb_core::mailbox::ClaimRequest;
use amb_core::{Card, Draft, Mailbox};
use amb_dir::Layout;

use crate::world::{name, open};

const ROLE: &str = "AMB_TEST_ROLE";

/// What the other process does.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Role {
    /// Sends `count` messages to `inbox-agent` and prints `sent TEXT` after each.
    Send { who: usize, count: usize },
    /// Handles the mail of `inbox-agent` until stdin ends, and prints `handled TEXT` after each acknowledgement.
    Consume,
    /// Sends `count` heartbeats, and registers again now and then.
    Beat { who: usize, count: usize },
}

/// A running process. Killed when dropped.
pub(crate) struct Process {
    child: Child,
    lines: Lines<BufReader<ChildStdout>>,
}

impl Process {
    pub(crate) fn start(root: &Path, layout: Layout, role: Role) -> Self {
        let role = match role {
            Role::Send { who, count } => format!("send {who} {count}"),
            Role::Consume => "consume".into(),
            Role::Beat { who, count } => format!("beat {who} {count}"),
        };
        let mut child = Command::new(std::env::current_exe().unwrap())
            .args(["--exact", "child::another_process", "--nocapture"])
            .env(ROLE, format!("{layout} {} {role}", root.display()))
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::inherit())
            .spawn()
            .unwrap();
        let lines = BufReader::new(child.stdout.take().unwrap()).lines();
        Self { child, lines }
    }

    /// Returns the next line that begins with this word; `None` once the process has ended.
    pub(crate) fn hear(&mut self, word: &str) -> Option<String> {
        self.lines
            .by_ref()
            .map_while(Result::ok)
            .find_map(|line| line.strip_prefix(word).map(|rest| rest.trim().to_owned()))
    }

    /// Returns all lines until the process ends.
    pub(crate) fn rest(mut self, word: &str) -> Vec<String> {
        drop(self.child.stdin.take());
        std::iter::from_fn(|| self.hear(word)).collect()
    }

    /// Kills the process with SIGKILL, and returns the lines it had printed.
    pub(crate) fn kill(mut self, word: &str) -> Vec<String> {
        self.child.kill().unwrap();
        self.child.wait().unwrap();
        std::iter::from_fn(|| self.hear(word)).collect()
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        // It may have exited already.
        let _ended = self.child.kill();
        let _ended = self.child.wait();
    }
}

/// Prints a line; starts on a new one, since the test harness may have left one unfinished.
fn say(text: &str) {
    let mut out = std::io::stdout().lock();
    writeln!(out, "\n{text}").unwrap();
    out.flush().unwrap();
}

/// The other process. Does nothing when run as a test.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn another_process() {
    let Ok(role) = std::env::var(ROLE) else { return };
    let words: Vec<&str> = role.split(' ').collect();
    let (layout, root): (Layout, &Path) = (words[0].parse().unwrap(), words[1].as_ref());
    let number = |at: usize| words[at].parse::<usize>().unwrap();
    let office = open(root, layout);
    match words[2] {
        "send" => {
            let mailbox = office.mailbox(name(&format!("sender-{}", number(3))));
            let run = std::process::id();
            for n in 0..number(4) {
                let text = format!("{}/{run}/{n}", number(3));
                mailbox.send(Draft::text(name("inbox-agent"), "Race", &text)).await.unwrap();
                say(&format!("sent {text}"));
            }
        }
        "consume" => {
            let mailbox = office.mailbox(name("inbox-agent"));
            say("ready");
            let (ended, mut stop) = tokio::sync::watch::channel(false);
            std::thread::spawn(move || {
                let _until_it_ends = std::io::stdin().lines().count();
                ended.send_replace(true);
            });
            let mut cursor = mailbox.events(None, Duration::ZERO).await.unwrap().cursor;
            loop {
                let request = ClaimRequest { limit: 8, ..ClaimRequest::default() };
                let claimed = mailbox.claim(request).await.unwrap();
                if claimed.is_empty() {
                    if *stop.borrow_and_update() {
                        return;
                    }
                    let page = mailbox.events(Some(cursor), Duration::from_millis(200)).await.unwrap();
                    cursor = page.cursor;
                    continue;
                }
                let ids: Vec<_> = claimed.iter().map(|message| message.id.clone()).collect();
                assert_eq!(mailbox.ack(&ids).await.unwrap(), ids.len() as u64, "nobody else had them");
                for message in claimed {
                    say(&format!("handled {}", message.text()));
                }
            }
        }
        "beat" => {
            let mailbox = office.mailbox(name(&format!("beater-{}", number(3))));
            for n in 0..number(4) {
                if n % 10 == 0 {
                    mailbox.register(Card { description: format!("{n}"), ..Card::default() }).await.unwrap();
                }
                mailbox.heartbeat().await.unwrap();
            }
            say("beaten all");
        }
        other => panic!("no role {other}"),
    }
}

/// Counts each text.
pub(crate) fn counted(texts: impl IntoIterator<Item = String>) -> HashMap<String, usize> {
    let mut counts = HashMap::new();
    for text in texts {
        *counts.entry(text).or_default() += 1;
    }
    counts
}
