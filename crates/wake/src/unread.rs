//! Which unread messages are worth a ring.

use std::collections::HashMap;

use amb_core::doc::{Inbox, MessageView};
use amb_core::error::if_found;
use amb_core::message::is_automatic;
use amb_core::{Kind, Mailbox, MessageId, OfficeError, Priority};

use crate::bell::WaitingMessage;

/// The most messages that one ring covers; there may be more.
const MAX_MESSAGES: usize = 64;

/// Cached results of `is_spent`, which never change for a message. Bounded by `MAX_MESSAGES`.
#[derive(Debug, Clone, Default)]
pub struct SpentCache(HashMap<MessageId, bool>);

/// Returns unread messages of other agents for which `is_known` is false, newest first. None for a paused agent.
pub async fn unread(
    office: &dyn Mailbox,
    inbox: &Inbox,
    spent: &mut SpentCache,
    is_known: impl Fn(&MessageView) -> bool,
) -> Result<Vec<WaitingMessage>, OfficeError> {
    let me = office.me();
    let mut mails: Vec<_> = inbox.sessions.iter().flat_map(|session| &session.recent_messages).collect();
    mails.retain(|mail| !mail.is_read && mail.sender_name != *me && !is_known(mail));
    mails.sort_by_key(|mail| std::cmp::Reverse(mail.created_at));
    mails.truncate(MAX_MESSAGES);
    let mut waiting = Vec::new();
    if mails.is_empty() || office.is_paused().await? {
        return Ok(waiting);
    }
    spent.0.retain(|id, _| mails.iter().any(|mail| mail.id == *id));
    for mail in mails {
        let is_spent = match spent.0.get(&mail.id) {
            // A task is followed by its updates only, which cost no ttl and end with it.
            _ if !is_automatic(&mail.metadata) || mail.kind == Kind::Task => false,
            Some(known) => *known,
            None => {
                let found = is_spent(office, mail).await?;
                spent.0.insert(mail.id.clone(), found);
                found
            }
        };
        if !is_spent {
            let urgent = mail.priority == Priority::Urgent;
            let (id, from) = (mail.id.clone(), mail.sender_name.clone());
            waiting.push(WaitingMessage { id, from, from_person: mail.from_person, urgent });
        }
    }
    Ok(waiting)
}

/// Removes messages that a bridge or another consumer of the same agent has claimed. Called right before a ring, not
/// when a message arrives, since its sender holds it until the send is complete.
pub async fn leave_out_held(office: &dyn Mailbox, waiting: &mut Vec<WaitingMessage>) -> Result<(), OfficeError> {
    if !waiting.is_empty() {
        let held = office.claimed().await?;
        waiting.retain(|mail| held.iter().all(|held| held.id != mail.id));
    }
    Ok(())
}

/// Tells the senders that a ring was made for their messages. An error is only logged: the messages are unaffected,
/// and the next ring reports again.
pub async fn report_rung(office: &dyn Mailbox, waiting: &[WaitingMessage]) {
    let ids: Vec<MessageId> = waiting.iter().map(|mail| mail.id.clone()).collect();
    if let Err(error) = office.rung(&ids).await {
        tracing::debug!(%error, "cannot report the ring to the senders");
    }
}

/// Whether an automatic message ends an exchange of automatic answers: it has no hops left, and what it answers was
/// automatic too. It wakes nobody. With the default ttl that is every automatic answer to an automatic answer.
async fn is_spent(office: &dyn Mailbox, mail: &MessageView) -> Result<bool, OfficeError> {
    let Some(found) = if_found(office.message(&mail.id).await)? else { return Ok(true) };
    let Some(parent) = found.message.reply_to.filter(|_| found.message.ttl == 0) else {
        return Ok(found.message.ttl == 0);
    };
    let parent = if_found(office.message(&parent).await)?;
    Ok(parent.is_none_or(|parent| parent.message.is_automatic()))
}
