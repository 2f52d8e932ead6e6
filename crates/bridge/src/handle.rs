//! One mail: its turn, its answer, its end. Every step may be repeated after a crash.

use amb_core::render::{Incoming, Nonce, render_incoming};
use amb_core::{Code, Draft, Message, SessionId, TaskState, Timestamp};
use tokio::time::timeout;

use crate::bridge::Bridge;
use crate::error::{BridgeError, Stop, is_lasting};
use crate::ledger::Dead;
use crate::options::Step;
use crate::page::{Answer, Page};
use crate::runtime::{Trouble, Turn, TurnError};
use crate::task;

/// The longest answer that the office takes; what is beyond is cut, and the answer says so.
const MAX_REPLY_CHARS: usize = amb_core::limits::MAX_CONTENT_CHARS;

impl Bridge {
    pub(crate) async fn handle(&mut self, mail: &Message) -> Result<(), Stop> {
        self.options.reached(Step::Claimed);
        let mut page = self.ledger.page(&mail.id)?;
        if page.outcome.is_none() {
            let answer = self.answer(mail, &mut page).await?;
            self.options.reached(Step::Turned);
            page.outcome = Some(answer);
            self.ledger.write(&page)?;
        }
        self.options.reached(Step::Recorded);
        self.finish(mail, &page).await?;
        Ok(())
    }

    /// What is to be done about the mail, from the runtime unless there is no need to ask it.
    async fn answer(&mut self, mail: &Message, page: &mut Page) -> Result<Answer, Stop> {
        if let Some(id) = task_of(mail, page)
            && !task::begin(&*self.office, id).await?
        {
            return Ok(Answer::NotWanted);
        }
        let turn = self.prepare(mail, page)?;
        page.begun = true;
        page.next_try = None;
        self.ledger.note(page)?;
        self.options.reached(Step::Begun);
        let ran = timeout(self.options.longest_turn(), self.runtime.turn(&turn)).await;
        let error = match ran {
            Ok(Ok(outcome)) => {
                self.is_up();
                return Ok(outcome.into());
            }
            Ok(Err(error)) => error,
            Err(_) => TurnError::new(Trouble::Timeout, "the runtime said nothing for longer than a turn may take"),
        };
        tracing::warn!(mail = %mail.id, trouble = ?error.trouble, %error, "the turn failed");
        self.note_error(&error.detail);
        if error.trouble.is_general() {
            // It never began.
            page.begun = turn.repeat;
            self.ledger.note(page)?;
            return Err(Stop::Pause(error));
        }
        self.is_up();
        page.failed(error.trouble, &error.detail);
        if page.failures < self.options.max_failures && error.trouble != Trouble::Refused {
            let wait = self.options.pace.after(page.failures);
            page.next_try = Timestamp::now().checked_add(wait).ok();
            self.ledger.write(page)?;
            return Err(Stop::Later);
        }
        Ok(Answer::GivenUp { trouble: error.trouble, reason: error.detail })
    }

    fn prepare(&self, mail: &Message, page: &Page) -> Result<Turn, BridgeError> {
        let subject = mail.subject.as_deref().unwrap_or_default();
        let session = mail.session.clone().unwrap_or_else(|| SessionId::between(&mail.from, &mail.to, subject));
        let make = || match &self.options.session_per_peer {
            Some(prefix) => format!("{prefix}{}", mail.from),
            None => self.options.main_session.clone(),
        };
        let (session_key, known) = self.ledger.conversation(&session, &mail.id, make)?;
        let incoming = Incoming::from(mail);
        let mut prompt = render_incoming(if known { incoming.without_subject() } else { incoming }, &Nonce::fresh());
        let is_task = task_of(mail, page).is_some();
        prompt.push_str(&match is_task || mail.provokes_answer() {
            true => format!(
                "Your answer to this is sent back to {} by itself; do not send it with a tool as well. To send nothing, \
                 say NO_REPLY.\n",
                mail.from
            ),
            false => "This needs no answer, and none is sent back.\n".to_owned(),
        });
        Ok(Turn {
            mail: mail.clone(),
            session_key,
            prompt,
            key: page.turn_key(),
            repeat: page.begun,
            timeout: self.options.turn_timeout,
        })
    }

