//! Many letters in one transaction: three ways to the database and back, however many there are.
//!
//! First the mailboxes are locked. Then, under those locks, everything that decides about the letters is looked up. Then
//! what they write is written, together with the commit.

use std::collections::{BTreeSet, HashMap, HashSet};
use std::sync::Arc;

use amb_core::doc::Sent;
use amb_core::route::{self, Hop};
use amb_core::{AgentName, AllowFrom, Kind};
use deadpool_postgres::{Object, Transaction};
use uuid::Uuid;

use super::error::Trouble;
use super::messages::{self, Found};
use super::write::{Heads, Pages};
use crate::error::Result;
use crate::letter::{self, Letter, Placed, json, json_of, no_session, trace_json};
use crate::row::{self, kind_text, rank};
use crate::types::{Agent, AgentKey};
use crate::{StoreError, words};

/// What became of a letter.
#[derive(Debug)]
pub(super) enum Outcome {
    /// It was written.
    Placed(Box<(Letter, Placed)>),
    /// Its idempotency key had been used for the same draft.
    Repeat(Sent),
}

/// An agent, as far as sending to it goes.
#[derive(Debug)]
struct Peer {
    id: i64,
    allow_from: AllowFrom,
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
    peers: HashMap<AgentName, Peer>,
    connected: HashSet<(i64, i64)>,
    by_subject: HashMap<(i64, i64, String), Thread>,
    by_public_id: HashMap<Uuid, Thread>,
    parents: HashMap<Uuid, Found>,
    /// Answers to idempotency keys.
    answers: HashMap<(i64, String), (Vec<u8>, Sent)>,
}

/// Writes letters. Each has an outcome of its own; a failure of all is a failure of the transaction.
pub(super) async fn write(client: &mut Object, letters: &[(Agent, Letter)]) -> Result<Vec<Result<Outcome>>, Trouble> {
    let tx = client.transaction().await?;
    let mut known = Known::default();
    let mut heads = known.lock(&tx, letters).await?;
    known.look_up(&tx, letters).await?;
    known.make_sessions(&tx, letters).await?;

    let mut pages = Pages::default();
    let mut places: HashMap<i64, i64> = HashMap::new();
    let mut outcomes = Vec::with_capacity(letters.len());
    let mut answers = Vec::new();
    for (caller, letter) in letters {
        let outcome = known.place(caller, letter, &mut heads, &mut pages, &mut places);
        if let (Ok(Outcome::Placed(placed)), Some(once)) = (&outcome, &letter.once) {
            let sent = letter.sent(&placed.1);
            answers.push((caller.key.0, once.clone(), json(&sent)?, letter.at));
            known.answers.insert((caller.key.0, once.key.clone()), (once.draft_hash.to_vec(), sent));
        }
        outcomes.push(outcome);
    }
    remember(&tx, answers).await?;
    pages.write(&tx).await?;
    tx.commit().await?;
    Ok(outcomes)
}

fn pair(a: i64, b: i64) -> (i64, i64) {
    if a < b { (a, b) } else { (b, a) }
}

impl Known {
    /// Finds the recipients and locks their mailboxes, and those of senders whose idempotency keys must not race.
    async fn lock(&mut self, tx: &Transaction<'_>, letters: &[(Agent, Letter)]) -> Result<Heads, Trouble> {
        let mut names: BTreeSet<&str> = letters.iter().map(|(_, letter)| letter.to.as_str()).collect();
        names
            .extend(letters.iter().filter(|(_, letter)| letter.once.is_some()).map(|(_, letter)| letter.from.as_str()));
        let names: Vec<&str> = names.into_iter().collect();
        let select = tx
            .prepare_cached(
                "SELECT a.id, a.name, a.allow_from, m.head FROM agents a JOIN mailboxes m ON m.agent_id = a.id
                 WHERE a.name = ANY($1) AND a.deleted_at IS NULL ORDER BY a.id FOR NO KEY UPDATE OF m",
            )
            .await?;
        let rows = tx.query(&select, &[&names]).await?;
        for row in &rows {
            let allow_from = row::parse(Some(row.get::<_, &str>(2)))?.unwrap_or_default();
            self.peers.insert(row::name(row.get(1))?, Peer { id: row.get(0), allow_from });
        }
        Ok(Heads::locked(rows.iter().map(|row| (row.get(0), row.get(3)))))
    }

