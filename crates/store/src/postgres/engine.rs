//! The engine of PostgreSQL: one transaction per verb, with a timeout, retried after a conflict.

use amb_core::doc::Sent;
use amb_core::send::Storage;
use amb_core::{AgentName, Draft, Event, Timestamp};
use async_trait::async_trait;
use deadpool_postgres::{GenericClient, Transaction};
use futures_util::TryStreamExt;
use tokio_postgres::types::private::BytesMut;
use tokio_postgres::types::{IsNull, ToSql, Type, to_sql_checked};
use uuid::Uuid;

use super::batch::SendBatch;
use super::error::{failed, unavailable};
use super::send_queue::Queued;
use super::transact::{InUse, TIMEOUT, transact};
use super::write::Retimed;
use super::{PostgresStore, replicas};
use crate::columns::{Addressee, Columns};
use crate::engine::{
    Answer, BoxedRead, BoxedWrite, Cell, Cells, Changes, Db, Dialect, Engine, Exclusive, Failed, POSTGRES, Query,
    ReadLength, Row, Tried, Tx, Value, Visit, values,
};
use crate::error::Result;
use crate::key_cache::KeyCache;
use crate::outgoing::OutgoingMessage;
use crate::quota::{Account, Stored};
use crate::refusals;
use crate::types::{Agent, AgentKey, LogEntry, Written};
use crate::verbs::{Outcome, SendTx, stored_by};

/// The advisory lock for founding a household. Any fixed number will do.
const FOUNDING: i64 = 0x616d_625f_686f_6d65;

impl ToSql for Value<'_> {
    fn to_sql(&self, ty: &Type, out: &mut BytesMut) -> Result<IsNull, Box<dyn std::error::Error + Sync + Send>> {
        match self {
            Value::Int(it) => it.to_sql_checked(ty, out),
            Value::Text(it) => it.to_sql_checked(ty, out),
            Value::Id(it) => it.to_sql_checked(ty, out),
            Value::Time(it) => it.to_sql_checked(ty, out),
            Value::Flag(it) => it.to_sql_checked(ty, out),
            Value::Bytes(it) => it.to_sql_checked(ty, out),
            Value::Ints(it) => it.to_sql_checked(ty, out),
            Value::Ids(it) => it.to_sql_checked(ty, out),
        }
    }

    fn accepts(_: &Type) -> bool {
        // `to_sql` checks the type of each value.
        true
    }

    to_sql_checked!();
}

impl Cells for tokio_postgres::Row {
    fn cell(&self, index: usize) -> Result<Cell> {
        let kind = self.columns().get(index).map(|column| column.type_().clone());
        let cell = match kind.unwrap_or(Type::TEXT) {
            Type::INT8 => self.try_get::<_, Option<i64>>(index).map(|it| it.map(Cell::Int)),
            Type::INT4 => self.try_get::<_, Option<i32>>(index).map(|it| it.map(|it| Cell::Int(it.into()))),
            Type::INT2 => self.try_get::<_, Option<i16>>(index).map(|it| it.map(|it| Cell::Int(it.into()))),
            Type::BOOL => self.try_get::<_, Option<bool>>(index).map(|it| it.map(Cell::Flag)),
            Type::UUID => self.try_get::<_, Option<Uuid>>(index).map(|it| it.map(Cell::Id)),
            Type::TIMESTAMPTZ => self.try_get::<_, Option<Timestamp>>(index).map(|it| it.map(Cell::Time)),
            Type::BYTEA => self.try_get::<_, Option<Vec<u8>>>(index).map(|it| it.map(Cell::Bytes)),
            _ => self.try_get::<_, Option<String>>(index).map(|it| it.map(Cell::Text)),
        };
        Ok(cell.map_err(failed)?.unwrap_or(Cell::Null))
    }
}

async fn each<C: GenericClient>(client: &C, sql: &str, values: &[Value<'_>], visit: Visit<'_>) -> Tried<()> {
    let statement = client.prepare_cached(sql).await?;
    let values = values.iter().map(|value| value as &(dyn ToSql + Sync));
    let mut rows = std::pin::pin!(client.query_raw(&statement, values).await?);
    while let Some(row) = rows.try_next().await? {
        if !visit(Row::new(&row))? {
            break;
        }
    }
    Ok(())
}

/// A connection to read from.
pub(super) struct PgReader<'a, C>(pub(super) &'a C);

