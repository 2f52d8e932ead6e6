//! What decides about the letters of a batch, locked and looked up for all of them at once.

use std::collections::hash_map::Entry;
use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::Arc;

use amb_core::consent::may_write;
use amb_core::id::fresh_uuid;
use amb_core::route::Hop;
use amb_core::{AgentName, Card, Consent, Kind};
use deadpool_postgres::GenericClient;
use tokio_postgres::Row;
use uuid::Uuid;

use super::answers::{Answers, answers};
use crate::error::Result;
use crate::outgoing::{self, OutgoingMessage, no_session};
use crate::postgres::error::Trouble;
use crate::postgres::messages::{self, Found};
use crate::postgres::tasks;
use crate::postgres::write::{Heads, Pages};
use crate::quota::Stored;
use crate::row;
use crate::types::Agent;
use crate::words;

/// An agent, as far as sending to it goes.
#[derive(Debug)]
pub(super) struct Peer {
    pub(super) id: i64,
    pub(super) name: AgentName,
    pub(super) card: Card,
}

/// A session, as far as sending in it goes.
#[derive(Debug, Clone)]
pub(super) struct Thread {
    pub(super) id: i64,
    pub(super) public_id: Uuid,
    pub(super) subject: Arc<str>,
    pair: Option<(i64, i64)>,
}

/// All that was looked up for a batch.
#[derive(Debug, Default)]
pub(super) struct Known {
    /// Agents whose mailboxes are locked, by every name that letters have for them.
    ids: HashMap<AgentName, i64>,
    /// The recipients that are there, as they are under the locks.
    peers: HashMap<i64, Peer>,
    /// What lets pairs write to each other.
    consent: HashMap<(i64, i64), Consent>,
    /// What the senders have stored.
    stored: HashMap<i64, Stored>,
    by_subject: HashMap<(i64, i64, String), Thread>,
    /// Sessions that this transaction made.
    made: Vec<i64>,
    by_public_id: HashMap<Uuid, Thread>,
    parents: HashMap<Uuid, Found>,
    /// Answers to idempotency keys.
    pub(super) answers: Answers,
    /// How many tasks an assignee works on.
    current: HashMap<i64, usize>,
    /// The task that a message brought.
    task_of: HashMap<Uuid, i64>,
}

fn pair(a: i64, b: i64) -> (i64, i64) {
    if a < b { (a, b) } else { (b, a) }
}

