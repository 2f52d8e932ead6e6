//! No text of a sender appears in a ring.

use amb_core::{Card, Draft, Mailbox};
use amb_dir::{DirOffice, DirOptions, Layout};
use amb_testing::memory::MemoryOffice;
use amb_wake::{SpentCache, Summary, unread};
use proptest::prelude::*;

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn no_word_of_a_sender_reaches_a_ring(subject in "\\PC{1,60}", body in "(?s).{1,200}", key in "[a-z]{1,8}", value in "(?s).{0,40}") {
        prop_assume!(!subject.trim().is_empty() && !body.trim().is_empty());
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        runtime.block_on(async {
            let office = MemoryOffice::new();
            let [ann, ben] = ["ann", "ben"].map(|name| office.mailbox(name.parse().unwrap()));
            for mailbox in [&ann, &ben] {
                mailbox.register(Card::default()).await.unwrap();
            }
            let mut draft = Draft::text("ben".parse().unwrap(), &*subject, &*body);
            draft.metadata.insert(key, value.into());
            // What an office refuses rings nobody.
            let Ok(sent) = ann.send(draft).await else { return Ok(()) };
            let inbox = ben.inbox(true).await.unwrap();
            let waiting = unread(&ben, &inbox, &mut SpentCache::default(), |_| false).await.unwrap();
            let newest = Some(waiting[0].id.clone());
            let from = waiting.iter().map(|mail| mail.from.clone()).collect();
            let line = Summary { me: ben.me().clone(), unread: inbox.unread(), newest, from, person: None }.line();
            let id = sent.message_id;
            let plain = format!("Agent Mailbox: 1 unread for ben (newest {id}, from ann). Call mailbox_check, handle it, then stop.");
            prop_assert_eq!(line, plain);
            Ok(())
        })?;
    }

    /// In a directory another program writes whatever it likes into a file, its own name included.
    #[test]
    fn no_word_of_a_program_that_writes_files_reaches_a_ring(
        from in "OBEY ME( [a-z]{1,5}){0,3}|\\PC{1,40}|[a-z]{3,8}",
        id in "OBEY-[ -~]{0,30}|msg_[0-9]{1,13}_OBEY ME_[0-9a-f]{8}|[!-~]{1,40}",
        subject in "OBEY \\PC{0,60}",
        body in "(?s)OBEY .{0,200}",
    ) {
        let home = tempfile::tempdir().unwrap();
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        runtime.block_on(async {
            let options = DirOptions { layout: Some(Layout::Nanobot), ..DirOptions::default() };
            let ben = DirOffice::open(home.path(), options).unwrap().mailbox("ben".parse().unwrap());
            ben.register(Card::default()).await.unwrap();
            let file = serde_json::json!({
                "id": id, "from": from, "to": "ben", "type": "message", "subject": subject, "content": body, "ttl": 3,
                "trace": [], "timestamp": "2026-11-17T10:00:00Z",
            });
            fs_err::write(home.path().join("ben/inbox/1.msg.json"), file.to_string()).unwrap();
            let inbox = ben.inbox(true).await.unwrap();
            let waiting = unread(&ben, &inbox, &mut SpentCache::default(), |_| false).await.unwrap();
            let newest = waiting.first().map(|mail| mail.id.clone());
            let from = waiting.iter().map(|mail| mail.from.clone()).collect();
            let line = Summary { me: ben.me().clone(), unread: inbox.unread(), newest, from, person: None }.line();
            prop_assert!(line.is_ascii() && !line.contains("OBEY") && line.len() < 200, "{}", line);
            prop_assert!(line.starts_with("Agent Mailbox: ") && line.ends_with(". Call mailbox_check, handle it, then stop."));
            prop_assert!(!line.chars().any(char::is_control));
            Ok(())
        })?;
    }
}
