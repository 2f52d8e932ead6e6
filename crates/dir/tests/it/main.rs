//! Integration tests of the office in a directory.
#![allow(clippy::unwrap_used, reason = "a test may fail by panicking, in its helpers too")]
#![allow(clippy::print_stdout, reason = "a test that is skipped says so")]

mod agreement;
mod carrying;
mod child;
mod chipset_defects;
mod conformance;
mod foreign_files;
mod foreign_tasks;
mod histories;
mod kills;
mod kills_more;
mod kills_moving;
mod layouts;
mod life;
mod links;
mod nanobot_defects;
mod odd_files;
mod power_cut;
mod processes;
mod python;
mod races;
mod registry;
mod rewritten;
mod same_names;
mod transcript;
mod transcript_feishu;
mod transcript_processes;
mod trouble;
mod verb;
mod world;
