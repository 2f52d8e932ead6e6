//! Moving an office from SQLite to PostgreSQL.
//!
//! Table by table, page by page; each page and the note of how far it goes are one transaction, so a copy that was
//! interrupted goes on where it stopped. The SQLite file is locked meanwhile, and only read.

use std::ops::ControlFlow;
use std::path::Path;

use rusqlite::{Connection, OpenFlags};
use sha2::{Digest, Sha256};
use tokio_postgres::{Client, NoTls};

use crate::error::{Result, conflict};
use crate::sqlite::{Lock, SqliteStore};
use crate::{DatabaseUrl, PostgresStore, Store, StoreError};

mod tables;

use tables::{TABLES, Table};

/// Rows in one transaction.
const PAGE: i64 = 2_000;

/// How far a copy has come.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CopyProgress {
    /// The table under way.
    pub table: &'static str,
    /// Rows of it that are there.
    pub copied: u64,
    /// Rows that it has.
    pub total: u64,
}

/// What a finished copy holds.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Copied {
    /// Rows of each table, the same on both sides.
    pub rows: Vec<(&'static str, u64)>,
    /// SHA-256 over the ids and texts of all messages, the same on both sides.
    pub checksum: String,
}

/// Copies everything from a SQLite file that no server has open to an empty PostgreSQL database, or goes on with a copy
/// that was interrupted. `progress` is told of every page, and may stop the copy; the same call later goes on.
///
/// Counts and checksums of both sides are compared at the end.
pub async fn copy_to_postgres(
    from: &Path,
    to: &str,
    progress: impl FnMut(CopyProgress) -> ControlFlow<()> + Send,
) -> Result<Copied> {
    let DatabaseUrl::Postgres(url) = DatabaseUrl::parse(to)? else {
        return Err(StoreError::invalid("the target of a copy is postgres://USER:PASSWORD@HOST/DATABASE"));
    };
    if !from.exists() {
        return Err(StoreError::not_found(format!("there is no file {}", from.display())));
    }
    // Opening brings both schemas up to date.
    SqliteStore::open(from).await?.close().await;
    PostgresStore::open(&url).await?.close().await;
    let _lock = Lock::take(from)?;
    let source = Connection::open_with_flags(from, OpenFlags::SQLITE_OPEN_READ_ONLY).map_err(StoreError::internal)?;
    let source = Source(std::sync::Mutex::new(source));
    let (mut target, connection) = tokio_postgres::connect(&url, NoTls).await.map_err(failed)?;
    let driver = tokio::spawn(connection);
    let outcome = copy(&source, &mut target, progress).await;
    drop(target);
    // The connection ends when its client is gone.
    let _ = driver.await;
    outcome
}

/// The one connection to the file. Its statements are short, and nobody else waits for this thread.
struct Source(std::sync::Mutex<Connection>);

impl Source {
    fn with<T>(&self, look: impl FnOnce(&Connection) -> rusqlite::Result<T>) -> Result<T> {
        let db = self.0.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
        look(&db).map_err(StoreError::internal)
    }

    fn count(&self, table: &Table) -> Result<u64> {
        let sql = table.count_source();
        let count: i64 = self.with(|db| db.query_row(&sql, [], |row| row.get(0)))?;
        Ok(u64::try_from(count).unwrap_or(0))
    }
}

async fn copy(
    source: &Source,
    target: &mut Client,
    mut progress: impl FnMut(CopyProgress) -> ControlFlow<()> + Send,
) -> Result<Copied> {
    begin(target).await?;
    for table in &TABLES {
        let total = source.count(table)?;
        loop {
            let (last, copied, done) = place(target, table).await?;
            if done {
                break;
            }
            let copied = page(source, target, table, last, copied).await?;
            let now = CopyProgress { table: table.name, copied, total };
            if progress(now).is_break() {
                return Err(StoreError::unavailable("the copy was interrupted; run it again to go on"));
            }
        }
    }
    finish(target).await?;
    compare(source, target).await
}

/// Makes the note of how far the copy has come, in a database that holds nothing else yet.
async fn begin(target: &Client) -> Result<()> {
    let noted = target.query_one("SELECT to_regclass('copy_progress') IS NOT NULL", &[]).await.map_err(failed)?;
    if noted.get(0) {
        return Ok(());
    }
    let used = target.query_one("SELECT EXISTS (SELECT FROM agents)", &[]).await.map_err(failed)?;
    if used.get(0) {
        return Err(conflict("the target has agents already; copy into an empty database"));
    }
    let sql = "CREATE TABLE copy_progress (table_name TEXT PRIMARY KEY, last BIGINT NOT NULL, copied BIGINT NOT NULL,
                                           done BOOLEAN NOT NULL)";
    target.batch_execute(sql).await.map_err(failed)
}

