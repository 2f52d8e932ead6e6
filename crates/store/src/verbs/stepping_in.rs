//! Stepping in: acts of a household's person on its agents, their conversations and their tasks. The rules are in
//! [`amb_core::stepping_in`]; everybody affected gets an event that names the person.

mod in_name;

use std::collections::BTreeSet;

use amb_core::doc::SessionEnded;
use amb_core::event::NewMessage;
use amb_core::id::fresh_uuid;
use amb_core::route;
use amb_core::stepping_in::{
    Act, Reassignment, SteppedIn, canceled_note, check_open, decide_cancel, decide_reassign, reassigned_note,
};
use amb_core::task::TaskRef;
use amb_core::{
    AgentName, Code, CorrelationId, Entry, Event, Kind, Priority, SessionId, Task, TaskId, TaskState, Timestamp,
};
use async_trait::async_trait;
use futures_util::FutureExt;
use uuid::Uuid;

use super::connections::{consent, pair};
use super::household::{self, MemberRow, household_of};
use super::once::once;
use super::tasks::{self, Side};
use crate::columns::{Addressee, Columns};
use crate::engine::{
    Cached, Changes, Db, Engine, Failed, FromRow, Query, ReadLength, Row, Tried, Tx, from_row, read, values, write,
};
use crate::error::Result;
use crate::outgoing::{json, session_uuid};
use crate::task_row::{TaskRow, TaskUpdate, task_uuid};
use crate::types::{Agent, AgentKey, ConnectionDecision, LogEntry, NewKey, Written, fold_subject, to_micros};
use crate::{refusals, row};

/// Acts of the person. `forbidden` for everybody else. A repeated act changes nothing.
#[async_trait]
pub trait SteppingInVerbs: Engine {
    /// Pauses or resumes an agent of the household. Mail to a paused agent is accepted and waits: the agent cannot
    /// claim, and
    /// [`LogVerbs::events`](crate::LogVerbs::events) ends where it was paused. When it is resumed, or leaves the
    /// household, it gets the
    /// mail in order.
    async fn set_paused(
        &self,
        caller: &Agent,
        member: &AgentName,
        paused: bool,
        now: Timestamp,
    ) -> Result<Written<()>> {
        let asked = (caller.clone(), member.clone(), paused, to_micros(now));
        write(self, Changes::All, asked, |tx, (caller, member, paused, now)| {
            set_paused(tx, caller, member, *paused, *now).boxed()
        })
        .await
    }

    /// Changes a connection in the name of an agent of the household, as [`ConnectionVerbs`](crate::ConnectionVerbs)
    /// does, with an event to the agent and the person. Returns the peer.
    async fn decide_connection(
        &self,
        caller: &Agent,
        member: &AgentName,
        decision: ConnectionDecision,
        now: Timestamp,
    ) -> Result<Written<AgentName>> {
        let asked = (caller.clone(), member.clone(), decision.checked()?, to_micros(now));
        write(self, Changes::All, asked, |tx, (caller, member, decision, now)| {
            in_name::decide(tx, caller, member, decision, *now).boxed()
        })
        .await
    }

    /// Gives an agent of the household a new key and revokes all others, with an event to the agent and the person.
    async fn renew_key(
        &self,
        caller: &Agent,
        member: &AgentName,
        new: NewKey,
        now: Timestamp,
    ) -> Result<Written<Agent>> {
        let asked = (caller.clone(), member.clone(), new, to_micros(now));
        let _clear = self.key_cache().clear_on_drop();
        write(self, Changes::All, asked, |tx, (caller, member, new, now)| {
            in_name::renew_key(tx, caller, member, new, *now).boxed()
        })
        .await
    }

    /// Returns whether an agent is paused.
    async fn is_paused(&self, agent: AgentKey) -> Result<bool> {
        read(self, ReadLength::Short, agent.0, |db, agent| is_paused(db, *agent).boxed()).await
    }

    /// Ends a session that a member of the household is in; that of a group only where a member owns the group. Later
    /// sends in it, also by its subject, fail with `gone`, and the open tasks in it are canceled.
    async fn end_session(&self, caller: &Agent, session: &SessionId, now: Timestamp) -> Result<Written<SessionEnded>> {
        let asked = (caller.clone(), session_uuid(session)?, to_micros(now));
        write(self, Changes::All, asked, |tx, (caller, session, now)| end_session(tx, caller, *session, *now).boxed())
            .await
    }

