//! Reading the log of a mailbox.

use amb_core::{Entry, Event};
use deadpool_postgres::Object;

use super::error::failed;
use super::messages::{AFTER, PLAIN, message_columns, message_row};
use super::page::rows_of_page;
use crate::StoreError;
use crate::error::Result;
use crate::resume::{HandedOver, LOOKED_AT};

/// The number of the newest entry.
pub(super) async fn head(client: &Object, agent: i64) -> Result<u64> {
    let select = client.prepare_cached("SELECT head FROM mailboxes WHERE agent_id = $1").await.map_err(failed)?;
    let row = client.query_opt(&select, &[&agent]).await.map_err(failed)?;
    let head: i64 = row.map(|row| row.try_get(0)).transpose().map_err(failed)?.unwrap_or(0);
    Ok(u64::try_from(head).unwrap_or(0))
}

/// Where a listener goes on that names this cursor.
pub(super) async fn resume(client: &Object, agent: i64, since: u64) -> Result<u64> {
    let head = head(client, agent).await?;
    if since <= head {
        return Ok(since);
    }
    let select = client
        .prepare_cached(
            "SELECT min(number), min(number) FILTER (WHERE session_id IS NOT NULL AND delivered_at IS NULL),
                    max(number) FILTER (WHERE delivered_at IS NOT NULL)
             FROM (SELECT number, session_id, delivered_at FROM entries WHERE agent_id = $1
                   ORDER BY number DESC LIMIT $2) e",
        )
        .await
        .map_err(failed)?;
    let row = client.query_one(&select, &[&agent, &LOOKED_AT]).await.map_err(failed)?;
    let number = |column| row.get::<_, Option<i64>>(column).and_then(|number| u64::try_from(number).ok());
    let log = HandedOver { oldest: number(0), first_undelivered: number(1), last_delivered: number(2) };
    Ok(log.cursor(head))
}

/// The entries after `since`.
pub(super) async fn entries(client: &Object, agent: i64, since: u64, limit: usize) -> Result<Vec<Entry>> {
    let (Ok(since), Ok(limit)) = (i64::try_from(since), i64::try_from(limit)) else { return Ok(Vec::new()) };
    let sql = concat!(
        "SELECT ",
        message_columns!(),
        ", e.number, e.event FROM entries e
         LEFT JOIN messages m ON m.session_id = e.session_id AND m.seq = e.seq
         LEFT JOIN sessions s ON s.id = e.session_id
         LEFT JOIN agents f ON f.id = m.sender_id
         LEFT JOIN agents t ON t.id = e.agent_id
         WHERE e.agent_id = $1 AND e.number > $2 ORDER BY e.number LIMIT $3"
    );
    let select = client.prepare_cached(sql).await.map_err(failed)?;
    let (rows, _) = rows_of_page(client, &select, &[&agent, &since, &limit], PLAIN).await.map_err(failed)?;
    rows.iter()
        .map(|row| {
            let number: i64 = row.try_get(AFTER).map_err(failed)?;
            let event: Option<&str> = row.try_get(AFTER + 1).map_err(failed)?;
            let event = match event {
                Some(event) => serde_json::from_str(event).map_err(StoreError::internal)?,
                None => Event::NewMessage(message_row(row).map_err(failed)?.event()?),
            };
            Ok(Entry { event, cursor: u64::try_from(number).unwrap_or(0).into() })
        })
        .collect()
}
