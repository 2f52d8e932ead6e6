//! Acknowledgements: how a sender learns that its message is in the goal's buffer.
//!
//! A message is published with a reply subject `PREFIX.amb.TOKEN`. The receiving router answers there:
//!
//! - nothing, or tokens separated by spaces: the message of that subject's token, and of those tokens, are buffered;
//! - `!` and a reason: the message was refused.
//!
//! So one answer can acknowledge many messages of one sender, which halves the traffic under load. The server itself answers
//! with status 503 where nobody listens. A subscriber that never answers (the original's) is noticed by the time that passes.

use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use async_nats::StatusCode;
use futures_util::StreamExt;
use tokio::sync::oneshot;
use tokio_util::bytes::Bytes;

use crate::broker::Refusal;

/// The last token but one of our reply subjects: several of them may be answered in one message.
const MARK: &str = "amb";
/// Answers that are sent together, at most. A token has up to 20 digits, so a message of them stays small.
pub(super) const ANSWERS_AT_ONCE: usize = 512;

/// What became of one message.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Verdict {
    Buffered,
    Refused(String),
    NobodyListens,
    ConnectionLost,
}

/// Messages whose answer is awaited.
#[derive(Debug)]
pub(super) struct Awaited {
    prefix: String,
    next: AtomicU64,
    pending: Mutex<HashMap<u64, oneshot::Sender<Verdict>>>,
}

impl Awaited {
    /// `inbox` is a subject of this connection alone.
    pub(super) fn new(inbox: &str) -> Arc<Self> {
        Arc::new(Self { prefix: format!("{inbox}.{MARK}."), next: AtomicU64::new(1), pending: Mutex::default() })
    }

    /// The subject on which all answers come.
    pub(super) fn subject(&self) -> String {
        format!("{}*", self.prefix)
    }

    /// A reply subject for one message, and the answer to come.
    pub(super) fn ask(self: &Arc<Self>) -> Question {
        let token = self.next.fetch_add(1, Ordering::Relaxed);
        let (sender, answer) = oneshot::channel();
        self.pending().insert(token, sender);
        Question { reply: format!("{}{token}", self.prefix), token, answer, owner: Arc::clone(self) }
    }

    /// Takes one answer from the wire.
    fn settle(&self, message: &async_nats::Message) {
        let Some(token) = message.subject.strip_prefix(&self.prefix).and_then(|token| token.parse().ok()) else {
            return;
        };
        if message.status == Some(StatusCode::NO_RESPONDERS) {
            return self.tell(token, Verdict::NobodyListens);
        }
        let text = std::str::from_utf8(&message.payload).unwrap_or_default();
        match text.strip_prefix('!') {
            Some(why) => self.tell(token, Verdict::Refused(why.chars().take(200).collect())),
            None => {
                self.tell(token, Verdict::Buffered);
                for token in text.split_ascii_whitespace().filter_map(|token| token.parse().ok()) {
                    self.tell(token, Verdict::Buffered);
                }
            }
        }
    }

    /// The connection broke: whoever waits learns that nothing is known.
    pub(super) fn lose_all(&self) {
        for (_, sender) in std::mem::take(&mut *self.pending()) {
            let _ = sender.send(Verdict::ConnectionLost);
        }
    }

    fn tell(&self, token: u64, verdict: Verdict) {
        if let Some(sender) = self.pending().remove(&token) {
            // The asker may have given up in this very moment.
            let _ = sender.send(verdict);
        }
    }

