//! The facts about the messages of a batch, locked and looked up for all of them at once.

use std::collections::hash_map::Entry;
use std::collections::{BTreeSet, HashMap, HashSet};

use amb_core::doc::Sent;
use amb_core::id::fresh_uuid;
use amb_core::{AgentName, Card, Consent, Kind, Timestamp};
use deadpool_postgres::{GenericClient, Transaction};
use tokio_postgres::{Row, Statement};
use uuid::Uuid;

use super::Sides;
use crate::columns::Addressee;
use crate::engine::{self, Failed, FromRow, POSTGRES, Query, SqlOf, from_row, values};
use crate::error::Result;
use crate::outgoing::OutgoingMessage;
use crate::postgres::engine::PgReader;
use crate::postgres::write::LockedLogs;
use crate::quota::Stored;
use crate::row;
use crate::types::Agent;
use crate::verbs::{ParentRow, RecipientRow, SessionRow, To, audience, joined, pair, session_columns, stored_by};

/// The facts about a batch.
#[derive(Debug, Default)]
pub(super) struct BatchFacts {
    /// Agents whose mailboxes are locked, by all names that messages use for them.
    ids: HashMap<AgentName, i64>,
    /// Registered recipients, as read under the locks.
    peers: HashMap<i64, RecipientRow>,
    /// Groups that the sender has joined, and their recipients.
    groups: HashMap<AgentName, (i64, Vec<Addressee>)>,
    consent: HashMap<(i64, i64), Consent>,
    /// How much the senders store.
    pub(super) stored: HashMap<i64, Stored>,
    /// Sessions by parties and folded subject, and by public id.
    by_subject: HashMap<(Sides, String), SessionRow>,
    pub(super) sessions: HashMap<Uuid, SessionRow>,
    /// Sessions that this transaction created.
    pub(super) made: Vec<i64>,
    /// Messages that are answered or relayed, by who refers to them.
    pub(super) parents: HashMap<(i64, Uuid), ParentRow>,
    /// Draft hashes and answers by idempotency key; no answer where the key was not used for a send.
    pub(super) answers: HashMap<(i64, String), (Vec<u8>, Option<Sent>)>,
    /// The number of tasks that each assignee works on.
    pub(super) current_tasks: HashMap<i64, u64>,
    /// Tasks by their message.
    pub(super) task_of: HashMap<Uuid, i64>,
}

impl BatchFacts {
    /// Locks the mailboxes of the recipients, and of senders whose idempotency keys must not race. Looks up connections
    /// and sessions under the locks. These statements refer to recipients by name, so none needs the result of another:
    /// all are pipelined, after `begin`.
    pub(super) async fn lock<C: GenericClient>(
        &mut self,
        client: &C,
        logs: &mut LockedLogs,
        begin: impl Future<Output = Result<(), Failed>>,
        messages: &[(Agent, OutgoingMessage)],
    ) -> Result<(), Failed> {
        let mut names: BTreeSet<String> = messages.iter().map(|(_, message)| message.to.folded()).collect();
        // The sender of a task gets an update where the office rejects it.
        let locks_sender = |message: &OutgoingMessage| message.once.is_some() || message.kind == Kind::Task;
        let senders = messages.iter().filter(|(_, message)| locks_sender(message));
        names.extend(senders.map(|(_, message)| message.from.folded()));
        let names: Vec<String> = names.into_iter().collect();
        let routes: BTreeSet<_> =
            messages.iter().map(|(caller, message)| (caller.key.0, message.to.folded())).collect();
        let (senders, recipients): (Vec<i64>, Vec<String>) = routes.into_iter().unzip();
        let subjects = Subjects::of(messages);
        // All are prepared before the first is sent: else a prepared one could overtake the locks.
        let (lock, route) = (client.prepare_cached(LOCK).await?, client.prepare_cached(ROUTES).await?);
        let of_subjects = client.prepare_cached(SESSIONS_OF_SUBJECTS).await?;
        // A statement is sent when its future is first polled: in this order.
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
        // A name in another case resolves to the agent.
        let known: Vec<(AgentName, i64)> = self.ids.iter().map(|(name, id)| (name.clone(), *id)).collect();
        for (_, message) in messages {
            if !self.ids.contains_key(&message.to) {
                let best_match = message.to.best_match(&known, |(name, _)| name.as_str());
                self.ids.extend(best_match.map(|(_, id)| (message.to.clone(), *id)));
            }
        }
        self.add_routes(&routes)?;
        self.add_sessions(&sessions)?;
        logs.add(locked.iter().map(|row| (row.get(0), row.get(2))));
        Ok(())
    }

