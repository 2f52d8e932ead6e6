//! Tasks: deciding about them, moving them, listing them.

use amb_core::doc::ChainTask;
use std::collections::HashMap;

use amb_core::mailbox::TaskFilter;
use amb_core::route::{self, Hop};
use amb_core::task::{Asked, Decision, decide_in_any_case};
use amb_core::{AgentName, Card, Entry, Event, Kind, Task, TaskState, Timestamp};
use deadpool_postgres::{GenericClient, Transaction};
use tokio_postgres::Row;
use tokio_postgres::types::ToSql;
use uuid::Uuid;

use super::error::Trouble;
use super::write::{Heads, Pages, Post, To};
use super::{consent, messages};
use crate::error::Result;
use crate::outgoing::{json, trace_json};
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
                        SELECT FROM messages m WHERE m.public_id = t.message_public_id AND m.delivery_number IS NULL)
             FROM tasks t JOIN agents o ON o.id = t.owner_id JOIN agents a ON a.id = t.assignee_id
             LEFT JOIN tasks p ON p.id = t.parent_id ",
            $rest
        )
    };
}

fn task_row(row: &Row) -> Result<TaskRow, tokio_postgres::Error> {
    Ok(TaskRow {
        row: row.try_get(0)?,
        id: row.try_get(1)?,
        owner: row.try_get(2)?,
        assignee: row.try_get(3)?,
        owner_name: row.try_get(4)?,
        assignee_name: row.try_get(5)?,
        state: row.try_get(6)?,
        subject: row.try_get(7)?,
        message: row.try_get(8)?,
        session: row.try_get(9)?,
        parent: row.try_get(10)?,
        deadline: row.try_get(11)?,
        overdue: row.try_get(12)?,
        note: row.try_get(13)?,
        callback: row.try_get(14)?,
        created_at: row.try_get(15)?,
        updated_at: row.try_get(16)?,
        undelivered: row.try_get(17)?,
    })
}

async fn query<C: GenericClient>(
    client: &C,
    sql: &str,
    values: &[&(dyn ToSql + Sync)],
) -> Result<Vec<TaskRow>, Trouble> {
    let select = client.prepare_cached(sql).await?;
    let rows = client.query(&select, values).await?;
    rows.iter().map(|row| task_row(row).map_err(Trouble::from)).collect()
}

/// The task of this id, if the agent gave it or was given it.
pub(super) async fn find<C: GenericClient>(client: &C, agent: i64, id: Uuid) -> Result<TaskRow, Trouble> {
    let mut found = query(client, select_tasks!("WHERE t.public_id = $1"), &[&id]).await?;
    found.pop().filter(|task| task.concerns(agent)).ok_or_else(|| words::no_task(&id.into()).into())
}

/// Tasks that the agent gave or was given, newest first.
pub(super) async fn list<C: GenericClient>(
    client: &C,
    caller: &Agent,
    filter: &TaskFilter,
    limit: u32,
) -> Result<Vec<Task>, Trouble> {
    let (me, state, limit) = (caller.key.0, filter.state.map(TaskState::as_str), i64::from(limit));
    let values: [&(dyn ToSql + Sync); 4] = [&me, &state, &filter.open, &limit];
    let mut rows = Vec::new();
    if filter.owned != Some(false) {
        let sql = select_tasks!(
            "WHERE t.owner_id = $1 AND ($2::text IS NULL OR t.state = $2)
             AND (NOT $3 OR t.state IN ('pending', 'accepted', 'working')) ORDER BY t.id DESC LIMIT $4"
        );
        rows.extend(query(client, sql, &values).await?);
    }
    if filter.owned != Some(true) {
        let sql = select_tasks!(
            "WHERE t.assignee_id = $1 AND ($2::text IS NULL OR t.state = $2)
             AND (NOT $3 OR t.state IN ('pending', 'accepted', 'working'))
             AND NOT (t.state = 'rejected' AND EXISTS (
                 SELECT FROM messages m WHERE m.public_id = t.message_public_id AND m.delivery_number IS NULL))
             ORDER BY t.id DESC LIMIT $4"
        );
        rows.extend(query(client, sql, &values).await?);
    }
    rows.sort_by_key(|task| std::cmp::Reverse(task.row));
    rows.dedup_by_key(|task| task.row);
    rows.truncate(usize::try_from(limit).unwrap_or(0));
    Ok(rows.into_iter().map(|task| task.task(me)).collect::<Result<_>>()?)
}

