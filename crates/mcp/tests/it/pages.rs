//! Results are bounded: what does not fit is counted, is not marked as read, and is in the next result.

use std::collections::HashSet;

use amb_core::{AllowFrom, Card, Draft, Mailbox, Part};
use amb_testing::memory::MemoryOffice;
use serde_json::{Value, json};

use crate::client::{Client, Era, name, town};

const NOW: Era = Era::Stateless;
/// The limit for the text and the data of a result, escapes included.
const MOST: usize = 20_000;

#[track_caller]
fn fits(text: &str, data: &Value) {
    let (text, data) = (text.chars().count(), data.to_string().chars().count());
    assert!(text <= MOST && data <= MOST, "{text} and {data} characters");
}

fn ids(messages: &Value) -> Vec<String> {
    messages.as_array().unwrap().iter().map(|message| message["id"].as_str().unwrap().to_owned()).collect()
}

/// The ids of mail in the order of the text.
fn ids_in(text: &str) -> Vec<String> {
    let tags = text.lines().filter(|line| line.starts_with("<mail-"));
    tags.map(|tag| tag.split(" id=\"").nth(1).unwrap().split('"').next().unwrap().to_owned()).collect()
}

#[tokio::test]
async fn three_hundred_threads_come_in_pages_and_each_is_shown_once() {
    let office = town();
    let bob = office.mailbox(name("bob"));
    for n in 0..300 {
        bob.send(Draft::text(name("alice"), format!("Thread {n}"), "x".repeat(400))).await.unwrap();
    }
    let mut alice = Client::open(&office, "alice", NOW).await;
    let mut shown = HashSet::new();
    let mut calls = 0;
    loop {
        let (text, data) = alice.call("mailbox_wait", json!({"timeout_seconds": 0})).await;
        fits(&text, &data);
        assert_eq!(data["unread"], 300);
        if data["timed_out"] == true {
            assert!(text.contains("300 unread"), "it does not say that there is nothing: {text}");
            break;
        }
        let now = ids(&data["messages"]);
        assert_eq!(now, ids_in(&text), "both halves list the same in the same order");
        assert!(now.iter().all(|id| shown.insert(id.clone())), "{now:?}");
        let more = 300 - shown.len();
        assert_eq!(data["more_sessions"].as_u64().unwrap_or(0) as usize, more);
        assert_eq!(text.contains(&format!("And {more} thread")), more > 0, "both halves say one number: {text}");
        calls += 1;
    }
    assert_eq!(shown.len(), 300);
    assert!(calls < 40, "{calls} calls");

    let mut alice = Client::open(&office, "alice", NOW).await;
    let mut threads = HashSet::new();
    while threads.len() < 300 {
        let (text, data) = alice.call("mailbox_check", json!({"skip": threads.len()})).await;
        fits(&text, &data);
        let page = data["sessions"].as_array().unwrap();
        assert!(!page.is_empty());
        threads.extend(page.iter().map(|session| session["session_id"].as_str().unwrap().to_owned()));
        let more = data["more_sessions"].as_u64().unwrap_or(0) as usize;
        assert_eq!(more, 300 - threads.len());
        assert_eq!(text.contains(&format!("skip={}", threads.len())), more > 0, "{text}");
        assert_eq!(text.contains(&format!("And {more} thread")), more > 0, "both halves say one number: {text}");
        assert_eq!(data["next_skip"].as_u64(), (more > 0).then_some(threads.len() as u64));
    }
}

#[tokio::test]
async fn reading_a_thread_says_how_many_older_ones_are_unread_and_how_to_get_them() {
    let office = town();
    let bob = office.mailbox(name("bob"));
    let mut session = String::new();
    for n in 0..14 {
        session =
            bob.send(Draft::text(name("alice"), "Plan", format!("word {n}"))).await.unwrap().session_id.to_string();
    }
    let mut alice = Client::open(&office, "alice", NOW).await;
    let (text, data) = alice.call("mailbox_read", json!({"session_id": session})).await;
    let said: Vec<_> = data["messages"].as_array().unwrap().iter().map(|m| m["content"].as_str().unwrap()).collect();
    assert_eq!(said, (4..14).map(|n| format!("word {n}")).collect::<Vec<_>>(), "oldest first");
    assert_eq!(ids(&data["messages"]), ids_in(&text));
    assert_eq!(data["unread_left"], 4);
    let before = &data["messages"][0]["id"];
    assert!(
        text.contains("4 older unread") && text.contains(&format!("before={}", before.as_str().unwrap())),
        "{text}"
    );
    assert!(data["next"].as_str().unwrap().contains("4 older unread"), "{data}");
    let (text, data) = alice.call("mailbox_read", json!({"session_id": session, "before": before})).await;
    assert_eq!(data["messages"].as_array().unwrap().len(), 4);
    assert!(data.get("unread_left").is_none() && !text.contains("unread in this thread"), "{text}");
    let (_, data) = alice.call("mailbox_check", json!({})).await;
    assert_eq!(data["unread"], 0);
}

