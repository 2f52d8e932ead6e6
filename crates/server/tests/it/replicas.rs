//! Several replicas on one PostgreSQL: events reach all of them, and limits hold for all together.

use std::time::Duration;

use amb_core::Draft;
use amb_live::{Broadcast, NatsBroadcast, NatsOptions};
use amb_server::{Config, Rate, RateLimits};
use amb_store::Hint;
use amb_testing::NatsServer;
use reqwest::Method;
use serde_json::json;

use crate::test_server::{Agent, Socket, TestServer, soon};

/// Longer than any test, so that everything arrives by a hint.
const NEVER: Duration = Duration::from_secs(24 * 60 * 60);

fn config(nats: Option<NatsOptions>) -> Config {
    Config { rate_limits: None, poll_interval: NEVER, nats, ..Config::default() }
}

/// Two replicas that have counted each other.
async fn two(config: Config) -> (TestServer, TestServer) {
    let one = TestServer::postgres_with(config.clone()).await;
    let other = one.replica(config).await;
    one.wait_for_metric("amb_replicas 2").await;
    other.wait_for_metric("amb_replicas 2").await;
    (one, other)
}

async fn receives(socket: &mut Socket, content: &str) {
    loop {
        let heard = socket.receive().await;
        if heard["type"] != "receipt" {
            return assert_eq!(heard["content"], content, "{heard}");
        }
    }
}

