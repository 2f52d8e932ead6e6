//! Reads an inbox that the office returns in pages.

use std::collections::HashSet;

use amb_core::doc::{Inbox, SessionSummary};
use amb_core::{Code, Mailbox, OfficeError, SessionId};

/// The most pages that are read. A remaining `next` tells that there are more.
const MAX_PAGES: usize = 40;

/// All sessions, from as many pages as the office has.
pub(crate) async fn all_pages(office: &dyn Mailbox, unread_only: bool) -> Result<Inbox, OfficeError> {
    let mut inbox = office.inbox(unread_only).await?;
    let mut known: HashSet<_> = inbox.sessions.iter().map(|session| session.session_id.clone()).collect();
    for _ in 1..MAX_PAGES {
        let Some(next) = inbox.next.clone() else { break };
        let page = match office.inbox_after(unread_only, &next).await {
            // The session of the page's cursor was read meanwhile, so that it is no longer among the unread ones.
            Err(error) if error.code() == Code::NotFound => break,
            page => page?,
        };
        // A session with a new message moves to the front, so it may come twice.
        inbox.sessions.extend(page.sessions.into_iter().filter(|session| known.insert(session.session_id.clone())));
        inbox.next = page.next;
    }
    Ok(inbox)
}

/// One session of the inbox, if it is there.
pub(crate) async fn find(
    office: &dyn Mailbox,
    unread_only: bool,
    id: &SessionId,
) -> Result<Option<SessionSummary>, OfficeError> {
    let mut page = office.inbox(unread_only).await?;
    for _ in 0..MAX_PAGES {
        if let Some(found) = page.sessions.into_iter().find(|session| session.session_id == *id) {
            return Ok(Some(found));
        }
        let Some(next) = page.next else { break };
        page = match office.inbox_after(unread_only, &next).await {
            Err(error) if error.code() == Code::NotFound => break,
            page => page?,
        };
    }
    Ok(None)
}
