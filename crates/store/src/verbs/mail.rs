//! Mail to many.

use amb_core::doc::Sent;
use amb_core::{AgentName, Draft, Timestamp};
use async_trait::async_trait;

use super::once::once;
use crate::engine::{Changes, Engine, write};
use crate::error::Result;
use crate::types::{Agent, Once, Written, to_micros};

/// Sending to several agents at once.
#[async_trait]
pub trait SendMany: Engine {
    /// Sends one draft to several agents, each in the session of its pair, in one transaction: all or none. `to` of the
    /// draft is not looked at. An agent that several names mean gets it once.
    async fn send_all(
        &self,
        caller: &Agent,
        to: &[AgentName],
        draft: Draft,
        now: Timestamp,
    ) -> Result<Written<Vec<Sent>>> {
        let once = draft.idempotency_key.clone().map(|key| Once::new(key, "send-many", &(to, &draft))).transpose()?;
        let asked = (caller.clone().under(once), to.to_vec(), draft, now);
        write(self, Changes::All, asked, |tx, (caller, to, draft, now)| {
            once!(tx, caller, to_micros(*now), tx.send_all(caller, to, draft, *now))
        })
        .await
    }
}

impl<E: Engine> SendMany for E {}
