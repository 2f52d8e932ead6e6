//! Which unread mail is worth a ring.

use amb_core::doc::{Inbox, MessageView};
use amb_core::message::is_automatic;
use amb_core::{Code, Mailbox, OfficeError, Priority};

use crate::bell::Waiting;

/// Mail that one ring is for; there may be more.
const MOST: usize = 64;

/// Unread mail of others that the caller does not know of yet, newest first.
pub async fn unread(
    office: &dyn Mailbox,
    inbox: &Inbox,
    is_known: impl Fn(&MessageView) -> bool,
) -> Result<Vec<Waiting>, OfficeError> {
    let me = office.me();
    let mut mails: Vec<_> = inbox.sessions.iter().flat_map(|session| &session.recent_messages).collect();
    mails.retain(|mail| !mail.is_read && mail.sender_name != *me && !is_known(mail));
    mails.sort_by_key(|mail| std::cmp::Reverse(mail.created_at));
    mails.truncate(MOST);
    let mut waiting = Vec::new();
    for mail in mails {
        if !is_spent(office, mail).await? {
            let urgent = mail.priority == Priority::Urgent;
            waiting.push(Waiting { id: mail.id.clone(), from: mail.sender_name.clone(), urgent });
        }
    }
    Ok(waiting)
}

/// Whether a mail ends an exchange of automatic answers: it has no hops left, and what it answers was automatic too. Nobody is
/// woken for it. With the ttl that mail has by default that is every automatic answer to an automatic answer.
async fn is_spent(office: &dyn Mailbox, mail: &MessageView) -> Result<bool, OfficeError> {
    if !is_automatic(&mail.metadata) {
        return Ok(false);
    }
    let gone = |error: OfficeError| if error.code() == Code::NotFound { Ok(None) } else { Err(error) };
    let Some(found) = office.message(&mail.id).await.map(Some).or_else(gone)? else { return Ok(true) };
    let Some(parent) = found.message.reply_to.filter(|_| found.message.ttl == 0) else {
        return Ok(found.message.ttl == 0);
    };
    let parent = office.message(&parent).await.map(Some).or_else(gone)?;
    Ok(parent.is_none_or(|parent| parent.message.is_automatic()))
}
