//! Group chats that several agents take part in, each from a process of its own.
//!
//! A chat service does not tell one bot what another said, so every agent writes what it hears and says into one file
//! for each chat, and reads from there what the others said. The file is JSON lines,
//! `{"role","content","sender","message_id","ts"}`, named as nanobot names it (`feishu:oc_123` is `feishu_oc_123.jsonl`),
//! so that other programs with a GroupTranscriptStore read ours and we read theirs.
//!
//! What is promised:
//! - An append that has returned is on the disk. Any number of processes append at once; no line is torn or lost.
//! - Two keys never share a file, even where their names collide: see `ROOT/.owners`, which must stay with the files.
//! - [`TranscriptStore::recent`] reads from the end. It looks at `4 × limit + 64` lines, or as many more as it takes to
//!   find `limit` different messages, but never at more than 4 MiB + 64 KiB × limit. Within what it looked at, a message
//!   id counts once (the first line wins) and time decides the order; a copy of a message whose first line lies further
//!   back than that is returned as if it were the first.
//! - Lines that do not parse are skipped, with a warning in the log that names the file.

mod append;
mod cursor;
pub mod feishu;
mod file;
mod file_name;
mod follow;
mod history;
mod owner;
mod recent;
mod store;
mod tail;
mod window;

pub use follow::Follow;
pub use history::HistorySource;
pub(crate) use owner::OWNERS;
pub use store::{AppendOutcome, RecentLine, TranscriptStore};
