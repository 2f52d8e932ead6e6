//! What decides about the messages of a batch, locked and looked up for all of them at once.

use std::collections::hash_map::Entry;
use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::Arc;

use amb_core::id::fresh_uuid;
use amb_core::send::{self, Accepted, Named, Place, Recipient, Storage};
use amb_core::{AgentName, Card, Consent, Kind, MessageId};
use deadpool_postgres::GenericClient;
use tokio_postgres::{Row, Statement};
use uuid::Uuid;

use super::answers::{Answers, answers};
use crate::engine::Failed;
use crate::error::Result;
use crate::outgoing::{OutgoingMessage, no_session};
use crate::postgres::messages::{self, Found};
use crate::postgres::tasks;
use crate::postgres::write::{Heads, Pages};
use crate::quota::{Account, Stored};
use crate::row;
use crate::types::Agent;
use crate::verbs::pair;

/// An agent, as far as sending to it goes.
#[derive(Debug)]
pub(super) struct Peer {
    pub(super) id: i64,
    pub(super) name: AgentName,
    pub(super) card: Card,
    pub(super) paused: bool,
}

/// A session, as far as sending in it goes.
#[derive(Debug, Clone)]
pub(super) struct Session {
    pub(super) id: i64,
    pub(super) public_id: Uuid,
    pub(super) subject: Arc<str>,
    /// The person who ended it.
    pub(super) ended_by: Option<Arc<str>>,
    pair: Option<(i64, i64)>,
}

/// All that was looked up for a batch.
#[derive(Debug, Default)]
pub(super) struct Known {
    /// Agents whose mailboxes are locked, by every name that messages have for them.
    ids: HashMap<AgentName, i64>,
    /// The recipients that are there, as they are under the locks.
    peers: HashMap<i64, Peer>,
    /// What lets pairs write to each other.
    consent: HashMap<(i64, i64), Consent>,
    /// What the senders have stored.
    stored: HashMap<i64, Stored>,
    by_subject: HashMap<(i64, i64, String), Session>,
    /// Sessions that this transaction made.
    made: Vec<i64>,
    by_public_id: HashMap<Uuid, Session>,
    parents: HashMap<Uuid, Found>,
    /// Answers to idempotency keys.
    pub(super) answers: Answers,
    /// How many tasks an assignee works on.
    current: HashMap<i64, usize>,
    /// The task that a message brought.
    task_of: HashMap<Uuid, i64>,
}

impl Known {
    /// Finds the recipients and locks their mailboxes, and those of senders whose idempotency keys must not race. Under the
    /// locks it looks up who is connected and which sessions there are. These statements name recipients by their names, so
    /// none needs the answer of another: all travel together, behind `begin`.
    pub(super) async fn lock<C: GenericClient>(
        &mut self,
        client: &C,
        begin: impl Future<Output = Result<(), Failed>>,
        messages: &[(Agent, OutgoingMessage)],
    ) -> Result<Heads, Failed> {
        let mut names: BTreeSet<String> = messages.iter().map(|(_, message)| message.to.folded()).collect();
        // A task may be rejected, and then its sender hears of it.
        let told = |message: &OutgoingMessage| message.once.is_some() || message.kind == Kind::Task;
        names.extend(messages.iter().filter(|(_, message)| told(message)).map(|(_, message)| message.from.folded()));
        let names: Vec<String> = names.into_iter().collect();
        let routes: BTreeSet<_> =
            messages.iter().map(|(caller, message)| (caller.key.0, message.to.folded())).collect();
        let (senders, recipients): (Vec<i64>, Vec<String>) = routes.into_iter().unzip();
        let subjects = Subjects::of(messages.iter().map(|(caller, message)| (caller, message)));
        // All of them before the first is sent: else one that is prepared already could overtake the locks.
        let (lock, route) = (client.prepare_cached(LOCK).await?, client.prepare_cached(ROUTES).await?);
        let of_subjects = client.prepare_cached(SESSIONS_OF_SUBJECTS).await?;
        // A statement is sent when its future is polled first: in this order.
        let ((), locked, routes, sessions) = tokio::try_join!(
            biased;
            begin,
            async { Ok::<_, Failed>(client.query(&lock, &[&names]).await?) },
            async { Ok::<_, Failed>(client.query(&route, &[&senders, &recipients]).await?) },
            subjects.sessions(client, &of_subjects),
        )?;
        for row in &locked {
            self.ids.insert(row::name(row.get(1))?, row.get(0));
        }
        // Names that are like the one of an agent mean that agent.
        let known: Vec<(AgentName, i64)> = self.ids.iter().map(|(name, id)| (name.clone(), *id)).collect();
        for (_, message) in messages {
            if !self.ids.contains_key(&message.to) {
                let meant = message.to.meant(&known, |(name, _)| name.as_str());
                self.ids.extend(meant.map(|(_, id)| (message.to.clone(), *id)));
            }
        }
        self.add_routes(&routes)?;
        self.add_sessions(sessions);
        Ok(Heads::locked(locked.iter().map(|row| (row.get(0), row.get(2)))))
    }