    /// Locks the mailboxes of a group's recipients and the sender, and reads the recipients under these locks.
    pub(super) async fn lock_group(
        &mut self,
        tx: &Transaction<'_>,
        logs: &mut LockedLogs,
        caller: &Agent,
        name: &AgentName,
    ) -> Result<(), Failed> {
        let Some(group) = joined(&mut PgReader(tx), name, caller.key.0).await? else { return Ok(()) };
        let members = audience(&mut PgReader(tx), group, caller).await?;
        let agents: Vec<i64> = members.iter().map(|member| member.agent.0).chain([caller.key.0]).collect();
        logs.lock(tx, &agents).await?;
        self.add_group(tx, logs, caller, name).await
    }

    /// Resolves names to agents and groups, each once, and locks the mailboxes of all of them and of the groups'
    /// members. An unknown name is returned unchanged, and so is that of a group that the caller has not joined: its
    /// spelling would reveal that it exists.
    pub(super) async fn lock_all(
        &mut self,
        tx: &Transaction<'_>,
        logs: &mut LockedLogs,
        caller: &Agent,
        to: &[AgentName],
    ) -> Result<Vec<AgentName>, Failed> {
        let folded: Vec<String> = to.iter().map(AgentName::folded).collect();
        let agents = "SELECT name, id FROM agents WHERE lower(name) = ANY($1) AND deleted_at IS NULL";
        let agents = tx.query(&tx.prepare_cached(agents).await?, &[&folded]).await?;
        let groups = r#"SELECT name, id FROM groups WHERE lower(name COLLATE "C") = ANY($1)"#;
        let groups = tx.query(&tx.prepare_cached(groups).await?, &[&folded]).await?;
        let ids: Vec<i64> = groups.iter().map(|row| row.get(1)).collect();
        let members = "SELECT agent_id FROM group_members WHERE group_id = ANY($1) AND joined";
        let members = tx.query(&tx.prepare_cached(members).await?, &[&ids]).await?;
        let mut locked: Vec<i64> = agents.iter().map(|row| row.get(1)).collect();
        locked.extend(members.iter().map(|row| row.get::<_, i64>(0)));
        locked.push(caller.key.0);
        logs.lock(tx, &locked).await?;
        let (mut names, mut seen) = (Vec::with_capacity(to.len()), HashSet::new());
        for name in to {
            let best_match =
                |rows: &[Row]| name.best_match(rows.iter().map(|row| row.get::<_, String>(0)), |name| name.as_str());
            let (agent, group) = (best_match(&agents), best_match(&groups));
            let is_group = agent.is_none() && group.is_some();
            let resolved = agent.or(group).map_or_else(|| Ok(name.clone()), |name| row::name(&name))?;
            if seen.insert(resolved.clone()) {
                if is_group {
                    self.add_group(tx, logs, caller, &resolved).await?;
                }
                let unknown = is_group && !self.groups.contains_key(&resolved);
                names.push(if unknown { name.clone() } else { resolved });
            }
        }
        Ok(names)
    }

    /// Reads the recipients of a group under their locks: who left, or blocked the sender, meanwhile gets nothing.
    async fn add_group(
        &mut self,
        tx: &Transaction<'_>,
        logs: &LockedLogs,
        caller: &Agent,
        name: &AgentName,
    ) -> Result<(), Failed> {
        let Some(group) = joined(&mut PgReader(tx), name, caller.key.0).await? else { return Ok(()) };
        let members = audience(&mut PgReader(tx), group, caller).await?;
        // A mailbox locked after the others would violate the order of locks.
        if members.iter().any(|member| !logs.holds(member.agent.0)) {
            return Err(Failed::changed());
        }
        self.groups.insert(name.clone(), (group, members));
        self.stored.insert(caller.key.0, stored_by(&mut PgReader(tx), caller.key.0).await?);
        Ok(())
    }

