//! The office in a directory: mailboxes, registry and transcripts in plain files.

pub mod transcript;
