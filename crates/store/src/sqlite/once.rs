//! What sends were answered under their idempotency keys.

use amb_core::Timestamp;
use rusqlite::{OptionalExtension, params};
use serde::Serialize;
use serde::de::DeserializeOwned;

use super::error::failed;
use super::plans::Prepared;
use super::writer::WriteTx;
use crate::error::Result;
use crate::types::Once;
use crate::{StoreError, outgoing, refusals};

impl WriteTx {
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
            Some((hash, _)) if hash != once.draft_hash => Err(refusals::key_reused()),
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
