//! An overview of the mailbox with previews of unread messages, short because a model pays for every word.

use super::content::{content, speaker, when};
use super::conversation::mail;
use super::fence::Nonce;
use super::page::{Page, Tag};
use super::size::{clip_line, clip_shown};
use crate::doc::{Inbox, MessageView, PendingConnection, SessionSummary};
use crate::limits::{MAX_INTRO_CHARS, MAX_SUBJECT_CHARS};
use crate::name::AgentName;

/// Maximum length of an introduction as shown. Twice what is accepted, so that only text that grows by escaping is cut.
pub const MAX_INTRO_SHOWN: usize = 2 * MAX_INTRO_CHARS;

/// How much of an inbox is shown.
#[derive(Debug, Clone, Copy)]
pub struct InboxView<'h> {
    /// Maximum number of characters of each message.
    pub preview_chars: usize,
    /// Sessions to skip because an earlier page showed them.
    pub skip_threads: usize,
    /// Maximum number of sessions; the rest is only counted.
    pub max_threads: usize,
    /// Maximum number of connection requests; the rest is only counted.
    pub max_requests: usize,
    /// How to read a whole session at this door: "call mailbox_read with its id".
    pub read_hint: &'h str,
    /// The number of sessions that are not shown, if the inbox does not contain all of them.
    pub threads_left: Option<usize>,
    /// How to see the other sessions.
    pub more_hint: &'h str,
    /// How to approve a request.
    pub approve_hint: &'h str,
}

impl Default for InboxView<'_> {
    fn default() -> Self {
        Self {
            preview_chars: 160,
            skip_threads: 0,
            max_threads: 20,
            max_requests: 10,
            read_hint: "read it by its id",
            threads_left: None,
            more_hint: "look again, passing over these",
            approve_hint: "ask your user for its code",
        }
    }
}

/// Renders the inbox of `me`. A session without unread messages is one tag; the others show their newest messages,
/// oldest first.
pub fn render_inbox(inbox: &Inbox, me: &AgentName, nonce: &Nonce, view: &InboxView<'_>) -> String {
    let mut page = Page::new(nonce);
    let (threads, requests) = (&inbox.sessions, &inbox.pending_connections);
    let unread = threads.iter().filter(|session| session.unread_count > 0).count();
    page.say(&match inbox.unread() {
        0 => format!("No unread mail; {}.", counted(threads.len(), "thread")),
        new => format!("{new} unread in {} of {}.", unread, counted(threads.len(), "thread")),
    });
    if !requests.is_empty() {
        page.say(" ").say(&counted(requests.len(), "connection request")).say(".");
    }
    page.say("\n");
    if threads.is_empty() && requests.is_empty() {
        return page.finish();
    }
    let mut shown =
        threads.iter().filter(|session| session.unread_count > 0).flat_map(|session| &session.recent_messages);
    page.notice().person_notice(shown.any(|message| message.from_person && message.sender_name != *me));
    if unread > 0 {
        page.say("To see a thread whole, ").say(view.read_hint).say(".\n");
    }
    // Unread sessions come first; the stable sort keeps the newest first among each.
    let mut order: Vec<&SessionSummary> = threads.iter().collect();
    order.sort_by_key(|session| session.unread_count == 0);
    for session in order.iter().skip(view.skip_threads).take(view.max_threads) {
        thread(&mut page, session, me, view);
    }
    let seen = view.skip_threads.saturating_add(view.max_threads);
    let left = view.threads_left.unwrap_or_else(|| threads.len().saturating_sub(seen));
    if left > 0 {
        page.say("And ").say(&counted(left, "thread")).say(" more, not shown: ").say(view.more_hint).say(".\n");
    }
    if !requests.is_empty() {
        page.say("To answer a connection request, ").say(view.approve_hint).say(".\n");
    }
    for pending in requests.iter().take(view.max_requests) {
        request(&mut page, pending);
    }
    if requests.len() > view.max_requests {
        page.say("And ")
            .say(&counted(requests.len() - view.max_requests, "connection request"))
            .say(" more, not shown.\n");
    }
    page.finish()
}

fn counted(number: usize, what: &str) -> String {
    let plural = if number == 1 { "" } else { "s" };
    format!("{number} {what}{plural}")
}

