//! `amb task`: the tasks given and taken.

use amb_core::mailbox::TaskFilter;
use amb_core::{Task as Work, TaskState};

use crate::args::OfficeArgs;
use crate::failure::Failure;
use crate::ids::{self, Short};
use crate::output::Output;
use crate::output::{ago, preview};

/// List, accept, reject, start and finish tasks
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  amb --as ben task list --open
  amb --as ben task accept 0199c0de
  amb --as ben task done 0199c0de 'sort_by_mtime() is in utils.py'")]
pub(crate) struct Task {
    #[command(subcommand)]
    action: Action,
}

#[derive(Debug, clap::Subcommand)]
enum Action {
    /// Tasks you gave or were given, newest first
    List {
        /// Only those you gave
        #[arg(long, conflicts_with = "given")]
        owned: bool,
        /// Only those you were given
        #[arg(long)]
        given: bool,
        /// Only those that have not ended
        #[arg(long)]
        open: bool,
        /// Only those in this state
        #[arg(long, value_name = "STATE")]
        state: Option<TaskState>,
    },
    /// Take a task on
    Accept(Move),
    /// Refuse a task; the note says why
    Reject(Move),
    /// Say that you are working on it, or how far you are
    Start(Move),
    /// Say that it is done; the note is the result
    Done(Move),
    /// Give it up; the note says why
    Fail(Move),
}

#[derive(Debug, clap::Args)]
struct Move {
    /// The task, or as much of the beginning of its id as no other has
    id: String,
    /// What to tell its owner
    note: Option<String>,
}

impl Task {
    pub(crate) async fn run(self, office: &OfficeArgs, output: Output) -> Result<(), Failure> {
        let (step, state) = match self.action {
            Action::List { owned, given, open, state } => {
                let owned = if owned { Some(true) } else { given.then_some(false) };
                let tasks = office.open().await?.tasks(TaskFilter { owned, state, open }).await?;
                return list(&tasks, output);
            }
            Action::Accept(step) => (step, TaskState::Accepted),
            Action::Reject(step) => (step, TaskState::Rejected),
            Action::Start(step) => (step, TaskState::Working),
            Action::Done(step) => (step, TaskState::Completed),
            Action::Fail(step) => (step, TaskState::Failed),
        };
        let mailbox = office.open().await?;
        let id = ids::task(&*mailbox, &step.id).await?;
        let task = mailbox.set_task_state(&id, state, step.note).await?;
        if output.json {
            return Ok(output.document(&task)?);
        }
        output.say(format!("task {} of {} is {}", task.id, task.owner, task.state))?;
        Ok(())
    }
}

fn list(tasks: &[Work], output: Output) -> Result<(), Failure> {
    if output.json {
        return Ok(output.document(&serde_json::json!({ "tasks": tasks }))?);
    }
    if tasks.is_empty() {
        output.note("no tasks");
        return Ok(());
    }
    let short = Short::of(tasks.iter().map(|task| task.id.as_str()), output.for_person);
    let rows = tasks.iter().map(|task| {
        let state = if task.overdue { format!("{} (overdue)", task.state) } else { task.state.to_string() };
        let subject = task.subject.as_deref().unwrap_or_default();
        let note = task.note.as_deref().unwrap_or_default();
        let (owner, assignee) = (task.owner.to_string(), task.assignee.to_string());
        vec![
            short.show(task.id.as_str()),
            owner,
            assignee,
            state,
            ago(task.updated_at),
            preview(subject, 30),
            preview(note, 40),
        ]
    });
    output.table(&["TASK", "OWNER", "FOR", "STATE", "CHANGED", "SUBJECT", "NOTE"], rows)?;
    Ok(())
}
