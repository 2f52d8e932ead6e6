//! The client against a real server on a real store.

#![allow(clippy::unwrap_used)] // A test that cannot go on fails.

mod conformance;
mod resume;
mod test_server;
