//! The stories on SQLite.

use std::sync::Arc;

use amb_store::{SqliteStore, Store};
use tempfile::TempDir;

async fn fresh() -> (TempDir, Arc<dyn Store>) {
    let directory = TempDir::new().unwrap();
    let store = SqliteStore::open(&directory.path().join("mail.db")).await.unwrap();
    (directory, Arc::new(store))
}

amb_store::conformance!(fresh());