/// The tasks of which this one is a piece, itself, and its own pieces.
pub(super) async fn chain<C: GenericClient>(client: &C, caller: &Agent, id: Uuid) -> Result<Vec<ChainTask>, Trouble> {
    let task = find(client, caller.key.0, id).await?;
    let sql = select_tasks!(
        "JOIN (
             WITH RECURSIVE up (id, depth) AS (
                 SELECT $1::bigint, 0 UNION ALL
                 SELECT k.parent_id, up.depth + 1 FROM up JOIN tasks k ON k.id = up.id
                 WHERE k.parent_id IS NOT NULL AND up.depth < 64
             ), down (id, depth) AS (
                 SELECT $1::bigint, 0 UNION ALL
                 SELECT k.id, down.depth + 1 FROM down JOIN tasks k ON k.parent_id = down.id WHERE down.depth < 64
             )
             SELECT id, -depth AS place FROM up UNION SELECT id, depth FROM down
         ) n ON n.id = t.id ORDER BY n.place, t.id LIMIT 200"
    );
    let rows = query(client, sql, &[&task.row]).await?;
    Ok(rows.into_iter().map(|task| task.in_chain(caller.key.0)).collect::<Result<_>>()?)
}

/// How many tasks each of these agents works on.
pub(super) async fn current<C: GenericClient>(client: &C, assignees: &[i64]) -> Result<HashMap<i64, usize>, Trouble> {
    if assignees.is_empty() {
        return Ok(HashMap::new());
    }
    let select = client
        .prepare_cached(
            "SELECT assignee_id, count(*) FROM tasks
             WHERE assignee_id = ANY($1) AND state IN ('accepted', 'working') GROUP BY assignee_id",
        )
        .await?;
    let rows = client.query(&select, &[&assignees]).await?;
    Ok(rows.iter().map(|row| (row.get(0), usize::try_from(row.get::<_, i64>(1)).unwrap_or(usize::MAX))).collect())
}

/// The rows of the tasks that these messages brought.
pub(super) async fn of_messages<C: GenericClient>(
    client: &C,
    messages: &[Uuid],
) -> Result<HashMap<Uuid, i64>, Trouble> {
    if messages.is_empty() {
        return Ok(HashMap::new());
    }
    let select =
        client.prepare_cached("SELECT message_public_id, id FROM tasks WHERE message_public_id = ANY($1)").await?;
    let rows = client.query(&select, &[&messages]).await?;
    Ok(rows.iter().map(|row| (row.get(0), row.get(1))).collect())
}

/// The session in which a task's update is said.
#[derive(Debug, Clone, Copy)]
pub(super) struct On<'a> {
    pub(super) id: i64,
    pub(super) public_id: Uuid,
    pub(super) subject: &'a str,
}

/// Adds a task update to one side, whose mailbox is locked.
#[allow(clippy::too_many_arguments)]
pub(super) fn post_update(
    pages: &mut Pages,
    heads: &mut Heads,
    from_name: &AgentName,
    from: i64,
    payer: i64,
    to: i64,
    on: On<'_>,
    hop: &Hop,
    update: Update,
    callback: Option<String>,
) -> Result<Option<News>> {
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
        kind: Some(Kind::TaskUpdate.as_str().to_owned()),
        trace: trace_json(&Hop { ttl: hop.ttl, trace })?,
        reply_to: Some(update.reply_to),
        correlation_id: None,
        task: Some(json(&update.task)?),
        callback,
        content: update.content.clone(),
        parts: None,
        metadata: None,
    };
    let copies = pages.post(heads, on.id, post, To::One(to));
    Ok(copies.first().copied().map(|(agent, number)| {
        let event = Event::NewMessage(update.event(from_name.clone(), on.public_id, on.subject));
        News { agent, entry: Entry { event, cursor: number.into() } }
    }))
}

/// Moves a task, and tells its owner where it came to.
pub(super) async fn set_state(
    tx: &Transaction<'_>,
    caller: &Agent,
    id: Uuid,
    state: TaskState,
    note: Option<&str>,
    now: Timestamp,
) -> Result<Written<Task>, Trouble> {
    let me = caller.key.0;
    let seen = find(tx, me, id).await?;
    if seen.assignee != me {
        return Err(words::not_the_assignee().into());
    }
    // Under both locks the task does not move and the quota does not change.
    let mut heads = Heads::lock(tx, &[seen.owner, seen.assignee]).await?;
    let task = find(tx, me, id).await?;
    if !consent::between(tx, task.owner, me).await?.is_given() {
        return Err(words::task_after_the_connection(&task.owner_name).into());
    }
    let at = task.state()?;
    let path = at.path_to(state);
    let Some(first) = path.first().copied() else {
        return Err(at.check_move(state).err().map_or_else(|| words::no_task(&id.into()), Into::into).into());
    };
    let (mut state, mut note) = (state, note.map(str::to_owned));
    if first == TaskState::Accepted {
        let card = card(tx, me).await?;
        let owner = row::name(&task.owner_name)?;
        let current_tasks = current(tx, &[me]).await?.get(&me).copied().unwrap_or(0);
        let asked =
            Asked { sender: &owner, assignee: &caller.name, card: &card, current_tasks, deadline: task.deadline };
        if let Decision::Reject(reason) = decide_in_any_case(asked, now) {
            (state, note) = (TaskState::Rejected, Some(reason.to_string()));
        }
    }
    let mut pages = Pages::default();
    let mut news = move_task(tx, &mut pages, &mut heads, &task, &caller.name, state, note, now).await?;
    pages.write(tx).await?.correct(&mut news);
    let moved = find(tx, me, id).await?;
    Ok(Written { answer: moved.task(me)?, news: news.into_iter().collect() })
}

