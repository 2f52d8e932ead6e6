//! Taking mail from a mailbox that others may be taking from too.

use amb_core::office::ClaimRequest;
use amb_core::{Message, MessageId, Priority, Timestamp};
use rusqlite::params;

use super::error::failed;
use super::keys::range;
use super::messages::{DELIVERED, message_columns, message_row};
use super::plans::Prepared;
use super::writer::Desk;
use crate::budget::Budget;
use crate::error::Result;
use crate::row::rank;
use crate::types::{Agent, Written};

/// Unread mail of one priority that nobody holds. The index of unread mail is by priority, then place.
const FREE: &str = "SELECT id FROM entries
    WHERE message_id IS NOT NULL AND read_at IS NULL AND priority = ?1 AND id BETWEEN ?2 AND ?3
    AND (lease_until IS NULL OR lease_until <= ?4) ORDER BY id LIMIT ?5";

impl Desk {
    pub(super) fn claim(
        &mut self,
        caller: &Agent,
        request: &ClaimRequest,
        now: Timestamp,
    ) -> Result<Written<Vec<Message>>> {
        let (first, last) = range(caller.key.0);
        let limit = i64::try_from(request.limit).unwrap_or(i64::MAX);
        let mut free: Vec<i64> = Vec::new();
        for priority in Priority::ALL.into_iter().rev() {
            let found: Vec<i64> = self
                .db
                .prepared(FREE)
                .and_then(|mut select| {
                    let values = params![rank(priority), first, last, now.as_microsecond(), limit];
                    select.query_map(values, |row| row.get(0)).and_then(Iterator::collect)
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
        for delivery in free {
            let (row, message) = self.claimed(delivery)?;
            if !budget.takes(row.bytes()) {
                break;
            }
            self.db
                .prepared("UPDATE entries SET lease_until = ?2 WHERE id = ?1")
                .and_then(|mut update| update.execute([delivery, until.as_microsecond()]))
                .map_err(failed)?;
            if row.delivered_at.is_none() {
                new.push((delivery, message));
            }
            messages.push(row.message(&caller.name)?);
        }
        let news = self.mark_delivered(caller, &new, now)?;
        Ok(Written { answer: messages, news })
    }

    fn claimed(&self, delivery: i64) -> Result<(crate::row::MessageRow, i64)> {
        let sql = concat!(
            "SELECT ",
            message_columns!(),
            ", m.id FROM entries e
             JOIN messages m ON m.id = e.message_id
             JOIN sessions s ON s.id = m.id >> 32
             JOIN agents f ON f.id = m.sender_id
             JOIN agents t ON t.id = e.id >> 32
             WHERE e.id = ?1"
        );
        self.db
            .prepared(sql)
            .and_then(|mut select| select.query_row([delivery], |row| Ok((message_row(row)?, row.get(DELIVERED)?))))
            .map_err(failed)
    }

    pub(super) fn release(&mut self, caller: &Agent, ids: &[MessageId]) -> Result<()> {
        for delivery in self.deliveries_of(caller, ids)? {
            self.db
                .prepared("UPDATE entries SET lease_until = NULL WHERE id = ?1")
                .and_then(|mut update| update.execute([delivery]))
                .map_err(failed)?;
        }
        Ok(())
    }
}
