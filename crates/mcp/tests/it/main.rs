//! The door as its clients see it: JSON-RPC over streams and over HTTP, on an office in memory.
#![allow(clippy::unwrap_used, reason = "a test that cannot go on fails")]

mod client;
mod faltering;
mod guards;
mod http;
mod pages;
mod protocol;
mod pushes;
mod tools;
mod untrusted;
mod waiting;
