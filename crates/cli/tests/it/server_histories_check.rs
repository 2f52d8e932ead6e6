//! Compares what clients were told in a history with what the office shows everybody afterwards.

use std::collections::{BTreeMap, BTreeSet};

use amb_core::TaskState;
use serde_json::{Value, json};

use crate::server_histories::{Outcome, Told};
use crate::server_office::{Agent, Office};

/// What one agent sees when everything has come to rest.
struct View {
    /// The whole log.
    events: Vec<Value>,
    /// Every message that came in, newest first, with its receipts.
    received: Vec<Value>,
    inbox: Value,
}

fn text<'a>(value: &'a Value, field: &str) -> &'a str {
    value[field].as_str().unwrap_or_else(|| panic!("no {field} in {value}"))
}

impl View {
    async fn of(office: &Office, agent: &Agent) -> Self {
        let mut events = Vec::new();
        loop {
            let page = office.get(agent, &format!("/events?since={}&limit=500", events.len())).await.expect(200);
            let page = page["events"].as_array().unwrap();
            if page.is_empty() {
                break;
            }
            events.extend(page.iter().cloned());
        }
        let mut received = Vec::new();
        let mut before = String::new();
        loop {
            let page = office.get(agent, &format!("/messages?limit=100{before}")).await.expect(200);
            received.extend(page["messages"].as_array().unwrap().iter().cloned());
            match page["next"].as_u64() {
                Some(next) => before = format!("&before={next}"),
                None => break,
            }
        }
        let inbox = office.get(agent, "/inbox").await.expect(200);
        Self { events, received, inbox }
    }

    fn of_type<'a>(&'a self, kind: &'a str) -> impl Iterator<Item = &'a Value> {
        self.events.iter().filter(move |event| event["type"] == kind)
    }

    /// Notes of the task updates that this agent heard, and the states they told of, in order.
    fn updates(&self) -> impl Iterator<Item = (&str, &str, TaskState)> {
        self.of_type("new_message").filter(|event| event["kind"] == "task_update").map(|event| {
            let state = serde_json::from_value(event["task"]["state"].clone()).unwrap();
            (text(&event["task"], "id"), text(event, "content"), state)
        })
    }
}

/// Panics where the office does not agree with what it told its clients, or with itself.
pub(crate) async fn check(office: &Office, agents: &[Agent], told: &Told) {
    let mut views = Vec::new();
    for agent in agents {
        views.push(View::of(office, agent).await);
    }
    for view in &views {
        check_log(view);
    }
    check_sends(&views, told);
    check_tasks(office, agents, &views, told).await;
    check_receipts(agents, &views, told);
    check_claims(told);
    for (agent, view) in agents.iter().zip(&views) {
        check_sessions(office, agent, view).await;
    }
}

/// The log has no gap and nothing twice, and the messages in it are those that the mailbox has.
fn check_log(view: &View) {
    let cursors: Vec<u64> = view.events.iter().map(|event| event["cursor"].as_u64().unwrap()).collect();
    assert_eq!(cursors, (1..=cursors.len() as u64).collect::<Vec<_>>(), "the log has gaps or doubles");
    let heard: Vec<&str> = view.of_type("new_message").map(|event| text(event, "message_id")).collect();
    let received: Vec<&str> = view.received.iter().rev().map(|message| text(message, "id")).collect();
    assert_eq!(heard, received, "the log and the mailbox differ");
    assert_eq!(heard.iter().collect::<BTreeSet<_>>().len(), heard.len(), "a message came twice");
}

fn check_sends(views: &[View], told: &Told) {
    let mut arrived: BTreeMap<&str, Vec<(usize, &Value)>> = BTreeMap::new();
    for (agent, view) in views.iter().enumerate() {
        for event in view.of_type("new_message").filter(|event| event["kind"] != "task_update") {
            arrived.entry(text(event, "content")).or_default().push((agent, event));
        }
    }
    for (_, content, to, task, outcome) in &told.sends {
        let there = arrived.remove(content.as_str()).unwrap_or_default();
        match outcome {
            Outcome::Done(sent) if *task && sent["task"]["state"] == "rejected" => {
                assert!(there.is_empty(), "{content} was rejected by the office and delivered all the same");
            }
            Outcome::Done(sent) => {
                assert_eq!(there.len(), 1, "{content} was accepted and arrived {} times", there.len());
                assert_eq!(there[0].0, *to, "{content} arrived in another mailbox");
                assert_eq!(there[0].1["message_id"], sent["message_id"], "{content} has another id");
            }
            Outcome::Refused => assert!(there.is_empty(), "{content} was refused and arrived all the same"),
            Outcome::Unknown => assert!(there.len() <= 1, "{content} was sent once and arrived {} times", there.len()),
        }
    }
    assert!(arrived.is_empty(), "mail that nobody sent: {:?}", arrived.keys());
}

