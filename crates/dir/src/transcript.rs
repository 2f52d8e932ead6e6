//! Transcripts of group chats with several agents, each in a process of its own.
//!
//! A chat service does not show one bot what another said, so every agent appends what it receives and sends to one
//! file per chat, and reads the others' lines there. The file is JSON lines,
//! `{"role","content","sender","message_id","ts"}`, named as nanobot names it (`feishu:oc_123` is
//! `feishu_oc_123.jsonl`), so that other programs with a GroupTranscriptStore read our files and we read theirs.
//!
//! Guarantees:
//! - An append that has returned is durable. Any number of processes append at once; no line is torn or lost.
//! - Two keys never share a file, even if their names collide: see `ROOT/.owners`, which must stay with the files.
//! - [`TranscriptStore::recent`] reads from the end: `4 × limit + 64` lines, or as many more as it takes to find
//!   `limit` different messages, but at most 4 MiB + 64 KiB × limit. Within these lines a message id counts once (the
//!   first line wins) and lines are ordered by time; a copy of a message whose first line is further back is returned
//!   as the first.
//! - Lines that do not parse are skipped, with a warning in the log that names the file.

mod append;
mod cursor;
pub mod feishu;
mod file;
mod file_name;
mod follow;
mod owner;
mod recent;
mod store;
mod window;

pub use follow::Follow;
pub(crate) use owner::OWNERS;
pub use store::{AppendOutcome, HistorySource, TranscriptStore};