async fn card(tx: &Transaction<'_>, agent: i64) -> Result<Card, Trouble> {
    let select = tx.prepare_cached("SELECT allow_from, max_concurrent_tasks FROM agents WHERE id = $1").await?;
    let row = tx.query_one(&select, &[&agent]).await?;
    Ok(Card {
        allow_from: row::parse(Some(row.get::<_, &str>(0)))?.unwrap_or_default(),
        max_concurrent_tasks: u32::try_from(row.get::<_, i64>(1)).unwrap_or(0),
        ..Card::default()
    })
}

/// Writes a task's new state, and adds the update to its owner, unless that agent is gone.
#[allow(clippy::too_many_arguments)]
async fn move_task(
    tx: &Transaction<'_>,
    pages: &mut Pages,
    heads: &mut Heads,
    task: &TaskRow,
    by: &AgentName,
    state: TaskState,
    note: Option<String>,
    now: Timestamp,
) -> Result<Option<News>, Trouble> {
    let update = tx
        .prepare_cached("UPDATE tasks SET state = $2, note = coalesce($3, note), updated_at = $4 WHERE id = $1")
        .await?;
    tx.execute(&update, &[&task.row, &state.as_str(), &note, &now]).await?;
    let select = tx
        .prepare_cached(
            "SELECT s.id, s.subject FROM sessions s, agents o
             WHERE s.public_id = $1 AND o.id = $2 AND o.deleted_at IS NULL",
        )
        .await?;
    let Some(session) = tx.query_opt(&select, &[&task.session, &task.owner]).await? else { return Ok(None) };
    let hop = match messages::find(tx, task.message).await? {
        Some(found) => route::task_update(&found.message()?, by),
        None => route::fresh(by),
    };
    let update = Update::new(task.task_ref(state), task.message, note.as_deref(), now);
    let on = On { id: session.try_get(0)?, public_id: task.session, subject: session.try_get(1)? };
    let (from, callback) = (task.assignee, task.callback.clone());
    Ok(post_update(pages, heads, by, from, from, task.owner, on, &hop, update, callback)?)
}

/// Marks open tasks past their deadline, and tells both sides.
pub(super) async fn sweep_overdue(tx: &Transaction<'_>, now: Timestamp) -> Result<Written<u64>, Trouble> {
    let find = tx
        .prepare_cached(
            "SELECT id, owner_id, assignee_id FROM tasks
             WHERE NOT overdue AND state IN ('pending', 'accepted', 'working') AND deadline < $1
             ORDER BY deadline LIMIT $2",
        )
        .await?;
    let due = tx.query(&find, &[&now, &SOME]).await?;
    if due.is_empty() {
        return Ok(Written::quiet(0));
    }
    let agents: Vec<i64> = due.iter().flat_map(|row| [row.get(1), row.get(2)]).collect();
    let rows: Vec<i64> = due.iter().map(|row| row.get(0)).collect();
    let mut heads = Heads::lock(tx, &agents).await?;
    let mark = tx
        .prepare_cached(
            "UPDATE tasks SET overdue = TRUE
             WHERE id = ANY($1) AND NOT overdue AND state IN ('pending', 'accepted', 'working') RETURNING id",
        )
        .await?;
    let marked: Vec<i64> = tx.query(&mark, &[&rows]).await?.iter().map(|row| row.get(0)).collect();
    let overdue = query(tx, select_tasks!("WHERE t.id = ANY($1) ORDER BY t.deadline, t.id"), &[&marked]).await?;
    let (mut pages, mut news) = (Pages::default(), Vec::new());
    for task in overdue {
        for side in [task.owner, task.assignee] {
            let event = Event::TaskOverdue { task: task.clone().task(side)? };
            news.extend(pages.tell(&mut heads, side, event, now)?);
        }
    }
    pages.write(tx).await?;
    Ok(Written { answer: marked.len() as u64, news })
}

