//! The ledger of carried messages: a SQLite file in the directory's own state, for one process at a time.
//!
//! A row is written, durably, before its message is carried. It fixes the ids that the message will have on the other
//! side, so that a repeat is recognised, and a quick answer finds the message that it answers.

mod contacts;
mod forget;
mod ids;
mod row;
#[cfg(test)]
mod tests;

use std::path::Path;
use std::sync::Arc;

use amb_core::{AgentName, MessageId, OfficeError, TaskId, Timestamp};
use amb_dir::DirOffice;
use parking_lot::Mutex;
use rusqlite::{Connection, OptionalExtension, params};
use uuid::Uuid;

use row::{begin_one, columns, crossing};

/// The file's name.
pub(crate) const FILE_NAME: &str = "ledger.db";
/// The setting with the first resident that got an account in the office.
const FIRST_RESIDENT: &str = "first_resident";
/// Most residents that are returned to recognise the office.
const MAX_RESIDENTS: u32 = 100;

const SCHEMA: &str = "
CREATE TABLE IF NOT EXISTS crossings (
    number      INTEGER PRIMARY KEY,
    inward      INTEGER NOT NULL,
    sender      TEXT NOT NULL,
    recipient   TEXT NOT NULL,
    office_id   TEXT,
    dir_id      TEXT NOT NULL,
    file        TEXT,
    at          INTEGER NOT NULL,
    nonce       INTEGER NOT NULL,
    office_task TEXT,
    dir_task    TEXT,
    state       INTEGER NOT NULL
) STRICT;
CREATE UNIQUE INDEX IF NOT EXISTS crossings_office_id ON crossings (office_id, recipient) WHERE office_id IS NOT NULL;
CREATE UNIQUE INDEX IF NOT EXISTS crossings_dir_id ON crossings (dir_id, recipient);
CREATE INDEX IF NOT EXISTS crossings_office_task ON crossings (office_task) WHERE office_task IS NOT NULL;
CREATE INDEX IF NOT EXISTS crossings_dir_task ON crossings (dir_task) WHERE dir_task IS NOT NULL;
CREATE INDEX IF NOT EXISTS crossings_open ON crossings (inward, state, number) WHERE state < 3;
CREATE TABLE IF NOT EXISTS cursors (agent TEXT NOT NULL, inward INTEGER NOT NULL, cursor INTEGER NOT NULL,
                                    PRIMARY KEY (agent, inward)) STRICT, WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS settings (name TEXT PRIMARY KEY, value TEXT NOT NULL) STRICT, WITHOUT ROWID;
";

/// Direction of a crossing.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Direction {
    /// To the directory.
    In,
    /// To the office.
    Out,
}

/// State of a crossing. States below 3 are open.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum CrossingState {
    /// Being carried, or interrupted.
    Crossing = 0,
    /// Waiting for its recipient's consent.
    Waiting = 1,
    /// Durable on the other side.
    Across = 2,
    /// Read there.
    Read = 3,
    /// Refused: it cannot be carried.
    Refused = 4,
}

impl CrossingState {
    fn of(number: i64) -> Self {
        match number {
            0 => CrossingState::Crossing,
            1 => CrossingState::Waiting,
            2 => CrossingState::Across,
            3 => CrossingState::Read,
            _ => CrossingState::Refused,
        }
    }
}

/// A row of the ledger.
#[derive(Debug, Clone)]
pub(crate) struct CrossingRow {
    pub(crate) number: i64,
    pub(crate) sender: AgentName,
    pub(crate) recipient: AgentName,
    /// Its id in the office; `None` for a task update, which the office writes itself.
    pub(crate) office_id: Option<Uuid>,
    pub(crate) dir_id: MessageId,
    /// Its file in the recipient's mailbox.
    pub(crate) file: Option<String>,
    /// Inward: its timestamp in the directory. Outward: when it was first seen.
    pub(crate) at: Timestamp,
    pub(crate) nonce: u32,
    pub(crate) state: CrossingState,
    /// Whether the row existed already, so that the message may have been carried before.
    pub(crate) again: bool,
}

