//! Tasks in a directory.
//!
//! A task's record is in the state of the assignee, and everything about it is decided under the assignee's lock, so
//! the quota holds however many processes send and accept at once. A lost record is rebuilt from the message that
//! brought the task. The owner has a pointer to the record. See [`crate::journal`] for crash recovery.

mod finish;
mod list;
mod moves;
mod open;
mod pointer;
mod record;

pub(crate) use pointer::Pointer;
pub(crate) use record::TaskRecord;
