//! Throwaway databases for tests, here and in the crates above.
//!
//! This is the one part of the crate that starts processes and reads the environment; it is built for tests only.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::missing_panics_doc)]

mod cluster;
mod postgres;
mod sqlite;

pub use cluster::OwnCluster;
pub use postgres::PostgresDatabase;
pub use sqlite::SqliteFile;
pub use tokio_postgres::Client as PostgresClient;

/// Makes a SQLite file with an older version of the schema in it.
pub fn migrate_sqlite_to(path: &std::path::Path, version: i32) {
    crate::sqlite::migrate_to(path, version).expect("an older schema");
}
