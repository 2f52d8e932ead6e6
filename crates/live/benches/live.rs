//! What live messaging costs, as ratios to the bare thing underneath, measured in the same run.
//!
//! `cargo bench -p amb-live` prints them; no number is asserted. NATS is a server of our own on the loopback.
#![allow(clippy::print_stdout, clippy::unwrap_used)]

#[path = "../tests/it/server.rs"]
#[allow(dead_code)]
mod server;

use std::hint::black_box;
use std::sync::Arc;
use std::time::{Duration, Instant};

use amb_core::{AgentName, GoalId, Timestamp};
use amb_live::{
    Broker, InboxMessage, InboxRouter, LivePeers, LocalBroker, NatsBroker, Parcel, SendToPeer, inbox_subject,
    send_to_peer,
};
use futures_util::StreamExt;
use server::NatsServer;
use tokio::sync::mpsc;

const BODY: &str = "task #1 is ready for handoff: the draft is in notes/draft.md, the open questions are at its end. \
                    Please answer them, run the checks, and tell me when the branch can be merged. Thank you!";

fn message() -> InboxMessage {
    InboxMessage {
        from_agent_id: "alice".into(),
        from_goal_id: GoalId::fresh(Timestamp::UNIX_EPOCH),
        to_agent_id: "bob".into(),
        body: BODY.into(),
        sent_at: Timestamp::now(),
        correlation_id: None,
    }
}

fn name(text: &str) -> AgentName {
    text.parse().unwrap()
}

/// The best of five: others share the machine.
async fn per_second(count: usize, mut run: impl AsyncFnMut(usize)) -> f64 {
    run(count / 10).await;
    let mut best = f64::MAX;
    for _ in 0..5 {
        let start = Instant::now();
        run(count).await;
        best = best.min(start.elapsed().as_secs_f64());
    }
    count as f64 / best
}

fn row(what: &str, ours: f64, bare: f64) {
    println!("{what:<64} {ours:>11.0}/s   bare {bare:>11.0}/s   ratio {:.2}", ours / bare);
}

async fn in_process() {
    const COUNT: usize = 200_000;
    let (sender, mut receiver) = mpsc::channel(64);
    let bare = per_second(COUNT, async |count| {
        for _ in 0..count {
            sender.send(message()).await.unwrap();
            black_box(receiver.recv().await.unwrap());
        }
    })
    .await;

    let broker = LocalBroker::new();
    let router = InboxRouter::new(broker.clone());
    let goal = GoalId::fresh(Timestamp::now());
    let buffer = router.register(goal);
    let subject = inbox_subject(goal);
    let one = per_second(COUNT, async |count| {
        for _ in 0..count {
            broker.publish(&subject, message().into()).await.unwrap();
            black_box(buffer.drain());
        }
    })
    .await;
    row("in process: publish to drain, one by one", one, bare);

    let bare_turns = per_second(COUNT, async |count| {
        let mut turn = Vec::with_capacity(32);
        for _ in 0..count / 32 {
            for _ in 0..32 {
                sender.send(message()).await.unwrap();
            }
            receiver.recv_many(&mut turn, 32).await;
            black_box(&turn);
            turn.clear();
        }
    })
    .await;
    let turns = per_second(COUNT, async |count| {
        for _ in 0..count / 32 {
            for _ in 0..32 {
                broker.publish(&subject, message().into()).await.unwrap();
            }
            black_box(buffer.drain());
        }
    })
    .await;
    row("in process: publish to drain, 32 a turn", turns, bare_turns);

    let peers = LivePeers::over(broker);
    let bob = peers.join(name("bob"), "builds").await.unwrap();
    let context = peers.context(name("alice"));
    let send = SendToPeer { to: "bob".into(), message: BODY.into(), ..SendToPeer::default() };
    let tool = per_second(COUNT, async |count| {
        for _ in 0..count / 32 {
            for _ in 0..32 {
                let report = send_to_peer(&context, &send).await.unwrap();
                assert_eq!(report.delivered_to.len(), 1);
            }
            black_box(bob.inbox().drain());
        }
    })
    .await;
    row("in process: the whole send_to_peer tool to drain, 32 a turn", tool, bare_turns);
}

