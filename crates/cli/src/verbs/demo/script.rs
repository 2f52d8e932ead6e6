//! The steps of the three agents. Each waits for the office's log entry about it, so the order is that of the office.

use amb_core::mailbox::{HistoryPage, Mailbox};
use amb_core::{Code, Draft, Event, ReceiptState, TaskState};
use anyhow::{Context, anyhow};

use super::actor::Actor;
use super::office::TemporaryOffice;
use super::screen::Screen;
use crate::failure::Failure;

/// After this many automatic answers the office has failed to end a loop.
const MAX_ANSWERS: usize = 10;

pub(super) async fn play(office: &TemporaryOffice, screen: &mut Screen) -> Result<(), Failure> {
    let server = &office.server;
    screen.chapter("Three agents come to the office: two of yours, and a stranger").await?;
    let mine = Some(office.household());
    let mut planner = Actor::register(server, screen, "planner", "yours; splits the work", mine).await?;
    let mut coder = Actor::register(server, screen, "coder", "yours; writes and tests code", mine).await?;
    let mut reviewer = Actor::register(server, screen, "reviewer", "somebody else's; reads changes", None).await?;

    screen.chapter("Yours write to each other at once; a stranger asks first").await?;
    let begun = Draft::text(coder.name().clone(), "Hello", "have you a minute?");
    let begun = planner.send(screen, begun).await?;
    coder.wait_for_message(screen, &begun.message_id).await?;
    let unasked = Draft::text(coder.name().clone(), "Hello", "buy my reviews!");
    reviewer.send_refused(screen, unasked, Code::NotConnected).await?;
    connect(screen, &mut reviewer, &mut coder, "may I review it?").await?;

    screen.chapter("A task, its progress and its result").await?;
    delegate(screen, &mut planner, &mut coder).await?;

    screen.chapter("One is away; its mail waits, and it catches up").await?;
    catch_up(screen, &mut coder, &mut reviewer).await?;

    screen.chapter("Two programs that answer each other by themselves come to an end").await?;
    answer_each_other(screen, &mut coder, &mut reviewer).await?;

    screen.chapter("Work does not go round in circles").await?;
    pass_round(screen, &mut planner, &mut coder, &mut reviewer).await
}

/// One asks, the other approves with the code.
async fn connect(screen: &mut Screen, asks: &mut Actor, asked: &mut Actor, intro: &str) -> Result<(), Failure> {
    screen.step().await;
    let requested = asks.mailbox.connect(asked.name(), Some(intro.into())).await?;
    screen.done(asks.name(), "connect", &requested, &format!("asks {} for a connection", asked.name()))?;
    let from = asks.name().clone();
    let request = |event: &Event| matches!(event, Event::ConnectionRequest { from_agent, .. } if *from_agent == from);
    let Event::ConnectionRequest { verification_code: Some(code), .. } = asked.wait_for(screen, request).await? else {
        return Err(anyhow!("the office told {} no code", asked.name()).into());
    };
    screen.step().await;
    let connected = asked.mailbox.approve(&code).await?;
    screen.done(asked.name(), "approve", &connected, &format!("approves with {code}"))?;
    asks.wait_for(screen, |event| matches!(event, Event::ConnectionApproved { .. })).await?;
    Ok(())
}

async fn delegate(screen: &mut Screen, planner: &mut Actor, coder: &mut Actor) -> Result<(), Failure> {
    let text = "which test is the slowest?";
    let draft = Draft { deadline_in: Some(3_600), ..Draft::task(coder.name().clone(), "Slow tests", text) };
    let sent = planner.send(screen, draft).await?;
    coder.wait_for_message(screen, &sent.message_id).await?;
    let id = sent.task.context("the office opened no task")?.id;
    let steps = [
        (TaskState::Accepted, None),
        (TaskState::Working, Some("running all with timings")),
        (TaskState::Working, Some("140 of 200 done")),
        (TaskState::Completed, Some("test_import, 4.1 s of 4.9 s")),
    ];
    for (state, note) in steps {
        coder.set_task_state(screen, &id, state, note).await?;
        planner.wait_for_task(screen, &id, state).await?;
    }
    Ok(())
}

