//! Tasks: giving them, deciding about them, moving them.

use amb_core::doc::ChainTask;
use std::borrow::Cow;

use amb_core::mailbox::TaskFilter;
use amb_core::route::{self, Hop};
use amb_core::task::{Asked, Decision, decide_in_any_case};
use amb_core::{AgentName, Entry, Event, Kind, Task, TaskState, Timestamp};
use rusqlite::{Connection, OptionalExtension, Row, ToSql, params};
use uuid::Uuid;

use super::cache::{Peer, Thread};
use super::error::failed;
use super::keys::{instant_at, maybe_instant_at, maybe_uuid_at, uuid_at};
use super::messages::{self, undelivered};
use super::plans::Prepared;
use super::post::Post;
use super::send::{letter_post, placed};
use super::writer::WriteTx;
use crate::error::Result;
use crate::outgoing::{OutgoingMessage, Placed, json, trace_json};
use crate::row;
use crate::tasks::{TaskRow, Update};
use crate::types::{Agent, News, Written};
use crate::words;

/// Overdue tasks told of in one transaction.
const SOME: i64 = 200;

macro_rules! select_tasks {
    ($rest:literal) => {
        concat!(
            "SELECT t.id, t.public_id, t.owner_id, t.assignee_id, o.name, a.name, t.state, t.subject,
                    t.message_public_id, t.session_public_id, p.public_id, t.deadline, t.overdue, t.note, t.callback,
                    t.created_at, t.updated_at,
                    t.state = 'rejected' AND EXISTS (
                        SELECT 1 FROM messages m WHERE m.id = t.message_id AND ",
            undelivered!("m"),
            ")
             FROM tasks t JOIN agents o ON o.id = t.owner_id JOIN agents a ON a.id = t.assignee_id
             LEFT JOIN tasks p ON p.id = t.parent_id ",
            $rest
        )
    };
}

fn task_row(row: &Row<'_>) -> rusqlite::Result<TaskRow> {
    Ok(TaskRow {
        row: row.get(0)?,
        id: uuid_at(row, 1)?,
        owner: row.get(2)?,
        assignee: row.get(3)?,
        owner_name: row.get(4)?,
        assignee_name: row.get(5)?,
        state: row.get(6)?,
        subject: row.get(7)?,
        message: uuid_at(row, 8)?,
        session: uuid_at(row, 9)?,
        parent: maybe_uuid_at(row, 10)?,
        deadline: maybe_instant_at(row, 11)?,
        overdue: row.get(12)?,
        note: row.get(13)?,
        callback: row.get(14)?,
        created_at: instant_at(row, 15)?,
        updated_at: instant_at(row, 16)?,
        undelivered: row.get(17)?,
    })
}

fn query(db: &Connection, sql: &str, values: &[&dyn ToSql]) -> Result<Vec<TaskRow>> {
    db.prepared(sql)
        .and_then(|mut select| select.query_map(values, task_row).and_then(Iterator::collect))
        .map_err(failed)
}

/// The task of this id, if the agent gave it or was given it.
pub(super) fn find(db: &Connection, agent: i64, id: Uuid) -> Result<TaskRow> {
    let mut found = query(db, select_tasks!("WHERE t.public_id = ?1"), &[id.as_bytes()])?;
    found.pop().filter(|task| task.concerns(agent)).ok_or_else(|| words::no_task(&id.into()))
}

/// Tasks that the agent gave or was given, newest first.
pub(super) fn list(db: &Connection, caller: &Agent, filter: &TaskFilter, limit: u32) -> Result<Vec<Task>> {
    let me = caller.key.0;
    let mut rows = Vec::new();
    if filter.owned != Some(false) {
        rows.extend(query(db, select_tasks!("WHERE t.owner_id = ?1 AND (?2 IS NULL OR t.state = ?2) AND (NOT ?3 OR t.state IN ('pending', 'accepted', 'working')) ORDER BY t.id DESC LIMIT ?4"),
            &[&me, &filter.state.map(TaskState::as_str), &filter.open, &limit])?);
    }
    if filter.owned != Some(true) {
        rows.extend(query(db, select_tasks!("WHERE t.assignee_id = ?1 AND (?2 IS NULL OR t.state = ?2) AND (NOT ?3 OR t.state IN ('pending', 'accepted', 'working')) AND NOT (t.state = 'rejected' AND EXISTS (SELECT 1 FROM messages m WHERE m.id = t.message_id AND NOT EXISTS (SELECT 1 FROM deliveries d WHERE d.message_id = m.id))) ORDER BY t.id DESC LIMIT ?4"),
            &[&me, &filter.state.map(TaskState::as_str), &filter.open, &limit])?);
    }
    rows.sort_by_key(|task| std::cmp::Reverse(task.row));
    rows.dedup_by_key(|task| task.row);
    rows.truncate(limit as usize);
    rows.into_iter().map(|task| task.task(me)).collect()
}

/// The tasks of which this one is a piece, itself, and its own pieces.
pub(super) fn chain(db: &Connection, caller: &Agent, id: Uuid) -> Result<Vec<ChainTask>> {
    let task = find(db, caller.key.0, id)?;
    let rows = query(
        db,
        select_tasks!(
            "JOIN (
                 WITH RECURSIVE up (id, depth) AS (
                     SELECT ?1, 0 UNION ALL
                     SELECT k.parent_id, up.depth + 1 FROM up JOIN tasks k ON k.id = up.id
                     WHERE k.parent_id IS NOT NULL AND up.depth < 64
                 ), down (id, depth) AS (
                     SELECT ?1, 0 UNION ALL
                     SELECT k.id, down.depth + 1 FROM down JOIN tasks k ON k.parent_id = down.id WHERE down.depth < 64
                 )
                 SELECT id, -depth AS place FROM up UNION SELECT id, depth FROM down
             ) n ON n.id = t.id ORDER BY n.place, t.id LIMIT 200"
        ),
        &[&task.row],
    )?;
    rows.into_iter().map(|task| task.in_chain(caller.key.0)).collect()
}

