//! Many letters in one transaction: three ways to the database and back, however many there are.
//!
//! First the mailboxes are locked, together with the beginning of the transaction. Then, under those locks, everything that
//! decides about the letters is looked up. Then what they write is written, together with the commit. More ways are needed only
//! by new sessions, replies, tasks and idempotency keys.

mod answers;
mod known;

use amb_core::doc::Sent;
use amb_core::route::Hop;
use amb_core::task::{Asked, Decision, decide_in_any_case};
use amb_core::{Kind, TaskState};
use deadpool_postgres::{GenericClient, Object};

pub(super) use answers::{answer_before, remember, repeat};
use known::{Known, Peer, Thread};

use super::error::Trouble;
use super::tasks;
use super::transact::InUse;
use super::write::{Heads, NewTask, Pages, Post, Retimed, To};
use crate::StoreError;
use crate::error::Result;
use crate::outgoing::{OutgoingMessage, Placed, json, json_of, trace_json};
use crate::quota::Account;
use crate::row::{kind_text, rank};
use crate::tasks::Update;
use crate::types::Agent;

/// What became of a letter.
#[derive(Debug)]
pub(super) enum Outcome {
    /// It was written.
    Placed(Box<(OutgoingMessage, Placed)>),
    /// Its idempotency key had been used for the same draft.
    Repeat(Sent),
    /// No agent has the recipient's name; a group may.
    NoAgent(Box<OutgoingMessage>),
}

/// Letters that were decided about, and what they write.
struct Decided {
    known: Known,
    pages: Pages,
    outcomes: Vec<Result<Outcome>>,
}

/// Writes letters in a transaction of their own. Each has an outcome of its own; a failure of all is a failure of the
/// transaction.
pub(super) async fn write(
    client: InUse,
    account: &Account,
    letters: &[(Agent, OutgoingMessage)],
) -> Result<Vec<Result<Outcome>>, Trouble> {
    let written = write_and_commit(&client, account, letters).await;
    // A connection on which a transaction may be open is closed.
    if written.is_ok() || client.batch_execute("ROLLBACK").await.is_ok() {
        client.finished();
    }
    written
}

async fn write_and_commit(
    client: &Object,
    account: &Account,
    letters: &[(Agent, OutgoingMessage)],
) -> Result<Vec<Result<Outcome>>, Trouble> {
    let mut known = Known::default();
    let begin = async { Ok::<_, Trouble>(client.batch_execute("BEGIN").await?) };
    // A statement is sent when its future is polled first: in this order.
    let ((), heads) = tokio::try_join!(biased; begin, known.lock(client, letters))?;
    let mut decided = decide(client, account, known, heads, letters).await?;
    if decided.is_mail_alone(letters) {
        let retimed = decided.pages.write_mail_and_commit(client).await?;
        decided.correct(&retimed);
    } else {
        decided.write(client, letters).await?;
        client.batch_execute("COMMIT").await?;
    }
    account.add_to_office(decided.pages.charged());
    Ok(decided.outcomes)
}

/// Writes letters in a transaction that does something else too.
pub(super) async fn write_in<C: GenericClient>(
    tx: &C,
    account: &Account,
    letters: &[(Agent, OutgoingMessage)],
) -> Result<Vec<Result<Outcome>>, Trouble> {
    let mut known = Known::default();
    let heads = known.lock(tx, letters).await?;
    let mut decided = decide(tx, account, known, heads, letters).await?;
    decided.write(tx, letters).await?;
    account.add_to_office(decided.pages.charged());
    Ok(decided.outcomes)
}

/// Looks up what decides about letters, and decides.
async fn decide<C: GenericClient>(
    client: &C,
    account: &Account,
    mut known: Known,
    mut heads: Heads,
    letters: &[(Agent, OutgoingMessage)],
) -> Result<Decided, Trouble> {
    known.look_up(client, letters).await?;
    known.make_sessions(client, letters).await?;
    let mut pages = Pages::default();
    let mut outcomes = Vec::with_capacity(letters.len());
    for (caller, letter) in letters {
        pages.waited_since(letter.came);
        let outcome = known.place(account, caller, letter, &mut heads, &mut pages);
        if let (Ok(Outcome::Placed(placed)), Some(once)) = (&outcome, &letter.once) {
            let sent = letter.sent(&placed.1);
            known.answers.insert((caller.key.0, once.key.clone()), (once.draft_hash.to_vec(), Some(sent)));
        }
        outcomes.push(outcome);
    }
    Ok(Decided { known, pages, outcomes })
}

impl Decided {
    /// Whether one statement writes all of it.
    fn is_mail_alone(&self, letters: &[(Agent, OutgoingMessage)]) -> bool {
        self.pages.is_mail_alone()
            && letters.iter().all(|(_, letter)| letter.once.is_none())
            && self.known.unused_sessions(&self.pages).is_empty()
    }

