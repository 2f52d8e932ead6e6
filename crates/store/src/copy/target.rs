//! The PostgreSQL database to copy to, and the progress of the copy in it.

use tokio_postgres::Client;

use super::Copied;
use super::source::RowPage;
use super::tables::{TABLES, Table};
use crate::error::{Result, conflict};
use crate::{StoreError, postgres};

/// The connection to it.
pub(super) struct CopyTarget(pub(super) Client);

/// The state of the target before a copy.
pub(super) enum TargetState {
    /// An office without agents and households.
    Empty,
    /// A partial copy, and the fingerprint of its source.
    Partial(String),
    /// A finished copy.
    Complete { of: String, copied: Copied },
}

/// The progress of a table.
pub(super) struct CopyPlace {
    pub(super) last: String,
    pub(super) copied: i64,
    pub(super) done: bool,
}

impl CopyTarget {
    /// Migrates the schema of a database that has no other tables, and returns its state.
    pub(super) async fn state(&mut self) -> Result<TargetState> {
        let foreign = "SELECT to_regclass('refinery_schema_history') IS NULL
                         AND EXISTS (SELECT FROM pg_tables WHERE schemaname = current_schema())";
        if self.0.query_one(foreign, &[]).await.map_err(failed)?.get(0) {
            return Err(conflict("the target has tables of something else; make an empty database and name that"));
        }
        let busy = "SELECT EXISTS (SELECT FROM pg_stat_activity WHERE datname = current_database()
                                   AND application_name = 'amb' AND pid <> pg_backend_pid())";
        if self.0.query_one(busy, &[]).await.map_err(failed)?.get(0) {
            return Err(conflict("a server works on the target; stop it, and start it again after the move"));
        }
        postgres::migrate(&mut self.0).await?;
        let noted = self.0.query_one("SELECT to_regclass('copy_source') IS NOT NULL", &[]).await.map_err(failed)?;
        if !noted.get::<_, bool>(0) {
            let used = self
                .0
                .query_one("SELECT EXISTS (SELECT FROM agents) OR EXISTS (SELECT FROM households)", &[])
                .await
                .map_err(failed)?;
            return match used.get(0) {
                true => Err(conflict(
                    "the target has agents of its own, or a household; make an empty database and name that",
                )),
                false => Ok(TargetState::Empty),
            };
        }
        let row = self.0.query_one("SELECT fingerprint, checksum FROM copy_source", &[]).await.map_err(failed)?;
        let (of, checksum): (String, Option<String>) = (row.get(0), row.get(1));
        let Some(checksum) = checksum else { return Ok(TargetState::Partial(of)) };
        let mut rows = Vec::with_capacity(TABLES.len());
        for table in &TABLES {
            rows.push((table.name, u64::try_from(self.place(table).await?.copied).unwrap_or(0)));
        }
        Ok(TargetState::Complete { of, copied: Copied { rows, checksum } })
    }

    /// Creates the tables for the progress.
    pub(super) async fn begin(&self, fingerprint: &str) -> Result<()> {
        // A fingerprint is hex, so it needs no escaping. Runs as one transaction.
        let sql = format!(
            "CREATE TABLE copy_progress (table_name TEXT PRIMARY KEY, last TEXT NOT NULL, copied BIGINT NOT NULL,
                                         done BOOLEAN NOT NULL);
             CREATE TABLE copy_source (fingerprint TEXT NOT NULL, checksum TEXT, finished_at TIMESTAMPTZ);
             INSERT INTO copy_source (fingerprint) VALUES ('{fingerprint}')"
        );
        self.0.batch_execute(&sql).await.map_err(failed)
    }

    /// Removes a partial copy.
    pub(super) async fn clear(&self) -> Result<()> {
        let tables: Vec<&str> = TABLES.iter().map(|table| table.name).collect();
        let sql = format!(
            "TRUNCATE {}, search_words, search_cursors, dashboard_links, dashboard_browsers, wake_sessions; DROP TABLE copy_progress, copy_source",
            tables.join(", ")
        );
        self.0.batch_execute(&sql).await.map_err(failed)
    }

    pub(super) async fn place(&self, table: &Table) -> Result<CopyPlace> {
        let sql = "SELECT last, copied, done FROM copy_progress WHERE table_name = $1";
        let row = self.0.query_opt(sql, &[&table.name]).await.map_err(failed)?;
        let beginning = || CopyPlace { last: "[]".to_owned(), copied: 0, done: false };
        Ok(row.map_or_else(beginning, |row| CopyPlace { last: row.get(0), copied: row.get(1), done: row.get(2) }))
    }

    /// Writes a page and the progress in one transaction. Returns the number of rows copied of this table.
    pub(super) async fn write_page(&mut self, table: &Table, page: &RowPage, before: CopyPlace) -> Result<u64> {
        let done = page.count == 0;
        let copied = before.copied + i64::try_from(page.count).unwrap_or(0);
        let tx = self.0.transaction().await.map_err(failed)?;
        if !done {
            tx.execute(&table.write_target(), &[&page.rows]).await.map_err(failed)?;
        }
        let progress = "INSERT INTO copy_progress (table_name, last, copied, done) VALUES ($1, $2, $3, $4)
                    ON CONFLICT (table_name) DO UPDATE SET last = $2, copied = $3, done = $4";
        tx.execute(progress, &[&table.name, &page.last, &copied, &done]).await.map_err(failed)?;
        tx.commit().await.map_err(failed)?;
        Ok(u64::try_from(copied).unwrap_or(0))
    }

    /// Sets the id sequences after the copied rows.
    pub(super) async fn set_sequences(&self) -> Result<()> {
        for table in [
            "households",
            "household_tokens",
            "agents",
            "connections",
            "sessions",
            "messages",
            "tasks",
            "groups",
            "transcripts",
        ] {
            let sql = format!(
                "SELECT setval(pg_get_serial_sequence('{table}', 'id'), greatest((SELECT max(id) FROM {table}), 1))"
            );
            self.0.query_one(&sql, &[]).await.map_err(failed)?;
        }
        self.0.batch_execute("ANALYZE").await.map_err(failed)
    }

    /// Marks the copy as complete: from now on a server may open it.
    pub(super) async fn mark_complete(&self, copied: &Copied) -> Result<()> {
        let sql = "UPDATE copy_source SET checksum = $1, finished_at = now()";
        self.0.execute(sql, &[&copied.checksum]).await.map(drop).map_err(failed)
    }
}

pub(super) fn changed() -> StoreError {
    conflict(
        "the target holds half a copy of another database, or of this one before a server worked on it again; \
         --start-over removes that half and begins anew",
    )
}

pub(super) fn moved_already() -> StoreError {
    conflict("the target holds a finished move of another database, or of this one as it was; nothing was changed")
}

pub(super) fn failed(error: tokio_postgres::Error) -> StoreError {
    let detail = match error.as_db_error() {
        Some(said) => format!("PostgreSQL refused: {}; run the move again to go on where it stopped", said.message()),
        None => "the connection to PostgreSQL was lost; run the move again to go on where it stopped".to_owned(),
    };
    StoreError::unavailable(detail).caused_by(error)
}
