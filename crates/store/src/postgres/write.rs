//! Writing mail and events: the statements that every verb shares.

use std::collections::{BTreeMap, HashMap};
use std::time::Instant;

use amb_core::{Entry, Event, TaskState, Timestamp};
use deadpool_postgres::{GenericClient, Object, Transaction};
use tokio_postgres::Statement;
use tokio_postgres::types::ToSql;
use uuid::Uuid;

use super::transact::PATIENCE;
use crate::columns::{Addressee, Columns};
use crate::engine::Failed;
use crate::error::Result;
use crate::outgoing::json;
use crate::quota::{Charges, Stored};
use crate::types::{AgentKey, LogEntry};

/// The logs that a transaction has locked, and how far they go.
#[derive(Debug, Default)]
pub(super) struct Heads(BTreeMap<i64, i64>);

impl Heads {
    /// Locks these mailboxes, in the order that everybody keeps.
    pub(super) async fn lock(tx: &Transaction<'_>, agents: &[i64]) -> Result<Self, Failed> {
        let select = tx
            .prepare_cached(
                "SELECT agent_id, head FROM mailboxes WHERE agent_id = ANY($1) ORDER BY agent_id FOR NO KEY UPDATE",
            )
            .await?;
        let rows = tx.query(&select, &[&agents]).await?;
        Ok(Self(rows.iter().map(|row| (row.get(0), row.get(1))).collect()))
    }

    /// Of mailboxes that a statement locked.
    pub(super) fn locked(heads: impl IntoIterator<Item = (i64, i64)>) -> Self {
        Self(heads.into_iter().collect())
    }

    /// Adds mailboxes that were locked later. Those that were held keep the numbers that they gave.
    pub(super) fn add(&mut self, more: Self) {
        for (agent, head) in more.0 {
            self.0.entry(agent).or_insert(head);
        }
    }

    /// Whether this agent's mailbox is among them.
    pub(super) fn holds(&self, agent: i64) -> bool {
        self.0.contains_key(&agent)
    }

