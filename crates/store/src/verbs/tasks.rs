//! Tasks: listing, moving and ending them. A send creates them.

use amb_core::doc::ChainTask;
use amb_core::mailbox::TaskFilter;
use amb_core::route::{self, Hop};
use amb_core::task::{Asked, Decision, decide, decide_move};
use amb_core::{AgentName, Card, Entry, Event, Task, TaskId, TaskState, Timestamp};
use async_trait::async_trait;
use futures_util::FutureExt;
use uuid::Uuid;

use super::connections::consent;
use super::messages::undelivered;
use super::once::once;
use crate::columns::Addressee;
use crate::engine::{Changes, Db, Engine, Query, ReadLength, Tried, Tx, from_row, read, values, write};
use crate::error::Result;
use crate::quota::Stored;
use crate::refusals;
use crate::row;
use crate::task_row::{TaskRow, TaskUpdate, task_uuid};
use crate::types::{Agent, AgentKey, LogEntry, Written, to_micros};

/// Most overdue tasks marked in one transaction.
const BATCH: i64 = 200;

/// Tasks.
#[async_trait]
pub trait TaskVerbs: Engine {
    /// Returns tasks of which the caller is owner or assignee, newest first, at most `limit`.
    async fn tasks(&self, caller: &Agent, filter: TaskFilter, limit: u32) -> Result<Vec<Task>> {
        let asked = (caller.key.0, filter, limit);
        read(self, ReadLength::Long, asked, |db, (me, filter, limit)| list(db, *me, filter, *limit).boxed()).await
    }

    /// Returns a task of which the caller is owner or assignee.
    async fn task(&self, caller: &Agent, id: &TaskId) -> Result<Task> {
        let me = caller.key.0;
        let found =
            read(self, ReadLength::Short, (me, task_uuid(id)?), |db, (me, id)| find(db, *me, *id).boxed()).await?;
        found.task(me)
    }

    /// Returns the ancestors of a task, the root first, then the task itself, then its subtasks. Of those that do not
    /// concern the caller, only the id and the state.
    async fn task_chain(&self, caller: &Agent, id: &TaskId) -> Result<Vec<ChainTask>> {
        let asked = (caller.key.0, task_uuid(id)?);
        read(self, ReadLength::Long, asked, |db, (me, id)| chain(db, *me, *id).boxed()).await
    }

    /// Moves a task that is assigned to the caller, and sends its owner a task update. Skipped states are passed
    /// through. Where the caller accepts it but its quota or the deadline forbid that, the office rejects the task,
    /// which is in the answer. `not_connected` where the connection with its owner has ended.
    async fn set_task_state(
        &self,
        caller: &Agent,
        id: &TaskId,
        state: TaskState,
        note: Option<String>,
        now: Timestamp,
    ) -> Result<Written<Task>> {
        refusals::check_text("note", note.as_deref())?;
        let asked = (caller.clone(), task_uuid(id)?, state, note, to_micros(now));
        write(self, Changes::All, asked, |tx, (caller, id, state, note, now)| {
            once!(tx, caller, *now, set_state(tx, caller, *id, *state, note.clone(), *now))
        })
        .await
    }

    /// Marks some of the open tasks whose deadline has passed as overdue, with an event to both sides. Returns how
    /// many; 0 when done.
    async fn sweep_overdue(&self, now: Timestamp) -> Result<Written<u64>> {
        write(self, Changes::All, to_micros(now), |tx, now| sweep(tx, *now).boxed()).await
    }
}

impl<E: Engine> TaskVerbs for E {}

/// Whether the task `t` is open.
const OPEN: &str = "t.state IN ('pending', 'accepted', 'working')";

from_row!(
    TaskRow: row id owner assignee owner_name assignee_name state subject message session parent deadline overdue
    note callback canceled_by reassigned created_at updated_at undelivered
);

/// Returns a statement for [`TaskRow`]s, with this rest.
pub(super) fn select(rest: &str) -> String {
    format!(
        "SELECT t.id, t.public_id, t.owner_id, t.assignee_id, o.name, a.name, t.state, t.subject, t.message_public_id,
                t.session_public_id, p.public_id, t.deadline, t.overdue, t.note, t.callback, t.canceled_by,
                t.reassigned, t.created_at, t.updated_at, t.state = 'rejected' AND {}
         FROM tasks t JOIN agents o ON o.id = t.owner_id JOIN agents a ON a.id = t.assignee_id
         LEFT JOIN tasks p ON p.id = t.parent_id {rest}",
        undelivered_task()
    )
}

