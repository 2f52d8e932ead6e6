//! Concurrent requests.

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

async fn concurrent_registrations_of_a_name_have_one_winner(server: TestServer) {
    let body = json!({"name": "wanted"});
    let tries = (0..50).map(|_| server.call(Method::POST, "/agents/register", None, Some(&body)));
    let (won, lost) = statuses(&at_once(tries).await);
    assert_eq!(won, 1);
    assert!(lost.iter().all(|status| *status == 409), "{lost:?}");
}

async fn concurrent_connection_requests_make_one_pending_row(server: TestServer) {
    let (alice, bob) = (server.register("alice-agent").await, server.register("bob-agent").await);
    let body = json!({"target_agent_name": bob.name});
    let (won, lost) =
        statuses(&at_once((0..50).map(|_| server.post(&alice, "/connections/request", body.clone()))).await);
    assert_eq!(won, 1);
    assert!(lost.iter().all(|status| *status == 409), "{lost:?}");
    let inbox = server.get(&bob, "/inbox").await.expect(200);
    assert_eq!(inbox["pending_connections"].as_array().unwrap().len(), 1);
}

async fn concurrent_approvals_of_a_code_make_one_connection(server: TestServer) {
    let (alice, bob) = (server.register("alice-agent").await, server.register("bob-agent").await);
    let body = json!({"verification_code": server.ask(&alice, &bob).await});
    let (won, lost) =
        statuses(&at_once((0..100).map(|_| server.post(&bob, "/connections/approve", body.clone()))).await);
    assert_eq!(won, 1);
    assert!(lost.iter().all(|status| *status == 404), "{lost:?}");
}

async fn concurrent_sends_of_a_subject_from_both_sides_make_one_session(server: TestServer) {
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
    concurrent_registrations_of_a_name_have_one_winner,
    concurrent_connection_requests_make_one_pending_row,
    concurrent_approvals_of_a_code_make_one_connection,
    concurrent_sends_of_a_subject_from_both_sides_make_one_session,
);
