//! What the verbs need of a database: statements, locks, logs, and one transaction around them.
//!
//! A verb is an async function over [`Tx`] (or [`Db`], where it only reads) that loads facts, asks core, and writes rows.
//! Both databases run the same statements where their tables are the same; parameters are `$1`, `$2`, …. What they do
//! differently (numbers in a log, locks, mail) is a method of [`Tx`]. SQLite's futures are ready when they are first polled,
//! so its writer thread runs a verb without a runtime.

mod dialect;
mod run;
mod value;

use amb_core::doc::Sent;
use amb_core::{AgentName, Draft, Event, Timestamp};
use async_trait::async_trait;
use futures_util::future::BoxFuture;

pub(crate) use dialect::{Dialect, POSTGRES, SQLITE, SqlOf, Wanted};
pub(crate) use run::{read, write};
pub(crate) use value::{Cell, Cells, FromRow, Row, Value, from_row, values};

use crate::StoreError;
use crate::budget::Budget;
use crate::columns::{Addressee, Columns};
use crate::error::Result;
use crate::known::KnownKeys;
use crate::outgoing::OutgoingMessage;
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
    /// What has to be locked has changed since it was read, so that the locks taken are too few. The transaction is retried.
    pub(crate) fn changed() -> Self {
        Failed::Retry(StoreError::unavailable("the office is busy with the same agents; try again"))
    }
}

/// The result of a verb inside its transaction.
pub(crate) type Tried<T> = Result<T, Failed>;

