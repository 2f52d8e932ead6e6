//! The store in one SQLite file.
//!
//! One connection writes, on a thread of its own ([`writer`]); a few read-only connections read ([`readers`]). Another
//! process on the same file is refused ([`lock`]).

mod agents;
mod cache;
mod connect;
mod error;
mod inbox;
mod keys;
mod lock;
mod log;
mod messages;
mod open;
mod prune;
mod readers;
mod send;
mod verbs;
mod writer;

pub use open::SqliteStore;
