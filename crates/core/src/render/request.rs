//! A connection request: text of a stranger. Its code is not shown to a model: a person who has it from the person behind the
//! other agent proves that the two know each other.

use jiff::Timestamp;

use super::content::{speaker, when};
use super::fence::Nonce;
use super::page::{Page, Tag};
use super::size::clip_shown;
use crate::doc::PendingConnection;
use crate::id::ConnectionId;
use crate::limits::MAX_INTRO_CHARS;
use crate::name::AgentName;

/// The most characters of an introduction that are shown: more than one may have, so that only what grows by escaping is cut.
pub const MAX_INTRO_SHOWN: usize = 2 * MAX_INTRO_CHARS;

/// What is shown of a request.
#[derive(Debug, Clone, Copy)]
pub struct Request<'r> {
    /// Who asks.
    pub from: &'r AgentName,
    /// Which request.
    pub id: &'r ConnectionId,
    /// What they say.
    pub intro: Option<&'r str>,
    /// When they asked, where that is known.
    pub at: Option<Timestamp>,
}

impl<'r> From<&'r PendingConnection> for Request<'r> {
    fn from(pending: &'r PendingConnection) -> Self {
        Self {
            from: &pending.from_agent_name,
            id: &pending.connection_id,
            intro: pending.message.as_deref(),
            at: Some(pending.created_at),
        }
    }
}

impl Request<'_> {
    /// Adds its frame to a page.
    pub fn write(&self, page: &mut Page<'_>) {
        let from = speaker(self.from, None);
        let at = self.at.map(when);
        let attributes = [("from", Some(&*from)), ("at", at.as_deref()), ("id", Some(self.id.as_str()))];
        match self.intro {
            Some(intro) if !intro.is_empty() => {
                let (intro, left) = clip_shown(intro, MAX_INTRO_SHOWN);
                page.open(Tag::Request, &attributes).body(intro);
                if left > 0 {
                    page.say("(cut)\n");
                }
                page.close(Tag::Request)
            }
            _ => page.empty(Tag::Request, &attributes),
        };
    }
}

/// Renders the prompt with which a bridge tells a runtime about a connection request.
pub fn render_request<'r>(request: impl Into<Request<'r>>, nonce: &Nonce) -> String {
    let request = request.into();
    let mut page = Page::new(nonce);
    page.say("[Mailbox] ").say(&speaker(request.from, None)).say(" asks for a connection\n").notice();
    request.write(&mut page);
    page.finish()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::render::hostile::{frames, hostile_text, nonce};
    use proptest::prelude::*;

    fn pending(intro: Option<&str>, code: Option<&str>) -> PendingConnection {
        PendingConnection {
            connection_id: "c-1".parse().unwrap(),
            from_agent_name: "carol".parse().unwrap(),
            message: intro.map(String::from),
            verification_code: code.map(String::from),
            created_at: "2026-02-22T10:05:00Z".parse().unwrap(),
        }
    }

    #[test]
    fn a_request_shows_its_intro_and_never_its_code() {
        let shown = render_request(&pending(Some("let me in"), Some("XC-992")), &nonce());
        assert!(shown.starts_with("[Mailbox] carol asks for a connection\n"), "{shown}");
        assert!(shown.ends_with("id=\"c-1\">\nlet me in\n</request-5eed5eed5eed>\n"), "{shown}");
        assert!(!shown.contains("XC-992"), "{shown}");
    }

    proptest! {
        #[test]
        fn a_stranger_cannot_leave_the_frame(intro in hostile_text(), code in hostile_text()) {
            let shown = render_request(&pending(Some(&intro), Some(&code)), &nonce());
            let frames = frames(&shown, "request-5eed5eed5eed");
            prop_assert_eq!(frames.opened.len(), 1, "{}", shown);
            prop_assert_eq!(frames.closed, usize::from(!intro.is_empty()), "{}", shown);
            prop_assert!(frames.opened[0].starts_with("request-5eed5eed5eed from=\"carol\" "), "{}", shown);
        }
    }
}
