//! The store on PostgreSQL.
//!
//! Any number of processes may share one database. Sends that wait at the same time share a transaction
//! ([`send_queue`]); every other verb has its own transaction on a connection of the pool.
//!
//! # The order of locks
//!
//! Every transaction takes its locks in this order, so that there are no deadlocks:
//!
//! 1. Advisory locks, all held to the end of the transaction: that of an idempotency key (hash of agent and key), then
//!    one of these: names, when an agent registers or a group is created (7461627); claims from one mailbox (7461628,
//!    agent); removing old mail (7461629). Then the row of a household: FOR SHARE to join it, FOR UPDATE to remove a
//!    member or add a machine.
//! 2. All mailboxes that it needs, by agent, in one statement ([`write::LockedLogs::lock`] or the batch of sends). The
//!    row of a mailbox is its agent's lock: the agent's log, unread counts, connections, groups, tasks, card, and the
//!    transcripts shared with it change only under it.
//! 3. Sessions: those it creates, by pair and subject; then those it writes to, by id.
//! 4. Rows that belong to these: entries, tasks, connections, groups by id and then their members, transcripts, cards.
//! 5. Rows of `usage`, by agent. A plain send locks its sender's row without the sender's mailbox, so no lock is taken
//!    after these, except for the answer under an idempotency key, which is last.
//!
//! Outside of this order: a migration holds an advisory lock of its session, and no other transaction of ours runs
//! then; a restored database is recorded in the row of the office, and then all mailboxes are locked, by agent
//! ([`lineage`]). Rows that only one kind of transaction locks have their own order: rate limits by name and key,
//! presence and search cursors by agent.
//!
//! A transaction may have to read which mailboxes it needs before it locks them (senders of mail, members of a group).
//! It then reads them again under the locks, by another statement: a statement that waited for a lock sees the locked
//! row as it is, but all other rows as they were before it waited. Where a lock is missing, the transaction is retried
//! ([`Failed::changed`](crate::engine::Failed)).
//!
//! Pruning and removing old mail lock entries without their mailboxes, but only those that nobody else changes any
//! more: events, and mail that was read. After these, removing locks `usage` in the same order.

mod batch;
mod engine;
mod error;
mod lineage;
mod listen;
mod open;
mod replicas;
mod search;
mod send_queue;
mod tls;
mod transact;
mod verbs;
mod write;

pub(crate) use lineage::advance_cursors;
pub use open::PostgresStore;
#[cfg(feature = "test-support")]
pub use open::migrate_to;
pub(crate) use open::{connect, migrate};
