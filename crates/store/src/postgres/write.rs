//! Writing mail and events: the statements that every verb shares.

use std::collections::BTreeMap;

use amb_core::{Entry, Event, Timestamp};
use deadpool_postgres::Transaction;
use tokio_postgres::types::ToSql;
use uuid::Uuid;

use super::error::Trouble;
use super::listen::CHANNEL;
use crate::error::Result;
use crate::letter::json;
use crate::types::{AgentKey, News};

/// The logs that a transaction has locked, and how far they go.
#[derive(Debug, Default)]
pub(super) struct Heads(BTreeMap<i64, i64>);

impl Heads {
    /// Locks these mailboxes, in the order that everybody keeps.
    pub(super) async fn lock(tx: &Transaction<'_>, agents: &[i64]) -> Result<Self, Trouble> {
        let select = tx
            .prepare_cached(
                "SELECT agent_id, head FROM mailboxes WHERE agent_id = ANY($1) ORDER BY agent_id FOR NO KEY UPDATE",
            )
            .await?;
        let rows = tx.query(&select, &[&agents]).await?;
        Ok(Self(rows.iter().map(|row| (row.get(0), row.get(1))).collect()))
    }

    /// Of mailboxes that a statement locked.
    pub(super) fn locked(heads: impl IntoIterator<Item = (i64, i64)>) -> Self {
        Self(heads.into_iter().collect())
    }

    /// Takes the next number in a log. Only logs that are locked have one.
    pub(super) fn next(&mut self, agent: i64) -> Option<i64> {
        let head = self.0.get_mut(&agent)?;
        *head += 1;
        Some(*head)
    }
}

/// What a transaction is about to write: messages, their deliveries, and other events. Column by column, as the
/// statements want it.
#[derive(Debug, Default)]
pub(super) struct Pages {
    pub(super) messages: Messages,
    pub(super) deliveries: Deliveries,
    pub(super) events: Events,
}

#[derive(Debug, Default)]
pub(super) struct Messages {
    pub(super) session: Vec<i64>,
    /// Its place among the new messages of its session, from 1.
    pub(super) ord: Vec<i64>,
    pub(super) public_id: Vec<Uuid>,
    pub(super) sender: Vec<i64>,
    pub(super) recipient: Vec<Option<i64>>,
    pub(super) number: Vec<Option<i64>>,
    pub(super) at: Vec<Timestamp>,
    pub(super) priority: Vec<i16>,
    pub(super) ttl: Vec<i16>,
    pub(super) kind: Vec<Option<String>>,
    pub(super) trace: Vec<Option<String>>,
    pub(super) reply_to: Vec<Option<Uuid>>,
    pub(super) correlation_id: Vec<Option<String>>,
    pub(super) task: Vec<Option<String>>,
    pub(super) callback: Vec<Option<String>>,
    pub(super) content: Vec<String>,
    pub(super) parts: Vec<Option<String>>,
    pub(super) metadata: Vec<Option<String>>,
}

#[derive(Debug, Default)]
pub(super) struct Deliveries {
    pub(super) agent: Vec<i64>,
    pub(super) number: Vec<i64>,
    pub(super) session: Vec<i64>,
    pub(super) ord: Vec<i64>,
    pub(super) priority: Vec<i16>,
}

#[derive(Debug, Default)]
pub(super) struct Events {
    agent: Vec<i64>,
    number: Vec<i64>,
    event: Vec<String>,
    at: Vec<Timestamp>,
}

