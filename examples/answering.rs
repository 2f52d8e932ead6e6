//! The loop that both example agents share: it is written against [`Mailbox`], so it does not know where the mail rests.

use std::time::Duration;

use amb_core::mailbox::{ClaimRequest, Result};
use amb_core::{Draft, Mailbox, Message};

/// Answers every message with `answer`, for as long as the office can be reached.
///
/// A message is acknowledged only after its answer was accepted, and the answer has a key made of the message's id. So a
/// process that is killed between the two answers again when it is started again, and the office keeps one answer.
pub async fn answer_mail(office: &dyn Mailbox, answer: impl Fn(&Message) -> String) -> Result<()> {
    // The present end of the log: what came before is claimed below, what comes later ends the wait.
    let mut cursor = office.events(None, Duration::ZERO).await?.cursor;
    loop {
        while let [message] = office.claim(ClaimRequest::default()).await?.as_slice() {
            if message.provokes_answer() {
                let mut reply = Draft::reply(message, answer(message)).automatic();
                reply.idempotency_key = Some(format!("answer:{}", message.id));
                office.send(reply).await?;
            }
            office.ack(std::slice::from_ref(&message.id)).await?;
        }
        cursor = office.events(Some(cursor), Duration::from_secs(30)).await?.cursor;
    }
}