#[tokio::test]
async fn only_what_was_shown_is_marked_and_a_long_message_is_read_in_pieces() {
    let office = town();
    let bob = office.mailbox(name("bob"));
    for n in 0..5 {
        bob.send(Draft::text(name("alice"), "Plan", format!("{n}{}", "é".repeat(9_999)))).await.unwrap();
    }
    let long: String = (0..10_000).map(|n| format!("{n:09} ")).collect();
    let sent = bob.send(Draft::text(name("alice"), "Long", &long)).await.unwrap();
    let mut alice = Client::open(&office, "alice", NOW).await;
    let (_, checked) = alice.call("mailbox_check", json!({})).await;
    let plan = checked["sessions"].as_array().unwrap().iter().find(|session| session["subject"] == "Plan").unwrap();
    let (text, data) = alice.call("mailbox_read", json!({"session_id": plan["session_id"]})).await;
    fits(&text, &data);
    let shown = data["messages"].as_array().unwrap().len();
    assert!((1..5).contains(&shown), "{shown}");
    assert_eq!(data["unread_left"], 5 - shown, "what was not shown stays unread");

    let (text, data) = alice.call("mailbox_read", json!({"session_id": sent.session_id})).await;
    fits(&text, &data);
    assert!(text.contains("more characters"), "{text}");
    let mut whole = data["messages"][0]["content"].as_str().unwrap().to_owned();
    assert_eq!(data["messages"][0]["truncated"], true);
    while whole.len() < long.len() {
        let on = json!({"message_id": sent.message_id, "offset": whole.len()});
        let (text, data) = alice.call("mailbox_read", on).await;
        fits(&text, &data);
        whole.push_str(data["messages"][0]["content"].as_str().unwrap());
        assert_eq!(data["messages"][0]["more_chars"].as_u64().unwrap_or(0) as usize, long.len() - whole.len());
    }
    assert_eq!(whole, long);
    let tools = alice.result("tools/list", json!({})).await;
    let read = tools["tools"].as_array().unwrap().iter().find(|tool| tool["name"] == "mailbox_read").unwrap();
    assert_eq!(read["inputSchema"].get("required"), None, "strict clients can leave either out: {read}");
    assert!(!read["inputSchema"].to_string().contains("oneOf"), "{read}");
    let told = alice.fails("mailbox_read", json!({"limit": 5})).await;
    assert!(told.contains("session_id") && told.contains("message_id"), "{told}");
}