/// Messages and deliveries. The sessions are locked in the order that everybody keeps, and their places given.
const WRITE_MAIL: &str = "
WITH letters AS (
    SELECT * FROM unnest($1::bigint[], $2::bigint[], $3::uuid[], $4::bigint[], $5::bigint[], $6::bigint[],
                         $7::timestamptz[], $8::smallint[], $9::smallint[], $10::text[], $11::text[], $12::uuid[],
                         $13::text[], $14::text[], $15::text[], $16::text[], $17::text[], $18::text[])
    AS l (session_id, ord, public_id, sender_id, recipient_id, delivery_number, created_at, priority, ttl, kind, trace,
          reply_to, correlation_id, task, callback, content, parts, metadata)
), copies AS (
    SELECT * FROM unnest($19::bigint[], $20::bigint[], $21::bigint[], $22::bigint[], $23::smallint[])
    AS c (agent_id, number, session_id, ord, priority)
), locked AS MATERIALIZED (
    SELECT id, last_seq FROM sessions WHERE id = ANY($1) ORDER BY id FOR NO KEY UPDATE
), moved AS (
    UPDATE sessions s SET last_seq = k.last_seq + c.n
    FROM locked k JOIN (SELECT session_id, count(*) AS n FROM letters GROUP BY session_id) c ON c.session_id = k.id
    WHERE s.id = k.id
), written AS (
    INSERT INTO messages (session_id, seq, public_id, sender_id, recipient_id, delivery_number, created_at, priority,
                          ttl, kind, trace, reply_to, correlation_id, task, callback, content, parts, metadata)
    SELECT l.session_id, k.last_seq + l.ord, l.public_id, l.sender_id, l.recipient_id, l.delivery_number, l.created_at,
           l.priority, l.ttl, l.kind, l.trace, l.reply_to, l.correlation_id, l.task, l.callback, l.content, l.parts,
           l.metadata
    FROM letters l JOIN locked k ON k.id = l.session_id
), delivered AS (
    INSERT INTO entries (agent_id, number, session_id, seq, priority)
    SELECT c.agent_id, c.number, c.session_id, k.last_seq + c.ord, c.priority
    FROM copies c JOIN locked k ON k.id = c.session_id
), counted AS (
    UPDATE session_members b SET unread = b.unread + c.n
    FROM (SELECT agent_id, session_id, count(*) AS n FROM copies GROUP BY agent_id, session_id) c
    WHERE b.agent_id = c.agent_id AND b.session_id = c.session_id
)
UPDATE mailboxes m SET head = greatest(m.head, c.head)
FROM (SELECT agent_id, max(number) AS head FROM copies GROUP BY agent_id) c WHERE m.agent_id = c.agent_id";

const WRITE_EVENTS: &str = "
WITH news AS (
    SELECT * FROM unnest($1::bigint[], $2::bigint[], $3::text[], $4::timestamptz[]) AS n (agent_id, number, event, at)
), told AS (
    INSERT INTO entries (agent_id, number, event, at) SELECT agent_id, number, event, at FROM news
)
UPDATE mailboxes m SET head = greatest(m.head, n.head)
FROM (SELECT agent_id, max(number) AS head FROM news GROUP BY agent_id) n WHERE m.agent_id = n.agent_id";

impl Pages {
    /// Adds an event other than mail to a log that is locked. `None` where there is no such mailbox.
    pub(super) fn tell(&mut self, heads: &mut Heads, agent: i64, event: Event, now: Timestamp) -> Result<Option<News>> {
        let Some(number) = heads.next(agent) else { return Ok(None) };
        self.events.agent.push(agent);
        self.events.number.push(number);
        self.events.event.push(json(&event)?);
        self.events.at.push(now);
        let cursor = u64::try_from(number).unwrap_or(0).into();
        Ok(Some(News { agent: AgentKey(agent), entry: Entry { event, cursor } }))
    }

    /// Writes it all, and tells other processes whose logs grew. The statements travel together: one way there and back.
    pub(super) async fn write(&self, tx: &Transaction<'_>) -> Result<(), Trouble> {
        tokio::try_join!(self.write_mail(tx), self.write_events(tx), self.notify(tx))?;
        Ok(())
    }

    async fn write_mail(&self, tx: &Transaction<'_>) -> Result<(), Trouble> {
        let (m, d) = (&self.messages, &self.deliveries);
        if m.session.is_empty() {
            return Ok(());
        }
        let statement = tx.prepare_cached(WRITE_MAIL).await?;
        let columns: [&(dyn ToSql + Sync); 23] = [
            &m.session,
            &m.ord,
            &m.public_id,
            &m.sender,
            &m.recipient,
            &m.number,
            &m.at,
            &m.priority,
            &m.ttl,
            &m.kind,
            &m.trace,
            &m.reply_to,
            &m.correlation_id,
            &m.task,
            &m.callback,
            &m.content,
            &m.parts,
            &m.metadata,
            &d.agent,
            &d.number,
            &d.session,
            &d.ord,
            &d.priority,
        ];
        tx.execute(&statement, &columns).await?;
        Ok(())
    }

    async fn write_events(&self, tx: &Transaction<'_>) -> Result<(), Trouble> {
        let e = &self.events;
        if e.agent.is_empty() {
            return Ok(());
        }
        let statement = tx.prepare_cached(WRITE_EVENTS).await?;
        tx.execute(&statement, &[&e.agent, &e.number, &e.event, &e.at]).await?;
        Ok(())
    }

    async fn notify(&self, tx: &Transaction<'_>) -> Result<(), Trouble> {
        let mut agents: Vec<i64> = self.deliveries.agent.iter().chain(&self.events.agent).copied().collect();
        agents.sort_unstable();
        agents.dedup();
        let statement = tx.prepare_cached("SELECT pg_notify($1, $2)").await?;
        // A payload has at most 8,000 bytes.
        for some in agents.chunks(300) {
            let payload = some.iter().map(i64::to_string).collect::<Vec<_>>().join(",");
            tx.execute(&statement, &[&CHANNEL, &payload]).await?;
        }
        Ok(())
    }
}