    /// Looks up, under the locks, what the messages refer to.
    pub(super) async fn look_up<C: GenericClient>(
        &mut self,
        client: &C,
        messages: &[(Agent, OutgoingMessage)],
    ) -> Result<(), Failed> {
        let named: BTreeSet<Uuid> = messages.iter().filter_map(|(_, message)| message.session).collect();
        let keys: Vec<(i64, &str)> = messages
            .iter()
            .filter_map(|(caller, message)| Some((caller.key.0, message.once.as_ref()?.key.as_str())))
            .collect();
        let parents: Vec<(i64, Uuid)> =
            messages.iter().filter_map(|(caller, message)| Some((caller.key.0, message.parent?.id))).collect();
        let tasks = || messages.iter().filter(|(_, message)| message.kind == Kind::Task);
        let assignees: Vec<i64> = tasks().filter_map(|(_, message)| self.ids.get(&message.to)).copied().collect();
        let relayed: Vec<Uuid> = tasks().filter_map(|(_, message)| Some(message.parent?.id)).collect();
        let (sessions, answers, parents, current_tasks, task_of) = tokio::try_join!(
            sessions_by_id(client, &named),
            answers(client, &keys),
            parents_of(client, &parents),
            current_tasks(client, &assignees),
            tasks_of(client, &relayed),
        )?;
        self.add_sessions(&sessions)?;
        self.answers.extend(answers);
        self.parents.extend(parents);
        self.current_tasks.extend(current_tasks);
        self.task_of.extend(task_of);
        let answered = messages.iter().filter(|(_, message)| message.session.is_none());
        let answered: BTreeSet<Uuid> = answered
            .filter_map(|(caller, message)| Some((caller.key.0, message.reply_to()?)))
            .filter_map(|parent| Some(self.parents.get(&parent)?.message.session))
            .collect();
        self.add_sessions(&sessions_by_id(client, &answered).await?)?;
        Ok(())
    }

    /// Adds rows of [`ROUTES`].
    fn add_routes(&mut self, rows: &[Row]) -> Result<()> {
        for row in rows {
            let route = Route::from_row(&mut engine::Row::new(row))?;
            if route.deleted {
                // Deleted before it was locked.
                continue;
            }
            if let Entry::Vacant(peer) = self.peers.entry(route.recipient) {
                let card = Card {
                    allow_from: row::parse(Some(route.allow_from))?.unwrap_or_default(),
                    max_concurrent_tasks: u32::try_from(route.max_concurrent_tasks).unwrap_or(0),
                    ..Card::default()
                };
                let (id, name, paused) = (route.recipient, route.name, route.paused);
                peer.insert(RecipientRow { id, name, card: card.into(), paused });
            }
            let Route { connected, same_household, blocked, messages, bytes, .. } = route;
            let consent = Consent { connected, same_household, blocked };
            self.consent.insert(pair(route.sender, route.recipient), consent);
            self.stored.insert(route.sender, Stored { messages, bytes });
        }
        Ok(())
    }

    /// Adds rows with the columns of [`SessionRow`] and the folded subject.
    fn add_sessions(&mut self, rows: &[Row]) -> Result<()> {
        for row in rows {
            let mut row = engine::Row::new(row);
            let session = SessionRow::from_row(&mut row)?;
            self.add_session(session, row.take()?);
        }
        Ok(())
    }

    fn add_session(&mut self, session: SessionRow, key: String) {
        let sides = match (session.pair, session.group) {
            (Some((low, high)), _) => Some(Sides::Pair(low, high)),
            (None, group) => group.map(Sides::Group),
        };
        self.sessions.insert(session.public_id, session.clone());
        if let Some(sides) = sides {
            self.by_subject.insert((sides, key), session);
        }
    }

    /// Creates a session. Of two transactions that do so at the same time, one creates it and the other reads it.
    pub(super) async fn make_session<C: GenericClient>(
        &mut self,
        client: &C,
        sides: Sides,
        key: &str,
        subject: &str,
        caller: i64,
        at: Timestamp,
    ) -> Result<(), Failed> {
        let (pair, group) = sides.columns();
        let (low, high) = pair.unzip();
        let select = client.prepare_cached(SESSION_OF_SIDES).await?;
        // Sessions of pairs were looked up with the locks.
        if group.is_some() {
            let found = client.query(&select, &[&low, &high, &group, &key]).await?;
            if !found.is_empty() {
                return Ok(self.add_sessions(&found)?);
            }
        }
        let other = pair.map(|(low, high)| low + high - caller);
        let public_id = fresh_uuid(at);
        let insert = client.prepare_cached(MAKE_SESSION).await?;
        let made =
            client.query(&insert, &[&public_id, &subject, &key, &caller, &other, &group, &low, &high, &at]).await?;
        let Some(id) = made.first().map(|row| row.get(0)) else {
            return Ok(self.add_sessions(&client.query(&select, &[&low, &high, &group, &key]).await?)?);
        };
        self.made.push(id);
        self.add_session(
            SessionRow { id, public_id, subject: subject.into(), pair, group, ended_by: None },
            key.to_owned(),
        );
        Ok(())
    }

