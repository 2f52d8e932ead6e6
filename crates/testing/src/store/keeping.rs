//! Transcripts, search, retention and export.

use amb_core::Code;
use amb_core::doc::Access;
use amb_core::limits::MAX_PAGE_BYTES;
use amb_core::mailbox::{ClaimRequest, SearchQuery};
use amb_core::transcript::{Line, TranscriptKey};

use super::*;
use amb_store::{ExportQuery, MessageQuery};

pub(super) fn line(content: &str, message_id: Option<&str>) -> Line {
    Line {
        role: "user".into(),
        content: content.into(),
        sender: "ann".into(),
        author: None,
        message_id: message_id.map(Into::into),
        ts: Some(1.5),
    }
}

pub async fn a_transcript_keeps_each_line_once_and_checks_access(store: TestStore) {
    let (alice, bob) = store.pair().await;
    let (key, alices): (TranscriptKey, _) = ("feishu:oc_1".parse().unwrap(), Some(&alice.name));
    assert_eq!(code(store.transcript_recent(&alice, None, &key, 10).await), Code::NotFound);
    let first = store.transcript_append(&alice, None, &key, line("one", Some("m1")), at(1)).await.unwrap();
    assert_eq!((first.number, first.duplicate), (1, false));
    let again = store.transcript_append(&alice, None, &key, line("one, edited", Some("m1")), at(1)).await.unwrap();
    assert_eq!((again.number, again.duplicate), (1, true));
    assert_eq!(store.transcript_append(&alice, None, &key, line("two\0", None), at(1)).await.unwrap().number, 2);
    assert_eq!(
        store.transcript_append(&alice, alices, &key, line("three", Some("m3")), at(1)).await.unwrap().number,
        3
    );
    let recent = store.transcript_recent(&alice, None, &key, 2).await.unwrap();
    assert_eq!(
        recent.iter().map(|l| (l.number, l.line.content.as_str())).collect::<Vec<_>>(),
        [(2, "two\0"), (3, "three")]
    );
    let after = store.transcript_after(&alice, None, &key, 1, 10).await.unwrap();
    assert_eq!(after, recent);
    assert_eq!(after[0].line.ts, Some(1.5));

    assert_eq!(code(store.transcript_recent(&bob, alices, &key, 10).await), Code::NotFound);
    assert_eq!(code(store.transcript_append(&bob, alices, &key, line("x", None), at(1)).await), Code::NotFound);
    store.transcript_share(&alice, &key, &bob.name, Some(Access::Read)).await.unwrap();
    assert_eq!(store.transcript_recent(&bob, alices, &key, 10).await.unwrap().len(), 3);
    assert_eq!(
        code(store.transcript_recent(&bob, None, &key, 10).await),
        Code::NotFound,
        "another's is named by its owner"
    );
    assert_eq!(code(store.transcript_append(&bob, alices, &key, line("x", None), at(2)).await), Code::Forbidden);
    assert_eq!(code(store.transcript_share(&bob, &key, &bob.name, Some(Access::Write)).await), Code::NotFound);
    store.transcript_share(&alice, &key, &bob.name, Some(Access::Write)).await.unwrap();
    assert_eq!(store.transcript_append(&bob, alices, &key, line("four", None), at(2)).await.unwrap().number, 4);
    store.transcript_share(&alice, &key, &bob.name, None).await.unwrap();
    assert_eq!(code(store.transcript_recent(&bob, alices, &key, 10).await), Code::NotFound);
}

