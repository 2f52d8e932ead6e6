//! Acknowledgements on the receiver's side: what a router replies to the senders of messages for its goals.
//!
//! The reply to a message with the reply subject `PREFIX.amb.TOKEN` goes to that subject. Its payload is:
//!
//! - empty, or tokens separated by spaces: the message of the subject's token, and those of these tokens, are buffered;
//! - `!` and a reason: the message was refused.
//!
//! So one reply can acknowledge many messages of one sender. Tokens are opaque to the receiver.

use async_nats::Subject;
use tokio_util::bytes::Bytes;

use crate::broker::PublicationRefused;

/// The last token but one of our reply subjects: messages with such a subject may be acknowledged together.
pub(super) const REPLY_MARK: &str = "amb";
/// Most acknowledgements in one reply. A token has up to 20 characters, so a reply stays small.
pub(super) const MAX_ACKS_PER_REPLY: usize = 512;

/// One acknowledgement to send.
pub(super) struct Acknowledgement {
    pub(super) reply: Subject,
    pub(super) outcome: Result<(), PublicationRefused>,
}

/// Groups acknowledgements into replies, one for each sender.
pub(super) fn group_by_sender(acks: impl Iterator<Item = Acknowledgement>) -> Vec<(Subject, Bytes)> {
    let mut messages = Vec::new();
    let mut shared: Vec<(Subject, usize, String)> = Vec::new();
    for Acknowledgement { reply, outcome } in acks {
        if let Err(PublicationRefused(why)) = outcome {
            messages.push((reply, format!("!{why}").into()));
            continue;
        }
        let parts = reply.rsplit_once('.').filter(|(prefix, _)| prefix.ends_with(REPLY_MARK));
        let Some((prefix, token)) = parts else {
            // A request of another program gets a reply of its own.
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

    #[test]
    fn acknowledgements_for_one_sender_are_one_reply() {
        let answer = |reply: &str, outcome| Acknowledgement { reply: reply.into(), outcome };
        let sent = group_by_sender(
            [
                answer("_INBOX.a.amb.1", Ok(())),
                answer("_INBOX.b.amb.1", Ok(())),
                answer("_INBOX.a.amb.2", Ok(())),
                answer("_INBOX.a.amb.3", Err(PublicationRefused("full".into()))),
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
