//! Sending. What is asked of the database here is asked for every message, so little is.

use std::sync::Arc;

use amb_core::doc::Sent;
use amb_core::route::{self, Hop};
use amb_core::{Kind, Timestamp};
use rusqlite::{OptionalExtension, params};
use uuid::Uuid;

use super::cache::{Peer, Thread};
use super::connect::pair;
use super::error::failed;
use super::keys::{number_of, place_of, range, row, uuid_at};
use super::messages;
use super::writer::Desk;
use crate::StoreError;
use crate::error::Result;
use crate::letter::{self, Letter, Once, Parent, Placed, json_of, no_session, trace_json};
use crate::row::{kind_text, rank};
use crate::types::{Agent, AgentKey};
use crate::words;

/// What became of a send.
pub(super) enum Outcome {
    /// It was written; the letter comes back for the answer and the news.
    Placed(Box<(Letter, Placed)>),
    /// Its idempotency key had been used for the same draft.
    Repeat(Sent),
}

impl Desk {
    pub(super) fn send(&mut self, caller: &Agent, letter: Letter) -> Result<Outcome> {
        let me = caller.key.0;
        if let Some(once) = &letter.once
            && let Some(sent) = self.answered_before(me, once)?
        {
            return Ok(Outcome::Repeat(sent));
        }
        let peer = self.reachable(me, &letter)?;
        let thread = self.thread_of(me, peer.id, &letter)?;
        let hop = self.hop(caller, &letter)?;
        let placed = self.place(me, &peer, &thread, &letter, &hop)?;
        if let Some(once) = &letter.once {
            self.remember_answer(me, once, &letter.sent(&placed), letter.at)?;
        }
        Ok(Outcome::Placed(Box::new((letter, placed))))
    }

    /// The recipient, if it is there, connected, and hears the sender.
    fn reachable(&mut self, me: i64, letter: &Letter) -> Result<Peer> {
        let peer = self.peer(&letter.to)?.filter(|peer| !peer.deleted);
        let Some(peer) = peer else { return Err(words::not_connected(&letter.to)) };
        if !self.is_connected(me, peer.id)? {
            return Err(words::not_connected(&letter.to));
        }
        // Whom a task's assignee does not hear is told by the task's rejection.
        if letter.kind != Kind::Task && !peer.card.allow_from.allows(&letter.from) {
            return Err(words::not_heard(&letter.to));
        }
        Ok(peer)
    }

    /// ttl and trace.
    fn hop(&self, caller: &Agent, letter: &Letter) -> Result<Hop> {
        let Some(Parent { id, relay }) = letter.parent else { return Ok(route::fresh(&caller.name)) };
        let found = messages::find(&self.db, id)?;
        let seen = |found: &messages::Found| {
            if relay { found.came_to(caller.key.0) } else { found.concerns(caller.key.0) }
        };
        let Some(found) = found.filter(seen) else { return Err(letter::no_message(&id.into())) };
        let parent = found.message()?;
        Ok(if relay {
            route::relay(&parent, &caller.name, &letter.to)?
        } else {
            route::after(&parent, &caller.name, &letter.to)?
        })
    }

    /// The session that the letter names, or the one of its subject, made where it is missing.
    fn thread_of(&mut self, me: i64, peer: i64, letter: &Letter) -> Result<Thread> {
        match &letter.thread {
            letter::Thread::Existing(public_id) => {
                let thread = self.thread_by_public_id(*public_id)?.ok_or_else(no_session)?;
                if thread.pair != Some(pair(me, peer)) {
                    return Err(words::not_both_members(&letter.to));
                }
                Ok(thread)
            }
            letter::Thread::Subject { subject, key, fresh } => {
                let (low, high) = pair(me, peer);
                let cached = self.caches.by_subject.get(&(low, high, key.as_str().into())).copied();
                let known = match cached {
                    Some(id) => Some(id),
                    None => self.session_of_subject(low, high, key)?,
                };
                match known {
                    Some(id) => self.thread(id)?.ok_or_else(no_session),
                    None => self.new_session(me, peer, subject, key, *fresh, letter.at),
                }
            }
        }
    }