    /// Writes it, with the answers under idempotency keys.
    async fn write<C: GenericClient>(
        &mut self,
        client: &C,
        letters: &[(Agent, OutgoingMessage)],
    ) -> Result<(), Trouble> {
        let retimed = self.pages.write(client).await?;
        self.correct(&retimed);
        for ((caller, _), outcome) in letters.iter().zip(&self.outcomes) {
            if let Ok(Outcome::Placed(placed)) = outcome
                && let (letter, placed) = &**placed
                && let Some(once) = &letter.once
            {
                remember(client, caller.key.0, once, &letter.sent(placed), letter.at).await?;
            }
        }
        // Of letters that were refused nothing stays, nor the sessions that were made for them.
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
                    let (letter, placed) = &mut **placed;
                    letter.at = retimed.of(letter.id).unwrap_or(letter.at);
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
    /// Decides about one letter, and adds it to what is to be written.
    fn place(
        &self,
        account: &Account,
        caller: &Agent,
        letter: &OutgoingMessage,
        heads: &mut Heads,
        pages: &mut Pages,
    ) -> Result<Outcome> {
        if let Some(once) = &letter.once
            && let Some((hash, sent)) = self.answers.get(&(caller.key.0, once.key.clone()))
        {
            return repeat(once, hash, sent.as_ref());
        }
        if self.peer(letter).is_none() {
            return Ok(Outcome::NoAgent(Box::new(letter.clone())));
        }
        let peer = self.reachable(caller, letter)?;
        let mut stored = self.stored(caller.key.0);
        stored += pages.charged_to(caller.key.0);
        account.check(stored, pages.charged(), letter.stored(1))?;
        // By the name that it has: traces and answers know no other.
        let renamed = (letter.to != peer.name).then(|| OutgoingMessage { to: peer.name.clone(), ..letter.clone() });
        let letter = renamed.as_ref().unwrap_or(letter);
        let thread = self.thread(caller, peer, letter)?;
        let hop = self.hop(caller, letter)?;
        let mut placed = Placed {
            session: thread.public_id,
            subject: thread.subject.clone(),
            copies: Vec::new(),
            task: None,
            reason: None,
            more: Vec::new(),
        };
        if letter.kind == Kind::Task {
            self.place_task(caller, peer, thread, letter, &hop, &mut placed, heads, pages)?;
        } else {
            let post = letter_post(caller, letter, &hop, None)?;
            placed.copies = pages.post(heads, thread.id, post, To::One(peer.id));
        }
        Ok(Outcome::Placed(Box::new((letter.clone(), placed))))
    }

    /// Adds a task. One that the office rejects goes to nobody's log but its sender's, as an update.
    #[allow(clippy::too_many_arguments)]
    fn place_task(
        &self,
        caller: &Agent,
        peer: &Peer,
        thread: &Thread,
        letter: &OutgoingMessage,
        hop: &Hop,
        placed: &mut Placed,
        heads: &mut Heads,
        pages: &mut Pages,
    ) -> Result<()> {
        let asked = Asked {
            sender: &letter.from,
            assignee: &peer.name,
            card: &peer.card,
            current_tasks: self.current_tasks(peer.id),
            deadline: letter.deadline,
        };
        let (state, reason) = match decide_in_any_case(asked, letter.at) {
            Decision::Accept => (TaskState::Pending, None),
            Decision::Reject(reason) => (TaskState::Rejected, Some(reason.to_string())),
        };
        let (Some(task), Some(id)) = (letter.task_ref(state), letter.task_id) else {
            return Err(StoreError::invalid("not a task"));
        };
        let post = letter_post(caller, letter, hop, Some(json(&task)?))?;
        let callback = post.callback.clone();
        let to = if reason.is_none() { To::One(peer.id) } else { To::Nobody(peer.id) };
        placed.copies = pages.post(heads, thread.id, post, to);
        pages.task(NewTask {
            id,
            owner: caller.key.0,
            assignee: peer.id,
            state,
            subject: thread.subject.to_string(),
            message: letter.id,
            session: thread.public_id,
            parent: self.parent_task(letter),
            deadline: letter.deadline,
            note: reason.clone(),
            callback: callback.clone(),
            at: letter.at,
        });
        if let Some(reason) = &reason {
            let update = Update::new(task.clone(), letter.id, Some(reason), letter.at);
            let on = tasks::On { id: thread.id, public_id: thread.public_id, subject: &thread.subject };
            // Charged to who asked for it: else one agent could fill up another's account.
            let (from, payer) = (peer.id, caller.key.0);
            let news =
                tasks::post_update(pages, heads, &peer.name, from, payer, caller.key.0, on, hop, update, callback)?;
            placed.more.extend(news);
        }
        placed.task = Some(task);
        placed.reason = reason;
        Ok(())
    }
}

/// What of a letter is written.
pub(super) fn letter_post(caller: &Agent, letter: &OutgoingMessage, hop: &Hop, task: Option<String>) -> Result<Post> {
    Ok(Post {
        id: letter.id,
        sender: caller.key.0,
        payer: caller.key.0,
        at: letter.at,
        priority: rank(letter.priority),
        ttl: hop.ttl,
        kind: kind_text(&letter.kind).map(str::to_owned),
        trace: trace_json(hop)?,
        reply_to: letter.reply_to(),
        correlation_id: letter.correlation_id.as_ref().map(|id| id.as_str().to_owned()),
        task,
        callback: json_of(letter.callback.as_ref())?,
        content: letter.content_to_keep().into_owned(),
        parts: json_of(letter.parts.as_ref())?,
        metadata: letter.metadata_json()?,
    })
}
