//! What a bridge promises, with a stand-in for OpenClaw's gateway and an office in memory.

#![allow(clippy::unwrap_used)]

mod acp;
mod crash;
mod exec;
mod faults;
mod flaky;
mod gateway;
mod loops;
mod mailbox;
mod outages;
mod requests;
mod sessions;
mod tasks;
mod turns;
mod world;
