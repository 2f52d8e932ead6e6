//! Receipts, lists and claims.

use std::time::Duration;

use amb_core::mailbox::ClaimRequest;
use amb_core::{Code, Event, MessageId, Priority, ReceiptState};

use super::*;
use amb_store::Handed;
use amb_store::MessageQuery;

fn query() -> MessageQuery {
    MessageQuery { limit: 100, ..MessageQuery::default() }
}

fn states(entries: &[amb_store::LogEntry]) -> Vec<(AgentName, ReceiptState)> {
    entries
        .iter()
        .filter_map(|one| match &one.entry.event {
            Event::Receipt { receipt, .. } => Some((receipt.recipient.clone(), receipt.state)),
            _ => None,
        })
        .collect()
}

pub async fn a_receipt_says_queued_then_delivered_then_read(store: TestStore) {
    let (alice, bob) = store.pair().await;
    let sent = store.say(&alice, &bob, "Plan", "hello").await;
    let id = &sent.answer.message_id;
    let cursor = sent.entries[0].entry.cursor.as_number().unwrap();
    let seen = store.message(&alice, id).await.unwrap();
    assert_eq!((seen.message.text(), seen.message.ttl), ("hello".to_owned(), 2));
    assert_eq!((&seen.message.from, &seen.message.to), (&alice.name, &bob.name));
    assert_eq!(seen.receipts.len(), 1);
    assert_eq!((seen.receipts[0].state, seen.receipts[0].queued_at), (ReceiptState::Queued, at(1)));

    let handed = store.delivered(&bob, cursor - 1, cursor, at(5)).await.unwrap();
    assert_eq!(handed.answer, Handed { messages: 1, reached: cursor });
    assert_eq!(states(&handed.entries), [(bob.name.clone(), ReceiptState::Delivered)]);
    assert_eq!(handed.entries[0].agent, alice.key);
    assert_eq!(store.delivered(&bob, 0, cursor, at(6)).await.unwrap().answer.messages, 0, "once");
    let read = store.ack(&bob, std::slice::from_ref(id), at(7)).await.unwrap();
    assert_eq!((read.answer, states(&read.entries)), (1, vec![(bob.name.clone(), ReceiptState::Read)]));
    assert_eq!(store.ack(&bob, std::slice::from_ref(id), at(8)).await.unwrap().answer, 0, "twice is no error");
    for viewer in [&alice, &bob] {
        let receipt = store.message(viewer, id).await.unwrap().receipts.remove(0);
        assert_eq!(
            (receipt.state, receipt.delivered_at, receipt.read_at),
            (ReceiptState::Read, Some(at(5)), Some(at(7)))
        );
    }
    assert_eq!(store.inbox(&bob, false, at(9)).await.unwrap().unread(), 0);
    let carol = store.enter("carol").await;
    assert_eq!(code(store.message(&carol, id).await), Code::NotFound, "nobody else's");
    assert_eq!(code(store.ack(&carol, std::slice::from_ref(id), at(9)).await), Code::NotFound);
    assert_eq!(code(store.ack(&alice, std::slice::from_ref(id), at(9)).await), Code::NotFound, "not by its sender");
}

