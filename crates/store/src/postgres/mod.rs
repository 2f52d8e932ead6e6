//! The store on PostgreSQL.
//!
//! Any number of processes may share one database. Sends that wait at the same time share a transaction ([`lane`]);
//! every other verb is a transaction of its own on a connection of the pool.
//!
//! # The order of locks
//!
//! Every transaction takes its locks in this order, so that no two wait for each other:
//!
//! 1. Advisory locks, at most one: of names (registering, making a group), of the claims from one mailbox, of removing old
//!    mail.
//! 2. Mailboxes, all that it needs, by agent, in one statement ([`write::Heads::lock`] or the batch of sends). The row of a
//!    mailbox is its agent's lock: entries of the agent's log, its unread counts, its connections, its tasks and its card
//!    change only under it.
//! 3. Sessions: those it makes, by pair and subject; then those it writes to, by id.
//! 4. Whatever hangs on these: entries, tasks, connections, members, cards.
//!
//! Which mailboxes are needed may have to be read before they are locked (the senders of mail, the members of a group).
//! What was read is then read again under the locks, by another statement: one that waited for a lock sees the locked row
//! as it is, and all other rows as they were before it waited. Where the locks turn out to be too few, the transaction is
//! tried again ([`error::Trouble::Changed`]).
//!
//! Pruning and removing old mail take entries without their mailboxes, and only such as nobody else changes any more:
//! events, and mail that was read. Indexing locks the cursors of search by agent and nothing else.

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
mod lineage;
mod listen;
mod log;
mod messages;
mod once;
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

pub(crate) use lineage::advance_cursors;
pub use open::PostgresStore;
#[cfg(feature = "test-support")]
pub(crate) use open::migrate_to;
pub(crate) use open::{connect, migrate};
