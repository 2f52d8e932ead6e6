//! What the office in a directory promises, seen from outside.
#![allow(clippy::unwrap_used, reason = "a test may fail by panicking, in its helpers too")]

mod chipset_defects;
mod conformance;
mod nanobot_defects;
mod transcript;
mod transcript_feishu;
mod transcript_processes;
mod world;
