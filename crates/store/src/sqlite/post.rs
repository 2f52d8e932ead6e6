//! Writing a message and its deliveries.

use std::borrow::Cow;

use amb_core::Timestamp;
use rusqlite::params;
use uuid::Uuid;

use super::error::failed;
use super::keys::number_of;
use super::plans::Prepared;
use super::writer::WriteTx;
use crate::error::Result;
use crate::quota::Stored;
use crate::types::AgentKey;

/// Columns to insert for a message; JSON is text already.
#[derive(Debug)]
pub(super) struct Post<'a> {
    pub(super) id: Uuid,
    pub(super) sender: i64,
    /// To whom it is charged: its sender, unless the office wrote it in that one's name.
    pub(super) payer: i64,
    pub(super) at: Timestamp,
    pub(super) priority: i16,
    pub(super) ttl: u8,
    pub(super) kind: Option<&'a str>,
    pub(super) trace: Option<String>,
    pub(super) reply_to: Option<Uuid>,
    pub(super) correlation_id: Option<&'a str>,
    pub(super) task: Option<String>,
    pub(super) callback: Option<String>,
    pub(super) content: Cow<'a, str>,
    pub(super) parts: Option<String>,
    pub(super) metadata: Option<String>,
}

impl Post<'_> {
    /// What it counts where so many agents get it.
    pub(super) fn stored(&self, copies: usize) -> Stored {
        let json = [&self.parts, &self.metadata, &self.callback];
        let bytes = self.content.len() + json.into_iter().flatten().map(String::len).sum::<usize>();
        Stored::message(copies, bytes)
    }
}

impl WriteTx {
    /// Appends a message to its session and to the logs of its recipients, and counts it as unread there. Without
    /// recipients it stays in the session, and no log tells of it. Returns its row and its number in each log.
    pub(super) fn post(
        &mut self,
        session: i64,
        post: Post<'_>,
        recipients: &[i64],
    ) -> Result<(i64, Vec<(AgentKey, u64)>)> {
        let message = self
            .db
            .prepared(
                "INSERT INTO messages (public_id, session_id, sender_id, created_at, priority, ttl, kind, trace,
                                       reply_to, correlation_id, task, callback, content, parts, metadata)
                 VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11, ?12, ?13, ?14, ?15)",
            )
            .and_then(|mut insert| {
                insert.insert(params![
                    post.id.as_bytes(),
                    session,
                    post.sender,
                    post.at.as_microsecond(),
                    post.priority,
                    post.ttl,
                    post.kind,
                    post.trace,
                    post.reply_to.as_ref().map(Uuid::as_bytes),
                    post.correlation_id,
                    post.task,
                    post.callback,
                    post.content,
                    post.parts,
                    post.metadata,
                ])
            })
            .map_err(failed)?;
        self.changed.agent(post.sender);
        let mut copies = Vec::with_capacity(recipients.len());
        for agent in recipients {
            copies.push((AgentKey(*agent), number_of(self.deliver(*agent, session, message, post.priority)?)));
        }
        self.charge(post.payer, post.stored(copies.len()))?;
        Ok((message, copies))
    }

    /// Appends a message to an agent's log. Returns its number there.
    fn deliver(&mut self, agent: i64, session: i64, message: i64, priority: i16) -> Result<i64> {
        let number = self.next_number(agent)?;
        self.db
            .prepared("INSERT INTO deliveries (message_id, agent_id, number, priority) VALUES (?1, ?2, ?3, ?4)")
            .and_then(|mut insert| insert.execute(params![message, agent, number, priority]))
            .map_err(failed)?;
        self.db
            .prepared("UPDATE session_members SET unread = unread + 1 WHERE agent_id = ?1 AND session_id = ?2")
            .and_then(|mut update| update.execute([agent, session]))
            .map_err(failed)?;
        self.changed.agent(agent);
        self.findable.push(AgentKey(agent));
        Ok(number)
    }
}
