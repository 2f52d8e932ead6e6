//! One mail: its turn, its answer, its end. Every step may be repeated after a crash.

use amb_core::render::{Incoming, Nonce, render_incoming};
use amb_core::{Code, Draft, Message, TaskId, TaskState, Timestamp};
use tokio::time::timeout;

use crate::bridge::Shared;
use crate::directive::{self, Directive, NO_ANSWER};
use crate::error::{BridgeError, Stop, is_lasting};
use crate::ledger::Dead;
use crate::options::{Step, Tasks};
use crate::page::{Answer, Page};
use crate::queue::Held;
use crate::runtime::{Outcome, Trouble, Turn};
use crate::split::pieces;
use crate::task::{self, Moved};

impl Shared {
    pub(crate) async fn handle(&self, held: &Held) -> Result<(), Stop> {
        let mail = &held.mail;
        self.options.reached(Step::Claimed);
        let mut page = self.ledger.page(&mail.id)?;
        if page.outcome.is_none() {
            let answer = self.answer(held, &mut page).await?;
            self.options.reached(Step::Turned);
            page.outcome = Some(answer);
            self.ledger.write(&page)?;
        }
        self.options.reached(Step::Recorded);
        self.finish(mail, &page).await?;
        Ok(())
    }

    /// What is to be done about the mail, from the runtime unless there is no need to ask it.
    async fn answer(&self, held: &Held, page: &mut Page) -> Result<Answer, Stop> {
        let mail = &held.mail;
        if let Some(id) = task_of(mail, page) {
            let is_wanted = match self.options.tasks {
                Tasks::Accept => task::accept(&*self.office, id).await?,
                Tasks::Ask => task::is_open(&*self.office, id).await?,
            };
            if !is_wanted {
                return Ok(Answer::NotWanted);
            }
        }
        let turn = self.prepare(held, page);
        page.begun = true;
        page.next_try = None;
        self.ledger.note(page)?;
        self.options.reached(Step::Begun);
        let ran = timeout(self.options.longest_turn(), self.runtime.turn(&turn)).await;
        let error = match ran {
            Ok(Ok(outcome)) => {
                self.is_up();
                return Ok(self.understand(mail, page, outcome).await?);
            }
            Ok(Err(error)) => error,
            Err(_) => self.too_late(),
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
            let wait = self.options.backoff.after(page.failures);
            page.next_try = Timestamp::now().checked_add(wait).ok();
            self.ledger.write(page)?;
            return Err(Stop::Later);
        }
        Ok(Answer::GivenUp { trouble: error.trouble, reason: error.detail })
    }

    /// What the agent's words mean: its first line may say so (see [`directive`]).
    async fn understand(&self, mail: &Message, page: &Page, outcome: Outcome) -> Result<Answer, BridgeError> {
        let Outcome::Reply(text) = outcome else { return Ok(Answer::NoReply) };
        // No office takes it, and no reader misses it.
        let text = text.replace('\0', "\u{fffd}");
        let brought = task_of(mail, page);
        let (directive, rest) = directive::parse(&text);
        let said = |text: &str| match text.is_empty() {
            true => Answer::NoReply,
            false => Answer::Words(text.to_owned()),
        };
        Ok(match directive {
            None if brought.is_some() && self.options.tasks == Tasks::Ask => said(&text),
            None => Answer::Reply(text),
            Some(Directive::NoAnswer) => Answer::NoReply,
            Some(Directive::Question) => said(rest),
            Some(Directive::Move(state)) => {
                let task = match brought {
                    Some(id) => Some(id.clone()),
                    None => task::in_thread(&*self.office, mail).await?,
                };
                match task {
                    Some(task) => {
                        let note = (!rest.is_empty()).then(|| rest.to_owned());
                        Answer::Move { task, state, note }
                    }
                    None => said(rest),
                }
            }
        })
    }

