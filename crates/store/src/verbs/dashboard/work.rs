//! The tasks of a household.

use amb_core::{Task, TaskState, Timestamp};
use uuid::Uuid;

use super::household::MAX_NEEDS;
use super::types::{HouseholdKey, Lane};
use crate::engine::{Db, Query, Tried, Value, values};
use crate::error::Result;
use crate::refusals;
use crate::task_row::TaskRow;
use crate::verbs::tasks::{select, undelivered_task};

/// The states of the board, in order.
const LANES: [TaskState; 6] = [
    TaskState::Pending,
    TaskState::Accepted,
    TaskState::Working,
    TaskState::Completed,
    TaskState::Rejected,
    TaskState::Failed,
];

/// Whether the task `t` was delivered to its assignee.
fn delivered() -> String {
    format!("NOT (t.state = 'rejected' AND {})", undelivered_task())
}

/// Whether the household `$1` sees the task `t`.
fn seen() -> String {
    format!("(o.household_id = $1 OR (a.household_id = $1 AND {}))", delivered())
}

/// Returns the tasks that a statement with this rest finds, without callbacks.
async fn find(db: &mut dyn Db, rest: &str, values: &[Value<'_>]) -> Tried<Vec<Task>> {
    let sql = select(rest);
    let rows: Vec<TaskRow> = db.rows(&sql, values).await?;
    Ok(rows.into_iter().map(|row| row.task(0)).collect::<Result<_>>()?)
}

/// Returns open tasks past their deadline, and those rejected or failed after this time, the one that changed last
/// first.
pub(super) async fn troubled(db: &mut dyn Db, household: HouseholdKey, since: Timestamp) -> Tried<Vec<Task>> {
    let (join, delivered) = (db.dialect().then_join, delivered());
    let of = |side: &str| format!("SELECT t.id FROM agents n {join} tasks t ON t.{side} = n.id");
    let overdue = "AND t.state IN ('pending', 'accepted', 'working') WHERE n.household_id = $1 AND t.overdue = TRUE";
    let ended = "AND t.state IN ('rejected', 'failed') AND t.canceled_by IS NULL AND t.updated_at > $2 WHERE n.household_id = $1";
    let (given, taken) = (of("owner_id"), of("assignee_id"));
    let rest = format!(
        "WHERE t.id IN ({given} {overdue} UNION {taken} {overdue} UNION {given} {ended} UNION {taken} {ended} AND {delivered})
         ORDER BY t.updated_at DESC, t.id DESC LIMIT $3"
    );
    find(db, &rest, values![household.0, since, MAX_NEEDS]).await
}

pub(super) async fn board(
    db: &mut dyn Db,
    household: HouseholdKey,
    only: Option<TaskState>,
    each: u32,
) -> Tried<Vec<Lane>> {
    let join = db.dialect().then_join;
    let of = |side: &str| {
        format!(
            "SELECT t.id, t.updated_at FROM agents n {join} tasks t ON t.{side} = n.id AND t.state = $2
             WHERE n.household_id = $1"
        )
    };
    let rest = format!("WHERE t.id {} ORDER BY t.updated_at DESC, t.id DESC", (db.dialect().in_list)("$1"));
    let mut lanes = Vec::new();
    for state in LANES.into_iter().filter(|state| only.is_none_or(|only| only == *state)) {
        // Only for rejected tasks: its estimated cost would change the plan of the others.
        let delivered =
            if state == TaskState::Rejected { format!(" AND NOT {}", undelivered_task()) } else { String::new() };
        let ids = format!("{} UNION {}{delivered}", of("owner_id"), of("assignee_id"));
        let mut found: Vec<(i64, Timestamp)> = db.rows(&ids, values![household.0, state.as_str()]).await?;
        let count = found.len() as u64;
        found.sort_unstable_by_key(|(id, changed)| std::cmp::Reverse((*changed, *id)));
        let newest: Vec<i64> = found.into_iter().take(each as usize).map(|(id, _)| id).collect();
        lanes.push(Lane { state, count, tasks: find(db, &rest, values![&newest]).await? });
    }
    Ok(lanes)
}

pub(super) async fn chain(db: &mut dyn Db, household: HouseholdKey, id: Uuid) -> Tried<Vec<Task>> {
    let seen = seen();
    let itself = format!("WHERE t.public_id = $2 AND {seen}");
    let mut chain = find(db, &itself, values![household.0, id]).await?;
    if chain.is_empty() {
        return Err(refusals::no_task(&id.into()).into());
    }
    let rest = format!(
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
         ) n ON n.id = t.id WHERE t.public_id <> $2 AND {seen} ORDER BY n.depth, t.id LIMIT 200"
    );
    chain.extend(find(db, &rest, values![household.0, id]).await?);
    Ok(chain)
}

/// Returns the tasks of a session, newest first.
pub(super) async fn in_session(db: &mut dyn Db, household: HouseholdKey, session: Uuid) -> Tried<Vec<Task>> {
    let rest = format!("WHERE t.session_public_id = $2 AND {} ORDER BY t.id DESC LIMIT 3", seen());
    find(db, &rest, values![household.0, session]).await
}
