//! Database URLs.

use std::path::PathBuf;

use crate::StoreError;
use crate::error::Result;

/// Where the database is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum DatabaseUrl {
    /// A file; it and its directory are made where they are missing.
    Sqlite(PathBuf),
    /// A server, in the form that libpq takes.
    Postgres(String),
}

impl DatabaseUrl {
    /// Reads `sqlite:PATH`, `postgres://…`, `postgresql://…` or `postgresql+asyncpg://…`.
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
            // The URL may hold a password: only its scheme is repeated.
            Some((scheme, _)) => Err(StoreError::invalid(format!(
                "no database is spoken to by {scheme:?}; use sqlite:PATH or postgres://…"
            ))),
            None => Err(StoreError::invalid("a database URL is sqlite:PATH or postgres://USER:PASSWORD@HOST/DATABASE")),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_documented_form_is_read() {
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
