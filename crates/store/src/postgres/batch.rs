//! Many messages in one transaction: two ways to the database and back, however many there are.
//!
//! First the transaction begins, the mailboxes are locked, and what decides about the messages is looked up under those locks.
//! Then what they write is written, together with the commit. More ways are needed only by new sessions, replies, tasks and
//! idempotency keys.

mod answers;
mod known;

use amb_core::doc::Sent;
use amb_core::route::Hop;
use amb_core::send::{Accepted, Place};
use amb_core::stepping_in::check_open;
use amb_core::task::RejectReason;
use amb_core::{Entry, Event, TaskState};
use deadpool_postgres::{GenericClient, Object};

pub(super) use answers::{answer_before, remember, repeat};
use known::{Known, Peer, Session};

use super::transact::InUse;
use super::write::{Heads, NewTask, Pages, Retimed, To};
use crate::StoreError;
use crate::columns::{Addressee, Columns};
use crate::engine::Failed;
use crate::error::Result;
use crate::outgoing::{OutgoingMessage, Placed, json};
use crate::quota::Account;
use crate::tasks::Update;
use crate::types::{Agent, AgentKey, LogEntry};

/// What became of a message.
#[derive(Debug)]
pub(super) enum Outcome {
    /// It was written.
    Placed(Box<(OutgoingMessage, Placed)>),
    /// Its idempotency key had been used for the same draft.
    Repeat(Sent),
    /// No agent has the recipient's name; a group may.
    NoAgent(Box<OutgoingMessage>),
}

/// Messages that were decided about, and what they write.
struct Decided {
    known: Known,
    pages: Pages,
    outcomes: Vec<Result<Outcome>>,
}

/// Writes messages in a transaction of their own. Each has an outcome of its own; a failure of all is a failure of the
/// transaction.
pub(super) async fn write(
    client: InUse,
    account: &Account,
    messages: &[(Agent, OutgoingMessage)],
) -> Result<Vec<Result<Outcome>>, Failed> {
    let written = write_and_commit(&client, account, messages).await;
    // A connection on which a transaction may be open is closed.
    if written.is_ok() || client.batch_execute("ROLLBACK").await.is_ok() {
        client.finished();
    }
    written
}

async fn write_and_commit(
    client: &Object,
    account: &Account,
    messages: &[(Agent, OutgoingMessage)],
) -> Result<Vec<Result<Outcome>>, Failed> {
    let mut known = Known::default();
    let begin = async { Ok::<_, Failed>(client.batch_execute("BEGIN").await?) };
    let heads = known.lock(client, begin, messages).await?;
    let mut decided = decide(client, account, known, heads, messages).await?;
    if decided.is_mail_alone(messages) {
        let retimed = decided.pages.write_mail_and_commit(client).await?;
        decided.correct(&retimed);
    } else {
        decided.write(client, messages).await?;
        client.batch_execute("COMMIT").await?;
    }
    account.add_to_office(decided.pages.charged());
    Ok(decided.outcomes)
}

/// Writes messages in a transaction that does something else too.
pub(super) async fn write_in<C: GenericClient>(
    tx: &C,
    account: &Account,
    messages: &[(Agent, OutgoingMessage)],
) -> Result<Vec<Result<Outcome>>, Failed> {
    let mut known = Known::default();
    let heads = known.lock(tx, std::future::ready(Ok(())), messages).await?;
    let mut decided = decide(tx, account, known, heads, messages).await?;
    decided.write(tx, messages).await?;
    account.add_to_office(decided.pages.charged());
    Ok(decided.outcomes)
}

/// Looks up what decides about messages, and decides.
async fn decide<C: GenericClient>(
    client: &C,
    account: &Account,
    mut known: Known,
    mut heads: Heads,
    messages: &[(Agent, OutgoingMessage)],
) -> Result<Decided, Failed> {
    known.look_up(client, messages).await?;
    known.make_sessions(client, account, messages).await?;
    let mut pages = Pages::default();
    let mut outcomes = Vec::with_capacity(messages.len());
    for (caller, message) in messages {
        pages.waited_since(message.came);
        let outcome = known.place(account, caller, message, &mut heads, &mut pages);
        if let (Ok(Outcome::Placed(placed)), Some(once)) = (&outcome, &message.once) {
            let sent = message.sent(&placed.1);
            known.answers.insert((caller.key.0, once.key.clone()), (once.draft_hash.to_vec(), Some(sent)));
        }
        outcomes.push(outcome);
    }
    Ok(Decided { known, pages, outcomes })
}

impl Decided {
    /// Whether one statement writes all of it.
    fn is_mail_alone(&self, messages: &[(Agent, OutgoingMessage)]) -> bool {
        self.pages.is_mail_alone()
            && messages.iter().all(|(_, message)| message.once.is_none())
            && self.known.unused_sessions(&self.pages).is_empty()
    }