async fn over_nats(server: &NatsServer) {
    const COUNT: usize = 40_000;
    const GOALS: usize = 64;
    let payload = Parcel::from(message()).to_bytes().unwrap();
    let publisher = async_nats::connect(server.url()).await.unwrap();
    let subscriber = async_nats::connect(server.url()).await.unwrap();
    let subjects: Vec<_> = (0..GOALS).map(|_| inbox_subject(GoalId::fresh(Timestamp::now()))).collect();
    let mut streams = Vec::new();
    for subject in &subjects {
        streams.push(subscriber.subscribe(subject.clone()).await.unwrap());
    }
    subscriber.flush().await.unwrap();
    let mut received = futures_util::stream::select_all(streams);
    // Until the server has taken in the last of the subscriptions, what we publish is lost.
    loop {
        publisher.publish(subjects[GOALS - 1].clone(), payload.clone()).await.unwrap();
        if tokio::time::timeout(Duration::from_millis(200), received.next()).await.is_ok() {
            break;
        }
    }

    let bare = per_second(COUNT, async |count| {
        let publish = async {
            for number in 0..count {
                publisher.publish(subjects[number % GOALS].clone(), payload.clone()).await.unwrap();
            }
        };
        let receive = async {
            for _ in 0..count {
                black_box(received.next().await.unwrap());
            }
        };
        tokio::join!(publish, receive);
    })
    .await;
    let bare_single = per_second(COUNT / 20, async |count| {
        for number in 0..count {
            publisher.publish(subjects[number % GOALS].clone(), payload.clone()).await.unwrap();
            black_box(received.next().await.unwrap());
        }
    })
    .await;
    let (asker, answerer) = (publisher.clone(), subscriber.clone());
    let mut questions = answerer.subscribe("questions").await.unwrap();
    answerer.flush().await.unwrap();
    let answering = tokio::spawn(async move {
        while let Some(question) = questions.next().await {
            answerer.publish(question.reply.unwrap(), "".into()).await.unwrap();
        }
    });
    let bare_request = per_second(COUNT / 20, async |count| {
        for _ in 0..count {
            while asker.request("questions", payload.clone()).await.is_err() {}
        }
    })
    .await;
    answering.abort();

    let sending = NatsBroker::connect(server.options()).await.unwrap();
    let receiving: Arc<dyn Broker> = NatsBroker::connect(server.options()).await.unwrap();
    let router = InboxRouter::new(receiving);
    let _task = router.spawn(tokio_util::sync::CancellationToken::new());
    let goals: Vec<_> = (0..GOALS).map(|_| GoalId::fresh(Timestamp::now())).collect();
    let buffers: Vec<_> = goals.iter().map(|goal| router.register(*goal)).collect();
    for goal in &goals {
        router.ready(*goal, Duration::from_secs(10)).await.unwrap();
    }
    let subjects: Vec<_> = goals.iter().map(|goal| inbox_subject(*goal)).collect();
    let send = async |number: usize| {
        let sent = sending.publish(&subjects[number % GOALS], message().into()).await.unwrap();
        assert_eq!(sent, amb_live::Outcome::Delivered);
        black_box(buffers[number % GOALS].drain());
    };
    let single = per_second(COUNT / 20, async |count| {
        for number in 0..count {
            send(number).await;
        }
    })
    .await;
    row("NATS: send acknowledged, one at a time, to bare publish/receive", single, bare_single);
    row("NATS: the same, to bare request/reply", single, bare_request);
    for window in [64, 512] {
        let pipelined = per_second(COUNT, async |count| {
            futures_util::stream::iter(0..count).map(&send).buffer_unordered(window).for_each(async |()| {}).await;
        })
        .await;
        row(&format!("NATS: send acknowledged, {window} in flight, to bare publish/subscribe"), pipelined, bare);
    }
    let evicted: u64 = buffers.iter().map(|buffer| buffer.evicted()).sum();
    println!("{:<64} {evicted}", "      (evicted meanwhile)");
}

fn resident_bytes() -> usize {
    let statm = fs_err::read_to_string("/proc/self/statm").unwrap();
    statm.split_whitespace().nth(1).unwrap().parse::<usize>().unwrap() * 4096
}

/// Joins goals of many agents and measures what each costs, and what a send costs among them.
async fn many_goals(what: &str, peers: &LivePeers, sends: usize) {
    let bob = peers.join(name("bob"), "builds").await.unwrap();
    let context = peers.context(name("alice"));
    let send = SendToPeer { to: "bob".into(), message: BODY.into(), ..SendToPeer::default() };
    let cost = async || {
        let rate = per_second(sends, async |count| {
            for _ in 0..count {
                let report = send_to_peer(&context, &send).await.unwrap();
                assert_eq!(report.delivered_to.len(), 1);
                black_box(bob.inbox().drain());
            }
        })
        .await;
        1e6 / rate
    };
    let few = cost().await;
    let before = resident_bytes();
    let start = Instant::now();
    let goals: Vec<_> = futures_util::stream::iter(0..10_000)
        .map(|number| peers.join(name(&format!("agent-{}", number % 1_000)), "works"))
        .buffer_unordered(256)
        .map(Result::unwrap)
        .collect()
        .await;
    let joined = start.elapsed();
    let each = resident_bytes().saturating_sub(before) / goals.len();
    let many = cost().await;
    println!(
        "{what}: 10,000 goals: {each} bytes each, joined in {joined:.1?}; one send {few:.2} µs before, {many:.2} µs after"
    );
}

#[tokio::main]
async fn main() {
    in_process().await;
    many_goals("in process", &LivePeers::over(LocalBroker::new()), 100_000).await;
    let server = NatsServer::start();
    over_nats(&server).await;
    many_goals("NATS", &LivePeers::connect(server.options()).await.unwrap(), 2_000).await;
}
