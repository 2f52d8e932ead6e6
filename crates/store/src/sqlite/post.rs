//! Writing a message and its deliveries.

use std::borrow::Cow;

use amb_core::Timestamp;
use rusqlite::params;
use uuid::Uuid;

use super::error::failed;
use super::keys::{number_of, row};
use super::plans::Prepared;
use super::writer::Desk;
use crate::error::Result;
use crate::quota::Stored;
use crate::types::AgentKey;

/// A message about to be written; JSON is text already.
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

/// Who gets a message.
#[derive(Debug, Clone, Copy)]
pub(super) enum To<'a> {
    /// The other member of its session.
    One(i64),
    /// These members of its group.
    Group(&'a [i64]),
    /// Nobody: it stays in the session, and no log tells of it.
    Nobody,
}

impl Desk {
    /// Writes a message as the newest of its session, where its sender and its recipients see it, puts it into the logs of
    /// its recipients, and counts it as unread there. Answers its row and its place in each log.
    pub(super) fn post(&mut self, session: i64, post: Post<'_>, to: To<'_>) -> Result<(i64, Vec<(AgentKey, u64)>)> {
        let place = self.next_in_session(session)?;
        let message_id = row(session, place);
        let delivery = match to {
            To::One(agent) => Some(row(agent, self.next_place(agent)?)),
            To::Group(_) | To::Nobody => None,
        };
        self.db
            .prepared(
                "INSERT INTO messages (id, public_id, sender_id, delivery_id, created_at, priority, ttl, kind, trace,
                                       reply_to, correlation_id, task, callback, content, parts, metadata)
                 VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11, ?12, ?13, ?14, ?15, ?16)",
            )
            .and_then(|mut insert| {
                insert.execute(params![
                    message_id,
                    post.id.as_bytes(),
                    post.sender,
                    delivery,
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
        self.puts(post.sender);
        let mut copies = Vec::with_capacity(1);
        match to {
            To::One(agent) => {
                if let Some(delivery) = delivery {
                    self.deliver(agent, delivery, session, message_id, post.priority)?;
                    copies.push((AgentKey(agent), number_of(delivery)));
                }
            }
            To::Group(agents) => {
                for agent in agents {
                    let delivery = row(*agent, self.next_place(*agent)?);
                    self.deliver(*agent, delivery, session, message_id, post.priority)?;
                    self.db
                        .prepared("INSERT INTO copies (message_id, agent_id, entry_id) VALUES (?1, ?2, ?3)")
                        .and_then(|mut insert| insert.execute([message_id, *agent, delivery]))
                        .map_err(failed)?;
                    copies.push((AgentKey(*agent), number_of(delivery)));
                }
            }
            To::Nobody => {}
        }
        self.charge(post.payer, post.stored(copies.len()))?;
        Ok((message_id, copies))
    }

    fn deliver(&mut self, agent: i64, delivery: i64, session: i64, message: i64, priority: i16) -> Result<()> {
        self.db
            .prepared("INSERT INTO entries (id, message_id, priority) VALUES (?1, ?2, ?3)")
            .and_then(|mut insert| insert.execute(params![delivery, message, priority]))
            .map_err(failed)?;
        self.db
            .prepared("UPDATE session_members SET unread = unread + 1 WHERE agent_id = ?1 AND session_id = ?2")
            .and_then(|mut update| update.execute([agent, session]))
            .map_err(failed)?;
        self.puts(agent);
        self.findable.push(AgentKey(agent));
        Ok(())
    }

    pub(super) fn next_in_session(&mut self, session: i64) -> Result<i64> {
        let Some(thread) = self.thread(session)? else { return Err(crate::letter::no_session()) };
        let place = thread.last + 1;
        if let Some(cached) = self.caches.threads.get_mut(&session) {
            cached.last = place;
        }
        Ok(place)
    }
}
