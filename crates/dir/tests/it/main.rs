//! What the office in a directory promises, seen from outside.
#![allow(clippy::unwrap_used, reason = "a test may fail by panicking, in its helpers too")]

mod conformance;
mod transcript;
mod transcript_feishu;
mod transcript_processes;
