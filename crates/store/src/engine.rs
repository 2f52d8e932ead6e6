//! What the verbs need of a database: statements, locks, logs, and one transaction around them.
//!
//! A verb is an async function over [`Tx`] (or [`Db`], where it only reads) that loads facts, asks core, and writes rows.
//! Both databases run the same statements where their tables are the same; parameters are `$1`, `$2`, …. What they do
//! differently (numbers in a log, locks, mail) is a method of [`Tx`]. SQLite's futures are ready when they are first polled,
//! so its writer thread runs a verb without a runtime.

mod value;

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};

use amb_core::doc::{History, Sent};
use amb_core::mailbox::HistoryPage;
use amb_core::{AgentName, Draft, Event, Timestamp};
use async_trait::async_trait;
use futures_util::future::BoxFuture;
use uuid::Uuid;

pub(crate) use value::{Cell, Row, Value};
pub(crate) use value::{FromRow, values};

use crate::StoreError;
use crate::columns::Columns;
use crate::error::Result;
use crate::known::KnownKeys;
use crate::outgoing::OutgoingMessage;
use crate::quota::{Account, Stored};
use crate::row::MessageRow;
use crate::types::{Agent, AgentKey, News, Written};

/// Why a transaction did not come to its end.
#[derive(Debug)]
pub enum Failed {
    /// The verb refused, or the database failed.
    Error(StoreError),
    /// A unique constraint refused a row.
    Taken(StoreError),
    /// Another transaction was in the way: the same again may succeed.
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
    /// Locks turned out to be too few, because what they were read from has changed. The transaction begins again.
    pub(crate) fn changed() -> Self {
        Failed::Retry(StoreError::unavailable("the office is busy with the same agents; try again"))
    }
}

/// The answer of a verb inside its transaction.
pub(crate) type Tried<T> = Result<T, Failed>;

/// Where the statements of the two databases differ in a word.
#[derive(Debug, Clone, Copy)]
pub struct Dialect {
    /// The name of a group as its index has it.
    pub(crate) group_key: &'static str,
    /// Locks the rows of a `SELECT` to the end of the transaction.
    pub(crate) for_update: &'static str,
    /// Locks the rows of a `SELECT` against those that refer to them too.
    pub(crate) for_update_key: &'static str,
    /// Keeps the rows of a `SELECT` as they are to the end of the transaction.
    pub(crate) for_share: &'static str,
    /// The boolean that is true, as partial indexes have it.
    pub(crate) yes: &'static str,
    /// The boolean that is not true.
    pub(crate) no: &'static str,
    /// The id of the task `t` as text.
    pub(crate) task_id: &'static str,
    /// Whether the message of the task `t` was delivered to nobody: the office rejected it.
    pub(crate) undelivered_task: &'static str,
}

