//! Handles one message: its turn, its answer, its acknowledgement. Every step may be repeated after a crash.

use amb_core::render::{Nonce, render_incoming};
use amb_core::{Code, Draft, Message, TaskId, TaskState, Timestamp};
use tokio::time::timeout;

use crate::bridge::BridgeContext;
use crate::directive::{self, Directive, NO_ANSWER};
use crate::entry::{LedgerEntry, Resolution};
use crate::error::{BridgeError, Stop, is_permanent};
use crate::ledger::DeadLetter;
use crate::options::{Step, TaskHandling};
use crate::queue::HeldMessage;
use crate::runtime::{FailureKind, Turn, TurnOutcome};
use crate::split::pieces;
use crate::task;

impl BridgeContext {
    pub(crate) async fn handle(&self, held: &HeldMessage) -> Result<(), Stop> {
        let mail = &held.mail;
        self.options.reached(Step::Claimed);
        let mut entry = self.ledger.entry(&mail.id)?;
        if entry.outcome.is_none() {
            let answer = self.resolve(held, &mut entry).await?;
            self.options.reached(Step::Turned);
            entry.outcome = Some(answer);
            self.ledger.write(&entry)?;
        }
        self.options.reached(Step::Recorded);
        self.finish(mail, &entry).await?;
        Ok(())
    }

    /// Decides how the message is resolved, by a turn of the runtime where one is needed.
    async fn resolve(&self, held: &HeldMessage, entry: &mut LedgerEntry) -> Result<Resolution, Stop> {
        let mail = &held.mail;
        if let Some(id) = task_of(mail, entry) {
            let is_wanted = match self.options.tasks {
                TaskHandling::Accept => task::accept(&*self.office, id).await?,
                TaskHandling::Ask => task::is_open(&*self.office, id).await?,
            };
            if !is_wanted {
                return Ok(Resolution::NotWanted);
            }
        }
        let turn = self.prepare(held, entry);
        entry.begun = true;
        entry.next_try = None;
        self.ledger.write_unsynced(entry)?;
        self.options.reached(Step::Begun);
        let ran = timeout(self.options.longest_turn(), self.runtime.turn(&turn)).await;
        let error = match ran {
            Ok(Ok(outcome)) => {
                self.note_up();
                return Ok(self.parse_answer(mail, entry, outcome).await?);
            }
            Ok(Err(error)) => error,
            Err(_) => self.turn_timeout_error(),
        };
        tracing::warn!(mail = %mail.id, kind = ?error.kind, %error, "the turn failed");
        self.note_error(&error.detail);
        if error.kind.is_general() {
            // The turn never began.
            entry.begun = turn.repeat;
            self.ledger.write_unsynced(entry)?;
            return Err(Stop::Pause(error));
        }
        self.note_up();
        entry.failed(error.kind, &error.detail);
        if entry.failures < self.options.max_failures && error.kind != FailureKind::Refused {
            let wait = self.options.backoff.after(entry.failures);
            entry.next_try = Timestamp::now().checked_add(wait).ok();
            self.ledger.write(entry)?;
            return Err(Stop::Later);
        }
        Ok(Resolution::GivenUp { trouble: error.kind, reason: error.detail })
    }

    /// Translates the agent's answer; its first line may be a [`directive`].
    async fn parse_answer(
        &self,
        mail: &Message,
        entry: &LedgerEntry,
        outcome: TurnOutcome,
    ) -> Result<Resolution, BridgeError> {
        let TurnOutcome::Reply(text) = outcome else { return Ok(Resolution::NoReply) };
        // No office accepts NUL.
        let text = text.replace('\0', "\u{fffd}");
        let assigned = task_of(mail, entry);
        let (directive, rest) = directive::parse(&text);
        let message = |text: &str| match text.is_empty() {
            true => Resolution::NoReply,
            false => Resolution::Message(text.to_owned()),
        };
        Ok(match directive {
            None if assigned.is_some() && self.options.tasks == TaskHandling::Ask => message(&text),
            None => Resolution::Reply(text),
            Some(Directive::NoAnswer) => Resolution::NoReply,
            Some(Directive::Question) => message(rest),
            Some(Directive::Move(state)) => {
                let task = match assigned {
                    Some(id) => Some(id.clone()),
                    None => task::in_session(&*self.office, mail).await?,
                };
                match task {
                    Some(task) => {
                        let note = (!rest.is_empty()).then(|| rest.to_owned());
                        Resolution::Move { task, state, note }
                    }
                    None => message(rest),
                }
            }
        })
    }

