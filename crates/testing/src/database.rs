//! Throwaway databases.

mod cluster;
mod postgres;
mod sqlite;

pub use cluster::OwnCluster;
pub use postgres::PostgresDatabase;
pub use sqlite::SqliteFile;
pub use tokio_postgres::Client as PostgresClient;

/// Makes a SQLite file with an older version of the schema in it.
pub fn migrate_sqlite_to(path: &std::path::Path, version: i32) {
    amb_store::test_support::sqlite_migrate_to(path, version).expect("an older schema");
}