/// Both sides see one state of each task, its owner heard of every move once and in order, and a move that was refused
/// left nothing behind.
async fn check_tasks(office: &Office, agents: &[Agent], views: &[View], told: &Told) {
    let mut notes: BTreeMap<&str, usize> = BTreeMap::new();
    let mut last: BTreeMap<&str, TaskState> = BTreeMap::new();
    for view in views {
        for (task, note, state) in view.updates() {
            *notes.entry(note).or_default() += 1;
            let before = last.insert(task, state).unwrap_or_default();
            assert!(!before.path_to(state).is_empty(), "task {task} was told {before} and then {state}");
        }
    }
    for (task, note, _, outcome) in &told.moves {
        let heard = notes.get(note.as_str()).copied().unwrap_or_default();
        match outcome {
            Outcome::Done(_) => assert_eq!(heard, 1, "the owner of {task} heard {heard} times of a move that was made"),
            Outcome::Refused => assert_eq!(heard, 0, "the owner of {task} heard of a move that was refused"),
            Outcome::Unknown => assert!(heard <= 1, "the owner of {task} heard {heard} times of one move"),
        }
    }
    for (from, content, to, task, outcome) in &told.sends {
        let Outcome::Done(sent) = outcome else { continue };
        if !*task {
            continue;
        }
        let id = text(&sent["task"], "id");
        let path = format!("/tasks/{id}");
        let owned = office.get(&agents[*from], &path).await.expect(200);
        let told_last = last.get(id).copied().unwrap_or_default();
        assert_eq!(owned["state"], json!(told_last), "{content}: the owner was told otherwise: {owned}");
        if sent["task"]["state"] != "rejected" {
            let given = office.get(&agents[*to], &path).await.expect(200);
            assert_eq!(owned["state"], given["state"], "{content}: owner and assignee see different states");
        }
    }
}

/// A message that was acknowledged is read, its sender heard so once, and only of messages that are read.
fn check_receipts(agents: &[Agent], views: &[View], told: &Told) {
    let mut heard: BTreeMap<&str, usize> = BTreeMap::new();
    for view in views {
        for event in view.of_type("receipt").filter(|event| event["receipt"]["state"] == "read") {
            *heard.entry(text(event, "message_id")).or_default() += 1;
        }
    }
    let mut read = BTreeSet::new();
    for (agent, view) in agents.iter().zip(views) {
        for message in &view.received {
            let id = text(message, "id");
            let receipts = message["receipts"].as_array().unwrap();
            let mine = receipts.iter().find(|receipt| receipt["recipient"] == agent.name.as_str()).unwrap();
            let is_read = mine["state"] == "read";
            let times = heard.remove(id).unwrap_or_default();
            assert_eq!(times, usize::from(is_read), "read: {is_read}, receipts of {id}: {times}");
            if is_read {
                read.insert(id);
            }
        }
    }
    assert!(heard.is_empty(), "receipts of mail that nobody has: {heard:?}");
    let mut counted: BTreeMap<&str, u64> = BTreeMap::new();
    for (id, outcome) in &told.acks {
        if let Outcome::Done(answer) = outcome {
            assert!(read.contains(id.as_str()), "{id} was acknowledged and is unread");
            *counted.entry(id).or_default() += answer["acknowledged"].as_u64().unwrap();
        }
    }
    assert!(counted.values().all(|count| *count <= 1), "one message was acknowledged for the first time twice");
}

/// The leases outlast the test: a message is handed out again only after somebody gave it back.
fn check_claims(told: &Told) {
    let count = |ids: &[String]| {
        let mut counts: BTreeMap<String, usize> = BTreeMap::new();
        for id in ids {
            *counts.entry(id.clone()).or_default() += 1;
        }
        counts
    };
    let released = count(&told.releases);
    for (id, claims) in count(&told.claims) {
        let released = released.get(&id).copied().unwrap_or_default();
        assert!(claims <= released + 1, "{id} was claimed {claims} times and released {released} times");
    }
}

/// Unread counts are those of the messages, and times within a session do not go back.
async fn check_sessions(office: &Office, agent: &Agent, view: &View) {
    let mut unread: BTreeMap<&str, u64> = BTreeMap::new();
    for message in &view.received {
        let receipts = message["receipts"].as_array().unwrap();
        let mine = receipts.iter().find(|receipt| receipt["recipient"] == agent.name.as_str()).unwrap();
        *unread.entry(text(message, "session")).or_default() += u64::from(mine["state"] != "read");
    }
    for session in view.inbox["sessions"].as_array().unwrap() {
        let id = text(session, "session_id");
        let counted = unread.remove(id).unwrap_or_default();
        assert_eq!(session["unread_count"], counted, "{}: unread count of {id}", agent.name);
        let mut times = Vec::new();
        let mut before = String::new();
        loop {
            let page = office.get(agent, &format!("/sessions/{id}/history?limit=50{before}")).await.expect(200);
            let page = page["messages"].as_array().unwrap();
            let Some(last) = page.last() else { break };
            before = format!("&before={}", text(last, "id"));
            times.extend(page.iter().map(|message| text(message, "created_at").to_owned()));
        }
        let parsed: Vec<amb_core::Timestamp> = times.iter().map(|time| time.parse().unwrap()).collect();
        assert!(parsed.is_sorted_by(|newer, older| newer >= older), "times go back in {id}: {times:?}");
        assert_eq!(parsed.first(), text(session, "last_message_at").parse().ok().as_ref(), "{id}: last_message_at");
    }
    assert!(unread.values().all(|count| *count == 0), "unread mail in sessions that the inbox does not show");
}
