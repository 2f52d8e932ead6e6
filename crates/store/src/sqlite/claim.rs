//! Taking mail from a mailbox that others may be taking from too.

use std::time::Duration;

use amb_core::mailbox::ClaimRequest;
use amb_core::{Message, MessageId, Priority, Timestamp};
use rusqlite::params;

use super::error::failed;
use super::messages::delivered_message;
use super::plans::Prepared;
use super::writer::WriteTx;
use crate::budget::Budget;
use crate::error::Result;
use crate::row::rank;
use crate::types::{Agent, Written};

/// Unread mail of one priority that nobody holds. The index of unread mail is by priority, then number.
const FREE: &str = "SELECT number, message_id FROM deliveries
    WHERE agent_id = ?1 AND read_at IS NULL AND priority = ?2
    AND (lease_until IS NULL OR lease_until <= ?3) ORDER BY number LIMIT ?4";

impl WriteTx {
    pub(super) fn claim(
        &mut self,
        caller: &Agent,
        request: &ClaimRequest,
        now: Timestamp,
    ) -> Result<Written<Vec<Message>>> {
        let me = caller.key.0;
        let limit = i64::try_from(request.limit).unwrap_or(i64::MAX);
        let mut free: Vec<(i64, i64)> = Vec::new();
        for priority in Priority::ALL.into_iter().rev() {
            let found: Vec<(i64, i64)> = self
                .db
                .prepared(FREE)
                .and_then(|mut select| {
                    let values = params![me, rank(priority), now.as_microsecond(), limit];
                    select.query_map(values, |row| Ok((row.get(0)?, row.get(1)?))).and_then(Iterator::collect)
                })
                .map_err(failed)?;
            free.extend(found);
        }
        if !request.urgent_first {
            free.sort_unstable();
        }
        free.truncate(request.limit);
        let until = now.saturating_add(request.lease).unwrap_or(Timestamp::MAX);
        let (mut messages, mut new, mut budget) = (Vec::with_capacity(free.len()), Vec::new(), Budget::page());
        for (_, message) in free {
            let row = delivered_message(&self.db, message, me)?;
            if !budget.takes(row.bytes()) {
                break;
            }
            self.db
                .prepared("UPDATE deliveries SET lease_until = ?3 WHERE message_id = ?1 AND agent_id = ?2")
                .and_then(|mut update| update.execute([message, me, until.as_microsecond()]))
                .map_err(failed)?;
            if row.delivered_at.is_none() {
                new.push(message);
            }
            messages.push(row.message(&caller.name)?);
        }
        let news = self.mark_delivered(caller, &new, now)?;
        Ok(Written { answer: messages, news })
    }

    pub(super) fn release(&mut self, caller: &Agent, ids: &[MessageId]) -> Result<()> {
        for message in self.delivered_to(caller, ids)? {
            self.db
                .prepared("UPDATE deliveries SET lease_until = NULL WHERE message_id = ?1 AND agent_id = ?2")
                .and_then(|mut update| update.execute([message, caller.key.0]))
                .map_err(failed)?;
        }
        Ok(())
    }
    pub(super) fn renew(&mut self, caller: &Agent, ids: &[MessageId], lease: Duration, now: Timestamp) -> Result<()> {
        let until = now.saturating_add(lease).unwrap_or(Timestamp::MAX);
        for message in self.delivered_to(caller, ids)? {
            self.db
                .prepared(
                    "UPDATE deliveries SET lease_until = ?3 WHERE message_id = ?1 AND agent_id = ?2
                     AND read_at IS NULL AND lease_until > ?4",
                )
                .and_then(|mut update| {
                    update.execute([message, caller.key.0, until.as_microsecond(), now.as_microsecond()])
                })
                .map_err(failed)?;
        }
        Ok(())
    }
}