    /// Under the locks: who is connected, which sessions there are, and what letters refer to.
    async fn look_up(&mut self, tx: &Transaction<'_>, letters: &[(Agent, Letter)]) -> Result<(), Trouble> {
        let (mut pairs, mut subjects, mut sessions) = (BTreeSet::new(), BTreeSet::new(), BTreeSet::new());
        for (caller, letter) in letters {
            let Some(peer) = self.peers.get(&letter.to) else { continue };
            let pair = pair(caller.key.0, peer.id);
            pairs.insert(pair);
            match &letter.thread {
                letter::Thread::Existing(id) => drop(sessions.insert(*id)),
                letter::Thread::Subject { key, .. } => drop(subjects.insert((pair, key.as_str()))),
            }
        }
        let keys =
            letters.iter().filter_map(|(caller, letter)| Some((caller.key.0, letter.once.as_ref()?.key.as_str())));
        let (callers, keys): (Vec<i64>, Vec<&str>) = keys.unzip();
        let parents: Vec<Uuid> = letters.iter().filter_map(|(_, letter)| Some(letter.parent?.id)).collect();
        let (connected, threads, answers, parents) = tokio::try_join!(
            connected(tx, &pairs),
            threads(tx, &subjects, &sessions),
            answers(tx, &callers, &keys),
            messages::find_all(tx, &parents),
        )?;
        self.connected = connected;
        self.add_threads(threads);
        self.answers = answers;
        self.parents = parents;
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
            let (Some(peer), letter::Thread::Subject { subject, key, fresh }) =
                (self.reachable(caller, letter).ok(), &letter.thread)
            else {
                continue;
            };
            let (low, high) = pair(caller.key.0, peer.id);
            if !self.by_subject.contains_key(&(low, high, key.clone())) {
                missing.entry((low, high, key.as_str())).or_insert((subject, *fresh, caller.key.0, peer.id, letter.at));
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
                 SELECT low_id, id FROM made UNION ALL SELECT high_id, id FROM made",
            )
            .await?;
        let mut subjects = BTreeSet::new();
        for ((low, high, key), (subject, fresh, me, peer, at)) in &missing {
            tx.execute(&insert, &[fresh, subject, key, me, peer, low, high, at]).await?;
            subjects.insert(((*low, *high), *key));
        }
        let made = threads(tx, &subjects, &BTreeSet::new()).await?;
        self.add_threads(made);
        Ok(())
    }

    /// The recipient, if it is there, connected, and hears the sender.
    fn reachable(&self, caller: &Agent, letter: &Letter) -> Result<&Peer> {
        let Some(peer) = self.peers.get(&letter.to) else { return Err(words::not_connected(&letter.to)) };
        if !self.connected.contains(&pair(caller.key.0, peer.id)) {
            return Err(words::not_connected(&letter.to));
        }
        // Whom a task's assignee does not hear is told by the task's rejection.
        if letter.kind != Kind::Task && !peer.allow_from.allows(&letter.from) {
            return Err(words::not_heard(&letter.to));
        }
        Ok(peer)
    }

    fn thread(&self, caller: &Agent, peer: &Peer, letter: &Letter) -> Result<&Thread> {
        let (low, high) = pair(caller.key.0, peer.id);
        match &letter.thread {
            letter::Thread::Existing(id) => {
                let thread = self.by_public_id.get(id).ok_or_else(no_session)?;
                if thread.pair == Some((low, high)) { Ok(thread) } else { Err(words::not_both_members(&letter.to)) }
            }
            letter::Thread::Subject { key, .. } => {
                self.by_subject.get(&(low, high, key.clone())).ok_or_else(no_session)
            }
        }
    }