    /// Under the locks: what messages refer to.
    pub(super) async fn look_up<C: GenericClient>(
        &mut self,
        client: &C,
        messages: &[(Agent, OutgoingMessage)],
    ) -> Result<(), Failed> {
        let sessions: BTreeSet<Uuid> = messages.iter().filter_map(|(_, message)| message.session).collect();
        let keys =
            messages.iter().filter_map(|(caller, message)| Some((caller.key.0, message.once.as_ref()?.key.as_str())));
        let (callers, keys): (Vec<i64>, Vec<&str>) = keys.unzip();
        let parents: Vec<Uuid> = messages.iter().filter_map(|(_, message)| Some(message.parent?.id)).collect();
        let tasks = || messages.iter().filter(|(_, message)| message.kind == Kind::Task);
        let assignees: Vec<i64> = tasks().filter_map(|(_, message)| self.ids.get(&message.to)).copied().collect();
        let relayed: Vec<Uuid> = tasks().filter_map(|(_, message)| Some(message.parent?.id)).collect();
        let (by_id, answers, parents, current, task_of) = tokio::try_join!(
            sessions_by_id(client, &sessions),
            answers(client, &callers, &keys),
            messages::find_all(client, &parents),
            tasks::current(client, &assignees),
            tasks::of_messages(client, &relayed),
        )?;
        self.current = current;
        self.task_of = task_of;
        self.add_sessions(by_id);
        self.answers = answers;
        self.parents = parents;
        let answered = messages.iter().filter(|(_, message)| message.session.is_none());
        let answered: BTreeSet<Uuid> =
            answered.filter_map(|(_, message)| Some(self.parents.get(&message.reply_to()?)?.row.session)).collect();
        self.add_sessions(sessions_by_id(client, &answered).await?);
        Ok(())
    }

