//! The mail that a bridge holds: in its turn, waiting for one, or waiting for another try.

use std::collections::VecDeque;

use amb_core::{Message, MessageId, Timestamp};
use tokio::time::Instant;

/// The most mail that is claimed without having its turn. More stays in the office, where others can take it.
pub(crate) const MAX_HELD: usize = 64;

/// A mail that this bridge has to see to.
#[derive(Debug, Clone)]
pub(crate) struct Held {
    pub(crate) mail: Message,
    /// Until when it is claimed. None for a mail that no claim brings: revived, or read by the agent itself meanwhile.
    pub(crate) until: Option<Timestamp>,
    /// The conversation of the runtime in which it has its turn. One turn at a time runs in it.
    pub(crate) conversation: String,
    /// Whether a mail of the same thread came before it.
    pub(crate) is_later: bool,
}

/// What has its turn.
#[derive(Debug)]
struct Running {
    conversation: String,
    /// The mail, where it is one; and whether it is claimed.
    mail: Option<(MessageId, bool)>,
}

#[derive(Debug, Default)]
pub(crate) struct Queue {
    /// Mail that failed, and when it is tried again.
    waiting: Vec<(Instant, Held)>,
    /// Mail whose conversation is busy, in the order in which it came.
    parked: VecDeque<Held>,
    running: Vec<Running>,
}

impl Queue {
    /// How much mail waits.
    pub(crate) fn len(&self) -> usize {
        self.waiting.len() + self.parked.len()
    }

    /// The mail that has its turn now.
    pub(crate) fn under_way(&self) -> Vec<MessageId> {
        self.running.iter().filter_map(|running| Some(running.mail.as_ref()?.0.clone())).collect()
    }

    pub(crate) fn is_busy(&self, conversation: &str) -> bool {
        self.running.iter().any(|running| running.conversation == conversation)
    }

    /// Whether the mail has its turn now.
    pub(crate) fn is_running(&self, id: &MessageId) -> bool {
        self.running.iter().any(|running| running.mail.as_ref().is_some_and(|(mail, _)| mail == id))
    }

    /// Whether the mail waits for another try.
    pub(crate) fn is_waiting(&self, id: &MessageId) -> bool {
        self.waiting.iter().any(|(_, held)| held.mail.id == *id)
    }

    /// Whether a mail of this conversation must wait behind others of it.
    pub(crate) fn is_taken(&self, conversation: &str) -> bool {
        self.is_busy(conversation) || self.parked.iter().any(|held| held.conversation == conversation)
    }

    /// To be tried then.
    pub(crate) fn wait(&mut self, at: Instant, held: Held) {
        self.waiting.push((at, held));
    }

    /// To be tried when its conversation is free.
    pub(crate) fn park(&mut self, held: Held) {
        self.parked.push_back(held);
    }

    /// Lets go of a mail that has been claimed anew.
    pub(crate) fn forget(&mut self, id: &MessageId) {
        self.waiting.retain(|(_, held)| held.mail.id != *id);
        self.parked.retain(|held| held.mail.id != *id);
    }

    pub(crate) fn begin(&mut self, conversation: &str, mail: Option<&Held>) {
        let mail = mail.map(|held| (held.mail.id.clone(), held.until.is_some()));
        self.running.push(Running { conversation: conversation.to_owned(), mail });
    }

    pub(crate) fn end(&mut self, conversation: &str) {
        self.running.retain(|running| running.conversation != conversation);
    }

    /// The next mail that can have its turn now: one that is due for another try, else the first whose conversation is
    /// free.
    pub(crate) fn next(&mut self, now: Instant) -> Option<Held> {
        if let Some(due) = self.waiting.iter().position(|(at, held)| *at <= now && !self.is_busy(&held.conversation)) {
            return Some(self.waiting.swap_remove(due).1);
        }
        let free = self.parked.iter().position(|held| !self.is_busy(&held.conversation))?;
        self.parked.remove(free)
    }

    /// When the next try is due of a mail whose conversation is free.
    pub(crate) fn next_due(&self) -> Option<Instant> {
        self.waiting.iter().filter(|(_, held)| !self.is_busy(&held.conversation)).map(|(at, _)| *at).min()
    }

    /// Takes out the mail of a conversation that waits for it to be free.
    pub(crate) fn take_parked(&mut self, conversation: &str) -> Vec<Held> {
        let (taken, kept) = self.parked.drain(..).partition(|held| held.conversation == conversation);
        self.parked = kept;
        Vec::from(taken)
    }

    /// Everything that is claimed, taken out.
    pub(crate) fn drain_claimed(&mut self) -> Vec<MessageId> {
        let waiting = self.waiting.drain(..).map(|(_, held)| held);
        let held = waiting.chain(self.parked.drain(..)).filter(|held| held.until.is_some()).map(|held| held.mail.id);
        let mut claimed: Vec<MessageId> = held.collect();
        claimed
            .extend(self.running.drain(..).filter_map(|running| running.mail.filter(|mail| mail.1)).map(|mail| mail.0));
        claimed
    }
}
