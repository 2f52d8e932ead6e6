//! Database URLs, and what is done with the database that one names.

use std::path::PathBuf;
use std::sync::Arc;

use crate::error::Result;
use crate::{PostgresStore, SqliteStore, Store, StoreError, postgres, sqlite};

/// By how much [`advance_cursors`] advances a log: more than any log can have grown since the backup was made.
pub(crate) const CURSOR_ADVANCE: i64 = 1_000_000;

/// Opens the database that the URL names and migrates its schema. See [`DatabaseUrl::parse`] for the forms.
pub async fn open(url: &str) -> Result<Arc<dyn Store>> {
    match DatabaseUrl::parse(url)? {
        DatabaseUrl::Sqlite(path) => Ok(Arc::new(SqliteStore::open(&path).await?)),
        DatabaseUrl::Postgres(url) => Ok(Arc::new(PostgresStore::open(&url).await?)),
    }
}

/// Advances the numbers of every log by a million, after the database was restored to an earlier state: clients may
/// have cursors from after that state, and would skip new mail under the same numbers. Returns the number of logs. With
/// SQLite no server may have the file open.
///
/// Numbers in a log only have to grow, so this is always safe.
pub async fn advance_cursors(database: &DatabaseUrl) -> Result<u64> {
    match database {
        DatabaseUrl::Sqlite(path) => sqlite::advance_cursors(path).await,
        DatabaseUrl::Postgres(url) => postgres::advance_cursors(url).await,
    }
}

/// Where the database is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum DatabaseUrl {
    /// A file; it and its directory are created where they are missing.
    Sqlite(PathBuf),
    /// A server, as a libpq URL.
    Postgres(String),
}

impl DatabaseUrl {
    /// Parses `sqlite:PATH`, `postgres://…`, `postgresql://…` or `postgresql+asyncpg://…`.
    pub fn parse(url: &str) -> Result<Self> {
        if let Some(rest) = url.strip_prefix("sqlite:") {
            // `sqlite://x` and `sqlite:///x` are how other tools write `x` and `/x`.
            let path = rest.strip_prefix("//").unwrap_or(rest);
            if path.is_empty() || path == ":memory:" {
                return Err(StoreError::invalid("mail must be durable: give a file, as in sqlite:mailbox.db"));
            }
            return Ok(DatabaseUrl::Sqlite(path.into()));
        }
        match url.split_once("://") {
            Some(("postgres" | "postgresql" | "postgresql+asyncpg", rest)) => {
                Ok(DatabaseUrl::Postgres(format!("postgres://{rest}")))
            }
            // The URL may contain a password: only its scheme is repeated.
            Some((scheme, _)) => Err(StoreError::invalid(format!(
                "{scheme:?} is no scheme of a known database; use sqlite:PATH or postgres://…"
            ))),
            None => Err(StoreError::invalid("a database URL is sqlite:PATH or postgres://USER:PASSWORD@HOST/DATABASE")),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_documented_form_is_parsed() {
        let sqlite = |path: &str| DatabaseUrl::Sqlite(path.into());
        let postgres = || DatabaseUrl::Postgres("postgres://u:p@h:5432/d".into());
        assert_eq!(DatabaseUrl::parse("sqlite:mail.db").unwrap(), sqlite("mail.db"));
        assert_eq!(DatabaseUrl::parse("sqlite:/var/mail.db").unwrap(), sqlite("/var/mail.db"));
        assert_eq!(DatabaseUrl::parse("sqlite:///var/mail.db").unwrap(), sqlite("/var/mail.db"));
        for scheme in ["postgres", "postgresql", "postgresql+asyncpg"] {
            assert_eq!(DatabaseUrl::parse(&format!("{scheme}://u:p@h:5432/d")).unwrap(), postgres());
        }
    }

    #[test]
    fn a_refused_url_never_repeats_its_password() {
        for url in ["mysql://u:secret@h/d", "u:secret@h", "sqlite:", "sqlite::memory:", ""] {
            let error = DatabaseUrl::parse(url).unwrap_err();
            assert!(!error.to_string().contains("secret"), "{error}");
        }
    }
}