pub async fn a_ring_is_told_to_the_sender_once_and_reads_nothing(store: TestStore) {
    let (alice, bob) = store.pair().await;
    let sent = store.say(&alice, &bob, "Plan", "hello").await;
    let ids = [sent.answer.message_id.clone()];
    let receipt = async |who| store.message(who, &ids[0]).await.unwrap().receipts.remove(0);
    assert_eq!(code(store.rung(&alice, &ids, at(2)).await), Code::NotFound, "not by its sender");
    let rung = store.rung(&bob, &ids, at(3)).await.unwrap();
    assert_eq!((rung.answer, rung.entries.len(), rung.entries[0].agent), (1, 1, alice.key));
    let reported = match &rung.entries[0].entry.event {
        Event::Receipt { receipt, .. } => receipt.clone(),
        other => panic!("{other:?}"),
    };
    assert_eq!(
        (reported.word(), reported.state, reported.rung_at),
        ("rung", ReceiptState::Queued, Some(at(3))),
        "not delivered"
    );
    assert_eq!((receipt(&alice).await, receipt(&bob).await), (reported.clone(), reported));
    let again = store.rung(&bob, &ids, at(4)).await.unwrap();
    assert_eq!(
        (again.answer, again.entries.len(), receipt(&alice).await.rung_at),
        (0, 0, Some(at(3))),
        "the first counts"
    );
    assert_eq!(store.inbox(&bob, false, at(5)).await.unwrap().unread(), 1);

    let cursor = sent.entries[0].entry.cursor.as_number().unwrap();
    store.delivered(&bob, cursor - 1, cursor, at(5)).await.unwrap();
    assert_eq!(receipt(&alice).await.word(), "rung", "the farther of the two");
    store.ack(&bob, &ids, at(6)).await.unwrap();
    let read = receipt(&alice).await;
    assert_eq!((read.word(), read.rung_at, read.since()), ("read", Some(at(3)), at(6)));

    let other = [store.say(&alice, &bob, "Plan", "read at once").await.answer.message_id];
    store.ack(&bob, &other, at(7)).await.unwrap();
    assert_eq!(store.rung(&bob, &other, at(8)).await.unwrap().answer, 0, "nobody is rung for what is read");
    let carol = store.enter("carol").await;
    assert_eq!(code(store.rung(&carol, &ids, at(9)).await), Code::NotFound, "nobody else's");
}

pub async fn an_ack_is_atomic(store: TestStore) {
    let (alice, bob) = store.pair().await;
    let good = store.say(&alice, &bob, "Plan", "1").await.answer.message_id;
    let ids: Vec<MessageId> = vec![good.clone(), "00000000-0000-7000-8000-000000000000".parse().unwrap()];
    assert_eq!(code(store.ack(&bob, &ids, at(2)).await), Code::NotFound);
    assert_eq!(store.inbox(&bob, false, at(3)).await.unwrap().unread(), 1);
    let other = store.say(&alice, &bob, "Other", "2").await.answer.message_id;
    assert_eq!(store.ack(&bob, &[good.clone(), other, good], at(2)).await.unwrap().answer, 2);
    assert_eq!(store.inbox(&bob, false, at(3)).await.unwrap().unread(), 0);
}

pub async fn a_receipt_for_ones_own_message_names_the_reason(store: TestStore) {
    let (alice, bob) = store.pair().await;
    let ids = [store.say(&alice, &bob, "Plan", "1").await.answer.message_id];
    store.message(&alice, &ids[0]).await.unwrap();
    let lease = std::time::Duration::from_secs(60);
    let refused = [
        store.ack(&alice, &ids, at(2)).await.unwrap_err(),
        store.rung(&alice, &ids, at(2)).await.unwrap_err(),
        store.release(&alice, &ids).await.unwrap_err(),
        store.renew(&alice, &ids, lease, at(2)).await.unwrap_err(),
    ];
    for error in refused {
        assert_eq!((error.code(), error.detail()), (Code::NotFound, &*format!("no message {} came to you", ids[0])));
    }
}

