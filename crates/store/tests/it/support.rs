//! Helpers of the tests on PostgreSQL.

use std::sync::Arc;
use std::time::Duration;

use amb_store::PostgresStore;
use amb_testing::PostgresDatabase;
use amb_testing::store::TestStore;

pub(crate) async fn open(database: &PostgresDatabase) -> TestStore {
    TestStore(Arc::new(PostgresStore::open(&database.url()).await.unwrap()))
}

pub(crate) async fn fresh() -> (PostgresDatabase, TestStore) {
    let database = PostgresDatabase::fresh().await;
    let store = open(&database).await;
    (database, store)
}

pub(crate) async fn soon<F: Future>(what: F) -> F::Output {
    tokio::time::timeout(Duration::from_secs(60), what).await.expect("not within a minute")
}