/// Whether the message of the task `t` was delivered to nobody, because the office rejected it.
pub(super) fn undelivered_task() -> String {
    format!("coalesce((SELECT {} FROM messages m WHERE m.public_id = t.message_public_id), FALSE)", undelivered("m"))
}

/// Returns the task of this id, for any agent.
pub(super) async fn any(db: &mut dyn Db, id: Uuid) -> Tried<Option<TaskRow>> {
    let sql = select("WHERE t.public_id = $1");
    db.find(&sql, values![id]).await
}

/// Returns the open tasks of a session.
pub(super) async fn open_in(db: &mut dyn Db, session: Uuid) -> Tried<Vec<TaskRow>> {
    let sql = select(&format!("WHERE t.session_public_id = $1 AND {OPEN} ORDER BY t.id"));
    db.rows(&sql, values![session]).await
}

/// Returns the task of this id, if it concerns the agent.
async fn find(db: &mut dyn Db, agent: i64, id: Uuid) -> Tried<TaskRow> {
    let found = any(db, id).await?;
    found.filter(|task| task.concerns(agent)).ok_or_else(|| refusals::no_task(&id.into()).into())
}

async fn list(db: &mut dyn Db, me: i64, filter: &TaskFilter, limit: u32) -> Tried<Vec<Task>> {
    let wanted = format!("(CAST($2 AS text) IS NULL OR t.state = $2) AND (NOT $3 OR {OPEN})");
    let undelivered = undelivered_task();
    let owned = format!("WHERE t.owner_id = $1 AND {wanted} ORDER BY t.id DESC LIMIT $4");
    let assigned = format!(
        "WHERE t.assignee_id = $1 AND {wanted} AND NOT (t.state = 'rejected' AND {undelivered})
         ORDER BY t.id DESC LIMIT $4"
    );
    let mut rows: Vec<TaskRow> = Vec::new();
    for (side, rest) in [(true, owned), (false, assigned)] {
        if filter.owned.is_none_or(|owned| owned == side) {
            let sql = select(&rest);
            let state = filter.state.map(TaskState::as_str);
            rows.extend(db.rows::<TaskRow>(&sql, values![me, state, filter.open, limit]).await?);
        }
    }
    rows.sort_by_key(|task| std::cmp::Reverse(task.row));
    rows.dedup_by_key(|task| task.row);
    rows.truncate(limit as usize);
    Ok(rows.into_iter().map(|task| task.task(me)).collect::<Result<_>>()?)
}

async fn chain(db: &mut dyn Db, me: i64, id: Uuid) -> Tried<Vec<ChainTask>> {
    let task = find(db, me, id).await?;
    let sql = select(
        "JOIN (
             WITH RECURSIVE up (id, depth) AS (
                 SELECT CAST($1 AS bigint), 0 UNION ALL
                 SELECT k.parent_id, up.depth + 1 FROM up JOIN tasks k ON k.id = up.id
                 WHERE k.parent_id IS NOT NULL AND up.depth < 64
             ), down (id, depth) AS (
                 SELECT CAST($1 AS bigint), 0 UNION ALL
                 SELECT k.id, down.depth + 1 FROM down JOIN tasks k ON k.parent_id = down.id WHERE down.depth < 64
             )
             SELECT id, -depth AS place FROM up UNION SELECT id, depth FROM down
         ) n ON n.id = t.id ORDER BY n.place, t.id LIMIT 200",
    );
    let rows: Vec<TaskRow> = db.rows(&sql, values![task.row]).await?;
    Ok(rows.into_iter().map(|task| task.in_chain(me)).collect::<Result<_>>()?)
}

/// Moves a task, and sends its owner an update.
async fn set_state(
    tx: &mut dyn Tx,
    caller: &Agent,
    id: Uuid,
    next: TaskState,
    note: Option<String>,
    now: Timestamp,
) -> Tried<Task> {
    let me = caller.key.0;
    let seen = find(tx, me, id).await?;
    if seen.assignee != me {
        return Err(refusals::not_the_assignee().into());
    }
    // Under both locks the task does not move and the quota does not change.
    tx.lock(&[seen.owner, me]).await?;
    let task = find(tx, me, id).await?;
    let consent = consent(tx, task.owner, me).await?;
    if !consent.is_given() {
        return Err(refusals::task_after_the_connection(&task.owner_name).into());
    }
    let acceptance = match task.state.takes_on(next) {
        true => Some(acceptance(tx, &task.owner_name, (me, &caller.name), task.deadline, now).await?),
        false => None,
    };
    let (state, reason) = decide_move(task.state, next, acceptance).map_err(crate::StoreError::from)?;
    let note = reason.map(|reason| reason.to_string()).or(note);
    if state == task.state {
        // A progress report counts like a message; only a change of state is never refused for the quota.
        tx.check_quota(me, Stored::message(1, note.as_ref().map_or(0, String::len))).await?;
    }
    let from_person = consent.marks_person(caller.person);
    move_task(tx, &task, &caller.name, from_person, state, note, now).await?;
    Ok(find(tx, me, id).await?.task(me)?)
}