    fn session_of_subject(&mut self, low: i64, high: i64, key: &str) -> Result<Option<i64>> {
        let id = self
            .db
            .prepare_cached("SELECT id FROM sessions WHERE low_id = ?1 AND high_id = ?2 AND subject_key = ?3")
            .and_then(|mut select| select.query_row(params![low, high, key], |row| row.get(0)).optional())
            .map_err(failed)?;
        if let Some(id) = id {
            self.caches.by_subject.put((low, high, key.into()), id);
        }
        Ok(id)
    }

    fn thread_by_public_id(&mut self, public_id: Uuid) -> Result<Option<Thread>> {
        if let Some(id) = self.caches.by_public_id.get(&public_id).copied() {
            return self.thread(id);
        }
        let id: Option<i64> = self
            .db
            .prepare_cached("SELECT id FROM sessions WHERE public_id = ?1")
            .and_then(|mut select| select.query_row([public_id.as_bytes()], |row| row.get(0)).optional())
            .map_err(failed)?;
        let Some(id) = id else { return Ok(None) };
        self.caches.by_public_id.put(public_id, id);
        self.thread(id)
    }

    /// The session of this row.
    pub(super) fn thread(&mut self, id: i64) -> Result<Option<Thread>> {
        if let Some(thread) = self.caches.threads.get(&id) {
            return Ok(Some(thread.clone()));
        }
        let (first, last) = range(id);
        let found = self
            .db
            .prepare_cached(
                "SELECT public_id, subject, low_id, high_id, group_id,
                        (SELECT max(id) FROM messages WHERE id BETWEEN ?2 AND ?3)
                 FROM sessions WHERE id = ?1",
            )
            .and_then(|mut select| {
                select
                    .query_row([id, first, last], |row| {
                        let pair: (Option<i64>, Option<i64>) = (row.get(2)?, row.get(3)?);
                        Ok(Thread {
                            id,
                            public_id: uuid_at(row, 0)?,
                            subject: row.get::<_, String>(1)?.into(),
                            pair: pair.0.zip(pair.1),
                            group: row.get(4)?,
                            last: row.get::<_, Option<i64>>(5)?.map_or(0, place_of),
                        })
                    })
                    .optional()
            })
            .map_err(failed)?;
        if let Some(thread) = &found {
            self.caches.threads.put(id, thread.clone());
        }
        Ok(found)
    }