pub async fn transcript_keys_belong_to_owners_and_lines_have_authors(store: TestStore) {
    let (alice, bob) = store.pair().await;
    let mallory = store.enter("mallory").await;
    let key: TranscriptKey = "team:1".parse().unwrap();
    // Each agent has its own transcripts, whoever used the key first.
    store.transcript_append(&mallory, None, &key, line("mine", None), at(1)).await.unwrap();
    store.transcript_append(&alice, None, &key, line("ours", None), at(1)).await.unwrap();
    let said = |lines: Vec<amb_core::doc::NumberedLine>| -> Vec<_> {
        lines.into_iter().map(|l| (l.line.author.unwrap().to_string(), l.line.content)).collect()
    };
    let alices = store.transcript_recent(&alice, None, &key, 10).await.unwrap();
    assert_eq!(said(alices), [("alice".to_owned(), "ours".to_owned())]);
    let share = async |with: &Agent| store.transcript_share(&mallory, &key, &with.name, Some(Access::Write)).await;
    assert_eq!(code(share(&bob).await), Code::NotConnected, "nothing is shared unasked");
    store.connect(&mallory, &bob).await;
    share(&bob).await.unwrap();
    // The author is the caller; the field in the line is ignored.
    let forged = Line {
        role: "assistant".into(),
        sender: "bob".into(),
        author: Some(bob.name.clone()),
        ..line("I agree", None)
    };
    store.transcript_append(&mallory, None, &key, forged, at(2)).await.unwrap();
    store.transcript_append(&bob, Some(&mallory.name), &key, line("no", None), at(2)).await.unwrap();
    let seen = said(store.transcript_recent(&bob, Some(&mallory.name), &key, 10).await.unwrap());
    let expected = [("mallory", "mine"), ("mallory", "I agree"), ("bob", "no")];
    assert_eq!(seen, expected.map(|(who, what)| (who.to_owned(), what.to_owned())));
    // A share ends with the connection, and a new connection does not restore it.
    store.change_connection(&bob, &mallory.name, amb_core::doc::ConnectionChange::Revoke, at(3)).await.unwrap();
    assert_eq!(code(store.transcript_recent(&bob, Some(&mallory.name), &key, 10).await), Code::NotFound);
    store.connect(&mallory, &bob).await;
    assert_eq!(code(store.transcript_recent(&bob, Some(&mallory.name), &key, 10).await), Code::NotFound);
}

pub async fn concurrently_appended_lines_are_stored_once(store: TestStore) {
    let alice = store.enter("alice").await;
    let key: TranscriptKey = "feishu:oc_1".parse().unwrap();
    let writers: Vec<_> = (0..16)
        .map(|n| {
            let (store, alice, key) = (store.clone(), alice.clone(), key.clone());
            tokio::spawn(async move {
                let id = format!("m{}", n % 8);
                store.transcript_append(&alice, None, &key, line(&id, Some(&id)), at(1)).await.unwrap().duplicate
            })
        })
        .collect();
    let mut duplicates = 0;
    for writer in writers {
        duplicates += usize::from(writer.await.unwrap());
    }
    assert_eq!(duplicates, 8);
    let lines = store.transcript_recent(&alice, None, &key, 100).await.unwrap();
    assert_eq!(lines.iter().map(|line| line.number).collect::<Vec<_>>(), (1..=8).collect::<Vec<_>>());
}

pub async fn lines_without_a_message_id_are_no_duplicates(store: TestStore) {
    let alice = store.enter("alice").await;
    let key: TranscriptKey = "feishu:oc_1".parse().unwrap();
    for (number, id) in [(1, Some("")), (2, Some("")), (3, None), (4, None)] {
        let appended = store.transcript_append(&alice, None, &key, line("x", id), at(1)).await.unwrap();
        assert_eq!((appended.number, appended.duplicate), (number, false), "{id:?}");
    }
    let lines = store.transcript_recent(&alice, None, &key, 10).await.unwrap();
    assert!(lines.len() == 4 && lines.iter().all(|line| line.line.message_id.is_none()), "{lines:?}");
}

async fn index(store: &TestStore) {
    while store.index_mail().await.unwrap() > 0 {}
}

