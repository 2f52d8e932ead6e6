//! The verbs of a mailbox, one file each.

pub(crate) mod ack;
pub mod archive;
pub(crate) mod carry;
pub(crate) mod claim;
pub(crate) mod consume;
pub(crate) mod deliver;
pub(crate) mod events;
pub(crate) mod find;
pub(crate) mod history;
pub(crate) mod idempotency;
pub(crate) mod inbox;
pub(crate) mod send;
pub(crate) mod tasks;
