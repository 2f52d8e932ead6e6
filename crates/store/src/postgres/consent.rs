//! Consent taken back: rejecting, revoking, blocking; and time running out.

use amb_core::doc::{Connection, ConnectionChange, ConnectionStatus};
use amb_core::id::fresh_uuid;
use amb_core::{AgentName, Consent, Timestamp};
use deadpool_postgres::{GenericClient, Transaction};
use tokio_postgres::Row;
use uuid::Uuid;

use super::error::Trouble;
use super::write::{Heads, Pages};
use super::{agents, tasks, transcripts};
use crate::error::Result;
use crate::row;
use crate::types::{Agent, News, Written};
use crate::words::{self, LinkRow};

/// Requests that expire in one transaction.
const SOME: i64 = 200;

const BETWEEN: &str = "low_id = $1 AND high_id = $2";
const FROM_TO: &str = "requester_id = $1 AND target_id = $2";

/// What a change writes besides the connection's row.
struct Change<'a> {
    caller: &'a Agent,
    other: i64,
    heads: Heads,
    pages: Pages,
    news: Vec<News>,
    now: Timestamp,
}

impl Change<'_> {
    fn tell(&mut self, id: Uuid, status: ConnectionStatus) -> Result<()> {
        let event = words::changed(id, &self.caller.name, status);
        self.news.extend(self.pages.tell(&mut self.heads, self.other, event, self.now)?);
        Ok(())
    }
}

pub(super) async fn change(
    tx: &Transaction<'_>,
    caller: &Agent,
    peer: &AgentName,
    change: ConnectionChange,
    now: Timestamp,
) -> Result<Written<Connection>, Trouble> {
    // A deleted agent can still be unblocked, by its exact name.
    let select = tx.prepare_cached("SELECT id FROM agents WHERE name = $1").await?;
    let other: i64 = match tx.query_opt(&select, &[&peer.as_str()]).await? {
        Some(row) => row.try_get(0)?,
        None => agents::by_name(tx, peer).await?.ok_or_else(|| words::no_agent(peer))?.key.0,
    };
    let me = caller.key.0;
    if other == me {
        return Err(words::connect_to_oneself().into());
    }
    // A send holds its recipient's lock from before it looks for the connection until it is committed. With both locks
    // held, every send between the two is either done, and before this, or will find the connection gone.
    let heads = Heads::lock(tx, &[me, other]).await?;
    let mut doing = Change { caller, other, heads, pages: Pages::default(), news: Vec::new(), now };
    let (low, high) = (me.min(other), me.max(other));
    let id = match change {
        ConnectionChange::Reject => {
            let id = settle(tx, FROM_TO, other, me, "PENDING", "REJECTED", now).await?;
            let id = id.ok_or_else(|| words::no_pending(peer))?;
            doing.tell(id, ConnectionStatus::Rejected)?;
            id
        }
        ConnectionChange::Revoke => {
            let id = settle(tx, BETWEEN, low, high, "ACTIVE", "REVOKED", now).await?;
            let id = id.ok_or_else(|| words::no_connection(peer))?;
            end_between(tx, &mut doing, id).await?;
            id
        }
        ConnectionChange::Block => block(tx, &mut doing).await?,
        ConnectionChange::Unblock => {
            let id = settle(tx, FROM_TO, me, other, "BLOCKED", "REVOKED", now).await?;
            id.ok_or_else(|| words::not_blocked(peer))?
        }
    };
    doing.pages.write(tx).await?.correct(&mut doing.news);
    Ok(Written { answer: one(tx, me, id).await?, news: doing.news })
}

/// What lets the two write to each other. Asked under the lock of either: who takes that back holds both.
pub(super) async fn between(tx: &Transaction<'_>, a: i64, b: i64) -> Result<Consent, Trouble> {
    let select = tx
        .prepare_cached(
            "SELECT EXISTS (SELECT FROM connections WHERE low_id = least($1::bigint, $2) AND high_id = greatest($1, $2)
                            AND status = 'ACTIVE'),
                    EXISTS (SELECT FROM agents a, agents b
                            WHERE a.id = $1 AND b.id = $2 AND a.household_id = b.household_id),
                    EXISTS (SELECT FROM connections WHERE requester_id = $1 AND target_id = $2 AND status = 'BLOCKED')
                    OR EXISTS (SELECT FROM connections WHERE requester_id = $2 AND target_id = $1
                               AND status = 'BLOCKED')",
        )
        .await?;
    let row = tx.query_one(&select, &[&a, &b]).await?;
    Ok(Consent { connected: row.try_get(0)?, same_household: row.try_get(1)?, blocked: row.try_get(2)? })
}

