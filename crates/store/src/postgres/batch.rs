//! A batch of messages in one transaction: two round trips, whatever the size of the batch.
//!
//! The first begins the transaction, locks the mailboxes, and looks up the facts about the messages under those locks
//! ([`facts`]). Then each message is sent by the verb that SQLite uses too ([`send`]), which reads these facts and
//! buffers rows. The second writes the rows and commits. Only new sessions, replies, tasks, groups and idempotency keys
//! need more round trips.

mod facts;

use amb_core::doc::Sent;
use amb_core::send::{Accepted, SessionChoice, Storage};
use amb_core::{AgentName, Consent, Draft, Timestamp};
use deadpool_postgres::{GenericClient, Object, Transaction};
use uuid::Uuid;

use facts::BatchFacts;

use super::transact::InUse;
use super::write::{LockedLogs, NewRows, Retimed};
use crate::columns::{Addressee, Columns};
use crate::engine::Failed;
use crate::error::Result;
use crate::outgoing::{OutgoingMessage, Subject, no_session};
use crate::quota::{Account, Stored};
use crate::refusals;
use crate::types::{Agent, Once};
use crate::verbs::{NewTask, Outcome, ParentRow, SendTx, SessionRow, To, decide, pair, send};

/// The result of each message; `None` where no agent has the recipient's name. A group may have it.
pub(super) type Outcomes = Vec<Result<Option<Outcome>>>;

/// The parties of a session.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
enum Sides {
    /// Two agents, the smaller id first.
    Pair(i64, i64),
    Group(i64),
}

impl Sides {
    fn of(caller: i64, to: &To) -> Self {
        match to {
            To::Agent(peer) => {
                let (low, high) = pair(caller, peer.id);
                Self::Pair(low, high)
            }
            To::Group(group, _) => Self::Group(*group),
        }
    }

    /// Returns both agents of a pair, or the group.
    fn columns(self) -> (Option<(i64, i64)>, Option<i64>) {
        match self {
            Self::Pair(low, high) => (Some((low, high)), None),
            Self::Group(group) => (None, Some(group)),
        }
    }
}

/// The facts, locks and buffered rows of a transaction.
#[derive(Debug)]
pub(super) struct SendBatch<'a> {
    account: &'a Account,
    facts: BatchFacts,
    pub(super) logs: LockedLogs,
    pub(super) rows: NewRows,
}

/// Writes messages in one transaction. Each has its own outcome; an error is a failure of the transaction.
pub(super) async fn write(
    client: InUse,
    account: &Account,
    messages: &[(Agent, OutgoingMessage)],
) -> Result<Outcomes, Failed> {
    let written = write_and_commit(&client, account, messages).await;
    // Where the rollback fails, a transaction may be open, and the connection is closed.
    if written.is_ok() || client.batch_execute("ROLLBACK").await.is_ok() {
        client.finished();
    }
    written
}

async fn write_and_commit(
    client: &Object,
    account: &Account,
    messages: &[(Agent, OutgoingMessage)],
) -> Result<Outcomes, Failed> {
    let mut batch = SendBatch::new(account);
    let begin = async { Ok(client.batch_execute("BEGIN").await?) };
    batch.facts.lock(client, &mut batch.logs, begin, messages).await?;
    let mut outcomes = batch.send(client, messages).await?;
    let charged = batch.rows.charged();
    let retimed = if batch.rows.is_mail_alone() && batch.unused_sessions().is_empty() {
        batch.rows.write_mail_and_commit(client).await?
    } else {
        let retimed = batch.write(client).await?;
        client.batch_execute("COMMIT").await?;
        retimed
    };
    account.add_to_office(charged);
    outcomes.iter_mut().flatten().flatten().for_each(|outcome| retime(outcome, &retimed));
    Ok(outcomes)
}

/// Sets the times in an outcome to those that were written.
fn retime(outcome: &mut Outcome, retimed: &Retimed) {
    match outcome {
        Outcome::Placed(placed) => {
            placed.message.at = retimed.of(placed.message.id).unwrap_or(placed.message.at);
            retimed.correct(&mut placed.more);
        }
        // It may repeat another message of this batch.
        Outcome::Repeat(sent) => {
            let at = sent.message_id.as_uuid().and_then(|id| retimed.of(id));
            sent.created_at = at.unwrap_or(sent.created_at);
        }
    }
}

