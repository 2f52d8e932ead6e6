//! Which unread mail is worth a ring.

use std::collections::HashMap;

use amb_core::doc::{Inbox, MessageView};
use amb_core::message::is_automatic;
use amb_core::{Code, Kind, Mailbox, MessageId, OfficeError, Priority};

use crate::bell::Waiting;

/// Mail that one ring is for; there may be more.
const MOST: usize = 64;

/// What the office said about automatic mail that waits, so that it is asked once for each and not at every look. It never
/// changes for a mail. Holds as many as one ring is for.
#[derive(Debug, Clone, Default)]
pub struct SpentCache(HashMap<MessageId, bool>);

/// Unread mail of others that the caller does not know of yet, newest first. None of an agent that is paused.
pub async fn unread(
    office: &dyn Mailbox,
    inbox: &Inbox,
    spent: &mut SpentCache,
    is_known: impl Fn(&MessageView) -> bool,
) -> Result<Vec<Waiting>, OfficeError> {
    let me = office.me();
    let mut mails: Vec<_> = inbox.sessions.iter().flat_map(|session| &session.recent_messages).collect();
    mails.retain(|mail| !mail.is_read && mail.sender_name != *me && !is_known(mail));
    mails.sort_by_key(|mail| std::cmp::Reverse(mail.created_at));
    mails.truncate(MOST);
    let mut waiting = Vec::new();
    if mails.is_empty() || office.is_paused().await? {
        return Ok(waiting);
    }
    spent.0.retain(|id, _| mails.iter().any(|mail| mail.id == *id));
    for mail in mails {
        let is_spent = match spent.0.get(&mail.id) {
            // What follows from a task are its updates, which cost nothing and end with it.
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
            waiting.push(Waiting { id, from, from_person: mail.from_person, urgent });
        }
    }
    Ok(waiting)
}

/// Leaves out what a bridge or another consumer of the same agent holds: it is in good hands. Asked at the moment of ringing,
/// not when the mail is noticed, since its sender holds it too until it is quite done.
pub async fn leave_out_held(office: &dyn Mailbox, waiting: &mut Vec<Waiting>) -> Result<(), OfficeError> {
    if !waiting.is_empty() {
        let held = office.claimed().await?;
        waiting.retain(|mail| held.iter().all(|held| held.id != mail.id));
    }
    Ok(())
}

/// Tells the senders that a ring was made for their mail. Not of the ring's success: the mail waits whether they hear of it or
/// not, and the next ring tells again.
pub async fn report_rung(office: &dyn Mailbox, waiting: &[Waiting]) {
    let ids: Vec<MessageId> = waiting.iter().map(|mail| mail.id.clone()).collect();
    if let Err(error) = office.rung(&ids).await {
        tracing::debug!(%error, "the senders are not told of the ring");
    }
}

/// Whether an automatic mail ends an exchange of automatic answers: it has no hops left, and what it answers was automatic too. Nobody is
/// woken for it. With the ttl that mail has by default that is every automatic answer to an automatic answer.
async fn is_spent(office: &dyn Mailbox, mail: &MessageView) -> Result<bool, OfficeError> {
    let gone = |error: OfficeError| if error.code() == Code::NotFound { Ok(None) } else { Err(error) };
    let Some(found) = office.message(&mail.id).await.map(Some).or_else(gone)? else { return Ok(true) };
    let Some(parent) = found.message.reply_to.filter(|_| found.message.ttl == 0) else {
        return Ok(found.message.ttl == 0);
    };
    let parent = office.message(&parent).await.map(Some).or_else(gone)?;
    Ok(parent.is_none_or(|parent| parent.message.is_automatic()))
}