pub async fn search_finds_only_ones_own_mail(store: TestStore) {
    let (alice, bob) = store.pair().await;
    let (carol, dave) = (store.enter("carol").await, store.enter("dave").await);
    store.connect(&alice, &carol).await;
    store.connect(&carol, &dave).await;
    let at_second = async |second, from: &Agent, to: &Agent, subject: &str, text: &str| {
        store.send(from, Draft::text(to.name.clone(), subject, text), at(second)).await.unwrap();
    };
    at_second(1, &alice, &bob, "Release", "The quick brown fox jumps over the Lazy dog").await;
    at_second(2, &bob, &alice, "Release", "No fox was quick enough").await;
    at_second(3, &alice, &carol, "Zoo", "We have a fox and a café").await;
    at_second(4, &carol, &dave, "Zoo", "A secret fox").await;
    index(&store).await;
    let find = async |caller: &Agent, query: SearchQuery| -> Vec<String> {
        let hits = store.search(caller, query).await.unwrap();
        hits.into_iter().map(|hit| hit.created_at.as_second() - START).map(|second| second.to_string()).collect()
    };
    let text = |text: &str| SearchQuery { text: text.into(), ..SearchQuery::default() };
    assert_eq!(find(&alice, text("fox")).await, ["3", "2", "1"], "newest first, sent and received");
    assert_eq!(find(&bob, text("fox")).await, ["2", "1"]);
    assert_eq!(find(&dave, text("FOX")).await, ["4"]);
    assert_eq!(find(&alice, text("secret")).await, Vec::<String>::new());
    assert_eq!(find(&alice, text("quick fox")).await, ["2", "1"], "all words");
    assert_eq!(find(&alice, text("\"quick brown\"")).await, ["1"], "a phrase");
    assert_eq!(find(&alice, text("zoo")).await, ["3"], "words of the subject");
    assert_eq!(find(&alice, text("café")).await, ["3"]);
    assert_eq!(find(&alice, SearchQuery { from: Some(bob.name.clone()), ..text("fox") }).await, ["2"]);
    assert_eq!(find(&alice, SearchQuery { from: Some(name("BOB")), ..text("fox") }).await, ["2"]);
    assert_eq!(find(&alice, SearchQuery { from: Some(name("nobody")), ..text("fox") }).await, Vec::<String>::new());
    assert_eq!(find(&alice, SearchQuery { subject: Some("release".into()), ..text("fox") }).await, ["2", "1"]);
    for nothing in ["🚀", "???"] {
        let in_subject =
            |text: &str| SearchQuery { subject: Some(nothing.into()), text: text.into(), ..SearchQuery::default() };
        assert_eq!(find(&alice, text(nothing)).await, Vec::<String>::new());
        assert_eq!(find(&alice, in_subject("fox")).await, Vec::<String>::new());
        assert_eq!(find(&alice, in_subject("")).await, Vec::<String>::new());
    }
    let from_bob = SearchQuery { from: Some(bob.name.clone()), subject: Some(" ".into()), ..SearchQuery::default() };
    assert_eq!(find(&alice, from_bob).await, ["2"]);
    assert_eq!(find(&alice, SearchQuery { after: Some(at(2)), before: Some(at(3)), ..text("fox") }).await, ["2"]);
    let [early, late] = ["0001-01-01T00:00:00Z", "9000-01-01T00:00:00Z"].map(|time| time.parse().ok());
    assert_eq!(find(&alice, SearchQuery { after: early, before: late, ..text("fox") }).await, ["3", "2", "1"]);
    assert_eq!(find(&alice, SearchQuery { after: late, ..text("fox") }).await, Vec::<String>::new());
    assert_eq!(find(&alice, SearchQuery { before: early, ..text("fox") }).await, Vec::<String>::new());
    assert_eq!(find(&alice, SearchQuery { limit: Some(2), ..text("fox") }).await, ["3", "2"]);
    assert_eq!(find(&alice, text("")).await, ["3", "2", "1"], "no words is everything");
    for odd in ["\"", "* OR (", "a\"b", "who:m1", "content:fox NOT", "-", "fox' OR '1'='1"] {
        store.search(&alice, text(odd)).await.unwrap();
    }
    let hit = store.search(&alice, text("lazy")).await.unwrap().remove(0);
    assert!(hit.snippet.contains("Lazy dog"), "{}", hit.snippet);
    assert_eq!((hit.sender_name, hit.subject.as_str()), (alice.name.clone(), "Release"));
    at_second(5, &bob, &alice, "Release", "another fox").await;
    index(&store).await;
    assert_eq!(find(&alice, text("another")).await, ["5"], "what came later is found later");
}

/// Runs the removal once; returns how many messages were removed.
pub(super) async fn remove_read_mail(store: &TestStore, before: i64) -> u64 {
    let (mut removed, mut from) = (0, None);
    loop {
        let page = store.remove_read_mail(at(before), from).await.unwrap();
        removed += page.messages;
        from = page.next;
        if from.is_none() {
            return removed;
        }
    }
}

