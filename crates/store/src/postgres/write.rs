//! Locks of mailboxes, and the buffered rows of mail and events.

use std::collections::{BTreeMap, HashMap};
use std::time::Instant;

use amb_core::doc::Sent;
use amb_core::{Entry, Event, Timestamp};
use deadpool_postgres::{GenericClient, Object};
use tokio_postgres::Statement;
use tokio_postgres::types::ToSql;
use uuid::Uuid;

use super::transact::TIMEOUT;
use crate::columns::{Addressee, Columns};
use crate::engine::Failed;
use crate::error::Result;
use crate::outgoing::json;
use crate::quota::{Charges, Stored};
use crate::types::{AgentKey, LogEntry, Once, log_number};
use crate::verbs::NewTask;

/// The mailboxes that a transaction has locked, each with the last number of its log.
#[derive(Debug, Default)]
pub(super) struct LockedLogs(BTreeMap<i64, i64>);

impl LockedLogs {
    /// Locks these mailboxes, in the common order.
    pub(super) async fn lock<C: GenericClient>(&mut self, client: &C, agents: &[i64]) -> Result<(), Failed> {
        let select = client
            .prepare_cached(
                "SELECT agent_id, head FROM mailboxes WHERE agent_id = ANY($1) ORDER BY agent_id FOR NO KEY UPDATE",
            )
            .await?;
        let rows = client.query(&select, &[&agents]).await?;
        self.add(rows.iter().map(|row| (row.get(0), row.get(1))));
        Ok(())
    }

    /// Adds mailboxes that a statement locked. Those that were locked before keep their numbers, which may be assigned
    /// already.
    pub(super) fn add(&mut self, logs: impl IntoIterator<Item = (i64, i64)>) {
        for (agent, head) in logs {
            self.0.entry(agent).or_insert(head);
        }
    }

    /// Returns whether this agent's mailbox is locked.
    pub(super) fn holds(&self, agent: i64) -> bool {
        self.0.contains_key(&agent)
    }

    /// Returns the next number of a log; `None` where it is not locked.
    fn next(&mut self, agent: i64) -> Option<i64> {
        let head = self.0.get_mut(&agent)?;
        *head += 1;
        Some(*head)
    }
}

/// The new times of messages that were overtaken by another of their session. Usually none.
#[derive(Debug, Clone, Default)]
pub(super) struct Retimed(HashMap<Uuid, Timestamp>);

impl Retimed {
    /// Returns the new time of this message, if it has one.
    pub(super) fn of(&self, message: Uuid) -> Option<Timestamp> {
        self.0.get(&message).copied()
    }

    /// Sets the times in log entries to those that were written.
    pub(super) fn correct<'a>(&self, entries: impl IntoIterator<Item = &'a mut LogEntry>) {
        if self.0.is_empty() {
            return;
        }
        for LogEntry { entry, .. } in entries {
            if let Event::NewMessage(message) = &mut entry.event
                && let Some(at) = message.message_id.as_uuid().and_then(|id| self.of(id))
            {
                message.created_at = at;
            }
        }
    }
}

/// Buffered rows of a transaction, as column arrays for `unnest`.
#[derive(Debug, Default)]
pub(super) struct NewRows {
    messages: MessageColumns,
    deliveries: DeliveryColumns,
    events: EventColumns,
    /// New members of group sessions: agents, sessions.
    members: (Vec<i64>, Vec<i64>),
    tasks: Vec<NewTask>,
    answers: Vec<NewAnswer>,
    /// The latest time of the new messages of each session.
    latest: HashMap<i64, Timestamp>,
    /// Messages that were overtaken by another of this batch.
    retimed: Retimed,
    /// When the first of these messages was received.
    first_received: Option<Instant>,
    charges: Charges,
}

/// The answer of a send under an idempotency key.
#[derive(Debug)]
struct NewAnswer {
    caller: i64,
    once: Once,
    sent: Sent,
    at: Timestamp,
}

#[derive(Debug, Default)]
struct MessageColumns {
    session: Vec<i64>,
    public_id: Vec<Uuid>,
    sender: Vec<i64>,
    at: Vec<Timestamp>,
    priority: Vec<i16>,
    ttl: Vec<i16>,
    kind: Vec<Option<String>>,
    trace: Vec<Option<String>>,
    reply_to: Vec<Option<Uuid>>,
    correlation_id: Vec<Option<String>>,
    task: Vec<Option<String>>,
    callback: Vec<Option<String>>,
    content: Vec<String>,
    parts: Vec<Option<String>>,
    metadata: Vec<Option<String>>,
}