fn thread(page: &mut Page<'_>, session: &SessionSummary, me: &AgentName, view: &InboxView<'_>) {
    let unread = session.unread_count.to_string();
    let with = speaker(&session.other_agent_name, Some(me));
    let last = when(session.last_message_at);
    // Files of other programs may hold a subject of any length.
    let (subject, _) = clip_line(&session.subject, MAX_SUBJECT_CHARS);
    let attributes = [
        ("id", Some(session.session_id.as_str())),
        ("with", Some(&*with)),
        ("group", session.group.as_deref()),
        ("subject", Some(subject)),
        ("unread", Some(unread.as_str())),
        ("last", Some(last.as_str())),
    ];
    if session.unread_count == 0 || session.recent_messages.is_empty() {
        page.empty(Tag::Thread, &attributes);
        return;
    }
    page.open(Tag::Thread, &attributes);
    for message in session.recent_messages.iter().rev() {
        preview(page, message, me, view.preview_chars);
    }
    page.close(Tag::Thread);
}

fn preview(page: &mut Page<'_>, message: &MessageView, me: &AgentName, chars: usize) {
    let whole = content(&message.content, &message.parts);
    let (start, left) = clip_shown(&whole, chars);
    // The office has cut a long text before.
    let at_least = if message.truncated { "more than " } else { "" };
    let cut = (left > 0).then(|| format!("{at_least}{left} more characters"));
    let unread = (!message.is_read && message.sender_name != *me).then_some("yes");
    mail(page, message, me, &[("unread", unread), ("cut", cut.as_deref())]);
    page.body(start).close(Tag::Mail);
}