    /// Returns the agent that this name resolves to, or the group.
    pub(super) fn recipient(&self, name: &AgentName) -> Option<To> {
        match self.ids.get(name).and_then(|id| self.peers.get(id)) {
            Some(peer) => Some(To::Agent(peer.clone())),
            None => self.groups.get(name).map(|(group, members)| To::Group(*group, members.clone())),
        }
    }

    /// Returns whether the message has an idempotency key that its sender used before.
    pub(super) fn uses_known_key(&self, caller: &Agent, message: &OutgoingMessage) -> bool {
        let once = message.once.as_ref();
        once.is_some_and(|once| self.answers.contains_key(&(caller.key.0, once.key.clone())))
    }

    /// Returns whether two agents may write to each other.
    pub(super) fn consent(&self, a: i64, b: i64) -> Consent {
        self.consent.get(&pair(a, b)).copied().unwrap_or_default()
    }

    pub(super) fn session_of(&self, sides: Sides, key: &str) -> Option<&SessionRow> {
        self.by_subject.get(&(sides, key.to_owned()))
    }
}

/// A row of [`ROUTES`].
struct Route {
    sender: i64,
    recipient: i64,
    name: AgentName,
    allow_from: String,
    max_concurrent_tasks: i64,
    connected: bool,
    messages: i64,
    bytes: i64,
    deleted: bool,
    same_household: bool,
    blocked: bool,
    paused: bool,
}

from_row!(
    Route: sender recipient name allow_from max_concurrent_tasks connected messages bytes deleted same_household blocked
    paused
);

/// Locks the mailboxes of these agents, in the common order.
const LOCK: &str = "
SELECT a.id, a.name, m.head FROM agents a JOIN mailboxes m ON m.agent_id = a.id
WHERE lower(a.name) = ANY($1) AND a.deleted_at IS NULL ORDER BY a.id FOR NO KEY UPDATE OF m";

/// Selects for these senders and recipients: the recipient and its card, whether the two may write to each other
/// (without a look-up where the recipient has no household), and the usage of the sender. A statement of its own after
/// [`LOCK`]: a statement that waits for a lock sees the locked row as it is then, but all other rows as they were when
/// it began to wait. The usage is not locked: concurrent sends do not see what the others add.
///
/// The joins have no conditions on the status of a connection or an agent: without statistics the planner expects that
/// almost no row meets them, and chooses a nested loop over all rows.
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

/// Selects the sessions of these senders, recipients and subjects, each with its folded subject. Not combined with
/// [`sessions_by_id`]: where one of two lists is empty, PostgreSQL makes a custom plan for each execution.
const SESSIONS_OF_SUBJECTS: &str = concat!(
    "SELECT ",
    session_columns!(),
    ", s.subject_key
     FROM unnest($1::bigint[], $2::text[], $3::text[]) AS w (sender_id, recipient, subject_key)
     JOIN agents a ON lower(a.name) = w.recipient
     JOIN sessions s ON s.low_id = least(w.sender_id, a.id) AND s.high_id = greatest(w.sender_id, a.id)
                     AND s.subject_key = w.subject_key"
);

/// Selects the session of two agents, or of a group, and a subject.
const SESSION_OF_SIDES: &str = concat!(
    "SELECT ",
    session_columns!(),
    ", s.subject_key FROM (
         SELECT * FROM sessions WHERE low_id = $1::bigint AND high_id = $2::bigint AND subject_key = $4::text
         UNION ALL SELECT * FROM sessions WHERE group_id = $3::bigint AND subject_key = $4::text
     ) s"
);

const MAKE_SESSION: &str = "
WITH made AS (
    INSERT INTO sessions (public_id, subject, subject_key, initiator_id, participant_id, group_id, low_id, high_id,
                          created_at)
    VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9) ON CONFLICT DO NOTHING RETURNING id, low_id, high_id
), members AS (
    INSERT INTO session_members (agent_id, session_id)
    SELECT low_id, id FROM made WHERE low_id IS NOT NULL UNION ALL SELECT high_id, id FROM made WHERE high_id IS NOT NULL
)
SELECT id FROM made";

