//! Writing mail and events: the statements that every verb shares.

use std::collections::{BTreeMap, HashMap};
use std::time::Instant;

use amb_core::doc::Sent;
use amb_core::{Entry, Event, Timestamp};
use deadpool_postgres::{GenericClient, Object};
use tokio_postgres::Statement;
use tokio_postgres::types::ToSql;
use uuid::Uuid;

use super::transact::PATIENCE;
use crate::columns::{Addressee, Columns};
use crate::engine::Failed;
use crate::error::Result;
use crate::outgoing::json;
use crate::quota::{Charges, Stored};
use crate::types::{AgentKey, LogEntry, Once, log_number};
use crate::verbs::NewTask;

/// The logs that a transaction has locked, each with the number of its newest entry.
#[derive(Debug, Default)]
pub(super) struct LockedLogs(BTreeMap<i64, i64>);

impl LockedLogs {
    /// Locks these mailboxes, in the order that everybody keeps.
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

    /// Adds mailboxes that a statement locked. Those that were held keep the numbers that they gave.
    pub(super) fn add(&mut self, logs: impl IntoIterator<Item = (i64, i64)>) {
        for (agent, head) in logs {
            self.0.entry(agent).or_insert(head);
        }
    }

    /// Whether this agent's mailbox is locked.
    pub(super) fn holds(&self, agent: i64) -> bool {
        self.0.contains_key(&agent)
    }

    /// Takes the next number in a log. Only logs that are locked have one.
    fn next(&mut self, agent: i64) -> Option<i64> {
        let head = self.0.get_mut(&agent)?;
        *head += 1;
        Some(*head)
    }
}

/// Messages that another of their session overtook, and the times that they got for it. Usually none.
#[derive(Debug, Clone, Default)]
pub(super) struct Retimed(HashMap<Uuid, Timestamp>);

impl Retimed {
    /// The time that this message got instead of its own.
    pub(super) fn of(&self, message: Uuid) -> Option<Timestamp> {
        self.0.get(&message).copied()
    }

    /// Sets the times in log entries of these messages to those that were written.
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

/// Rows that a transaction is about to write, column by column, as the statements take them.
#[derive(Debug, Default)]
pub(super) struct NewRows {
    messages: MessageColumns,
    deliveries: DeliveryColumns,
    events: EventColumns,
    /// New members of groups' sessions: agents, sessions.
    members: (Vec<i64>, Vec<i64>),
    tasks: Vec<NewTask>,
    answers: Vec<NewAnswer>,
    /// The latest time of the new messages of each session.
    latest: HashMap<i64, Timestamp>,
    /// Messages that another of these overtook.
    retimed: Retimed,
    /// When the first of these messages came here.
    first_came: Option<Instant>,
    charges: Charges,
}

/// The answer to a send under an idempotency key.
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
    /// Which of the new messages, from 1.
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

/// Messages and deliveries. The sessions are locked in the order that everybody keeps. Ids are taken behind these locks, in the
/// order of the batch, so that they order the messages of a session. A message that was overtaken on its way here by one that is in
/// its session already takes the time of that one ($20 is how far apart two such can be; a clock that goes back further was set, and
/// is believed); those of this batch are in order. What senders have stored is counted behind the locks of all sessions, by agent.
/// Returns the messages whose times that changed.
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
    /// Adds a message to a session, and its deliveries to the logs of its recipients, which are locked. Returns its number in
    /// each log.
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

    /// One of the messages has waited here since then, and may have been overtaken by all that was written meanwhile.
    pub(super) fn waited_since(&mut self, came: Instant) {
        self.first_came = Some(self.first_came.map_or(came, |first| first.min(came)));
    }

    /// Whether a message goes into this session.
    pub(super) fn has_message_in(&self, session: i64) -> bool {
        self.latest.contains_key(&session)
    }

    /// What is charged to this agent so far.
    pub(super) fn charged_to(&self, agent: i64) -> Stored {
        self.charges.get(&agent).copied().unwrap_or_default()
    }

    /// What is charged to all agents so far.
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

    /// Adds an event other than mail to a log that is locked. `None` where there is no such mailbox.
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

    /// Writes it all, the answers last. The other statements travel together. Returns which messages got another time.
    pub(super) async fn write<C: GenericClient>(&self, client: &C) -> Result<Retimed, Failed> {
        // All are prepared before the first is sent: else one that is prepared already could overtake another.
        let members = client.prepare_cached(WRITE_MEMBERS).await?;
        let mail = client.prepare_cached(WRITE_MAIL).await?;
        // Statements are sent when their futures are polled first: in this order. Unread mail is counted for members that are there.
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

    /// Whether there is nothing but mail between two agents each.
    pub(super) fn is_mail_alone(&self) -> bool {
        self.events.agent.is_empty() && self.members.0.is_empty() && self.tasks.is_empty() && self.answers.is_empty()
    }

    /// Writes mail alone and commits: one round trip.
    pub(super) async fn write_mail_and_commit(&self, client: &Object) -> Result<Retimed, Failed> {
        let statement = client.prepare_cached(WRITE_MAIL).await?;
        let commit = async { Ok(client.batch_execute("COMMIT").await?) };
        // Sent in this order. Where the mail fails, the commit does nothing.
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
        // Processes whose clocks differ, and this transaction's own waiting for locks, are within the patience.
        let overtaken = self.first_came.map_or(PATIENCE, |came| came.elapsed() + PATIENCE);
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
