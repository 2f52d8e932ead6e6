//! Reading the log of a mailbox.

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

/// The logs of agents.
#[async_trait]
pub trait LogVerbs: Engine {
    /// The entries after `since`, oldest first, at most `limit`. Of a paused agent's log nothing after the entry that tells it of
    /// the pause.
    async fn events(&self, agent: AgentKey, since: u64, limit: usize) -> Result<Vec<Entry>> {
        let (Ok(since), limit) = (i64::try_from(since), i64::try_from(limit).unwrap_or(i64::MAX)) else {
            return Ok(Vec::new());
        };
        let asked = (agent.0, since, limit);
        read(self, ReadLength::Short, asked, |db, (agent, since, limit)| entries(db, *agent, *since, *limit).boxed())
            .await
    }

    /// The number of the newest entry that [`LogVerbs::events`] shows; 0 where there never was one.
    async fn event_head(&self, agent: AgentKey) -> Result<u64> {
        read(self, ReadLength::Short, agent.0, |db, agent| shown_head(db, *agent).boxed()).await
    }

    /// What happened to the members of a household after a cursor: read from their own logs, as each of them is shown it, in one
    /// state. Of a member that the cursor does not know, the last `last` entries. Marks nothing as handed over.
    async fn household_events(
        &self,
        household: HouseholdKey,
        since: HouseholdCursor,
        last: u64,
    ) -> Result<HouseholdPage> {
        let asked = (household, since, i64::try_from(last).unwrap_or(i64::MAX));
        read(self, ReadLength::Long, asked, |db, (household, since, last)| {
            household::events(db, *household, since.clone(), *last).boxed()
        })
        .await
    }

    /// The cursor from which a listener continues that names this one: the same, where the log reaches so far. A cursor beyond the end
    /// is from before the database was restored to an earlier state, or from another database: then the cursor of the last message
    /// that was handed over, so that no mail is skipped.
    async fn resume(&self, agent: AgentKey, since: u64) -> Result<u64> {
        read(self, ReadLength::Short, (agent.0, since), |db, (agent, since)| resume(db, *agent, *since).boxed()).await
    }
}

impl<E: Engine> LogVerbs for E {}

/// Entries of the log of the agent `$1` under a condition, as many as `order` says. It is said of each table too: PostgreSQL would
/// read and sort everything that the condition holds for.
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

/// The last number that an agent is shown of its log: all of it, unless the agent is paused. A statement of its own: PostgreSQL
/// plans a page of a log well only where it knows the end.
async fn shown_end(db: &mut dyn Db, agent: i64) -> Tried<i64> {
    let paused_from: Option<Option<i64>> =
        db.find("SELECT paused_from FROM agents WHERE id = $1", values![agent]).await?;
    Ok(paused_from.flatten().unwrap_or(i64::MAX))
}

/// The highest number that was ever given in an agent's log.
pub(crate) async fn head(db: &mut dyn Db, agent: i64) -> Tried<u64> {
    let sql = format!("SELECT {}", (db.dialect().log_head)("$1"));
    let head: i64 = db.one(&sql, values![agent]).await?;
    Ok(u64::try_from(head).unwrap_or(0))
}

/// Whether an agent is shown an entry after this number.
pub(crate) async fn has_entry_after(db: &mut dyn Db, agent: i64, number: u64) -> Tried<bool> {
    let end = shown_end(db, agent).await?;
    let sql = log("number > $2 AND number <= $3", "ORDER BY number LIMIT 1");
    db.exists(&sql, values![agent, i64::try_from(number).unwrap_or(i64::MAX), end]).await
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
    let (oldest, undelivered, delivered): (Option<i64>, Option<i64>, Option<i64>) =
        db.one(&sql, values![agent, SCAN_LIMIT]).await?;
    let [oldest, first_undelivered, last_delivered] =
        [oldest, undelivered, delivered].map(|number| number.and_then(|number| u64::try_from(number).ok()));
    Ok(DeliveryProgress { oldest, first_undelivered, last_delivered }.cursor(head))
}

/// An entry, and about how many bytes it is in an answer.
struct SizedEntry(Entry, usize);

impl FromRow for SizedEntry {
    fn from_row(row: &mut Row<'_>) -> Result<Self> {
        let (number, event): (i64, Option<String>) = (row.take()?, row.take()?);
        let (event, bytes) = match event {
            Some(event) => (serde_json::from_str(&event).map_err(StoreError::internal)?, event.len()),
            None => {
                let message = MessageRow::from_row(row)?;
                let bytes = message.bytes();
                (Event::NewMessage(message.event()?), bytes)
            }
        };
        Ok(Self(Entry { event, cursor: u64::try_from(number).unwrap_or(0).into() }, bytes))
    }
}

async fn entries(db: &mut dyn Db, agent: i64, since: i64, limit: i64) -> Tried<Vec<Entry>> {
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