/// Reading one consistent state.
#[async_trait]
pub trait Db: Send {
    /// The rows that a statement answers.
    async fn query(&mut self, sql: &str, values: &[Value<'_>]) -> Tried<Vec<Row>>;

    /// The words of this database.
    fn dialect(&self) -> Dialect;

    /// Lines of a transcript after a place, with their authors: as many as a page holds, from the first on or from the last.
    async fn lines(
        &mut self,
        transcript: i64,
        after: i64,
        newest_first: bool,
        limit: usize,
    ) -> Tried<Vec<(i64, String, String)>>;

    /// A page of a session as it is before it is marked, and what of it the caller has not read.
    async fn history(&mut self, caller: &Agent, session: Uuid, page: &HistoryPage) -> Tried<(History, Vec<Delivery>)>;
}

/// A message as it came to one agent.
#[derive(Debug, Clone, Copy)]
pub struct Delivery {
    /// Where the database keeps it.
    pub(crate) place: i64,
    pub(crate) sender: i64,
}

/// What a recipient did with a message.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Mark {
    /// Its process was handed it.
    Delivered,
    /// It read it, which ends a claim.
    Read,
}

/// A message for which a mark is new.
#[derive(Debug)]
pub struct Marked {
    pub(crate) message: Uuid,
    pub(crate) sender: i64,
    pub(crate) created_at: Timestamp,
    pub(crate) delivered_at: Option<Timestamp>,
    pub(crate) read_at: Option<Timestamp>,
}

/// A transaction. What is put into logs here is in the answer of the verb.
#[async_trait]
pub trait Tx: Db {
    /// Runs a statement. Returns how many rows it changed.
    async fn execute(&mut self, sql: &str, values: &[Value<'_>]) -> Tried<u64>;

    /// Inserts a row. Returns its id.
    async fn insert(&mut self, sql: &str, values: &[Value<'_>]) -> Tried<i64>;

    /// Locks these mailboxes, all that the transaction needs, once. A mailbox is its agent's lock: see `postgres`.
    async fn lock(&mut self, agents: &[i64]) -> Tried<()>;

    /// Whether this agent's mailbox is locked.
    fn holds(&self, agent: i64) -> bool;

    /// Held to the end of the transaction by whoever takes a name: those of agents and of groups are one space.
    async fn lock_names(&mut self) -> Tried<()>;

    /// Held to the end of the transaction by whoever founds a household.
    async fn lock_founding(&mut self) -> Tried<()>;

    /// Held to the end of the transaction by whoever uses this idempotency key. Taken before every other lock.
    async fn lock_key(&mut self, agent: i64, key: &str) -> Tried<()>;

    /// Appends an event other than mail to the log of an agent, whose mailbox is locked.
    async fn tell(&mut self, agent: i64, event: Event, now: Timestamp) -> Tried<()>;

    /// The time of a message that is written next: later than what overtook it.
    fn stamp(&mut self, at: Timestamp) -> Timestamp;

    /// Adds a message to a session between two, and to the log of one of them, whose mailbox is locked. Returns its place
    /// there.
    async fn post(&mut self, session: i64, message: Columns<'_>, to: i64) -> Tried<Option<(AgentKey, u64)>>;

    /// Sends a message to an agent, as a send does.
    async fn send_message(&mut self, caller: &Agent, message: OutgoingMessage) -> Tried<()>;

    /// Sends one draft to each of several agents, all or none.
    async fn send_all(&mut self, caller: &Agent, to: &[AgentName], draft: &Draft, now: Timestamp) -> Tried<Vec<Sent>>;

    /// Adds to what the verb has put into logs.
    fn put_news(&mut self, news: News);

    /// Writes what logs and sessions got so far, where the database gathers that.
    async fn flush(&mut self) -> Tried<()>;

    /// Makes the mailbox of a new agent.
    async fn open_mailbox(&mut self, agent: i64) -> Tried<()>;

    /// Notes when agents were seen, or that they left.
    async fn seen(&mut self, agents: &[AgentKey], here: bool, now: Timestamp) -> Tried<()>;

    /// The place of a transcript's last line; locks the transcript.
    async fn last_line(&mut self, transcript: i64) -> Tried<i64>;

    /// The place of the line with this message id.
    async fn find_line(&mut self, transcript: i64, message_id: &str) -> Tried<Option<i64>>;

    /// Adds a line at the end.
    async fn add_line(&mut self, line: NewLine<'_>) -> Tried<()>;

    /// Those of these messages that came to an agent.
    async fn deliveries(&mut self, agent: i64, ids: &[Uuid]) -> Tried<HashMap<Uuid, Delivery>>;

    /// Messages in a stretch of an agent's log that were not handed over yet, with their numbers, in order.
    async fn undelivered(&mut self, agent: i64, after: u64, up_to: u64, limit: usize) -> Tried<Vec<(u64, Delivery)>>;

    /// Marks those of an agent's deliveries that are not marked so yet, and returns them. The mailboxes of the agent and of
    /// the senders are locked.
    async fn mark(&mut self, agent: i64, places: &[i64], mark: Mark, now: Timestamp) -> Tried<Vec<Marked>>;

    /// Held to the end of the transaction by whoever claims from this mailbox. Taken before its mailbox.
    async fn lock_claims(&mut self, agent: i64) -> Tried<()>;

    /// Unread mail that nobody holds, with the bytes of each: the urgent first, or in the order of the log.
    async fn unclaimed(
        &mut self,
        agent: i64,
        now: Timestamp,
        limit: usize,
        urgent_first: bool,
    ) -> Tried<Vec<(Delivery, usize)>>;

    /// Holds unread mail until a moment, or gives it back; with `held_at` only what is held then. Returns what was changed.
    async fn hold(
        &mut self,
        agent: i64,
        places: &[i64],
        until: Option<Timestamp>,
        held_at: Option<Timestamp>,
    ) -> Tried<Vec<i64>>;

    /// Messages as they came to an agent, by place.
    async fn delivered_messages(&mut self, agent: i64, places: &[i64]) -> Tried<HashMap<i64, MessageRow>>;

    /// Refuses what would be more than this sender, or the office, may store.
    async fn check_quota(&mut self, sender: i64, more: Stored) -> Tried<()>;

    /// Counts what this agent has added. The last lock of its transaction.
    async fn charge(&mut self, agent: i64, more: Stored) -> Tried<()>;

    /// The connection between these two, or what ends with it, has changed.
    fn connection_changed(&mut self, a: i64, b: i64);

    /// Agents have left their household.
    fn household_changed(&mut self);

    /// This agent's card has changed.
    fn card_changed(&mut self, name: &AgentName);

    /// A key of this agent ends with this transaction, here and in other processes.
    async fn key_ended(&mut self, agent: AgentKey) -> Tried<()>;
}

/// A line about to be written.
#[derive(Debug)]
pub struct NewLine<'a> {
    pub(crate) transcript: i64,
    pub(crate) place: i64,
    pub(crate) author: i64,
    pub(crate) message_id: Option<&'a str>,
    pub(crate) text: &'a str,
    pub(crate) now: Timestamp,
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
        async move { self.query(sql, values).await?.into_iter().map(|row| Ok(T::from_row(row)?)).collect() }
    }

    /// The first row, if there is one.
    fn find<'a, T: FromRow + Send>(
        &'a mut self,
        sql: &'a str,
        values: &'a [Value<'a>],
    ) -> impl Future<Output = Tried<Option<T>>> + Send + 'a {
        async move { Ok(self.query(sql, values).await?.into_iter().next().map(T::from_row).transpose()?) }
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
        async move { Ok(!self.query(sql, values).await?.is_empty()) }
    }
}

impl<D: Db + ?Sized> Query for D {}

/// A verb that writes: `A` is what it was asked.
pub(crate) type WriteVerb<A, T> = for<'t> fn(&'t mut dyn Tx, &'t A) -> BoxFuture<'t, Tried<T>>;
/// A verb that only reads.
pub(crate) type ReadVerb<A, T> = for<'t> fn(&'t mut dyn Db, &'t A) -> BoxFuture<'t, Tried<T>>;

/// A verb whose answer goes elsewhere; may run again after [`Failed::Retry`].
pub(crate) type Write = Box<dyn for<'t> FnMut(&'t mut dyn Tx) -> BoxFuture<'t, Tried<()>> + Send>;
/// A look whose answer goes elsewhere.
pub(crate) type Read = Box<dyn for<'t> FnMut(&'t mut dyn Db) -> BoxFuture<'t, Tried<()>> + Send>;