    /// Adds rows of [`ROUTES`].
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
                peer.insert(Peer { id, name: row::name(row.get(2))?, card, paused: row.get(11) });
            }
            let consent = Consent { connected: row.get(5), same_household: row.get(9), blocked: row.get(10) };
            self.consent.insert(pair(sender, id), consent);
            self.stored.insert(sender, Stored { messages: row.get(6), bytes: row.get(7) });
        }
        Ok(())
    }

    fn add_sessions(&mut self, sessions: Vec<(Session, String)>) {
        for (session, key) in sessions {
            self.by_public_id.insert(session.public_id, session.clone());
            if let Some((low, high)) = session.pair {
                self.by_subject.insert((low, high, key), session);
            }
        }
    }

    /// Makes the sessions of subjects that have none. Of two at once one makes it, and the other finds it.
    pub(super) async fn make_sessions<C: GenericClient>(
        &mut self,
        client: &C,
        account: &Account,
        messages: &[(Agent, OutgoingMessage)],
    ) -> Result<(), Failed> {
        // In the order of their keys, so that two transactions that make the same ones do not wait for each other.
        let mut missing = BTreeMap::new();
        for (caller, message) in messages {
            let (Some(peer), Some(subject)) = (self.peer(message), &message.subject) else { continue };
            let (low, high) = pair(caller.key.0, peer.id);
            if self.by_subject.contains_key(&(low, high, subject.key.clone())) {
                continue;
            }
            // What it would add is not asked for yet: a session that is made for nothing is removed again.
            let storage = account.storage(Stored::default(), Stored::default(), Stored::default());
            if let Ok(Accepted { place: Place::Subject, .. }) = self.decide(caller, peer, message, storage) {
                let made = (&subject.subject, caller, peer.id, message);
                missing.entry((low, high, subject.key.as_str())).or_insert(made);
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
        for ((low, high, key), (subject, caller, peer, message)) in &missing {
            let (me, at) = (caller.key.0, message.at);
            let made = client.query(&insert, &[&fresh_uuid(at), subject, key, &me, peer, low, high, &at]).await?;
            self.made.extend(made.first().map(|row| row.get::<_, i64>(0)));
        }
        let select = client.prepare_cached(SESSIONS_OF_SUBJECTS).await?;
        let made = Subjects::of(missing.into_values().map(|(_, caller, _, message)| (caller, message)));
        self.add_sessions(made.sessions(client, &select).await?);
        Ok(())
    }

    /// The sessions that were made for messages which were then refused.
    pub(super) fn unused_sessions(&self, pages: &Pages) -> Vec<i64> {
        self.made.iter().copied().filter(|session| !pages.posts_in(*session)).collect()
    }

    /// The recipient, where it is an agent.
    pub(super) fn peer(&self, message: &OutgoingMessage) -> Option<&Peer> {
        self.peers.get(self.ids.get(&message.to)?)
    }

    /// What decides whether the caller may write to an agent.
    pub(super) fn consent_with(&self, caller: &Agent, peer: &Peer) -> Consent {
        self.consent.get(&pair(caller.key.0, peer.id)).copied().unwrap_or_default()
    }

    /// Decides about a message to an agent.
    pub(super) fn decide(
        &self,
        caller: &Agent,
        peer: &Peer,
        message: &OutgoingMessage,
        storage: Storage,
    ) -> Result<Accepted<&Session>> {
        let pair = pair(caller.key.0, peer.id);
        let recipient = Recipient::Agent {
            consent: self.consent_with(caller, peer),
            card: &peer.card,
            heard: peer.card.allow_from.allows_in_any_case(&message.from),
            current_tasks: self.current.get(&peer.id).copied().unwrap_or(0),
        };
        let found = message.parent.and_then(|parent| self.parents.get(&parent.id));
        let found = messages::parent(found, caller, message);
        let answered = found.filter(|_| message.reply_to().is_some());
        let answered = answered.and_then(|found| self.by_public_id.get(&found.row.session));
        let session = match message.session {
            None => Named::None,
            Some(id) => match self.by_public_id.get(&id) {
                None => Named::Missing,
                Some(session) if session.pair == Some(pair) => Named::Shared(session),
                Some(_) => Named::Other,
            },
        };
        let parent_id: Option<MessageId> = message.parent.map(|parent| parent.id.into());
        let found = found.map(Found::message).transpose()?;
        let mut facts = message.facts(recipient, storage);
        facts.to = &peer.name;
        facts.parent = message.parent_fact(parent_id.as_ref(), found.as_ref(), false);
        facts.session = session;
        facts.answered = answered.filter(|session| session.pair == Some(pair));
        send::decide(facts)
    }

    /// The session of a subject, which is there.
    pub(super) fn session_of(&self, caller: &Agent, peer: &Peer, message: &OutgoingMessage) -> Result<&Session> {
        let (low, high) = pair(caller.key.0, peer.id);
        let found = message.subject.as_ref().and_then(|subject| self.by_subject.get(&(low, high, subject.key.clone())));
        found.ok_or_else(no_session)
    }

    /// What the sender of a message to a known recipient has stored.
    pub(super) fn stored(&self, sender: i64) -> Stored {
        self.stored.get(&sender).copied().unwrap_or_default()
    }

    /// The task that the message's task was passed on from.
    pub(super) fn parent_task(&self, message: &OutgoingMessage) -> Option<i64> {
        let parent = message.parent.filter(|parent| parent.relay)?;
        self.task_of.get(&parent.id).copied()
    }
}

/// The mailboxes of these agents, locked in the order that everybody keeps.
const LOCK: &str = "
SELECT a.id, a.name, m.head FROM agents a JOIN mailboxes m ON m.agent_id = a.id
WHERE lower(a.name) = ANY($1) AND a.deleted_at IS NULL ORDER BY a.id FOR NO KEY UPDATE OF m";

/// From these senders to these recipients: the recipient with its card, what lets the two write to each other (a recipient
/// without a household costs no look for one), and what the sender has stored. Asked under the recipients' locks: a statement
/// that waits for a lock sees the locked row as it is then, and all other rows as they were when it began to wait. What
/// senders have stored is not locked: of sends that run at the same time none sees what the others add.
///
/// Conditions on the status of a connection or an agent are not part of the joins: without statistics the planner thinks that
/// next to none meet them, and compares everybody with everybody.
const ROUTES: &str = "
SELECT r.sender_id, a.id, a.name, a.allow_from, a.max_concurrent_tasks,
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
                      AND c.status = 'BLOCKED') END,
       a.paused_by IS NOT NULL