/// Decides whether an agent may accept a task. Its mailbox is locked.
pub(super) async fn acceptance(
    db: &mut dyn Db,
    sender: &AgentName,
    (agent, assignee): (i64, &AgentName),
    deadline: Option<Timestamp>,
    now: Timestamp,
) -> Tried<Decision> {
    let card = card(db, agent).await?;
    let sql = "SELECT count(*) FROM tasks WHERE assignee_id = $1 AND state IN ('accepted', 'working')";
    let (current,): (i64,) = db.one(sql, values![agent]).await?;
    let current_tasks = usize::try_from(current).unwrap_or(usize::MAX);
    let allowed = card.allow_from.allows_in_any_case(sender);
    Ok(decide(Asked { sender, assignee, allowed, card: &card, current_tasks, deadline }, now))
}

/// Returns the fields of an agent's card that decide about tasks.
async fn card(db: &mut dyn Db, agent: i64) -> Tried<Card> {
    let sql = "SELECT allow_from, max_concurrent_tasks FROM agents WHERE id = $1";
    let (allow_from, most): (String, i64) = db.one(sql, values![agent]).await?;
    Ok(Card {
        allow_from: row::parse(Some(allow_from))?.unwrap_or_default(),
        max_concurrent_tasks: u32::try_from(most).unwrap_or(0),
        ..Card::default()
    })
}

/// Writes a task's new state, and sends the update to its owner, unless that agent was deleted.
async fn move_task(
    tx: &mut dyn Tx,
    task: &TaskRow,
    by: &AgentName,
    from_person: bool,
    state: TaskState,
    note: Option<String>,
    now: Timestamp,
) -> Tried<()> {
    let sql = "UPDATE tasks SET state = $2, note = coalesce($3, note), updated_at = $4 WHERE id = $1";
    tx.execute(sql, values![task.row, state.as_str(), note.as_deref(), now]).await?;
    let sql =
        "SELECT m.ttl, m.trace, f.name FROM messages m JOIN agents f ON f.id = m.sender_id WHERE m.public_id = $1";
    let hop = match tx.find::<(i64, Option<String>, AgentName)>(sql, values![task.message]).await? {
        Some((ttl, trace, from)) => {
            let trace = match row::parse(trace)? {
                Some(trace) => trace,
                None => vec![from],
            };
            Hop { ttl: u8::try_from(ttl).unwrap_or(0), trace }
        }
        None => route::fresh(by),
    };
    let update =
        TaskUpdate { from_person, ..TaskUpdate::new(task.task_ref(state), task.message, note.as_deref(), now) };
    let side = Side { from: task.assignee, from_name: by, to: task.owner };
    send_update(tx, task, side, hop, update, task.callback.clone()).await
}

/// Sender and recipient of a task update.
pub(super) struct Side<'a> {
    pub(super) from: i64,
    pub(super) from_name: &'a AgentName,
    pub(super) to: i64,
}

/// Sends an update to one side of a task, unless that agent was deleted.
pub(super) async fn send_update(
    tx: &mut dyn Tx,
    task: &TaskRow,
    side: Side<'_>,
    hop: Hop,
    mut update: TaskUpdate,
    callback: Option<String>,
) -> Tried<()> {
    let sql = "SELECT s.id, s.subject FROM sessions s, agents o
               WHERE s.public_id = $1 AND o.id = $2 AND o.deleted_at IS NULL";
    let Some((session, subject)) = tx.find::<(i64, String)>(sql, values![task.session, side.to]).await? else {
        return Ok(());
    };
    update.at = tx.stamp(update.at);
    let row = update.columns(side.from_name, side.from, side.from, hop, callback)?;
    let to = Addressee { agent: AgentKey(side.to), from_person: update.from_person };
    if let Some(number) = tx.append_message(session, row, to).await? {
        let event = Event::NewMessage(update.event(side.from_name.clone(), task.session, &subject));
        tx.put_entry(LogEntry { agent: to.agent, entry: Entry { event, cursor: number.into() } });
    }
    Ok(())
}