/// Ends all that an active connection allowed, after it was revoked, and tells the other side.
async fn end_between(tx: &Transaction<'_>, doing: &mut Change<'_>, id: Uuid) -> Result<(), Trouble> {
    let Change { caller, other, heads, pages, news, now } = doing;
    news.extend(tasks::end_tasks_between(tx, pages, heads, caller, *other, *now).await?);
    transcripts::unshare(tx, caller.key.0, *other).await?;
    doing.tell(id, ConnectionStatus::Revoked)?;
    Ok(())
}

/// Gives the one connection of this status that the condition finds a new status.
async fn settle(
    tx: &Transaction<'_>,
    condition: &str,
    first: i64,
    second: i64,
    from: &str,
    to: &str,
    now: Timestamp,
) -> Result<Option<Uuid>, Trouble> {
    // The status stands in the text, so that the partial indexes serve.
    let sql = format!(
        "UPDATE connections SET status = $3, updated_at = $4 WHERE {condition} AND status = '{from}' RETURNING public_id"
    );
    let update = tx.prepare_cached(&sql).await?;
    let row = tx.query(&update, &[&first, &second, &to, &now]).await?.into_iter().next();
    Ok(row.map(|row| row.try_get(0)).transpose()?)
}

/// Ends what is between the two, and puts a block there. The other side learns that a connection ended, not that it is
/// blocked.
async fn block(tx: &Transaction<'_>, doing: &mut Change<'_>) -> Result<Uuid, Trouble> {
    let (me, other, now) = (doing.caller.key.0, doing.other, doing.now);
    let (low, high) = (me.min(other), me.max(other));
    let given = between(tx, me, other).await?.is_given();
    if let Some(id) = settle(tx, BETWEEN, low, high, "ACTIVE", "REVOKED", now).await? {
        end_between(tx, doing, id).await?;
    } else if given {
        // By their household, which has no connection to tell of.
        let Change { caller, heads, pages, news, .. } = doing;
        news.extend(tasks::end_tasks_between(tx, pages, heads, caller, other, now).await?);
        transcripts::unshare(tx, me, other).await?;
    }
    if let Some(id) = settle(tx, FROM_TO, other, me, "PENDING", "REJECTED", now).await? {
        doing.tell(id, ConnectionStatus::Rejected)?;
    }
    settle(tx, FROM_TO, me, other, "PENDING", "EXPIRED", now).await?;
    if let Some(id) = settle(tx, FROM_TO, me, other, "BLOCKED", "BLOCKED", now).await? {
        return Ok(id);
    }
    let id = fresh_uuid(now);
    let insert = tx
        .prepare_cached(
            "INSERT INTO connections (public_id, requester_id, target_id, low_id, high_id, status, created_at,
                                      updated_at)
             VALUES ($1, $2, $3, $4, $5, 'BLOCKED', $6, $6)",
        )
        .await?;
    tx.execute(&insert, &[&id, &me, &other, &low, &high, &now]).await?;
    Ok(id)
}

/// Ends requests whose time is over, and tells who asked.
pub(super) async fn expire(tx: &Transaction<'_>, now: Timestamp) -> Result<Written<u64>, Trouble> {
    let select = tx
        .prepare_cached(
            "SELECT id, requester_id FROM connections WHERE status = 'PENDING' AND expires_at <= $1
             ORDER BY expires_at LIMIT $2",
        )
        .await?;
    let due = tx.query(&select, &[&now, &SOME]).await?;
    if due.is_empty() {
        return Ok(Written::quiet(0));
    }
    let ids: Vec<i64> = due.iter().map(|row| row.get(0)).collect();
    let requesters: Vec<i64> = due.iter().map(|row| row.get(1)).collect();
    let mut heads = Heads::lock(tx, &requesters).await?;
    let update = tx
        .prepare_cached(
            "UPDATE connections c SET status = 'EXPIRED', updated_at = $2 FROM agents a
             WHERE c.id = ANY($1) AND c.status = 'PENDING' AND a.id = c.target_id
             RETURNING c.public_id, c.requester_id, a.name",
        )
        .await?;
    let (mut pages, mut news) = (Pages::default(), Vec::new());
    let expired = tx.query(&update, &[&ids, &now]).await?;
    for row in &expired {
        let event = words::changed(row.try_get(0)?, &row::name(row.try_get(2)?)?, ConnectionStatus::Expired);
        news.extend(pages.tell(&mut heads, row.try_get(1)?, event, now)?);
    }
    pages.write(tx).await?;
    Ok(Written { answer: expired.len() as u64, news })
}

