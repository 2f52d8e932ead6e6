//! The messages that others answer or pass on.

use std::collections::HashMap;

use amb_core::Message;
use deadpool_postgres::GenericClient;
use uuid::Uuid;

use super::engine::Reading;
use crate::engine::{Failed, POSTGRES, Query, SqlOf, Value};
use crate::error::Result;
use crate::outgoing::OutgoingMessage;
use crate::row::{MessageRow, message_columns};
use crate::types::Agent;

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

    /// The message as the office itself sees it.
    pub(super) fn message(&self) -> Result<Message> {
        self.row.clone().for_office()
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
    let sql = FIND.get(&POSTGRES, |_| {
        format!(
            "SELECT {}, m.sender_id, m.session_id, m.recipient_id, m.delivery_number,
                    (SELECT string_agg(c.agent_id || ' ' || c.number, ',') FROM copies c
                     WHERE c.message_public_id = m.public_id)
             FROM messages m
             JOIN sessions s ON s.id = m.session_id
             JOIN agents f ON f.id = m.sender_id
             LEFT JOIN agents t ON t.id = m.recipient_id
             LEFT JOIN entries e ON e.agent_id = m.recipient_id AND e.number = m.delivery_number
             WHERE m.public_id = ANY($1)",
            message_columns("e")
        )
    });
    let rows: Vec<(MessageRow, Sides)> = Reading(client).rows(sql, &[Value::Ids(ids)]).await?;
    let found = |(row, (sender, session, recipient, number, copies)): (MessageRow, Sides)| {
        let copies = copies.iter().flat_map(|copies| copies.split(',')).filter_map(|copy| {
            let (agent, number) = copy.split_once(' ')?;
            Some((agent.parse().ok()?, number.parse().ok()?))
        });
        let deliveries = recipient.zip(number).into_iter().chain(copies).collect();
        (row.id, Found { sender, deliveries, session, row })
    };
    Ok(rows.into_iter().map(found).collect())
}

/// Sender, session, recipient and place in its log; of a group's message the members that got it, each with the place.
type Sides = (i64, i64, Option<i64>, Option<i64>, Option<String>);

static FIND: SqlOf = SqlOf::new();

/// The message of this id.
pub(super) async fn find<C: GenericClient>(client: &C, id: Uuid) -> Result<Option<Found>, Failed> {
    Ok(find_all(client, &[id]).await?.remove(&id))
}