impl<'a> SendBatch<'a> {
    pub(super) fn new(account: &'a Account) -> Self {
        Self { account, facts: BatchFacts::default(), logs: LockedLogs::default(), rows: NewRows::default() }
    }

    /// Sends messages, whose recipients are locked, into the buffered rows.
    async fn send<C: GenericClient>(
        &mut self,
        client: &C,
        messages: &[(Agent, OutgoingMessage)],
    ) -> Result<Outcomes, Failed> {
        self.facts.look_up(client, messages).await?;
        self.make_sessions(client, messages).await?;
        let mut outcomes = Vec::with_capacity(messages.len());
        for (caller, message) in messages {
            self.rows.note_received(message.received);
            // A used key has its answer, whether or not the recipient's name still resolves.
            outcomes.push(
                match self.facts.recipient(&message.to).is_some() || self.facts.uses_known_key(caller, message) {
                    true => send(self, caller, message.clone()).map(Some),
                    false => Ok(None),
                },
            );
        }
        Ok(outcomes)
    }

    /// Sends a message to an agent, as part of another verb's transaction.
    pub(super) async fn send_to_agent(
        &mut self,
        tx: &Transaction<'_>,
        caller: &Agent,
        message: OutgoingMessage,
    ) -> Result<Outcome, Failed> {
        let messages = [(caller.clone(), message)];
        self.facts.lock(tx, &mut self.logs, std::future::ready(Ok(())), &messages).await?;
        self.send_one(tx, &messages).await
    }

    /// Sends a message to a group.
    pub(super) async fn send_to_group(
        &mut self,
        tx: &Transaction<'_>,
        caller: &Agent,
        message: OutgoingMessage,
    ) -> Result<Outcome, Failed> {
        self.facts.lock_group(tx, &mut self.logs, caller, &message.to).await?;
        self.send_one(tx, &[(caller.clone(), message)]).await
    }

    async fn send_one(
        &mut self,
        tx: &Transaction<'_>,
        messages: &[(Agent, OutgoingMessage); 1],
    ) -> Result<Outcome, Failed> {
        let outcome = self.send(tx, messages).await?.pop().and_then(Result::transpose);
        Ok(outcome.unwrap_or_else(|| Err(refusals::not_connected(&messages[0].1.to)))?)
    }

    /// Sends one draft to each of several agents and groups, all or none.
    pub(super) async fn send_all(
        &mut self,
        tx: &Transaction<'_>,
        caller: &Agent,
        to: &[AgentName],
        draft: &Draft,
        now: Timestamp,
    ) -> Result<Vec<Outcome>, Failed> {
        let names = self.facts.lock_all(tx, &mut self.logs, caller, to).await?;
        let message = |name: AgentName| {
            let draft = Draft { to: name, idempotency_key: None, ..draft.clone() };
            Ok((caller.clone(), OutgoingMessage::new(&caller.name, draft, now)?))
        };
        let messages = names.into_iter().map(message).collect::<Result<Vec<_>>>()?;
        self.facts.lock(tx, &mut self.logs, std::future::ready(Ok(())), &messages).await?;
        let (mut sent, mut copies) = (Vec::with_capacity(messages.len()), 0);
        for (outcome, (_, message)) in self.send(tx, &messages).await?.into_iter().zip(&messages) {
            let outcome = outcome?.ok_or_else(|| refusals::not_connected(&message.to))?;
            copies += outcome.copies();
            sent.push(outcome);
        }
        draft.check_copies(copies)?;
        Ok(sent)
    }

    /// Creates the missing sessions of messages that are accepted.
    async fn make_sessions<C: GenericClient>(
        &mut self,
        client: &C,
        messages: &[(Agent, OutgoingMessage)],
    ) -> Result<(), Failed> {
        // Sorted, so that two transactions that create the same sessions do not deadlock.
        let mut missing = std::collections::BTreeMap::new();
        for (caller, message) in messages {
            let (Some(to), Some(subject)) = (self.facts.recipient(&message.to), &message.subject) else { continue };
            let sides = Sides::of(caller.key.0, &to);
            if self.facts.session_of(sides, &subject.key).is_some() {
                continue;
            }
            if let Ok(Accepted { session: SessionChoice::OfSubject, .. }) = decide(self, caller, message, &to) {
                missing.entry((sides, &*subject.key)).or_insert((&*subject.subject, caller.key.0, message.at));
            }
        }
        for ((sides, key), (subject, caller, at)) in missing {
            self.facts.make_session(client, sides, key, subject, caller, at).await?;
        }
        Ok(())
    }

