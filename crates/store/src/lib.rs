//! The storage of the network office.
//!
//! One trait, [`Store`], in use-case verbs: types of `amb-core` go in and out, each verb is one transaction, and a verb
//! that writes returns only when what it wrote is durable. [`open`] opens the backend that a database URL names: SQLite
//! in one file, with nothing to install, or PostgreSQL.
//!
//! # How mail is stored
//!
//! *A mailbox is a log.* Everything that happens to an agent (mail, a request, an approval, a receipt, an overdue task)
//! is one entry in that agent's log, numbered from 1 in commit order without gaps. The number is the cursor. A delivery
//! and its event are the same entry.
//!
//! # Hints
//!
//! A verb that writes returns [`Written`]: its answer, and every [`LogEntry`] that it appended, so that the server can
//! push them to sockets without reading them back. Two verbs may return in another order than their entries have in a
//! log: the server compares cursors before it pushes, and reads [`LogVerbs::events`] where an entry is missing.
//! [`Store::hint`] sends hints to other processes on the same database, [`Store::hints`] receives them, and
//! [`Store::stale_listeners`] finds listeners that missed one.

#![forbid(unsafe_code)]

mod columns;
mod copy;
mod database;
mod engine;
mod error;
mod index_queue;
mod key_cache;
mod message_clock;
mod outgoing;
mod page_budget;
mod postgres;
mod query;
mod quota;
mod refusals;
mod replicas;
mod row;
mod sqlite;
mod store;
mod task_row;
#[cfg(test)]
mod testing;
mod types;
mod verbs;

pub use copy::{Copied, CopyProgress, CopyStage, copy_to_postgres};
pub use database::{DatabaseUrl, advance_cursors, open};
pub use error::{Result, StoreError};
pub use postgres::PostgresStore;
pub use query::{AgentsPage, ExportQuery, Handed, InboxPage, MessageQuery, ReadPlace, Removed};
pub use replicas::{Charge, ChargeMode, Charged, Hint, ListenerState, Replicas, StaleListener};
pub use sqlite::{BytesDone, Contents, Restored, SqliteStore, backup, restore};
pub use store::Store;
pub use types::{
    Agent, AgentKey, Ask, CodeMaker, ConnectionDecision, Crossing, Join, KeyHash, LogEntry, NewAgent, NewKey, Once,
    ViewVersion, Written, fold_subject, random_code, to_micros,
};
pub use verbs::{
    AgentVerbs, Browser, ConnectionVerbs, Conversation, ConversationLine, ConversationQuery, DashboardVerbs,
    DirectoryVerbs, GroupVerbs, HistoryVerbs, HouseholdConnection, HouseholdCursor, HouseholdKey, HouseholdPage,
    HouseholdVerbs, Lane, LogVerbs, MAX_COUNTED, MAX_MEMBERS, Member, MemberDetails, MessageVerbs, Needs, NewWakeUps,
    OfficeSize, PruneVerbs, ReceiptVerbs, SaidLine, SearchVerbs, SendVerbs, SignIn, SteppingInVerbs, TaskVerbs,
    TranscriptLine, TranscriptVerbs, Viewer, WaitingRequest, WakeVerbs,
};

/// Access to migrations and query plans for tests.
#[cfg(feature = "test-support")]
pub mod test_support {
    pub use crate::postgres::migrate_to as postgres_migrate_to;
    pub use crate::sqlite::{migrate_to as sqlite_migrate_to, scans as sqlite_scans};
}