pub async fn messages_are_listed_by_filter_and_page(store: TestStore) {
    let (alice, bob) = store.pair().await;
    let carol = store.enter("carol").await;
    store.connect(&carol, &bob).await;
    for n in 0..6 {
        let from = if n % 2 == 0 { &alice } else { &carol };
        let draft = Draft {
            kind: if n == 3 { "work_assignment".parse().unwrap() } else { Default::default() },
            correlation_id: (n == 4).then(|| "c-4".parse().unwrap()),
            ..Draft::text(bob.name.clone(), "Plan", n.to_string())
        };
        store.send(from, draft, at(n)).await.unwrap();
    }
    let list = async |query: MessageQuery| -> Vec<String> {
        store.messages(&bob, query).await.unwrap().messages.into_iter().map(|m| m.message.text()).collect()
    };
    assert_eq!(list(query()).await, ["5", "4", "3", "2", "1", "0"]);
    assert_eq!(list(MessageQuery { from: Some(carol.name.clone()), ..query() }).await, ["5", "3", "1"]);
    assert_eq!(list(MessageQuery { from: Some(name("CAROL")), ..query() }).await, ["5", "3", "1"]);
    assert!(list(MessageQuery { from: Some(name("nobody")), ..query() }).await.is_empty());
    assert_eq!(list(MessageQuery { kind: Some("work_assignment".parse().unwrap()), ..query() }).await, ["3"]);
    assert_eq!(list(MessageQuery { kind: Some(Default::default()), ..query() }).await.len(), 5);
    assert_eq!(list(MessageQuery { correlation_id: Some("c-4".parse().unwrap()), ..query() }).await, ["4"]);
    let session = store.messages(&bob, query()).await.unwrap().messages[1].message.session.clone().unwrap();
    assert_eq!(list(MessageQuery { session: Some(session.clone()), ..query() }).await, ["4", "2", "0"]);
    store.texts(&bob, &session, 2).await;
    assert_eq!(list(MessageQuery { unread: true, ..query() }).await, ["5", "3", "1", "0"]);

    let (mut before, mut seen) = (None, Vec::new());
    loop {
        let page = store.messages(&bob, MessageQuery { before, limit: 4, ..query() }).await.unwrap();
        seen.extend(page.messages.into_iter().map(|m| m.message.text()));
        before = page.next;
        if before.is_none() {
            break;
        }
    }
    assert_eq!(seen, ["5", "4", "3", "2", "1", "0"]);
    assert!(store.messages(&alice, query()).await.unwrap().messages.is_empty(), "what one sent did not come to one");
}

pub async fn a_claimed_message_has_one_holder_until_its_lease_ends(store: TestStore) {
    let (alice, bob) = store.pair().await;
    for (n, priority) in [Priority::Low, Priority::Normal, Priority::Urgent, Priority::Normal].into_iter().enumerate() {
        let draft = Draft { priority, ..Draft::text(bob.name.clone(), "Plan", n.to_string()) };
        store.send(&alice, draft, at(1)).await.unwrap();
    }
    let claim = async |limit, urgent_first, seconds| -> Vec<(String, MessageId)> {
        let request = ClaimRequest { limit, urgent_first, lease: Duration::from_secs(10) };
        let taken = store.claim(&bob, request, at(seconds)).await.unwrap().answer;
        taken.into_iter().map(|message| (message.text(), message.id)).collect()
    };
    let first = claim(2, true, 10).await;
    assert_eq!(first.iter().map(|(text, _)| text.as_str()).collect::<Vec<_>>(), ["2", "1"], "urgent, then by time");
    let second = claim(9, false, 10).await;
    assert_eq!(second.iter().map(|(text, _)| text.as_str()).collect::<Vec<_>>(), ["0", "3"]);
    assert!(claim(9, false, 19).await.is_empty(), "all are held");
    let held = async |seconds| -> Vec<String> {
        let query = MessageQuery { claimed_at: Some(at(seconds)), ..query() };
        store.messages(&bob, query).await.unwrap().messages.into_iter().map(|m| m.message.text()).collect()
    };
    assert_eq!(held(19).await, ["3", "2", "1", "0"]);
    assert!(held(20).await.is_empty(), "the leases have run out");
    store.ack(&bob, &[first[0].1.clone(), second[0].1.clone()], at(19)).await.unwrap();
    store.release(&bob, &[second[1].1.clone()]).await.unwrap();
    assert_eq!(held(19).await, ["1"], "neither what was read nor what was given back");
    assert_eq!(
        claim(9, false, 19).await.iter().map(|(text, _)| text.as_str()).collect::<Vec<_>>(),
        ["3"],
        "given back"
    );
    assert_eq!(
        claim(9, false, 20).await.iter().map(|(text, _)| text.as_str()).collect::<Vec<_>>(),
        ["1"],
        "lease over"
    );
    let receipt = store.message(&alice, &first[1].1).await.unwrap().receipts.remove(0);
    assert_eq!((receipt.state, receipt.delivered_at), (ReceiptState::Delivered, Some(at(10))));
    assert_eq!(code(store.release(&alice, &[first[1].1.clone()]).await), Code::NotFound);
}

