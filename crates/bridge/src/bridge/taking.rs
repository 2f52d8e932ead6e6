//! Which mail has its turn next: what was left, what is due again, what somebody revived, and what is claimed anew.

use std::time::Duration;

use amb_core::mailbox::ClaimRequest;
use amb_core::{Message, MessageId, Priority, ReceiptState, Timestamp};
use tokio::time::Instant;

use super::{Bridge, Shared};
use crate::error::{BridgeError, is_lasting};
use crate::page::{Answer, Page};
use crate::queue::{Held, MAX_HELD};

/// What the order of mail depends on.
struct Claimed {
    priority: Priority,
    sent_at: Timestamp,
}

impl Bridge {
    /// Takes up what the bridge before this one left when it died.
    pub(super) async fn resume(&mut self) -> Result<(), BridgeError> {
        let mut ours = Vec::new();
        for page in self.shared.ledger.pages()? {
            if self.queue.is_waiting(&page.message_id) {
                continue;
            }
            let found = match self.shared.office.message(&page.message_id).await {
                Ok(found) => found,
                Err(error) if is_lasting(error.code()) => {
                    tracing::warn!(mail = %page.message_id, %error, "the office does not have it any more");
                    self.shared.ledger.close(&page.message_id)?;
                    continue;
                }
                Err(error) => return Err(error.into()),
            };
            let is_read = found
                .receipts
                .iter()
                .any(|receipt| receipt.recipient == *self.shared.office.me() && receipt.state == ReceiptState::Read);
            if page.outcome.is_some() || page.revived || (is_read && page.begun) {
                // An answer to send; or a turn that no claim brings back, since the agent has read the mail itself.
                let held = self.shared.hold(found.message, None)?;
                self.queue.wait(self.due(&page), held);
            } else if is_read {
                self.shared.ledger.close(&page.message_id)?;
            } else if page.claimed_until.is_some_and(|until| until > Timestamp::now()) {
                ours.push(page.message_id);
            }
        }
        if !ours.is_empty() {
            // Claimed by the process that died. Given back, it is claimed anew like any other.
            self.shared.office.release(&ours).await?;
        }
        Ok(())
    }

    /// When a mail may be tried.
    pub(super) fn due(&self, page: &Page) -> Instant {
        let wait = page
            .next_try
            .map_or(Duration::ZERO, |at| Duration::try_from(at.duration_since(Timestamp::now())).unwrap_or_default());
        Instant::now() + wait.min(self.shared.options.backoff.longest())
    }

    /// A mail whose next try is due, one whose conversation is free again, one that somebody revived, or a new one.
    pub(super) async fn next_mail(&mut self) -> Result<Option<Held>, BridgeError> {
        let longest = self.shared.options.longest_turn();
        loop {
            while let Some(held) = self.queue.next(Instant::now()) {
                if held.until.is_none_or(|until| until > Timestamp::now() + longest) {
                    return Ok(Some(held));
                }
                // The claim does not last for another turn. Given back, it can be claimed for longer; and so is what waits
                // behind it, so that their order stays.
                let mut late = self.queue.take_parked(&held.conversation);
                late.push(held);
                self.hand_back(late).await?;
            }
            if let Some(mail) = self.take_up_revived().await? {
                let held = self.shared.hold(mail, None)?;
                self.queue.park(held);
            } else if let Some(claimed) = self.claim(true).await? {
                // What was sent before an urgent mail in its thread is answered before it: it must be here, too.
                while claimed.priority > Priority::Normal
                    && let Some(older) = self.claim(false).await?
                    && older.sent_at <= claimed.sent_at
                {}
            } else {
                return Ok(None);
            }
        }
    }

    /// Claims one mail more and holds it; returns what the order of mail depends on. None where there is none, or where
    /// enough is held.
    async fn claim(&mut self, urgent_first: bool) -> Result<Option<Claimed>, BridgeError> {
        let lease = self.shared.options.lease();
        while self.queue.len() < MAX_HELD {
            let until = Timestamp::now().saturating_add(lease).unwrap_or(Timestamp::MAX);
            let request = ClaimRequest { limit: 1, urgent_first, lease };
            let Some(mail) = self.shared.office.claim(request).await?.pop() else { return Ok(None) };
            self.announced.ids.retain(|id| *id != mail.id);
            if self.queue.is_running(&mail.id) {
                // The office has handed it out a second time; its turn is running.
                continue;
            }
            let mut page = self.shared.ledger.page(&mail.id)?;
            page.claimed_until = Some(until);
            self.shared.ledger.note(&page)?;
            self.queue.forget(&mail.id);
            let claimed = Claimed { priority: mail.priority, sent_at: mail.sent_at };
            let held = self.shared.hold(mail, Some(until))?;
            match self.due(&page) {
                later if later > Instant::now() => self.queue.wait(later, held),
                _ => self.queue.park(held),
            }
            return Ok(Some(claimed));
        }
        Ok(None)
    }

    /// Gives mail back. What the office does not take back now is kept.
    pub(super) async fn hand_back(&mut self, mail: Vec<Held>) -> Result<(), BridgeError> {
        let ids: Vec<MessageId> = mail.iter().map(|held| held.mail.id.clone()).collect();
        let given_back = self.shared.give_back(&ids).await;
        if given_back.is_err() {
            mail.into_iter().for_each(|held| self.queue.park(held));
        }
        given_back
    }

    async fn take_up_revived(&mut self) -> Result<Option<Message>, BridgeError> {
        let Shared { ledger, office, .. } = &*self.shared;
        for mut dead in ledger.revived()? {
            match office.message(&dead.message_id).await {
                Ok(found) => {
                    let mut page = Page::new(dead.message_id.clone());
                    page.revived = true;
                    page.failed_turns = dead.failed_turns;
                    page.outcome = dead.answer.map(Answer::Reply);
                    ledger.write(&page)?;
                    ledger.taken_up(&dead.message_id)?;
                    return Ok(Some(found.message));
                }
                Err(error) if is_lasting(error.code()) => {
                    tracing::warn!(mail = %dead.message_id, %error, "cannot be tried again");
                    dead.reason = format!("cannot be tried again: {error}");
                    ledger.bury(&dead)?;
                    ledger.taken_up(&dead.message_id)?;
                }
                Err(error) => return Err(error.into()),
            }
        }
        Ok(None)
    }
}
