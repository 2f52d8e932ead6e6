//! The guards against loops hold although a model names no message that it passes on.

use std::sync::Arc;

use amb_core::{Draft, Mailbox};
use amb_testing::memory::MemoryOffice;
use serde_json::{Value, json};

use crate::client::{Client, ERAS, Era, name};

const NOW: Era = Era::Stateless;

async fn say(from: &mut Client, to: &str) -> Value {
    from.call("mailbox_send", json!({"to": to, "subject": "Work", "content": "please do it"})).await.1
}

async fn hop(office: &Arc<MemoryOffice>, reader: &str, sent: &Value) -> (u8, Vec<String>) {
    let id = sent["message_id"].as_str().unwrap().parse().unwrap();
    let message = office.mailbox(name(reader)).message(&id).await.unwrap().message;
    (message.ttl, message.trace.iter().map(ToString::to_string).collect())
}

async fn trio(office: &Arc<MemoryOffice>, era: Era) -> [Client; 3] {
    [
        Client::open(office, "ann", era).await,
        Client::open(office, "ben", era).await,
        Client::open(office, "cat", era).await,
    ]
}

#[tokio::test]
async fn a_ring_of_three_models_stops_as_it_does_in_files() {
    for era in ERAS {
        for way in ["mailbox_wait", "mailbox_check", "mailbox_read"] {
            let office = MemoryOffice::new();
            let [mut ann, mut ben, mut cat] = trio(&office, era).await;
            let look = |sent: &Value| match way {
                "mailbox_read" => json!({"session_id": sent["session_id"]}),
                _ => json!({}),
            };
            let first = say(&mut ann, "ben").await;
            ben.call(way, look(&first)).await;
            let second = say(&mut ben, "cat").await;
            assert_eq!(hop(&office, "cat", &second).await, (1, vec!["ann".into(), "ben".into()]), "{way}");
            cat.call(way, look(&second)).await;
            let refused =
                cat.fails("mailbox_send", json!({"to": "ann", "subject": "Work", "content": "you do it"})).await;
            assert!(refused.starts_with("loop_refused: ") && refused.contains("user_request"), "{refused}");
            let note = cat.call("send_to_peer", json!({"to": "ben", "message": "I cannot"})).await.1;
            assert_eq!(note["mailed_to"].as_array().unwrap().len(), 1, "an answer goes back");
            for client in [ann, ben, cat] {
                client.close().await;
            }
        }
    }
}

#[tokio::test]
async fn a_chain_of_models_ends_where_its_hops_do() {
    let office = MemoryOffice::new();
    let names = ["aa", "bb", "cc", "dd", "ee"];
    let mut clients = Vec::new();
    for agent in names {
        clients.push(Client::open(&office, agent, NOW).await);
    }
    for at in 0..3 {
        say(&mut clients[at], names[at + 1]).await;
        clients[at + 1].call("mailbox_wait", json!({})).await;
    }
    let refused = clients[3].fails("mailbox_send", json!({"to": "ee", "subject": "Work", "content": "on"})).await;
    assert!(refused.contains("do the work yourself"), "{refused}");
}

#[tokio::test]
async fn what_a_user_asks_passes_after_a_refusal_and_a_habit_does_not() {
    let office = MemoryOffice::new();
    let [mut ann, mut ben, mut cat] = trio(&office, NOW).await;
    say(&mut ann, "ben").await;
    ben.call("mailbox_wait", json!({})).await;
    say(&mut ben, "cat").await;
    cat.call("mailbox_wait", json!({})).await;
    let asked = json!({"to": "ann", "subject": "Lunch", "content": "at noon?", "user_request": true});
    cat.fails("mailbox_send", asked.clone()).await;
    let (_, sent) = cat.call("mailbox_send", asked.clone()).await;
    assert_eq!(hop(&office, "ann", &sent).await, (2, vec!["cat".into()]));
    cat.fails("mailbox_send", asked).await;
}

#[tokio::test]
async fn an_answer_and_a_conversation_start_afresh_and_results_of_ones_own_questions_are_no_work() {
    let office = MemoryOffice::new();
    let [mut ann, mut ben, mut cat] = trio(&office, NOW).await;
    // Ann asks two others in turn, on and on: nothing of it is passed on.
    for round in 0..5 {
        for (client, agent) in [(&mut ben, "ben"), (&mut cat, "cat")] {
            let asked = say(&mut ann, agent).await;
            assert_eq!(hop(&office, agent, &asked).await, (2, vec!["ann".into()]), "round {round}");
            client.call("mailbox_wait", json!({})).await;
            let reply = json!({"to": "ann", "content": "done", "reply_to": asked["message_id"]});
            let (_, answer) = client.call("mailbox_send", reply).await;
            assert_eq!(answer["session_id"], asked["session_id"]);
            ann.call("mailbox_wait", json!({})).await;
        }
    }
}

#[tokio::test]
async fn a_task_that_is_worked_on_is_passed_on_after_a_restart_and_forgotten_when_it_ends() {
    let office = MemoryOffice::new();
    let mut ann = Client::open(&office, "ann", NOW).await;
    office.mailbox(name("ben"));
    office.mailbox(name("cat"));
    let task = json!({"to": "ben", "subject": "Work", "content": "do it", "kind": "task"});
    let (_, given) = ann.call("mailbox_send", task).await;
    let id = &given["task"]["id"];
    let mut before = Client::open(&office, "ben", NOW).await;
    before.call("mailbox_task", json!({"action": "accept", "task_id": id})).await;
    before.close().await;

    let mut ben = Client::open(&office, "ben", NOW).await;
    let sent = say(&mut ben, "cat").await;
    assert_eq!(hop(&office, "cat", &sent).await, (1, vec!["ann".into(), "ben".into()]));
    ben.call("mailbox_wait", json!({})).await;
    ben.call("mailbox_task", json!({"action": "done", "task_id": id})).await;
    let sent = say(&mut ben, "cat").await;
    assert_eq!(hop(&office, "cat", &sent).await, (2, vec!["ben".into()]), "a new piece of work");
}

#[tokio::test]
async fn ten_rounds_of_questions_with_reply_to_pass() {
    let office = MemoryOffice::new();
    let mut ann = Client::open(&office, "ann", NOW).await;
    let ben = office.mailbox(name("ben"));
    let mut asked = say(&mut ann, "ben").await;
    for _ in 0..10 {
        let question = ben.message(&asked["message_id"].as_str().unwrap().parse().unwrap()).await.unwrap().message;
        assert!(question.provokes_answer());
        let answer = ben.send(Draft::reply(&question, "answer").automatic()).await.unwrap();
        let (_, waited) = ann.call("mailbox_wait", json!({})).await;
        assert_eq!(waited["messages"][0]["automatic"], true, "{waited}");
        let next = json!({"to": "ben", "content": "and now?", "reply_to": answer.message_id});
        (_, asked) = ann.call("mailbox_send", next).await;
        assert_eq!(asked["session_id"], question.session.unwrap().as_str());
    }
}
