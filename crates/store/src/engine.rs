//! The database interface of the verbs: statements, locks, logs, and the transaction around them.
//!
//! A verb is an async function over [`Tx`] (or [`Db`], where it only reads) that loads facts, calls core to decide, and
//! writes rows. Both databases run the same statements; parameters are `$1`, `$2`, …. What they do differently (numbers
//! in a log, locks, mail) is a method of [`Tx`]. SQLite's futures are ready when they are first polled, so its writer
//! thread runs a verb without a runtime.

mod dialect;
mod run;
mod value;

use std::any::Any;

use amb_core::doc::Sent;
use amb_core::{AgentName, Draft, Event, Timestamp};
use async_trait::async_trait;
use futures_util::future::BoxFuture;

pub(crate) use dialect::{Dialect, POSTGRES, SQLITE, SqlOf, Wanted};
pub(crate) use run::{read, write, write_unlogged};
pub(crate) use value::{Cell, Cells, FromRow, Row, Value, from_row, values};

use crate::StoreError;
use crate::columns::{Addressee, Columns};
use crate::error::Result;
use crate::key_cache::KeyCache;
use crate::outgoing::OutgoingMessage;
use crate::page_budget::PageBudget;
use crate::quota::{Account, Stored};
use crate::types::{Agent, AgentKey, LogEntry, Written};

/// Why a transaction was not committed.
#[derive(Debug)]
pub enum Failed {
    /// The verb refused, or the database failed.
    Error(StoreError),
    /// A unique constraint refused a row.
    Taken(StoreError),
    /// It conflicted with another transaction (deadlock, serialization): a retry may succeed.
    Retry(StoreError),
}

impl From<StoreError> for Failed {
    fn from(error: StoreError) -> Self {
        Failed::Error(error)
    }
}

impl From<Failed> for StoreError {
    fn from(failed: Failed) -> Self {
        match failed {
            Failed::Error(error) | Failed::Taken(error) | Failed::Retry(error) => error,
        }
    }
}

impl Failed {
    /// The rows to lock have changed since they were read, so that not all locks are held. The transaction is retried.
    pub(crate) fn changed() -> Self {
        Failed::Retry(StoreError::unavailable("the office is busy with the same agents; try again"))
    }
}

/// The result of a verb inside its transaction.
pub(crate) type Tried<T> = Result<T, Failed>;

