//! Runs one verb in a process of its own, which can be killed at a given step.

use std::io::{BufRead as _, BufReader, Read as _};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use amb_core::mailbox::{ClaimRequest, HistoryPage, TaskFilter};
use amb_core::transcript::Line;
use amb_core::{Card, Code, Draft, Mailbox, Message, MessageId, SessionId, TaskId, TaskState};
use amb_dir::archive::{ArchiveOptions, archive};
use amb_dir::{Layout, PAUSE_AT, STOP_AT, doctor};
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use crate::world::{name, open};

const VERB: &str = "AMB_TEST_VERB";

/// What the process does.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) enum Verb {
    Register,
    Heartbeat,
    Leave,
    Send(Box<Draft>),
    Move {
        id: TaskId,
        state: TaskState,
    },
    Ack(Vec<MessageId>),
    /// Claims everything and acknowledges one by one, as `watch --ack` does.
    Take,
    Inbox,
    Read(SessionId),
    Tasks,
    Events,
    Archive,
    /// Whatever its age.
    ArchiveAll,
    Mend,
    /// Appends a line of ann to a transcript.
    Append(String, String),
    Carry(Box<Message>, u32, bool),
    Refuse(MessageId),
}

#[derive(Serialize, Deserialize)]
struct Order {
    root: std::path::PathBuf,
    layout: String,
    agent: String,
    verb: Verb,
}

/// How the process ended.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum Ended {
    Killed,
    Answered(Value),
    Refused(Code),
}

/// Returns the command of the process.
pub(crate) fn command(root: &Path, layout: Layout, agent: &str, verb: &Verb) -> Command {
    let (layout, agent) = (layout.to_string(), agent.to_owned());
    let order = Order { root: root.to_owned(), layout, agent, verb: verb.clone() };
    let mut command = Command::new(std::env::current_exe().unwrap());
    command
        .args(["--exact", "verb::in_another_process", "--nocapture"])
        .env(VERB, serde_json::to_string(&order).unwrap())
        .env_remove(STOP_AT)
        .stdin(Stdio::null())
        .stderr(Stdio::null());
    command
}

/// Runs the process to its end, or until this step.
pub(crate) fn run(root: &Path, layout: Layout, agent: &str, verb: &Verb, stop_at: Option<u64>) -> Ended {
    let mut command = command(root, layout, agent, verb);
    if let Some(step) = stop_at {
        command.env(STOP_AT, step.to_string());
    }
    ended(&command.output().unwrap())
}

/// A process that is paused before a step. Killed when dropped.
pub(crate) struct Paused(Child);

impl Paused {
    /// Starts it and returns once it is paused before this step; `None` if it ended before.
    pub(crate) fn at(step: u64, root: &Path, layout: Layout, agent: &str, verb: &Verb) -> Option<Self> {
        let mut command = command(root, layout, agent, verb);
        command.env(PAUSE_AT, step.to_string()).stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut child = command.spawn().unwrap();
        let out = child.stdout.as_mut().unwrap();
        // One byte at a time, so that nothing after the line is consumed.
        let mut said = BufReader::with_capacity(1, out).lines().map_while(Result::ok);
        if said.any(|line| line == "paused") {
            return Some(Self(child));
        }
        assert!(child.wait().unwrap().success());
        None
    }

    /// Resumes it and waits for its end.
    pub(crate) fn resume(mut self) -> Ended {
        drop(self.0.stdin.take());
        let mut stdout = Vec::new();
        self.0.stdout.take().unwrap().read_to_end(&mut stdout).unwrap();
        let status = self.0.wait().unwrap();
        ended(&std::process::Output { status, stdout, stderr: Vec::new() })
    }
}

impl Drop for Paused {
    fn drop(&mut self) {
        // It may have exited already.
        let _ended = self.0.kill();
        let _ended = self.0.wait();
    }
}

/// What a process printed before it ended.
pub(crate) fn ended(output: &std::process::Output) -> Ended {
    let said = String::from_utf8_lossy(&output.stdout);
    if let Some(answer) = said.lines().find_map(|line| line.strip_prefix("answered ")) {
        return Ended::Answered(serde_json::from_str(answer).unwrap());
    }
    if let Some(code) = said.lines().find_map(|line| line.strip_prefix("refused ")) {
        return Ended::Refused(serde_json::from_str(code).unwrap());
    }
    assert!(std::os::unix::process::ExitStatusExt::signal(&output.status) == Some(9), "it failed: {said}");
    Ended::Killed
}

/// The other process. Does nothing when run as a test.
#[tokio::test]
async fn in_another_process() {
    let Ok(order) = std::env::var(VERB) else { return };
    let order: Order = serde_json::from_str(&order).unwrap();
    let office = open(&order.root, order.layout.parse().unwrap());
    let mailbox = office.mailbox(name(&order.agent));
    let all = TaskFilter::default();
    let answer = match order.verb {
        Verb::Register => mailbox.register(Card::default()).await.map(|entry| json!(entry)),
        Verb::Heartbeat => mailbox.heartbeat().await.map(|()| json!(null)),
        Verb::Leave => mailbox.leave().await.map(|()| json!(null)),
        Verb::Send(draft) => mailbox.send(*draft).await.map(|sent| json!(sent)),
        Verb::Move { id, state } => mailbox.set_task_state(&id, state, None).await.map(|task| json!(task)),
        Verb::Ack(ids) => mailbox.ack(&ids).await.map(|done| json!(done)),
        Verb::Take => {
            async {
                let mut done = 0;
                for message in mailbox.claim(ClaimRequest { limit: 100, ..ClaimRequest::default() }).await? {
                    done += mailbox.ack(&[message.id]).await?;
                }
                Ok(json!(done))
            }
            .await
        }
        Verb::Inbox => mailbox.inbox(false).await.map(|inbox| json!(inbox)),
        Verb::Read(session) => mailbox.read(&session, HistoryPage::default()).await.map(|history| json!(history)),
        Verb::Tasks => mailbox.tasks(all).await.map(|tasks| json!(tasks)),
        Verb::Events => mailbox.events(Some(0.into()), Duration::ZERO).await.map(|page| json!(page)),
        Verb::Archive => archive(&office, None, ArchiveOptions::default()).await.map(|report| json!(report)),
        Verb::ArchiveAll => {
            let options = ArchiveOptions { older_than: Duration::ZERO, ..ArchiveOptions::default() };
            archive(&office, None, options).await.map(|report| json!(report))
        }
        Verb::Append(key, content) => {
            let (role, sender) = ("user".to_owned(), order.agent.clone());
            let line = Line { role, content, sender, message_id: None, ts: None, author: None };
            mailbox.transcript_append(&key.parse().unwrap(), line).await.map(|()| json!(null))
        }
        Verb::Carry(message, nonce, again) => mailbox.carry(*message, nonce, again).await.map(|sent| json!(sent)),
        Verb::Refuse(id) => mailbox.refuse(&id).await.map(|()| json!(null)),
        Verb::Mend => doctor::examine(&office, true).await.map(|found| json!(found)),
    };
    let told = match answer {
        Ok(answer) => format!("answered {answer}"),
        Err(error) => format!("refused {}", json!(error.code())),
    };
    println!("\n{told}");
}