/// Those that an agent is connected with.
pub(super) async fn peers_of(tx: &Transaction<'_>, agent: i64) -> Result<Vec<i64>, Trouble> {
    let select = tx
        .prepare_cached(
            "SELECT target_id FROM connections WHERE requester_id = $1 AND status = 'ACTIVE'
             UNION SELECT requester_id FROM connections WHERE target_id = $1 AND status = 'ACTIVE'",
        )
        .await?;
    Ok(tx.query(&select, &[&agent]).await?.iter().map(|row| row.get(0)).collect())
}

/// Ends every connection and request of an agent that goes, and tells those it was connected with.
pub(super) async fn end_connections_of(
    tx: &Transaction<'_>,
    pages: &mut Pages,
    heads: &mut Heads,
    caller: &Agent,
    now: Timestamp,
) -> Result<Vec<News>, Trouble> {
    let update = tx
        .prepare_cached(
            "UPDATE connections SET status = 'REVOKED', updated_at = $2
             WHERE (requester_id = $1 OR target_id = $1) AND status = 'ACTIVE'
             RETURNING public_id, low_id + high_id - $1",
        )
        .await?;
    let mut news = Vec::new();
    for row in tx.query(&update, &[&caller.key.0, &now]).await? {
        let event = words::changed(row.try_get(0)?, &caller.name, ConnectionStatus::Revoked);
        news.extend(pages.tell(heads, row.try_get(1)?, event, now)?);
    }
    let update = tx
        .prepare_cached(
            "UPDATE connections SET status = 'EXPIRED', updated_at = $2
             WHERE (requester_id = $1 OR target_id = $1) AND status = 'PENDING'",
        )
        .await?;
    tx.execute(&update, &[&caller.key.0, &now]).await?;
    Ok(news)
}

macro_rules! select_links {
    ($rest:literal) => {
        concat!(
            "SELECT c.public_id, a.name, c.status, c.requester_id = $1, c.message, c.created_at, c.updated_at
             FROM connections c JOIN agents a ON a.id = c.low_id + c.high_id - $1 ",
            $rest
        )
    };
}

fn link(row: &Row) -> Result<LinkRow, tokio_postgres::Error> {
    Ok((
        row.try_get(0)?,
        row.try_get(1)?,
        row.try_get(2)?,
        row.try_get(3)?,
        row.try_get(4)?,
        row.try_get(5)?,
        row.try_get(6)?,
    ))
}

async fn one(tx: &Transaction<'_>, me: i64, id: Uuid) -> Result<Connection, Trouble> {
    let select = tx.prepare_cached(select_links!("WHERE c.public_id = $2")).await?;
    let row = tx.query_one(&select, &[&me, &id]).await?;
    Ok(words::link(link(&row)?)?)
}

/// With each peer the present state: what is active, waits or is blocked, or else what was last.
pub(super) async fn connections<C: GenericClient>(client: &C, caller: &Agent) -> Result<Vec<Connection>, Trouble> {
    let sql = select_links!(
        "WHERE c.id IN (SELECT id FROM connections WHERE requester_id = $1
                        UNION SELECT id FROM connections WHERE target_id = $1 AND status <> 'BLOCKED')
         ORDER BY c.updated_at DESC, c.id DESC"
    );
    let select = client.prepare_cached(sql).await?;
    let rows = client.query(&select, &[&caller.key.0]).await?;
    let found = rows.iter().map(link).collect::<Result<_, _>>()?;
    Ok(words::present_links(found)?)
}
