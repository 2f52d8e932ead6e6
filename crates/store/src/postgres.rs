//! The store on PostgreSQL.
//!
//! Any number of processes may share one database. Sends that wait at the same time share a transaction ([`send_queue`]);
//! every other verb is a transaction of its own on a connection of the pool.
//!
//! # The order of locks
//!
//! Every transaction takes its locks in this order, so that no two wait for each other:
//!
//! 1. Advisory locks, all held to the end of the transaction: of an idempotency key (by the hash of agent and key),
//!    then of one of these: names, when an agent registers or a group is made (7461627); the claims from one mailbox
//!    (7461628, agent); removing old mail (7461629).
//!    A household's row comes next: FOR SHARE by whoever joins it, FOR UPDATE by whoever takes a member out or adds a machine.
//! 2. Mailboxes, all that it needs, by agent, in one statement ([`write::LockedLogs::lock`] or the batch of sends). The row of a
//!    mailbox is its agent's lock: entries of the agent's log, its unread counts, its connections, its groups, its tasks, its
//!    card, and what others share with it change only under it.
//! 3. Sessions: those it makes, by pair and subject; then those it writes to, by id.
//! 4. Whatever hangs on these: entries, tasks, connections, groups by id and then their members, transcripts, cards.
//! 5. Rows of `usage`, by agent. A plain send takes its sender's row without the sender's mailbox, so nothing is waited for
//!    behind them, but for the answer under an idempotency key, which is last.
//!
//! Outside of this order: bringing the schema up to date holds an advisory lock of its connection, and nothing else of ours
//! runs then; a database that was restored is noted in the row of the office, and then all mailboxes are locked, by agent
//! ([`lineage`]). What only one kind of transaction locks has an order of its own: allowances by limit and key, presence and
//! the cursors of search by agent.
//!
//! Which mailboxes are needed may have to be read before they are locked (the senders of mail, the members of a group).
//! What was read is then read again under the locks, by another statement: one that waited for a lock sees the locked row
//! as it is, and all other rows as they were before it waited. Where the locks turn out to be too few, the transaction is
//! tried again ([`Failed::changed`](crate::engine::Failed)).
//!
//! Pruning and removing old mail take entries without their mailboxes, and only such as nobody else changes any more:
//! events, and mail that was read. Behind these, removing counts in `usage` like everybody.

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
