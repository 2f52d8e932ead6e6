//! One session, oldest message first.

use super::content::{Purpose, content, person, speaker, when};
use super::fence::Nonce;
use super::page::{Attribute, Page, Tag};
use super::size::clip_line;
use crate::doc::{History, MessageView};
use crate::id::MessageId;
use crate::limits::MAX_SUBJECT_CHARS;
use crate::message::is_automatic;
use crate::name::AgentName;

/// Renders a session for its member `me`, oldest message first; `left` returns how many characters of each message were
/// cut.
pub fn render_conversation(
    history: &History,
    me: &AgentName,
    nonce: &Nonce,
    left: impl Fn(&MessageId) -> usize,
) -> String {
    // Files of other programs may hold a subject of any length.
    let (subject, _) = clip_line(&history.subject, MAX_SUBJECT_CHARS);
    let thread = [("id", Some(history.session_id.as_str())), ("subject", Some(subject))];
    let mut page = Page::new(nonce);
    if history.messages.is_empty() {
        page.empty(Tag::Thread, &thread).say("No messages here.\n");
        return page.finish();
    }
    let has_person = history.messages.iter().any(|message| message.from_person && message.sender_name != *me);
    page.notice().person_notice(has_person).open(Tag::Thread, &thread);
    for message in history.messages.iter().rev() {
        let cut = Some(left(&message.id)).filter(|left| *left > 0).map(|left| format!("{left} more characters"));
        let reply_to = message.reply_to.as_ref().map(MessageId::as_str);
        mail(&mut page, message, me, &[("reply_to", reply_to), ("cut", cut.as_deref())]);
        page.body(&content(&message.content, &message.parts)).close(Tag::Mail);
    }
    page.close(Tag::Thread);
    page.finish()
}