    /// Does what the page says is to be done, and ends the mail.
    async fn finish(&mut self, mail: &Message, page: &Page) -> Result<(), BridgeError> {
        let task = task_of(mail, page);
        let office = &*self.office;
        match (page.outcome.clone().unwrap_or(Answer::NoReply), task) {
            (Answer::Reply(text), Some(id)) => {
                task::end(office, id, TaskState::Completed, Some(cut(text))).await?;
                self.status.replied += 1;
            }
            (Answer::NoReply, Some(id)) => {
                task::end(office, id, TaskState::Completed, None).await?;
                self.status.unanswered += 1;
            }
            (Answer::Reply(text), None) if mail.provokes_answer() => self.reply(mail, page, text).await?,
            (Answer::GivenUp { trouble, reason }, task) => {
                if let Some(id) = task {
                    task::end(office, id, TaskState::Failed, Some(cut(reason.clone()))).await?;
                }
                self.bury(mail, page, trouble, reason, None)?;
            }
            (Answer::Reply(_) | Answer::NoReply | Answer::NotWanted, _) => self.status.unanswered += 1,
        }
        self.options.reached(Step::Replied);
        match self.office.ack(std::slice::from_ref(&mail.id)).await {
            Ok(_) => {}
            Err(error) if is_lasting(error.code()) => {
                tracing::warn!(mail = %mail.id, %error, "cannot be acknowledged; it is done with all the same");
            }
            Err(error) => return Err(error.into()),
        }
        self.options.reached(Step::Acknowledged);
        Ok(self.ledger.close(&mail.id)?)
    }

    /// Sends the answer, once.
    async fn reply(&mut self, mail: &Message, page: &Page, text: String) -> Result<(), BridgeError> {
        let key = format!("bridge:{}", mail.id);
        let draft = Draft { idempotency_key: Some(key), ..Draft::reply(mail, cut(text.clone())).automatic() };
        match self.office.send(draft).await {
            Ok(_) => self.status.replied += 1,
            // The exchange has reached its ttl: that is what it is for.
            Err(error) if error.code() == Code::LoopRefused => self.status.unanswered += 1,
            Err(error) if error.code() == Code::Conflict => {
                tracing::info!(mail = %mail.id, "another bridge has answered this already");
                self.status.unanswered += 1;
            }
            // The peer has ended the connection, or is gone: the answer waits on the list for better times.
            Err(error) if is_lasting(error.code()) => {
                let reason = format!("the answer cannot be sent: {error}");
                self.bury(mail, page, Trouble::Refused, reason, Some(text))?;
            }
            Err(error) => return Err(error.into()),
        }
        Ok(())
    }

    /// Ends a mail that the office itself refuses to let go on.
    pub(crate) async fn set_aside(&mut self, mail: &Message, trouble: Trouble, reason: String) -> Result<(), Stop> {
        let page = self.ledger.page(&mail.id)?;
        self.bury(mail, &page, trouble, reason, None)?;
        match self.office.ack(std::slice::from_ref(&mail.id)).await {
            Err(error) if !is_lasting(error.code()) => Err(error.into()),
            _ => Ok(self.ledger.close(&mail.id)?),
        }
    }

    fn bury(
        &mut self,
        mail: &Message,
        page: &Page,
        trouble: Trouble,
        reason: String,
        answer: Option<String>,
    ) -> Result<(), BridgeError> {
        tracing::error!(mail = %mail.id, failures = page.failures, %reason, "given up; `amb bridge dead list` shows it");
        self.note_error(&reason);
        self.ledger.bury(&Dead {
            message_id: mail.id.clone(),
            from: mail.from.clone(),
            subject: mail.subject.clone(),
            failures: page.failures,
            failed_turns: page.failed_turns,
            trouble,
            reason,
            at: Timestamp::now(),
            answer,
        })?;
        self.status.given_up += 1;
        Ok(())
    }
}

/// The task that the mail brings, if it is still to be done. One that was given up has failed for good: when its mail is
/// revived, the answer goes back as an ordinary reply.
fn task_of<'m>(mail: &'m Message, page: &Page) -> Option<&'m amb_core::TaskId> {
    task::brought(mail).filter(|_| !page.revived)
}

/// What the office takes of a long answer, with a word that there was more.
fn cut(text: String) -> String {
    const NOTE: &str = "\n[cut: the answer was longer than a message may be]";
    match text.char_indices().nth(MAX_REPLY_CHARS) {
        None => text,
        Some(_) => {
            let kept: String = text.chars().take(MAX_REPLY_CHARS - NOTE.chars().count()).collect();
            kept + NOTE
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_long_answer_is_cut_to_what_the_office_takes_and_says_so() {
        assert_eq!(cut("ä".repeat(MAX_REPLY_CHARS)), "ä".repeat(MAX_REPLY_CHARS));
        let long = cut("ä".repeat(MAX_REPLY_CHARS + 1));
        assert_eq!(long.chars().count(), MAX_REPLY_CHARS);
        assert!(long.ends_with("longer than a message may be]"));
    }
}
