//! Reading logs.

mod household;
mod resume;

use amb_core::{Entry, Event};
use async_trait::async_trait;
use futures_util::FutureExt;

use crate::StoreError;
use crate::engine::{Db, Engine, FromRow, Query, ReadLength, Row, Tried, read, values};
use crate::error::Result;
use crate::row::{MessageRow, message_columns};
use crate::types::{AgentKey, log_number};
use crate::verbs::HouseholdKey;

pub use household::{HouseholdCursor, HouseholdPage};
use resume::{DeliveryProgress, SCAN_LIMIT};

/// Logs of agents.
#[async_trait]
pub trait LogVerbs: Engine {
    /// Returns the entries after `since`, oldest first, at most `limit`. A paused agent's log ends with the entry that
    /// says so.
    async fn events(&self, agent: AgentKey, since: u64, limit: usize) -> Result<Vec<Entry>> {
        let asked = (agent.0, since, limit);
        read(self, ReadLength::Short, asked, |db, (agent, since, limit)| entries(db, *agent, *since, *limit).boxed())
            .await
    }

    /// Returns the number of the newest entry that [`LogVerbs::events`] shows; 0 where there never was one.
    async fn event_head(&self, agent: AgentKey) -> Result<u64> {
        read(self, ReadLength::Short, agent.0, |db, agent| shown_head(db, *agent).boxed()).await
    }

    /// Returns the entries of the logs of a household's members after a cursor, as each of them sees its own, from one
    /// snapshot. Of a member that the cursor does not have, the last `last` entries. Marks nothing as delivered.
    async fn household_events(
        &self,
        household: HouseholdKey,
        since: HouseholdCursor,
        last: u64,
    ) -> Result<HouseholdPage> {
        let asked = (household, since, last);
        read(self, ReadLength::Long, asked, |db, (household, since, last)| {
            household::events(db, *household, since.clone(), *last).boxed()
        })
        .await
    }

    /// Returns the cursor from which a listener with this cursor continues: the same, unless it is beyond the end of
    /// the log. Then it is from before the database was restored to an earlier state, or from another database, and the
    /// listener continues after the last delivered message, so that no mail is skipped.
    async fn resume(&self, agent: AgentKey, since: u64) -> Result<u64> {
        read(self, ReadLength::Short, (agent.0, since), |db, (agent, since)| resume(db, *agent, *since).boxed()).await
    }
}

impl<E: Engine> LogVerbs for E {}

/// Returns a query for the entries of the log of the agent `$1` that meet a condition. `order` has the order and the
/// limit. Both tables have it too: else PostgreSQL would read and sort all rows that meet the condition.
fn log(condition: &str, order: &str) -> String {
    format!(
        "SELECT * FROM (SELECT number, message_id, CAST(NULL AS text) AS event, delivered_at, read_at, rung_at, from_person
                        FROM deliveries WHERE agent_id = $1 AND {condition} {order}) n
         UNION ALL
         SELECT * FROM (SELECT number, CAST(NULL AS bigint), event, CAST(NULL AS timestamptz), CAST(NULL AS timestamptz),
                               CAST(NULL AS timestamptz), CAST(NULL AS boolean)
                        FROM events WHERE agent_id = $1 AND {condition} {order}) n {order}"
    )
}

/// Returns the last number of its log that an agent sees: no limit, unless the agent is paused. A separate statement:
/// PostgreSQL plans a page of a log well only where the end is a parameter.
async fn shown_end(db: &mut dyn Db, agent: i64) -> Tried<i64> {
    let paused_from: Option<Option<i64>> =
        db.find("SELECT paused_from FROM agents WHERE id = $1", values![agent]).await?;
    Ok(paused_from.flatten().unwrap_or(i64::MAX))
}

/// Returns the highest number that was ever assigned in an agent's log.
pub(crate) async fn head(db: &mut dyn Db, agent: i64) -> Tried<u64> {
    let sql = format!("SELECT {}", (db.dialect().log_head)("$1"));
    db.one(&sql, values![agent]).await
}

/// Returns whether an agent sees an entry after this number.
pub(crate) async fn has_entry_after(db: &mut dyn Db, agent: i64, number: u64) -> Tried<bool> {
    let end = shown_end(db, agent).await?;
    let sql = log("number > $2 AND number <= $3", "ORDER BY number LIMIT 1");
    db.exists(&sql, values![agent, number, end]).await
}

async fn shown_head(db: &mut dyn Db, agent: i64) -> Tried<u64> {
    let end = shown_end(db, agent).await?;
    Ok(head(db, agent).await?.min(log_number(end)))
}

async fn resume(db: &mut dyn Db, agent: i64, since: u64) -> Tried<u64> {
    let head = head(db, agent).await?;
    if since <= head {
        return Ok(since);
    }
    let sql = format!(
        "SELECT min(number), min(CASE WHEN event IS NULL AND delivered_at IS NULL THEN number END),
                max(CASE WHEN delivered_at IS NOT NULL THEN number END)
         FROM ({}) n",
        log("TRUE", "ORDER BY number DESC LIMIT $2")
    );
    let (oldest, first_undelivered, last_delivered) = db.one(&sql, values![agent, SCAN_LIMIT]).await?;
    Ok(DeliveryProgress { oldest, first_undelivered, last_delivered }.cursor(head))
}

/// An entry, and its approximate size in a response.
struct SizedEntry(Entry, usize);

impl FromRow for SizedEntry {
    fn from_row(row: &mut Row<'_>) -> Result<Self> {
        let (number, event): (u64, Option<String>) = (row.take()?, row.take()?);
        let (event, bytes) = match event {
            Some(event) => (serde_json::from_str(&event).map_err(StoreError::internal)?, event.len()),
            None => {
                let message = MessageRow::from_row(row)?;
                let bytes = message.bytes();
                (Event::NewMessage(message.event()?), bytes)
            }
        };
        Ok(Self(Entry { event, cursor: number.into() }, bytes))
    }
}

async fn entries(db: &mut dyn Db, agent: i64, since: u64, limit: usize) -> Tried<Vec<Entry>> {
    let sql = format!(
        "SELECT n.number, n.event, {} FROM ({}) n
         LEFT JOIN messages m ON m.id = n.message_id
         LEFT JOIN sessions s ON s.id = m.session_id
         LEFT JOIN agents f ON f.id = m.sender_id
         LEFT JOIN agents t ON t.id = $1 ORDER BY n.number",
        message_columns("n"),
        log("number > $2 AND number <= $4", "ORDER BY number LIMIT $3")
    );
    let end = shown_end(db, agent).await?;
    let (found, _) =
        db.page(&sql, values![agent, since, limit, end], |SizedEntry(_, bytes): &SizedEntry| *bytes).await?;
    Ok(found.into_iter().map(|SizedEntry(entry, _)| entry).collect())
}
