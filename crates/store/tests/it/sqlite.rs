//! The conformance tests on SQLite.

use std::sync::Arc;

use amb_store::{SqliteStore, Store};
use amb_testing::SqliteFile;

async fn fresh() -> (SqliteFile, Arc<dyn Store>) {
    let file = SqliteFile::fresh();
    let store = SqliteStore::open(&file.path()).await.unwrap();
    (file, Arc::new(store))
}

amb_testing::store_conformance!(fresh());