async fn place(target: &Client, table: &Table) -> Result<(i64, i64, bool)> {
    let sql = "SELECT last, copied, done FROM copy_progress WHERE table_name = $1";
    let row = target.query_opt(sql, &[&table.name]).await.map_err(failed)?;
    Ok(row.map_or((-1, 0, false), |row| (row.get(0), row.get(1), row.get(2))))
}

/// Copies one page, and notes how far it goes, in one transaction.
async fn page(source: &Source, target: &mut Client, table: &Table, last: i64, copied: i64) -> Result<u64> {
    let sql = table.read_source();
    let rows: Vec<(i64, String)> = source.with(|db| {
        let mut select = db.prepare_cached(&sql)?;
        let rows = select.query_map([last, PAGE], |row| Ok((row.get(0)?, row.get(1)?)))?;
        rows.collect()
    })?;
    let done = rows.is_empty();
    let last = rows.last().map_or(last, |(key, _)| *key);
    let copied = copied + i64::try_from(rows.len()).unwrap_or(0);
    let documents: Vec<&str> = rows.iter().map(|(_, document)| document.as_str()).collect();
    let json = format!("[{}]", documents.join(","));
    let tx = target.transaction().await.map_err(failed)?;
    if !done {
        tx.execute(&table.write_target(), &[&json]).await.map_err(failed)?;
    }
    let note = "INSERT INTO copy_progress (table_name, last, copied, done) VALUES ($1, $2, $3, $4)
                ON CONFLICT (table_name) DO UPDATE SET last = $2, copied = $3, done = $4";
    tx.execute(note, &[&table.name, &last, &copied, &done]).await.map_err(failed)?;
    tx.commit().await.map_err(failed)?;
    Ok(u64::try_from(copied).unwrap_or(0))
}

/// New rows get numbers after those that were copied.
async fn finish(target: &Client) -> Result<()> {
    for table in ["agents", "connections", "sessions", "tasks", "groups", "transcripts"] {
        let sql = format!(
            "SELECT setval(pg_get_serial_sequence('{table}', 'id'), greatest((SELECT max(id) FROM {table}), 1))"
        );
        target.query_one(&sql, &[]).await.map_err(failed)?;
    }
    target.batch_execute("ANALYZE").await.map_err(failed)
}

/// Counts and checksums of both sides.
async fn compare(source: &Source, target: &Client) -> Result<Copied> {
    let mut rows = Vec::with_capacity(TABLES.len());
    for table in &TABLES {
        let sql = format!("SELECT count(*) FROM {}", table.name);
        let there: i64 = target.query_one(&sql, &[]).await.map_err(failed)?.get(0);
        let (here, there) = (source.count(table)?, u64::try_from(there).unwrap_or(0));
        if here != there {
            return Err(conflict(format!("{} has {here} rows in the file and {there} in the copy", table.name)));
        }
        rows.push((table.name, here));
    }
    let here = source.with(|db| {
        let mut sum = Sha256::new();
        let mut select = db.prepare("SELECT lower(hex(public_id)), content FROM messages ORDER BY id")?;
        let mut found = select.query([])?;
        while let Some(row) = found.next()? {
            sum.update(row.get_ref(0)?.as_bytes()?);
            sum.update(row.get_ref(1)?.as_bytes()?);
        }
        Ok(hex::encode(sum.finalize()))
    })?;
    let mut sum = Sha256::new();
    let mut at = (0_i64, 0_i64);
    loop {
        let sql = "SELECT session_id, seq, public_id, content FROM messages
                   WHERE (session_id, seq) > ($1, $2) ORDER BY session_id, seq LIMIT 5000";
        let page = target.query(sql, &[&at.0, &at.1]).await.map_err(failed)?;
        let Some(last) = page.last() else { break };
        at = (last.get(0), last.get(1));
        for row in &page {
            sum.update(row.get::<_, uuid::Uuid>(2).simple().to_string());
            sum.update(row.get::<_, &str>(3));
        }
    }
    let there = hex::encode(sum.finalize());
    if here != there {
        return Err(conflict("the messages of the copy are not those of the file; copy into an empty database again"));
    }
    Ok(Copied { rows, checksum: here })
}

fn failed(error: tokio_postgres::Error) -> StoreError {
    let detail = "the copy could not go on; run it again to go on where it stopped";
    StoreError::unavailable(detail).caused_by(error)
}