    /// Cancels an open task whose owner or assignee is in the household. `illegal_move` where it has ended in another
    /// way.
    async fn cancel_task(
        &self,
        caller: &Agent,
        id: &TaskId,
        note: Option<String>,
        now: Timestamp,
    ) -> Result<Written<Task>> {
        refusals::check_text("note", note.as_deref())?;
        let asked = (caller.clone(), task_uuid(id)?, note, to_micros(now));
        write(self, Changes::All, asked, |tx, (caller, id, note, now)| {
            once!(tx, caller, *now, cancel(tx, caller, *id, note.as_deref(), *now))
        })
        .await
    }

    /// Reassigns an open task whose owner or assignee is in the household to another member, as new mail of its owner
    /// with the original text. The task is pending again, and a deadline that has passed is dropped.
    async fn reassign_task(
        &self,
        caller: &Agent,
        id: &TaskId,
        to: &AgentName,
        now: Timestamp,
    ) -> Result<Written<Task>> {
        let asked = (caller.clone(), task_uuid(id)?, to.clone(), to_micros(now));
        write(self, Changes::All, asked, |tx, (caller, id, to, now)| {
            once!(tx, caller, *now, reassign(tx, caller, *id, to, *now))
        })
        .await
    }
}

impl<E: Engine> SteppingInVerbs for E {}

pub(super) async fn is_paused(db: &mut dyn Db, agent: i64) -> Tried<bool> {
    db.exists("SELECT 1 FROM agents WHERE id = $1 AND paused_by IS NOT NULL", values![agent]).await
}

/// Logs an act to each of these agents once. Their mailboxes are locked.
async fn log_act(tx: &mut dyn Tx, agents: Vec<i64>, by: &AgentName, act: &Act, now: Timestamp) -> Tried<()> {
    for agent in BTreeSet::from_iter(agents) {
        let event = Event::SteppedIn(SteppedIn { by: by.clone(), at: Some(now), act: act.clone() });
        tx.log_event(agent, event, now).await?;
    }
    Ok(())
}

/// Logs an act on a task to each of these agents once. Only the owner sees its callback.
async fn log_task_act(
    tx: &mut dyn Tx,
    agents: Vec<i64>,
    by: &AgentName,
    task: &TaskRow,
    act: impl Fn(Task) -> Act,
    now: Timestamp,
) -> Tried<()> {
    for agent in BTreeSet::from_iter(agents) {
        log_act(tx, vec![agent], by, &act(task.clone().task(agent)?), now).await?;
    }
    Ok(())
}

/// Returns a member of the household whose person the caller is. Locks the mailboxes of both, so that it does not leave
/// meanwhile.
async fn locked_member(tx: &mut dyn Tx, caller: &Agent, member: &AgentName) -> Tried<MemberRow> {
    let household = household::person(tx, caller).await?;
    let members = household::members_of(tx, household).await?;
    let found = member.best_match(members, |member| member.name.as_str());
    let member = found.ok_or_else(|| refusals::no_household_member(member))?;
    tx.lock(&[member.id, caller.key.0]).await?;
    match household_of(tx, member.id).await? == Some(household) {
        true => Ok(member),
        false => Err(refusals::no_household_member(&member.name).into()),
    }
}

async fn set_paused(tx: &mut dyn Tx, caller: &Agent, member: &AgentName, paused: bool, now: Timestamp) -> Tried<()> {
    let member = locked_member(tx, caller, member).await?;
    if member.person {
        return Err(refusals::person_is_not_paused().into());
    }
    if is_paused(tx, member.id).await? == paused {
        return Ok(());
    }
    write_paused(tx, caller, &member, paused, now).await
}

/// Resumes all agents of a person who is deleted: nobody else could. Their mailboxes are locked.
pub(super) async fn resume_all(tx: &mut dyn Tx, person: &Agent, now: Timestamp) -> Tried<()> {
    let Some(household) = household_of(tx, person.key.0).await? else { return Ok(()) };
    for member in household::members_of(tx, household).await? {
        if is_paused(tx, member.id).await? {
            write_paused(tx, person, &member, false, now).await?;
        }
    }
    Ok(())
}

