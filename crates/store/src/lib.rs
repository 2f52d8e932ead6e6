//! What the network office remembers.
//!
//! One trait, [`Store`], in use-case verbs: plain words of `amb-core` go in and out, each verb is one transaction, and a
//! verb that writes returns only when what it wrote is durable. [`open`] gives the backend that a database URL names:
//! SQLite in one file, with nothing to install, or PostgreSQL.
//!
//! # How mail is stored
//!
//! *A mailbox is a log.* Whatever happens to an agent (mail, a request, an approval, a receipt, an overdue task) is one
//! entry in that agent's log, numbered from 1 in commit order without gaps. The number is the cursor. A delivery and its
//! event are the same entry.
//!
//! # Hints
//!
//! A verb that writes returns [`Written`]: its answer, and every [`LogEntry`] that it appended, so that the sockets' owner can push
//! them without reading them back. Two verbs may return in another order than their entries have in a log: whoever pushes compares
//! cursors, and reads [`LogVerbs::events`] where one is missing. Other processes on the same database get hints by [`Store::hint`] and
//! receive them by [`Store::hints`]; [`Store::stale_listeners`] finds listeners that missed one.

#![forbid(unsafe_code)]

mod advance;
mod budget;
mod columns;
mod copy;
mod engine;
mod error;
mod known;
mod newest;
mod open;
mod outgoing;
mod postgres;
mod query;
mod quota;
mod refusals;
mod replicas;
mod resume;
mod row;
mod sqlite;
mod store;
mod tasks;
mod types;
mod unindexed;
#[cfg(test)]
mod unit;
mod url;
mod verbs;

pub use advance::advance_cursors;
pub use copy::{Copied, CopyProgress, CopyStage, copy_to_postgres};
pub use error::{Result, StoreError};
pub use open::open;
pub use postgres::PostgresStore;
pub use query::{AgentsPage, ExportQuery, Handed, InboxPage, MessageQuery, ProfilePatch, ReadPlace, Removed};
pub use replicas::{Charge, Charged, Hint, How, ListenerState, Replicas, StaleListener};
pub use sqlite::{BytesDone, Contents, Restored, SqliteStore, backup, restore};
pub use store::Store;
pub use types::{
    Agent, AgentKey, Ask, CodeMaker, ConnectionDecision, Crossing, Join, KeyHash, LogEntry, NewAgent, NewKey, Once,
    ViewVersion, Written, fold_subject, random_code, to_micros,
};
pub use url::DatabaseUrl;
pub use verbs::{
    AgentVerbs, Browser, ConnectionVerbs, Conversation, ConversationLine, ConversationQuery, DashboardVerbs,
    DirectoryVerbs, GroupVerbs, HistoryVerbs, HouseholdConnection, HouseholdCursor, HouseholdKey, HouseholdPage,
    HouseholdVerbs, Lane, LogVerbs, MAX_COUNTED, MAX_MEMBERS, Member, MemberDetails, MessageVerbs, Needs, NewWakeUps,
    OfficeSize, PruneVerbs, ReceiptVerbs, SaidLine, SearchVerbs, SendVerbs, SignIn, SteppingInVerbs, TaskVerbs,
    TranscriptLine, TranscriptVerbs, Viewer, WaitingRequest, WakeVerbs,
};

/// What tests look at behind the verbs.
#[cfg(feature = "test-support")]
pub mod test_support {
    pub use crate::postgres::migrate_to as postgres_migrate_to;
    pub use crate::sqlite::{migrate_to as sqlite_migrate_to, scans as sqlite_scans};
}