impl Known {
    /// Finds the recipients and locks their mailboxes, and those of senders whose idempotency keys must not race.
    pub(super) async fn lock<C: GenericClient>(
        &mut self,
        client: &C,
        letters: &[(Agent, OutgoingMessage)],
    ) -> Result<Heads, Trouble> {
        let mut names: BTreeSet<String> = letters.iter().map(|(_, letter)| letter.to.folded()).collect();
        // A task may be rejected, and then its sender hears of it.
        let told = |letter: &OutgoingMessage| letter.once.is_some() || letter.kind == Kind::Task;
        names.extend(letters.iter().filter(|(_, letter)| told(letter)).map(|(_, letter)| letter.from.folded()));
        let names: Vec<String> = names.into_iter().collect();
        let select = client
            .prepare_cached(
                "SELECT a.id, a.name, m.head FROM agents a JOIN mailboxes m ON m.agent_id = a.id
                 WHERE lower(a.name) = ANY($1) AND a.deleted_at IS NULL ORDER BY a.id FOR NO KEY UPDATE OF m",
            )
            .await?;
        let rows = client.query(&select, &[&names]).await?;
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
    pub(super) async fn look_up<C: GenericClient>(
        &mut self,
        client: &C,
        letters: &[(Agent, OutgoingMessage)],
    ) -> Result<(), Trouble> {
        let (mut routes, mut subjects, mut sessions) = (BTreeSet::new(), BTreeSet::new(), BTreeSet::new());
        for (caller, letter) in letters {
            let Some(peer) = self.ids.get(&letter.to) else { continue };
            routes.insert((caller.key.0, *peer));
            sessions.extend(letter.session);
            let pair = pair(caller.key.0, *peer);
            subjects.extend(letter.subject.as_ref().map(|subject| (pair, subject.key.as_str())));
        }
        let keys =
            letters.iter().filter_map(|(caller, letter)| Some((caller.key.0, letter.once.as_ref()?.key.as_str())));
        let (callers, keys): (Vec<i64>, Vec<&str>) = keys.unzip();
        let parents: Vec<Uuid> = letters.iter().filter_map(|(_, letter)| Some(letter.parent?.id)).collect();
        let tasks = || letters.iter().filter(|(_, letter)| letter.kind == Kind::Task);
        let assignees: Vec<i64> = tasks().filter_map(|(_, letter)| self.ids.get(&letter.to)).copied().collect();
        let relayed: Vec<Uuid> = tasks().filter_map(|(_, letter)| Some(letter.parent?.id)).collect();
        let (routes, of_subjects, by_id, answers, parents, current, task_of) = tokio::try_join!(
            routed(client, &routes),
            threads_of(client, &subjects),
            threads(client, &sessions),
            answers(client, &callers, &keys),
            messages::find_all(client, &parents),
            tasks::current(client, &assignees),
            tasks::of_messages(client, &relayed),
        )?;
        self.add_routes(&routes)?;
        self.current = current;
        self.task_of = task_of;
        self.add_threads(of_subjects);
        self.add_threads(by_id);
        self.answers = answers;
        self.parents = parents;
        let answered = letters.iter().filter(|(_, letter)| letter.session.is_none());
        let answered: BTreeSet<Uuid> =
            answered.filter_map(|(_, letter)| Some(self.parents.get(&letter.reply_to()?)?.row.session)).collect();
        self.add_threads(threads(client, &answered).await?);
        Ok(())
    }

    /// Adds rows of [`routed`].
    fn add_routes(&mut self, rows: &[Row]) -> Result<()> {
        for row in rows {
            let (sender, id): (i64, i64) = (row.get(0), row.get(1));
            if row.get(8) {
                // Deleted before it was locked.
                continue;
            }
            if let Entry::Vacant(peer) = self.peers.entry(id) {
                let card = Card {
                    allow_from: row::parse(Some(row.get::<_, &str>(3)))?.unwrap_or_default(),
                    max_concurrent_tasks: u32::try_from(row.get::<_, i64>(4)).unwrap_or(0),
                    ..Card::default()
                };
                peer.insert(Peer { id, name: row::name(row.get(2))?, card });
            }
            let consent = Consent { connected: row.get(5), same_household: row.get(9), blocked: row.get(10) };
            self.consent.insert(pair(sender, id), consent);
            self.stored.insert(sender, Stored { messages: row.get(6), bytes: row.get(7) });
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
    pub(super) async fn make_sessions<C: GenericClient>(
        &mut self,
        client: &C,
        letters: &[(Agent, OutgoingMessage)],
    ) -> Result<(), Trouble> {
        // In the order of their keys, so that two transactions that make the same ones do not wait for each other.
        let mut missing = BTreeMap::new();
        for (caller, letter) in letters {
            let Ok(peer) = self.reachable(caller, letter) else { continue };
            let (low, high) = pair(caller.key.0, peer.id);
            let Ok(outgoing::Thread::Subject(outgoing::Subject { subject, key })) =
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
        let insert = client
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
            let made = client.query(&insert, &[&fresh_uuid(*at), subject, key, me, peer, low, high, at]).await?;
            self.made.extend(made.first().map(|row| row.get::<_, i64>(0)));
            subjects.insert(((*low, *high), *key));
        }
        let made = threads_of(client, &subjects).await?;
        self.add_threads(made);
        Ok(())
    }

    /// The sessions that were made for letters which were then refused.
    pub(super) fn unused_sessions(&self, pages: &Pages) -> Vec<i64> {
        self.made.iter().copied().filter(|session| !pages.posts_in(*session)).collect()
    }

    /// The recipient, where it is an agent.
    pub(super) fn peer(&self, letter: &OutgoingMessage) -> Option<&Peer> {
        self.peers.get(self.ids.get(&letter.to)?)
    }

    /// The recipient, if it is there, connected, and hears the sender.
    pub(super) fn reachable(&self, caller: &Agent, letter: &OutgoingMessage) -> Result<&Peer> {
        let Some(peer) = self.peer(letter) else { return Err(words::not_connected(&letter.to)) };
        let consent = self.consent.get(&pair(caller.key.0, peer.id)).copied().unwrap_or_default();
        // Whom a task's assignee does not hear is told by the task's rejection.
        let heard = letter.kind == Kind::Task || peer.card.allow_from.allows_in_any_case(&letter.from);
        may_write(consent, &letter.from, &letter.to, heard)?;
        Ok(peer)
    }

    pub(super) fn thread(&self, caller: &Agent, peer: &Peer, letter: &OutgoingMessage) -> Result<&Thread> {
        let (low, high) = pair(caller.key.0, peer.id);
        match letter.thread(self.answered((low, high), letter))? {
            outgoing::Thread::Existing(id) => {
                let thread = self.by_public_id.get(&id).ok_or_else(no_session)?;
                if thread.pair == Some((low, high)) { Ok(thread) } else { Err(words::not_both_members(&letter.to)) }
            }
            outgoing::Thread::Subject(outgoing::Subject { key, .. }) => {
                self.by_subject.get(&(low, high, key.clone())).ok_or_else(no_session)
            }
        }
    }

    /// The session of the message that the letter replies to, where it is between these two.
    fn answered(&self, pair: (i64, i64), letter: &OutgoingMessage) -> Option<Uuid> {
        let session = self.parents.get(&letter.reply_to()?)?.row.session;
        self.by_public_id.get(&session).filter(|thread| thread.pair == Some(pair)).map(|thread| thread.public_id)
    }

    /// ttl and trace.
    pub(super) fn hop(&self, caller: &Agent, letter: &OutgoingMessage) -> Result<Hop> {
        let found = letter.parent.and_then(|parent| self.parents.get(&parent.id));
        let parent = messages::parent(found, caller, letter)?.map(Found::message).transpose()?;
        letter.hop(parent.as_ref(), false)
    }

    /// What the sender of a letter to a known recipient has stored.
    pub(super) fn stored(&self, sender: i64) -> Stored {
        self.stored.get(&sender).copied().unwrap_or_default()
    }

    /// How many tasks this agent works on.
    pub(super) fn current_tasks(&self, assignee: i64) -> usize {
        self.current.get(&assignee).copied().unwrap_or(0)
    }

    /// The task that the letter's task was passed on from.
    pub(super) fn parent_task(&self, letter: &OutgoingMessage) -> Option<i64> {
        let parent = letter.parent.filter(|parent| parent.relay)?;
        self.task_of.get(&parent.id).copied()
    }
}

/// From these senders to these recipients: the recipient with its card, what lets the two write to each other (a recipient
/// without a household costs no look for one), and what the sender has stored. Asked under the recipients' locks: a statement that waits for a lock sees the locked row as it is then, and all
/// other rows as they were when it began to wait. What senders have stored is not locked: of sends that run at the same time
/// none sees what the others add.
///
/// Conditions on the status of a connection or an agent are not part of the joins: without statistics the planner thinks that
/// next to none meet them, and compares everybody with everybody.
async fn routed<C: GenericClient>(client: &C, routes: &BTreeSet<(i64, i64)>) -> Result<Vec<Row>, Trouble> {
    let (senders, recipients): (Vec<i64>, Vec<i64>) = routes.iter().copied().unzip();
    let select = client
        .prepare_cached(
            "SELECT r.sender_id, a.id, a.name, a.allow_from, a.max_concurrent_tasks,
                    (SELECT c.id FROM connections c
                     WHERE c.low_id = least(r.sender_id, a.id) AND c.high_id = greatest(r.sender_id, a.id)
                     AND c.status = 'ACTIVE') IS NOT NULL,
                    coalesce(u.messages, 0), coalesce(u.bytes, 0), a.deleted_at IS NOT NULL,
                    CASE WHEN a.household_id IS NULL THEN FALSE ELSE coalesce(a.household_id = (
                        SELECT s.household_id FROM agents s WHERE s.id = r.sender_id), FALSE) END,
                    CASE WHEN a.household_id IS NULL THEN FALSE ELSE
                        EXISTS (SELECT FROM connections c WHERE c.requester_id = a.id AND c.target_id = r.sender_id
                                AND c.status = 'BLOCKED')
                        OR EXISTS (SELECT FROM connections c WHERE c.requester_id = r.sender_id AND c.target_id = a.id
                                   AND c.status = 'BLOCKED') END
             FROM unnest($1::bigint[], $2::bigint[]) AS r (sender_id, recipient_id)
             JOIN agents a ON a.id = r.recipient_id
             LEFT JOIN usage u ON u.agent_id = r.sender_id",
        )
        .await?;
    Ok(client.query(&select, &[&senders, &recipients]).await?)
}

/// The sessions of these pairs and subjects, each with its folded subject. A statement of its own beside [`threads`]: where one
/// list of two is empty, PostgreSQL thinks a plan for this one time worth its making, each time.
async fn threads_of<C: GenericClient>(
    client: &C,
    subjects: &BTreeSet<((i64, i64), &str)>,
) -> Result<Vec<(Thread, String)>, Trouble> {
    if subjects.is_empty() {
        return Ok(Vec::new());
    }
    let low: Vec<i64> = subjects.iter().map(|((low, _), _)| *low).collect();
    let high: Vec<i64> = subjects.iter().map(|((_, high), _)| *high).collect();
    let keys: Vec<&str> = subjects.iter().map(|(_, key)| *key).collect();
    let select = client
        .prepare_cached(
            "SELECT s.id, s.public_id, s.subject, s.low_id, s.high_id, s.subject_key
             FROM unnest($1::bigint[], $2::bigint[], $3::text[]) AS w (low_id, high_id, subject_key)
             JOIN sessions s ON s.low_id = w.low_id AND s.high_id = w.high_id AND s.subject_key = w.subject_key",
        )
        .await?;
    Ok(client.query(&select, &[&low, &high, &keys]).await?.iter().map(thread).collect())
}

/// The sessions of these ids, each with its folded subject.
async fn threads<C: GenericClient>(client: &C, sessions: &BTreeSet<Uuid>) -> Result<Vec<(Thread, String)>, Trouble> {
    if sessions.is_empty() {
        return Ok(Vec::new());
    }
    let sessions: Vec<Uuid> = sessions.iter().copied().collect();
    let select = client
        .prepare_cached(
            "SELECT id, public_id, subject, low_id, high_id, subject_key FROM sessions WHERE public_id = ANY($1)",
        )
        .await?;
    Ok(client.query(&select, &[&sessions]).await?.iter().map(thread).collect())
}

fn thread(row: &Row) -> (Thread, String) {
    let pair: (Option<i64>, Option<i64>) = (row.get(3), row.get(4));
    let subject: &str = row.get(2);
    let thread = Thread { id: row.get(0), public_id: row.get(1), subject: subject.into(), pair: pair.0.zip(pair.1) };
    (thread, row.get(5))
}
