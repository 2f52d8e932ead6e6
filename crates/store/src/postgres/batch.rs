//! Many letters in one transaction: three ways to the database and back, however many there are.
//!
//! First the mailboxes are locked. Then, under those locks, everything that decides about the letters is looked up. Then
//! what they write is written, together with the commit.

use std::collections::{BTreeSet, HashMap, HashSet};
use std::sync::Arc;

use amb_core::doc::Sent;
use amb_core::id::fresh_uuid;
use amb_core::route::Hop;
use amb_core::task::{Asked, Decision, decide_in_any_case};
use amb_core::{AgentName, Card, Kind, TaskState};
use deadpool_postgres::{Object, Transaction};
use tokio_postgres::Row;
use uuid::Uuid;

use super::error::Trouble;
use super::messages::{self, Found};
use super::tasks;
use super::usage;
use super::write::{Heads, NewTask, Pages, Post, To};
use crate::error::Result;
use crate::letter::{self, Letter, Placed, json, json_of, no_session, trace_json};
use crate::quota::{Account, Stored};
use crate::row::{self, kind_text, rank};
use crate::tasks::Update;
use crate::types::{Agent, Once};
use crate::{StoreError, words};

/// What became of a letter.
#[derive(Debug)]
pub(super) enum Outcome {
    /// It was written.
    Placed(Box<(Letter, Placed)>),
    /// Its idempotency key had been used for the same draft.
    Repeat(Sent),
    /// No agent has the recipient's name; a group may.
    NoAgent(Box<Letter>),
}

/// An agent, as far as sending to it goes.
#[derive(Debug, Clone)]
struct Peer {
    id: i64,
    name: AgentName,
    card: Card,
}

/// A session, as far as sending in it goes.
#[derive(Debug, Clone)]
struct Thread {
    id: i64,
    public_id: Uuid,
    subject: Arc<str>,
    pair: Option<(i64, i64)>,
}

/// All that was looked up for a batch.
#[derive(Debug, Default)]
struct Known {
    /// Agents whose mailboxes are locked.
    ids: HashMap<AgentName, i64>,
    /// Those of them that are there, as they are under the locks.
    peers: HashMap<AgentName, Peer>,
    connected: HashSet<(i64, i64)>,
    by_subject: HashMap<(i64, i64, String), Thread>,
    /// Sessions that this transaction made.
    made: Vec<i64>,
    by_public_id: HashMap<Uuid, Thread>,
    parents: HashMap<Uuid, Found>,
    /// Answers to idempotency keys.
    answers: Answers,
    /// How many tasks an assignee works on.
    current: HashMap<i64, usize>,
    /// The task that a message brought.
    task_of: HashMap<Uuid, i64>,
    /// What the senders have stored.
    stored: HashMap<i64, Stored>,
}

/// Writes letters in a transaction of their own.
pub(super) async fn write(
    client: &mut Object,
    account: &Account,
    letters: &[(Agent, Letter)],
) -> Result<Vec<Result<Outcome>>, Trouble> {
    let tx = client.transaction().await?;
    let outcomes = write_in(&tx, account, letters).await?;
    tx.commit().await?;
    Ok(outcomes)
}

/// Writes letters. Each has an outcome of its own; a failure of all is a failure of the transaction.
pub(super) async fn write_in(
    tx: &Transaction<'_>,
    account: &Account,
    letters: &[(Agent, Letter)],
) -> Result<Vec<Result<Outcome>>, Trouble> {
    let mut known = Known::default();
    let mut heads = known.lock(tx, letters).await?;
    known.look_up(tx, letters).await?;
    known.make_sessions(tx, letters).await?;

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
    let retimed = pages.write(tx).await?;
    account.add_to_office(pages.charged());
    let mut answers = Vec::new();
    for ((caller, _), outcome) in letters.iter().zip(&mut outcomes) {
        match outcome {
            Ok(Outcome::Placed(placed)) => {
                let (letter, placed) = &mut **placed;
                letter.at = retimed.of(letter.id).unwrap_or(letter.at);
                retimed.correct(&mut placed.more);
                if let Some(once) = &letter.once {
                    answers.push((caller.key.0, once.clone(), json(&letter.sent(placed))?, letter.at));
                }
            }
            // Of another in this batch, perhaps.
            Ok(Outcome::Repeat(sent)) => {
                let at = sent.message_id.as_uuid().and_then(|id| retimed.of(id));
                sent.created_at = at.unwrap_or(sent.created_at);
            }
            Ok(Outcome::NoAgent(_)) | Err(_) => {}
        }
    }
    remember(tx, answers).await?;
    known.remove_unused_sessions(tx, &pages).await?;
    Ok(outcomes)
}