/// A message to be carried.
#[derive(Debug, Clone)]
pub(crate) struct NewCrossing {
    pub(crate) sender: AgentName,
    pub(crate) recipient: AgentName,
    pub(crate) what: NewCrossingKind,
}

/// The message, and its ids on the other side.
#[derive(Debug, Clone)]
pub(crate) enum NewCrossingKind {
    /// A message of the office, with its task if it brings one. It gets the first free file name from its time on.
    In { office_id: Uuid, sent_at: Timestamp, nonce: u32, task: Option<TaskId> },
    /// A message of the directory, with its task if it brings one. The task's id in the office will be the message's.
    Out { dir_id: MessageId, office_id: Uuid, at: Timestamp, task: Option<TaskId> },
    /// A task update of the directory, which the office writes itself with this time.
    Report { dir_id: MessageId, at: Timestamp },
}

/// The ledger. Cheap to clone.
#[derive(Clone)]
pub(crate) struct CrossingLedger {
    db: Arc<Mutex<Connection>>,
    /// Determines ids and file names of messages that are carried into it.
    office: DirOffice,
}

type Result<T> = std::result::Result<T, OfficeError>;

fn failed(error: rusqlite::Error) -> OfficeError {
    let detail = "the ledger of the mount cannot be written or read; is the disk full, or the directory read-only?";
    OfficeError::unavailable(format!("{detail} ({error})")).caused_by(error)
}

impl CrossingLedger {
    /// Opens or creates the ledger in this directory. Blocks.
    pub(crate) fn open(directory: &Path, office: DirOffice) -> Result<Self> {
        let open = || -> rusqlite::Result<Connection> {
            let db = Connection::open(directory.join(FILE_NAME))?;
            // Exclusive to one process, and durable after each commit.
            db.pragma_update(None, "locking_mode", "EXCLUSIVE")?;
            db.pragma_update(None, "journal_mode", "WAL")?;
            db.pragma_update(None, "synchronous", "FULL")?;
            db.execute_batch(SCHEMA)?;
            contacts::create(&db)?;
            Ok(db)
        };
        Ok(Self { db: Arc::new(Mutex::new(open().map_err(failed)?)), office })
    }

