//! `amb watch --bell`: one line for each wake-up, for programs that wake a client in their own way.

use std::sync::Arc;
use std::time::Duration;

use amb_core::mailbox::Mailbox;
use amb_core::{Backoff, Timestamp};
use amb_wake::{
    Bell, ClientState, Lease, Limits, Process, Reporter, RingDecision, RingFacts, RingLedger, SessionKey, SiblingState,
    SpentCache, Summary, WaitingMessage, WakeDirectory,
};
use jiff::SignedDuration;
use serde_json::json;

use crate::failure::Failure;
use crate::output::Output;
use crate::waking::BELL;

/// How often it checks whether the process that started it still lives.
const PARENT_CHECK: Duration = Duration::from_secs(5);

/// The name of this door in reports.
const DOOR: &str = "amb watch --bell";

/// Rings by lines on stdout: counts, ids and names, no text of a sender. Ends with the process that started it.
/// Silent while an `amb mcp` of the same agent rings its client, or another watcher does.
pub(super) async fn ring(
    mailbox: &Arc<dyn Mailbox>,
    place: Option<WakeDirectory>,
    output: Output,
    mut left: u64,
) -> Result<(), Failure> {
    let parent = Process::parent();
    // The reader of the lines cannot tell that it looked, so each message is rung for once.
    let limits = Limits { reminders: Vec::new(), turn_expected: SignedDuration::ZERO, ..Limits::default() };
    let mut bell = Bell::new(limits, RingLedger::default());
    let mut backoff = Backoff::default();
    let mut spent = SpentCache::default();
    let mut cursor = None;
    let Process { pid, began } = Process::me();
    let key = SessionKey { client: BELL.into(), session: format!("{pid} {began}") };
    let mut reporter = Reporter::start(Arc::clone(mailbox), &key, Some(DOOR));
    while left > 0 && Process::parent() == parent {
        let holds_lease = place.as_ref().is_none_or(holds_lease);
        // Messages that `amb mcp` of the same client has shown cause no ring.
        let beside = place.as_ref().map(WakeDirectory::sibling_state).transpose()?.unwrap_or_default();
        let round = round(&**mailbox, &mut bell, holds_lease, &beside, &mut spent, output, &mut cursor);
        match round.await {
            Ok(rung) => {
                if rung {
                    reporter.rung(DOOR, None);
                }
                reporter.update(bell.ledger().state(Timestamp::now()));
                left -= u64::from(rung);
                backoff = Backoff::default();
            }
            Err(Failure::Office(error)) if error.is_transient() => {
                let wait = backoff.pause();
                tokio::time::sleep(error.wait().unwrap_or(wait).max(wait).min(PARENT_CHECK)).await;
            }
            Err(error) => return Err(error),
        }
    }
    // After this timeout its missing heartbeats show that it ended.
    let _ = tokio::time::timeout(PARENT_CHECK, reporter.end()).await;
    if let Some(Err(error)) = place.map(|place| place.release(Process::me())) {
        tracing::debug!(%error, "the lease stays until others find that this process has ended");
    }
    Ok(())
}

/// Whether this watcher rings: it takes the lease where nobody has it, and yields to any client that is known to be
/// active.
fn holds_lease(place: &WakeDirectory) -> bool {
    let process = Process::me();
    let mine =
        Lease { process, client: BELL.into(), session: process.pid.to_string(), active_at: Timestamp::UNIX_EPOCH };
    place.claim(&mine).unwrap_or_else(|error| {
        tracing::warn!(%error, "the lease of wake-ups cannot be read");
        true
    })
}

/// Reads the mailbox once, rings if it is due, else waits for a change; returns whether it rang.
async fn round(
    mailbox: &dyn Mailbox,
    bell: &mut Bell,
    holds_lease: bool,
    beside: &SiblingState,
    spent: &mut SpentCache,
    output: Output,
    cursor: &mut Option<amb_core::Cursor>,
) -> Result<bool, Failure> {
    // The cursor is taken before the inbox is read, so that nothing is missed between the two.
    let since = match cursor.take() {
        Some(since) => since,
        None => mailbox.events(None, Duration::ZERO).await?.cursor,
    };
    let inbox = mailbox.inbox(true).await?;
    let mut waiting = amb_wake::unread(mailbox, &inbox, spent, |mail| beside.shown.contains(&mail.id)).await?;
    let unread = inbox.unread();
    let now = Timestamp::now();
    let mut decide = |waiting: &[WaitingMessage]| {
        bell.decide(&RingFacts {
            now,
            waiting,
            wait_open: beside.wait_open,
            called_at: None,
            user_turn_at: None,
            client: ClientState::Unknown,
            holds_lease,
        })
    };
    let mut decision = decide(&waiting);
    if decision == RingDecision::Ring {
        amb_wake::leave_out_held(mailbox, &mut waiting).await?;
        decision = decide(&waiting);
    }
    let wait = match decision {
        RingDecision::Ring => {
            bell.ringing(now, &waiting);
            let summary = Summary::of(mailbox.me(), unread, &waiting);
            output.stream(&json!({"unread": unread, "line": summary.line()}), || summary.line())?;
            amb_wake::report_rung(mailbox, &waiting).await;
            *cursor = Some(since);
            return Ok(true);
        }
        RingDecision::Later(at) => Duration::try_from(at.duration_since(now)).unwrap_or_default(),
        RingDecision::Quiet(_) | RingDecision::GiveUp => PARENT_CHECK,
    };
    let page = mailbox.events(Some(since.clone()), wait.min(PARENT_CHECK)).await;
    // An unknown cursor is replaced by the end of the log.
    *cursor = page.ok().map(|page| page.cursor);
    Ok(false)
}