/// The subjects of messages: sender, folded name of the recipient, folded subject.
struct Subjects<'a> {
    senders: Vec<i64>,
    recipients: Vec<String>,
    keys: Vec<&'a str>,
}

impl<'a> Subjects<'a> {
    fn of(messages: &'a [(Agent, OutgoingMessage)]) -> Self {
        let named = messages.iter().filter_map(|(caller, message)| {
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

    /// Returns their existing sessions.
    async fn sessions<C: GenericClient>(&self, client: &C, select: &Statement) -> Result<Vec<Row>, Failed> {
        if self.keys.is_empty() {
            return Ok(Vec::new());
        }
        Ok(client.query(select, &[&self.senders, &self.recipients, &self.keys]).await?)
    }
}

async fn sessions_by_id<C: GenericClient>(client: &C, ids: &BTreeSet<Uuid>) -> Result<Vec<Row>, Failed> {
    if ids.is_empty() {
        return Ok(Vec::new());
    }
    let ids: Vec<Uuid> = ids.iter().copied().collect();
    let sql = concat!("SELECT ", session_columns!(), ", s.subject_key FROM sessions s WHERE s.public_id = ANY($1)");
    Ok(client.query(&client.prepare_cached(sql).await?, &[&ids]).await?)
}

type KeyedAnswer = ((i64, String), (Vec<u8>, Option<Sent>));

/// Returns the answers stored under these idempotency keys.
async fn answers<C: GenericClient>(client: &C, keys: &[(i64, &str)]) -> Result<Vec<KeyedAnswer>, Failed> {
    if keys.is_empty() {
        return Ok(Vec::new());
    }
    let (callers, keys): (Vec<i64>, Vec<&str>) = keys.iter().copied().unzip();
    let select = client
        .prepare_cached(
            "SELECT i.agent_id, i.key, i.draft_hash, i.answer
             FROM unnest($1::bigint[], $2::text[]) AS w (agent_id, key)
             JOIN idempotency i ON i.agent_id = w.agent_id AND i.key = w.key",
        )
        .await?;
    let rows = client.query(&select, &[&callers, &keys]).await?;
    let answer = |row: &Row| ((row.get(0), row.get(1)), (row.get(2), serde_json::from_str(row.get(3)).ok()));
    Ok(rows.iter().map(answer).collect())
}

static PARENTS: SqlOf = SqlOf::new();

/// Returns the messages of these ids, as those callers may refer to them.
async fn parents_of<C: GenericClient + Sync>(
    client: &C,
    parents: &[(i64, Uuid)],
) -> Result<Vec<((i64, Uuid), ParentRow)>, Failed> {
    if parents.is_empty() {
        return Ok(Vec::new());
    }
    let sql = PARENTS.get(&POSTGRES, |_| {
        let from =
            "unnest($1::bigint[], $2::uuid[]) AS w (caller_id, public_id) JOIN messages m ON m.public_id = w.public_id";
        ParentRow::select(from, "w.caller_id")
    });
    let (callers, ids): (Vec<i64>, Vec<Uuid>) = parents.iter().copied().unzip();
    let rows: Vec<ParentRow> = PgReader(client).rows(sql, values![&callers, &ids]).await?;
    Ok(rows.into_iter().map(|row| ((row.caller, row.message.id), row)).collect())
}

/// Returns the number of tasks that each of these agents works on.
async fn current_tasks<C: GenericClient>(client: &C, assignees: &[i64]) -> Result<Vec<(i64, u64)>, Failed> {
    if assignees.is_empty() {
        return Ok(Vec::new());
    }
    let sql = "SELECT assignee_id, count(*) FROM tasks
               WHERE assignee_id = ANY($1) AND state IN ('accepted', 'working') GROUP BY assignee_id";
    PgReader(client).rows(sql, values![assignees]).await
}

/// Returns the tasks of these messages.
async fn tasks_of<C: GenericClient>(client: &C, messages: &[Uuid]) -> Result<Vec<(Uuid, i64)>, Failed> {
    if messages.is_empty() {
        return Ok(Vec::new());
    }
    let sql = "SELECT message_public_id, id FROM tasks WHERE message_public_id = ANY($1)";
    PgReader(client).rows(sql, values![messages]).await
}