/// Pauses or resumes a member, with an event to it and to the person.
async fn write_paused(tx: &mut dyn Tx, caller: &Agent, member: &MemberRow, paused: bool, now: Timestamp) -> Tried<()> {
    let agent = member.name.clone();
    let act = if paused { Act::Paused { agent } } else { Act::Resumed { agent } };
    // The last entry that a paused agent sees.
    let event = Event::SteppedIn(SteppedIn { by: caller.name.clone(), at: Some(now), act: act.clone() });
    let number = tx.log_event(member.id, event, now).await?;
    let set = "UPDATE agents SET paused_at = $2, paused_by = $3, paused_from = $4 WHERE id = $1";
    let (at, by, from) = match paused {
        true => (Some(now), Some(caller.name.as_str()), i64::try_from(number).ok()),
        false => (None, None, None),
    };
    tx.execute(set, values![member.id, at, by, from]).await?;
    tx.invalidate(Cached::Card(&member.name));
    log_act(tx, vec![caller.key.0], &caller.name, &act, now).await
}

/// The columns of a session to end.
struct EndableSession {
    id: i64,
    subject: String,
    group: Option<i64>,
    ended: Option<(AgentName, Timestamp)>,
}

impl FromRow for EndableSession {
    fn from_row(row: &mut Row<'_>) -> Result<Self> {
        let (id, subject, group) = (row.take()?, row.take()?, row.take()?);
        let (by, at): (Option<AgentName>, Option<Timestamp>) = (row.take()?, row.take()?);
        Ok(Self { id, subject, group, ended: by.zip(at) })
    }
}

async fn session(db: &mut dyn Db, id: Uuid) -> Tried<EndableSession> {
    let sql = "SELECT id, subject, group_id, ended_by, ended_at FROM sessions WHERE public_id = $1";
    db.find(sql, values![id]).await?.ok_or_else(|| refusals::no_household_session().into())
}

/// Returns the members of a session, each with its household.
async fn members_of(db: &mut dyn Db, session: i64) -> Tried<Vec<(i64, Option<i64>)>> {
    let sql = "SELECT a.id, a.household_id FROM session_members m JOIN agents a ON a.id = m.agent_id
               WHERE m.session_id = $1 AND a.deleted_at IS NULL ORDER BY a.id";
    db.rows(sql, values![session]).await
}

async fn end_session(tx: &mut dyn Tx, caller: &Agent, id: Uuid, now: Timestamp) -> Tried<SessionEnded> {
    let (household, me) = (household::person(tx, caller).await?, caller.key.0);
    let seen = session(tx, id).await?;
    let mut agents: Vec<i64> = members_of(tx, seen.id).await?.into_iter().map(|(member, _)| member).collect();
    agents.push(me);
    // A send holds its recipients' locks from before it reads the session until it is committed.
    tx.lock(&agents).await?;
    let members = members_of(tx, seen.id).await?;
    if members.iter().any(|(member, _)| !tx.holds(*member)) {
        return Err(Failed::changed());
    }
    // A session without members of the household looks like an unknown one.
    if members.iter().all(|(_, of)| *of != Some(household)) {
        return Err(refusals::no_household_session().into());
    }
    if let Some(group) = seen.group {
        let sql = "SELECT 1 FROM groups g JOIN agents a ON a.id = g.owner_id WHERE g.id = $1 AND a.household_id = $2";
        if !tx.exists(sql, values![group, household]).await? {
            return Err(refusals::not_your_group().into());
        }
    }
    let seen = session(tx, id).await?;
    let ended = |(ended_by, ended_at)| SessionEnded {
        session_id: id.into(),
        subject: seen.subject.clone(),
        ended_by,
        ended_at,
    };
    if let Some(before) = seen.ended.clone() {
        return Ok(ended(before));
    }
    let sql = "UPDATE sessions SET ended_at = $2, ended_by = $3 WHERE id = $1";
    tx.execute(sql, values![seen.id, now, caller.name.as_str()]).await?;
    tx.invalidate(Cached::Session(seen.id));
    for task in tasks::open_in(tx, id).await? {
        // Owner and assignee are in its session, unless one was deleted; then the task has ended.
        cancel_open(tx, caller, task, Some("the conversation was ended"), now).await?;
    }
    let act = Act::SessionEnded { session_id: id.into(), subject: seen.subject.clone() };
    log_act(tx, agents, &caller.name, &act, now).await?;
    Ok(ended((caller.name.clone(), now)))
}

/// Returns a task whose owner or assignee is in the household.
async fn task_of(db: &mut dyn Db, household: i64, id: Uuid) -> Tried<TaskRow> {
    if let Some(task) = tasks::any(db, id).await? {
        let sides = (household_of(db, task.owner).await?, household_of(db, task.assignee).await?);
        if sides.0 == Some(household) || (sides.1 == Some(household) && !task.undelivered) {
            return Ok(task);
        }
    }
    Err(refusals::no_household_task(&id.into()).into())
}

