//! What the office in a directory promises, seen from outside.
#![allow(clippy::unwrap_used, reason = "a test may fail by panicking, in its helpers too")]
#![allow(clippy::print_stdout, reason = "a test that is skipped says so")]

mod agreement;
mod carrying;
mod child;
mod chipset_defects;
mod conformance;
mod histories;
mod kills;
mod life;
mod nanobot_defects;
mod odd_files;
mod processes;
mod python;
mod races;
mod registry;
mod transcript;
mod transcript_feishu;
mod transcript_processes;
mod trouble;
mod verb;
mod world;
