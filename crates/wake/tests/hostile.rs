//! Whatever a sender writes, a ring says the same.

use amb_core::{Card, Draft, Mailbox};
use amb_testing::memory::MemoryOffice;
use amb_wake::{Summary, unread};
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
            let waiting = unread(&ben, &inbox, |_| false).await.unwrap();
            let newest = Some(waiting[0].id.clone());
            let from = waiting.iter().map(|mail| mail.from.clone()).collect();
            let line = Summary { me: ben.me().clone(), unread: inbox.unread(), newest, from }.line();
            let id = sent.message_id;
            let plain = format!("Agent Mailbox: 1 unread for ben (newest {id}, from ann). Call mailbox_check, handle it, then stop.");
            prop_assert_eq!(line, plain);
            Ok(())
        })?;
    }
}
