//! `amb watch --bell`: one line for each wake-up, for programs that ring a client by a way of their own.

use std::time::Duration;

use amb_client::Backoff;
use amb_core::Timestamp;
use amb_core::office::Office;
use amb_wake::{Bell, ClientState, Decision, Facts, Ledger, Limits, Process, Summary};
use jiff::SignedDuration;
use serde_json::json;

use crate::failure::Failure;
use crate::output::Output;

/// How often it is looked whether whoever started this is still there.
const PARENT: Duration = Duration::from_secs(5);

/// Rings by lines on stdout: counts, ids and names, no words of a sender. Ends with the process that started it.
pub(super) async fn ring(seat: &dyn Office, output: Output, mut left: u64) -> Result<(), Failure> {
    let parent = Process::parent();
    // Whoever reads the lines has no way to say that it looked, so each mail is told of once.
    let limits = Limits { again: Vec::new(), outstanding: SignedDuration::ZERO, ..Limits::default() };
    let mut bell = Bell::new(limits, Ledger::default());
    let mut backoff = Backoff::default();
    let mut cursor = None;
    while left > 0 && Process::parent() == parent {
        let round = round(seat, &mut bell, output, &mut cursor);
        match round.await {
            Ok(rung) => {
                left -= u64::from(rung);
                backoff = Backoff::default();
            }
            Err(Failure::Office(error)) if error.is_passing() => {
                let wait = backoff.pause();
                tokio::time::sleep(error.wait().unwrap_or(wait).max(wait).min(PARENT)).await;
            }
            Err(error) => return Err(error),
        }
    }
    Ok(())
}

/// Looks once, rings if it is time, else waits for something to happen; returns whether it rang.
async fn round(
    seat: &dyn Office,
    bell: &mut Bell,
    output: Output,
    cursor: &mut Option<amb_core::Cursor>,
) -> Result<bool, Failure> {
    // The place in the log is taken before the inbox is looked at, so that nothing falls between the two.
    let since = match cursor.take() {
        Some(since) => since,
        None => seat.events(None, Duration::ZERO).await?.cursor,
    };
    let inbox = seat.inbox(true).await?;
    let waiting = amb_wake::unread(seat, &inbox, |_| false).await?;
    let unread = inbox.unread();
    let now = Timestamp::now();
    let facts = Facts {
        now,
        waiting: &waiting,
        wait_open: false,
        called_at: None,
        user_turn_at: None,
        client: ClientState::Unknown,
        holds_lease: true,
    };
    let wait = match bell.decide(&facts) {
        Decision::Ring => {
            bell.ringing(now, &waiting);
            let from: Vec<_> = waiting.iter().map(|mail| mail.from.clone()).collect();
            let newest = waiting.first().map(|mail| mail.id.clone());
            let summary = Summary { me: seat.me().clone(), unread, newest, from };
            match output.json {
                true => output.line_of(&json!({"unread": unread, "line": summary.line()}))?,
                false => output.say(summary.line())?,
            }
            *cursor = Some(since);
            return Ok(true);
        }
        Decision::Later(at) => Duration::try_from(at.duration_since(now)).unwrap_or_default(),
        Decision::Quiet(_) | Decision::GiveUp => PARENT,
    };
    let page = seat.events(Some(since.clone()), wait.min(PARENT)).await;
    // A cursor that the office has forgotten is found anew.
    *cursor = page.ok().map(|page| page.cursor);
    Ok(false)
}
