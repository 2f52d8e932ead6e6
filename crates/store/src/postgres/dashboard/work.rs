//! The tasks of a household.

use amb_core::{Task, Timestamp};
use deadpool_postgres::Transaction;
use tokio_postgres::Row;
use tokio_postgres::types::ToSql;
use uuid::Uuid;

use crate::dashboard::{HouseholdKey, LANES, Lane, MAX_NEEDS};
use crate::engine::Failed;
use crate::error::Result;
use crate::refusals;
use crate::tasks::TaskRow;

macro_rules! select_tasks {
    ($rest:expr) => {
        concat!(
            "SELECT t.id, t.public_id, t.owner_id, t.assignee_id, o.name, a.name, t.state, t.subject,
                    t.message_public_id, t.session_public_id, p.public_id, t.deadline, t.overdue, t.note,
                    t.created_at, t.updated_at
             FROM tasks t JOIN agents o ON o.id = t.owner_id JOIN agents a ON a.id = t.assignee_id
             LEFT JOIN tasks p ON p.id = t.parent_id ",
            $rest
        )
    };
}

/// Whether the task `t`, given to an agent of the household, came to it.
macro_rules! came {
    () => {
        "NOT (t.state = 'rejected' AND EXISTS (
             SELECT FROM messages m WHERE m.public_id = t.message_public_id AND m.delivery_number IS NULL))"
    };
}

/// Whether the household $1 sees the task `t`.
macro_rules! seen {
    () => {
        concat!("(o.household_id = $1 OR (a.household_id = $1 AND ", came!(), "))")
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
        callback: None,
        created_at: row.try_get(14)?,
        updated_at: row.try_get(15)?,
        undelivered: false,
    })
}

async fn query(tx: &Transaction<'_>, sql: &str, values: &[&(dyn ToSql + Sync)]) -> Result<Vec<Task>, Failed> {
    let select = tx.prepare_cached(sql).await?;
    let rows = tx.query(&select, values).await?;
    rows.iter().map(|row| Ok(task_row(row)?.task(0)?)).collect()
}

/// Open tasks past their deadline, and those that ended badly after this moment, the one that changed last first.
pub(super) async fn troubled(
    tx: &Transaction<'_>,
    household: HouseholdKey,
    since: Timestamp,
) -> Result<Vec<Task>, Failed> {
    let sql = select_tasks!(concat!(
        "WHERE t.id IN (
             SELECT t.id FROM agents n JOIN tasks t ON t.owner_id = n.id
                 AND t.state IN ('pending', 'accepted', 'working') WHERE n.household_id = $1 AND t.overdue
             UNION SELECT t.id FROM agents n JOIN tasks t ON t.assignee_id = n.id
                 AND t.state IN ('pending', 'accepted', 'working') WHERE n.household_id = $1 AND t.overdue
             UNION SELECT t.id FROM agents n JOIN tasks t ON t.owner_id = n.id
                 AND t.state IN ('rejected', 'failed') AND t.updated_at > $2 WHERE n.household_id = $1
             UNION SELECT t.id FROM agents n JOIN tasks t ON t.assignee_id = n.id
                 AND t.state IN ('rejected', 'failed') AND t.updated_at > $2 WHERE n.household_id = $1 AND ",
        came!(),
        ") ORDER BY t.updated_at DESC, t.id DESC LIMIT $3"
    ));
    query(tx, sql, &[&household.0, &since, &MAX_NEEDS]).await
}

pub(super) async fn board(tx: &Transaction<'_>, household: HouseholdKey, each: u32) -> Result<Vec<Lane>, Failed> {
    let ids = tx
        .prepare_cached(concat!(
            "SELECT t.id, t.updated_at FROM agents n JOIN tasks t ON t.owner_id = n.id AND t.state = $2
                 WHERE n.household_id = $1
             UNION SELECT t.id, t.updated_at FROM agents n JOIN tasks t ON t.assignee_id = n.id AND t.state = $2
                 WHERE n.household_id = $1 AND ",
            came!()
        ))
        .await?;
    let mut lanes = Vec::new();
    for state in LANES {
        let rows = tx.query(&ids, &[&household.0, &state.as_str()]).await?;
        let mut found: Vec<(Timestamp, i64)> = rows.iter().map(|row| (row.get(1), row.get(0))).collect();
        let count = found.len() as u64;
        found.sort_unstable_by_key(|place| std::cmp::Reverse(*place));
        let newest: Vec<i64> = found.into_iter().take(each as usize).map(|(_, id)| id).collect();
        let sql = select_tasks!("WHERE t.id = ANY($1) ORDER BY t.updated_at DESC, t.id DESC");
        lanes.push(Lane { state, count, tasks: query(tx, sql, &[&newest]).await? });
    }
    Ok(lanes)
}

pub(super) async fn chain(tx: &Transaction<'_>, household: HouseholdKey, id: Uuid) -> Result<Vec<Task>, Failed> {
    let sql = select_tasks!(concat!("WHERE t.public_id = $2 AND ", seen!()));
    let mut found = query(tx, sql, &[&household.0, &id]).await?;
    let Some(task) = found.pop() else { return Err(refusals::no_task(&id.into()).into()) };
    let rest = select_tasks!(concat!(
        "JOIN (
             WITH RECURSIVE up (id, depth) AS (
                 SELECT k.id, 0 FROM tasks k WHERE k.public_id = $2 UNION ALL
                 SELECT k.parent_id, up.depth + 1 FROM up JOIN tasks k ON k.id = up.id
                 WHERE k.parent_id IS NOT NULL AND up.depth < 64
             ), down (id, depth) AS (
                 SELECT up.id, 0 FROM up WHERE up.depth = (SELECT max(depth) FROM up) UNION ALL
                 SELECT k.id, down.depth + 1 FROM down JOIN tasks k ON k.parent_id = down.id WHERE down.depth < 64
             )
             SELECT DISTINCT id, depth FROM down
         ) n ON n.id = t.id WHERE t.public_id <> $2 AND ",
        seen!(),
        " ORDER BY n.depth, t.id LIMIT 200"
    ));
    let mut chain = vec![task];
    chain.extend(query(tx, rest, &[&household.0, &id]).await?);
    Ok(chain)
}

/// Tasks that were given in a session, newest first.
pub(super) async fn in_session(
    tx: &Transaction<'_>,
    household: HouseholdKey,
    session: Uuid,
) -> Result<Vec<Task>, Failed> {
    let sql = select_tasks!(concat!("WHERE t.session_public_id = $2 AND ", seen!(), " ORDER BY t.id DESC LIMIT 3"));
    query(tx, sql, &[&household.0, &session]).await
}
