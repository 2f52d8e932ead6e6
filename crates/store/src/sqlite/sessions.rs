//! Sessions, as far as sending in them goes.

use std::sync::Arc;

use amb_core::Timestamp;
use amb_core::id::fresh_uuid;
use rusqlite::{OptionalExtension, params};
use uuid::Uuid;

use super::cache::Session;
use super::error::failed;
use super::keys::uuid_at;
use super::plans::Prepared;
use super::writer::WriteTx;
use crate::error::Result;
use crate::outgoing::{Subject, no_session};
use crate::verbs::pair;

impl WriteTx {
    /// The session of two agents and a subject.
    fn session_of_subject(&mut self, low: i64, high: i64, key: &str) -> Result<Option<i64>> {
        if let Some(id) = self.caches.by_subject.get(&(low, high, key.into())) {
            return Ok(Some(*id));
        }
        let id = self
            .db
            .prepared("SELECT id FROM sessions WHERE low_id = ?1 AND high_id = ?2 AND subject_key = ?3")
            .and_then(|mut select| select.query_row(params![low, high, key], |row| row.get(0)).optional())
            .map_err(failed)?;
        if let Some(id) = id {
            self.caches.by_subject.put((low, high, key.into()), id);
        }
        Ok(id)
    }

    pub(super) fn session_by_public_id(&mut self, public_id: Uuid) -> Result<Option<Session>> {
        if let Some(id) = self.caches.by_public_id.get(&public_id).copied() {
            return self.session(id);
        }
        let id: Option<i64> = self
            .db
            .prepared("SELECT id FROM sessions WHERE public_id = ?1")
            .and_then(|mut select| select.query_row([public_id.as_bytes()], |row| row.get(0)).optional())
            .map_err(failed)?;
        let Some(id) = id else { return Ok(None) };
        self.caches.by_public_id.put(public_id, id);
        self.session(id)
    }

    /// The session of this row.
    pub(super) fn session(&mut self, id: i64) -> Result<Option<Session>> {
        if let Some(session) = self.caches.sessions.get(&id) {
            return Ok(Some(session.clone()));
        }
        let found = self
            .db
            .prepared("SELECT public_id, subject, low_id, high_id, group_id, ended_by FROM sessions WHERE id = ?1")
            .and_then(|mut select| {
                select
                    .query_row([id], |row| {
                        let pair: (Option<i64>, Option<i64>) = (row.get(2)?, row.get(3)?);
                        Ok(Session {
                            id,
                            public_id: uuid_at(row, 0)?,
                            subject: row.get::<_, String>(1)?.into(),
                            pair: pair.0.zip(pair.1),
                            group: row.get(4)?,
                            ended_by: row.get::<_, Option<String>>(5)?.map(Into::into),
                        })
                    })
                    .optional()
            })
            .map_err(failed)?;
        if let Some(session) = &found {
            self.caches.sessions.put(id, session.clone());
        }
        Ok(found)
    }

    /// The session of two agents and a subject, made where it is missing.
    pub(super) fn pair_session(&mut self, me: i64, peer: i64, subject: &Subject, now: Timestamp) -> Result<Session> {
        let (low, high) = pair(me, peer);
        match self.session_of_subject(low, high, &subject.key)? {
            Some(id) => self.session(id)?.ok_or_else(no_session),
            None => self.new_session(me, peer, &subject.subject, &subject.key, now),
        }
    }

    fn new_session(&mut self, me: i64, peer: i64, subject: &str, key: &str, now: Timestamp) -> Result<Session> {
        let public_id = fresh_uuid(now);
        let (low, high) = pair(me, peer);
        let id = self
            .db
            .prepared(
                "INSERT INTO sessions (public_id, subject, subject_key, initiator_id, participant_id, low_id, high_id,
                                       created_at)
                 VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8)",
            )
            .and_then(|mut insert| {
                insert.insert(params![public_id.as_bytes(), subject, key, me, peer, low, high, now.as_microsecond()])
            })
            .map_err(failed)?;
        self.db
            .prepared("INSERT INTO session_members (agent_id, session_id) VALUES (?1, ?3), (?2, ?3)")
            .and_then(|mut insert| insert.execute([me, peer, id]))
            .map_err(failed)?;
        let subject: Arc<str> = subject.into();
        let session = Session { id, public_id, subject, pair: Some((low, high)), group: None, ended_by: None };
        self.caches.by_subject.put((low, high, key.into()), id);
        self.caches.by_public_id.put(public_id, id);
        self.caches.sessions.put(id, session.clone());
        Ok(session)
    }
}