/// How many tasks the agent works on.
pub(super) fn current(db: &Connection, assignee: i64) -> Result<usize> {
    db.prepared("SELECT count(*) FROM tasks WHERE assignee_id = ?1 AND state IN ('accepted', 'working')")
        .and_then(|mut select| select.query_row([assignee], |row| row.get::<_, u32>(0)))
        .map(|count| count as usize)
        .map_err(failed)
}

impl WriteTx {
    /// Writes a task. One that the office rejects goes to nobody's log but its sender's, as an update.
    pub(super) fn place_task(
        &mut self,
        caller: &Agent,
        peer: &Peer,
        thread: &Thread,
        letter: &OutgoingMessage,
        hop: &Hop,
    ) -> Result<Placed> {
        let asked = Asked {
            sender: &letter.from,
            assignee: &peer.name,
            card: &peer.card,
            current_tasks: current(&self.db, peer.id)?,
            deadline: letter.deadline,
        };
        let (state, reason) = match decide_in_any_case(asked, letter.at) {
            Decision::Accept => (TaskState::Pending, None),
            Decision::Reject(reason) => (TaskState::Rejected, Some(reason.to_string())),
        };
        let Some(task) = letter.task_ref(state) else { return Err(crate::StoreError::invalid("not a task")) };
        let to: &[i64] = if reason.is_none() { &[peer.id] } else { &[] };
        let (message, copies) = self.post(thread.id, letter_post(caller, letter, hop, Some(json(&task)?))?, to)?;
        let callback = crate::outgoing::json_of(letter.callback.as_ref())?;
        let parent = match letter.parent.filter(|parent| parent.relay) {
            Some(parent) => self.task_of_message(parent.id)?,
            None => None,
        };
        self.db
            .prepared(
                "INSERT INTO tasks (public_id, owner_id, assignee_id, state, subject, message_id, message_public_id,
                                    session_public_id, parent_id, deadline, note, callback, created_at, updated_at)
                 VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11, ?12, ?13, ?13)",
            )
            .and_then(|mut insert| {
                insert.execute(params![
                    letter.task_id.as_ref().map(Uuid::as_bytes),
                    caller.key.0,
                    peer.id,
                    state.as_str(),
                    &*thread.subject,
                    message,
                    letter.id.as_bytes(),
                    thread.public_id.as_bytes(),
                    parent,
                    letter.deadline.map(|at| at.as_microsecond()),
                    reason,
                    callback,
                    letter.at.as_microsecond(),
                ])
            })
            .map_err(failed)?;
        let mut more = Vec::new();
        if reason.is_some() {
            let update = Update::new(task.clone(), letter.id, reason.as_deref(), letter.at);
            // Charged to who asked for it: else one agent could fill up another's account.
            let payer = caller.key.0;
            more.push(self.post_update(&peer.name, peer.id, payer, caller.key.0, thread, hop, update, callback)?);
        }
        Ok(Placed { task: Some(task), reason, more, ..placed(thread, copies) })
    }

    /// The row of the task that a message brought.
    fn task_of_message(&self, id: Uuid) -> Result<Option<i64>> {
        self.db
            .prepared("SELECT t.id FROM tasks t JOIN messages m ON m.id = t.message_id WHERE m.public_id = ?1")
            .and_then(|mut select| select.query_row([id.as_bytes()], |row| row.get(0)).optional())
            .map_err(failed)
    }

    /// Sends a task update.
    #[allow(clippy::too_many_arguments)]
    fn post_update(
        &mut self,
        from_name: &AgentName,
        from: i64,
        payer: i64,
        to: i64,
        thread: &Thread,
        hop: &Hop,
        mut update: Update,
        callback: Option<String>,
    ) -> Result<News> {
        update.at = self.newest.stamp(update.at);
        let mut trace = hop.trace.clone();
        if trace.last() != Some(from_name) {
            trace.push(from_name.clone());
        }
        let post = Post {
            id: update.id,
            sender: from,
            payer,
            at: update.at,
            priority: 1,
            ttl: hop.ttl,
            kind: Some(Kind::TaskUpdate.as_str()),
            trace: trace_json(&Hop { ttl: hop.ttl, trace })?,
            reply_to: Some(update.reply_to),
            correlation_id: None,
            task: Some(json(&update.task)?),
            callback,
            content: Cow::Owned(update.content.clone()),
            parts: None,
            metadata: None,
        };
        let (_, copies) = self.post(thread.id, post, &[to])?;
        let Some((agent, number)) = copies.first().copied() else { return Err(crate::outgoing::no_session()) };
        let event = Event::NewMessage(update.event(from_name.clone(), thread.public_id, &thread.subject));
        Ok(News { agent, entry: Entry { event, cursor: number.into() } })
    }

    /// Moves a task, step by step, and tells its owner where it came to.
    pub(super) fn set_task_state(
        &mut self,
        caller: &Agent,
        id: Uuid,
        state: TaskState,
        note: Option<String>,
        now: Timestamp,
    ) -> Result<Written<Task>> {
        let me = caller.key.0;
        let task = find(&self.db, me, id)?;
        if task.assignee != me {
            return Err(words::not_the_assignee());
        }
        if !self.consent(task.owner, me)?.is_given() {
            return Err(words::task_after_the_connection(&task.owner_name));
        }
        let at = task.state()?;
        let path = at.path_to(state);
        let Some(first) = path.first().copied() else {
            return Err(at.check_move(state).err().map_or_else(|| words::no_task(&id.into()), Into::into));
        };
        let (mut state, mut note) = (state, note);
        if first == TaskState::Accepted
            && let Some(peer) = self.peer(&caller.name)?
        {
            let owner = row::name(&task.owner_name)?;
            let current_tasks = current(&self.db, me)?;
            let asked = Asked {
                sender: &owner,
                assignee: &caller.name,
                card: &peer.card,
                current_tasks,
                deadline: task.deadline,
            };
            if let Decision::Reject(reason) = decide_in_any_case(asked, now) {
                (state, note) = (TaskState::Rejected, Some(reason.to_string()));
            }
        }
        let news = self.move_task(&task, &caller.name, state, note, now)?;
        let moved = find(&self.db, me, id)?;
        Ok(Written { answer: moved.task(me)?, news })
    }

    /// Writes a task's new state and the update to its owner, unless that agent is gone.
    pub(super) fn move_task(
        &mut self,
        task: &TaskRow,
        by: &AgentName,
        state: TaskState,
        note: Option<String>,
        now: Timestamp,
    ) -> Result<Vec<News>> {
        self.db
            .prepared("UPDATE tasks SET state = ?2, note = coalesce(?3, note), updated_at = ?4 WHERE id = ?1")
            .and_then(|mut update| update.execute(params![task.row, state.as_str(), note, now.as_microsecond()]))
            .map_err(failed)?;
        let owner = self.peer(&row::name(&task.owner_name)?)?.filter(|peer| !peer.deleted);
        let (Some(owner), Some(thread)) = (owner, self.thread_by_public_id(task.session)?) else {
            return Ok(Vec::new());
        };
        let hop = match messages::find(&self.db, task.message)? {
            Some(found) => route::task_update(&found.message()?, by),
            None => route::fresh(by),
        };
        let update = Update::new(task.task_ref(state), task.message, note.as_deref(), now);
        let (from, callback) = (task.assignee, task.callback.clone());
        let news = self.post_update(by, from, from, owner.id, &thread, &hop, update, callback)?;
        Ok(vec![news])
    }

    /// Marks open tasks past their deadline, and tells both sides.
    pub(super) fn sweep_overdue(&mut self, now: Timestamp) -> Result<Written<u64>> {
        let due = query(
            &self.db,
            select_tasks!(
                "WHERE t.overdue = 0 AND t.state IN ('pending', 'accepted', 'working') AND t.deadline < ?1
                 ORDER BY t.deadline LIMIT ?2"
            ),
            &[&now.as_microsecond(), &SOME],
        )?;
        let mut news = Vec::new();
        for mut task in due.clone() {
            self.db
                .prepared("UPDATE tasks SET overdue = 1 WHERE id = ?1")
                .and_then(|mut update| update.execute([task.row]))
                .map_err(failed)?;
            task.overdue = true;
            for side in [task.owner, task.assignee] {
                let event = Event::TaskOverdue { task: task.clone().task(side)? };
                news.push(self.tell(side, event, now)?);
            }
        }
        Ok(Written { answer: due.len() as u64, news })
    }

    /// Ends the open tasks of an agent that leaves the office: those it was given and those it gave.
    pub(super) fn end_tasks_of(&mut self, caller: &Agent, now: Timestamp) -> Result<Vec<News>> {
        let open = self.open_tasks_of(caller.key.0)?;
        self.end_tasks(open, &words::left_the_office(&caller.name), now)
    }

    /// The open tasks that an agent was given or gave.
    fn open_tasks_of(&self, agent: i64) -> Result<Vec<TaskRow>> {
        let mut open = query(
            &self.db,
            select_tasks!("WHERE t.assignee_id = ?1 AND t.state IN ('pending', 'accepted', 'working')"),
            &[&agent],
        )?;
        open.extend(query(
            &self.db,
            select_tasks!("WHERE t.owner_id = ?1 AND t.state IN ('pending', 'accepted', 'working')"),
            &[&agent],
        )?);
        Ok(open)
    }

    /// Ends the open tasks between an agent and those it may not write to any more.
    pub(super) fn end_tasks_without_consent(&mut self, agent: i64, note: &str, now: Timestamp) -> Result<Vec<News>> {
        let mut ended = Vec::new();
        for task in self.open_tasks_of(agent)? {
            if !self.consent(task.owner, task.assignee)?.is_given() {
                ended.push(task);
            }
        }
        self.end_tasks(ended, note, now)
    }

    /// Ends the open tasks between two agents whose connection ends.
    pub(super) fn end_tasks_between(&mut self, caller: &Agent, other: i64, now: Timestamp) -> Result<Vec<News>> {
        let mut open = Vec::new();
        for (owner, assignee) in [(caller.key.0, other), (other, caller.key.0)] {
            open.extend(query(
                &self.db,
                select_tasks!(
                    "WHERE t.assignee_id = ?1 AND t.owner_id = ?2 AND t.state IN ('pending', 'accepted', 'working')"
                ),
                &[&assignee, &owner],
            )?);
        }
        self.end_tasks(open, &words::ended_the_connection(&caller.name), now)
    }

    fn end_tasks(&mut self, open: Vec<TaskRow>, note: &str, now: Timestamp) -> Result<Vec<News>> {
        let mut news = Vec::new();
        for task in open {
            let state = task.ended()?;
            let by = row::name(&task.assignee_name)?;
            news.extend(self.move_task(&task, &by, state, Some(note.to_owned()), now)?);
            news.extend(self.tell_assignee(&task, state, note, now)?);
        }
        Ok(news)
    }

    /// Sends the assignee, unless that agent is gone, the update about a task that the office ended.
    fn tell_assignee(&mut self, task: &TaskRow, state: TaskState, note: &str, now: Timestamp) -> Result<Option<News>> {
        let assignee = self.peer(&row::name(&task.assignee_name)?)?.filter(|peer| !peer.deleted);
        let (Some(assignee), Some(thread)) = (assignee, self.thread_by_public_id(task.session)?) else {
            return Ok(None);
        };
        let owner = row::name(&task.owner_name)?;
        let update = Update::new(task.task_ref(state), task.message, Some(note), now);
        let hop = route::fresh(&owner);
        let from = task.owner;
        self.post_update(&owner, from, from, assignee.id, &thread, &hop, update, None).map(Some)
    }
}
