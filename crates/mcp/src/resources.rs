//! The mailbox as resources, for clients that show or watch them. Reading one marks nothing as read: a client may fetch
//! it on every update without a model seeing it.

use std::str::FromStr;

use amb_core::doc::{Inbox, SessionSummary};
use amb_core::{Mailbox, OfficeError, SessionId};
use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, percent_decode_str, utf8_percent_encode};
use rmcp::model::{Resource, ResourceContents, ResourceTemplate};

use crate::budget::{TextBudget, size};
use crate::inbox;
use crate::show::{self, MAX_REQUESTS, MAX_SESSIONS};
use crate::tools;
use crate::view::{MessageShown, RequestShown, line};

pub(crate) const INBOX: &str = "mailbox://inbox";
/// Characters that are escaped in a session's URI.
const RESERVED: &AsciiSet = &NON_ALPHANUMERIC.remove(b'-').remove(b'.').remove(b'_').remove(b'~');
const SESSIONS: &str = "mailbox://sessions/";

/// A resource of the mailbox.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Uri {
    /// All sessions, with previews.
    Inbox,
    /// The newest messages of one session.
    Session(SessionId),
}

impl Uri {
    pub(crate) fn session(id: &SessionId) -> String {
        format!("{SESSIONS}{}", utf8_percent_encode(id.as_str(), RESERVED))
    }
}

impl FromStr for Uri {
    type Err = OfficeError;

    fn from_str(text: &str) -> Result<Self, OfficeError> {
        if text == INBOX {
            return Ok(Uri::Inbox);
        }
        let id = text.strip_prefix(SESSIONS).and_then(decode).and_then(|id| id.parse().ok());
        id.map(Uri::Session).ok_or_else(|| {
            OfficeError::not_found(format!("no resource {text:?}; there are {INBOX} and {SESSIONS}{{session_id}}"))
        })
    }
}

pub(crate) fn listed() -> Vec<Resource> {
    vec![
        Resource::new(INBOX, "inbox")
            .with_title("Mailbox")
            .with_description("Threads with previews of unread mail; reading it marks nothing as read")
            .with_mime_type("text/plain"),
    ]
}

pub(crate) fn templates() -> Vec<ResourceTemplate> {
    vec![
        ResourceTemplate::new(format!("{SESSIONS}{{session_id}}"), "session")
            .with_title("Mailbox thread")
            .with_description("The newest messages of a thread; reading it marks nothing as read")
            .with_mime_type("text/plain"),
    ]
}

pub(crate) async fn read(office: &dyn Mailbox, uri: &str) -> Result<ResourceContents, OfficeError> {
    let text = match uri.parse()? {
        Uri::Inbox => threads(office, inbox::all_pages(office, false).await?),
        Uri::Session(id) => thread(office, &id).await?,
    };
    Ok(ResourceContents::text(text, uri))
}

fn threads(office: &dyn Mailbox, mut inbox: Inbox) -> String {
    let me = office.me();
    let mut budget = TextBudget::new();
    let fits = inbox.pending_connections.iter().take(MAX_REQUESTS);
    let requests = fits.take_while(|request| budget.try_spend(size(&RequestShown::of(request)))).count();
    inbox.sessions.sort_by_key(|session| session.unread_count == 0);
    let cost = |session: &SessionSummary| {
        let previews = session.recent_messages.iter().filter(|_| session.unread_count > 0);
        let frame = size(&(&session.session_id, line(&session.subject), &session.other_agent_name, &session.group));
        frame + previews.map(|message| size(&MessageShown::preview(message, me))).sum::<usize>()
    };
    let fits = inbox.sessions.iter().take(MAX_SESSIONS);
    let threads = fits.take_while(|session| budget.try_spend(cost(session))).count();
    let left = inbox.sessions.len() - threads;
    let hint = format!("mailbox_check shows them, with skip={threads}");
    show::inbox(&inbox, me, &show::InboxExcerpt { skip: 0, threads, requests, left, hint: &hint })
}

async fn thread(office: &dyn Mailbox, id: &SessionId) -> Result<String, OfficeError> {
    let session = inbox::find(office, false, id).await?;
    let session = session.ok_or_else(|| OfficeError::not_found(format!("no session {id}; {INBOX} lists yours")))?;
    let mut history = amb_core::doc::History {
        session_id: session.session_id,
        subject: session.subject,
        messages: session.recent_messages,
        truncated: false,
    };
    let cut = tools::cut_to_fit(&mut history.messages, office.me());
    let mut text = show::conversation(&history, office.me(), |id| cut.get(id).map_or(0, |cut| cut.chars));
    if !cut.is_empty() {
        text.push_str("What was cut is read with mailbox_read.\n");
    }
    Ok(text)
}

/// Decodes a percent-encoded path segment; `None` where an escape is incomplete or the result is not UTF-8.
fn decode(text: &str) -> Option<String> {
    let is_escape =
        |rest: &str| rest.as_bytes().get(..2).is_some_and(|digits| digits.iter().all(u8::is_ascii_hexdigit));
    if !text.split('%').skip(1).all(is_escape) {
        return None;
    }
    Some(percent_decode_str(text).decode_utf8().ok()?.into_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_session_of_any_id_has_an_address_that_leads_back() {
        for id in ["0190-ab", "a/b?c#d", "100%", "café", "x:y", "%41"] {
            let id: SessionId = id.parse().unwrap();
            assert_eq!(Uri::session(&id).parse::<Uri>().unwrap(), Uri::Session(id));
        }
    }

    #[test]
    fn other_addresses_lead_nowhere() {
        for bad in [
            "",
            "mailbox://",
            "mailbox://sessions/",
            "mailbox://sessions/%zz",
            "file:///etc/passwd",
            "mailbox://inbox/x",
        ] {
            assert!(bad.parse::<Uri>().is_err(), "{bad}");
        }
    }
}