pub async fn a_lease_is_renewed_only_before_it_ends(store: TestStore) {
    let (alice, bob) = store.pair().await;
    let id = store.say(&alice, &bob, "Plan", "0").await.answer.message_id;
    let claim = async |seconds| -> usize {
        let request = ClaimRequest { limit: 9, lease: Duration::from_secs(10), ..ClaimRequest::default() };
        store.claim(&bob, request, at(seconds)).await.unwrap().answer.len()
    };
    let renew =
        async |who, seconds| store.renew(who, std::slice::from_ref(&id), Duration::from_secs(10), at(seconds)).await;
    renew(&bob, 5).await.unwrap();
    assert_eq!(claim(5).await, 1, "what nobody holds is not taken by renewing");
    renew(&bob, 14).await.unwrap();
    assert_eq!(claim(23).await, 0, "its first lease would be over");
    renew(&bob, 24).await.unwrap();
    assert_eq!(claim(24).await, 1, "too late");
    assert_eq!(code(renew(&alice, 25).await), Code::NotFound);
    store.ack(&bob, std::slice::from_ref(&id), at(26)).await.unwrap();
    renew(&bob, 27).await.unwrap();
    assert_eq!(claim(50).await, 0, "read is read");
}

pub async fn concurrent_claims_return_each_message_once(store: TestStore) {
    let (alice, bob) = store.pair().await;
    for n in 0..30 {
        store.say(&alice, &bob, "Plan", &n.to_string()).await;
    }
    let takers: Vec<_> = (0..6)
        .map(|_| {
            let (store, bob) = (store.clone(), bob.clone());
            tokio::spawn(async move {
                let mut taken = Vec::new();
                loop {
                    let request = ClaimRequest { limit: 2, ..ClaimRequest::default() };
                    let some = store.claim(&bob, request, at(2)).await.unwrap().answer;
                    if some.is_empty() {
                        return taken;
                    }
                    taken.extend(some.into_iter().map(|message| message.text()));
                }
            })
        })
        .collect();
    let mut taken = Vec::new();
    for taker in takers {
        taken.extend(taker.await.unwrap());
    }
    taken.sort_by_key(|text| text.parse::<u32>().unwrap());
    assert_eq!(taken, (0..30).map(|n| n.to_string()).collect::<Vec<_>>());
}

pub async fn a_long_range_of_entries_is_marked_as_delivered(store: TestStore) {
    const MANY: usize = 1_100;
    let (alice, bob) = store.pair().await;
    let sending: Vec<_> = (0..MANY)
        .map(|n| {
            let (store, alice, bob) = (store.clone(), alice.clone(), bob.clone());
            tokio::spawn(async move { store.say(&alice, &bob, "Plan", &n.to_string()).await.answer.message_id })
        })
        .collect();
    let mut last = None;
    for sent in sending {
        last = Some(sent.await.unwrap());
    }
    let head = store.event_head(bob.key).await.unwrap();
    // Also beyond the end, as after the numbers were moved forward.
    let end = head + 5_000_000;
    let first = store.delivered(&bob, 0, end, at(5)).await.unwrap();
    assert_eq!(first.answer, Handed { messages: 1_000, reached: head - 100 }, "bob's log begins with a request");
    let second = store.delivered(&bob, first.answer.reached, end, at(5)).await.unwrap();
    assert_eq!(second.answer, Handed { messages: 100, reached: end });
    assert_eq!(first.entries.len() + second.entries.len(), MANY);
    let receipt = store.message(&alice, &last.unwrap()).await.unwrap().receipts.remove(0);
    assert_eq!(receipt.state, ReceiptState::Delivered);
}