async fn cancel(tx: &mut dyn Tx, caller: &Agent, id: Uuid, note: Option<&str>, now: Timestamp) -> Tried<Task> {
    let (household, me) = (household::person(tx, caller).await?, caller.key.0);
    let seen = task_of(tx, household, id).await?;
    tx.lock(&[seen.owner, seen.assignee, me]).await?;
    let task = task_of(tx, household, id).await?;
    if task.assignee != seen.assignee {
        return Err(Failed::changed());
    }
    if decide_cancel(task.state, task.canceled_by.is_some())?.is_some() {
        cancel_open(tx, caller, task, note, now).await?;
    }
    Ok(task_of(tx, household, id).await?.task(me)?)
}

/// Cancels an open task, with an event to owner, assignee and person, whose mailboxes are locked.
async fn cancel_open(tx: &mut dyn Tx, caller: &Agent, task: TaskRow, note: Option<&str>, now: Timestamp) -> Tried<()> {
    let (id, agents) = (task.id, vec![task.owner, task.assignee, caller.key.0]);
    let sql = "UPDATE tasks SET canceled_by = $2 WHERE id = $1";
    tx.execute(sql, values![task.row, caller.name.as_str()]).await?;
    tasks::end(tx, vec![task], &canceled_note(&caller.name, note), now).await?;
    let task = tasks::any(tx, id).await?.ok_or_else(|| refusals::no_task(&id.into()))?;
    log_task_act(tx, agents, &caller.name, &task, |task| Act::TaskCanceled { task }, now).await
}

async fn reassign(tx: &mut dyn Tx, caller: &Agent, id: Uuid, to: &AgentName, now: Timestamp) -> Tried<Task> {
    let (household, me) = (household::person(tx, caller).await?, caller.key.0);
    let seen = task_of(tx, household, id).await?;
    let members = household::members_of(tx, household).await?;
    let to = to.best_match(&members, |member| member.name.as_str()).ok_or_else(|| refusals::no_household_member(to))?;
    tx.lock(&[seen.owner, seen.assignee, to.id, me]).await?;
    let task = task_of(tx, household, id).await?;
    if task.assignee != seen.assignee {
        return Err(Failed::changed());
    }
    if household_of(tx, to.id).await? != Some(household) {
        return Err(refusals::no_household_member(&to.name).into());
    }
    let (owner, from) = (task.owner_name.clone(), task.assignee_name.clone());
    let deadline = task.deadline.filter(|deadline| now <= *deadline);
    let consent = consent(tx, task.owner, to.id).await?;
    let moves = decide_reassign(Reassignment {
        state: task.state,
        owner: &owner,
        from: &from,
        to: &to.name,
        moved: u32::try_from(task.reassigned).unwrap_or(u32::MAX),
        consent,
        taking_on: tasks::acceptance(tx, &owner, (to.id, &to.name), deadline, now).await?,
    })?;
    if !moves {
        return Ok(task.task(me)?);
    }
    // For the previous assignee the task has ended.
    let note = reassigned_note(&caller.name, &to.name);
    let update = TaskUpdate::new(task.task_ref(task.state.ended_by_office()), task.message, Some(&note), now);
    let side = Side { from: task.owner, from_name: &owner, to: task.assignee };
    tasks::send_update(tx, &task, side, route::fresh(&owner), update, None).await?;
    // The caller is the one person of the household.
    let addressee = Addressee { agent: AgentKey(to.id), from_person: consent.marks_person(task.owner == me) };
    let sent = send_task(tx, &task, &owner, addressee, deadline, now).await?;
    let sql =
        "UPDATE tasks SET message_public_id = $2, session_public_id = $3, assignee_id = $4, state = $5, deadline = $6,
                                overdue = FALSE, note = NULL, reassigned = reassigned + 1, updated_at = $7
               WHERE id = $1";
    let pending = TaskState::Pending.as_str();
    tx.execute(sql, values![task.row, sent.message, sent.session, to.id, pending, deadline, now]).await?;
    let agents = vec![task.owner, task.assignee, to.id, me];
    let task = task_of(tx, household, id).await?;
    let act = |task| Act::TaskReassigned { task, from: from.clone() };
    log_task_act(tx, agents, &caller.name, &task, act, now).await?;
    Ok(task.task(me)?)
}

