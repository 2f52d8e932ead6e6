//! The search index: a separate file beside the database, written by its own connection. Sends do not wait for it, and
//! it can be rebuilt from the logs at any time.

mod indexing;

use fs_err::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use parking_lot::Mutex;
use rusqlite::{Connection, OptionalExtension, params};

use super::error::failed;
use super::open::tune;
use super::plans::Prepared;
use crate::StoreError;
use crate::error::Result;
use crate::index_queue::{Indexed, entries_of_each};
use crate::types::{AgentKey, log_number};

/// Most bytes of text in one transaction; the rest is indexed by the next.
const MAX_BYTES: usize = 8 << 20;
/// The version of the file's schema; a file of another version is deleted and rebuilt.
const VERSION: i64 = 2;
/// Low bits of a document id, which number the messages of one microsecond.
const SEQUENCE_BITS: u32 = 12;

/// `doc` is microseconds << 12 | a sequence number, so that the newest hits come first without sorting. `who` has the
/// term m<agent> for everybody who may find the message, and f<agent> for its sender.
const SCHEMA: &str = "
    CREATE TABLE docs (doc INTEGER PRIMARY KEY, message_id INTEGER NOT NULL UNIQUE) STRICT;
    CREATE VIRTUAL TABLE words USING fts5 (
        content, subject, who, content = '', contentless_delete = 1, tokenize = 'unicode61 remove_diacritics 2'
    );
    CREATE TABLE cursors (agent_id INTEGER PRIMARY KEY, number INTEGER NOT NULL) STRICT;
    PRAGMA user_version = 2;";

/// Returns the path of a database's index.
pub(super) fn path_of(database: &Path) -> PathBuf {
    PathBuf::from(format!("{}-search", database.display()))
}

/// Deletes the index of a database that nobody has open; the next start rebuilds it.
pub(super) fn remove(database: &Path) -> Result<()> {
    for suffix in ["", "-wal", "-shm"] {
        let file = PathBuf::from(format!("{}{suffix}", path_of(database).display()));
        if file.exists() {
            fs_err::remove_file(&file).map_err(StoreError::internal)?;
        }
    }
    Ok(())
}

/// The one connection that writes the index.
#[derive(Debug, Clone)]
pub(super) struct Indexer(Arc<Mutex<Connection>>);

/// A message to index.
pub(super) struct Doc {
    message: i64,
    at: i64,
    content: String,
    subject: String,
    who: String,
}

/// Entries of several agents' logs.
#[derive(Default)]
pub(super) struct Pages {
    docs: Vec<Doc>,
    /// The number of the last entry read in each log.
    last: Vec<(AgentKey, u64)>,
    pub(super) indexed: Indexed,
}

impl Indexer {
    /// Opens the index; creates it anew where it is missing, corrupt or of another version.
    pub(super) fn open(database: &Path) -> Result<Self> {
        let path = path_of(database);
        let db = match open(&path) {
            Ok(db) => db,
            Err(error) => {
                tracing::warn!(%error, "the search index is rebuilt");
                remove(database)?;
                open(&path).map_err(failed)?
            }
        };
        Ok(Self(Arc::new(Mutex::new(db))))
    }

    /// Indexes mail, and stores the new cursor of each log.
    pub(super) fn add(&self, pages: &Pages) -> Result<()> {
        if pages.last.is_empty() {
            return Ok(());
        }
        let mut db = self.0.lock();
        let tx = db.transaction().map_err(failed)?;
        for doc in &pages.docs {
            let known = tx
                .prepared("SELECT 1 FROM docs WHERE message_id = ?1")
                .and_then(|mut select| select.exists([doc.message]))
                .map_err(failed)?;
            if !known {
                add(&tx, doc).map_err(failed)?;
            }
        }
        for (agent, last) in &pages.last {
            tx.prepared(
                "INSERT INTO cursors (agent_id, number) VALUES (?1, ?2)
                 ON CONFLICT (agent_id) DO UPDATE SET number = max(number, excluded.number)",
            )
            .and_then(|mut insert| insert.execute(params![agent.0, i64::try_from(*last).unwrap_or(0)]))
            .map_err(failed)?;
        }
        tx.commit().map_err(failed)
    }

