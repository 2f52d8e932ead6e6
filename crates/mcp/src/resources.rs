//! The mailbox as resources, for clients that show or watch them. Reading one marks nothing as read: a client may fetch it
//! on every update, with no model looking.

use std::str::FromStr;

use amb_core::doc::Inbox;
use amb_core::{Office, OfficeError, SessionId};
use rmcp::model::{Resource, ResourceContents, ResourceTemplate};

use crate::show::{self, MOST_REQUESTS, MOST_SESSIONS};

/// The inbox.
pub(crate) const INBOX: &str = "mailbox://inbox";
const SESSIONS: &str = "mailbox://sessions/";

/// A resource that there is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Uri {
    /// All threads, with previews.
    Inbox,
    /// The newest messages of one thread.
    Session(SessionId),
}

impl Uri {
    /// The address of a thread.
    pub(crate) fn session(id: &SessionId) -> String {
        format!("{SESSIONS}{}", encode(id.as_str()))
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

/// The resource as text.
pub(crate) async fn read(office: &dyn Office, uri: &str) -> Result<ResourceContents, OfficeError> {
    let which: Uri = uri.parse()?;
    let inbox = office.inbox(false).await?;
    let text = match which {
        Uri::Inbox => {
            let hint = "mailbox_check shows them, with skip=";
            let shown = show::Shown { skip: 0, threads: MOST_SESSIONS, requests: MOST_REQUESTS, hint };
            show::inbox(&inbox, office.me(), &shown)
        }
        Uri::Session(id) => thread(office, inbox, &id)?,
    };
    Ok(ResourceContents::text(text, uri))
}

fn thread(office: &dyn Office, inbox: Inbox, id: &SessionId) -> Result<String, OfficeError> {
    let session = inbox.sessions.into_iter().find(|session| session.session_id == *id);
    let session = session.ok_or_else(|| OfficeError::not_found(format!("no session {id}; {INBOX} lists yours")))?;
    let history = amb_core::doc::History {
        session_id: session.session_id,
        subject: session.subject,
        messages: session.recent_messages,
    };
    Ok(show::conversation(&history, office.me(), |_| 0))
}

/// Percent-encodes what cannot stand in a path segment as it is.
fn encode(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for byte in text.bytes() {
        match byte {
            b'A'..=b'Z' | b'a'..=b'z' | b'0'..=b'9' | b'-' | b'.' | b'_' | b'~' => out.push(char::from(byte)),
            _ => out.push_str(&format!("%{byte:02X}")),
        }
    }
    out
}

fn decode(text: &str) -> Option<String> {
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text.bytes();
    while let Some(byte) = rest.next() {
        bytes.push(match byte {
            b'%' => {
                let digit = |byte: Option<u8>| byte.and_then(|byte| char::from(byte).to_digit(16));
                let (high, low) = (digit(rest.next())?, digit(rest.next())?);
                u8::try_from(high * 16 + low).ok()?
            }
            plain => plain,
        });
    }
    String::from_utf8(bytes).ok()
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
