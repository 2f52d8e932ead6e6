//! The store on PostgreSQL.
//!
//! Any number of processes may share one database. Sends that wait at the same time share a transaction ([`lane`]);
//! every other verb is a transaction of its own on a connection of the pool.
//!
//! Locks are taken in one order everywhere: mailboxes by agent, sessions by id, then whatever hangs on them. The row of
//! a mailbox is its agent's lock.

mod agents;
mod batch;
mod connect;
mod consent;
mod directory;
mod error;
mod groups;
mod inbox;
mod keep;
mod lane;
mod listen;
mod log;
mod messages;
mod open;
mod page;
mod prune;
mod receipts;
mod replicas;
mod search;
mod tasks;
mod tls;
mod transact;
mod transcripts;
mod verbs;
mod write;

pub use open::PostgresStore;
#[cfg(feature = "test-support")]
pub(crate) use open::migrate_to;
pub(crate) use open::{connect, migrate};
