//! The engine of SQLite. Nothing here awaits: every future is ready when it is first polled, so that a verb runs to its
//! end on the thread that polls it.

use amb_core::doc::Sent;
use amb_core::send::Storage;
use amb_core::{AgentName, Draft, Event, Kind, Timestamp};
use async_trait::async_trait;
use futures_util::FutureExt;
use rusqlite::types::{ToSqlOutput, ValueRef};
use rusqlite::{Connection, Statement, ToSql};
use uuid::Uuid;

use super::SqliteStore;
use super::error::{failed, is_taken};
use super::plans::Prepared;
use super::writer::{Isolation, WriteTx};
use crate::StoreError;
use crate::columns::{Addressee, Columns};
use crate::engine::{
    Answer, BoxedRead, BoxedWrite, Cached, Cell, Cells, Changes, Db, Dialect, Engine, Failed, ReadLength, Row, SQLITE,
    Tried, Tx, Value, Visit, values,
};
use crate::error::Result;
use crate::key_cache::KeyCache;
use crate::outgoing::OutgoingMessage;
use crate::quota::{Account, Stored};
use crate::types::{Agent, AgentKey, LogEntry, Written};
use crate::verbs::{SendTx, pair, send};

impl ToSql for Value<'_> {
    fn to_sql(&self) -> rusqlite::Result<ToSqlOutput<'_>> {
        let integer = |it: Option<i64>| it.map_or(ValueRef::Null, ValueRef::Integer);
        let list = |list: String| ToSqlOutput::Owned(list.into());
        Ok(ToSqlOutput::Borrowed(match self {
            Value::Ints(it) => {
                return Ok(list(format!("[{}]", it.iter().map(i64::to_string).collect::<Vec<_>>().join(","))));
            }
            Value::Ids(it) => {
                let ids = it.iter().map(|id| format!("\"{}\"", id.simple())).collect::<Vec<_>>();
                return Ok(list(format!("[{}]", ids.join(","))));
            }
            Value::Int(it) => integer(*it),
            Value::Text(it) => it.map_or(ValueRef::Null, |it| ValueRef::Text(it.as_bytes())),
            Value::Id(it) => it.as_ref().map_or(ValueRef::Null, |it| ValueRef::Blob(it.as_bytes())),
            Value::Time(it) => integer(it.map(|it| it.as_microsecond())),
            Value::Flag(it) => integer(Some(i64::from(*it))),
            Value::Bytes(it) => ValueRef::Blob(it),
        }))
    }
}

fn cell(value: ValueRef<'_>) -> rusqlite::Result<Cell> {
    Ok(match value {
        ValueRef::Null => Cell::Null,
        ValueRef::Integer(it) => Cell::Int(it),
        ValueRef::Text(_) => Cell::Text(value.as_str()?.to_owned()),
        // All ids are blobs of 16 bytes.
        ValueRef::Blob(it) => Uuid::from_slice(it).map_or_else(|_| Cell::Bytes(it.to_vec()), Cell::Id),
        ValueRef::Real(it) => return Err(rusqlite::Error::IntegralValueOutOfRange(0, it as i64)),
    })
}

impl Cells for rusqlite::Row<'_> {
    fn cell(&self, index: usize) -> Result<Cell> {
        self.get_ref(index).and_then(cell).map_err(failed)
    }
}

impl From<rusqlite::Error> for Failed {
    fn from(error: rusqlite::Error) -> Self {
        match is_taken(&error) {
            true => Failed::Taken(StoreError::internal(error)),
            false => Failed::Error(failed(error)),
        }
    }
}

/// Binds the parameters of a statement. To SQLite `$1` is a name, so each value is found by it.
fn bind(statement: &mut Statement<'_>, values: &[Value<'_>]) -> rusqlite::Result<()> {
    for index in 1..=statement.parameter_count() {
        let place: Option<usize> = statement.parameter_name(index).and_then(|name| name.get(1..)?.parse().ok());
        let value = place.and_then(|place| values.get(place.checked_sub(1)?));
        let value = value.ok_or(rusqlite::Error::InvalidParameterCount(values.len(), index))?;
        statement.raw_bind_parameter(index, value)?;
    }
    Ok(())
}