    /// ttl and trace.
    fn hop(&self, caller: &Agent, letter: &Letter) -> Result<Hop> {
        let Some(letter::Parent { id, relay }) = letter.parent else { return Ok(route::fresh(&caller.name)) };
        let me = caller.key.0;
        let found = self.parents.get(&id).filter(|found| if relay { found.came_to(me) } else { found.concerns(me) });
        let Some(found) = found else { return Err(letter::no_message(&id.into())) };
        let parent = found.message()?;
        Ok(if relay {
            route::relay(&parent, &caller.name, &letter.to)?
        } else {
            route::after(&parent, &caller.name, &letter.to)?
        })
    }

    /// Decides about one letter, and adds it to what is to be written.
    fn place(
        &self,
        caller: &Agent,
        letter: &Letter,
        heads: &mut Heads,
        pages: &mut Pages,
        places: &mut HashMap<i64, i64>,
    ) -> Result<Outcome> {
        if let Some(once) = &letter.once
            && let Some((hash, sent)) = self.answers.get(&(caller.key.0, once.key.clone()))
        {
            return if *hash == once.draft_hash { Ok(Outcome::Repeat(sent.clone())) } else { Err(words::key_reused()) };
        }
        let peer = self.reachable(caller, letter)?;
        let thread = self.thread(caller, peer, letter)?;
        let hop = self.hop(caller, letter)?;
        let trace = trace_json(&hop)?;
        let callback = json_of(letter.callback.as_ref())?;
        let parts = json_of(letter.parts.as_ref())?;
        let metadata = if letter.metadata.is_empty() { None } else { Some(json(&letter.metadata)?) };
        let Some(number) = heads.next(peer.id) else { return Err(words::not_connected(&letter.to)) };
        let ord = places.entry(thread.id).or_insert(0);
        *ord += 1;

        let m = &mut pages.messages;
        m.session.push(thread.id);
        m.ord.push(*ord);
        m.public_id.push(letter.id);
        m.sender.push(caller.key.0);
        m.recipient.push(Some(peer.id));
        m.number.push(Some(number));
        m.at.push(letter.at);
        m.priority.push(rank(letter.priority));
        m.ttl.push(hop.ttl.into());
        m.kind.push(kind_text(&letter.kind).map(str::to_owned));
        m.trace.push(trace);
        m.reply_to.push(letter.parent.filter(|parent| !parent.relay).map(|parent| parent.id));
        m.correlation_id.push(letter.correlation_id.as_ref().map(|id| id.as_str().to_owned()));
        m.task.push(None);
        m.callback.push(callback);
        m.content.push(letter.content_to_keep().into_owned());
        m.parts.push(parts);
        m.metadata.push(metadata);
        let d = &mut pages.deliveries;
        d.agent.push(peer.id);
        d.number.push(number);
        d.session.push(thread.id);
        d.ord.push(*ord);
        d.priority.push(rank(letter.priority));

        let placed = Placed {
            session: thread.public_id,
            subject: thread.subject.clone(),
            recipient: AgentKey(peer.id),
            number: u64::try_from(number).unwrap_or(0),
            task: None,
            reason: None,
        };
        Ok(Outcome::Placed(Box::new((letter.clone(), placed))))
    }
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

type Answers = HashMap<(i64, String), (Vec<u8>, Sent)>;

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
    rows.iter()
        .map(|row| {
            let sent = serde_json::from_str(row.get(3)).map_err(StoreError::internal)?;
            Ok(((row.get(0), row.get(1)), (row.get(2), sent)))
        })
        .collect()
}

async fn remember(
    tx: &Transaction<'_>,
    answers: Vec<(i64, letter::Once, String, amb_core::Timestamp)>,
) -> Result<(), Trouble> {
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
