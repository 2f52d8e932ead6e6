//! Reading messages.

use std::collections::HashMap;

use amb_core::Message;
use deadpool_postgres::GenericClient;
use tokio_postgres::Row;
use uuid::Uuid;

use crate::engine::Failed;
use crate::error::Result;
use crate::outgoing::OutgoingMessage;
use crate::row::{self, MessageRow};
use crate::types::Agent;

/// The columns of [`message_row`], of `m` (messages), `s` (sessions), `f` and `t` (the agents it is from and to), and `e`
/// (the entry that delivers it).
macro_rules! message_columns {
    () => {
        "m.public_id, s.public_id, s.subject, f.name, t.name, m.created_at, m.priority, m.ttl, m.kind, m.trace,
         m.reply_to, m.correlation_id, m.task, m.callback, m.content, m.parts, m.metadata, e.delivered_at, e.read_at,
         e.rung_at"
    };
}
pub(super) use message_columns;

/// The first column after those of [`message_row`].
pub(super) const AFTER: usize = 20;

/// A message from a row that begins with [`message_columns`].
pub(super) fn message_row(row: &Row) -> Result<MessageRow, tokio_postgres::Error> {
    Ok(MessageRow {
        id: row.try_get(0)?,
        session: row.try_get(1)?,
        subject: row.try_get(2)?,
        from: row.try_get(3)?,
        to: row.try_get::<_, Option<String>>(4)?.unwrap_or_default(),
        at: row.try_get(5)?,
        priority: row.try_get::<_, i16>(6)?.into(),
        ttl: row.try_get::<_, i16>(7)?.into(),
        kind: row.try_get(8)?,
        trace: row.try_get(9)?,
        reply_to: row.try_get(10)?,
        correlation_id: row.try_get(11)?,
        task: row.try_get(12)?,
        callback: row.try_get(13)?,
        content: row.try_get(14)?,
        parts: row.try_get(15)?,
        metadata: row.try_get(16)?,
        delivered_at: row.try_get(17)?,
        read_at: row.try_get(18)?,
        rung_at: row.try_get(19)?,
    })
}

/// A message, and who it went from and to.
#[derive(Debug)]
pub(super) struct Found {
    pub(super) sender: i64,
    /// Its place in its one recipient's log, or in the logs of the members of its group.
    pub(super) deliveries: Vec<(i64, i64)>,
    pub(super) session: i64,
    pub(super) row: MessageRow,
}

impl Found {
    /// Its place in this agent's log.
    pub(super) fn delivery_to(&self, agent: i64) -> Option<i64> {
        self.deliveries.iter().find(|(to, _)| *to == agent).map(|(_, number)| *number)
    }

    /// Whether this agent sent it or got it.
    pub(super) fn concerns(&self, agent: i64) -> bool {
        self.sender == agent || self.delivery_to(agent).is_some()
    }

    /// The message as the office itself sees it, which is how its sender does.
    pub(super) fn message(&self) -> Result<Message> {
        let sender = row::name(&self.row.from)?;
        let mut row = self.row.clone();
        if row.to.is_empty() {
            // A group's message is to no one agent.
            row.to = row.from.clone();
        }
        row.message(&sender)
    }
}

/// The message that this one answers or passes on, if its sender sent or received it.
pub(super) fn parent<'a>(found: Option<&'a Found>, caller: &Agent, message: &OutgoingMessage) -> Option<&'a Found> {
    let (me, relay) = (caller.key.0, message.parent?.relay);
    found.filter(|found| if relay { found.delivery_to(me).is_some() } else { found.concerns(me) })
}

/// The messages of these ids.
pub(super) async fn find_all<C: GenericClient>(client: &C, ids: &[Uuid]) -> Result<HashMap<Uuid, Found>, Failed> {
    if ids.is_empty() {
        return Ok(HashMap::new());
    }
    let sql = concat!(
        "SELECT ",
        message_columns!(),
        ", m.sender_id, m.recipient_id, m.delivery_number, m.session_id,
           ARRAY (SELECT c.agent_id FROM copies c WHERE c.message_public_id = m.public_id ORDER BY c.agent_id),
           ARRAY (SELECT c.number FROM copies c WHERE c.message_public_id = m.public_id ORDER BY c.agent_id)
         FROM messages m
         JOIN sessions s ON s.id = m.session_id
         JOIN agents f ON f.id = m.sender_id
         LEFT JOIN agents t ON t.id = m.recipient_id
         LEFT JOIN entries e ON e.agent_id = m.recipient_id AND e.number = m.delivery_number
         WHERE m.public_id = ANY($1)"
    );
    let select = client.prepare_cached(sql).await?;
    let rows = client.query(&select, &[&ids]).await?;
    let mut found = HashMap::with_capacity(rows.len());
    for row in &rows {
        let message = message_row(row)?;
        let recipient: Option<i64> = row.try_get(AFTER + 1)?;
        let number: Option<i64> = row.try_get(AFTER + 2)?;
        let (agents, numbers): (Vec<i64>, Vec<i64>) = (row.try_get(AFTER + 4)?, row.try_get(AFTER + 5)?);
        let deliveries = recipient.zip(number).into_iter().chain(agents.into_iter().zip(numbers)).collect();
        let one = Found { sender: row.try_get(AFTER)?, deliveries, session: row.try_get(AFTER + 3)?, row: message };
        found.insert(one.row.id, one);
    }
    Ok(found)
}

/// The message of this id.
pub(super) async fn find<C: GenericClient>(client: &C, id: Uuid) -> Result<Option<Found>, Failed> {
    Ok(find_all(client, &[id]).await?.remove(&id))
}
