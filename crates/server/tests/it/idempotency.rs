//! `Idempotency-Key`.

use serde_json::{Value, json};

use crate::desk::{Agent, Answer, Desk};

async fn send_once(desk: &Desk, from: &Agent, key: &str, body: &Value) -> Answer {
    let request = desk.http.post(desk.url("/messages/send")).header("X-API-Key", &from.key);
    desk.request(request.header("Idempotency-Key", key).json(body)).await
}

async fn a_repeat_answers_the_first_result_and_sends_nothing(desk: Desk) {
    let (alice, bob) = desk.pair().await;
    let body = json!({"to": bob.name, "subject": "Plan", "content": "once"});
    let first = send_once(&desk, &alice, "k-1", &body).await.expect(201);
    let again = send_once(&desk, &alice, "k-1", &body).await.expect(201);
    assert_eq!(first, again);
    let inbox = desk.get(&bob, "/inbox").await.expect(200);
    assert_eq!(inbox["sessions"][0]["unread_count"], 1);
    let other = send_once(&desk, &alice, "k-2", &body).await.expect(201);
    assert_ne!(first["message_id"], other["message_id"]);
    // Keys belong to their senders.
    let back = json!({"to": alice.name, "subject": "Plan", "content": "mine"});
    send_once(&desk, &bob, "k-1", &back).await.expect(201);
}

async fn the_same_key_with_another_body_is_a_conflict(desk: Desk) {
    let (alice, bob) = desk.pair().await;
    let body = |content: &str| json!({"to": bob.name, "subject": "Plan", "content": content});
    send_once(&desk, &alice, "k-1", &body("one")).await.expect(201);
    send_once(&desk, &alice, "k-1", &body("two")).await.problem(409, "conflict");
    send_once(&desk, &alice, "k-1", &body("one")).await.expect(201);
    send_once(&desk, &alice, "", &body("one")).await.problem(422, "invalid");
    send_once(&desk, &alice, &"x".repeat(256), &body("one")).await.problem(422, "invalid");
}

async fn fifty_repeats_at_once_send_one_message(desk: Desk) {
    let (alice, bob) = desk.pair().await;
    let body = json!({"to": bob.name, "subject": "Plan", "content": "once"});
    let repeats = (0..50).map(|_| send_once(&desk, &alice, "k-1", &body));
    let answers: Vec<Value> = join_all(repeats).await.into_iter().map(|answer| answer.expect(201)).collect();
    assert!(answers.iter().all(|answer| *answer == answers[0]));
    assert_eq!(desk.get(&bob, "/inbox").await.expect(200)["sessions"][0]["unread_count"], 1);
}

async fn join_all<F: Future>(all: impl Iterator<Item = F>) -> Vec<F::Output> {
    use futures_util::StreamExt;
    futures_util::stream::iter(all).buffered(64).collect().await
}

crate::on_every_store!(
    a_repeat_answers_the_first_result_and_sends_nothing,
    the_same_key_with_another_body_is_a_conflict,
    fifty_repeats_at_once_send_one_message,
);