/// A consistent snapshot to read from.
#[async_trait]
pub trait Db: Send {
    /// Passes the rows of a statement to `visit`, one after the other, until that returns `false`.
    async fn each(&mut self, sql: &str, values: &[Value<'_>], visit: Visit<'_>) -> Tried<()>;

    /// The SQL fragments that differ between the databases.
    fn dialect(&self) -> &'static Dialect;
}

/// Is called with each row; returns whether to continue.
pub(crate) type Visit<'a> = &'a mut (dyn FnMut(Row<'_>) -> Tried<bool> + Send);

/// A transaction. The entries that it appends to logs are returned with the verb's result.
#[async_trait]
pub trait Tx: Db {
    /// Runs a statement. Returns the number of rows it changed.
    async fn execute(&mut self, sql: &str, values: &[Value<'_>]) -> Tried<u64>;

    /// Inserts a row. Returns its id.
    async fn insert(&mut self, sql: &str, values: &[Value<'_>]) -> Tried<i64>;

    /// Locks these mailboxes: all that the transaction needs, in one call. An agent's data changes only under the lock
    /// of its mailbox; module `postgres` lists the order of locks. Does nothing where there is one writer.
    async fn lock(&mut self, _agents: &[i64]) -> Tried<()> {
        Ok(())
    }

    /// Returns whether this transaction has locked the agent's mailbox.
    fn holds(&self, _agent: i64) -> bool {
        true
    }

    /// Takes a lock that is held to the end of the transaction.
    async fn lock_exclusive(&mut self, _what: Exclusive<'_>) -> Tried<()> {
        Ok(())
    }

    /// Appends an event other than mail to an agent's log, whose mailbox is locked. Returns its number there.
    async fn log_event(&mut self, agent: i64, event: Event, now: Timestamp) -> Tried<u64>;

    /// Returns the time of the message that is written next: not before that of the message written last.
    fn stamp(&mut self, at: Timestamp) -> Timestamp;

    /// Appends a message to a session of two agents, and to the log of one of them, whose mailbox is locked. Returns
    /// its number there.
    async fn append_message(&mut self, session: i64, message: Columns<'_>, to: Addressee) -> Tried<Option<u64>>;

    /// Sends a message to an agent, with the same checks as [`Engine::send_message`].
    async fn send_message(&mut self, caller: &Agent, message: OutgoingMessage) -> Tried<()>;

    /// Sends one draft to each of several agents, all or none.
    async fn send_all(&mut self, caller: &Agent, to: &[AgentName], draft: &Draft, now: Timestamp) -> Tried<Vec<Sent>>;

    /// Adds an entry to those that are returned with the verb's result.
    fn put_entry(&mut self, entry: LogEntry);

    /// Writes the entries and messages that were appended so far, where the engine buffers them for one statement.
    async fn flush(&mut self) -> Tried<()> {
        Ok(())
    }

    /// Creates the mailbox row of a new agent, where the database has one (for the last number of its log).
    async fn open_mailbox(&mut self, _agent: i64) -> Tried<()> {
        Ok(())
    }

    /// Records that the entry of this number was removed from an agent's log, so that the number is not used again.
    /// Does nothing where the mailbox row has the last number.
    async fn raise_log_floor(&mut self, _agent: i64, _number: i64) -> Tried<()> {
        Ok(())
    }

    /// Removes messages from the search index, where that is in this database. Else [`Engine::unindex`] does it.
    async fn unindex(&mut self, _messages: &[i64]) -> Tried<()> {
        Ok(())
    }

    /// Fails where `more` would exceed what this sender, or the office, may store.
    async fn check_quota(&mut self, sender: i64, more: Stored) -> Tried<()>;

    /// Adds to the storage usage of this agent. Takes the last lock of the transaction.
    async fn charge(&mut self, agent: i64, more: Stored) -> Tried<()>;

    /// Invalidates what the engine may have cached.
    fn invalidate(&mut self, _what: Cached<'_>) {}

    /// Invalidates the cached keys of this agent when the transaction commits, here and in other processes.
    async fn key_ended(&mut self, agent: AgentKey) -> Tried<()>;
}

/// What an engine may cache.
#[derive(Debug, Clone, Copy)]
pub enum Cached<'a> {
    /// Whether these two may write to each other.
    Connection(i64, i64),
    /// Who is in which household.
    Households,
    /// A session.
    Session(i64),
    /// The card of an agent, and whether it is registered and paused.
    Card(&'a AgentName),
    /// An agent's inbox and histories, where they changed without a new message or log entry.
    View(i64),
}

/// What only one transaction does at a time. Locked before mailboxes.
#[derive(Debug, Clone, Copy)]
pub enum Exclusive<'a> {
    /// Taking a name: agents and groups share one namespace.
    Names,
    /// Founding a household.
    Founding,
    /// Requests of this agent under this idempotency key. Taken before every other lock.
    Key(i64, &'a str),
    /// Claiming from the mailbox of this agent.
    Claims(i64),
    /// Removing old mail: two transactions that remove the same messages could deadlock.
    Removing,
}

/// Statements with typed rows.
#[allow(clippy::manual_async_fn)] // The future of an async fn in a trait has no Send bound.
pub(crate) trait Query: Db {
    /// Returns all rows.
    fn rows<'a, T: FromRow + Send>(
        &'a mut self,
        sql: &'a str,
        values: &'a [Value<'a>],
    ) -> impl Future<Output = Tried<Vec<T>>> + Send + 'a {
        async move {
            let mut found = Vec::new();
            let mut keep = |mut row: Row<'_>| {
                found.push(T::from_row(&mut row)?);
                Ok(true)
            };
            self.each(sql, values, &mut keep).await?;
            Ok(found)
        }
    }

    /// Returns the first rows, up to the size of a page, and whether some were left out. Reads no further than that.
    fn page<'a, T: FromRow + Send + 'a>(
        &'a mut self,
        sql: &'a str,
        values: &'a [Value<'a>],
        bytes: fn(&T) -> usize,
    ) -> impl Future<Output = Tried<(Vec<T>, bool)>> + Send + 'a {
        async move {
            let (mut found, mut budget) = (Vec::new(), PageBudget::new());
            let mut keep = |mut row: Row<'_>| {
                let one = T::from_row(&mut row)?;
                let fits = budget.takes(bytes(&one));
                if fits {
                    found.push(one);
                }
                Ok(fits)
            };
            self.each(sql, values, &mut keep).await?;
            Ok((found, budget.is_full()))
        }
    }

    /// Returns the first row, if there is one.
    fn find<'a, T: FromRow + Send>(
        &'a mut self,
        sql: &'a str,
        values: &'a [Value<'a>],
    ) -> impl Future<Output = Tried<Option<T>>> + Send + 'a {
        async move { Ok(self.rows(sql, values).await?.into_iter().next()) }
    }

    /// Returns the first row; fails where there is none.
    fn one<'a, T: FromRow + Send>(
        &'a mut self,
        sql: &'a str,
        values: &'a [Value<'a>],
    ) -> impl Future<Output = Tried<T>> + Send + 'a {
        async move {
            let found = self.find(sql, values).await?;
            found.ok_or_else(|| StoreError::internal(format!("no row for {sql}")).into())
        }
    }

    /// Returns whether there is a row.
    fn exists<'a>(
        &'a mut self,
        sql: &'a str,
        values: &'a [Value<'a>],
    ) -> impl Future<Output = Tried<bool>> + Send + 'a {
        async move { Ok(self.find::<Present>(sql, values).await?.is_some()) }
    }
}