    fn prepare(&self, held: &HeldMessage, entry: &LedgerEntry) -> Turn {
        let mail = &held.mail;
        let mut prompt = render_incoming(mail, !held.is_later, &Nonce::fresh());
        let from = &mail.from;
        prompt.push_str(&match (task_of(mail, entry), self.options.tasks) {
            (Some(_), TaskHandling::Ask) => format!(
                "This task is not accepted yet: you decide, and if your person wants to be asked first, ask. Begin your answer \
                 with one of these lines: [mailbox: completed] and the result; [mailbox: accepted] to end it later; [mailbox: \
                 rejected] or [mailbox: failed] and the reason; [mailbox: question] and what you must know from {from} first; \
                 {NO_ANSWER} to leave it for now. What follows that line is sent to {from} by itself; do not send it with a \
                 tool as well. An answer without such a line is sent as a message, and the task stays as it is. The tool \
                 mailbox_task moves it, too; so do these lines in a later answer in this thread.\n"
            ),
            (Some(_), TaskHandling::Accept) => format!(
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
            key: entry.turn_key(),
            repeat: entry.begun,
            tried: entry.begun || entry.failures > 0,
            timeout: self.options.turn_timeout,
        }
    }

    /// Carries out the ledger entry's outcome, then acknowledges the message.
    async fn finish(&self, mail: &Message, entry: &LedgerEntry) -> Result<(), BridgeError> {
        let assigned = task_of(mail, entry);
        match (entry.outcome.clone().unwrap_or(Resolution::NoReply), assigned) {
            (Resolution::Reply(text), Some(id)) => {
                self.move_task(mail, entry, id, TaskState::Completed, Some(text)).await?
            }
            (Resolution::Move { task, state, note }, _) => self.move_task(mail, entry, &task, state, note).await?,
            (Resolution::NoReply, Some(id)) if self.options.tasks == TaskHandling::Accept => {
                self.move_task(mail, entry, id, TaskState::Completed, None).await?;
            }
            (Resolution::Reply(text) | Resolution::Message(text), _) if assigned.is_some() || wants_answer(mail) => {
                self.reply(mail, entry, text).await?;
            }
            (Resolution::GivenUp { trouble, reason }, _) => {
                self.notify_given_up(mail, entry).await?;
                self.add_dead_letter(mail, entry, trouble, reason, None)?;
            }
            (Resolution::Reply(_) | Resolution::Message(_) | Resolution::NoReply | Resolution::NotWanted, _) => {
                self.status().unanswered += 1;
            }
        }
        self.options.reached(Step::Replied);
        match self.office.ack(std::slice::from_ref(&mail.id)).await {
            Ok(_) => {}
            Err(error) if is_permanent(&error) => {
                tracing::warn!(mail = %mail.id, %error, "cannot acknowledge a finished message");
            }
            Err(error) => return Err(error.into()),
        }
        self.options.reached(Step::Acknowledged);
        Ok(self.ledger.close(&mail.id)?)
    }

    /// Moves the task, once. What does not fit into a note follows as messages; so does the note of a move that is
    /// impossible because the task is in that state already, or has ended.
    async fn move_task(
        &self,
        mail: &Message,
        entry: &LedgerEntry,
        id: &TaskId,
        state: TaskState,
        note: Option<String>,
    ) -> Result<(), BridgeError> {
        let pieces = note.as_deref().map(pieces).unwrap_or_default();
        let is_moved = task::advance(&*self.office, id, state, pieces.first().cloned()).await?;
        // The note of a move carries the first piece.
        let rest = pieces.iter().cloned().enumerate().skip(usize::from(is_moved));
        let is_sent = self.send_pieces(mail, entry, rest, note.as_deref()).await?;
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
    async fn reply(&self, mail: &Message, entry: &LedgerEntry, text: String) -> Result<(), BridgeError> {
        let is_sent = self.send_pieces(mail, entry, pieces(&text).into_iter().enumerate(), Some(&text)).await?;
        self.count(is_sent);
        Ok(())
    }

    /// Sends the pieces of an answer, each once. Returns whether they were sent. An answer that cannot be delivered
    /// becomes a dead letter.
    async fn send_pieces(
        &self,
        mail: &Message,
        entry: &LedgerEntry,
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
                // The exchange has used up its ttl, as intended. Only a task's answer is needed even then.
                Code::LoopRefused if task::assigned(mail).is_none() => return Ok(false),
                Code::Conflict => {
                    tracing::info!(mail = %mail.id, "another bridge has answered this already");
                    return Ok(false);
                }
                // The connection has ended, or the peer is gone: the answer is kept as a dead letter.
                _ if is_permanent(&error) => {
                    let reason = format!("the answer cannot be sent: {error}");
                    self.add_dead_letter(mail, entry, FailureKind::Refused, reason, whole.map(str::to_owned))?;
                    return Ok(false);
                }
                _ => return Err(error.into()),
            }
        }
        Ok(true)
    }

    /// Tells the sender, once, that its message was given up. Without the runtime's error, which may contain private
    /// details and is kept with the dead letter.
    async fn notify_given_up(&self, mail: &Message, entry: &LedgerEntry) -> Result<(), BridgeError> {
        let me = self.office.me();
        let failed = match entry.failures {
            // The office itself refused the message.
            0 => String::new(),
            1 => ": its agent failed once".into(),
            times => format!(": its agent failed {times} times"),
        };
        let text = format!(
            "{me} could not work on this{failed}. The reason is with {me}'s owner, who can have it tried again."
        );
        let notified = match task_of(mail, entry) {
            Some(id) => task::advance(&*self.office, id, TaskState::Failed, Some(text)).await.map(|_| ()),
            None if wants_answer(mail) && !entry.revived => {
                let key = format!("bridge:{}:given-up", mail.id);
                let mut draft = Draft { idempotency_key: Some(key), ..Draft::reply(mail, text).automatic() };
                draft.metadata.insert(GIVEN_UP.into(), true.into());
                self.office.send(draft).await.map(|_| ())
            }
            None => Ok(()),
        };
        match notified {
            Err(error) if is_permanent(&error) => {
                tracing::warn!(mail = %mail.id, %error, "cannot tell the sender that the message was given up");
                Ok(())
            }
            notified => Ok(notified?),
        }
    }

    /// Gives up a message that the office always refuses.
    pub(crate) async fn set_aside(&self, mail: &Message, trouble: FailureKind, reason: String) -> Result<(), Stop> {
        let entry = self.ledger.entry(&mail.id)?;
        self.notify_given_up(mail, &entry).await?;
        self.add_dead_letter(mail, &entry, trouble, reason, None)?;
        match self.office.ack(std::slice::from_ref(&mail.id)).await {
            Err(error) if !is_permanent(&error) => Err(error.into()),
            _ => Ok(self.ledger.close(&mail.id)?),
        }
    }

    fn add_dead_letter(
        &self,
        mail: &Message,
        entry: &LedgerEntry,
        trouble: FailureKind,
        reason: String,
        answer: Option<String>,
    ) -> Result<(), BridgeError> {
        tracing::error!(mail = %mail.id, failures = entry.failures, %reason, "given up; `amb bridge dead list` shows it");
        self.note_error(&reason);
        self.ledger.add_dead_letter(&DeadLetter {
            message_id: mail.id.clone(),
            from: mail.from.clone(),
            subject: mail.subject.clone(),
            failures: entry.failures,
            failed_turns: entry.failed_turns,
            trouble,
            reason,
            at: Timestamp::now(),
            answer,
        })?;
        self.status().given_up += 1;
        Ok(())
    }
}

/// The metadata key of a notice that another message was given up.
const GIVEN_UP: &str = "given_up";

/// Whether the sender of this message gets an answer.
fn wants_answer(mail: &Message) -> bool {
    mail.provokes_answer() && mail.metadata.get(GIVEN_UP) != Some(&true.into())
}

/// The task that the message brings, if it is still open. A task whose message was given up has failed for good: when
/// the message is revived, its answer is an ordinary reply.
fn task_of<'m>(mail: &'m Message, entry: &LedgerEntry) -> Option<&'m TaskId> {
    task::assigned(mail).filter(|_| !entry.revived)
}
