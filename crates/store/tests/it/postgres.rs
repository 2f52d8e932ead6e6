//! The conformance tests on PostgreSQL.

use std::sync::Arc;

use amb_store::{PostgresStore, Store};
use amb_testing::PostgresDatabase;

async fn fresh() -> (PostgresDatabase, Arc<dyn Store>) {
    let database = PostgresDatabase::fresh().await;
    let store = PostgresStore::open(&database.url()).await.unwrap();
    (database, Arc::new(store))
}

amb_testing::store_conformance!(fresh());
