//! The binary as its users run it: real processes, real files, real databases.

#![allow(clippy::unwrap_used, clippy::print_stdout)] // A test that cannot go on fails, and says why.

mod bridge;
mod bridge_run;
mod demo;
mod directory;
mod hook;
mod household;
mod init;
mod init_clients;
mod keeping;
mod local_office;
mod mcp;
mod mcp_client;
mod mcp_guards;
mod mcp_hangs;
mod mcp_live;
mod mcp_pages;
mod mount;
mod mount_consent;
mod mount_disk;
mod mount_kill;
mod mount_mcp;
mod mount_names;
mod mount_nanobot;
mod mount_restore;
mod mount_world;
mod offices;
mod peers;
mod readme;
mod server_disk;
mod server_histories;
mod server_histories_check;
mod server_kill;
mod server_life;
mod server_load;
mod server_office;
mod server_outage;
mod server_proxy;
mod server_replicas;
mod server_verbs;
mod setup_prompt;
mod short;
mod wake;
mod wake_turns;
mod wake_world;
