//! What live messaging costs, as ratios to the bare thing underneath, measured in the same run.
//!
//! `cargo bench -p amb-live` prints them; no number is asserted. NATS is a server of our own on the loopback. For a
//! profiler: `cargo bench -p amb-live -- 'WORDS OF A LINE' ours` runs that line alone, and of it our half (or `bare`)
//! for some seconds.
#![allow(clippy::print_stdout, clippy::unwrap_used)]

use std::collections::VecDeque;
use std::hint::black_box;
use std::sync::Arc;
use std::time::{Duration, Instant};

use amb_core::{AgentName, GoalId, Timestamp};
use amb_live::{
    Broker, InboxMessage, InboxRouter, LivePeers, LocalBroker, NatsBroker, PublishOutcome, PublishReceipt, SendToPeer,
    inbox_subject, send_to_peer,
};
use amb_testing::NatsServer;
use futures_util::StreamExt;
use tokio::sync::{Mutex, mpsc};

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

/// Runs the bare thing and ours in turns, five times each, and compares the best of each: others share the machine.
async fn versus(what: &str, count: usize, mut bare: impl AsyncFnMut(usize), mut ours: impl AsyncFnMut(usize)) {
    let mut wanted = std::env::args().skip(1).filter(|word| !word.starts_with('-'));
    if wanted.next().is_some_and(|words| !what.contains(&words)) {
        return;
    }
    if let Some(half) = wanted.next() {
        let (start, mut rounds) = (Instant::now(), 0);
        while start.elapsed() < Duration::from_secs(6) {
            match half == "bare" {
                true => bare(count).await,
                false => ours(count).await,
            }
            rounds += count;
        }
        return println!("{what}: {half} alone {:.0}/s", rounds as f64 / start.elapsed().as_secs_f64());
    }
    let mut best = [f64::MAX; 2];
    bare(count / 10).await;
    ours(count / 10).await;
    for _ in 0..5 {
        let start = Instant::now();
        bare(count).await;
        best[0] = best[0].min(start.elapsed().as_secs_f64());
        let start = Instant::now();
        ours(count).await;
        best[1] = best[1].min(start.elapsed().as_secs_f64());
    }
    let [bare, ours] = best.map(|seconds| count as f64 / seconds);
    println!("{what:<72} {ours:>9.0}/s   bare {bare:>9.0}/s   ratio {:.2}", ours / bare);
}

async fn in_process() {
    const COUNT: usize = 100_000;
    const TURN: usize = 32;
    let (sender, receiver) = mpsc::channel(64);
    let receiver = Mutex::new(receiver);
    let broker = LocalBroker::new();
    let router = InboxRouter::new(broker.clone());
    let goal = GoalId::fresh(Timestamp::now());
    let buffer = router.register(goal);
    let subject = inbox_subject(goal);
    let bare_turns = async |count: usize| {
        let mut turn = Vec::with_capacity(TURN);
        let mut receiver = receiver.lock().await;
        for _ in 0..count / TURN {
            for _ in 0..TURN {
                sender.send(message()).await.unwrap();
            }
            receiver.recv_many(&mut turn, TURN).await;
            black_box(&turn);
            turn.clear();
        }
    };
    versus(
        "in process: publish to drain, one by one, to mpsc",
        COUNT,
        async |count| {
            let mut receiver = receiver.lock().await;
            for _ in 0..count {
                sender.send(message()).await.unwrap();
                black_box(receiver.recv().await.unwrap());
            }
        },
        async |count| {
            for _ in 0..count {
                broker.publish(&subject, message().into()).await.unwrap();
                black_box(buffer.drain());
            }
        },
    )
    .await;
    versus("in process: publish to drain, 32 a turn, to mpsc", COUNT, &bare_turns, async |count| {
        for _ in 0..count / TURN {
            for _ in 0..TURN {
                broker.publish(&subject, message().into()).await.unwrap();
            }
            black_box(buffer.drain());
        }
    })
    .await;
    let peers = LivePeers::over(broker.clone());
    let bob = peers.join(name("bob"), "builds").await.unwrap();
    let context = peers.context(name("alice"));
    let send = SendToPeer { to: "bob".into(), message: BODY.into(), ..SendToPeer::default() };
    versus("in process: the whole send_to_peer tool, 32 a turn, to mpsc", COUNT, &bare_turns, async |count| {
        for _ in 0..count / TURN {
            for _ in 0..TURN {
                let report = send_to_peer(&context, &send).await.unwrap();
                assert_eq!(report.delivered_to.len(), 1);
            }
            black_box(bob.inbox().drain());
        }
    })
    .await;
}

