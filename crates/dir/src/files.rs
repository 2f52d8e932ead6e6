//! Paths, message files, durable writes, locks and watches.

pub(crate) mod durable;
pub(crate) mod failure;
pub(crate) mod layout;
pub(crate) mod lease;
pub(crate) mod lock;
pub(crate) mod message_file;
pub(crate) mod open;
pub(crate) mod paths;
pub(crate) mod step;
pub(crate) mod syncer;
pub(crate) mod tail;
pub(crate) mod version;
pub(crate) mod watch;