fn pair(a: i64, b: i64) -> (i64, i64) {
    if a < b { (a, b) } else { (b, a) }
}

impl Known {
    /// Finds the recipients and locks their mailboxes, and those of senders whose idempotency keys must not race.
    async fn lock(&mut self, tx: &Transaction<'_>, letters: &[(Agent, Letter)]) -> Result<Heads, Trouble> {
        let mut names: BTreeSet<String> = letters.iter().map(|(_, letter)| letter.to.folded()).collect();
        // A task may be rejected, and then its sender hears of it.
        let told = |letter: &Letter| letter.once.is_some() || letter.kind == Kind::Task;
        names.extend(letters.iter().filter(|(_, letter)| told(letter)).map(|(_, letter)| letter.from.folded()));
        let names: Vec<String> = names.into_iter().collect();
        let select = tx
            .prepare_cached(
                "SELECT a.id, a.name, m.head FROM agents a JOIN mailboxes m ON m.agent_id = a.id
                 WHERE lower(a.name) = ANY($1) AND a.deleted_at IS NULL ORDER BY a.id FOR NO KEY UPDATE OF m",
            )
            .await?;
        let rows = tx.query(&select, &[&names]).await?;
        for row in &rows {
            self.ids.insert(row::name(row.get(1))?, row.get(0));
        }
        // Names that are like the one of an agent mean that agent.
        let known: Vec<(AgentName, i64)> = self.ids.iter().map(|(name, id)| (name.clone(), *id)).collect();
        for (_, letter) in letters {
            if !self.ids.contains_key(&letter.to) {
                let meant = letter.to.meant(&known, |(name, _)| name.as_str());
                self.ids.extend(meant.map(|(_, id)| (letter.to.clone(), *id)));
            }
        }
        Ok(Heads::locked(rows.iter().map(|row| (row.get(0), row.get(2)))))
    }

    /// Under the locks: who is connected, which sessions there are, and what letters refer to.
    async fn look_up(&mut self, tx: &Transaction<'_>, letters: &[(Agent, Letter)]) -> Result<(), Trouble> {
        let (mut pairs, mut subjects, mut sessions) = (BTreeSet::new(), BTreeSet::new(), BTreeSet::new());
        for (caller, letter) in letters {
            let Some(peer) = self.ids.get(&letter.to) else { continue };
            let pair = pair(caller.key.0, *peer);
            pairs.insert(pair);
            sessions.extend(letter.session);
            subjects.extend(letter.subject.as_ref().map(|subject| (pair, subject.key.as_str())));
        }
        let keys =
            letters.iter().filter_map(|(caller, letter)| Some((caller.key.0, letter.once.as_ref()?.key.as_str())));
        let (callers, keys): (Vec<i64>, Vec<&str>) = keys.unzip();
        let parents: Vec<Uuid> = letters.iter().filter_map(|(_, letter)| Some(letter.parent?.id)).collect();
        let tasks = || letters.iter().filter(|(_, letter)| letter.kind == Kind::Task);
        let assignees: Vec<i64> = tasks().filter_map(|(_, letter)| self.ids.get(&letter.to)).copied().collect();
        let locked: Vec<i64> = self.ids.values().copied().collect();
        let senders: Vec<i64> =
            letters.iter().map(|(caller, _)| caller.key.0).collect::<BTreeSet<_>>().into_iter().collect();
        let relayed: Vec<Uuid> = tasks().filter_map(|(_, letter)| Some(letter.parent?.id)).collect();
        let (peers, connected, found, answers, parents, current, task_of, stored) = tokio::try_join!(
            peers(tx, &locked),
            connected(tx, &pairs),
            threads(tx, &subjects, &sessions),
            answers(tx, &callers, &keys),
            messages::find_all(tx, &parents),
            tasks::current(tx, &assignees),
            tasks::of_messages(tx, &relayed),
            usage::stored(tx, &senders),
        )?;
        self.stored = stored;
        self.peers = peers;
        for (name, id) in &self.ids {
            if !self.peers.contains_key(name) {
                let meant = self.peers.values().find(|peer| peer.id == *id).cloned();
                self.peers.extend(meant.map(|peer| (name.clone(), peer)));
            }
        }
        self.current = current;
        self.task_of = task_of;
        self.connected = connected;
        self.add_threads(found);
        self.answers = answers;
        self.parents = parents;
        let answered = letters.iter().filter(|(_, letter)| letter.session.is_none());
        let answered: BTreeSet<Uuid> =
            answered.filter_map(|(_, letter)| Some(self.parents.get(&letter.reply_to()?)?.row.session)).collect();
        if !answered.is_empty() {
            self.add_threads(threads(tx, &BTreeSet::new(), &answered).await?);
        }
        Ok(())
    }

