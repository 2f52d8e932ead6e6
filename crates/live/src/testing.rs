//! A nats-server for tests, here and in the crates above. This is the one part of the crate that starts processes; it is
//! built for tests only.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::missing_panics_doc)]

mod server;

pub use server::NatsServer;

#[cfg(test)]
use crate::InboxMessage;

#[cfg(test)]
pub(crate) fn message(body: &str) -> InboxMessage {
    InboxMessage {
        from_agent_id: "alice".into(),
        from_goal_id: amb_core::GoalId(uuid::Uuid::from_u128(7)),
        to_agent_id: "bob".into(),
        body: body.into(),
        sent_at: "2026-04-30T14:00:00Z".parse().unwrap(),
        correlation_id: None,
    }
}
