//! `amb task`: the tasks given and taken.

use amb_core::doc::Tasks;
use amb_core::limits::MAX_TASKS;
use amb_core::mailbox::TaskFilter;
use amb_core::message::NO_SUBJECT;
use amb_core::{AgentName, Mailbox, Task, TaskState};

use crate::args::OfficeArgs;
use crate::failure::Failure;
use crate::ids::{self, Short};
use crate::output::{Output, ago, preview};
use crate::verbs::household;

/// How many tasks without a subject are named by the first words of their messages.
const MAX_NAMED: usize = 20;

/// List tasks and change their state; cancel and reassign tasks of your household
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  amb --as ben task list --open
  amb --as ben task accept 0199c0de
  amb --as ben task done 0199c0de 'sort_by_mtime() is in utils.py'
  amb task list --household --open        open tasks of all your agents
  amb task cancel 0199c0de 'not needed'   as the household's person
  amb task reassign 0199c0de coder        coder receives it as a new message")]
pub(crate) struct TaskCommand {
    #[command(subcommand)]
    action: TaskVerb,
}

#[derive(Debug, clap::Subcommand)]
enum TaskVerb {
    /// List the tasks that you assigned or were assigned, newest first
    #[command(after_help = "\
Examples:
  amb --as ben task list --given --open
  amb task list --household --state working")]
    List {
        /// Only tasks that you assigned to other agents: you are their owner
        #[arg(long, conflicts_with = "given")]
        owned: bool,
        /// Only tasks that other agents assigned to you
        #[arg(long)]
        given: bool,
        /// All tasks of your household
        #[arg(long, conflicts_with_all = ["owned", "given"])]
        household: bool,
        /// Only tasks that have not ended
        #[arg(long)]
        open: bool,
        /// Only tasks in this state
        #[arg(long, value_name = "STATE")]
        state: Option<TaskState>,
    },
    /// Accept a task
    #[command(after_help = "Example:\n  amb --as ben task accept 0199c0de")]
    Accept(TaskMove),
    /// Reject a task; the note gives the reason
    #[command(after_help = "Example:\n  amb --as ben task reject 0199c0de 'not before Friday'")]
    Reject(TaskMove),
    /// Report that you are working on it; repeat to report progress in the note
    #[command(after_help = "Example:\n  amb --as ben task start 0199c0de 'half of the files are sorted'")]
    Start(TaskMove),
    /// Complete it; the note is the result
    #[command(after_help = "Example:\n  amb --as ben task done 0199c0de 'sort_by_mtime() is in utils.py'")]
    Done(TaskMove),
    /// Report that it failed; the note gives the reason
    #[command(after_help = "Example:\n  amb --as ben task fail 0199c0de 'the disk is full'")]
    Fail(TaskMove),
    /// Cancel a task of your household, whoever assigned it; the note gives the reason
    #[command(after_help = "Example:\n  amb task cancel 0199c0de 'not needed'")]
    Cancel(TaskMove),
    /// Assign a task of your household to another of its agents
    #[command(after_help = "Example:\n  amb task reassign 0199c0de coder")]
    Reassign {
        /// Id of the task, or a unique prefix of it
        id: String,
        /// The new assignee
        name: AgentName,
    },
}

#[derive(Debug, clap::Args)]
struct TaskMove {
    /// Id of the task, or a unique prefix of it
    id: String,
    /// A note for the agent that assigned the task
    note: Option<String>,
}

impl TaskCommand {
    pub(crate) async fn run(self, office: &OfficeArgs, output: Output) -> Result<(), Failure> {
        let (step, state) = match self.action {
            TaskVerb::List { household: true, open, state, .. } => {
                let mut found = household::open(office).await?.household_tasks(open, state).await?;
                // An older server ignores the state.
                found.tasks.retain(|task| state.is_none_or(|state| task.state == state));
                list(&found, output)?;
                if found.truncated {
                    let narrow = "--open and --state narrow the list";
                    output.note(format!("these are the ones that changed last, and there are more; {narrow}"));
                }
                return Ok(());
            }
            TaskVerb::Cancel(step) => {
                let person = household::open(office).await?;
                let id = ids::household_task(&person, &step.id).await?;
                let task = person.cancel_task(&id, step.note.as_deref()).await?;
                let line = format!("task {} of {} for {} is canceled", task.id, task.owner, task.assignee);
                return output.result(&task, line);
            }
            TaskVerb::Reassign { id, name } => {
                let person = household::open(office).await?;
                let id = ids::household_task(&person, &id).await?;
                let task = household::or_suggest(&person, &name, person.reassign_task(&id, &name).await).await?;
                let line = format!("task {} of {} is {}'s now", task.id, task.owner, task.assignee);
                return output.result(&task, line);
            }
            TaskVerb::List { owned, given, open, state, .. } => {
                let owned = if owned { Some(true) } else { given.then_some(false) };
                let mailbox = office.open().await?;
                let mut tasks = mailbox.tasks(TaskFilter { owned, state, open }).await?;
                if output.for_person {
                    fill_subjects(&*mailbox, &mut tasks).await;
                }
                let found = Tasks { tasks, truncated: false };
                list(&found, output)?;
                if office.server.is_some() && found.tasks.len() >= MAX_TASKS as usize {
                    output.note(format!(
                        "these are the newest {MAX_TASKS}, and there may be more; --open, --state, --owned and --given narrow the list"
                    ));
                }
                return Ok(());
            }
            TaskVerb::Accept(step) => (step, TaskState::Accepted),
            TaskVerb::Reject(step) => (step, TaskState::Rejected),
            TaskVerb::Start(step) => (step, TaskState::Working),
            TaskVerb::Done(step) => (step, TaskState::Completed),
            TaskVerb::Fail(step) => (step, TaskState::Failed),
        };
        let mailbox = office.open().await?;
        let id = ids::task(&*mailbox, &step.id).await?;
        let task = mailbox.set_task_state(&id, state, step.note).await?;
        output.result(&task, format!("task {} of {} is {}", task.id, task.owner, task.state))
    }
}

/// Sets the text of their messages as the subject of tasks without one, for the first of the list.
async fn fill_subjects(mailbox: &dyn Mailbox, tasks: &mut [Task]) {
    let unnamed = |task: &&mut Task| task.subject.as_deref().is_none_or(|subject| subject == NO_SUBJECT);
    for task in tasks.iter_mut().filter(unnamed).take(MAX_NAMED) {
        if let Ok(asked) = mailbox.message(&task.message_id).await {
            task.subject = Some(asked.message.text());
        }
    }
}

fn list(found: &Tasks, output: Output) -> Result<(), Failure> {
    let tasks = &found.tasks;
    let short = Short::of(tasks.iter().map(|task| task.id.as_str()), output.for_person);
    let rows = tasks.iter().map(|task| {
        let state = match (&task.canceled_by, task.overdue) {
            (Some(by), _) => format!("canceled by {by}"),
            (None, true) => format!("{} (overdue)", task.state),
            (None, false) => task.state.to_string(),
        };
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
    let head = ["TASK", "OWNER", "FOR", "STATE", "CHANGED", "SUBJECT", "NOTE"];
    output.list(found, "no tasks", &head, rows)
}