    fn prepare(&self, held: &Held, page: &Page) -> Turn {
        let mail = &held.mail;
        let incoming = Incoming::from(mail);
        let shown = if held.is_later { incoming.without_subject() } else { incoming };
        let mut prompt = render_incoming(shown, &Nonce::fresh());
        let from = &mail.from;
        prompt.push_str(&match (task_of(mail, page), self.options.tasks) {
            (Some(_), Tasks::Ask) => format!(
                "This task is not accepted yet: you decide, and if your person wants to be asked first, ask. Begin your answer \
                 with one of these lines: [mailbox: completed] and the result; [mailbox: accepted] to end it later; [mailbox: \
                 rejected] or [mailbox: failed] and the reason; [mailbox: question] and what you must know from {from} first; \
                 {NO_ANSWER} to leave it for now. What follows that line is sent to {from} by itself; do not send it with a \
                 tool as well. An answer without such a line is sent as a message, and the task stays as it is. The tool \
                 mailbox_task moves it, too; so do these lines in a later answer in this thread.\n"
            ),
            (Some(_), Tasks::Accept) => format!(
                "You have accepted this task; your answer completes it and is sent to {from} by itself. If you cannot do it, \
                 begin your answer with the line [mailbox: failed] and give the reason; to ask {from} something first, begin \
                 with [mailbox: question].\n"
            ),
            (None, _) if wants_answer(mail) => format!(
                "Your answer to this is sent back to {from} by itself; do not send it with a tool as well. To send nothing, \
                 answer with this line alone: {NO_ANSWER}\n"
            ),
            (None, _) => "This needs no answer, and none is sent back.\n".to_owned(),
        });
        Turn {
            mail: mail.clone(),
            session_key: held.conversation.clone(),
            prompt,
            key: page.turn_key(),
            repeat: page.begun,
            tried: page.begun || page.failures > 0,
            timeout: self.options.turn_timeout,
        }
    }