/// The other sides of the open tasks that an agent was given or gave.
pub(super) async fn sides_of_open(tx: &Transaction<'_>, agent: i64) -> Result<Vec<i64>, Trouble> {
    let select = tx
        .prepare_cached(
            "SELECT owner_id FROM tasks WHERE assignee_id = $1 AND state IN ('pending', 'accepted', 'working')
             UNION SELECT assignee_id FROM tasks WHERE owner_id = $1 AND state IN ('pending', 'accepted', 'working')",
        )
        .await?;
    Ok(tx.query(&select, &[&agent]).await?.iter().map(|row| row.get(0)).collect())
}

/// Ends the open tasks of an agent that leaves the office: those it was given and those it gave.
pub(super) async fn end_tasks_of(
    tx: &Transaction<'_>,
    pages: &mut Pages,
    heads: &mut Heads,
    caller: &Agent,
    now: Timestamp,
) -> Result<Vec<News>, Trouble> {
    let open = open_tasks_of(tx, caller.key.0).await?;
    end_tasks(tx, pages, heads, open, &words::left_the_office(&caller.name), now).await
}

/// The open tasks that an agent was given or gave.
async fn open_tasks_of(tx: &Transaction<'_>, agent: i64) -> Result<Vec<TaskRow>, Trouble> {
    let given =
        select_tasks!("WHERE t.assignee_id = $1 AND t.state IN ('pending', 'accepted', 'working') ORDER BY t.id");
    let gave = select_tasks!("WHERE t.owner_id = $1 AND t.state IN ('pending', 'accepted', 'working') ORDER BY t.id");
    let mut open = query(tx, given, &[&agent]).await?;
    open.extend(query(tx, gave, &[&agent]).await?);
    Ok(open)
}

/// Ends the open tasks between an agent and those it may not write to any more. The mailboxes of all sides are locked.
pub(super) async fn end_without_consent(
    tx: &Transaction<'_>,
    pages: &mut Pages,
    heads: &mut Heads,
    agent: i64,
    note: &str,
    now: Timestamp,
) -> Result<Vec<News>, Trouble> {
    let mut ended = Vec::new();
    for task in open_tasks_of(tx, agent).await? {
        if !consent::between(tx, task.owner, task.assignee).await?.is_given() {
            ended.push(task);
        }
    }
    end_tasks(tx, pages, heads, ended, note, now).await
}

/// Ends the open tasks between two agents whose connection ends. Both mailboxes are locked.
pub(super) async fn end_tasks_between(
    tx: &Transaction<'_>,
    pages: &mut Pages,
    heads: &mut Heads,
    caller: &Agent,
    other: i64,
    now: Timestamp,
) -> Result<Vec<News>, Trouble> {
    let sql = select_tasks!(
        "WHERE t.assignee_id = $1 AND t.owner_id = $2 AND t.state IN ('pending', 'accepted', 'working') ORDER BY t.id"
    );
    let mut open = query(tx, sql, &[&other, &caller.key.0]).await?;
    open.extend(query(tx, sql, &[&caller.key.0, &other]).await?);
    end_tasks(tx, pages, heads, open, &words::ended_the_connection(&caller.name), now).await
}

async fn end_tasks(
    tx: &Transaction<'_>,
    pages: &mut Pages,
    heads: &mut Heads,
    open: Vec<TaskRow>,
    note: &str,
    now: Timestamp,
) -> Result<Vec<News>, Trouble> {
    let mut news = Vec::new();
    for task in open {
        let state = task.ended()?;
        let by = row::name(&task.assignee_name)?;
        news.extend(move_task(tx, pages, heads, &task, &by, state, Some(note.to_owned()), now).await?);
        news.extend(tell_assignee(tx, pages, heads, &task, state, note, now).await?);
    }
    Ok(news)
}

/// Adds the update to the assignee, unless that agent is gone, about a task that the office ended.
async fn tell_assignee(
    tx: &Transaction<'_>,
    pages: &mut Pages,
    heads: &mut Heads,
    task: &TaskRow,
    state: TaskState,
    note: &str,
    now: Timestamp,
) -> Result<Option<News>, Trouble> {
    let select = tx
        .prepare_cached(
            "SELECT s.id, s.subject FROM sessions s, agents a
             WHERE s.public_id = $1 AND a.id = $2 AND a.deleted_at IS NULL",
        )
        .await?;
    let Some(session) = tx.query_opt(&select, &[&task.session, &task.assignee]).await? else { return Ok(None) };
    let owner = row::name(&task.owner_name)?;
    let update = Update::new(task.task_ref(state), task.message, Some(note), now);
    let on = On { id: session.try_get(0)?, public_id: task.session, subject: session.try_get(1)? };
    let hop = route::fresh(&owner);
    let from = task.owner;
    Ok(post_update(pages, heads, &owner, from, from, task.assignee, on, &hop, update, None)?)
}