/// Whose view of its mail changes by a verb.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Changes {
    /// Perhaps anybody's.
    All,
    /// That of the agents whose logs and sessions it writes to.
    Logs,
}

/// How long a look may take.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Look {
    /// Microseconds.
    Short,
    /// So long that it may not keep a thread of the runtime.
    Long,
}

/// A database, as the verbs use it.
#[async_trait]
pub trait Engine: Send + Sync {
    /// Runs a verb in a transaction of its own. Returns, when it is durable, what it put into logs.
    async fn write(&self, changes: Changes, verb: Write) -> Result<Vec<News>>;

    /// Reads one consistent state.
    async fn read(&self, look: Look, verb: Read) -> Result<()>;

    /// What is stored, and the limits on that.
    fn account(&self) -> &Account;

    /// Keys that were asked for lately.
    fn known_keys(&self) -> &KnownKeys;
}

fn into_slot<T>(slot: &Arc<Mutex<Option<T>>>) -> Result<T> {
    let answer = slot.lock().unwrap_or_else(PoisonError::into_inner).take();
    answer.ok_or_else(|| StoreError::internal("a verb ended without an answer"))
}

/// Runs a verb that writes.
pub(crate) async fn write<A, T>(
    engine: &(impl Engine + ?Sized),
    changes: Changes,
    asked: A,
    verb: WriteVerb<A, T>,
) -> Result<Written<T>>
where
    A: Send + Sync + 'static,
    T: Send + 'static,
{
    let (asked, slot) = (Arc::new(asked), Arc::new(Mutex::new(None)));
    let answer = slot.clone();
    let news = engine
        .write(
            changes,
            erase_write(move |tx| {
                let (asked, answer) = (asked.clone(), answer.clone());
                Box::pin(async move {
                    let given = verb(tx, &asked).await?;
                    *answer.lock().unwrap_or_else(PoisonError::into_inner) = Some(given);
                    Ok(())
                })
            }),
        )
        .await?;
    Ok(Written { answer: into_slot(&slot)?, news })
}

/// Runs a verb that only reads.
pub(crate) async fn read<A, T>(engine: &(impl Engine + ?Sized), look: Look, asked: A, verb: ReadVerb<A, T>) -> Result<T>
where
    A: Send + Sync + 'static,
    T: Send + 'static,
{
    let (asked, slot) = (Arc::new(asked), Arc::new(Mutex::new(None)));
    let answer = slot.clone();
    engine
        .read(
            look,
            erase_read(move |db| {
                let (asked, answer) = (asked.clone(), answer.clone());
                Box::pin(async move {
                    let given = verb(db, &asked).await?;
                    *answer.lock().unwrap_or_else(PoisonError::into_inner) = Some(given);
                    Ok(())
                })
            }),
        )
        .await?;
    into_slot(&slot)
}

fn erase_write(verb: impl for<'t> FnMut(&'t mut dyn Tx) -> BoxFuture<'t, Tried<()>> + Send + 'static) -> Write {
    Box::new(verb)
}

fn erase_read(verb: impl for<'t> FnMut(&'t mut dyn Db) -> BoxFuture<'t, Tried<()>> + Send + 'static) -> Read {
    Box::new(verb)
}
