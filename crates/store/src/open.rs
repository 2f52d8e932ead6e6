//! From a database URL to a store.

use std::sync::Arc;

use crate::error::Result;
use crate::{DatabaseUrl, PostgresStore, SqliteStore, Store};

/// Opens the database that the URL names and brings its schema up to date. See [`DatabaseUrl::parse`] for the forms.
pub async fn open(url: &str) -> Result<Arc<dyn Store>> {
    match DatabaseUrl::parse(url)? {
        DatabaseUrl::Sqlite(path) => Ok(Arc::new(SqliteStore::open(&path).await?)),
        DatabaseUrl::Postgres(url) => Ok(Arc::new(PostgresStore::open(&url).await?)),
    }
}
