//! Helpers of the unit tests.

use amb_core::GoalId;

use crate::InboxMessage;

pub(crate) fn message(body: &str) -> InboxMessage {
    InboxMessage {
        from_agent_id: "alice".into(),
        from_goal_id: GoalId(uuid::Uuid::from_u128(7)),
        to_agent_id: "bob".into(),
        body: body.into(),
        sent_at: "2026-04-30T14:00:00Z".parse().unwrap(),
        correlation_id: None,
    }
}
