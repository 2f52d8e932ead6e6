//! What happens at once.

use futures_util::StreamExt;
use reqwest::Method;
use serde_json::json;

use crate::test_server::{Answer, TestServer};

async fn at_once<F: Future<Output = Answer>>(all: impl Iterator<Item = F>) -> Vec<Answer> {
    futures_util::stream::iter(all).buffer_unordered(64).collect().await
}

fn statuses(answers: &[Answer]) -> (usize, Vec<u16>) {
    let won = answers.iter().filter(|answer| answer.status.is_success()).count();
    let lost = answers.iter().filter(|answer| !answer.status.is_success());
    (won, lost.map(|answer| answer.status.as_u16()).collect())
}

async fn a_name_registered_fifty_times_at_once_has_one_winner(server: TestServer) {
    let body = json!({"name": "wanted"});
    let tries = (0..50).map(|_| server.call(Method::POST, "/agents/register", None, Some(&body)));
    let (won, lost) = statuses(&at_once(tries).await);
    assert_eq!(won, 1);
    assert!(lost.iter().all(|status| *status == 409), "{lost:?}");
}

async fn requests_at_once_make_one_pending_row(server: TestServer) {
    let (alice, bob) = (server.register("alice-agent").await, server.register("bob-agent").await);
    let body = json!({"target_agent_name": bob.name});
    let (won, lost) =
        statuses(&at_once((0..50).map(|_| server.post(&alice, "/connections/request", body.clone()))).await);
    assert_eq!(won, 1);
    assert!(lost.iter().all(|status| *status == 409), "{lost:?}");
    let inbox = server.get(&bob, "/inbox").await.expect(200);
    assert_eq!(inbox["pending_connections"].as_array().unwrap().len(), 1);
}

async fn a_hundred_approvals_of_one_code_make_one_connection(server: TestServer) {
    let (alice, bob) = (server.register("alice-agent").await, server.register("bob-agent").await);
    let body = json!({"verification_code": server.ask(&alice, &bob).await});
    let (won, lost) =
        statuses(&at_once((0..100).map(|_| server.post(&bob, "/connections/approve", body.clone()))).await);
    assert_eq!(won, 1);
    assert!(lost.iter().all(|status| *status == 404), "{lost:?}");
}

async fn a_subject_sent_at_once_from_both_sides_makes_one_session(server: TestServer) {
    let (alice, bob) = server.pair().await;
    let send = |number: usize| {
        let (from, to) = if number.is_multiple_of(2) { (&alice, &bob) } else { (&bob, &alice) };
        let body = json!({"to": to.name, "subject": "Plan", "content": number.to_string()});
        server.post(from, "/messages/send", body)
    };
    let answers = at_once((0..50).map(send)).await;
    let sessions: std::collections::HashSet<_> =
        answers.into_iter().map(|answer| answer.expect(201)["session_id"].to_string()).collect();
    assert_eq!(sessions.len(), 1);
}

crate::on_every_store!(
    a_name_registered_fifty_times_at_once_has_one_winner,
    requests_at_once_make_one_pending_row,
    a_hundred_approvals_of_one_code_make_one_connection,
    a_subject_sent_at_once_from_both_sides_makes_one_session,
);