    /// Removes deleted messages from the index.
    pub(super) fn remove(&self, messages: &[i64]) -> Result<()> {
        let mut db = self.0.lock();
        let tx = db.transaction().map_err(failed)?;
        for message in messages {
            let doc: Option<i64> = tx
                .prepared("DELETE FROM docs WHERE message_id = ?1 RETURNING doc")
                .and_then(|mut delete| delete.query_row([message], |row| row.get(0)).optional())
                .map_err(failed)?;
            if let Some(doc) = doc {
                tx.prepared("DELETE FROM words WHERE rowid = ?1")
                    .and_then(|mut delete| delete.execute([doc]))
                    .map_err(failed)?;
            }
        }
        tx.commit().map_err(failed)
    }
}

fn open(path: &Path) -> rusqlite::Result<Connection> {
    // The index contains the words of the mail, so its mode is that of the database; SQLite gives its other files the
    // same mode.
    fs_err::OpenOptions::new().create(true).append(true).mode(0o600).open(path).map_err(|error| {
        let reason = Some(error.to_string());
        rusqlite::Error::SqliteFailure(rusqlite::ffi::Error::new(rusqlite::ffi::SQLITE_CANTOPEN), reason)
    })?;
    let db = Connection::open(path)?;
    tune(&db)?;
    // Entries that a crash loses are indexed again.
    db.execute_batch("PRAGMA journal_mode = WAL; PRAGMA synchronous = NORMAL;")?;
    let version: i64 = db.query_row("PRAGMA user_version", [], |row| row.get(0))?;
    let empty: bool = db.query_row("SELECT count(*) = 0 FROM sqlite_schema", [], |row| row.get(0))?;
    if empty {
        db.execute_batch(SCHEMA)?;
    } else if version != VERSION {
        return Err(rusqlite::Error::InvalidQuery);
    }
    Ok(db)
}

fn add(db: &Connection, doc: &Doc) -> rusqlite::Result<()> {
    let first = doc.at << SEQUENCE_BITS;
    let last = first | ((1 << SEQUENCE_BITS) - 1);
    let newest: Option<i64> = db
        .prepared("SELECT max(doc) FROM docs WHERE doc BETWEEN ?1 AND ?2")?
        .query_row([first, last], |row| row.get(0))?;
    let mut id = newest.map_or(first, |newest| newest + 1);
    // More than 4,096 of one microsecond get the numbers of the next microseconds.
    while id > last && db.prepared("SELECT 1 FROM docs WHERE doc = ?1")?.exists([id])? {
        id += 1;
    }
    db.prepared("INSERT INTO docs (doc, message_id) VALUES (?1, ?2)")?.execute([id, doc.message])?;
    db.prepared("INSERT INTO words (rowid, content, subject, who) VALUES (?1, ?2, ?3, ?4)")?.execute(params![
        id,
        doc.content,
        doc.subject,
        doc.who
    ])?;
    Ok(())
}

/// Returns every agent whose log has entries that are not indexed. Scans all logs; called once after a start.
pub(super) fn behind(db: &Connection) -> Result<Vec<AgentKey>> {
    db.prepared(
        "SELECT a.id FROM agents a LEFT JOIN search.cursors c ON c.agent_id = a.id
         WHERE EXISTS (SELECT 1 FROM deliveries e WHERE e.agent_id = a.id AND e.number > coalesce(c.number, 0))",
    )
    .and_then(|mut select| select.query_map([], |row| row.get(0).map(AgentKey)).and_then(Iterator::collect))
    .map_err(failed)
}

/// Returns messages in the index that were deleted: a process died before it unindexed them. Scans the whole index;
/// called once after a start.
pub(super) fn orphans(db: &Connection) -> Result<Vec<i64>> {
    db.prepared(
        "SELECT d.message_id FROM search.docs d WHERE NOT EXISTS (SELECT 1 FROM main.messages m WHERE m.id = d.message_id)",
    )
    .and_then(|mut select| select.query_map([], |row| row.get(0)).and_then(Iterator::collect))
    .map_err(failed)
}