#[tokio::test]
async fn a_long_text_data_files_and_a_callback_go_through() {
    let office = town();
    let bob = office.mailbox(name("bob"));
    let mut alice = Client::open(&office, "alice", NOW).await;
    let callback = json!({"channel": "feishu", "session_id": "feishu:user_123"});
    let task = json!({
        "to": "bob", "subject": "Work", "content": "x".repeat(50_000), "kind": "task", "deadline": "2h",
        "data": {"n": [1, 2]}, "files": ["/shared/a.md"], "callback": callback,
    });
    let (_, sent) = alice.call("mailbox_send", task).await;
    let message = bob.message(&sent["message_id"].as_str().unwrap().parse().unwrap()).await.unwrap().message;
    assert_eq!(message.text().len(), 50_000);
    assert_eq!(message.parts[1..], [Part::data(json!({"n": [1, 2]})), Part::file("/shared/a.md")]);
    let due = message.task.unwrap().deadline.unwrap().duration_since(message.sent_at);
    assert!((7_190..=7_200).contains(&due.as_secs()), "{due:?}");

    let id = sent["task"]["id"].as_str().unwrap().parse().unwrap();
    bob.set_task_state(&id, amb_core::TaskState::Accepted, Some("on it".into())).await.unwrap();
    let (text, waited) = alice.call("mailbox_wait", json!({})).await;
    assert_eq!(waited["messages"][0]["callback"], callback, "{waited}");
    assert!(text.contains("feishu:user_123"), "{text}");
    let (text, listed) = alice.call("mailbox_task", json!({"action": "list"})).await;
    assert_eq!(listed["tasks"][0]["callback"], callback);
    assert!(text.contains("feishu:user_123"), "{text}");
    let mut bob = Client::open(&office, "bob", NOW).await;
    let (_, read) = bob.call("mailbox_read", json!({"session_id": sent["session_id"]})).await;
    assert_eq!(read["messages"][0].get("callback"), None, "it is for the agent that set it");
    assert!(read["messages"][0]["deadline"].is_string(), "{read}");
    let (_, listed) = bob.call("mailbox_task", json!({"action": "list"})).await;
    assert_eq!(listed["tasks"][0].get("callback"), None);

    let beside = json!({"to": "bob", "subject": "Data", "content": "", "data": {"only": true}});
    alice.call("mailbox_send", beside).await;
    let long = alice.fails("mailbox_send", json!({"to": "bob", "subject": "s", "content": "x".repeat(100_001)})).await;
    assert!(long.starts_with("too_large: ") && long.contains("100000"), "{long}");
}

/// Texts that grow when they are shown.
fn growing() -> [String; 4] {
    ["\u{202e}".repeat(20_000), "\"\\".repeat(10_000), "<system>".repeat(5_000), "\n".repeat(30_000)]
}

#[tokio::test]
async fn an_answer_is_measured_as_it_is_shown() {
    for hidden in growing() {
        let office = town();
        let bob = office.mailbox(name("bob"));
        let mut alice = Client::open(&office, "alice", NOW).await;
        let mut session = String::new();
        for n in 0..30 {
            let subject: String = hidden.chars().filter(|c| *c != '\n').take(200).collect();
            let draft = Draft::text(name("alice"), format!("{n}{subject}"), &hidden);
            session = bob.send(draft).await.unwrap().session_id.to_string();
        }
        bob.send(Draft { session: Some(session.parse().unwrap()), ..Draft::text(name("alice"), "", "short") })
            .await
            .unwrap();
        let (text, data) = alice.call("mailbox_wait", json!({"timeout_seconds": 0})).await;
        fits(&text, &data);
        assert_eq!(ids(&data["messages"]), ids_in(&text));
        let mut alice = Client::open(&office, "alice", NOW).await;
        let (text, data) = alice.call("mailbox_check", json!({})).await;
        fits(&text, &data);
        let (text, data) = alice.call("mailbox_read", json!({"session_id": session})).await;
        fits(&text, &data);
        let uri = format!("mailbox://sessions/{session}");
        for uri in [uri.as_str(), "mailbox://inbox"] {
            let read = alice.result("resources/read", json!({"uri": uri})).await;
            let text = read["contents"][0]["text"].as_str().unwrap();
            assert!(text.chars().count() <= MOST, "{uri}: {}", text.chars().count());
        }
    }
}

#[tokio::test]
async fn what_is_cut_off_a_message_is_named_with_its_parts_and_can_be_read() {
    let office = town();
    let bob = office.mailbox(name("bob"));
    let mut draft = Draft::text(name("alice"), "Plan", "x".repeat(30_000));
    draft.parts.extend([Part::data(json!({"n": 1})), Part::file("/shared/a.md")]);
    let sent = bob.send(draft).await.unwrap();
    let mut alice = Client::open(&office, "alice", NOW).await;
    let (text, data) = alice.call("mailbox_read", json!({"session_id": sent.session_id})).await;
    let next = data["next"].as_str().unwrap();
    assert!(next.contains("2 data or file parts at the end") && text.contains(next), "{next}");
    let offset: usize = next.split("offset=").nth(1).unwrap().trim_end_matches('.').parse().unwrap();
    let (text, _) = alice.call("mailbox_read", json!({"message_id": sent.message_id, "offset": offset})).await;
    assert!(text.contains("[data] {\"n\":1}") && text.contains("[file] /shared/a.md"), "{text}");
}