    /// Writes it, with the answers under idempotency keys.
    async fn write<C: GenericClient>(
        &mut self,
        client: &C,
        messages: &[(Agent, OutgoingMessage)],
    ) -> Result<(), Failed> {
        let retimed = self.pages.write(client).await?;
        self.correct(&retimed);
        for ((caller, _), outcome) in messages.iter().zip(&self.outcomes) {
            if let Ok(Outcome::Placed(placed)) = outcome
                && let (message, placed) = &**placed
                && let Some(once) = &message.once
            {
                remember(client, caller.key.0, once, &message.sent(placed), message.at).await?;
            }
        }
        // Of messages that were refused nothing stays, nor the sessions that were made for them.
        let unused = self.known.unused_sessions(&self.pages);
        if unused.is_empty() {
            return Ok(());
        }
        for sql in ["DELETE FROM session_members WHERE session_id = ANY($1)", "DELETE FROM sessions WHERE id = ANY($1)"]
        {
            let delete = client.prepare_cached(sql).await?;
            client.execute(&delete, &[&unused]).await?;
        }
        Ok(())
    }

    /// Brings the outcomes in line with the times that were written.
    fn correct(&mut self, retimed: &Retimed) {
        for outcome in &mut self.outcomes {
            match outcome {
                Ok(Outcome::Placed(placed)) => {
                    let (message, placed) = &mut **placed;
                    message.at = retimed.of(message.id).unwrap_or(message.at);
                    retimed.correct(&mut placed.more);
                }
                // Of another in this batch, perhaps.
                Ok(Outcome::Repeat(sent)) => {
                    let at = sent.message_id.as_uuid().and_then(|id| retimed.of(id));
                    sent.created_at = at.unwrap_or(sent.created_at);
                }
                Ok(Outcome::NoAgent(_)) | Err(_) => {}
            }
        }
    }
}

impl Known {
    /// Decides about one message, and adds it to what is to be written.
    fn place(
        &self,
        account: &Account,
        caller: &Agent,
        message: &OutgoingMessage,
        heads: &mut Heads,
        pages: &mut Pages,
    ) -> Result<Outcome> {
        if let Some(once) = &message.once
            && let Some((hash, sent)) = self.answers.get(&(caller.key.0, once.key.clone()))
        {
            return repeat(once, hash, sent.as_ref());
        }
        let Some(peer) = self.peer(message) else { return Ok(Outcome::NoAgent(Box::new(message.clone()))) };
        let mut stored = self.stored(caller.key.0);
        stored += pages.charged_to(caller.key.0);
        let storage = account.storage(stored, pages.charged(), message.stored(1));
        let Accepted { hop, place, task } = self.decide(caller, peer, message, storage)?;
        let session = match place {
            Place::Session(session) => session,
            Place::Subject => self.session_of(caller, peer, message)?,
        };
        check_open(session.ended_by.as_deref())?;
        // By the name that it has: traces and answers know no other.
        let message = OutgoingMessage { to: peer.name.clone(), ..message.clone() };
        let from_person = self.consent_with(caller, peer).marks_person(caller.person);
        let to = Addressee { agent: AgentKey(peer.id), from_person };
        let mut placed = Placed {
            session: session.public_id,
            subject: session.subject.clone(),
            copies: Vec::new(),
            task: None,
            reason: None,
            paused: peer.paused && !matches!(task, Some((_, Some(_)))),
            more: Vec::new(),
        };
        match task {
            Some((state, reason)) => {
                placed.reason = reason.as_ref().map(RejectReason::to_string);
                self.place_task(caller, (peer, to), session, &message, state, &hop, &mut placed, heads, pages)?;
            }
            None => {
                let columns = Columns::new(caller, &message, &hop, None)?;
                placed.copies = pages.post(heads, session.id, columns, To::One(to));
            }
        }
        Ok(Outcome::Placed(Box::new((message, placed))))
    }

    /// Adds a task. One that the office rejects goes to nobody's log but its sender's, as an update.
    #[allow(clippy::too_many_arguments)]
    fn place_task(
        &self,
        caller: &Agent,
        (peer, to): (&Peer, Addressee),
        session: &Session,
        message: &OutgoingMessage,
        state: TaskState,
        hop: &Hop,
        placed: &mut Placed,
        heads: &mut Heads,
        pages: &mut Pages,
    ) -> Result<()> {
        let (Some(task), Some(id)) = (message.task_ref(state), message.task_id) else {
            return Err(StoreError::invalid("not a task"));
        };
        let post = Columns::new(caller, message, hop, Some(json(&task)?))?;
        let callback = post.callback.clone();
        let to = if placed.reason.is_none() { To::One(to) } else { To::Nobody(peer.id) };
        placed.copies = pages.post(heads, session.id, post, to);
        pages.task(NewTask {
            id,
            owner: caller.key.0,
            assignee: peer.id,
            state,
            subject: session.subject.to_string(),
            message: message.id,
            session: session.public_id,
            parent: self.parent_task(message),
            deadline: message.deadline,
            note: placed.reason.clone(),
            callback: callback.clone(),
            at: message.at,
        });
        if let Some(reason) = placed.reason.clone() {
            let update = Update::new(task.clone(), message.id, Some(&reason), message.at);
            // Charged to who asked for it: else one agent could fill up another's account.
            let columns = update.columns(&peer.name, peer.id, caller.key.0, hop.clone(), callback)?;
            let to = Addressee { agent: caller.key, from_person: false };
            let copies = pages.post(heads, session.id, columns, To::One(to));
            placed.more.extend(copies.into_iter().map(|(Addressee { agent, .. }, number)| {
                let event = update.clone().event(peer.name.clone(), session.public_id, &session.subject);
                LogEntry { agent, entry: Entry { event: Event::NewMessage(event), cursor: number.into() } }
            }));
        }
        placed.task = Some(task);
        Ok(())
    }
}