    fn pending(&self) -> MutexGuard<'_, HashMap<u64, oneshot::Sender<Verdict>>> {
        self.pending.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// One awaited answer. Dropped, it is awaited no longer.
#[derive(Debug)]
pub(super) struct Question {
    pub(super) reply: String,
    token: u64,
    answer: oneshot::Receiver<Verdict>,
    owner: Arc<Awaited>,
}

impl Question {
    pub(super) async fn answer(&mut self) -> Verdict {
        (&mut self.answer).await.unwrap_or(Verdict::ConnectionLost)
    }
}

impl Drop for Question {
    fn drop(&mut self) {
        self.owner.pending().remove(&self.token);
    }
}

/// Reads answers until the connection is closed for good.
pub(super) async fn listen(mut answers: async_nats::Subscriber, awaited: Arc<Awaited>) {
    while let Some(message) = answers.next().await {
        awaited.settle(&message);
    }
}

/// One answer to send.
pub(super) struct Answer {
    pub(super) reply: async_nats::Subject,
    pub(super) verdict: Result<(), Refusal>,
}

/// What to send: answers to one sender go together.
pub(super) fn together(answers: impl Iterator<Item = Answer>) -> Vec<(async_nats::Subject, Bytes)> {
    let mut messages = Vec::new();
    let mut shared: Vec<(async_nats::Subject, usize, String)> = Vec::new();
    for Answer { reply, verdict } in answers {
        if let Err(Refusal(why)) = verdict {
            messages.push((reply, format!("!{why}").into()));
            continue;
        }
        let parts = reply.rsplit_once('.').filter(|(prefix, _)| prefix.ends_with(MARK));
        let Some((prefix, token)) = parts else {
            // Someone else's request: it gets an answer of its own.
            messages.push((reply, Bytes::from_static(b"+OK")));
            continue;
        };
        match shared.iter_mut().find(|(first, length, _)| *length == prefix.len() && first.starts_with(prefix)) {
            Some((_, _, tokens)) => {
                tokens.push_str(token);
                tokens.push(' ');
            }
            None => {
                let length = prefix.len();
                shared.push((reply, length, String::new()));
            }
        }
    }
    messages.extend(shared.into_iter().map(|(reply, _, tokens)| (reply, tokens.into())));
    messages
}

#[cfg(test)]
mod tests {
    use super::*;

    fn wire(subject: &str, payload: &str) -> async_nats::Message {
        async_nats::Message {
            subject: subject.into(),
            reply: None,
            payload: payload.to_owned().into(),
            headers: None,
            status: None,
            description: None,
            length: 0,
        }
    }

    #[tokio::test]
    async fn one_answer_settles_all_that_it_names_and_no_other() {
        let awaited = Awaited::new("_INBOX.x");
        let mut questions: Vec<_> = (0..3).map(|_| awaited.ask()).collect();
        awaited.settle(&wire("_INBOX.x.amb.1", "3 "));
        assert_eq!(questions[0].answer().await, Verdict::Buffered);
        assert_eq!(questions[2].answer().await, Verdict::Buffered);
        awaited.settle(&wire("_INBOX.x.amb.2", "!the goal has ended"));
        assert_eq!(questions[1].answer().await, Verdict::Refused("the goal has ended".into()));
        assert!(awaited.pending().is_empty());
    }

    #[tokio::test]
    async fn a_lost_connection_answers_everybody() {
        let awaited = Awaited::new("_INBOX.x");
        let mut question = awaited.ask();
        awaited.lose_all();
        assert_eq!(question.answer().await, Verdict::ConnectionLost);
    }

    #[test]
    fn a_question_nobody_waits_for_is_forgotten() {
        let awaited = Awaited::new("_INBOX.x");
        drop(awaited.ask());
        assert!(awaited.pending().is_empty());
    }

    #[test]
    fn answers_to_one_sender_travel_together() {
        let answer = |reply: &str, verdict| Answer { reply: reply.into(), verdict };
        let sent = together(
            [
                answer("_INBOX.a.amb.1", Ok(())),
                answer("_INBOX.b.amb.1", Ok(())),
                answer("_INBOX.a.amb.2", Ok(())),
                answer("_INBOX.a.amb.3", Err(Refusal("full".into()))),
                answer("_INBOX.c.QQ", Ok(())),
                answer("_INBOX.a.amb.4", Ok(())),
            ]
            .into_iter(),
        );
        let sent: Vec<_> = sent.iter().map(|(to, body)| (to.as_str(), std::str::from_utf8(body).unwrap())).collect();
        let expected =
            [("_INBOX.a.amb.3", "!full"), ("_INBOX.c.QQ", "+OK"), ("_INBOX.a.amb.1", "2 4 "), ("_INBOX.b.amb.1", "")];
        assert_eq!(sent, expected);
    }
}