pub async fn a_round_of_removal_skips_mail_that_must_stay(store: TestStore) {
    let (alice, bob) = store.pair().await;
    // Far more than one batch, all read, each the newest of its session.
    let mut ids = Vec::new();
    for n in 0..1_100 {
        ids.push(store.say(&alice, &bob, &format!("s{n}"), "stays").await.answer.message_id);
    }
    store.ack(&bob, &ids, at(2)).await.unwrap();
    assert_eq!(remove_read_mail(&store, 99).await, 0);
    let old = store.say(&alice, &bob, "Plan", "old").await.answer.message_id;
    store.say(&alice, &bob, "Plan", "new").await;
    store.ack(&bob, &[old], at(3)).await.unwrap();
    assert_eq!(remove_read_mail(&store, 99).await, 1, "it is found behind all that stays");
}

pub async fn mail_that_is_still_needed_is_not_removed(store: TestStore) {
    let (alice, bob) = store.pair().await;
    let carol = store.enter("carol").await;
    store.connect(&alice, &carol).await;
    let task = store.send(&alice, Draft::task(bob.name.clone(), "Plan", "work"), at(1)).await.unwrap().answer;
    let crew = name("crew");
    store.create_group(&alice, &crew, at(1)).await.unwrap();
    for member in [&bob, &carol] {
        store.invite_to_group(&alice, &crew, &member.name, at(1)).await.unwrap();
        store.join_group(member, &crew, true).await.unwrap();
    }
    let to_all = store.send(&alice, Draft::text(crew.clone(), "Standup", "hi"), at(1)).await.unwrap().answer;
    for subject in ["Plan", "Invitation to crew"] {
        store.say(&alice, &bob, subject, "newer").await;
    }
    store.say(&alice, &carol, "Invitation to crew", "newer").await;
    store.send(&alice, Draft::text(crew, "Standup", "newer"), at(1)).await.unwrap();
    store.ack(&bob, &[task.message_id.clone(), to_all.message_id.clone()], at(2)).await.unwrap();
    assert_eq!(remove_read_mail(&store, 99).await, 0, "the task is open, and carol has not read the group's");
    store.message(&carol, &to_all.message_id).await.unwrap();
    store.set_task_state(&bob, &task.task.unwrap().id, amb_core::TaskState::Completed, None, at(3)).await.unwrap();
    store.ack(&carol, std::slice::from_ref(&to_all.message_id), at(4)).await.unwrap();
    assert_eq!(remove_read_mail(&store, 4).await, 1, "the time counts from the last who read it");
    assert_eq!(remove_read_mail(&store, 5).await, 1);
    for who in [&alice, &bob, &carol] {
        assert_eq!(code(store.message(who, &to_all.message_id).await), Code::NotFound, "it is gone for all");
    }
}

pub async fn old_read_mail_can_be_removed_and_nothing_else(store: TestStore) {
    let (alice, bob) = store.pair().await;
    let mut session = None;
    for n in 0..5 {
        session = Some(store.say(&alice, &bob, "Plan", &format!("word{n}")).await.answer.session_id);
    }
    let session = session.unwrap();
    index(&store).await;
    // Two are read early, one late, and the newest is left unread.
    let all = store.messages(&bob, amb_store::MessageQuery { limit: 9, ..Default::default() }).await.unwrap().messages;
    let id = |n: usize| all[4 - n].message.id.clone();
    store.ack(&bob, &[id(0), id(1)], at(10)).await.unwrap();
    store.ack(&bob, &[id(2)], at(20)).await.unwrap();
    assert_eq!(remove_read_mail(&store, 15).await, 2);
    assert_eq!(store.texts(&alice, &session, 10).await, ["word4", "word3", "word2"]);
    assert_eq!(store.inbox(&bob, false, at(30)).await.unwrap().sessions[0].unread_count, 2);
    assert_eq!(code(store.message(&alice, &id(0)).await), Code::NotFound);
    let query = |text: &str| SearchQuery { text: text.into(), ..SearchQuery::default() };
    assert!(store.search(&bob, query("word0")).await.unwrap().is_empty());
    assert_eq!(store.search(&bob, query("word3")).await.unwrap().len(), 1);
    // Even if all are read, the newest of a session stays, and numbers continue.
    store.texts(&bob, &session, 10).await;
    assert_eq!(remove_read_mail(&store, 99).await, 2);
    assert_eq!(store.texts(&alice, &session, 10).await, ["word4"]);
    let log = store.events(bob.key, 0, 50).await.unwrap();
    let head = store.event_head(bob.key).await.unwrap();
    assert_eq!(log.last().unwrap().cursor.as_number(), Some(head));
    let next = store.say(&alice, &bob, "Plan", "word5").await.entries.remove(0);
    assert_eq!(next.entry.cursor.as_number(), Some(head + 1));
    assert_eq!(store.texts(&bob, &session, 10).await, ["word5", "word4"]);
}