#[derive(Debug, Default)]
struct DeliveryColumns {
    /// The place of the message in this batch, from 1.
    place: Vec<i64>,
    agent: Vec<i64>,
    number: Vec<i64>,
    from_person: Vec<Option<bool>>,
}

#[derive(Debug, Default)]
struct EventColumns {
    agent: Vec<i64>,
    number: Vec<i64>,
    event: Vec<String>,
    at: Vec<Timestamp>,
}

/// Writes messages and deliveries. Locks the sessions in the common order, and takes ids under these locks in the order
/// of the batch, so that ids order the messages of a session. A message that was overtaken by one that is in its
/// session already gets the time of that one; $20 is the largest difference in microseconds that counts as overtaking,
/// beyond that the clock was set back. Messages of this batch are in order already. Usage is counted after all sessions
/// are locked, by agent. Returns the messages whose times were changed.
const WRITE_MAIL: &str = "
WITH incoming AS (
    SELECT * FROM unnest($1::bigint[], $2::uuid[], $3::bigint[], $4::timestamptz[], $5::smallint[], $6::smallint[],
                         $7::text[], $8::text[], $9::uuid[], $10::text[], $11::text[], $12::text[], $13::text[],
                         $14::text[], $15::text[])
    WITH ORDINALITY AS l (session_id, public_id, sender_id, created_at, priority, ttl, kind, trace, reply_to,
                          correlation_id, task, callback, content, parts, metadata, place)
), copies AS (
    SELECT * FROM unnest($16::bigint[], $17::bigint[], $18::bigint[], $19::boolean[])
    AS c (place, agent_id, number, from_person)
), locked AS MATERIALIZED (
    SELECT id, last_at FROM sessions WHERE id = ANY($1) ORDER BY id FOR NO KEY UPDATE
), placed AS MATERIALIZED (
    SELECT nextval('message_ids') AS id, o.* FROM (
        SELECT l.*, CASE WHEN k.last_at > l.created_at AND k.last_at < l.created_at + $20::bigint * interval '1 microsecond'
                         THEN k.last_at ELSE l.created_at END AS at
        FROM incoming l JOIN locked k ON k.id = l.session_id ORDER BY l.place
    ) o
), moved AS (
    UPDATE sessions s SET last_at = c.last_at
    FROM (SELECT session_id, max(at) AS last_at FROM placed GROUP BY session_id) c WHERE s.id = c.session_id
), written AS (
    INSERT INTO messages (id, public_id, session_id, sender_id, created_at, priority, ttl, kind, trace, reply_to,
                          correlation_id, task, callback, content, parts, metadata)
    SELECT id, public_id, session_id, sender_id, at, priority, ttl, kind, trace, reply_to, correlation_id, task, callback,
           content, parts, metadata
    FROM placed
), delivered AS (
    INSERT INTO deliveries (message_id, agent_id, number, priority, from_person)
    SELECT p.id, c.agent_id, c.number, p.priority, c.from_person FROM copies c JOIN placed p ON p.place = c.place
), counted AS (
    UPDATE session_members b SET unread = b.unread + c.n
    FROM (SELECT c.agent_id, p.session_id, count(*) AS n FROM copies c JOIN placed p ON p.place = c.place
          GROUP BY c.agent_id, p.session_id) c
    WHERE b.agent_id = c.agent_id AND b.session_id = c.session_id
), grown AS (
    UPDATE mailboxes m SET head = greatest(m.head, c.head)
    FROM (SELECT agent_id, max(number) AS head FROM copies GROUP BY agent_id) c WHERE m.agent_id = c.agent_id
), charged AS (
    INSERT INTO usage AS u (agent_id, messages, bytes)
    SELECT * FROM unnest($21::bigint[], $22::bigint[], $23::bigint[]) AS c (agent_id, messages, bytes)
    WHERE (SELECT count(*) FROM placed) > 0 ORDER BY c.agent_id
    ON CONFLICT (agent_id) DO UPDATE SET messages = u.messages + excluded.messages, bytes = u.bytes + excluded.bytes
)
SELECT public_id, at FROM placed WHERE at <> created_at";

const WRITE_EVENTS: &str = "
WITH added AS (
    SELECT * FROM unnest($1::bigint[], $2::bigint[], $3::text[], $4::timestamptz[]) AS n (agent_id, number, event, at)
), logged AS (
    INSERT INTO events (agent_id, number, event, at) SELECT agent_id, number, event, at FROM added
)
UPDATE mailboxes m SET head = greatest(m.head, n.head)
FROM (SELECT agent_id, max(number) AS head FROM added GROUP BY agent_id) n WHERE m.agent_id = n.agent_id";