    fn new_session(
        &mut self,
        me: i64,
        peer: i64,
        subject: &str,
        key: &str,
        public_id: Uuid,
        now: Timestamp,
    ) -> Result<Thread> {
        let (low, high) = pair(me, peer);
        let id = self
            .db
            .prepare_cached(
                "INSERT INTO sessions (public_id, subject, subject_key, initiator_id, participant_id, low_id, high_id,
                                       created_at)
                 VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8)",
            )
            .and_then(|mut insert| {
                insert.insert(params![public_id.as_bytes(), subject, key, me, peer, low, high, now.as_microsecond()])
            })
            .map_err(failed)?;
        self.db
            .prepare_cached("INSERT INTO session_members (agent_id, session_id) VALUES (?1, ?3), (?2, ?3)")
            .and_then(|mut insert| insert.execute([me, peer, id]))
            .map_err(failed)?;
        let subject: Arc<str> = subject.into();
        let thread = Thread { id, public_id, subject, pair: Some((low, high)), group: None, last: 0 };
        self.caches.by_subject.put((low, high, key.into()), id);
        self.caches.by_public_id.put(public_id, id);
        self.caches.threads.put(id, thread.clone());
        Ok(thread)
    }

    /// Writes the message, its delivery and the unread count.
    fn place(&mut self, me: i64, peer: &Peer, thread: &Thread, letter: &Letter, hop: &Hop) -> Result<Placed> {
        let place = thread.last + 1;
        if let Some(cached) = self.caches.threads.get_mut(&thread.id) {
            cached.last = place;
        }
        let message_id = row(thread.id, place);
        let number = self.next_place(peer.id)?;
        let delivery_id = row(peer.id, number);
        let reply_to = letter.parent.filter(|parent| !parent.relay).map(|parent| *parent.id.as_bytes());
        let metadata = if letter.metadata.is_empty() { None } else { Some(letter::json(&letter.metadata)?) };
        let task = None;
        self.db
            .prepare_cached(
                "INSERT INTO messages (id, public_id, sender_id, delivery_id, created_at, priority, ttl, kind, trace,
                                       reply_to, correlation_id, task, callback, content, parts, metadata)
                 VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11, ?12, ?13, ?14, ?15, ?16)",
            )
            .and_then(|mut insert| {
                insert.execute(params![
                    message_id,
                    letter.id.as_bytes(),
                    me,
                    delivery_id,
                    letter.at.as_microsecond(),
                    rank(letter.priority),
                    hop.ttl,
                    kind_text(&letter.kind),
                    trace_json(hop).map_err(to_sql)?,
                    reply_to,
                    letter.correlation_id.as_ref().map(|id| id.as_str()),
                    json_of(task.as_ref()).map_err(to_sql)?,
                    json_of(letter.callback.as_ref()).map_err(to_sql)?,
                    letter.content_to_keep(),
                    json_of(letter.parts.as_ref()).map_err(to_sql)?,
                    metadata,
                ])
            })
            .map_err(failed)?;
        self.db
            .prepare_cached("INSERT INTO entries (id, message_id, priority) VALUES (?1, ?2, ?3)")
            .and_then(|mut insert| insert.execute(params![delivery_id, message_id, rank(letter.priority)]))
            .map_err(failed)?;
        self.db
            .prepare_cached("UPDATE session_members SET unread = unread + 1 WHERE agent_id = ?1 AND session_id = ?2")
            .and_then(|mut update| update.execute([peer.id, thread.id]))
            .map_err(failed)?;
        Ok(Placed {
            session: thread.public_id,
            subject: thread.subject.clone(),
            recipient: AgentKey(peer.id),
            number: number_of(number),
            task,
            reason: None,
        })
    }

    /// What a send with this key was answered before.
    fn answered_before(&self, me: i64, once: &Once) -> Result<Option<Sent>> {
        let found: Option<(Vec<u8>, String)> = self
            .db
            .prepare_cached("SELECT draft_hash, answer FROM idempotency WHERE agent_id = ?1 AND key = ?2")
            .and_then(|mut select| {
                select.query_row(params![me, once.key], |row| Ok((row.get(0)?, row.get(1)?))).optional()
            })
            .map_err(failed)?;
        match found {
            Some((hash, _)) if hash != once.draft_hash => Err(words::key_reused()),
            Some((_, answer)) => serde_json::from_str(&answer).map(Some).map_err(StoreError::internal),
            None => Ok(None),
        }
    }

    fn remember_answer(&self, me: i64, once: &Once, sent: &Sent, now: Timestamp) -> Result<()> {
        let answer = letter::json(sent)?;
        self.db
            .prepare_cached(
                "INSERT INTO idempotency (agent_id, key, draft_hash, answer, created_at) VALUES (?1, ?2, ?3, ?4, ?5)",
            )
            .and_then(|mut insert| insert.execute(params![me, once.key, once.draft_hash, answer, now.as_microsecond()]))
            .map_err(failed)
            .map(drop)
    }
}

fn to_sql(error: StoreError) -> rusqlite::Error {
    rusqlite::Error::ToSqlConversionFailure(Box::new(error))
}