/// Reads the next entries of these agents' logs that are not indexed.
pub(super) fn pages(db: &Connection, agents: &[AgentKey]) -> Result<Pages> {
    let each = entries_of_each(agents.len());
    let (mut pages, mut bytes) = (Pages::default(), 0);
    for agent in agents {
        match bytes < MAX_BYTES {
            true => bytes += page(db, *agent, each, &mut pages)?,
            false => pages.indexed.again.push(*agent),
        }
    }
    Ok(pages)
}

/// Adds the next entries of an agent's log. Returns the bytes of their text.
fn page(db: &Connection, agent: AgentKey, most: usize, pages: &mut Pages) -> Result<usize> {
    let done: Option<i64> = db
        .prepared("SELECT number FROM search.cursors WHERE agent_id = ?1")
        .and_then(|mut select| select.query_row([agent.0], |row| row.get(0)).optional())
        .map_err(failed)?;
    let mut select = db
        .prepared(
            "SELECT e.number, m.id, m.created_at, m.content, s.subject, m.sender_id,
                    iif(m.kind = 'task_update', m.reply_to, NULL)
             FROM deliveries e JOIN messages m ON m.id = e.message_id JOIN sessions s ON s.id = m.session_id
             WHERE e.agent_id = ?1 AND e.number > ?2 ORDER BY e.number LIMIT ?3",
        )
        .map_err(failed)?;
    let limit = i64::try_from(most).unwrap_or(i64::MAX);
    let mut found = select.query([agent.0, done.unwrap_or(0), limit]).map_err(failed)?;
    let (mut last, mut entries, mut bytes) = (0, 0, 0);
    while bytes < MAX_BYTES
        && let Some(row) = found.next().map_err(failed)?
    {
        last = log_number(row.get(0).map_err(failed)?);
        entries += 1;
        let (message, sender): (i64, i64) = (row.get(1).map_err(failed)?, row.get(5).map_err(failed)?);
        let mut who = format!("m{sender} f{sender}");
        for recipient in recipients(db, message)? {
            who.push_str(&format!(" m{recipient}"));
        }
        let content: String = row.get(3).map_err(failed)?;
        bytes += content.len();
        let (at, subject) = (row.get(2).map_err(failed)?, row.get(4).map_err(failed)?);
        pages.docs.push(Doc { message, at, content, subject, who });
        let answered: Option<Vec<u8>> = row.get(6).map_err(failed)?;
        if let Some(rejected) = answered.map(|task| undelivered(db, agent, &task)).transpose()?.flatten() {
            bytes += rejected.content.len();
            pages.docs.push(rejected);
        }
    }
    if entries > 0 {
        pages.last.push((agent, last));
        pages.indexed.entries += entries;
    }
    if entries == most as u64 || bytes >= MAX_BYTES {
        pages.indexed.again.push(agent);
    }
    Ok(bytes)
}

/// Returns the task of an update in this agent's log, where the agent sent it and the office rejected it: such a task
/// is in no log, and only its sender finds it.
fn undelivered(db: &Connection, sender: AgentKey, task: &[u8]) -> Result<Option<Doc>> {
    db.prepared(
        "SELECT n.id, n.created_at, n.content, s.subject FROM messages n JOIN sessions s ON s.id = n.session_id
         WHERE n.public_id = ?1 AND n.sender_id = ?2 AND s.group_id IS NULL
         AND NOT EXISTS (SELECT 1 FROM deliveries d WHERE d.message_id = n.id)",
    )
    .and_then(|mut select| {
        select
            .query_row(params![task, sender.0], |row| {
                let who = format!("m{0} f{0}", sender.0);
                Ok(Doc { message: row.get(0)?, at: row.get(1)?, content: row.get(2)?, subject: row.get(3)?, who })
            })
            .optional()
    })
    .map_err(failed)
}

fn recipients(db: &Connection, message: i64) -> Result<Vec<i64>> {
    db.prepared("SELECT agent_id FROM deliveries WHERE message_id = ?1")
        .and_then(|mut select| select.query_map([message], |row| row.get(0)).and_then(Iterator::collect))
        .map_err(failed)
}