async fn over_nats(server: &NatsServer) {
    const COUNT: usize = 20_000;
    const FEW: usize = 1_000;
    const GOALS: usize = 64;
    let payload = tokio_util::bytes::Bytes::from(message().write().unwrap());
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
    let received = Mutex::new(received);
    let bare_stream = async |count: usize| {
        let publish = async {
            for number in 0..count {
                publisher.publish(subjects[number % GOALS].clone(), payload.clone()).await.unwrap();
            }
        };
        let receive = async {
            let mut received = received.lock().await;
            for _ in 0..count {
                black_box(received.next().await.unwrap());
            }
        };
        tokio::join!(publish, receive);
    };
    // What anybody who sends messages, not bytes, has to do as well.
    let bare_messages = async |count: usize| {
        let publish = async {
            for number in 0..count {
                let payload = serde_json::to_vec(&message()).unwrap();
                publisher.publish(subjects[number % GOALS].clone(), payload.into()).await.unwrap();
            }
        };
        let receive = async {
            let mut received = received.lock().await;
            for _ in 0..count {
                let message = received.next().await.unwrap();
                black_box(serde_json::from_slice::<InboxMessage>(&message.payload).unwrap());
            }
        };
        tokio::join!(publish, receive);
    };
    let bare_single = async |count: usize| {
        let mut received = received.lock().await;
        for number in 0..count {
            publisher.publish(subjects[number % GOALS].clone(), payload.clone()).await.unwrap();
            black_box(received.next().await.unwrap());
        }
    };
    let answerer = subscriber.clone();
    let mut questions = answerer.subscribe("questions").await.unwrap();
    let answering = tokio::spawn(async move {
        while let Some(question) = questions.next().await {
            answerer.publish(question.reply.unwrap(), "".into()).await.unwrap();
        }
    });
    let bare_request = async |count: usize| {
        for _ in 0..count {
            while publisher.request("questions", payload.clone()).await.is_err() {}
        }
    };

    let sending = NatsBroker::connect(server.options()).await.unwrap();
    let receiving: Arc<dyn Broker> = NatsBroker::connect(server.options()).await.unwrap();
    let router = InboxRouter::new(receiving);
    let _task = router.spawn(tokio_util::sync::CancellationToken::new());
    let goals: Vec<_> = (0..GOALS).map(|_| GoalId::fresh(Timestamp::now())).collect();
    let buffers: Vec<_> = goals.iter().map(|goal| router.register(*goal)).collect();
    for goal in &goals {
        router.ready(*goal, Duration::from_secs(10)).await.unwrap();
    }
    let inboxes: Vec<_> = goals.iter().map(|goal| inbox_subject(*goal)).collect();
    let send = async |number: usize| {
        let sent = sending.publish(&inboxes[number % GOALS], message().into()).await.unwrap();
        assert_eq!(sent, PublishOutcome::Delivered);
        black_box(buffers[number % GOALS].drain());
    };
    let single = async |count: usize| {
        for number in 0..count {
            send(number).await;
        }
    };
    versus("NATS: acknowledged, one at a time, to bare publish/receive", FEW, &bare_single, &single).await;
    versus("NATS: acknowledged, one at a time, to bare request/reply", FEW, &bare_request, &single).await;
    answering.abort();
    let at_once = async |count: usize| {
        futures_util::stream::iter(0..count).map(&send).buffer_unordered(1_024).for_each(async |()| {}).await;
    };
    versus("NATS: acknowledged, 1,024 senders, to bare publish/subscribe of bytes", COUNT, &bare_stream, &at_once)
        .await;
    for window in [64, 1_024] {
        let posted = async |count: usize| {
            let mut under_way = VecDeque::with_capacity(window);
            let settle = async |(number, receipt): (usize, PublishReceipt<'static>)| {
                assert_eq!(receipt.await.unwrap(), PublishOutcome::Delivered);
                black_box(buffers[number % GOALS].drain());
            };
            for number in 0..count {
                if under_way.len() == window {
                    // One pause for many messages, rather than one for each.
                    for sent in under_way.drain(..window / 2) {
                        settle(sent).await;
                    }
                }
                under_way.push_back((number, sending.post(&inboxes[number % GOALS], message().into()).await));
            }
            for sent in under_way {
                settle(sent).await;
            }
        };
        let what = format!("NATS: acknowledged, {window} posted ahead, to bare publish/subscribe");
        versus(&format!("{what} of bytes"), COUNT, &bare_stream, &posted).await;
        versus(&format!("{what} of JSON"), COUNT, &bare_messages, &posted).await;
    }
    let evicted: u64 = buffers.iter().map(|buffer| buffer.evicted()).sum();
    println!("messages evicted from full inboxes meanwhile: {evicted}");
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
        let mut best = f64::MAX;
        for _ in 0..5 {
            let start = Instant::now();
            for _ in 0..sends {
                let report = send_to_peer(&context, &send).await.unwrap();
                assert_eq!(report.delivered_to.len(), 1);
                black_box(bob.inbox().drain());
            }
            best = best.min(start.elapsed().as_secs_f64());
        }
        best * 1e6 / sends as f64
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
    let all = std::env::args().skip(1).all(|word| word.starts_with('-'));
    in_process().await;
    if all {
        many_goals("in process", &LivePeers::over(LocalBroker::new()), 20_000).await;
    }
    let server = NatsServer::start();
    over_nats(&server).await;
    if all {
        many_goals("NATS", &LivePeers::connect(server.options()).await.unwrap(), 500).await;
    }
}