/// Sends in both directions; each message is pushed on the other replica, once.
async fn both_receive(
    one: &TestServer,
    other: &TestServer,
    (alice, bob): &(Agent, Agent),
    sockets: &mut (Socket, Socket),
    what: &str,
) {
    for number in 0..3 {
        let (there, back) = (format!("{what} there {number}"), format!("{what} back {number}"));
        one.send(alice, bob, "Plan", &there).await;
        receives(&mut sockets.1, &there).await;
        other.send(bob, alice, "Plan", &back).await;
        receives(&mut sockets.0, &back).await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_event_reaches_the_other_replica_by_database_notifications() {
    let (one, other) = two(config(None)).await;
    let pair = one.pair().await;
    let mut sockets = (one.live(&pair.0).await, other.live(&pair.1).await);
    both_receive(&one, &other, &pair, &mut sockets, "database").await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_event_reaches_the_other_replica_by_nats() {
    let nats = NatsServer::start();
    let (one, other) = two(config(Some(nats.options()))).await;
    let pair = one.pair().await;
    let mut sockets = (one.live(&pair.0).await, other.live(&pair.1).await);
    both_receive(&one, &other, &pair, &mut sockets, "nats").await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_event_reaches_the_other_replica_by_the_database_while_nats_is_down() {
    let mut nats = NatsServer::start();
    // A hint in flight when NATS stopped is lost; the periodic check makes up for it.
    let poll_interval = Duration::from_secs(1);
    let (one, other) = two(Config { poll_interval, ..config(Some(nats.options())) }).await;
    let pair = one.pair().await;
    let mut sockets = (one.live(&pair.0).await, other.live(&pair.1).await);
    both_receive(&one, &other, &pair, &mut sockets, "nats").await;
    nats.kill();
    both_receive(&one, &other, &pair, &mut sockets, "outage").await;
    nats.restart();
    both_receive(&one, &other, &pair, &mut sockets, "back").await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_office_starts_while_nats_is_unreachable() {
    let mut nats = NatsServer::start();
    let options = nats.options();
    nats.kill();
    let (one, other) = two(config(Some(options))).await;
    let pair = one.pair().await;
    let mut sockets = (one.live(&pair.0).await, other.live(&pair.1).await);
    both_receive(&one, &other, &pair, &mut sockets, "without").await;
    nats.restart();
    both_receive(&one, &other, &pair, &mut sockets, "with").await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn hints_by_nats_cause_no_database_notifications() {
    let nats = NatsServer::start();
    let (one, other) = two(config(Some(nats.options()))).await;
    let pair = one.pair().await;
    let _sockets = (one.live(&pair.0).await, other.live(&pair.1).await);
    let office = one.store.heartbeat(true).await.unwrap().office;
    let (_board, mut notices) =
        NatsBroadcast::open(&nats.options(), &format!("amb.hints.{}", office.simple())).await.unwrap();
    let bob = one.store.agent_by_name(&"bob-agent".parse().unwrap()).await.unwrap().unwrap().key;
    let mut by_database = other.store.hints().unwrap();
    // Until the replicas know that all are on NATS, hints also go by the database.
    soon(async {
        loop {
            one.send(&pair.0, &pair.1, "Plan", "hello").await;
            let note = async { while !matches!(notices.recv().await, Some(Broadcast::Message(_))) {} };
            note.await;
            // Notifications arrive in commit order: an earlier one would come before this.
            one.store.hint(&[(bob, 1)]).await.unwrap();
            let mut told = 0;
            loop {
                match by_database.recv().await.unwrap() {
                    Hint::Grew(_, 1) => break,
                    Hint::Grew(..) => told += 1,
                    _ => {}
                }
            }
            if told == 0 {
                return;
            }
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_entry_without_a_hint_is_found_by_the_periodic_check() {
    let server = TestServer::postgres_with(Config { poll_interval: Duration::from_millis(50), ..config(None) }).await;
    let pair = server.pair().await;
    let mut socket = server.live(&pair.1).await;
    // Written directly to the store: nobody sends a hint.
    let name = |agent: &Agent| agent.name.parse().unwrap();
    let alice = server.store.agent_by_name(&name(&pair.0)).await.unwrap().unwrap();
    for number in 0..3 {
        let text = format!("unheard {number}");
        server.store.send(&alice, Draft::text(name(&pair.1), "Plan", &text), amb_core::Timestamp::now()).await.unwrap();
        receives(&mut socket, &text).await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_page_is_delivered_when_the_next_poll_arrives_at_another_replica() {
    let (one, other) = two(config(None)).await;
    let (alice, bob) = one.pair().await;
    let mut since = json!(0);
    // The polls alternate between the replicas.
    let mut sent = Vec::new();
    for server in [&one, &other, &one] {
        sent.push(server.send(&alice, &bob, "Plan", "hello").await);
        let page = server.get(&bob, &format!("/events?since={since}")).await.expect(200);
        let elsewhere = if std::ptr::eq(server, &one) { &other } else { &one };
        let next = format!("/events?since={}&previous={since}", page["cursor"]);
        assert_eq!(elsewhere.get(&bob, &next).await.expect(200)["events"], json!([]));
        since = page["cursor"].clone();
    }
    for sent in &sent {
        crate::receipts::until(&one, &alice, sent, "delivered").await;
    }
    // A cursor beyond the end of the log acknowledges nothing.
    let end = since.as_u64().unwrap();
    let unread = one.send(&alice, &bob, "Plan", "unread").await;
    let far = |since: u64| format!("/events?since={since}&previous=0");
    one.get(&bob, &far(end + 1_000)).await.expect(200);
    one.get(&bob, &far(u64::MAX >> 1)).await.expect(200);
    let last = one.send(&alice, &bob, "Plan", "last").await;
    other.get(&bob, &format!("/events?since={}&previous={}", end + 2, end + 1)).await.expect(200);
    crate::receipts::until(&one, &alice, &last, "delivered").await;
    assert_eq!(crate::receipts::state(&one, &alice, &unread).await, "queued");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_revoked_key_closes_its_sockets_on_every_replica() {
    let (one, other) = two(config(None)).await;
    let (alice, bob) = one.pair().await;
    let (mut of_alice, mut of_bob) = (other.live(&alice).await, other.live(&bob).await);
    let rotated = one.post(&alice, "/agents/me/rotate-key", json!({"grace_seconds": 0})).await.expect(200);
    assert_eq!(of_alice.closed().await.0, 4001);
    let mut again = other.socket(&format!("?api_key={}", alice.key)).await;
    assert_eq!(again.closed().await.0, 4001, "the old key does not come back in");
    let alice = Agent { key: rotated["api_key"].as_str().unwrap().to_owned(), ..alice };
    let mut of_alice = other.live(&alice).await;
    one.call(Method::DELETE, "/agents/me", Some(&bob.key), None).await.expect(204);
    let (_, close) = of_bob.receive_until_close().await;
    assert_eq!(u16::from(close.unwrap().code), 4001);
    assert_eq!(of_alice.receive().await["type"], "connection_changed", "others stay, and hear of it");
}

async fn sockets_of_an_old_key_are_closed_after_its_grace_period(server: TestServer) {
    let (alice, _) = server.pair().await;
    let mut old = server.live(&alice).await;
    let rotated = server.post(&alice, "/agents/me/rotate-key", json!({"grace_seconds": 1})).await.expect(200);
    let alice = Agent { key: rotated["api_key"].as_str().unwrap().to_owned(), ..alice };
    let mut new = server.live(&alice).await;
    assert_eq!(old.closed().await.0, 4001);
    new.send_json(json!({"type": "ping"})).await;
    assert_eq!(new.receive().await, json!({"type": "pong"}), "the new key's socket stays");
}

crate::on_every_store!(sockets_of_an_old_key_are_closed_after_its_grace_period);

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn code_guesses_are_limited_across_replicas() {
    let limits = RateLimits { guess_agent: Rate::per_minute(1, 4), ..RateLimits::default() };
    let (one, other) = two(Config { rate_limits: Some(limits), ..config(None) }).await;
    let bob = one.register("bob-agent").await;
    let guess = json!({"verification_code": "AA-000"});
    for server in [&one, &other, &one, &other] {
        server.post(&bob, "/connections/approve", guess.clone()).await.problem(404, "not_found");
    }
    for server in [&one, &other] {
        server.post(&bob, "/connections/approve", guess.clone()).await.problem(429, "too_many_requests");
    }
    // A new replica enforces it too.
    let third = one.replica(Config { rate_limits: Some(limits), ..config(None) }).await;
    let answer = third.post(&bob, "/connections/approve", guess).await;
    let wait: u64 = answer.headers["retry-after"].to_str().unwrap().parse().unwrap();
    assert!((1..=60).contains(&wait), "{wait}");
    answer.problem(429, "too_many_requests");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn requests_of_an_agent_are_limited_across_replicas() {
    const BURST: u32 = 20;
    let limits = RateLimits { agent: Rate { count: 1, period: NEVER, burst: BURST }, ..RateLimits::default() };
    let (one, other) = two(Config { rate_limits: Some(limits), ..config(None) }).await;
    let bob = one.register("bob-agent").await;
    for _ in 0..BURST {
        one.get(&bob, "/inbox").await.expect(200);
    }
    // Without settling, the other replica would allow as many again.
    let mut passed = 0;
    while other.get(&bob, "/inbox").await.status == 200 {
        passed += 1;
        assert!(passed < BURST, "the other replica never heard of it");
        tokio::time::sleep(Duration::from_millis(500)).await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_code_expires_and_presence_is_seen_on_every_replica() {
    let (one, other) = two(Config { code_ttl: Duration::ZERO, ..config(None) }).await;
    let (alice, bob) = (one.register("alice-agent").await, one.register("bob-agent").await);
    let code = one.ask(&alice, &bob).await;
    let late = other.post(&bob, "/connections/approve", json!({"verification_code": code})).await;
    // 410 until a replica has deleted it, then 404.
    assert!(matches!(late.status.as_u16(), 404 | 410), "{}", late.body);
    let carol = other.register("carol-agent").await;
    other.post(&carol, "/agents/me/leave", json!({})).await;
    let status = async || one.get(&alice, "/agents/carol-agent").await.expect(200)["status"].clone();
    assert_eq!(status().await, "offline");
    let _here = other.live(&carol).await;
    soon(async {
        while status().await != "idle" {
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
    })
    .await;
}