pub async fn an_export_has_each_message_once(store: TestStore) {
    let (alice, bob) = store.pair().await;
    let carol = store.enter("carol").await;
    store.connect(&alice, &carol).await;
    for n in 0..12 {
        let (from, to) = [(&alice, &bob), (&bob, &alice), (&carol, &alice)][n % 3];
        store.say(from, to, &format!("s{}", n % 4), &n.to_string()).await;
    }
    let (mut after, mut texts) = (None, Vec::new());
    loop {
        let page = store.export(&alice, ExportQuery { after, limit: 5, ..ExportQuery::default() }).await.unwrap();
        let Some(last) = page.last() else { break };
        after = Some(last.message.id.clone());
        texts.extend(page.into_iter().map(|mail| mail.message.text().parse::<u32>().unwrap()));
    }
    texts.sort_unstable();
    assert_eq!(texts, (0..12).collect::<Vec<_>>());
    let all = ExportQuery { limit: 100, ..ExportQuery::default() };
    let bobs = store.export(&bob, all.clone()).await.unwrap();
    assert_eq!(bobs.len(), 8);
    assert!(bobs.iter().all(|mail| mail.receipts.len() == 1));
    for (n, second) in [(0, 5), (1, 6), (2, 7)] {
        let draft = Draft::text(bob.name.clone(), format!("s{n}"), "late");
        store.send(&alice, draft, at(second)).await.unwrap();
    }
    let late = store.export(&bob, ExportQuery { since: Some(at(6)), ..all }).await.unwrap();
    assert_eq!(late.iter().map(|mail| mail.message.sent_at).collect::<Vec<_>>(), [at(6), at(7)]);
}

pub async fn mail_of_many_agents_is_indexed_in_one_batch(store: TestStore) {
    let hub = store.enter("hub").await;
    let mut peers = Vec::new();
    for n in 0..60 {
        let peer = store.enter(&format!("peer{n}")).await;
        store.connect(&hub, &peer).await;
        peers.push(peer);
    }
    index(&store).await;
    for (n, peer) in peers.iter().enumerate() {
        store.say(&hub, peer, "Plan", &format!("word{n}")).await;
    }
    let mut rounds = 0;
    while store.index_mail().await.unwrap() > 0 {
        rounds += 1;
    }
    assert!(rounds <= 3, "{rounds} rounds for one message each");
    for (n, peer) in peers.iter().enumerate() {
        let query = SearchQuery { text: format!("word{n}"), ..SearchQuery::default() };
        assert_eq!(store.search(peer, query).await.unwrap().len(), 1);
    }
}

pub async fn the_size_of_a_page_is_counted_as_json(store: TestStore) {
    let (alice, bob) = store.pair().await;
    // As JSON each is six times as long, and two exceed a page.
    let text = "\u{1}".repeat(MAX_PAGE_BYTES / 10);
    let sent = store.say(&alice, &bob, "Plan", &text).await.answer;
    store.say(&alice, &bob, "Plan", &text).await;
    assert_eq!(store.events(bob.key, 1, 10).await.unwrap().len(), 1);
    assert_eq!(
        store.messages(&bob, MessageQuery { limit: 10, ..MessageQuery::default() }).await.unwrap().messages.len(),
        1
    );
    assert_eq!(store.export(&bob, ExportQuery { limit: 10, ..ExportQuery::default() }).await.unwrap().len(), 1);
    let request = ClaimRequest { limit: 10, urgent_first: false, lease: std::time::Duration::from_secs(1) };
    assert_eq!(store.claim(&bob, request, at(1)).await.unwrap().answer.len(), 1);
    for (limit, truncated) in [(1, false), (10, true)] {
        let page = HistoryPage { limit, before: None };
        let history = store.history(&bob, &sent.session_id, page, at(1)).await.unwrap().answer;
        assert_eq!((history.messages.len(), history.truncated), (1, truncated));
    }
}
