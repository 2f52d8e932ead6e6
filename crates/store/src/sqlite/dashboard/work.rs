//! The tasks of a household.

use amb_core::{Task, Timestamp};
use rusqlite::{Connection, Row, ToSql, params};
use uuid::Uuid;

use crate::dashboard::{HouseholdKey, LANES, Lane, MAX_NEEDS};
use crate::error::Result;
use crate::refusals;
use crate::sqlite::error::failed;
use crate::sqlite::keys::{instant_at, maybe_instant_at, maybe_uuid_at, uuid_at};
use crate::sqlite::messages::undelivered;
use crate::sqlite::plans::Prepared;
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
        concat!(
            "NOT (t.state = 'rejected' AND EXISTS (SELECT 1 FROM messages m WHERE m.id = t.message_id AND ",
            undelivered!("m"),
            "))"
        )
    };
}

/// Whether the household ?1 sees the task `t`.
macro_rules! seen {
    () => {
        concat!("(o.household_id = ?1 OR (a.household_id = ?1 AND ", came!(), "))")
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
        callback: None,
        created_at: instant_at(row, 14)?,
        updated_at: instant_at(row, 15)?,
        undelivered: false,
    })
}

fn query(db: &Connection, sql: &str, values: &[&dyn ToSql]) -> Result<Vec<Task>> {
    let rows: Vec<TaskRow> = db
        .prepared(sql)
        .and_then(|mut select| select.query_map(values, task_row).and_then(Iterator::collect))
        .map_err(failed)?;
    rows.into_iter().map(|row| row.task(0)).collect()
}

/// Open tasks past their deadline, and those that ended badly after this moment, the one that changed last first.
pub(super) fn troubled(db: &Connection, household: HouseholdKey, since: Timestamp) -> Result<Vec<Task>> {
    let sql = concat!(
        "SELECT t.id FROM agents n CROSS JOIN tasks t ON t.owner_id = n.id
             AND t.state IN ('pending', 'accepted', 'working') WHERE n.household_id = ?1 AND t.overdue = 1
         UNION SELECT t.id FROM agents n CROSS JOIN tasks t ON t.assignee_id = n.id
             AND t.state IN ('pending', 'accepted', 'working') WHERE n.household_id = ?1 AND t.overdue = 1
         UNION SELECT t.id FROM agents n CROSS JOIN tasks t ON t.owner_id = n.id
             AND t.state IN ('rejected', 'failed') AND t.updated_at > ?2 WHERE n.household_id = ?1
         UNION SELECT t.id FROM agents n CROSS JOIN tasks t ON t.assignee_id = n.id
             AND t.state IN ('rejected', 'failed') AND t.updated_at > ?2 WHERE n.household_id = ?1 AND ",
        came!()
    );
    let ids: Vec<i64> = db
        .prepared(sql)
        .and_then(|mut select| {
            select.query_map([household.0, since.as_microsecond()], |row| row.get(0)).and_then(Iterator::collect)
        })
        .map_err(failed)?;
    newest(db, ids, MAX_NEEDS)
}

/// Of these rows those that changed last.
fn newest(db: &Connection, ids: Vec<i64>, limit: i64) -> Result<Vec<Task>> {
    let ids = serde_json::to_string(&ids).map_err(crate::StoreError::internal)?;
    let sql = select_tasks!(
        "WHERE t.id IN (SELECT k.id FROM tasks k WHERE k.id IN (SELECT value FROM json_each(?1))
                        ORDER BY k.updated_at DESC, k.id DESC LIMIT ?2) ORDER BY t.updated_at DESC, t.id DESC"
    );
    query(db, sql, params![ids, limit])
}

pub(super) fn board(db: &Connection, household: HouseholdKey, each: u32) -> Result<Vec<Lane>> {
    let sql = concat!(
        "SELECT t.id FROM agents n CROSS JOIN tasks t ON t.owner_id = n.id AND t.state = ?2 WHERE n.household_id = ?1
         UNION SELECT t.id FROM agents n CROSS JOIN tasks t ON t.assignee_id = n.id AND t.state = ?2
             WHERE n.household_id = ?1 AND ",
        came!()
    );
    let mut lanes = Vec::new();
    for state in LANES {
        let ids: Vec<i64> = db
            .prepared(sql)
            .and_then(|mut select| {
                select.query_map(params![household.0, state.as_str()], |row| row.get(0)).and_then(Iterator::collect)
            })
            .map_err(failed)?;
        let count = ids.len() as u64;
        lanes.push(Lane { state, count, tasks: newest(db, ids, each.into())? });
    }
    Ok(lanes)
}

pub(super) fn chain(db: &Connection, household: HouseholdKey, id: Uuid) -> Result<Vec<Task>> {
    let sql = select_tasks!(concat!("WHERE t.public_id = ?2 AND ", seen!()));
    let mut found = query(db, sql, params![household.0, id.as_bytes()])?;
    let Some(task) = found.pop() else { return Err(refusals::no_task(&id.into())) };
    let rest = select_tasks!(concat!(
        "JOIN (
             WITH RECURSIVE up (id, depth) AS (
                 SELECT k.id, 0 FROM tasks k WHERE k.public_id = ?2 UNION ALL
                 SELECT k.parent_id, up.depth + 1 FROM up JOIN tasks k ON k.id = up.id
                 WHERE k.parent_id IS NOT NULL AND up.depth < 64
             ), down (id, depth) AS (
                 SELECT up.id, 0 FROM up WHERE up.depth = (SELECT max(depth) FROM up) UNION ALL
                 SELECT k.id, down.depth + 1 FROM down JOIN tasks k ON k.parent_id = down.id WHERE down.depth < 64
             )
             SELECT DISTINCT id, depth FROM down
         ) n ON n.id = t.id WHERE t.public_id <> ?2 AND ",
        seen!(),
        " ORDER BY n.depth, t.id LIMIT 200"
    ));
    let mut chain = vec![task];
    chain.extend(query(db, rest, params![household.0, id.as_bytes()])?);
    Ok(chain)
}

/// Tasks that were given in a session, newest first.
pub(super) fn in_session(db: &Connection, household: HouseholdKey, session: Uuid) -> Result<Vec<Task>> {
    let sql = select_tasks!(concat!("WHERE t.session_public_id = ?2 AND ", seen!(), " ORDER BY t.id DESC LIMIT 3"));
    query(db, sql, params![household.0, session.as_bytes()])
}
