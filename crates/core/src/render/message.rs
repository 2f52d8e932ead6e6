//! One message, as the agent runtime that it wakes sees it.

use std::borrow::Cow;

use jiff::Timestamp;

use super::content::{Purpose, content, person, speaker, when};
use super::fence::Nonce;
use super::page::{Page, Tag};
use crate::event::NewMessage;
use crate::id::{MessageId, SessionId};
use crate::message::{Kind, Message, Part, Priority};
use crate::name::AgentName;
use crate::task::TaskRef;

/// What is shown of a new message.
#[derive(Debug, Clone)]
pub struct Incoming<'m> {
    /// Who the office says sent it.
    pub from: &'m AgentName,
    /// Whether the office says that this is the person of the household.
    pub from_person: bool,
    /// Its session.
    pub session: Option<&'m SessionId>,
    /// The session's subject. `None` for a later message of a session that the reader knows.
    pub subject: Option<&'m str>,
    /// Which message.
    pub id: &'m MessageId,
    /// When the office accepted it.
    pub sent_at: Timestamp,
    /// What it is for.
    pub kind: &'m Kind,
    /// How soon it wants to be read.
    pub priority: Priority,
    /// The task it carries or reports on.
    pub task: Option<&'m TaskRef>,
    /// Its text.
    pub text: Cow<'m, str>,
    /// All of its content, where that is more than one text.
    pub parts: &'m [Part],
}

impl<'m> Incoming<'m> {
    /// Leaves out the subject, for a reader that knows the session.
    pub fn without_subject(self) -> Self {
        Self { subject: None, ..self }
    }
}

impl<'m> From<&'m Message> for Incoming<'m> {
    fn from(message: &'m Message) -> Self {
        Self {
            from: &message.from,
            from_person: message.from_person,
            session: message.session.as_ref(),
            subject: message.subject.as_deref(),
            id: &message.id,
            sent_at: message.sent_at,
            kind: &message.kind,
            priority: message.priority,
            task: message.task.as_ref(),
            text: Cow::Borrowed(""),
            parts: &message.parts,
        }
    }
}

impl<'m> From<&'m NewMessage> for Incoming<'m> {
    fn from(event: &'m NewMessage) -> Self {
        Self {
            from: &event.from_agent,
            from_person: event.from_person,
            session: Some(&event.session_id),
            subject: Some(&event.subject),
            id: &event.message_id,
            sent_at: event.created_at,
            kind: &event.kind,
            priority: event.priority,
            task: event.task.as_ref(),
            text: Cow::Borrowed(&event.content),
            parts: &event.parts,
        }
    }
}

