//! `GET /dashboard/tasks`: a board by state, and deadlines. `GET /dashboard/tasks/{id}`: one task and its chain.

use amb_core::{AgentName, Task, TaskState, Timestamp};
use amb_store::{Lane, Member};
use askama::Template;
use axum::extract::State;
use axum::response::Response;

use super::frame::{PageError, PageFrame, page};
use super::html::{Html, line};
use super::overview::by_activity;
use super::picture;
use super::session::Visitor;
use crate::app::App;
use crate::request::{Segment, parse_id};

/// Tasks of one state on the board: a full page stays under 50 KB.
const TASKS_PER_STATE: u32 = 15;
/// Bars in the timeline.
const BARS: usize = 14;
/// Agents suggested for a reassignment; other names can be typed.
const SUGGESTED: usize = 100;

#[derive(Template)]
#[template(path = "tasks.html")]
struct TaskBoardPage {
    frame: PageFrame,
    lanes: Vec<ShownLane>,
    empty: bool,
    timeline: Option<Html>,
}

struct ShownLane {
    name: &'static str,
    count: u64,
    tasks: Vec<Task>,
}

pub(super) async fn board(State(app): State<App>, visitor: Visitor) -> Result<Response, PageError> {
    let lanes = app.store.board(visitor.household()?, None, TASKS_PER_STATE).await?;
    let frame = PageFrame::new(&visitor, "Tasks", "Tasks");
    let mut due: Vec<&Task> = lanes
        .iter()
        .filter(|lane| !lane.state.is_terminal())
        .flat_map(|lane| &lane.tasks)
        .filter(|task| task.deadline.is_some())
        .collect();
    due.sort_by_key(|task| task.deadline);
    due.truncate(BARS);
    let timeline = (!due.is_empty()).then(|| picture::timeline(&due, frame.now));
    let empty = lanes.iter().all(|lane| lane.count == 0);
    page(&TaskBoardPage { frame, timeline, empty, lanes: named(lanes) })
}

/// Names the lanes of the board. Rejected and failed tasks share one.
fn named(lanes: Vec<Lane>) -> Vec<ShownLane> {
    let mut shown: Vec<ShownLane> = Vec::new();
    for lane in lanes {
        let name = match lane.state {
            TaskState::Pending => "Waiting",
            TaskState::Accepted => "Accepted",
            TaskState::Working => "In work",
            TaskState::Completed => "Done",
            _ => "Refused or failed",
        };
        match shown.last_mut().filter(|last| last.name == name) {
            Some(last) => {
                last.count += lane.count;
                last.tasks.extend(lane.tasks);
                last.tasks.sort_by_key(|task| std::cmp::Reverse(task.updated_at));
                last.tasks.truncate(TASKS_PER_STATE as usize);
            }
            None => shown.push(ShownLane { name, count: lane.count, tasks: lane.tasks }),
        }
    }
    shown
}

#[derive(Template)]
#[template(path = "task.html")]
struct TaskPage {
    frame: PageFrame,
    task: Task,
    note: Option<Html>,
    chain: Option<Html>,
    /// Agents to reassign it to.
    names: Vec<AgentName>,
}

pub(super) async fn task(
    State(app): State<App>,
    visitor: Visitor,
    Segment(id): Segment,
) -> Result<Response, PageError> {
    let id = parse_id("path.id", &id)?;
    let household = visitor.household()?;
    let (mut chain, members) =
        tokio::try_join!(app.store.chain(household, &id), app.store.members(household, Timestamp::now()))?;
    let here = chain.first().cloned().ok_or_else(|| PageError::not_found("there is no such task"))?;
    // Parents before their parts.
    chain.sort_by_key(|task| task.created_at);
    let drawn = (chain.len() > 1).then(|| picture::chain(&chain, &here));
    page(&TaskPage {
        frame: PageFrame::new(&visitor, "Tasks", line(here.subject.as_deref().unwrap_or("Task"), 60)),
        note: here.note.as_deref().map(super::markdown::formatted),
        chain: drawn,
        names: candidates(members, &here),
        task: here,
    })
}

/// Members to reassign a task to, the busy ones first.
fn candidates(members: Vec<Member>, task: &Task) -> Vec<AgentName> {
    let names = by_activity(members).into_iter().filter(|member| member.paused_by.is_none()).map(|member| member.name);
    names.filter(|name| *name != task.assignee && *name != task.owner).take(SUGGESTED).collect()
}