#[async_trait]
impl<C: GenericClient + Sync> Db for PgReader<'_, C> {
    async fn each(&mut self, sql: &str, values: &[Value<'_>], visit: Visit<'_>) -> Tried<()> {
        each(self.0, sql, values, visit).await
    }

    fn dialect(&self) -> &'static Dialect {
        &POSTGRES
    }
}

/// A verb's transaction.
struct PgTx<'a> {
    tx: &'a Transaction<'a>,
    account: &'a Account,
    /// Locks, and buffered rows that [`Tx::flush`] writes.
    batch: SendBatch<'a>,
    entries: Vec<LogEntry>,
    /// The storage charged to all agents so far.
    charged: Stored,
}

impl<'a> PgTx<'a> {
    fn new(tx: &'a Transaction<'a>, account: &'a Account) -> Self {
        let (batch, charged) = (SendBatch::new(account), Stored::default());
        Self { tx, account, batch, entries: Vec::new(), charged }
    }

    /// Writes the buffered rows. Returns the messages whose times were changed.
    async fn write_rows(&mut self) -> Tried<Retimed> {
        self.charged += self.batch.rows.charged();
        let retimed = self.batch.write(self.tx).await?;
        retimed.correct(&mut self.entries);
        Ok(retimed)
    }

    /// Writes the buffered rows of sends. Returns their answers.
    async fn finish_sends(&mut self, outcomes: Vec<Outcome>) -> Tried<Vec<Sent>> {
        let Written { answer: mut sent, entries } = Written::gather(outcomes.into_iter().map(Outcome::into_written));
        self.entries.extend(entries);
        let retimed = self.write_rows().await?;
        for one in &mut sent {
            one.created_at = one.message_id.as_uuid().and_then(|id| retimed.of(id)).unwrap_or(one.created_at);
        }
        Ok(sent)
    }
}

#[async_trait]
impl Db for PgTx<'_> {
    async fn each(&mut self, sql: &str, values: &[Value<'_>], visit: Visit<'_>) -> Tried<()> {
        each(self.tx, sql, values, visit).await
    }

    fn dialect(&self) -> &'static Dialect {
        &POSTGRES
    }
}