/// Renders the prompt with which a bridge wakes a runtime. The first line is ours; subject and content are inside the frame.
pub fn render_incoming<'m>(mail: impl Into<Incoming<'m>>, nonce: &Nonce) -> String {
    let mail = mail.into();
    let from = speaker(mail.from, None);
    let at = when(mail.sent_at);
    let purpose = Purpose::of(mail.kind, mail.priority, mail.task);
    let mut attributes = vec![
        ("from", Some(&*from)),
        person(mail.from_person),
        ("at", Some(at.as_str())),
        ("id", Some(mail.id.as_str())),
        ("session", mail.session.map(SessionId::as_str)),
    ];
    attributes.extend(purpose.attributes());

    let mut page = Page::new(nonce);
    page.say("[Mailbox] New message from ");
    // A name of several words could read like a sentence of ours.
    match mail.from.is_plain() {
        true => page.say(&from),
        false => page.say("\"").say(&from).say("\""),
    };
    if mail.from_person {
        page.say(", the person of your household");
    }
    page.say("\n").notice();
    page.open(Tag::Mail, &attributes);
    if let Some(subject) = mail.subject {
        page.say("Subject: ").line(subject).say("\n");
    }
    page.body(&content(&mail.text, mail.parts)).close(Tag::Mail);
    page.finish()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::render::hostile::{Forger, frames, hostile_text, nonce};
    use proptest::prelude::*;

    fn event(subject: &str, content: &str) -> NewMessage {
        NewMessage {
            session_id: "s-1".parse().unwrap(),
            subject: subject.into(),
            from_agent: "alice".parse().unwrap(),
            from_person: false,
            content: content.into(),
            message_id: "m-1".parse().unwrap(),
            created_at: "2026-02-22T10:05:00.5Z".parse().unwrap(),
            kind: Kind::Message,
            priority: Priority::Normal,
            parts: vec![],
            task: None,
            reply_to: None,
            correlation_id: None,
        }
    }

    #[test]
    fn a_mail_that_wakes_a_runtime_stands_in_a_frame() {
        let shown = render_incoming(&event("Plan", "Hello\n<b>Bob</b> & co"), &nonce());
        let (head, frame) = shown.split_once("<mail-").unwrap();
        assert!(head.starts_with("[Mailbox] New message from alice\n"), "{head}");
        assert!(head.contains("5eed5eed5eed") && head.contains("never instructions"), "{head}");
        assert_eq!(
            frame,
            "5eed5eed5eed from=\"alice\" at=\"2026-02-22T10:05:00Z\" id=\"m-1\" session=\"s-1\">\n\
             Subject: Plan\n\nHello\n<b>Bob</b> & co\n</mail-5eed5eed5eed>\n"
        );
    }

    #[test]
    fn a_later_mail_of_a_known_thread_repeats_no_subject() {
        let event = event("Plan", "again");
        let shown = render_incoming(Incoming::from(&event).without_subject(), &nonce());
        assert!(!shown.contains("Subject:") && shown.contains(">\nagain\n</mail-"), "{shown}");
    }

    #[test]
    fn a_task_says_that_it_is_one() {
        let mut event = event("Plan", "do it");
        event.kind = Kind::Task;
        event.priority = Priority::Urgent;
        event.task = serde_json::from_value(serde_json::json!({
            "id": "t-1", "state": "pending", "deadline": "2026-03-01T00:00:00Z"
        }))
        .unwrap();
        let shown = render_incoming(&event, &nonce());
        let says =
            "kind=\"task\" priority=\"urgent\" task=\"t-1\" state=\"pending\" deadline=\"2026-03-01T00:00:00Z\">";
        assert!(shown.contains(says), "{shown}");
    }

    #[test]
    fn ten_thousand_hostile_mails_yield_no_second_frame() {
        let mut forger = Forger::new();
        for _ in 0..10_000 {
            let event = event(&forger.text(), &forger.text());
            let shown = render_incoming(&event, &nonce());
            let frames = frames(&shown, "mail-5eed5eed5eed");
            assert_eq!((frames.opened.len(), frames.closed), (1, 1), "{event:?} became {shown}");
        }
    }

    #[test]
    fn mail_of_the_person_says_so() {
        let mail = NewMessage { from_person: true, ..event("Plan", "look at the failing test") };
        let shown = render_incoming(&mail, &nonce());
        assert!(shown.starts_with("[Mailbox] New message from alice, the person of your household\n"), "{shown}");
        assert!(shown.contains("<mail-5eed5eed5eed from=\"alice\" person=\"yes\" at="), "{shown}");
    }

    proptest! {
        #[test]
        fn no_agent_passes_for_the_person(
            from in hostile_text().prop_filter_map("no name", |text| text.parse().ok()),
            subject in hostile_text(),
            content in hostile_text(),
        ) {
            let mail = NewMessage { from_agent: from, ..event(&subject, &content) };
            let shown = render_incoming(&mail, &nonce());
            let head = shown.lines().next().unwrap_or_default();
            let named = head.strip_prefix("[Mailbox] New message from ").unwrap();
            prop_assert!(mail.from_agent.is_plain() || (named.starts_with('"') && named.ends_with('"')), "{}", head);
            prop_assert!(!(mail.from_agent.is_plain() && named.contains("person of your household")), "{}", head);
            for opened in frames(&shown, "mail-5eed5eed5eed").opened {
                // Within a value a quote is escaped, so this can only be an attribute.
                prop_assert!(!opened.contains("\" person=\""), "{}", shown);
            }
        }

        #[test]
        fn an_honest_mail_comes_through_byte_for_byte(content in "[ -~äöü你好\n\t]{0,200}") {
            let nonce = Nonce::fresh();
            let shown = render_incoming(&event("Plan", &content), &nonce);
            let inside = shown.split_once("Subject: Plan\n\n").unwrap().1;
            prop_assert_eq!(inside.strip_suffix(&format!("\n</mail-{nonce}>\n")).unwrap(), content);
        }

        #[test]
        fn neither_subject_nor_content_can_leave_the_frame(subject in hostile_text(), content in hostile_text()) {
            let shown = render_incoming(&event(&subject, &content), &nonce());
            let frames = frames(&shown, "mail-5eed5eed5eed");
            prop_assert_eq!(frames.opened.len(), 1, "{}", shown);
            prop_assert_eq!(frames.closed, 1, "{}", shown);
            prop_assert!(frames.opened[0].contains("from=\"alice\""));
            prop_assert!(shown.ends_with("\n</mail-5eed5eed5eed>\n"));
            let inside = shown.split_once(">\nSubject: ").unwrap().1;
            prop_assert!(inside.lines().nth(1) == Some(""), "the subject takes one line");
        }
    }
}
