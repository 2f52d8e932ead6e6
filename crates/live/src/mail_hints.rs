//! Hints at durable mail in the buffer of a live goal.

use std::sync::Arc;
use std::time::Duration;

use amb_core::event::NewMessage;
use amb_core::{Backoff, Cursor, Event, GoalId, Mailbox, Object, Timestamp};
use tokio::task::AbortHandle;
use uuid::Uuid;

use crate::InboxMessage;
use crate::buffer::InboxBuffer;
use crate::protocol::Protocol;

/// How long one request for events waits at the office.
const WAIT: Duration = Duration::from_secs(25);
/// The first and the longest pause after an office failed.
const RETRY_DELAYS: (Duration, Duration) = (Duration::from_millis(250), Duration::from_secs(30));
/// Characters of a message that a hint shows.
const PREVIEW_CHARS: usize = 200;

/// Puts a hint into a goal's buffer when mail comes for its agent, until dropped.
///
/// The mail itself stays where it is, unread; the goal gets a short message in its buffer ([`Protocol::NewMail`], from
/// the mail's sender as the office knows it), and at the start one [`Protocol::UnreadMail`] if mail has been waiting.
/// So a goal that loops over its buffer needs no second place to look.
#[derive(Debug)]
#[must_use = "hints come until this is dropped"]
pub struct MailHints(AbortHandle);

impl MailHints {
    /// Watches an agent's mailbox for a goal of that agent.
    pub fn watch(office: Arc<dyn Mailbox>, goal: Arc<InboxBuffer>) -> Self {
        Self(tokio::spawn(watch(office, goal)).abort_handle())
    }
}

impl Drop for MailHints {
    fn drop(&mut self) {
        self.0.abort();
    }
}

async fn watch(office: Arc<dyn Mailbox>, goal: Arc<InboxBuffer>) {
    let mut since: Option<Cursor> = None;
    let mut backoff = Backoff::new(RETRY_DELAYS.0, RETRY_DELAYS.1);
    loop {
        let next = match &since {
            None => begin(&*office, &goal).await,
            Some(cursor) => office.events(Some(cursor.clone()), WAIT).await.map(|page| {
                for entry in page.events {
                    if let Event::NewMessage(mail) = entry.event {
                        goal.push(new_mail(&*office, &mail));
                    }
                }
                page.cursor
            }),
        };
        match next {
            Ok(cursor) => {
                since = Some(cursor);
                backoff.reset();
            }
            Err(error) => {
                let pause = backoff.pause();
                tracing::warn!(office = %office.describe(), %error, retry_in = ?pause, "cannot read the mailbox's events; retrying");
                tokio::time::sleep(pause).await;
            }
        }
    }
}

/// Takes the cursor before the count, so that mail that arrives in between is hinted at twice rather than not at all.
async fn begin(office: &dyn Mailbox, goal: &InboxBuffer) -> amb_core::mailbox::Result<Cursor> {
    let cursor = office.events(None, Duration::ZERO).await?.cursor;
    let unread = office.inbox(true).await?.unread();
    // A paused agent's mail waits; it is hinted at when the agent is resumed.
    if unread > 0 && !office.is_paused().await? {
        goal.push(InboxMessage {
            from_agent_id: office.me().as_str().into(),
            from_goal_id: GoalId(Uuid::nil()),
            to_agent_id: office.me().as_str().into(),
            body: Protocol::UnreadMail { unread, extra: Object::new() }.to_body(),
            sent_at: Timestamp::now(),
            correlation_id: None,
        });
    }
    Ok(cursor)
}

fn new_mail(office: &dyn Mailbox, mail: &NewMessage) -> InboxMessage {
    let body = Protocol::NewMail {
        message_id: mail.message_id.clone(),
        session_id: mail.session_id.clone(),
        subject: mail.subject.clone(),
        preview: mail.content.chars().take(PREVIEW_CHARS).collect(),
        extra: Object::new(),
    };
    InboxMessage {
        from_agent_id: mail.from_agent.as_str().into(),
        // No goal of the sender is known: mail outlives goals.
        from_goal_id: GoalId(Uuid::nil()),
        to_agent_id: office.me().as_str().into(),
        body: body.to_body(),
        sent_at: mail.created_at,
        correlation_id: mail.correlation_id.as_ref().and_then(|id| id.as_uuid()),
    }
}