    /// Returns the sessions that were created for messages that were then refused.
    fn unused_sessions(&self) -> Vec<i64> {
        self.facts.made.iter().copied().filter(|session| !self.rows.has_message_in(*session)).collect()
    }

    /// Writes the buffered rows. Returns the messages whose times were changed.
    pub(super) async fn write<C: GenericClient>(&mut self, client: &C) -> Result<Retimed, Failed> {
        let unused = self.unused_sessions();
        self.facts.made.clear();
        let retimed = std::mem::take(&mut self.rows).write(client).await?;
        if !unused.is_empty() {
            for sql in
                ["DELETE FROM session_members WHERE session_id = ANY($1)", "DELETE FROM sessions WHERE id = ANY($1)"]
            {
                let delete = client.prepare_cached(sql).await?;
                client.execute(&delete, &[&unused]).await?;
            }
        }
        Ok(retimed)
    }
}

impl SendTx for SendBatch<'_> {
    fn atomically<T>(&mut self, operation: impl FnOnce(&mut Self) -> Result<T>) -> Result<T> {
        // No error occurs once rows were buffered.
        operation(self)
    }

    fn stamp(&mut self, at: Timestamp) -> Timestamp {
        // The statement that writes it sets its time.
        at
    }

    fn answer_under(&mut self, caller: i64, once: &Once) -> Result<Option<Sent>> {
        match self.facts.answers.get(&(caller, once.key.clone())) {
            Some((hash, Some(sent))) if *hash == once.draft_hash => Ok(Some(sent.clone())),
            Some(_) => Err(refusals::key_reused()),
            None => Ok(None),
        }
    }

    fn keep_answer(&mut self, caller: i64, once: &Once, sent: Sent, at: Timestamp) -> Result<()> {
        let answer = (once.draft_hash.to_vec(), Some(sent.clone()));
        self.facts.answers.insert((caller, once.key.clone()), answer);
        self.rows.answer(caller, once.clone(), sent, at);
        Ok(())
    }

    fn recipient(&mut self, _: &Agent, name: &AgentName) -> Result<Option<To>> {
        Ok(self.facts.recipient(name))
    }

    fn consent(&mut self, a: i64, b: i64) -> Result<Consent> {
        Ok(self.facts.consent(a, b))
    }

    fn current_tasks(&mut self, agent: i64) -> Result<usize> {
        let count = self.facts.current_tasks.get(&agent).copied().unwrap_or(0);
        Ok(usize::try_from(count).unwrap_or(usize::MAX))
    }

    fn storage(&mut self, sender: i64, more: Stored) -> Result<Storage> {
        let mut stored = self.facts.stored.get(&sender).copied().unwrap_or_default();
        stored += self.rows.charged_to(sender);
        Ok(self.account.storage(stored, self.rows.charged(), more))
    }

    fn parent(&mut self, caller: i64, id: Uuid) -> Result<Option<ParentRow>> {
        Ok(self.facts.parents.get(&(caller, id)).cloned())
    }

    fn session(&mut self, id: Uuid) -> Result<Option<SessionRow>> {
        Ok(self.facts.sessions.get(&id).cloned())
    }

    fn session_of_subject(&mut self, caller: i64, to: &To, subject: &Subject, _: Timestamp) -> Result<SessionRow> {
        self.facts.session_of(Sides::of(caller, to), &subject.key).cloned().ok_or_else(no_session)
    }

    fn enter_session(&mut self, session: i64, members: &[Addressee], sender: i64) -> Result<()> {
        members.iter().map(|to| to.agent.0).chain([sender]).for_each(|agent| self.rows.member(agent, session));
        Ok(())
    }

    fn task_of_message(&mut self, message: Uuid) -> Result<Option<i64>> {
        Ok(self.facts.task_of.get(&message).copied())
    }

    fn append(&mut self, session: i64, message: Columns<'_>, to: &[Addressee]) -> Result<Vec<(Addressee, u64)>> {
        Ok(self.rows.append(&mut self.logs, session, message, to))
    }

    fn insert_task(&mut self, task: NewTask) -> Result<()> {
        self.rows.task(task);
        Ok(())
    }
}