impl<D: Db + ?Sized> Query for D {}

/// A row whose columns are not read.
struct Present;

impl FromRow for Present {
    fn from_row(_: &mut Row<'_>) -> Result<Self> {
        Ok(Self)
    }
}

/// The result of a verb without its type, so that [`Engine`] is dyn-compatible.
pub(crate) type Answer = Box<dyn Any + Send>;
/// A verb that writes; may run again after [`Failed::Retry`].
pub(crate) type BoxedWrite = Box<dyn for<'t> FnMut(&'t mut dyn Tx) -> BoxFuture<'t, Tried<Answer>> + Send>;
/// A verb that only reads.
pub(crate) type BoxedRead = Box<dyn for<'t> FnOnce(&'t mut dyn Db) -> BoxFuture<'t, Tried<Answer>> + Send>;

/// Whose cached inbox and history pages a verb invalidates.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Changes {
    /// Those of all agents.
    All,
    /// Those of the agents whose logs and sessions it writes to.
    Logs,
}

/// How long a read may take.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ReadLength {
    /// Microseconds.
    Short,
    /// Long enough to block the runtime: SQLite reads on a blocking thread.
    Long,
}

/// A database.
#[async_trait]
pub trait Engine: Send + Sync {
    /// Runs a verb in a transaction of its own. Returns when it is durable.
    async fn write(&self, changes: Changes, verb: BoxedWrite) -> Result<Written<Answer>>;

    /// Runs a verb on one consistent snapshot.
    async fn read(&self, length: ReadLength, verb: BoxedRead) -> Result<Answer>;

    /// Sends a message, in a transaction that it may share with others. Returns when it is durable.
    async fn send_message(&self, caller: &Agent, message: OutgoingMessage) -> Result<Written<Sent>>;

    /// Removes deleted messages from the search index, where that is a database of its own.
    async fn unindex(&self, _messages: Vec<i64>) -> Result<()> {
        Ok(())
    }

    /// The storage limits, and how much the office stores.
    fn account(&self) -> &Account;

    /// The cache of API keys.
    fn key_cache(&self) -> &KeyCache;
}