/// Marks open tasks past their deadline, with an event to both sides.
async fn sweep(tx: &mut dyn Tx, now: Timestamp) -> Tried<u64> {
    let sql =
        select(&format!("WHERE t.overdue = FALSE AND {OPEN} AND t.deadline < $1 ORDER BY t.deadline, t.id LIMIT $2"));
    let due: Vec<TaskRow> = tx.rows(&sql, values![now, BATCH]).await?;
    let sides: Vec<i64> = due.iter().flat_map(|task| [task.owner, task.assignee]).collect();
    tx.lock(&sides).await?;
    let mut marked = 0;
    let mark = "UPDATE tasks SET overdue = TRUE
                WHERE id = $1 AND overdue = FALSE AND state IN ('pending', 'accepted', 'working')";
    for task in due {
        if tx.execute(mark, values![task.row]).await? == 0 {
            continue;
        }
        marked += 1;
        // Read again under the locks.
        let task = find(tx, task.owner, task.id).await?;
        for side in [task.owner, task.assignee] {
            tx.log_event(side, Event::TaskOverdue { task: task.clone().task(side)? }, now).await?;
        }
    }
    Ok(marked)
}

/// Returns the other sides of an agent's open tasks.
pub(super) async fn sides_of_open(db: &mut dyn Db, agent: i64) -> Tried<Vec<i64>> {
    let sql = format!(
        "SELECT t.owner_id FROM tasks t WHERE t.assignee_id = $1 AND {OPEN}
         UNION SELECT t.assignee_id FROM tasks t WHERE t.owner_id = $1 AND {OPEN}"
    );
    db.rows(&sql, values![agent]).await
}

/// Ends the open tasks of an agent that is deleted.
pub(super) async fn end_all_of(tx: &mut dyn Tx, caller: &Agent, now: Timestamp) -> Tried<()> {
    let open = open_of(tx, caller.key.0).await?;
    end(tx, open, &refusals::left_the_office(&caller.name), now).await
}

/// Returns the open tasks of which an agent is owner or assignee.
async fn open_of(db: &mut dyn Db, agent: i64) -> Tried<Vec<TaskRow>> {
    let mut open: Vec<TaskRow> = Vec::new();
    for side in ["assignee_id", "owner_id"] {
        let sql = select(&format!("WHERE t.{side} = $1 AND {OPEN} ORDER BY t.id"));
        open.extend(db.rows::<TaskRow>(&sql, values![agent]).await?);
    }
    Ok(open)
}

/// Ends the open tasks between an agent and those it may no longer write to. The mailboxes of all sides are locked.
pub(super) async fn end_without_consent(tx: &mut dyn Tx, agent: i64, note: &str, now: Timestamp) -> Tried<()> {
    let mut ended = Vec::new();
    for task in open_of(tx, agent).await? {
        if !consent(tx, task.owner, task.assignee).await?.is_given() {
            ended.push(task);
        }
    }
    end(tx, ended, note, now).await
}

/// Ends the open tasks between two agents whose connection ends. Both mailboxes are locked.
pub(super) async fn end_between(tx: &mut dyn Tx, caller: &Agent, other: i64, now: Timestamp) -> Tried<()> {
    let sql = select(&format!("WHERE t.assignee_id = $1 AND t.owner_id = $2 AND {OPEN} ORDER BY t.id"));
    let mut open: Vec<TaskRow> = Vec::new();
    for (assignee, owner) in [(other, caller.key.0), (caller.key.0, other)] {
        open.extend(tx.rows::<TaskRow>(&sql, values![assignee, owner]).await?);
    }
    end(tx, open, &refusals::ended_the_connection(&caller.name), now).await
}

/// Ends tasks, with an update to both sides.
pub(super) async fn end(tx: &mut dyn Tx, open: Vec<TaskRow>, note: &str, now: Timestamp) -> Tried<()> {
    for task in open {
        let state = task.state.ended_by_office();
        move_task(tx, &task, &task.assignee_name, false, state, Some(note.to_owned()), now).await?;
        let update = TaskUpdate::new(task.task_ref(state), task.message, Some(note), now);
        let side = Side { from: task.owner, from_name: &task.owner_name, to: task.assignee };
        send_update(tx, &task, side, route::fresh(&task.owner_name), update, None).await?;
    }
    Ok(())
}