FROM unnest($1::bigint[], $2::text[]) AS r (sender_id, recipient)
JOIN agents a ON lower(a.name) = r.recipient
LEFT JOIN usage u ON u.agent_id = r.sender_id";

/// The sessions of these senders, recipients and subjects, each with its folded subject. A statement of its own beside
/// [`sessions_by_id`]: where one list of two is empty, PostgreSQL thinks a plan for this one time worth its making, each time.
const SESSIONS_OF_SUBJECTS: &str = "
SELECT s.id, s.public_id, s.subject, s.low_id, s.high_id, s.subject_key, s.ended_by
FROM unnest($1::bigint[], $2::text[], $3::text[]) AS w (sender_id, recipient, subject_key)
JOIN agents a ON lower(a.name) = w.recipient
JOIN sessions s ON s.low_id = least(w.sender_id, a.id) AND s.high_id = greatest(w.sender_id, a.id)
                AND s.subject_key = w.subject_key";

/// The subjects that messages name: sender, folded name of the recipient, folded subject.
struct Subjects<'a> {
    senders: Vec<i64>,
    recipients: Vec<String>,
    keys: Vec<&'a str>,
}

impl<'a> Subjects<'a> {
    fn of(messages: impl Iterator<Item = (&'a Agent, &'a OutgoingMessage)>) -> Self {
        let named = messages.filter_map(|(caller, message)| {
            Some((caller.key.0, message.to.folded(), message.subject.as_ref()?.key.as_str()))
        });
        let mut subjects = Self { senders: Vec::new(), recipients: Vec::new(), keys: Vec::new() };
        for (sender, recipient, key) in named.collect::<BTreeSet<_>>() {
            subjects.senders.push(sender);
            subjects.recipients.push(recipient);
            subjects.keys.push(key);
        }
        subjects
    }

    /// Those of their sessions that there are, each with its folded subject.
    async fn sessions<C: GenericClient>(
        &self,
        client: &C,
        select: &Statement,
    ) -> Result<Vec<(Session, String)>, Failed> {
        if self.keys.is_empty() {
            return Ok(Vec::new());
        }
        let rows = client.query(select, &[&self.senders, &self.recipients, &self.keys]).await?;
        Ok(rows.iter().map(session).collect())
    }
}

/// The sessions of these ids, each with its folded subject.
async fn sessions_by_id<C: GenericClient>(
    client: &C,
    sessions: &BTreeSet<Uuid>,
) -> Result<Vec<(Session, String)>, Failed> {
    if sessions.is_empty() {
        return Ok(Vec::new());
    }
    let sessions: Vec<Uuid> = sessions.iter().copied().collect();
    let select = client
        .prepare_cached(
            "SELECT id, public_id, subject, low_id, high_id, subject_key, ended_by FROM sessions
             WHERE public_id = ANY($1)",
        )
        .await?;
    Ok(client.query(&select, &[&sessions]).await?.iter().map(session).collect())
}

fn session(row: &Row) -> (Session, String) {
    let pair: (Option<i64>, Option<i64>) = (row.get(3), row.get(4));
    let subject: &str = row.get(2);
    let session = Session {
        id: row.get(0),
        public_id: row.get(1),
        subject: subject.into(),
        ended_by: row.get::<_, Option<&str>>(6).map(Into::into),
        pair: pair.0.zip(pair.1),
    };
    (session, row.get(5))
}