    /// Does what the page says is to be done, and ends the mail.
    async fn finish(&self, mail: &Message, page: &Page) -> Result<(), BridgeError> {
        let brought = task_of(mail, page);
        match (page.outcome.clone().unwrap_or(Answer::NoReply), brought) {
            (Answer::Reply(text), Some(id)) => self.move_task(mail, page, id, TaskState::Completed, Some(text)).await?,
            (Answer::Move { task, state, note }, _) => self.move_task(mail, page, &task, state, note).await?,
            (Answer::NoReply, Some(id)) if self.options.tasks == Tasks::Accept => {
                self.move_task(mail, page, id, TaskState::Completed, None).await?;
            }
            (Answer::Reply(text) | Answer::Words(text), _) if brought.is_some() || wants_answer(mail) => {
                self.reply(mail, page, text).await?;
            }
            (Answer::GivenUp { trouble, reason }, _) => {
                self.tell_given_up(mail, page).await?;
                self.bury(mail, page, trouble, reason, None)?;
            }
            (Answer::Reply(_) | Answer::Words(_) | Answer::NoReply | Answer::NotWanted, _) => {
                self.status().unanswered += 1;
            }
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

    /// Moves the task, once. What a note cannot hold follows as messages, and so does the note of a move that cannot be made:
    /// the task stands there already, or has ended.
    async fn move_task(
        &self,
        mail: &Message,
        page: &Page,
        id: &TaskId,
        state: TaskState,
        note: Option<String>,
    ) -> Result<(), BridgeError> {
        let pieces = note.as_deref().map(pieces).unwrap_or_default();
        let is_told = match task::advance(&*self.office, id, state, pieces.first().cloned()).await? {
            Moved::There => 1,
            Moved::Not => 0,
        };
        let rest = pieces.iter().cloned().enumerate().skip(is_told);
        let is_sent = self.send_pieces(mail, page, rest, note.as_deref()).await?;
        self.count(is_sent && !pieces.is_empty());
        Ok(())
    }

    fn count(&self, is_answered: bool) {
        let mut status = self.status();
        match is_answered {
            true => status.replied += 1,
            false => status.unanswered += 1,
        }
    }

    /// Sends the answer, once.
    async fn reply(&self, mail: &Message, page: &Page, text: String) -> Result<(), BridgeError> {
        let is_sent = self.send_pieces(mail, page, pieces(&text).into_iter().enumerate(), Some(&text)).await?;
        self.count(is_sent);
        Ok(())
    }

    /// Sends the pieces of an answer, each once. Returns whether they went out. What has no way out is put on the list.
    async fn send_pieces(
        &self,
        mail: &Message,
        page: &Page,
        pieces: impl Iterator<Item = (usize, String)>,
        whole: Option<&str>,
    ) -> Result<bool, BridgeError> {
        for (at, piece) in pieces {
            let key = match at {
                0 => format!("bridge:{}", mail.id),
                _ => format!("bridge:{}:{}", mail.id, at + 1),
            };
            let draft = Draft { idempotency_key: Some(key), ..Draft::reply(mail, piece).automatic() };
            let error = match self.office.send(draft).await {
                Ok(_) => continue,
                Err(error) => error,
            };
            match error.code() {
                // The exchange has reached its ttl: that is what it is for. A task waits for what was said.
                Code::LoopRefused if task::brought(mail).is_none() => return Ok(false),
                Code::Conflict => {
                    tracing::info!(mail = %mail.id, "another bridge has answered this already");
                    return Ok(false);
                }
                // The peer has ended the connection, or is gone: the answer waits on the list for better times.
                code if is_lasting(code) => {
                    let reason = format!("the answer cannot be sent: {error}");
                    self.bury(mail, page, Trouble::Refused, reason, whole.map(str::to_owned))?;
                    return Ok(false);
                }
                _ => return Err(error.into()),
            }
        }
        Ok(true)
    }

    /// Tells the sender that its mail came to nothing, once, in words of our own: what a runtime complains of may hold
    /// what is nobody else's business, and is kept on the list.
    async fn tell_given_up(&self, mail: &Message, page: &Page) -> Result<(), BridgeError> {
        let me = self.office.me();
        let failed = match page.failures {
            // The office itself refused it.
            0 => String::new(),
            1 => ": its agent failed once".into(),
            times => format!(": its agent failed {times} times"),
        };
        let text = format!(
            "{me} could not work on this{failed}. The reason is with {me}'s owner, who can have it tried again."
        );
        let told = match task_of(mail, page) {
            Some(id) => task::advance(&*self.office, id, TaskState::Failed, Some(text)).await.map(|_| ()),
            None if wants_answer(mail) && !page.revived => {
                let key = format!("bridge:{}:given-up", mail.id);
                let mut draft = Draft { idempotency_key: Some(key), ..Draft::reply(mail, text).automatic() };
                draft.metadata.insert(GIVEN_UP.into(), true.into());
                self.office.send(draft).await.map(|_| ())
            }
            None => Ok(()),
        };
        match told {
            Err(error) if is_lasting(error.code()) => {
                tracing::warn!(mail = %mail.id, %error, "its sender cannot be told that it was given up");
                Ok(())
            }
            told => Ok(told?),
        }
    }

    /// Ends a mail that the office itself refuses to let go on.
    pub(crate) async fn set_aside(&self, mail: &Message, trouble: Trouble, reason: String) -> Result<(), Stop> {
        let page = self.ledger.page(&mail.id)?;
        self.tell_given_up(mail, &page).await?;
        self.bury(mail, &page, trouble, reason, None)?;
        match self.office.ack(std::slice::from_ref(&mail.id)).await {
            Err(error) if !is_lasting(error.code()) => Err(error.into()),
            _ => Ok(self.ledger.close(&mail.id)?),
        }
    }

    fn bury(
        &self,
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
        self.status().given_up += 1;
        Ok(())
    }
}

/// Marks, in its metadata, a message that only says that another one was given up.
const GIVEN_UP: &str = "given_up";

/// Whether an answer to the mail is sent back.
fn wants_answer(mail: &Message) -> bool {
    mail.provokes_answer() && mail.metadata.get(GIVEN_UP) != Some(&true.into())
}

/// The task that the mail brings, if it is still to be done. One that was given up has failed for good: when its mail is
/// revived, the answer goes back as an ordinary reply.
fn task_of<'m>(mail: &'m Message, page: &Page) -> Option<&'m TaskId> {
    task::brought(mail).filter(|_| !page.revived)
}