const WRITE_MEMBERS: &str = "INSERT INTO session_members (agent_id, session_id)
    SELECT * FROM unnest($1::bigint[], $2::bigint[]) ON CONFLICT DO NOTHING";

const WRITE_ANSWER: &str =
    "INSERT INTO idempotency (agent_id, key, draft_hash, answer, created_at) VALUES ($1, $2, $3, $4, $5)";

impl NewRows {
    /// Appends a message to a session and to the logs of its recipients, which are locked. Returns its number in each
    /// log.
    pub(super) fn append(
        &mut self,
        logs: &mut LockedLogs,
        session: i64,
        message: Columns<'_>,
        recipients: &[Addressee],
    ) -> Vec<(Addressee, u64)> {
        let latest = self.latest.entry(session).or_insert(message.at);
        *latest = message.at.max(*latest);
        let at = *latest;
        if at != message.at {
            self.retimed.0.insert(message.id, at);
        }
        let stored = message.stored(recipients.len());
        *self.charges.entry(message.payer).or_default() += stored;
        let m = &mut self.messages;
        m.session.push(session);
        m.public_id.push(message.id);
        m.sender.push(message.sender);
        m.at.push(at);
        m.priority.push(message.priority);
        m.ttl.push(message.ttl.into());
        m.kind.push(message.kind.map(str::to_owned));
        m.trace.push(message.trace);
        m.reply_to.push(message.reply_to);
        m.correlation_id.push(message.correlation_id.map(str::to_owned));
        m.task.push(message.task);
        m.callback.push(message.callback);
        m.content.push(message.content.into_owned());
        m.parts.push(message.parts);
        m.metadata.push(message.metadata);
        let place = i64::try_from(m.session.len()).unwrap_or(i64::MAX);
        let mut copies = Vec::with_capacity(recipients.len());
        for to in recipients {
            let Some(number) = logs.next(to.agent.0) else { continue };
            let d = &mut self.deliveries;
            d.place.push(place);
            d.agent.push(to.agent.0);
            d.number.push(number);
            d.from_person.push(to.from_person.then_some(true));
            copies.push((*to, log_number(number)));
        }
        copies
    }

    /// Notes when a message was received: those written since then may have overtaken it.
    pub(super) fn note_received(&mut self, received: Instant) {
        self.first_received = Some(self.first_received.map_or(received, |first| first.min(received)));
    }

    /// Returns whether there is a message for this session.
    pub(super) fn has_message_in(&self, session: i64) -> bool {
        self.latest.contains_key(&session)
    }

    /// Returns the storage charged to this agent so far.
    pub(super) fn charged_to(&self, agent: i64) -> Stored {
        self.charges.get(&agent).copied().unwrap_or_default()
    }

    /// Returns the storage charged to all agents so far.
    pub(super) fn charged(&self) -> Stored {
        let mut all = Stored::default();
        self.charges.values().for_each(|more| all += *more);
        all
    }

    pub(super) fn task(&mut self, task: NewTask) {
        self.tasks.push(task);
    }

    pub(super) fn answer(&mut self, caller: i64, once: Once, sent: Sent, at: Timestamp) {
        self.answers.push(NewAnswer { caller, once, sent, at });
    }

    pub(super) fn member(&mut self, agent: i64, session: i64) {
        self.members.0.push(agent);
        self.members.1.push(session);
    }

    /// Appends an event other than mail to a locked log. `None` where the mailbox does not exist.
    pub(super) fn event(
        &mut self,
        logs: &mut LockedLogs,
        agent: i64,
        event: Event,
        now: Timestamp,
    ) -> Result<Option<LogEntry>> {
        let Some(number) = logs.next(agent) else { return Ok(None) };
        self.events.agent.push(agent);
        self.events.number.push(number);
        self.events.event.push(json(&event)?);
        self.events.at.push(now);
        Ok(Some(LogEntry { agent: AgentKey(agent), entry: Entry { event, cursor: log_number(number).into() } }))
    }