#[async_trait]
impl Tx for PgTx<'_> {
    async fn execute(&mut self, sql: &str, values: &[Value<'_>]) -> Tried<u64> {
        let statement = self.tx.prepare_cached(sql).await?;
        let values: Vec<&(dyn ToSql + Sync)> = values.iter().map(|value| value as &(dyn ToSql + Sync)).collect();
        Ok(self.tx.execute(&statement, &values).await?)
    }

    async fn insert(&mut self, sql: &str, values: &[Value<'_>]) -> Tried<i64> {
        let (id,) = self.one(&format!("{sql} RETURNING id"), values).await?;
        Ok(id)
    }

    async fn lock(&mut self, agents: &[i64]) -> Tried<()> {
        self.batch.logs.lock(self.tx, agents).await
    }

    fn holds(&self, agent: i64) -> bool {
        self.batch.logs.holds(agent)
    }

    async fn lock_exclusive(&mut self, what: Exclusive<'_>) -> Tried<()> {
        let locked = match what {
            Exclusive::Names => self.execute("SELECT pg_advisory_xact_lock(7461627)", &[]).await,
            Exclusive::Removing => self.execute("SELECT pg_advisory_xact_lock(7461629)", &[]).await,
            Exclusive::Founding => self.execute("SELECT pg_advisory_xact_lock($1)", values![FOUNDING]).await,
            Exclusive::Key(agent, key) => {
                let sql = "SELECT pg_advisory_xact_lock(hashtextextended($2, $1))";
                self.execute(sql, values![agent, key]).await
            }
            Exclusive::Claims(agent) => {
                let sql = "SELECT pg_advisory_xact_lock(7461628, ($1::bigint % 2147483647)::int)";
                self.execute(sql, values![agent]).await
            }
        };
        locked.map(drop)
    }

    async fn log_event(&mut self, agent: i64, event: Event, now: Timestamp) -> Tried<u64> {
        let SendBatch { rows, logs, .. } = &mut self.batch;
        let logged = rows.event(logs, agent, event, now)?;
        let number = logged.as_ref().and_then(|one| one.entry.cursor.as_number()).unwrap_or(0);
        self.entries.extend(logged);
        Ok(number)
    }

    fn stamp(&mut self, at: Timestamp) -> Timestamp {
        self.batch.stamp(at)
    }

    async fn append_message(&mut self, session: i64, message: Columns<'_>, to: Addressee) -> Tried<Option<u64>> {
        let copies = self.batch.append(session, message, &[to])?;
        Ok(copies.first().map(|(_, number)| *number))
    }

    async fn send_message(&mut self, caller: &Agent, message: OutgoingMessage) -> Tried<()> {
        let outcome = self.batch.send_to_agent(self.tx, caller, message).await?;
        self.entries.extend(outcome.into_written().entries);
        Ok(())
    }

    fn put_entry(&mut self, entry: LogEntry) {
        self.entries.push(entry);
    }

    async fn flush(&mut self) -> Tried<()> {
        self.write_rows().await.map(drop)
    }

    async fn send_all(&mut self, caller: &Agent, to: &[AgentName], draft: &Draft, now: Timestamp) -> Tried<Vec<Sent>> {
        let outcomes = self.batch.send_all(self.tx, caller, to, draft, now).await?;
        self.finish_sends(outcomes).await
    }

    async fn open_mailbox(&mut self, agent: i64) -> Tried<()> {
        self.execute("INSERT INTO mailboxes (agent_id) VALUES ($1)", &[agent.into()]).await.map(drop)
    }

    async fn unindex(&mut self, messages: &[i64]) -> Tried<()> {
        self.execute("DELETE FROM search_words WHERE message_id = ANY($1)", values![messages]).await.map(drop)
    }

    async fn check_quota(&mut self, sender: i64, more: Stored) -> Tried<()> {
        // Not locked: concurrent sends do not see what the others add.
        let stored = stored_by(self, sender).await?;
        let Storage { quotas, sender, office, more } = self.account.storage(stored, Stored::default(), more);
        Ok(quotas.check(sender, office, more)?)
    }

    async fn charge(&mut self, agent: i64, more: Stored) -> Tried<()> {
        self.charged += more;
        let sql = "INSERT INTO usage AS u (agent_id, messages, bytes) VALUES ($1, $2, $3)
                   ON CONFLICT (agent_id) DO UPDATE SET messages = u.messages + excluded.messages,
                                                        bytes = u.bytes + excluded.bytes";
        self.execute(sql, values![agent, more.messages, more.bytes]).await.map(drop)
    }

    async fn key_ended(&mut self, agent: AgentKey) -> Tried<()> {
        replicas::keys_end(self.tx, agent).await
    }
}

#[async_trait]
impl Engine for PostgresStore {
    async fn write(&self, _: Changes, mut verb: BoxedWrite) -> Result<Written<Answer>> {
        let (written, charged) = transact!(self, tx => async {
            let mut tx = PgTx::new(&tx, &self.account);
            let answer = verb(&mut tx).await?;
            tx.flush().await?;
            Ok::<_, Failed>((Written { answer, entries: tx.entries }, tx.charged))
        })?;
        self.account.add_to_office(charged);
        self.queue_for_indexing(&written.entries);
        Ok(written)
    }

    async fn read(&self, _: ReadLength, verb: BoxedRead) -> Result<Answer> {
        let client = InUse::new(self.client().await?);
        let Ok(answer) = tokio::time::timeout(TIMEOUT, verb(&mut PgReader(&*client))).await else {
            return Err(unavailable());
        };
        client.finished();
        Ok(answer?)
    }

    async fn send_message(&self, caller: &Agent, message: OutgoingMessage) -> Result<Written<Sent>> {
        let written = match self.queue.send(caller.clone(), message).await? {
            Queued::Done(outcome) => outcome.into_written(),
            Queued::NoAgent(message) => return self.send_to_group(caller, &message).await,
        };
        self.queue_for_indexing(&written.entries);
        Ok(written)
    }

    fn account(&self) -> &Account {
        &self.account
    }

    fn key_cache(&self) -> &KeyCache {
        &self.key_cache
    }
}

impl PostgresStore {
    async fn send_to_group(&self, caller: &Agent, message: &OutgoingMessage) -> Result<Written<Sent>> {
        let (mut sent, entries, charged) = transact!(self, tx => async {
            let mut tx = PgTx::new(&tx, &self.account);
            let outcome = tx.batch.send_to_group(tx.tx, caller, message.clone()).await?;
            let sent = tx.finish_sends(vec![outcome]).await?;
            Ok::<_, Failed>((sent, tx.entries, tx.charged))
        })?;
        self.account.add_to_office(charged);
        self.queue_for_indexing(&entries);
        let answer = sent.pop().ok_or_else(|| refusals::not_connected(&message.to))?;
        Ok(Written { answer, entries })
    }
}