/// A connection request. Its code is not shown to the model: people pass it on, which proves that they know each other.
fn request(page: &mut Page<'_>, pending: &PendingConnection) {
    let from = speaker(&pending.from_agent_name, None);
    let at = when(pending.created_at);
    let attributes = [("from", Some(&*from)), ("at", Some(at.as_str())), ("id", Some(pending.connection_id.as_str()))];
    let Some(intro) = pending.message.as_deref().filter(|intro| !intro.is_empty()) else {
        page.empty(Tag::Request, &attributes);
        return;
    };
    let (intro, left) = clip_shown(intro, MAX_INTRO_SHOWN);
    page.open(Tag::Request, &attributes).body(intro);
    if left > 0 {
        page.say("(cut)\n");
    }
    page.close(Tag::Request);
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::render::hostile::{Forger, frames, hostile_text, nonce, view};
    use proptest::prelude::*;

    fn me() -> AgentName {
        "bob".parse().unwrap()
    }

    fn session(id: &str, subject: &str, unread: u64, messages: Vec<MessageView>) -> SessionSummary {
        SessionSummary {
            session_id: id.parse().unwrap(),
            subject: subject.into(),
            other_agent_name: "alice".parse().unwrap(),
            unread_count: unread,
            last_message_at: "2026-02-22T10:05:00Z".parse().unwrap(),
            recent_messages: messages,
            group: None,
            ended_by: None,
        }
    }

    fn pending(intro: Option<&str>, code: Option<&str>) -> PendingConnection {
        PendingConnection {
            connection_id: "c-1".parse().unwrap(),
            from_agent_name: "carol".parse().unwrap(),
            message: intro.map(String::from),
            verification_code: code.map(String::from),
            created_at: "2026-02-22T10:05:00Z".parse().unwrap(),
        }
    }

    fn shown(inbox: &Inbox) -> String {
        render_inbox(inbox, &me(), &nonce(), &InboxView { preview_chars: 10, max_threads: 3, ..Default::default() })
    }

    #[test]
    fn an_empty_mailbox_is_one_line() {
        assert_eq!(shown(&Inbox::default()), "No unread mail; 0 threads.\n");
    }

    #[test]
    fn an_inbox_shows_previews_and_how_to_read_on() {
        let messages = vec![view("alice", "a much longer text"), view("bob", "mine"), view("alice", "short")];
        let inbox = Inbox {
            sessions: vec![session("s-0", "Old", 0, vec![view("alice", "read")]), session("s-1", "Plan", 2, messages)],
            pending_connections: vec![pending(Some("let me in"), Some("XC-992")), pending(None, None)],
            next: None,
        };
        let shown = shown(&inbox);
        let (head, rest) = shown.split_once('<').unwrap();
        assert!(head.starts_with("2 unread in 1 of 2 threads. 2 connection requests.\n"), "{head}");
        assert!(head.contains("To see a thread whole, read it by its id.\n"), "{head}");
        assert_eq!(
            rest,
            "thread-5eed5eed5eed id=\"s-1\" with=\"alice\" subject=\"Plan\" unread=\"2\" last=\"2026-02-22T10:05:00Z\">\n\
             <mail-5eed5eed5eed from=\"alice\" at=\"2026-02-22T10:05:00Z\" id=\"m-alice\" unread=\"yes\">\nshort\n</mail-5eed5eed5eed>\n\
             <mail-5eed5eed5eed from=\"you (this agent)\" at=\"2026-02-22T10:05:00Z\" id=\"m-bob\">\nmine\n</mail-5eed5eed5eed>\n\
             <mail-5eed5eed5eed from=\"alice\" at=\"2026-02-22T10:05:00Z\" id=\"m-alice\" unread=\"yes\" cut=\"8 more characters\">\na much lon\n</mail-5eed5eed5eed>\n\
             </thread-5eed5eed5eed>\n\
             <thread-5eed5eed5eed id=\"s-0\" with=\"alice\" subject=\"Old\" unread=\"0\" last=\"2026-02-22T10:05:00Z\"/>\n\
             To answer a connection request, ask your user for its code.\n\
             <request-5eed5eed5eed from=\"carol\" at=\"2026-02-22T10:05:00Z\" id=\"c-1\">\nlet me in\n</request-5eed5eed5eed>\n\
             <request-5eed5eed5eed from=\"carol\" at=\"2026-02-22T10:05:00Z\" id=\"c-1\"/>\n"
        );
    }

    #[test]
    fn unread_threads_come_before_the_cut() {
        let mut sessions: Vec<_> = (0..5).map(|n| session(&format!("read-{n}"), "x", 0, vec![])).collect();
        sessions.push(session("new", "x", 1, vec![view("alice", "x")]));
        let shown = shown(&Inbox { sessions, ..Inbox::default() });
        assert!(
            shown.contains("id=\"new\"")
                && shown.ends_with("And 3 threads more, not shown: look again, passing over these.\n"),
            "{shown}"
        );
    }

    #[test]
    fn hostile_previews_make_no_second_frame() {
        let mut forger = Forger::new();
        for _ in 0..10_000 {
            let thread = session("s", &forger.text(), 1, vec![view("alice", &forger.text())]);
            let chars = forger.number(80);
            let inbox = Inbox { sessions: vec![thread], ..Inbox::default() };
            let shown =
                render_inbox(&inbox, &me(), &nonce(), &InboxView { preview_chars: chars, ..Default::default() });
            for tag in ["mail-5eed5eed5eed", "thread-5eed5eed5eed"] {
                let frames = frames(&shown, tag);
                assert_eq!((frames.opened.len(), frames.closed), (1, 1), "{inbox:?} became {shown}");
            }
        }
    }

    proptest! {
        #[test]
        fn subjects_previews_and_intros_stay_in_their_frames(
            threads in proptest::collection::vec((hostile_text(), hostile_text(), 0..3u64), 0..3),
            intros in proptest::collection::vec((hostile_text(), hostile_text()), 0..3),
        ) {
            let sessions: Vec<_> =
                threads.iter().map(|(subject, text, unread)| session("s", subject, *unread, vec![view("alice", text)])).collect();
            let mails = threads.iter().filter(|(_, _, unread)| *unread > 0).count();
            let requests = intros.iter().map(|(intro, code)| pending(Some(intro), Some(code))).collect();
            let view = InboxView { preview_chars: 60, ..Default::default() };
            let shown = render_inbox(&Inbox { sessions, pending_connections: requests, next: None }, &me(), &nonce(), &view);
            for (tag, expected) in [("thread-", threads.len()), ("mail-", mails), ("request-", intros.len())] {
                let frames = frames(&shown, &format!("{tag}5eed5eed5eed"));
                prop_assert_eq!(frames.opened.len(), expected, "{} in {}", tag, shown);
                prop_assert!(frames.closed <= expected, "{} in {}", tag, shown);
                prop_assert!(!frames.opened.iter().any(|tag| tag.contains("\"boss\"")), "{}", shown);
            }
        }
    }
}