    fn add_threads(&mut self, threads: Vec<(Thread, String)>) {
        for (thread, key) in threads {
            self.by_public_id.insert(thread.public_id, thread.clone());
            if let Some((low, high)) = thread.pair {
                self.by_subject.insert((low, high, key), thread);
            }
        }
    }

    /// Makes the sessions of subjects that have none. Of two at once one makes it, and the other finds it.
    async fn make_sessions(&mut self, tx: &Transaction<'_>, letters: &[(Agent, Letter)]) -> Result<(), Trouble> {
        // In the order of their keys, so that two transactions that make the same ones do not wait for each other.
        let mut missing = std::collections::BTreeMap::new();
        for (caller, letter) in letters {
            let Ok(peer) = self.reachable(caller, letter) else { continue };
            let (low, high) = pair(caller.key.0, peer.id);
            let Ok(letter::Thread::Subject(letter::Subject { subject, key })) =
                letter.thread(self.answered((low, high), letter))
            else {
                continue;
            };
            if !self.by_subject.contains_key(&(low, high, key.clone())) {
                missing.entry((low, high, key.as_str())).or_insert((subject, caller.key.0, peer.id, letter.at));
            }
        }
        if missing.is_empty() {
            return Ok(());
        }
        let insert = tx
            .prepare_cached(
                "WITH made AS (
                     INSERT INTO sessions (public_id, subject, subject_key, initiator_id, participant_id, low_id,
                                           high_id, created_at)
                     VALUES ($1, $2, $3, $4, $5, $6, $7, $8)
                     ON CONFLICT (low_id, high_id, subject_key) WHERE low_id IS NOT NULL DO NOTHING
                     RETURNING id, low_id, high_id
                 )
                 INSERT INTO session_members (agent_id, session_id)
                 SELECT low_id, id FROM made UNION ALL SELECT high_id, id FROM made RETURNING session_id",
            )
            .await?;
        let mut subjects = BTreeSet::new();
        for ((low, high, key), (subject, me, peer, at)) in &missing {
            let made = tx.query(&insert, &[&fresh_uuid(*at), subject, key, me, peer, low, high, at]).await?;
            self.made.extend(made.first().map(|row| row.get::<_, i64>(0)));
            subjects.insert(((*low, *high), *key));
        }
        let made = threads(tx, &subjects, &BTreeSet::new()).await?;
        self.add_threads(made);
        Ok(())
    }

    /// Removes the sessions that were made for letters which were then refused: of those nothing stays.
    async fn remove_unused_sessions(&self, tx: &Transaction<'_>, pages: &Pages) -> Result<(), Trouble> {
        let unused: Vec<i64> = self.made.iter().copied().filter(|session| !pages.posts_in(*session)).collect();
        if unused.is_empty() {
            return Ok(());
        }
        for sql in ["DELETE FROM session_members WHERE session_id = ANY($1)", "DELETE FROM sessions WHERE id = ANY($1)"]
        {
            let delete = tx.prepare_cached(sql).await?;
            tx.execute(&delete, &[&unused]).await?;
        }
        Ok(())
    }

    /// The recipient, if it is there, connected, and hears the sender.
    fn reachable(&self, caller: &Agent, letter: &Letter) -> Result<&Peer> {
        let Some(peer) = self.peers.get(&letter.to) else { return Err(words::not_connected(&letter.to)) };
        if !self.connected.contains(&pair(caller.key.0, peer.id)) {
            return Err(words::not_connected(&letter.to));
        }
        // Whom a task's assignee does not hear is told by the task's rejection.
        if letter.kind != Kind::Task && !peer.card.allow_from.allows_in_any_case(&letter.from) {
            return Err(words::not_heard(&letter.to));
        }
        Ok(peer)
    }

    fn thread(&self, caller: &Agent, peer: &Peer, letter: &Letter) -> Result<&Thread> {
        let (low, high) = pair(caller.key.0, peer.id);
        match letter.thread(self.answered((low, high), letter))? {
            letter::Thread::Existing(id) => {
                let thread = self.by_public_id.get(&id).ok_or_else(no_session)?;
                if thread.pair == Some((low, high)) { Ok(thread) } else { Err(words::not_both_members(&letter.to)) }
            }
            letter::Thread::Subject(letter::Subject { key, .. }) => {
                self.by_subject.get(&(low, high, key.clone())).ok_or_else(no_session)
            }
        }
    }

    /// The session of the message that the letter replies to, where it is between these two.
    fn answered(&self, pair: (i64, i64), letter: &Letter) -> Option<Uuid> {
        let session = self.parents.get(&letter.reply_to()?)?.row.session;
        self.by_public_id.get(&session).filter(|thread| thread.pair == Some(pair)).map(|thread| thread.public_id)
    }

    /// ttl and trace.
    fn hop(&self, caller: &Agent, letter: &Letter) -> Result<Hop> {
        let found = letter.parent.and_then(|parent| self.parents.get(&parent.id));
        let parent = messages::parent(found, caller, letter)?.map(Found::message).transpose()?;
        letter.hop(parent.as_ref(), false)
    }

    /// Decides about one letter, and adds it to what is to be written.
    fn place(
        &self,
        account: &Account,
        caller: &Agent,
        letter: &Letter,
        heads: &mut Heads,
        pages: &mut Pages,
    ) -> Result<Outcome> {
        if let Some(once) = &letter.once
            && let Some((hash, sent)) = self.answers.get(&(caller.key.0, once.key.clone()))
        {
            return repeat(once, hash, sent.as_ref());
        }
        if !self.peers.contains_key(&letter.to) {
            return Ok(Outcome::NoAgent(Box::new(letter.clone())));
        }
        let peer = self.reachable(caller, letter)?;
        let mut stored = self.stored.get(&caller.key.0).copied().unwrap_or_default();
        stored += pages.charged_to(caller.key.0);
        account.check(stored, pages.charged(), letter.stored(1))?;
        // By the name that it has: traces and answers know no other.
        let renamed = (letter.to != peer.name).then(|| Letter { to: peer.name.clone(), ..letter.clone() });
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
        letter: &Letter,
        hop: &Hop,
        placed: &mut Placed,
        heads: &mut Heads,
        pages: &mut Pages,
    ) -> Result<()> {
        let asked = Asked {
            sender: &letter.from,
            assignee: &peer.name,
            card: &peer.card,
            current_tasks: self.current.get(&peer.id).copied().unwrap_or(0),
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
        let parent =
            letter.parent.filter(|parent| parent.relay).and_then(|parent| self.task_of.get(&parent.id).copied());
        pages.task(NewTask {
            id,
            owner: caller.key.0,
            assignee: peer.id,
            state,
            subject: thread.subject.to_string(),
            message: letter.id,
            session: thread.public_id,
            parent,
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
pub(super) fn letter_post(caller: &Agent, letter: &Letter, hop: &Hop, task: Option<String>) -> Result<Post> {
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

/// These agents with their cards. Asked under their locks: a statement that waits for a lock sees the locked row as it is
/// then, and all other rows as they were when it began to wait.
async fn peers(tx: &Transaction<'_>, agents: &[i64]) -> Result<HashMap<AgentName, Peer>, Trouble> {
    let select = tx
        .prepare_cached(
            "SELECT id, name, allow_from, max_concurrent_tasks FROM agents WHERE id = ANY($1) AND deleted_at IS NULL",
        )
        .await?;
    let rows = tx.query(&select, &[&agents]).await?;
    let peer = |row: &Row| {
        let card = Card {
            allow_from: row::parse(Some(row.get::<_, &str>(2)))?.unwrap_or_default(),
            max_concurrent_tasks: u32::try_from(row.get::<_, i64>(3)).unwrap_or(0),
            ..Card::default()
        };
        let name = row::name(row.get(1))?;
        Ok((name.clone(), Peer { id: row.get(0), name, card }))
    };
    rows.iter().map(peer).collect()
}

async fn connected(tx: &Transaction<'_>, pairs: &BTreeSet<(i64, i64)>) -> Result<HashSet<(i64, i64)>, Trouble> {
    let (low, high): (Vec<i64>, Vec<i64>) = pairs.iter().copied().unzip();
    let select = tx
        .prepare_cached(
            "SELECT c.low_id, c.high_id FROM unnest($1::bigint[], $2::bigint[]) AS p (low_id, high_id)
             JOIN connections c ON c.low_id = p.low_id AND c.high_id = p.high_id AND c.status = 'ACTIVE'",
        )
        .await?;
    let rows = tx.query(&select, &[&low, &high]).await?;
    Ok(rows.iter().map(|row| (row.get(0), row.get(1))).collect())
}

/// The sessions of these subjects and of these ids, each with its folded subject.
async fn threads(
    tx: &Transaction<'_>,
    subjects: &BTreeSet<((i64, i64), &str)>,
    sessions: &BTreeSet<Uuid>,
) -> Result<Vec<(Thread, String)>, Trouble> {
    let low: Vec<i64> = subjects.iter().map(|((low, _), _)| *low).collect();
    let high: Vec<i64> = subjects.iter().map(|((_, high), _)| *high).collect();
    let keys: Vec<&str> = subjects.iter().map(|(_, key)| *key).collect();
    let sessions: Vec<Uuid> = sessions.iter().copied().collect();
    let select = tx
        .prepare_cached(
            "SELECT s.id, s.public_id, s.subject, s.low_id, s.high_id, s.subject_key
             FROM unnest($1::bigint[], $2::bigint[], $3::text[]) AS w (low_id, high_id, subject_key)
             JOIN sessions s ON s.low_id = w.low_id AND s.high_id = w.high_id AND s.subject_key = w.subject_key
             UNION ALL
             SELECT id, public_id, subject, low_id, high_id, subject_key FROM sessions WHERE public_id = ANY($4)",
        )
        .await?;
    let rows = tx.query(&select, &[&low, &high, &keys, &sessions]).await?;
    Ok(rows
        .iter()
        .map(|row| {
            let pair: (Option<i64>, Option<i64>) = (row.get(3), row.get(4));
            let subject: &str = row.get(2);
            let thread =
                Thread { id: row.get(0), public_id: row.get(1), subject: subject.into(), pair: pair.0.zip(pair.1) };
            (thread, row.get(5))
        })
        .collect())
}

/// What was answered under idempotency keys, and for what. Nothing where the answer was none to a send.
type Answers = HashMap<(i64, String), (Vec<u8>, Option<Sent>)>;

/// The answer to a send under a key that was used before.
pub(super) fn repeat(once: &Once, hash: &[u8], sent: Option<&Sent>) -> Result<Outcome> {
    match sent {
        Some(sent) if hash == once.draft_hash => Ok(Outcome::Repeat(sent.clone())),
        _ => Err(words::key_reused()),
    }
}

async fn answers(tx: &Transaction<'_>, callers: &[i64], keys: &[&str]) -> Result<Answers, Trouble> {
    if keys.is_empty() {
        return Ok(Answers::new());
    }
    let select = tx
        .prepare_cached(
            "SELECT i.agent_id, i.key, i.draft_hash, i.answer
             FROM unnest($1::bigint[], $2::text[]) AS w (agent_id, key)
             JOIN idempotency i ON i.agent_id = w.agent_id AND i.key = w.key",
        )
        .await?;
    let rows = tx.query(&select, &[&callers, &keys]).await?;
    rows.iter().map(|row| Ok(((row.get(0), row.get(1)), (row.get(2), serde_json::from_str(row.get(3)).ok())))).collect()
}

/// What a send with this key was answered before, and the draft it was for.
pub(super) async fn answer_before(
    tx: &Transaction<'_>,
    caller: i64,
    key: &str,
) -> Result<Option<(Vec<u8>, Option<Sent>)>, Trouble> {
    Ok(answers(tx, &[caller], &[key]).await?.into_values().next())
}

/// Remembers what a send was answered.
pub(super) async fn remember_one(
    tx: &Transaction<'_>,
    caller: i64,
    once: &Once,
    sent: &Sent,
    at: amb_core::Timestamp,
) -> Result<(), Trouble> {
    remember(tx, vec![(caller, once.clone(), json(sent)?, at)]).await
}

async fn remember(tx: &Transaction<'_>, answers: Vec<(i64, Once, String, amb_core::Timestamp)>) -> Result<(), Trouble> {
    for (agent, once, answer, at) in answers {
        let insert = tx
            .prepare_cached(
                "INSERT INTO idempotency (agent_id, key, draft_hash, answer, created_at) VALUES ($1, $2, $3, $4, $5)",
            )
            .await?;
        tx.execute(&insert, &[&agent, &once.key, &once.draft_hash.as_slice(), &answer, &at]).await?;
    }
    Ok(())
}
