//! The SQLite file to copy from.

use std::path::Path;

use parking_lot::Mutex;
use rusqlite::types::Value;
use rusqlite::{Connection, OpenFlags, params_from_iter};
use sha2::{Digest, Sha256};

use super::tables::Table;
use crate::StoreError;
use crate::error::Result;

/// Most rows of a page, and the bytes after which it ends.
const ROWS: usize = 2_000;
const BYTES: usize = 8 << 20;

/// The connection to the file. Its statements are short enough to run on the runtime's thread.
pub(super) struct CopySource(Mutex<Connection>);

/// A page of a table.
pub(super) struct RowPage {
    /// The rows as a JSON array.
    pub(super) rows: String,
    pub(super) count: u64,
    /// The key of the last row, as JSON; that of the previous page where there are none.
    pub(super) last: String,
}

impl CopySource {
    pub(super) fn open(path: &Path) -> Result<Self> {
        let db = Connection::open_with_flags(path, OpenFlags::SQLITE_OPEN_READ_ONLY).map_err(StoreError::internal)?;
        Ok(Self(Mutex::new(db)))
    }

    pub(super) fn with<T>(&self, read: impl FnOnce(&Connection) -> rusqlite::Result<T>) -> Result<T> {
        let db = self.0.lock();
        read(&db).map_err(StoreError::internal)
    }

    pub(super) fn count(&self, table: &Table) -> Result<u64> {
        let sql = table.count_source();
        let count: i64 = self.with(|db| db.query_row(&sql, [], |row| row.get(0)))?;
        Ok(u64::try_from(count).unwrap_or(0))
    }

    /// Returns a hash that changes when a server works on the file: over the agents, the end of each log, and the last
    /// changes of what is in no log. Also over the schema version: a partial copy of an older one cannot be continued.
    pub(super) fn fingerprint(&self) -> Result<String> {
        const QUERIES: [&str; 4] = [
            "SELECT 'version ' || max(version) FROM refinery_schema_history",
            "SELECT hex(public_id) || ' ' || log_floor
                    || ' ' || coalesce((SELECT max(number) FROM deliveries WHERE agent_id = agents.id), 0)
                    || ' ' || coalesce((SELECT max(number) FROM events WHERE agent_id = agents.id), 0)
             FROM agents ORDER BY id",
            "SELECT count(*) || ' ' || coalesce(max(last_seen), 0) || ' ' || total(here) FROM presence",
            "SELECT count(*) || ' ' || coalesce(max(updated_at), 0) FROM connections",
        ];
        let sum = self.with(|db| {
            let mut sum = Sha256::new();
            for sql in QUERIES {
                let mut select = db.prepare(sql)?;
                let mut rows = select.query([])?;
                while let Some(row) = rows.next()? {
                    sum.update(row.get_ref(0)?.as_bytes()?);
                    sum.update("\n");
                }
            }
            Ok(sum)
        })?;
        Ok(hex::encode(sum.finalize()))
    }

    /// Returns the next rows after a key.
    pub(super) fn page(&self, table: &Table, last: &str) -> Result<RowPage> {
        let key: Vec<serde_json::Value> = serde_json::from_str(last).map_err(StoreError::internal)?;
        let key = key.into_iter().map(|value| match value {
            serde_json::Value::String(text) => Value::Text(text),
            number => Value::Integer(number.as_i64().unwrap_or(0)),
        });
        let key: Vec<Value> = key.collect();
        let columns = table.key.len();
        let sql = table.read_source(!key.is_empty(), ROWS);
        let mut page = RowPage { rows: "[".to_owned(), count: 0, last: last.to_owned() };
        self.with(|db| {
            let mut select = db.prepare_cached(&sql)?;
            let mut rows = select.query(params_from_iter(key))?;
            while page.rows.len() < BYTES
                && let Some(row) = rows.next()?
            {
                if page.count > 0 {
                    page.rows.push(',');
                }
                page.rows.push_str(row.get_ref(columns)?.as_str()?);
                page.count += 1;
                let key = (0..columns).map(|n| row.get::<_, Value>(n)).collect::<rusqlite::Result<Vec<_>>>()?;
                page.last = as_json(key);
            }
            Ok(())
        })?;
        page.rows.push(']');
        Ok(page)
    }
}

fn as_json(key: Vec<Value>) -> String {
    let key = key.into_iter().map(|value| match value {
        Value::Integer(number) => number.into(),
        Value::Text(text) => text.into(),
        _ => serde_json::Value::Null,
    });
    serde_json::Value::Array(key.collect()).to_string()
}
