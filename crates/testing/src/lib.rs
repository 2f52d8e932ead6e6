//! For tests only: conformance suites for offices and stores, an office in memory, and throwaway databases and brokers.
//!
//! Only this crate starts database servers and brokers and reads the environment for them.

#![forbid(unsafe_code)]
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::missing_panics_doc)]

#[cfg(feature = "store")]
mod database;
#[cfg(feature = "http")]
pub mod http;
pub mod memory;
#[cfg(feature = "nats")]
mod nats;
pub mod office;
#[cfg(feature = "store")]
pub mod store;

#[cfg(feature = "store")]
pub use database::{OwnCluster, PostgresClient, PostgresDatabase, SqliteFile, migrate_sqlite_to};
#[cfg(feature = "nats")]
pub use nats::NatsServer;
