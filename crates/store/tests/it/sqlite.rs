//! The stories on SQLite.

use std::sync::Arc;

use amb_store::testing::SqliteFile;
use amb_store::{SqliteStore, Store};

async fn fresh() -> (SqliteFile, Arc<dyn Store>) {
    let file = SqliteFile::fresh();
    let store = SqliteStore::open(&file.path()).await.unwrap();
    (file, Arc::new(store))
}

amb_store::conformance!(fresh());