    /// Writes all rows, the answers last; the other statements are pipelined. Returns the messages whose times were
    /// changed.
    pub(super) async fn write<C: GenericClient>(&self, client: &C) -> Result<Retimed, Failed> {
        // Both are prepared before the first is sent: preparing one would let the others overtake it.
        let members = client.prepare_cached(WRITE_MEMBERS).await?;
        let mail = client.prepare_cached(WRITE_MAIL).await?;
        // A statement is sent when its future is first polled: in this order. Members first: unread mail is counted in
        // their rows.
        let ((), retimed, (), ()) = tokio::try_join!(
            biased;
            self.write_members(client, &members),
            self.write_mail(client, &mail),
            self.write_events(client),
            self.write_tasks(client)
        )?;
        for NewAnswer { caller, once, sent, at } in &self.answers {
            let at = sent.message_id.as_uuid().and_then(|id| retimed.of(id)).unwrap_or(*at);
            let answer = json(&Sent { created_at: at, ..sent.clone() })?;
            let insert = client.prepare_cached(WRITE_ANSWER).await?;
            let inserted =
                client.execute(&insert, &[caller, &once.key, &once.draft_hash.as_slice(), &answer, &at]).await;
            inserted.map_err(|error| match Failed::from(error) {
                // Another request used the key meanwhile: the retry finds its answer.
                Failed::Taken(_) => Failed::changed(),
                failed => failed,
            })?;
        }
        Ok(retimed)
    }

    /// Returns whether there are only messages to single agents.
    pub(super) fn is_mail_alone(&self) -> bool {
        self.events.agent.is_empty() && self.members.0.is_empty() && self.tasks.is_empty() && self.answers.is_empty()
    }

    /// Writes the messages and commits, in one round trip.
    pub(super) async fn write_mail_and_commit(&self, client: &Object) -> Result<Retimed, Failed> {
        let statement = client.prepare_cached(WRITE_MAIL).await?;
        let commit = async { Ok(client.batch_execute("COMMIT").await?) };
        // Sent in this order. Where the first fails, the commit rolls back.
        let (retimed, ()) = tokio::try_join!(biased; self.write_mail(client, &statement), commit)?;
        Ok(retimed)
    }

    async fn write_members<C: GenericClient>(&self, client: &C, statement: &Statement) -> Result<(), Failed> {
        let (agents, sessions) = &self.members;
        if !agents.is_empty() {
            client.execute(statement, &[agents, sessions]).await?;
        }
        Ok(())
    }

    async fn write_mail<C: GenericClient>(&self, client: &C, statement: &Statement) -> Result<Retimed, Failed> {
        let (m, d) = (&self.messages, &self.deliveries);
        if m.session.is_empty() {
            return Ok(Retimed::default());
        }
        // The timeout covers the wait for locks and clock differences between processes.
        let overtaken = self.first_received.map_or(TIMEOUT, |received| received.elapsed() + TIMEOUT);
        let overtaken = i64::try_from(overtaken.as_micros()).unwrap_or(i64::MAX);
        let payers: Vec<i64> = self.charges.keys().copied().collect();
        let (messages, bytes): (Vec<i64>, Vec<i64>) =
            self.charges.values().map(|more| (more.messages, more.bytes)).unzip();
        let columns: [&(dyn ToSql + Sync); 23] = [
            &m.session,
            &m.public_id,
            &m.sender,
            &m.at,
            &m.priority,
            &m.ttl,
            &m.kind,
            &m.trace,
            &m.reply_to,
            &m.correlation_id,
            &m.task,
            &m.callback,
            &m.content,
            &m.parts,
            &m.metadata,
            &d.place,
            &d.agent,
            &d.number,
            &d.from_person,
            &overtaken,
            &payers,
            &messages,
            &bytes,
        ];
        let rows = client.query(statement, &columns).await?;
        let mut retimed = self.retimed.clone();
        retimed.0.extend(rows.iter().map(|row| (row.get::<_, Uuid>(0), row.get::<_, Timestamp>(1))));
        Ok(retimed)
    }

    async fn write_events<C: GenericClient>(&self, client: &C) -> Result<(), Failed> {
        let e = &self.events;
        if e.agent.is_empty() {
            return Ok(());
        }
        let statement = client.prepare_cached(WRITE_EVENTS).await?;
        client.execute(&statement, &[&e.agent, &e.number, &e.event, &e.at]).await?;
        Ok(())
    }

    async fn write_tasks<C: GenericClient>(&self, client: &C) -> Result<(), Failed> {
        for task in &self.tasks {
            let statement = client.prepare_cached(NewTask::INSERT).await?;
            let columns: [&(dyn ToSql + Sync); 12] = [
                &task.id,
                &task.owner,
                &task.assignee,
                &task.state.as_str(),
                &&*task.subject,
                &task.message,
                &task.session,
                &task.parent,
                &task.deadline,
                &task.note,
                &task.callback,
                &task.at,
            ];
            client.execute(&statement, &columns).await?;
        }
        Ok(())
    }
}