/// Reading one consistent state.
#[async_trait]
pub trait Db: Send {
    /// Gives the rows that a statement returns to `visit`, one after the other, until that returns `false`.
    async fn each(&mut self, sql: &str, values: &[Value<'_>], visit: Visit<'_>) -> Tried<()>;

    /// Where the statements of this database differ.
    fn dialect(&self) -> &'static Dialect;
}

/// What is done with each row; `false` says that no more are wanted.
pub(crate) type Visit<'a> = &'a mut (dyn FnMut(Row<'_>) -> Tried<bool> + Send);

/// A transaction. The entries that it appends to logs are returned with the verb's result.
#[async_trait]
pub trait Tx: Db {
    /// Runs a statement. Returns how many rows it changed.
    async fn execute(&mut self, sql: &str, values: &[Value<'_>]) -> Tried<u64>;

    /// Inserts a row. Returns its id.
    async fn insert(&mut self, sql: &str, values: &[Value<'_>]) -> Tried<i64>;

    /// Locks these mailboxes: all that the transaction needs, in one call. What belongs to an agent changes only under the lock of
    /// its mailbox; `postgres` lists the order of locks. Where there is one writer, nothing has to be locked.
    async fn lock(&mut self, _agents: &[i64]) -> Tried<()> {
        Ok(())
    }

    /// Whether this agent's mailbox is locked.
    fn holds(&self, _agent: i64) -> bool {
        true
    }

    /// Takes a lock that is held to the end of the transaction.
    async fn lock_exclusive(&mut self, _what: Exclusive<'_>) -> Tried<()> {
        Ok(())
    }

    /// Appends an event other than mail to the log of an agent, whose mailbox is locked. Returns its number there.
    async fn log_event(&mut self, agent: i64, event: Event, now: Timestamp) -> Tried<u64>;

    /// The time for the message that is written next: later than that of a message that was written before it.
    fn stamp(&mut self, at: Timestamp) -> Timestamp;

    /// Adds a message to a session between two, and to the log of one of them, whose mailbox is locked. Returns its number
    /// there.
    async fn append_message(&mut self, session: i64, message: Columns<'_>, to: Addressee) -> Tried<Option<u64>>;

    /// Sends a message to an agent, as a send does.
    async fn send_message(&mut self, caller: &Agent, message: OutgoingMessage) -> Tried<()>;

    /// Sends one draft to each of several agents, all or none.
    async fn send_all(&mut self, caller: &Agent, to: &[AgentName], draft: &Draft, now: Timestamp) -> Tried<Vec<Sent>>;

    /// Adds to what the verb has put into logs.
    fn put_entry(&mut self, entry: LogEntry);

    /// Writes the entries and messages that were added so far, where the engine collects them for one statement.
    async fn flush(&mut self) -> Tried<()> {
        Ok(())
    }

    /// Makes the mailbox of a new agent, where a row of its own has the last number of its log.
    async fn open_mailbox(&mut self, _agent: i64) -> Tried<()> {
        Ok(())
    }

    /// The entry of this number was removed from an agent's log: no later entry gets its number. Nothing to do where a row of
    /// the mailbox has the last number.
    async fn keep_floor(&mut self, _agent: i64, _number: i64) -> Tried<()> {
        Ok(())
    }

    /// Removes messages from the index of words, where that is in this database. Else [`Engine::forget_words`] does it.
    async fn remove_words(&mut self, _messages: &[i64]) -> Tried<()> {
        Ok(())
    }

    /// Refuses what would be more than this sender, or the office, may store.
    async fn check_quota(&mut self, sender: i64, more: Stored) -> Tried<()>;

    /// Counts what this agent has added. The last lock of its transaction.
    async fn charge(&mut self, agent: i64, more: Stored) -> Tried<()>;

    /// Something changed that an engine may have cached.
    fn changed(&mut self, _what: Cached<'_>) {}

    /// A key of this agent ends with this transaction, here and in other processes.
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
    /// The card of an agent, and whether it is there and paused.
    Card(&'a AgentName),
    /// What an agent is shown of its mail, beside what was added to its logs and sessions.
    View(i64),
}

/// Things that only one transaction does at a time. Locked before mailboxes.
#[derive(Debug, Clone, Copy)]
pub enum Exclusive<'a> {
    /// Taking a name: those of agents and of groups are one space.
    Names,
    /// Founding a household.
    Founding,
    /// What this agent does under this idempotency key. Taken before every other lock.
    Key(i64, &'a str),
    /// Claiming from the mailbox of this agent.
    Claims(i64),
    /// Removing old mail: two that remove the same messages would wait for each other.
    Removing,
}

/// Statements whose rows have a type.
#[allow(clippy::manual_async_fn)] // An async fn of a trait does not say that its future is Send.
pub(crate) trait Query: Db {
    /// All rows.
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

    /// The first rows, as many as a page has bytes for, and whether some were left out. Those are not kept in memory.
    fn page<'a, T: FromRow + Send + 'a>(
        &'a mut self,
        sql: &'a str,
        values: &'a [Value<'a>],
        bytes: fn(&T) -> usize,
    ) -> impl Future<Output = Tried<(Vec<T>, bool)>> + Send + 'a {
        async move {
            let (mut found, mut budget) = (Vec::new(), Budget::page());
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

    /// The first row, if there is one.
    fn find<'a, T: FromRow + Send>(
        &'a mut self,
        sql: &'a str,
        values: &'a [Value<'a>],
    ) -> impl Future<Output = Tried<Option<T>>> + Send + 'a {
        async move { Ok(self.rows(sql, values).await?.into_iter().next()) }
    }

    /// The row that is there.
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

    /// Whether there is a row.
    fn exists<'a>(
        &'a mut self,
        sql: &'a str,
        values: &'a [Value<'a>],
    ) -> impl Future<Output = Tried<bool>> + Send + 'a {
        async move { Ok(self.find::<Present>(sql, values).await?.is_some()) }
    }
}

impl<D: Db + ?Sized> Query for D {}

/// A row of which nothing but its presence counts.
struct Present;

impl FromRow for Present {
    fn from_row(_: &mut Row<'_>) -> Result<Self> {
        Ok(Self)
    }
}

/// A verb that keeps its result itself, so that engines need no type parameter; may run again after [`Failed::Retry`].
pub(crate) type BoxedWrite = Box<dyn for<'t> FnMut(&'t mut dyn Tx) -> BoxFuture<'t, Tried<()>> + Send>;
/// The same for a verb that only reads.
pub(crate) type BoxedRead = Box<dyn for<'t> FnMut(&'t mut dyn Db) -> BoxFuture<'t, Tried<()>> + Send>;

/// Whose cached inbox and history pages a verb makes stale.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Changes {
    /// Everybody's.
    All,
    /// Those of the agents whose logs and sessions it writes to.
    Logs,
}

/// How long a read may take.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ReadLength {
    /// Microseconds.
    Short,
    /// So long that it would block a thread of the runtime: it gets a thread of its own.
    Long,
}

/// A database, as the verbs use it.
#[async_trait]
pub trait Engine: Send + Sync {
    /// Runs a verb in a transaction of its own. Returns, when it is durable, what it put into logs.
    async fn write(&self, changes: Changes, verb: BoxedWrite) -> Result<Vec<LogEntry>>;

    /// Reads one consistent state.
    async fn read(&self, look: ReadLength, verb: BoxedRead) -> Result<()>;

    /// Sends a message, in a transaction that it may share with others. Returns when it is durable.
    async fn send_message(&self, caller: &Agent, message: OutgoingMessage) -> Result<Written<Sent>>;

    /// Removes messages that are gone from the index of words, where that is a database of its own.
    async fn forget_words(&self, _messages: Vec<i64>) -> Result<()> {
        Ok(())
    }

    /// What is stored, and the limits on that.
    fn account(&self) -> &Account;

    /// A cache of API keys.
    fn known_keys(&self) -> &KnownKeys;
}
