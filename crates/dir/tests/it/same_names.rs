//! Messages of other programs that share a file name and an id, because both contain only the second.

use std::time::Duration;

use amb_core::event::{Cursor, Event};
use amb_core::mailbox::{ClaimRequest, HistoryPage};
use amb_core::{Draft, Mailbox, MessageId};
use amb_dir::{DirMailbox, Layout, doctor};
use serde_json::json;

use crate::world::{LAYOUTS, World, chipset_file, name, nanobot_file, text};

/// Writes a message of fo to me: always the same name and id, whatever the text.
fn put(world: &World, text: &str, at: &str) {
    match world.layout {
        Layout::Nanobot => {
            let content = json!({"parts": [{"type": "text", "text": text}]});
            let fields = json!({"id": "msg_1772706600_fo", "timestamp": at, "content": content});
            world.drop_file("me", "1772706600_fo.msg.json", nanobot_file("fo", "me", fields));
        }
        Layout::Chipset => {
            let fields = json!({"body": text, "timestamp": at});
            world.drop_file("me", "2026-03-05T10-30-00Z-fo.json", chipset_file("fo", "me", fields));
        }
    }
}

const AT: &str = "2026-03-05T10:30:00Z";

/// Returns the messages announced after this cursor: ids and texts.
async fn announced(mailbox: &DirMailbox, since: &mut Cursor) -> Vec<(MessageId, String)> {
    let page = mailbox.events(Some(since.clone()), Duration::ZERO).await.unwrap();
    *since = page.cursor;
    let message = |event| match event {
        Event::NewMessage(new) => Some((new.message_id, new.content)),
        _ => None,
    };
    page.events.into_iter().filter_map(|entry| message(entry.event)).collect()
}

/// Returns the only session's messages, oldest first, and marks them as read.
async fn history(mailbox: &DirMailbox) -> Vec<(MessageId, String)> {
    let session = mailbox.inbox(false).await.unwrap().sessions.remove(0).session_id;
    let history = mailbox.read(&session, HistoryPage::default()).await.unwrap();
    history.messages.into_iter().rev().map(|message| (message.id, message.content)).collect()
}

#[tokio::test]
async fn a_message_with_the_name_and_id_of_a_handled_one_is_another_message() {
    for (layout, same_process) in LAYOUTS.into_iter().flat_map(|layout| [(layout, true), (layout, false)]) {
        let world = World::in_memory(layout);
        let mut me = world.agent("me").await;
        let mut cursor = Cursor::from(0);
        put(&world, "one", AT);
        let first = announced(&me, &mut cursor).await;
        assert_eq!(first.iter().map(|(_, text)| text.as_str()).collect::<Vec<_>>(), ["one"], "{layout}");
        assert_eq!(history(&me).await, first, "{layout}");
        put(&world, "two", AT);
        if !same_process {
            me = world.office().mailbox(name("me"));
        }
        let second = announced(&me, &mut cursor).await;
        assert_eq!(second.iter().map(|(_, text)| text.as_str()).collect::<Vec<_>>(), ["two"], "{layout}");
        assert_ne!(first[0].0, second[0].0, "{layout}");
        // A file of the chipset is overwritten, and the first message is gone.
        let both = match layout {
            Layout::Nanobot => [first, second].concat(),
            Layout::Chipset => second,
        };
        assert_eq!(me.inbox(true).await.unwrap().unread(), 1, "{layout}");
        for _ in 0..2 {
            let mut shown = history(&me).await;
            shown.sort();
            let mut expected = both.clone();
            expected.sort();
            assert_eq!(shown, expected, "{layout}");
            assert_eq!(me.inbox(true).await.unwrap().unread(), 0, "{layout}");
            for (id, text) in &both {
                assert_eq!(me.message(id).await.unwrap().message.text(), *text, "{layout}");
            }
            me = world.office().mailbox(name("me"));
        }
        assert!(announced(&me, &mut cursor).await.is_empty(), "{layout}");
        assert_eq!(doctor::examine(&world.office(), true).await.unwrap(), [], "{layout}");
        assert_eq!(history(&me).await.len(), both.len(), "{layout}");
    }
}

