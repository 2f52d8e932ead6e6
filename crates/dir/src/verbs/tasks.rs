//! The life of a task in a directory.
//!
//! A task's record lies with the agent that was asked, and everything about it is decided under that agent's lock: so
//! the quota holds however many processes send and accept at once. A record that is lost is made again from the message
//! that brought the task. The owner has a pointer to it. What a kill leaves, see [`crate::journal`].

mod finish;
mod list;
mod moves;
mod open;
mod pointer;
mod record;

pub(crate) use pointer::Pointer;
pub(crate) use record::TaskRecord;
