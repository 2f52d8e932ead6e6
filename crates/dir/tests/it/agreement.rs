//! Checks that all agents see the same state as the files: each message, task, update and receipt once.

use std::collections::HashMap;
use std::path::PathBuf;
use std::time::{Duration, SystemTime};

use amb_core::event::Event;
use amb_core::mailbox::TaskFilter;
use amb_core::{AgentName, Mailbox, MessageId, Task, TaskId, TaskState};
use amb_dir::{DirMailbox, Layout, doctor};
use serde_json::Value;

use crate::world::{World, name, temps};

/// A message as parsed from its file.
#[derive(Debug, Clone)]
pub(crate) struct MailFile {
    pub(crate) id: MessageId,
    pub(crate) from: AgentName,
    pub(crate) to: AgentName,
    pub(crate) kind: String,
    pub(crate) task: Option<(TaskId, TaskState)>,
    pub(crate) read: bool,
    pub(crate) text: String,
}

impl MailFile {
    /// A task that the office rejected when it was sent, which its recipient does not see.
    pub(crate) fn is_rejected(&self) -> bool {
        self.kind == "task" && self.task.as_ref().is_some_and(|(_, state)| *state == TaskState::Rejected)
    }
}

/// Returns every message file of an agent, in any directory.
pub(crate) fn mail_files(world: &World, agent: &str) -> Vec<MailFile> {
    let (inbox, away) = match world.layout {
        Layout::Nanobot => (world.inbox(agent), world.path().join(agent).join("processed")),
        Layout::Chipset => (world.inbox(agent), world.path().join(agent).join("archive")),
    };
    let mut folders = vec![(inbox.clone(), true), (away.clone(), false)];
    for entry in fs_err::read_dir(&away).into_iter().flatten().flatten() {
        if entry.file_type().unwrap().is_dir() {
            folders.push((entry.path(), false));
        }
    }
    let mut mail_files = Vec::new();
    for (folder, in_inbox) in folders {
        for entry in fs_err::read_dir(folder).into_iter().flatten().flatten() {
            let file = entry.file_name().into_string().unwrap();
            if !entry.file_type().unwrap().is_file() || file.starts_with('.') || !file.ends_with(".json") {
                continue;
            }
            let value: Value = serde_json::from_slice(&fs_err::read(entry.path()).unwrap()).unwrap();
            mail_files.push(mail(world.layout, agent, &file, in_inbox, &value));
        }
    }
    mail_files
}

fn mail(layout: Layout, agent: &str, file: &str, in_inbox: bool, value: &Value) -> MailFile {
    let ours = &value["amb"];
    let (id, task, read, text) = match layout {
        Layout::Nanobot => {
            let text = value["content"]["parts"][0]["text"].as_str().unwrap_or_default();
            (value["id"].as_str().unwrap().to_owned(), &value["task"], !in_inbox, text)
        }
        Layout::Chipset => {
            let read = value["read"].as_bool().unwrap();
            (file.trim_end_matches(".json").to_owned(), &ours["task"], read, value["body"].as_str().unwrap())
        }
    };
    let task = task["id"].as_str().map(|id| (id.parse().unwrap(), task["state"].as_str().unwrap().parse().unwrap()));
    MailFile {
        id: MessageId::parse(&id).unwrap(),
        from: name(value["from"].as_str().unwrap()),
        to: name(agent),
        kind: value["type"].as_str().unwrap().to_owned(),
        task,
        read,
        text: text.to_owned(),
    }
}

/// Returns all events of an agent's log.
pub(crate) async fn told(mailbox: &DirMailbox) -> Vec<Event> {
    let mut events = Vec::new();
    let mut cursor = 0.into();
    loop {
        let page = mailbox.events(Some(cursor), Duration::ZERO).await.unwrap();
        if page.events.is_empty() {
            return events;
        }
        cursor = page.cursor;
        events.extend(page.events.into_iter().map(|entry| entry.event));
    }
}

fn count<T>(all: &[T], wanted: impl Fn(&T) -> bool) -> usize {
    all.iter().filter(|one| wanted(one)).count()
}

/// Returns the journal entries.
pub(crate) fn unfinished(world: &World) -> Vec<String> {
    let mut files = world.files(".amb/unfinished");
    files.retain(|file| file.ends_with(".json"));
    files
}

