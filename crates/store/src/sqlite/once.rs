//! Idempotency keys: a verb that creates something does it once for each key.

use amb_core::Timestamp;
use rusqlite::{OptionalExtension, params};
use serde::Serialize;
use serde::de::DeserializeOwned;

use super::error::failed;
use super::plans::Prepared;
use super::writer::WriteTx;
use crate::error::Result;
use crate::types::{Agent, Once, Written};
use crate::{StoreError, outgoing, words};

impl WriteTx {
    /// Runs a verb, unless the caller's request was answered before: then that answer is given, and nothing is changed.
    pub(super) fn once<T: Serialize + DeserializeOwned>(
        &mut self,
        caller: &Agent,
        now: Timestamp,
        verb: impl FnOnce(&mut Self) -> Result<Written<T>>,
    ) -> Result<Written<T>> {
        let Some(once) = &caller.once else { return verb(self) };
        if let Some(answer) = self.answered_before(caller.key.0, once)? {
            return Ok(Written::quiet(answer));
        }
        let written = verb(self)?;
        self.remember_answer(caller.key.0, once, &written.answer, now)?;
        Ok(written)
    }

    /// What was answered under this key before.
    pub(super) fn answered_before<T: DeserializeOwned>(&self, me: i64, once: &Once) -> Result<Option<T>> {
        let found: Option<(Vec<u8>, String)> = self
            .db
            .prepared("SELECT draft_hash, answer FROM idempotency WHERE agent_id = ?1 AND key = ?2")
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

    pub(super) fn remember_answer(&self, me: i64, once: &Once, answer: &impl Serialize, now: Timestamp) -> Result<()> {
        let answer = outgoing::json(answer)?;
        self.db
            .prepared(
                "INSERT INTO idempotency (agent_id, key, draft_hash, answer, created_at) VALUES (?1, ?2, ?3, ?4, ?5)",
            )
            .and_then(|mut insert| insert.execute(params![me, once.key, once.draft_hash, answer, now.as_microsecond()]))
            .map_err(failed)
            .map(drop)
    }
}
