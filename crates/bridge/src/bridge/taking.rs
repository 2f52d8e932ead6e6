//! Chooses the next message: left over from an earlier process, due for a retry, revived from the dead letters, or
//! claimed anew.

use std::time::Duration;

use amb_core::mailbox::ClaimRequest;
use amb_core::{Message, MessageId, Priority, ReceiptState, Timestamp};
use tokio::time::Instant;

use super::{Bridge, BridgeContext};
use crate::entry::{LedgerEntry, Resolution};
use crate::error::{BridgeError, is_permanent};
use crate::queue::{HeldMessage, MAX_HELD};

impl Bridge {
    /// Resumes the ledger entries of a process that died.
    pub(super) async fn resume(&mut self) -> Result<(), BridgeError> {
        let mut ours = Vec::new();
        for entry in self.shared.ledger.entries()? {
            if self.queue.is_waiting(&entry.message_id) {
                continue;
            }
            let found = match self.shared.office.message(&entry.message_id).await {
                Ok(found) => found,
                Err(error) if is_permanent(&error) => {
                    tracing::warn!(mail = %entry.message_id, %error, "the office no longer has this message");
                    self.shared.ledger.close(&entry.message_id)?;
                    continue;
                }
                Err(error) => return Err(error.into()),
            };
            let is_read = found
                .receipts
                .iter()
                .any(|receipt| receipt.recipient == *self.shared.office.me() && receipt.state == ReceiptState::Read);
            if entry.outcome.is_some() || entry.revived || (is_read && entry.begun) {
                // Either an answer waits to be sent, or a turn began and no claim will return the message, because the
                // agent has read it itself.
                let held = self.shared.hold(found.message, None)?;
                self.queue.wait(self.due(&entry), held);
            } else if is_read {
                self.shared.ledger.close(&entry.message_id)?;
            } else if entry.claimed_until.is_some_and(|until| until > Timestamp::now()) {
                ours.push(entry.message_id);
            }
        }
        if !ours.is_empty() {
            // Claimed by the process that died. Once released, they are claimed anew like any others.
            self.shared.office.release(&ours).await?;
        }
        Ok(())
    }

    /// When a message is due for its next attempt.
    pub(super) fn due(&self, entry: &LedgerEntry) -> Instant {
        let wait = entry
            .next_try
            .map_or(Duration::ZERO, |at| Duration::try_from(at.duration_since(Timestamp::now())).unwrap_or_default());
        Instant::now() + wait.min(self.shared.options.backoff.longest())
    }

    /// Returns a message whose retry is due, one whose conversation is free again, a revived one, or a new one.
    pub(super) async fn next_message(&mut self) -> Result<Option<HeldMessage>, BridgeError> {
        let longest = self.shared.options.longest_turn();
        loop {
            while let Some(held) = self.queue.next(Instant::now()) {
                if held.until.is_none_or(|until| until > Timestamp::now() + longest) {
                    return Ok(Some(held));
                }
                // The claim is too short for another turn. Released, the message can be claimed for longer; those
                // parked behind it are released too, so that their order stays.
                let mut late = self.queue.take_parked(&held.conversation);
                late.push(held);
                self.release_held(late).await?;
            }
            if let Some(mail) = self.claim_revived().await? {
                let held = self.shared.hold(mail, None)?;
                self.queue.park(held);
            } else if let Some((priority, sent_at)) = self.claim(true).await? {
                // Earlier messages of the session are answered before an urgent one, so they must be claimed, too.
                while priority > Priority::Normal
                    && let Some((_, older)) = self.claim(false).await?
                    && older <= sent_at
                {}
            } else {
                return Ok(None);
            }
        }
    }

    /// Claims one more message and adds it to the queue; returns its priority and the time of sending. `None` where there is
    /// none, or [`MAX_HELD`] are held.
    async fn claim(&mut self, urgent_first: bool) -> Result<Option<(Priority, Timestamp)>, BridgeError> {
        let lease = self.shared.options.lease();
        while self.queue.len() < MAX_HELD {
            let until = Timestamp::now().saturating_add(lease).unwrap_or(Timestamp::MAX);
            let request = ClaimRequest { limit: 1, urgent_first, lease };
            let Some(mail) = self.shared.office.claim(request).await?.pop() else { return Ok(None) };
            self.announced.ids.retain(|id| *id != mail.id);
            if self.queue.is_running(&mail.id) {
                // The office has let it be claimed twice; its turn is running.
                continue;
            }
            let mut entry = self.shared.ledger.entry(&mail.id)?;
            entry.claimed_until = Some(until);
            self.shared.ledger.write_unsynced(&entry)?;
            self.queue.forget(&mail.id);
            let claimed = (mail.priority, mail.sent_at);
            let held = self.shared.hold(mail, Some(until))?;
            match self.due(&entry) {
                later if later > Instant::now() => self.queue.wait(later, held),
                _ => self.queue.park(held),
            }
            return Ok(Some(claimed));
        }
        Ok(None)
    }

    /// Releases messages; keeps them where the office cannot be reached.
    pub(super) async fn release_held(&mut self, mail: Vec<HeldMessage>) -> Result<(), BridgeError> {
        let ids: Vec<MessageId> = mail.iter().map(|held| held.mail.id.clone()).collect();
        let released = self.shared.release(&ids).await;
        if released.is_err() {
            mail.into_iter().for_each(|held| self.queue.park(held));
        }
        released
    }

    async fn claim_revived(&mut self) -> Result<Option<Message>, BridgeError> {
        let BridgeContext { ledger, office, .. } = &*self.shared;
        for mut dead in ledger.revived()? {
            match office.message(&dead.message_id).await {
                Ok(found) => {
                    let mut entry = LedgerEntry::new(dead.message_id.clone());
                    entry.revived = true;
                    entry.failed_turns = dead.failed_turns;
                    entry.outcome = dead.answer.map(Resolution::Reply);
                    ledger.write(&entry)?;
                    ledger.remove_revived(&dead.message_id)?;
                    return Ok(Some(found.message));
                }
                Err(error) if is_permanent(&error) => {
                    tracing::warn!(mail = %dead.message_id, %error, "cannot be tried again");
                    dead.reason = format!("cannot be tried again: {error}");
                    ledger.add_dead_letter(&dead)?;
                    ledger.remove_revived(&dead.message_id)?;
                }
                Err(error) => return Err(error.into()),
            }
        }
        Ok(None)
    }
}