    /// Takes the next number in a log. Only logs that are locked have one.
    pub(super) fn next(&mut self, agent: i64) -> Option<i64> {
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

    /// Brings what is told of these messages in line with what was written.
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

/// What a transaction is about to write: messages, their deliveries, tasks, and other events. Column by column, as the
/// statements want it.
#[derive(Debug, Default)]
pub(super) struct Pages {
    messages: Messages,
    deliveries: Deliveries,
    events: Events,
    /// Which entries deliver the messages of groups: message, agent, number.
    copies: (Vec<Uuid>, Vec<i64>, Vec<i64>),
    tasks: Vec<NewTask>,
    /// New messages of each session so far, and the latest of their times.
    places: HashMap<i64, (i64, Timestamp)>,
    /// Messages that another of these overtook.
    retimed: Retimed,
    /// When the first of these messages came here.
    first_came: Option<Instant>,
    charges: Charges,
}

/// Who gets a message.
#[derive(Debug, Clone, Copy)]
pub(super) enum To<'a> {
    /// The other member of its session.
    One(Addressee),
    /// These members of its group.
    Group(&'a [Addressee]),
    /// Nobody: it stays in the session of the sender and this agent, and no log tells of it.
    Nobody(i64),
}

/// A task about to be written.
#[derive(Debug)]
pub(super) struct NewTask {
    pub(super) id: Uuid,
    pub(super) owner: i64,
    pub(super) assignee: i64,
    pub(super) state: TaskState,
    pub(super) subject: String,
    pub(super) message: Uuid,
    pub(super) session: Uuid,
    pub(super) parent: Option<i64>,
    pub(super) deadline: Option<Timestamp>,
    pub(super) note: Option<String>,
    pub(super) callback: Option<String>,
    pub(super) at: Timestamp,
}

#[derive(Debug, Default)]
struct Messages {
    session: Vec<i64>,
    /// Its place among the new messages of its session, from 1.
    ord: Vec<i64>,
    public_id: Vec<Uuid>,
    sender: Vec<i64>,
    recipient: Vec<Option<i64>>,
    number: Vec<Option<i64>>,
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
struct Deliveries {
    agent: Vec<i64>,
    number: Vec<i64>,
    session: Vec<i64>,
    ord: Vec<i64>,
    priority: Vec<i16>,
    from_person: Vec<Option<bool>>,
}

#[derive(Debug, Default)]
struct Events {
    agent: Vec<i64>,
    number: Vec<i64>,
    event: Vec<String>,
    at: Vec<Timestamp>,
}

/// Messages and deliveries. The sessions are locked in the order that everybody keeps, and their places given. A message
/// that was overtaken on its way here by one that is in its session already takes the time of that one ($25 is how far apart
/// two such can be; a clock that goes back further was set, and is believed); those of this batch are in order. What senders
/// have stored is counted behind the locks of all sessions, by agent. Returns the messages whose times that changed.
const WRITE_MAIL: &str = "
WITH incoming AS (
    SELECT * FROM unnest($1::bigint[], $2::bigint[], $3::uuid[], $4::bigint[], $5::bigint[], $6::bigint[],
                         $7::timestamptz[], $8::smallint[], $9::smallint[], $10::text[], $11::text[], $12::uuid[],
                         $13::text[], $14::text[], $15::text[], $16::text[], $17::text[], $18::text[])
    AS l (session_id, ord, public_id, sender_id, recipient_id, delivery_number, created_at, priority, ttl, kind, trace,
          reply_to, correlation_id, task, callback, content, parts, metadata)
), copies AS (
    SELECT * FROM unnest($19::bigint[], $20::bigint[], $21::bigint[], $22::bigint[], $23::smallint[], $24::boolean[])
    AS c (agent_id, number, session_id, ord, priority, from_person)
), locked AS MATERIALIZED (
    SELECT id, last_seq, last_at FROM sessions WHERE id = ANY($1) ORDER BY id FOR NO KEY UPDATE
), placed AS MATERIALIZED (
    SELECT l.*, k.last_seq + l.ord AS seq,
           CASE WHEN k.last_at > l.created_at AND k.last_at < l.created_at + $25::bigint * interval '1 microsecond'
                THEN k.last_at ELSE l.created_at END AS at
    FROM incoming l JOIN locked k ON k.id = l.session_id
), moved AS (
    UPDATE sessions s SET last_seq = c.last_seq, last_at = c.last_at
    FROM (SELECT session_id, max(seq) AS last_seq, max(at) AS last_at FROM placed GROUP BY session_id) c
    WHERE s.id = c.session_id
), written AS (
    INSERT INTO messages (session_id, seq, public_id, sender_id, recipient_id, delivery_number, created_at, priority,
                          ttl, kind, trace, reply_to, correlation_id, task, callback, content, parts, metadata)
    SELECT session_id, seq, public_id, sender_id, recipient_id, delivery_number, at, priority, ttl, kind, trace, reply_to,
           correlation_id, task, callback, content, parts, metadata
    FROM placed
), delivered AS (
    INSERT INTO entries (agent_id, number, session_id, seq, priority, from_person)
    SELECT c.agent_id, c.number, c.session_id, k.last_seq + c.ord, c.priority, c.from_person
    FROM copies c JOIN locked k ON k.id = c.session_id
), counted AS (
    UPDATE session_members b SET unread = b.unread + c.n
    FROM (SELECT agent_id, session_id, count(*) AS n FROM copies GROUP BY agent_id, session_id) c
    WHERE b.agent_id = c.agent_id AND b.session_id = c.session_id
), grown AS (
    UPDATE mailboxes m SET head = greatest(m.head, c.head)
    FROM (SELECT agent_id, max(number) AS head FROM copies GROUP BY agent_id) c WHERE m.agent_id = c.agent_id
), charged AS (
    INSERT INTO usage AS u (agent_id, messages, bytes)
    SELECT * FROM unnest($26::bigint[], $27::bigint[], $28::bigint[]) AS c (agent_id, messages, bytes)
    WHERE (SELECT count(*) FROM placed) > 0 ORDER BY c.agent_id
    ON CONFLICT (agent_id) DO UPDATE SET messages = u.messages + excluded.messages, bytes = u.bytes + excluded.bytes
)
SELECT public_id, at FROM placed WHERE at <> created_at";

const WRITE_EVENTS: &str = "
WITH added AS (
    SELECT * FROM unnest($1::bigint[], $2::bigint[], $3::text[], $4::timestamptz[]) AS n (agent_id, number, event, at)
), logged AS (
    INSERT INTO entries (agent_id, number, event, at) SELECT agent_id, number, event, at FROM added
)
UPDATE mailboxes m SET head = greatest(m.head, n.head)
FROM (SELECT agent_id, max(number) AS head FROM added GROUP BY agent_id) n WHERE m.agent_id = n.agent_id";

impl Pages {
    /// Adds a message to a session, and its deliveries to the logs of its recipients, which are locked. Answers its place
    /// in each log.
    pub(super) fn post(
        &mut self,
        heads: &mut Heads,
        session: i64,
        post: Columns<'_>,
        to: To<'_>,
    ) -> Vec<(Addressee, u64)> {
        let (ord, latest) = self.places.entry(session).or_insert((0, post.at));
        *ord += 1;
        *latest = post.at.max(*latest);
        let (ord, at) = (*ord, *latest);
        if at != post.at {
            self.retimed.0.insert(post.id, at);
        }
        let mut copies = Vec::with_capacity(1);
        let (recipient, number) = match to {
            To::One(to) => {
                let number = heads.next(to.agent.0);
                if let Some(number) = number {
                    copies.push((to, self.deliver(to, number, session, ord, post.priority)));
                }
                (Some(to.agent.0), number)
            }
            To::Nobody(agent) => (Some(agent), None),
            To::Group(members) => {
                for to in members {
                    let Some(number) = heads.next(to.agent.0) else { continue };
                    self.copies.0.push(post.id);
                    self.copies.1.push(to.agent.0);
                    self.copies.2.push(number);
                    copies.push((*to, self.deliver(*to, number, session, ord, post.priority)));
                }
                (None, None)
            }
        };
        *self.charges.entry(post.payer).or_default() += post.stored(copies.len());
        let m = &mut self.messages;
        m.session.push(session);
        m.ord.push(ord);
        m.public_id.push(post.id);
        m.sender.push(post.sender);
        m.recipient.push(recipient);
        m.number.push(number);
        m.at.push(at);
        m.priority.push(post.priority);
        m.ttl.push(post.ttl.into());
        m.kind.push(post.kind.map(str::to_owned));
        m.trace.push(post.trace);
        m.reply_to.push(post.reply_to);
        m.correlation_id.push(post.correlation_id.map(str::to_owned));
        m.task.push(post.task);
        m.callback.push(post.callback);
        m.content.push(post.content.into_owned());
        m.parts.push(post.parts);
        m.metadata.push(post.metadata);
        copies
    }

    fn deliver(&mut self, to: Addressee, number: i64, session: i64, ord: i64, priority: i16) -> u64 {
        let d = &mut self.deliveries;
        d.agent.push(to.agent.0);
        d.number.push(number);
        d.session.push(session);
        d.ord.push(ord);
        d.priority.push(priority);
        d.from_person.push(to.from_person.then_some(true));
        u64::try_from(number).unwrap_or(0)
    }

    /// One of the messages has waited here since then, and may have been overtaken by all that was written meanwhile.
    pub(super) fn waited_since(&mut self, came: Instant) {
        self.first_came = Some(self.first_came.map_or(came, |first| first.min(came)));
    }

    /// Whether a message goes into this session.
    pub(super) fn posts_in(&self, session: i64) -> bool {
        self.places.contains_key(&session)
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

    /// Adds a task.
    pub(super) fn task(&mut self, task: NewTask) {
        self.tasks.push(task);
    }

    /// Adds an event other than mail to a log that is locked. `None` where there is no such mailbox.
    pub(super) fn tell(
        &mut self,
        heads: &mut Heads,
        agent: i64,
        event: Event,
        now: Timestamp,
    ) -> Result<Option<LogEntry>> {
        let Some(number) = heads.next(agent) else { return Ok(None) };
        self.events.agent.push(agent);
        self.events.number.push(number);
        self.events.event.push(json(&event)?);
        self.events.at.push(now);
        let cursor = u64::try_from(number).unwrap_or(0).into();
        Ok(Some(LogEntry { agent: AgentKey(agent), entry: Entry { event, cursor } }))
    }

    /// Writes it all. The statements travel together: one way there and back. Returns which messages got another time.
    pub(super) async fn write<C: GenericClient>(&self, client: &C) -> Result<Retimed, Failed> {
        let (retimed, (), (), ()) = tokio::try_join!(
            self.write_mail(client),
            self.write_events(client),
            self.write_copies(client),
            self.write_tasks(client)
        )?;
        Ok(retimed)
    }

    /// Whether there is nothing but mail of two.
    pub(super) fn is_mail_alone(&self) -> bool {
        self.events.agent.is_empty() && self.copies.0.is_empty() && self.tasks.is_empty()
    }

    /// Writes mail alone and commits: one way there and back.
    pub(super) async fn write_mail_and_commit(&self, client: &Object) -> Result<Retimed, Failed> {
        let statement = client.prepare_cached(WRITE_MAIL).await?;
        let commit = async { Ok(client.batch_execute("COMMIT").await?) };
        // A statement is sent when its future is polled first: in this order. Where the mail fails, the commit does nothing.
        let (retimed, ()) = tokio::try_join!(biased; self.insert_mail(client, &statement), commit)?;
        Ok(retimed)
    }

    async fn write_mail<C: GenericClient>(&self, client: &C) -> Result<Retimed, Failed> {
        if self.messages.session.is_empty() {
            return Ok(Retimed::default());
        }
        let statement = client.prepare_cached(WRITE_MAIL).await?;
        self.insert_mail(client, &statement).await
    }

    async fn insert_mail<C: GenericClient>(&self, client: &C, statement: &Statement) -> Result<Retimed, Failed> {
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
        let columns: [&(dyn ToSql + Sync); 28] = [
            &m.session,
            &m.ord,
            &m.public_id,
            &m.sender,
            &m.recipient,
            &m.number,
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
            &d.agent,
            &d.number,
            &d.session,
            &d.ord,
            &d.priority,
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

    async fn write_copies<C: GenericClient>(&self, client: &C) -> Result<(), Failed> {
        let (messages, agents, numbers) = &self.copies;
        if messages.is_empty() {
            return Ok(());
        }
        let sql = "INSERT INTO copies (message_public_id, agent_id, number)
                   SELECT * FROM unnest($1::uuid[], $2::bigint[], $3::bigint[])";
        let statement = client.prepare_cached(sql).await?;
        client.execute(&statement, &[messages, agents, numbers]).await?;
        Ok(())
    }

    async fn write_tasks<C: GenericClient>(&self, client: &C) -> Result<(), Failed> {
        for task in &self.tasks {
            let sql = "INSERT INTO tasks (public_id, owner_id, assignee_id, state, subject, message_public_id,
                                          session_public_id, parent_id, deadline, note, callback, created_at, updated_at)
                       VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $12)";
            let statement = client.prepare_cached(sql).await?;
            let columns: [&(dyn ToSql + Sync); 12] = [
                &task.id,
                &task.owner,
                &task.assignee,
                &task.state.as_str(),
                &task.subject,
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
