//! The stories on PostgreSQL.

use std::sync::Arc;

use amb_store::testing::PostgresDatabase;
use amb_store::{PostgresStore, Store};

async fn fresh() -> (PostgresDatabase, Arc<dyn Store>) {
    let database = PostgresDatabase::fresh().await;
    let store = PostgresStore::open(&database.url()).await.unwrap();
    (database, Arc::new(store))
}

amb_store::conformance!(fresh());