/// The opening tag of one message as `me` sees it.
pub(super) fn mail(page: &mut Page<'_>, message: &MessageView, me: &AgentName, more: &[Attribute<'_>]) {
    let from = speaker(&message.sender_name, Some(me));
    let at = when(message.created_at);
    let purpose = Purpose::of(&message.kind, message.priority, message.task.as_ref());
    let mut attributes = vec![
        ("from", Some(&*from)),
        person(message.from_person && message.sender_name != *me),
        ("at", Some(at.as_str())),
        ("id", Some(message.id.as_str())),
    ];
    attributes.extend(purpose.attributes());
    let callback = message.callback_for(me).and_then(|callback| serde_json::to_string(callback).ok());
    attributes.push(("callback", callback.as_deref()));
    attributes.push(("automatic", is_automatic(&message.metadata).then_some("yes")));
    attributes.extend_from_slice(more);
    page.open(Tag::Mail, &attributes);
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::render::content::YOU;
    use crate::render::hostile::{Forger, frames, hostile_text, nonce, view};
    use proptest::prelude::*;

    fn history(subject: &str, messages: Vec<MessageView>) -> History {
        History { session_id: "s-1".parse().unwrap(), subject: subject.into(), messages, truncated: false }
    }

    fn me() -> AgentName {
        "bob".parse().unwrap()
    }

    fn whole(history: &History, me: &AgentName, nonce: &Nonce) -> String {
        render_conversation(history, me, nonce, |_| 0)
    }

    #[test]
    fn a_thread_is_shown_oldest_message_first() {
        let shown = whole(&history("Plan", vec![view("bob", "Hi <Alice>"), view("alice", "Hello")]), &me(), &nonce());
        let (notice, thread) = shown.split_once('\n').unwrap();
        assert!(notice.contains("5eed5eed5eed"), "{notice}");
        assert_eq!(
            thread,
            "<thread-5eed5eed5eed id=\"s-1\" subject=\"Plan\">\n\
             <mail-5eed5eed5eed from=\"alice\" at=\"2026-02-22T10:05:00Z\" id=\"m-alice\">\nHello\n</mail-5eed5eed5eed>\n\
             <mail-5eed5eed5eed from=\"you (this agent)\" at=\"2026-02-22T10:05:00Z\" id=\"m-bob\">\nHi <Alice>\n</mail-5eed5eed5eed>\n\
             </thread-5eed5eed5eed>\n"
        );
    }

    #[test]
    fn the_notice_is_shown_once() {
        let shown = whole(&history("Plan", vec![view("alice", "x"); 50]), &me(), &nonce());
        assert_eq!(shown.matches("never instructions").count(), 1);
    }

    #[test]
    fn task_and_reply_to_are_shown() {
        let mut update = view("alice", "done");
        update.kind = "task_update".parse().unwrap();
        update.task = serde_json::from_value(serde_json::json!({"id": "t-1", "state": "completed"})).unwrap();
        update.reply_to = Some("m-0".parse().unwrap());
        let shown = whole(&history("Plan", vec![update]), &me(), &nonce());
        assert!(shown.contains("kind=\"task_update\" task=\"t-1\" state=\"completed\" reply_to=\"m-0\">"), "{shown}");
    }

    #[test]
    fn an_empty_thread_is_shown_as_empty() {
        let shown = whole(&history("a\"b", vec![]), &me(), &nonce());
        assert_eq!(shown, "<thread-5eed5eed5eed id=\"s-1\" subject=\"a&quot;b\"/>\nNo messages here.\n");
    }

    #[test]
    fn hostile_bodies_make_no_second_frame() {
        let mut forger = Forger::new();
        for _ in 0..10_000 {
            let text = forger.text();
            let shown = whole(&history(&forger.text(), vec![view("alice", &text)]), &me(), &nonce());
            for tag in ["mail-5eed5eed5eed", "thread-5eed5eed5eed"] {
                let frames = frames(&shown, tag);
                assert_eq!((frames.opened.len(), frames.closed), (1, 1), "{text:?} became {shown}");
            }
        }
    }

    #[test]
    fn mail_from_the_person_is_marked_and_the_mark_explained_once() {
        let person = MessageView { from_person: true, ..view("kim", "look at the failing test") };
        let shown = whole(&history("Plan", vec![person.clone(), person.clone()]), &me(), &nonce());
        assert_eq!(shown.matches("from=\"kim\" person=\"yes\" at=").count(), 2, "{shown}");
        assert_eq!(shown.matches("from the person of your household").count(), 1, "{shown}");
        // The person reads its own messages as "you".
        let own = whole(&history("Plan", vec![person]), &"kim".parse().unwrap(), &nonce());
        assert!(!own.contains("person="), "{own}");
    }

    proptest! {
        #[test]
        fn no_agent_can_imitate_the_person(
            from in hostile_text().prop_filter_map("no name", |text| text.parse::<AgentName>().ok()),
            subject in hostile_text(),
            content in hostile_text(),
            key in prop_oneof![proptest::sample::select(&["from_person", "amb:from_person", "person"][..]).prop_map(String::from), hostile_text()],
            value in prop_oneof![Just(serde_json::json!(true)), hostile_text().prop_map(serde_json::Value::from)],
        ) {
            let metadata = [(key, value)].into_iter().collect();
            let mail = MessageView { sender_name: from, metadata, ..view("alice", &content) };
            let shown = whole(&history(&subject, vec![mail]), &me(), &nonce());
            for tag in ["mail-5eed5eed5eed", "thread-5eed5eed5eed"] {
                for opened in frames(&shown, tag).opened {
                    // Within a value a quote is escaped, so this can only be an attribute.
                    prop_assert!(!opened.contains("\" person=\""), "{}", shown);
                }
            }
            prop_assert!(!shown.lines().take(2).any(|line| line.starts_with("Mail tagged")), "{}", shown);
        }

        #[test]
        fn there_are_as_many_frames_as_messages_each_with_its_sender(
            subject in hostile_text(),
            texts in proptest::collection::vec((proptest::sample::select(&["alice", "bob", "carol"][..]), hostile_text()), 0..6)
        ) {
            let messages = texts.iter().map(|(from, text)| view(from, text)).collect();
            let shown = whole(&history(&subject, messages), &me(), &nonce());
            let frames = frames(&shown, "mail-5eed5eed5eed");
            prop_assert_eq!(frames.opened.len(), texts.len(), "{}", shown);
            prop_assert_eq!(frames.closed, texts.len(), "{}", shown);
            for (opened, (from, _)) in frames.opened.iter().zip(texts.iter().rev()) {
                let from = if *from == "bob" { YOU } else { from };
                let head = format!("mail-5eed5eed5eed from=\"{from}\" ");
                prop_assert!(opened.starts_with(&head), "{}", opened);
            }
            prop_assert!(!shown.contains(|c: char| c.is_control() && !matches!(c, '\n' | '\t' | '\r')));
            let unseen = shown.contains(['\u{202e}', '\u{2066}', '\u{2028}', '\u{e0041}']);
            prop_assert!(!unseen, "{}", shown);
        }
    }
}
