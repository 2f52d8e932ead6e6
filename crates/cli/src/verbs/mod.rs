//! One file a verb.

pub(crate) mod ack;
pub(crate) mod admin;
pub(crate) mod agents;
pub(crate) mod approve;
pub(crate) mod archive;
pub(crate) mod backup;
pub(crate) mod bridge;
pub(crate) mod completions;
pub(crate) mod connect;
pub(crate) mod connections;
pub(crate) mod doctor;
pub(crate) mod export;
pub(crate) mod inbox;
pub(crate) mod init;
pub(crate) mod mcp;
pub(crate) mod move_office;
pub(crate) mod peers;
pub(crate) mod read;
pub(crate) mod register;
pub(crate) mod restore;
pub(crate) mod search;
pub(crate) mod send;
pub(crate) mod serve;
pub(crate) mod task;
pub(crate) mod transcript;
pub(crate) mod watch;