async fn catch_up(screen: &mut Screen, coder: &mut Actor, reviewer: &mut Actor) -> Result<(), Failure> {
    reviewer.leave(screen).await?;
    screen.step().await;
    let mut agents = coder.mailbox.agents().await?;
    // The person who watches takes no part.
    agents.retain(|agent| !agent.person);
    let here: Vec<String> = agents.iter().map(|agent| format!("{} {}", agent.name, agent.presence.status)).collect();
    screen.done(coder.name(), "agents", &agents, &format!("looks who is here: {}", here.join(", ")))?;
    let first = Draft::text(reviewer.name().clone(), "Fixture", "I load the fixture once. Is that safe?");
    let first = coder.send(screen, first).await?;
    let second = Draft::text(reviewer.name().clone(), "Fixture", "The change is on branch fast-import.");
    let second = coder.send(screen, second).await?;
    screen.step().await;
    let waiting = coder.mailbox.message(&second.message_id).await?;
    if waiting.receipts.iter().any(|receipt| receipt.state != ReceiptState::Queued) {
        return Err(anyhow!("the office says that somebody has mail who is away").into());
    }
    screen.done(coder.name(), "message", &waiting, "asks for the receipt: queued, and durable")?;

    reviewer.reconnect(screen).await?;
    reviewer.wait_for_message(screen, &first.message_id).await?;
    reviewer.wait_for_message(screen, &second.message_id).await?;
    screen.step().await;
    let history = reviewer.mailbox.read(&second.session_id, HistoryPage::default()).await?;
    screen.done(reviewer.name(), "read", &history, &format!("reads {} messages", history.messages.len()))?;
    let mut unread = vec![&first.message_id, &second.message_id];
    while !unread.is_empty() {
        let is_read = |event: &Event| match event {
            Event::Receipt { message_id, receipt } => {
                receipt.state == ReceiptState::Read && unread.contains(&message_id)
            }
            _ => false,
        };
        if let Event::Receipt { message_id, .. } = coder.wait_for(screen, is_read).await? {
            unread.retain(|id| **id != message_id);
        }
    }
    let question = reviewer.message(&first.message_id).await?;
    let answer = reviewer.send(screen, Draft::reply(&question, "Yes: no case writes to it. Approved.")).await?;
    coder.wait_for_message(screen, &answer.message_id).await
}

/// Both answer everything automatically. Each answer costs a hop.
async fn answer_each_other(screen: &mut Screen, coder: &mut Actor, reviewer: &mut Actor) -> Result<(), Failure> {
    let begun = Draft::text(reviewer.name().clone(), "Thanks", "thank you!");
    let mut last = coder.send(screen, begun).await?;
    let (mut from, mut to) = (coder, reviewer);
    for _ in 0..MAX_ANSWERS {
        to.wait_for_message(screen, &last.message_id).await?;
        let message = to.message(&last.message_id).await?;
        let hops = format!("looks how far it may go: hops left {}", message.ttl);
        screen.done(to.name(), "message", &message, &hops)?;
        let answer = Draft::reply(&message, "I am a program; your mail arrived.").automatic();
        if message.ttl == 0 {
            return to.send_refused(screen, answer, Code::LoopRefused).await;
        }
        last = to.send(screen, answer).await?;
        (from, to) = (to, from);
    }
    Err(anyhow!("two programs answered each other {MAX_ANSWERS} times").into())
}

/// Each passes the same request on, until an agent would get it twice.
async fn pass_round(
    screen: &mut Screen,
    planner: &mut Actor,
    coder: &mut Actor,
    reviewer: &mut Actor,
) -> Result<(), Failure> {
    let text = "who can release version 2?";
    let sent = planner.send(screen, Draft::text(coder.name().clone(), "Release", text)).await?;
    coder.wait_for_message(screen, &sent.message_id).await?;
    let pass = |to: &Actor, id| Draft { relay_of: Some(id), ..Draft::text(to.name().clone(), "Release", text) };
    let passed = coder.send(screen, pass(reviewer, sent.message_id)).await?;
    reviewer.wait_for_message(screen, &passed.message_id).await?;
    reviewer.send_refused(screen, pass(coder, passed.message_id), Code::LoopRefused).await
}