pub(super) fn each(db: &Connection, sql: &str, values: &[Value<'_>], visit: Visit<'_>) -> Tried<()> {
    let mut statement = db.prepared(sql)?;
    bind(&mut statement, values)?;
    let mut rows = statement.raw_query();
    while let Some(row) = rows.next()? {
        if !visit(Row::new(row))? {
            break;
        }
    }
    Ok(())
}

#[async_trait]
impl Db for Connection {
    async fn each(&mut self, sql: &str, values: &[Value<'_>], visit: Visit<'_>) -> Tried<()> {
        each(self, sql, values, visit)
    }

    fn dialect(&self) -> &'static Dialect {
        &SQLITE
    }
}

#[async_trait]
impl Db for WriteTx {
    async fn each(&mut self, sql: &str, values: &[Value<'_>], visit: Visit<'_>) -> Tried<()> {
        each(&self.db, sql, values, visit)
    }

    fn dialect(&self) -> &'static Dialect {
        &SQLITE
    }
}

#[async_trait]
impl Tx for WriteTx {
    async fn execute(&mut self, sql: &str, values: &[Value<'_>]) -> Tried<u64> {
        let mut statement = self.db.prepared(sql)?;
        bind(&mut statement, values)?;
        Ok(statement.raw_execute()? as u64)
    }

    async fn insert(&mut self, sql: &str, values: &[Value<'_>]) -> Tried<i64> {
        self.execute(sql, values).await?;
        Ok(self.db.last_insert_rowid())
    }

    async fn log_event(&mut self, agent: i64, event: Event, now: Timestamp) -> Tried<u64> {
        let logged = self.append_event(agent, event, now)?;
        let number = logged.entry.cursor.as_number().unwrap_or(0);
        self.entries.push(logged);
        Ok(number)
    }

    fn stamp(&mut self, at: Timestamp) -> Timestamp {
        self.clock.stamp(at)
    }

    async fn append_message(&mut self, session: i64, message: Columns<'_>, to: Addressee) -> Tried<Option<u64>> {
        let copies = self.append(session, message, &[to])?;
        Ok(copies.first().map(|(_, number)| *number))
    }

    async fn send_message(&mut self, caller: &Agent, message: OutgoingMessage) -> Tried<()> {
        let written = send(self, caller, message)?.into_written();
        self.entries.extend(written.entries);
        Ok(())
    }

    fn put_entry(&mut self, entry: LogEntry) {
        self.entries.push(entry);
    }

    async fn send_all(&mut self, caller: &Agent, to: &[AgentName], draft: &Draft, now: Timestamp) -> Tried<Vec<Sent>> {
        let written = Written::gather(WriteTx::send_all(self, caller, to, draft, now)?);
        self.entries.extend(written.entries);
        Ok(written.answer)
    }

    async fn raise_log_floor(&mut self, agent: i64, number: i64) -> Tried<()> {
        let sql = "UPDATE agents SET log_floor = $2 WHERE id = $1 AND log_floor < $2";
        self.execute(sql, values![agent, number]).await.map(drop)
    }

    async fn check_quota(&mut self, sender: i64, more: Stored) -> Tried<()> {
        let Storage { quotas, sender, office, more } = self.storage(sender, more)?;
        Ok(quotas.check(sender, office, more)?)
    }

    async fn charge(&mut self, agent: i64, more: Stored) -> Tried<()> {
        Ok(WriteTx::charge(self, agent, more)?)
    }

    fn invalidate(&mut self, what: Cached<'_>) {
        match what {
            Cached::Connection(a, b) => drop(self.caches.consent.remove(&pair(a, b))),
            Cached::Households => self.caches.consent.clear(),
            Cached::Session(session) => drop(self.caches.sessions.remove(&session)),
            Cached::Card(name) => drop(self.caches.peers.remove(name)),
            Cached::View(agent) => self.changed.add(agent),
        }
    }

    async fn key_ended(&mut self, _: AgentKey) -> Tried<()> {
        self.key_ended = true;
        Ok(())
    }
}

/// Returns the answer of a verb, which must not wait.
pub(super) fn run<T>(verb: impl Future<Output = Tried<T>>) -> Result<T> {
    match verb.now_or_never() {
        Some(answer) => Ok(answer?),
        None => Err(StoreError::internal("a verb waited in a transaction of SQLite")),
    }
}

#[async_trait]
impl Engine for SqliteStore {
    async fn write(&self, changes: Changes, mut verb: BoxedWrite) -> Result<Written<Answer>> {
        let operation = move |tx: &mut WriteTx| {
            tx.entries.clear();
            let answer = run(verb(tx))?;
            Ok(Written { answer, entries: std::mem::take(&mut tx.entries) })
        };
        self.writer()?.write(Isolation::Savepoint(changes), operation).await
    }

    async fn read(&self, length: ReadLength, verb: BoxedRead) -> Result<Answer> {
        match length {
            ReadLength::Short => self.readers.read_short(move |db| run(verb(db))).await,
            ReadLength::Long => self.readers.read_long(move |db| run(verb(db))).await,
        }
    }

    async fn send_message(&self, caller: &Agent, message: OutgoingMessage) -> Result<Written<Sent>> {
        let caller = caller.clone();
        let is_task = message.kind == Kind::Task;
        let isolation = if is_task { Isolation::Savepoint(Changes::Logs) } else { Isolation::None };
        let send = move |tx: &mut WriteTx| send(tx, &caller, message);
        let outcome = self.writer()?.write(isolation, send).await?;
        // Built here, off the writer's thread.
        Ok(outcome.into_written())
    }

    async fn unindex(&self, messages: Vec<i64>) -> Result<()> {
        let indexer = self.indexer.clone();
        tokio::task::spawn_blocking(move || indexer.remove(&messages)).await.map_err(StoreError::internal)?
    }

    fn account(&self) -> &Account {
        &self.account
    }

    fn key_cache(&self) -> &KeyCache {
        &self.key_cache
    }
}