/// The message that carries a reassigned task.
struct SentTask {
    message: Uuid,
    session: Uuid,
}

/// The columns of a task's message that are copied when it is reassigned.
struct OriginalMessage {
    ttl: i64,
    trace: Option<String>,
    priority: Priority,
    correlation_id: Option<CorrelationId>,
    content: String,
    parts: Option<String>,
    metadata: Option<String>,
}

from_row!(OriginalMessage: ttl trace priority correlation_id content parts metadata);

/// Sends an agent the message of a task as new mail of its owner. The mailboxes of both are locked.
async fn send_task(
    tx: &mut dyn Tx,
    task: &TaskRow,
    owner: &AgentName,
    to: Addressee,
    deadline: Option<Timestamp>,
    now: Timestamp,
) -> Tried<SentTask> {
    let subject = task.subject.as_deref().unwrap_or("Task");
    let (session, public_id, subject) = session_between(tx, task.owner, to.agent.0, subject, now).await?;
    let sql =
        "SELECT ttl, trace, priority, correlation_id, content, parts, metadata FROM messages WHERE public_id = $1";
    // The message of an open task is never removed.
    let original: OriginalMessage = tx.one(sql, values![task.message]).await?;
    let (id, at) = (fresh_uuid(now), tx.stamp(now));
    let task_ref = TaskRef { deadline, ..task.task_ref(TaskState::Pending) };
    let columns = Columns {
        id,
        sender: task.owner,
        payer: task.owner,
        at,
        priority: row::rank(original.priority),
        ttl: u8::try_from(original.ttl).unwrap_or(0),
        kind: row::kind_text(&Kind::Task),
        trace: original.trace,
        reply_to: None,
        correlation_id: original.correlation_id.as_ref().map(|id| id.as_str()),
        task: Some(json(&task_ref)?),
        callback: task.callback.clone(),
        content: (&original.content).into(),
        parts: original.parts.clone(),
        metadata: original.metadata,
    };
    tx.check_quota(task.owner, columns.stored(1)).await.map_err(|failed| match failed {
        // The caller does not learn how much the owner stores.
        Failed::Error(error) if error.code() == Code::OverQuota => refusals::no_room_for_task(owner).into(),
        failed => failed,
    })?;
    if let Some(number) = tx.append_message(session, columns, to).await? {
        let (content, parts) = row::content(original.content.clone(), row::parse(original.parts)?);
        let event = Event::NewMessage(NewMessage {
            session_id: public_id.into(),
            subject,
            from_agent: owner.clone(),
            from_person: to.from_person,
            content,
            message_id: id.into(),
            created_at: at,
            kind: Kind::Task,
            priority: original.priority,
            parts,
            task: Some(task_ref),
            reply_to: None,
            correlation_id: original.correlation_id.clone(),
        });
        tx.put_entry(LogEntry { agent: to.agent, entry: Entry { event, cursor: number.into() } });
    }
    Ok(SentTask { message: id, session: public_id })
}

/// Returns the open session of two agents and a subject, created where it is missing. Both mailboxes are locked, so
/// nobody else creates it.
async fn session_between(
    tx: &mut dyn Tx,
    owner: i64,
    to: i64,
    subject: &str,
    now: Timestamp,
) -> Tried<(i64, Uuid, String)> {
    let ((low, high), key) = (pair(owner, to), fold_subject(subject));
    let sql = "SELECT id, public_id, subject, ended_by FROM sessions
               WHERE low_id = $1 AND high_id = $2 AND subject_key = $3";
    let found: Option<(i64, Uuid, String, Option<String>)> = tx.find(sql, values![low, high, &key]).await?;
    if let Some((id, public_id, subject, ended_by)) = found {
        check_open(ended_by.as_deref())?;
        return Ok((id, public_id, subject));
    }
    let public_id = fresh_uuid(now);
    let sql = "INSERT INTO sessions (public_id, subject, subject_key, initiator_id, participant_id, low_id, high_id,
                                     created_at)
               VALUES ($1, $2, $3, $4, $5, $6, $7, $8)";
    let id = tx.insert(sql, values![public_id, subject, &key, owner, to, low, high, now]).await?;
    let sql = "INSERT INTO session_members (agent_id, session_id) VALUES ($1, $3), ($2, $3)";
    tx.execute(sql, values![owner, to, id]).await?;
    Ok((id, public_id, subject.to_owned()))
}
