//! One message, as the prompt that wakes an agent runtime.

use super::content::{Purpose, content, person, speaker, when};
use super::fence::Nonce;
use super::page::{Page, Tag};
use crate::id::SessionId;
use crate::message::Message;

/// Renders the prompt with which a bridge wakes a runtime. The first line is ours; subject and content are inside the
/// frame. `show_subject` is false for later messages of a session.
pub fn render_incoming(mail: &Message, show_subject: bool, nonce: &Nonce) -> String {
    let from = speaker(&mail.from, None);
    let at = when(mail.sent_at);
    let purpose = Purpose::of(&mail.kind, mail.priority, mail.task.as_ref());
    let mut attributes = vec![
        ("from", Some(&*from)),
        person(mail.from_person),
        ("at", Some(at.as_str())),
        ("id", Some(mail.id.as_str())),
        ("session", mail.session.as_ref().map(SessionId::as_str)),
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
    if let Some(subject) = mail.subject.as_deref().filter(|_| show_subject) {
        page.say("Subject: ").line(subject).say("\n");
    }
    page.body(&content("", &mail.parts)).close(Tag::Mail);
    page.finish()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::message::{Kind, Priority};
    use crate::render::hostile::{Forger, frames, hostile_text, nonce};
    use proptest::prelude::*;

    fn mail(subject: &str, content: &str) -> Message {
        serde_json::from_value(serde_json::json!({
            "id": "m-1", "from": "alice", "to": "bob", "session": "s-1", "subject": subject,
            "sent_at": "2026-02-22T10:05:00.5Z", "parts": [{"type": "text", "text": content}],
            "ttl": 2, "trace": ["alice"],
        }))
        .unwrap()
    }

    #[test]
    fn an_incoming_message_is_inside_a_frame() {
        let shown = render_incoming(&mail("Plan", "Hello\n<b>Bob</b> & co"), true, &nonce());
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
    fn a_later_message_of_a_session_does_not_repeat_the_subject() {
        let shown = render_incoming(&mail("Plan", "again"), false, &nonce());
        assert!(!shown.contains("Subject:") && shown.contains(">\nagain\n</mail-"), "{shown}");
    }

    #[test]
    fn a_task_has_attributes() {
        let mut mail = mail("Plan", "do it");
        mail.kind = Kind::Task;
        mail.priority = Priority::Urgent;
        mail.task = serde_json::from_value(serde_json::json!({
            "id": "t-1", "state": "pending", "deadline": "2026-03-01T00:00:00Z"
        }))
        .unwrap();
        let shown = render_incoming(&mail, true, &nonce());
        let says =
            "kind=\"task\" priority=\"urgent\" task=\"t-1\" state=\"pending\" deadline=\"2026-03-01T00:00:00Z\">";
        assert!(shown.contains(says), "{shown}");
    }

    #[test]
    fn hostile_messages_make_no_second_frame() {
        let mut forger = Forger::new();
        for _ in 0..10_000 {
            let mail = mail(&forger.text(), &forger.text());
            let shown = render_incoming(&mail, true, &nonce());
            let frames = frames(&shown, "mail-5eed5eed5eed");
            assert_eq!((frames.opened.len(), frames.closed), (1, 1), "{mail:?} became {shown}");
        }
    }

    #[test]
    fn mail_from_the_person_is_marked() {
        let mail = Message { from_person: true, ..mail("Plan", "look at the failing test") };
        let shown = render_incoming(&mail, true, &nonce());
        assert!(shown.starts_with("[Mailbox] New message from alice, the person of your household\n"), "{shown}");
        assert!(shown.contains("<mail-5eed5eed5eed from=\"alice\" person=\"yes\" at="), "{shown}");
    }

    proptest! {
        #[test]
        fn no_agent_can_imitate_the_person(
            from in hostile_text().prop_filter_map("no name", |text| text.parse().ok()),
            subject in hostile_text(),
            content in hostile_text(),
        ) {
            let mail = Message { from, ..mail(&subject, &content) };
            let shown = render_incoming(&mail, true, &nonce());
            let head = shown.lines().next().unwrap_or_default();
            let named = head.strip_prefix("[Mailbox] New message from ").unwrap();
            prop_assert!(mail.from.is_plain() || (named.starts_with('"') && named.ends_with('"')), "{}", head);
            prop_assert!(!(mail.from.is_plain() && named.contains("person of your household")), "{}", head);
            for opened in frames(&shown, "mail-5eed5eed5eed").opened {
                // Within a value a quote is escaped, so this can only be an attribute.
                prop_assert!(!opened.contains("\" person=\""), "{}", shown);
            }
        }

        #[test]
        fn an_ordinary_message_is_kept_byte_for_byte(content in "[ -~äöü你好\n\t]{0,200}") {
            let nonce = Nonce::fresh();
            let shown = render_incoming(&mail("Plan", &content), true, &nonce);
            let inside = shown.split_once("Subject: Plan\n\n").unwrap().1;
            prop_assert_eq!(inside.strip_suffix(&format!("\n</mail-{nonce}>\n")).unwrap(), content);
        }

        #[test]
        fn neither_subject_nor_content_can_leave_the_frame(subject in hostile_text(), content in hostile_text()) {
            let shown = render_incoming(&mail(&subject, &content), true, &nonce());
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