    async fn run<T: Send + 'static>(
        &self,
        work: impl FnOnce(&mut Connection) -> rusqlite::Result<T> + Send + 'static,
    ) -> Result<T> {
        let db = self.db.clone();
        let done = tokio::task::spawn_blocking(move || {
            let mut db = db.lock();
            work(&mut db)
        });
        done.await.map_err(OfficeError::internal)?.map_err(failed)
    }

    /// Returns a stored setting; stores `make` if there is none.
    pub(crate) async fn setting(&self, name: &'static str, make: String) -> Result<String> {
        self.run(move |db| {
            db.execute("INSERT INTO settings VALUES (?1, ?2) ON CONFLICT DO NOTHING", [name, &make])?;
            db.query_row("SELECT value FROM settings WHERE name = ?1", [name], |row| row.get(0))
        })
        .await
    }

    /// Records that a resident has an account in the office, if it is the first.
    pub(crate) async fn record_resident(&self, name: &AgentName) -> Result<()> {
        self.setting(FIRST_RESIDENT, name.to_string()).await.map(drop)
    }

    /// Returns residents that have, or had, accounts in the office whose mail was carried.
    pub(crate) async fn residents(&self) -> Result<Vec<AgentName>> {
        let names: Vec<String> = self
            .run(|db| {
                let mut select = db.prepare(
                    "SELECT value FROM settings WHERE name = ?1 UNION SELECT agent FROM cursors WHERE inward = 1 LIMIT ?2",
                )?;
                let rows = select.query_map(params![FIRST_RESIDENT, MAX_RESIDENTS], |row| row.get(0))?;
                rows.collect()
            })
            .await?;
        Ok(names.iter().filter_map(|name| AgentName::parse(name).ok()).collect())
    }

    /// Returns the position up to which an agent's log has been handled.
    pub(crate) async fn cursor(&self, way: Direction, agent: &AgentName) -> Result<u64> {
        let agent = agent.clone();
        self.run(move |db| {
            db.query_row(
                "SELECT cursor FROM cursors WHERE agent = ?1 AND inward = ?2",
                params![agent.as_str(), way == Direction::In],
                |row| row.get::<_, i64>(0),
            )
            .optional()
            .map(|cursor| cursor.and_then(|cursor| u64::try_from(cursor).ok()).unwrap_or(0))
        })
        .await
    }

    /// Sets states, and the position up to which an agent's log has been handled, in one transaction.
    pub(crate) async fn settle(
        &self,
        way: Direction,
        agent: &AgentName,
        cursor: u64,
        states: Vec<(i64, CrossingState)>,
    ) -> Result<()> {
        let agent = agent.clone();
        self.run(move |db| {
            let tx = db.transaction()?;
            update_states(&tx, &states)?;
            tx.execute(
                "INSERT INTO cursors VALUES (?1, ?2, ?3)
                 ON CONFLICT (agent, inward) DO UPDATE SET cursor = excluded.cursor",
                params![agent.as_str(), way == Direction::In, i64::try_from(cursor).unwrap_or(i64::MAX)],
            )?;
            tx.commit()
        })
        .await
    }

    /// Sets states.
    pub(crate) async fn set_states(&self, states: Vec<(i64, CrossingState)>) -> Result<()> {
        if states.is_empty() {
            return Ok(());
        }
        self.run(move |db| {
            let tx = db.transaction()?;
            update_states(&tx, &states)?;
            tx.commit()
        })
        .await
    }

    /// Writes rows for messages to be carried. Returns existing rows unchanged.
    pub(crate) async fn begin(&self, new: Vec<NewCrossing>) -> Result<Vec<CrossingRow>> {
        if new.is_empty() {
            return Ok(Vec::new());
        }
        let office = self.office.clone();
        self.run(move |db| {
            let tx = db.transaction()?;
            let rows = new.into_iter().map(|new| begin_one(&tx, &office, new)).collect::<rusqlite::Result<_>>()?;
            tx.commit()?;
            Ok(rows)
        })
        .await
    }

    /// Returns rows of this open state after a number, in order.
    pub(crate) async fn rows_in_state(
        &self,
        way: Direction,
        state: CrossingState,
        recipient: Option<&AgentName>,
        after: i64,
        max: u32,
    ) -> Result<Vec<CrossingRow>> {
        let recipient = recipient.map(AgentName::to_string);
        self.run(move |db| {
            let mut select = db.prepare_cached(columns!(
                "WHERE inward = ?1 AND state = ?2 AND state < 3 AND number > ?3 AND (?4 IS NULL OR recipient = ?4)
                 ORDER BY number LIMIT ?5"
            ))?;
            let rows =
                select.query_map(params![way == Direction::In, state as i64, after, recipient, max], crossing)?;
            rows.collect()
        })
        .await
    }

    /// Whether a message of this sender waits for the recipient's consent.
    pub(crate) async fn waits(&self, recipient: &AgentName, sender: &AgentName) -> Result<bool> {
        let (recipient, sender) = (recipient.clone(), sender.clone());
        self.run(move |db| {
            db.prepare_cached(
                "SELECT 1 FROM crossings WHERE inward = 0 AND sender = ?1 AND recipient = ?2 AND state = 1 LIMIT 1",
            )?
            .exists([sender.as_str(), recipient.as_str()])
        })
        .await
    }

    /// Returns the number of messages that wait for consent.
    pub(crate) async fn waiting(&self) -> Result<u64> {
        self.run(|db| {
            db.query_row("SELECT count(*) FROM crossings WHERE inward = 0 AND state = 1", [], |row| {
                row.get::<_, i64>(0)
            })
        })
        .await
        .map(|count| u64::try_from(count).unwrap_or(0))
    }
}

fn update_states(db: &Connection, states: &[(i64, CrossingState)]) -> rusqlite::Result<()> {
    let mut update = db.prepare_cached("UPDATE crossings SET state = ?2 WHERE number = ?1")?;
    for (number, state) in states {
        update.execute(params![number, *state as i64])?;
    }
    Ok(())
}
