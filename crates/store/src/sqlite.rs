//! The store in one SQLite file.
//!
//! One connection writes, on its own thread ([`writer`]), and syncs at each commit ([`files::disk`]). A few connections
//! only read ([`readers`]). Only one process can open the file ([`files::lock`]).

mod engine;
mod error;
mod files;
mod open;
mod plans;
mod readers;
mod search;
mod verbs;
mod writer;

pub use files::backup::{BytesDone, Contents, backup};
pub(crate) use files::lock::Lock;
pub(crate) use files::restore::advance_cursors;
pub use files::restore::{Restored, restore};
pub use open::SqliteStore;
#[cfg(feature = "test-support")]
pub use {open::migrate_to, plans::seen::scans};