#[tokio::test]
async fn messages_that_differ_only_in_their_time_are_two() {
    let world = World::in_memory(Layout::Nanobot);
    let me = world.agent("me").await;
    let mut cursor = Cursor::from(0);
    let mut ids = Vec::new();
    for at in [AT, "2026-03-05T10:30:00.5Z"] {
        put(&world, "ok", at);
        let new = announced(&me, &mut cursor).await;
        ids.extend(new.into_iter().map(|(id, _)| id));
        let shown: Vec<_> = history(&me).await.into_iter().map(|(id, _)| id).collect();
        assert_eq!(shown, ids);
        let sent_at = me.message(ids.last().unwrap()).await.unwrap().message.sent_at;
        assert_eq!(sent_at, at.parse().unwrap());
    }
    assert_eq!(me.message(&ids[0]).await.unwrap().message.sent_at, AT.parse().unwrap());
}

#[tokio::test]
async fn handled_mail_with_one_id_is_entered_in_the_history_as_two_messages() {
    let world = World::in_memory(Layout::Nanobot);
    let me = world.agent("me").await;
    me.inbox(false).await.unwrap();
    let processed = world.path().join("me/processed");
    for (file, text) in [("1772706600_fo", "one"), ("1772706600_fo_0a1b2c3d", "two")] {
        let fields = json!({"id": "msg_1772706600_fo", "content": {"parts": [{"type": "text", "text": text}]}});
        fs_err::write(processed.join(format!("{file}.msg.json")), nanobot_file("fo", "me", fields)).unwrap();
    }
    let found = doctor::examine(&world.office(), true).await.unwrap();
    assert_eq!(found.iter().map(|finding| finding.kind).collect::<Vec<_>>(), [doctor::FindingKind::NotIndexed]);
    let mut texts: Vec<_> = history(&me).await.into_iter().map(|(_, text)| text).collect();
    texts.sort();
    assert_eq!(texts, ["one", "two"]);
    assert_eq!(doctor::examine(&world.office(), false).await.unwrap(), []);
}

#[tokio::test]
async fn an_answer_names_the_id_that_its_recipient_knows() {
    let world = World::in_memory(Layout::Nanobot);
    let me = world.agent("me").await;
    for text in ["one", "two"] {
        put(&world, text, AT);
        history(&me).await;
    }
    let second = history(&me).await.into_iter().find(|(_, text)| text == "two").unwrap().0;
    assert!(second.as_str().contains('~'), "{second}");
    let answer = Draft { reply_to: Some(second), ..text("fo", "answer") };
    me.send(answer).await.unwrap();
    let [file] = <[String; 1]>::try_from(world.files("fo/inbox")).unwrap();
    let answer = fs_err::read(world.path().join("fo/inbox").join(file)).unwrap();
    let answer: serde_json::Value = serde_json::from_slice(&answer).unwrap();
    assert_eq!(answer["reply_to"], "msg_1772706600_fo");
}

#[tokio::test]
async fn a_message_that_is_changed_in_place_is_still_delivered() {
    for layout in LAYOUTS {
        let world = World::in_memory(layout);
        let me = world.agent("me").await;
        let mut cursor = Cursor::from(0);
        put(&world, "one", AT);
        let first = announced(&me, &mut cursor).await;
        let file = fs_err::read_dir(world.inbox("me")).unwrap().next().unwrap().unwrap().path();
        let changed = fs_err::read_to_string(&file).unwrap().replace("one", "two");
        fs_err::write(&file, changed).unwrap();
        let claimed = me.claim(ClaimRequest { limit: 10, ..ClaimRequest::default() }).await.unwrap();
        assert_eq!(claimed.iter().map(|mail| mail.text()).collect::<Vec<_>>(), ["two"], "{layout}");
        assert_eq!(claimed[0].id, first[0].0, "{layout}");
    }
}
