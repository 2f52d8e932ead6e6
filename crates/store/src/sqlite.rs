//! The store in one SQLite file.
//!
//! One connection writes, on a thread of its own ([`writer`]), and syncs at each commit ([`disk`]); a few read-only connections
//! read ([`readers`]). Another process on the same file is refused ([`lock`]).

mod backup;
mod cache;
mod checkpoint;
mod disk;
mod disk_space;
mod engine;
mod error;
mod indexing;
mod lock;
mod log;
mod open;
mod plans;
mod readers;
mod restore;
mod search;
mod send;
mod usage;
mod verbs;
mod view_version;
mod writer;

pub use backup::{BytesDone, Contents, backup};
pub(crate) use lock::Lock;
pub use open::SqliteStore;
pub(crate) use restore::advance_cursors;
pub use restore::{Restored, restore};
#[cfg(feature = "test-support")]
pub use {open::migrate_to, plans::seen::scans};