/// Lets the agents read their mail, in this order, and checks that all see the same, each thing once.
pub(crate) async fn everybody_agrees(world: &World, agents: &[&str], about: &str) {
    let about = &format!("{}, {about}", world.layout);
    let office = world.office();
    let mailboxes: HashMap<AgentName, DirMailbox> =
        agents.iter().map(|agent| (name(agent), office.mailbox(name(agent)))).collect();
    for (n, agent) in agents.iter().enumerate() {
        mailboxes[&name(agent)].inbox(false).await.unwrap();
        if n == 0 {
            assert_eq!(unfinished(world), Vec::<String>::new(), "{about}: the first look finishes everything");
        }
    }
    let mut events = HashMap::new();
    let mut tasks: HashMap<AgentName, Vec<Task>> = HashMap::new();
    for (agent, mailbox) in &mailboxes {
        events.insert(agent.clone(), told(mailbox).await);
        tasks.insert(agent.clone(), mailbox.tasks(TaskFilter::default()).await.unwrap());
    }
    let mail_files: Vec<MailFile> = agents.iter().flat_map(|agent| mail_files(world, agent)).collect();
    for mail in &mail_files {
        let about = &format!("{about}: {} from {} to {} ({})", mail.kind, mail.from, mail.to, mail.id);
        assert_eq!(count(&mail_files, |other| other.id == mail.id), 1, "{about}: there once");
        let heard =
            count(&events[&mail.to], |event| matches!(event, Event::NewMessage(new) if new.message_id == mail.id));
        assert_eq!(heard, usize::from(!mail.is_rejected()), "{about}: its recipient is told of it once");
        // An update about a task that its assignee was not shown, sent by the office in the assignee's name.
        let hidden = mail.kind == "task_update"
            && mail_files.iter().any(|other| {
                other.is_rejected()
                    && other.from != other.to
                    && other.task.as_ref().zip(mail.task.as_ref()).is_some_and(|(a, b)| a.0 == b.0)
            });
        let known = mailboxes[&mail.from].message(&mail.id).await;
        assert_eq!(known.is_ok(), !hidden, "{about}: its sender: {known:?}");
        let receipts = count(
            &events[&mail.from],
            |event| matches!(event, Event::Receipt { message_id, receipt } if *message_id == mail.id && receipt.recipient == mail.to),
        );
        let read = mail.read && !mail.is_rejected() && mail.from != mail.to && !hidden;
        assert_eq!(receipts, usize::from(read), "{about}: one receipt once it is read");
    }
    for mail in mail_files.iter().filter(|mail| mail.kind == "task") {
        let (id, _) = mail.task.as_ref().unwrap();
        let about = &format!("{about}: task {id}");
        let mine: Vec<&Task> = tasks[&mail.from].iter().filter(|task| task.id == *id).collect();
        let theirs: Vec<&Task> = tasks[&mail.to].iter().filter(|task| task.id == *id).collect();
        // An undelivered message is visible to its sender alone.
        let shown = usize::from(!mail.is_rejected() || mail.from == mail.to);
        assert_eq!((mine.len(), theirs.len()), (1, shown), "{about}: in the lists of both");
        assert!(theirs.iter().all(|task| task.state == mine[0].state), "{about}");
        assert!(!mail.is_rejected() || mine[0].state == TaskState::Rejected, "{about}");
        let updates: Vec<TaskState> = mail_files
            .iter()
            .filter(|update| update.kind == "task_update" && update.to == mail.from)
            .filter_map(|update| update.task.as_ref().filter(|(task, _)| task == id).map(|(_, state)| *state))
            .collect();
        for state in TaskState::ALL {
            let told = count(&updates, |told| *told == state);
            let most = if state == TaskState::Pending { 0 } else { 1 };
            // A repeat may report progress more than once.
            assert!(told <= most || state == TaskState::Working, "{about}: {state} told {told} times");
            assert!(state != mine[0].state || told >= most, "{about}: nobody told its owner that it is {state}");
        }
        assert!(!mine[0].state.is_terminal() || mail.read, "{about}: it has ended and its message still waits");
    }
    // No agent has a task that was not sent.
    for (agent, tasks) in &tasks {
        for task in tasks {
            let sent = count(&mail_files, |mail| mail.task.as_ref().is_some_and(|(id, _)| *id == task.id));
            assert!(sent > 0, "{about}: {agent} has a task that was not sent: {task:?}");
        }
    }
    nothing_is_left(world, about).await;
}

/// The doctor mends what a killed process left, and then finds nothing.
async fn nothing_is_left(world: &World, about: &str) {
    for temp in temps(world.path()) {
        let old = SystemTime::now() - Duration::from_secs(120);
        fs_err::OpenOptions::new().write(true).open(temp).unwrap().set_modified(old).unwrap();
    }
    doctor::examine(&world.office(), true).await.unwrap();
    assert_eq!(temps(world.path()), Vec::<PathBuf>::new(), "{about}");
    let left = doctor::examine(&world.office(), false).await.unwrap();
    assert!(left.is_empty(), "{about}: {left:?}");
}
