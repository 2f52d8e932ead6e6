//! What sends were answered under their idempotency keys.

use amb_core::Timestamp;
use amb_core::doc::Sent;
use futures_util::FutureExt;

use super::engine::now as run;
use super::writer::WriteTx;
use crate::error::Result;
use crate::outgoing::json;
use crate::types::Once;
use crate::verbs::{answer_under, keep_answer};

impl WriteTx {
    /// What a send was answered under this key before.
    pub(super) fn answered_before(&mut self, me: i64, once: &Once) -> Result<Option<Sent>> {
        run(answer_under(self, me, once).boxed())
    }

    pub(super) fn remember_answer(&mut self, me: i64, once: &Once, answer: &Sent, now: Timestamp) -> Result<()> {
        run(keep_answer(self, me, once, &json(answer)?, now).boxed())
    }
}
