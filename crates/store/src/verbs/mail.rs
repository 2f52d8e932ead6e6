//! Sending.

use amb_core::doc::Sent;
use amb_core::{AgentName, Draft, Timestamp};
use async_trait::async_trait;

use super::once::once;
use crate::engine::{Changes, Engine, write};
use crate::error::Result;
use crate::outgoing::OutgoingMessage;
use crate::types::{Agent, Crossing, Once, Written, to_micros};

/// Sending.
#[async_trait]
pub trait Mail: Engine {
    /// Sends. Needs an active connection or a common household (`not_connected`), and the target to hear the caller
    /// (`not_allowed`).
    ///
    /// With a session: `not_found` where there is none, `forbidden` where not both agents are in it. Without one: the
    /// session of this pair and subject, made where it is missing; the subject's case and outer space do not matter.
    ///
    /// With an idempotency key: a repeat returns what the first call returned and writes nothing; anything else under the same
    /// key is a `conflict`. What would exceed a quota ([`Store::set_quotas`](crate::Store::set_quotas)) is `over_quota`, and so
    /// is a line of a transcript; a task's move is counted and never refused for that. The same holds for [`Mail::send_all`], and for the
    /// verbs of `Connections`, `Groups`, `Tasks` and `Transcripts` that create something, with the key in [`Agent::once`].
    async fn send(&self, caller: &Agent, draft: Draft, now: Timestamp) -> Result<Written<Sent>> {
        self.send_message(caller, OutgoingMessage::new(&caller.name, draft, now)?).await
    }

    /// Takes in a message of the caller's that another office accepted: a send whose id, ttl and trace are settled. What
    /// it answers or passes on is not asked for them. Give it an idempotency key: it may be carried again after a crash.
    async fn carry(&self, caller: &Agent, draft: Draft, crossing: Crossing, now: Timestamp) -> Result<Written<Sent>> {
        self.send_message(caller, OutgoingMessage::carried(&caller.name, draft, crossing, now)?).await
    }

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

impl<E: Engine> Mail for E {}