#[tokio::test]
async fn a_transcript_comes_in_pages_and_a_long_line_in_pieces() {
    let office = town();
    let mut alice = Client::open(&office, "alice", NOW).await;
    for n in 0..30 {
        let line = json!({"key": "g:1", "content": format!("{n:02}{}", "z".repeat(5_000))});
        alice.call("transcript_append", line).await;
    }
    let (mut skip, mut said) = (0, Vec::new());
    while said.len() < 30 {
        let (text, data) = alice.call("transcript_recent", json!({"key": "g:1", "limit": 30, "skip": skip})).await;
        fits(&text, &data);
        let lines = data["lines"].as_array().unwrap();
        assert!(!lines.is_empty(), "{data}");
        said.extend(lines.iter().rev().map(|line| line["content"].as_str().unwrap()[..2].to_owned()));
        skip += lines.len();
        assert_eq!(data["next"].as_str().is_some_and(|next| next.contains(&format!("skip={skip}"))), skip < 30);
    }
    assert_eq!(said, (0..30).rev().map(|n| format!("{n:02}")).collect::<Vec<_>>());

    let long: String = (0..9_000).map(|n| format!("{n:08}\"\u{202e}")).collect();
    alice.call("transcript_append", json!({"key": "g:2", "content": long})).await;
    let (mut offset, mut pieces) = (0, 0);
    loop {
        let (text, data) = alice.call("transcript_recent", json!({"key": "g:2", "offset": offset})).await;
        fits(&text, &data);
        pieces += 1;
        let Some(next) = data["next"].as_str() else { break };
        assert!(data["lines"][0]["more_chars"].as_u64().unwrap() > 0);
        let on: usize = next.split("offset=").nth(1).unwrap().trim_end_matches('.').parse().unwrap();
        assert!(on > offset, "{next}");
        offset = on;
    }
    assert!((10..20).contains(&pieces), "{pieces}");
}

#[tokio::test]
async fn peers_come_in_pages_those_that_can_be_reached_first() {
    let office = town();
    for n in 0..150 {
        let mailbox = office.mailbox(name(&format!("agent-{n:03}")));
        let allow_from = if n < 145 { AllowFrom(vec!["bob".into()]) } else { AllowFrom::default() };
        mailbox.register(Card { description: "\"\u{202e}".repeat(400), allow_from, ..Card::default() }).await.unwrap();
    }
    let mut alice = Client::open(&office, "alice", NOW).await;
    let (mut all, mut skip) = (Vec::new(), json!(0));
    while skip.is_number() {
        let (text, data) = alice.call("list_peers", json!({"skip": skip})).await;
        fits(&text, &data);
        all.extend(data["peers"].as_array().unwrap().clone());
        skip = data["next_skip"].clone();
    }
    assert_eq!(all.len(), 151);
    let reachable: Vec<_> = all.iter().map(|peer| peer["reachable"] == true).collect();
    assert!(reachable[..6].iter().all(|reachable| *reachable) && !reachable[6..].contains(&true), "{reachable:?}");
}

#[tokio::test]
async fn notes_of_tasks_and_introductions_are_cut_where_they_are_long() {
    let office = MemoryOffice::with_connections(true);
    for n in 0..15 {
        let stranger = office.mailbox(name(&format!("stranger-{n}")));
        stranger.connect(&name("alice"), Some("\u{202e}".repeat(500))).await.ok();
    }
    let mut alice = Client::open(&office, "alice", NOW).await;
    let (text, data) = alice.call("mailbox_check", json!({})).await;
    fits(&text, &data);

    let office = town();
    let bob = office.mailbox(name("bob"));
    for n in 0..30 {
        let task = bob.send(Draft::task(name("alice"), format!("Job {n}"), "do it")).await.unwrap().task.unwrap();
        let alice = office.mailbox(name("alice"));
        if n < 3 {
            alice.set_task_state(&task.id, amb_core::TaskState::Working, Some("'\n".repeat(5_000))).await.unwrap();
        }
    }
    let mut alice = Client::open(&office, "alice", NOW).await;
    let (text, data) = alice.call("mailbox_task", json!({"action": "list"})).await;
    fits(&text, &data);
}
