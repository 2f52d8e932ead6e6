//! What has crossed, and what is crossing. A SQLite file among the directory's own state, for one process at a time.
//!
//! A row is written, durably, before its message is carried: it fixes the ids that the message will have on the other
//! side, so that carrying it again can be recognised, and so that an answer finds its question from the first moment on.

use std::path::Path;
use std::sync::{Arc, Mutex, PoisonError};

use amb_core::{AgentName, MessageId, OfficeError, TaskId, Timestamp};
use amb_dir::DirOffice;
use rusqlite::{Connection, OptionalExtension, Row, params};
use uuid::Uuid;

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

/// The columns of a crossing, and the rest of a statement.
macro_rules! concat_columns {
    ($rest:literal) => {
        concat!("SELECT number, sender, recipient, office_id, dir_id, file, at, nonce, state FROM crossings ", $rest)
    };
}

/// Which way.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Way {
    /// To the directory.
    In,
    /// To the office.
    Out,
}

/// How far a message has come. What is below 3 is looked at again.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum State {
    /// Being carried, or the process ended while it was.
    Crossing = 0,
    /// Waiting for its recipient's consent.
    Waiting = 1,
    /// Durable on the other side.
    Across = 2,
    /// Read there.
    Read = 3,
    /// Put aside: it cannot be carried.
    Refused = 4,
}

impl State {
    fn of(number: i64) -> Self {
        match number {
            0 => State::Crossing,
            1 => State::Waiting,
            2 => State::Across,
            3 => State::Read,
            _ => State::Refused,
        }
    }
}

/// A message that crosses.
#[derive(Debug, Clone)]
pub(crate) struct Crossing {
    pub(crate) number: i64,
    pub(crate) sender: AgentName,
    pub(crate) recipient: AgentName,
    /// Its id in the office; none for an update, which the office writes itself.
    pub(crate) office_id: Option<Uuid>,
    pub(crate) dir_id: MessageId,
    /// Its file in the recipient's mailbox.
    pub(crate) file: Option<String>,
    /// Inward: the moment it has in the directory. Outward: when it was first seen.
    pub(crate) at: Timestamp,
    pub(crate) nonce: u32,
    pub(crate) state: State,
    /// It was begun before, perhaps by a process that ended.
    pub(crate) again: bool,
}

/// A message about to cross.
#[derive(Debug, Clone)]
pub(crate) struct NewCrossing {
    pub(crate) sender: AgentName,
    pub(crate) recipient: AgentName,
    pub(crate) what: What,
}

/// Which message, and what it will be on the other side.
#[derive(Debug, Clone)]
pub(crate) enum What {
    /// One of the office's, with its task if it brings one. It gets the first free name after its moment.
    In { office_id: Uuid, sent_at: Timestamp, nonce: u32, task: Option<TaskId> },
    /// One of the directory's, with its task if it brings one. That task's id in the office will be the message's.
    Out { dir_id: MessageId, office_id: Uuid, at: Timestamp, task: Option<TaskId> },
    /// An update of the directory's, which the office writes itself as of this moment.
    Report { dir_id: MessageId, at: Timestamp },
}

/// See the [module](self). Cheap to clone.
#[derive(Clone)]
pub(crate) struct Ledger {
    db: Arc<Mutex<Connection>>,
    /// Names what is carried into it.
    office: DirOffice,
}

type Result<T> = std::result::Result<T, OfficeError>;

fn failed(error: rusqlite::Error) -> OfficeError {
    let detail = "the ledger of the mount cannot be written or read; is the disk full, or the directory read-only?";
    OfficeError::unavailable(format!("{detail} ({error})")).caused_by(error)
}

impl Ledger {
    /// Opens the ledger in this directory, or begins one. Blocks.
    pub(crate) fn open(directory: &Path, office: DirOffice) -> Result<Self> {
        let open = || -> rusqlite::Result<Connection> {
            let db = Connection::open(directory.join("ledger.db"))?;
            // One process has it, so nothing need be shared with others; what is answered is on the disk.
            db.pragma_update(None, "locking_mode", "EXCLUSIVE")?;
            db.pragma_update(None, "journal_mode", "WAL")?;
            db.pragma_update(None, "synchronous", "FULL")?;
            db.execute_batch(SCHEMA)?;
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
            let mut db = db.lock().unwrap_or_else(PoisonError::into_inner);
            work(&mut db)
        });
        done.await.map_err(OfficeError::internal)?.map_err(failed)
    }

    /// A value that is made once and kept.
    pub(crate) async fn setting(&self, name: &'static str, make: String) -> Result<String> {
        self.run(move |db| {
            db.execute("INSERT INTO settings VALUES (?1, ?2) ON CONFLICT DO NOTHING", [name, &make])?;
            db.query_row("SELECT value FROM settings WHERE name = ?1", [name], |row| row.get(0))
        })
        .await
    }

    /// Up to where an agent's log has been dealt with.
    pub(crate) async fn cursor(&self, way: Way, agent: &AgentName) -> Result<u64> {
        let agent = agent.clone();
        self.run(move |db| {
            db.query_row(
                "SELECT cursor FROM cursors WHERE agent = ?1 AND inward = ?2",
                params![agent.as_str(), way == Way::In],
                |row| row.get::<_, i64>(0),
            )
            .optional()
            .map(|cursor| cursor.and_then(|cursor| u64::try_from(cursor).ok()).unwrap_or(0))
        })
        .await
    }

    /// Notes how far messages have come, and up to where the agent's log has been dealt with, together.
    pub(crate) async fn settle(
        &self,
        way: Way,
        agent: &AgentName,
        cursor: u64,
        states: Vec<(i64, State)>,
    ) -> Result<()> {
        let agent = agent.clone();
        self.run(move |db| {
            let tx = db.transaction()?;
            set_states(&tx, &states)?;
            tx.execute(
                "INSERT INTO cursors VALUES (?1, ?2, ?3)
                 ON CONFLICT (agent, inward) DO UPDATE SET cursor = excluded.cursor",
                params![agent.as_str(), way == Way::In, i64::try_from(cursor).unwrap_or(i64::MAX)],
            )?;
            tx.commit()
        })
        .await
    }

    /// Notes how far messages have come.
    pub(crate) async fn note(&self, states: Vec<(i64, State)>) -> Result<()> {
        if states.is_empty() {
            return Ok(());
        }
        self.run(move |db| {
            let tx = db.transaction()?;
            set_states(&tx, &states)?;
            tx.commit()
        })
        .await
    }

    /// Writes down what is about to be carried; one that was begun before comes back as it stands.
    pub(crate) async fn begin(&self, new: Vec<NewCrossing>) -> Result<Vec<Crossing>> {
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

    /// The crossing of this message of the directory's, if it was begun.
    pub(crate) async fn outward(&self, recipient: &AgentName, dir_id: &MessageId) -> Result<Option<Crossing>> {
        let (recipient, dir_id) = (recipient.clone(), dir_id.clone());
        self.run(move |db| find(db, "inward = 0 AND dir_id = ?1 AND recipient = ?2", dir_id.as_str(), &recipient)).await
    }

    /// The crossing by which this message of the office's came to be.
    pub(crate) async fn sent_as(&self, recipient: &AgentName, office_id: Uuid) -> Result<Option<Crossing>> {
        let recipient = recipient.clone();
        self.run(move |db| {
            find(db, "inward = 0 AND office_id = ?1 AND recipient = ?2", &office_id.to_string(), &recipient)
        })
        .await
    }

    /// The id in the directory of a message of the office's.
    pub(crate) async fn dir_id(&self, office_id: &MessageId) -> Result<Option<MessageId>> {
        let id = office_id.to_string();
        let found: Option<String> = self
            .run(move |db| {
                db.query_row("SELECT dir_id FROM crossings WHERE office_id = ?1", [id], |row| row.get(0)).optional()
            })
            .await?;
        Ok(found.and_then(|id| MessageId::parse(&id).ok()))
    }

    /// The id in the office of a message of the directory's that came to this agent or was sent by it.
    pub(crate) async fn office_id(&self, agent: &AgentName, dir_id: &MessageId) -> Result<Option<MessageId>> {
        let (agent, id) = (agent.clone(), dir_id.clone());
        let found: Option<Option<String>> = self
            .run(move |db| {
                db.query_row(
                    "SELECT office_id FROM crossings WHERE dir_id = ?1 AND (sender = ?2 OR recipient = ?2)",
                    [id.as_str(), agent.as_str()],
                    |row| row.get(0),
                )
                .optional()
            })
            .await?;
        Ok(found.flatten().and_then(|id| MessageId::parse(&id).ok()))
    }

    /// The id in the directory of a task of the office's that crossed.
    pub(crate) async fn dir_task(&self, office_task: &TaskId) -> Result<Option<TaskId>> {
        let id = office_task.to_string();
        let found: Option<String> = self
            .run(move |db| {
                let sql = "SELECT dir_task FROM crossings WHERE office_task = ?1 AND dir_task IS NOT NULL";
                db.query_row(sql, [id], |row| row.get(0)).optional()
            })
            .await?;
        Ok(found.and_then(|id| TaskId::parse(&id).ok()))
    }

    /// The id in the office of a task that crossed to the directory, from its owner to its assignee.
    pub(crate) async fn office_task(
        &self,
        owner: &AgentName,
        assignee: &AgentName,
        dir_task: &TaskId,
    ) -> Result<Option<TaskId>> {
        let (owner, assignee, id) = (owner.clone(), assignee.clone(), dir_task.clone());
        let found: Option<String> = self
            .run(move |db| {
                db.query_row(
                    "SELECT office_task FROM crossings
                     WHERE dir_task = ?1 AND sender = ?2 AND recipient = ?3 AND inward = 1 AND office_task IS NOT NULL",
                    [id.as_str(), owner.as_str(), assignee.as_str()],
                    |row| row.get(0),
                )
                .optional()
            })
            .await?;
        Ok(found.and_then(|id| TaskId::parse(&id).ok()))
    }

    /// Messages of this state after a number, in order.
    pub(crate) async fn open_ones(
        &self,
        way: Way,
        state: State,
        recipient: Option<&AgentName>,
        after: i64,
        most: u32,
    ) -> Result<Vec<Crossing>> {
        let recipient = recipient.map(AgentName::to_string);
        self.run(move |db| {
            let mut select = db.prepare_cached(concat_columns!(
                "WHERE inward = ?1 AND state = ?2 AND state < 3 AND number > ?3 AND (?4 IS NULL OR recipient = ?4)
                 ORDER BY number LIMIT ?5"
            ))?;
            let rows = select.query_map(params![way == Way::In, state as i64, after, recipient, most], crossing)?;
            rows.collect()
        })
        .await
    }

    /// How many messages wait for consent.
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

fn set_states(db: &Connection, states: &[(i64, State)]) -> rusqlite::Result<()> {
    let mut update = db.prepare_cached("UPDATE crossings SET state = ?2 WHERE number = ?1")?;
    for (number, state) in states {
        update.execute(params![number, *state as i64])?;
    }
    Ok(())
}

fn begin_one(db: &Connection, office: &DirOffice, new: NewCrossing) -> rusqlite::Result<Crossing> {
    let NewCrossing { sender, recipient, what } = new;
    let before = match &what {
        What::In { office_id, .. } => {
            find(db, "inward = 1 AND office_id = ?1 AND recipient = ?2", &office_id.to_string(), &recipient)?
        }
        What::Out { dir_id, .. } | What::Report { dir_id, .. } => {
            find(db, "inward = 0 AND dir_id = ?1 AND recipient = ?2", dir_id.as_str(), &recipient)?
        }
    };
    if let Some(before) = before {
        return Ok(before);
    }
    let inward = matches!(what, What::In { .. });
    let (mut file, mut of_office, mut of_dir) = (None, None, None);
    let (office_id, dir_id, at, nonce) = match what {
        What::In { office_id, sent_at, nonce, task } => {
            let mut at = sent_at;
            let mut named = office.carried_as(&sender, at, nonce);
            // Where names are made of the moment alone, two of one sender's may have the same.
            while is_taken(db, &named.0)? {
                at = Timestamp::from_microsecond(at.as_microsecond() + 1).unwrap_or(at);
                named = office.carried_as(&sender, at, nonce);
            }
            of_dir = task.as_ref().map(|_| named.0.to_string());
            of_office = task.map(|task| task.to_string());
            file = Some(named.1);
            (Some(office_id), named.0, at, nonce)
        }
        What::Out { dir_id, office_id, at, task } => {
            of_office = task.as_ref().map(|_| office_id.to_string());
            of_dir = task.map(|task| task.to_string());
            (Some(office_id), dir_id, at, 0)
        }
        What::Report { dir_id, at } => (None, dir_id, at, 0),
    };
    db.prepare_cached(
        "INSERT INTO crossings (inward, sender, recipient, office_id, dir_id, file, at, nonce, office_task, dir_task,
                                state)
         VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, 0)",
    )?
    .execute(params![
        inward,
        sender.as_str(),
        recipient.as_str(),
        office_id.map(|id| id.to_string()),
        dir_id.as_str(),
        file,
        at.as_microsecond(),
        nonce,
        of_office,
        of_dir,
    ])?;
    let number = db.last_insert_rowid();
    Ok(Crossing { number, sender, recipient, office_id, dir_id, file, at, nonce, state: State::Crossing, again: false })
}

fn is_taken(db: &Connection, dir_id: &MessageId) -> rusqlite::Result<bool> {
    db.prepare_cached("SELECT 1 FROM crossings WHERE dir_id = ?1")?.exists([dir_id.as_str()])
}

fn find(db: &Connection, condition: &str, id: &str, recipient: &AgentName) -> rusqlite::Result<Option<Crossing>> {
    let sql = format!("{}{condition}", concat_columns!("WHERE "));
    db.prepare_cached(&sql)?.query_row([id, recipient.as_str()], crossing).optional()
}

/// A crossing from its row. Names and ids were checked when they were written.
fn crossing(row: &Row<'_>) -> rusqlite::Result<Crossing> {
    fn bad(error: impl std::error::Error + Send + Sync + 'static) -> rusqlite::Error {
        rusqlite::Error::FromSqlConversionFailure(0, rusqlite::types::Type::Text, Box::new(error))
    }
    let name = |at: usize| -> rusqlite::Result<AgentName> { row.get::<_, String>(at)?.parse().map_err(bad) };
    let office_id: Option<String> = row.get(3)?;
    Ok(Crossing {
        number: row.get(0)?,
        sender: name(1)?,
        recipient: name(2)?,
        office_id: office_id.map(|id| id.parse().map_err(bad)).transpose()?,
        dir_id: MessageId::parse(&row.get::<_, String>(4)?).map_err(bad)?,
        file: row.get(5)?,
        at: Timestamp::from_microsecond(row.get(6)?).map_err(bad)?,
        nonce: row.get(7)?,
        state: State::of(row.get(8)?),
        again: true,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use amb_dir::Layout;

    fn opened(directory: &Path, layout: Layout) -> Ledger {
        let options = amb_dir::DirOptions { layout: Some(layout), ..Default::default() };
        Ledger::open(directory, DirOffice::open(directory, options).unwrap()).unwrap()
    }

    fn between(what: What) -> NewCrossing {
        NewCrossing { sender: "ann".parse().unwrap(), recipient: "ben".parse().unwrap(), what }
    }

    fn incoming(office_id: u128, task: Option<TaskId>) -> NewCrossing {
        let sent_at = Timestamp::from_second(office_id as i64).unwrap();
        between(What::In { office_id: Uuid::from_u128(office_id), sent_at, nonce: 7, task })
    }

    fn outgoing(dir_id: &str, office_id: u128) -> NewCrossing {
        let (dir_id, at) = (dir_id.parse().unwrap(), Timestamp::UNIX_EPOCH);
        between(What::Out { dir_id, office_id: Uuid::from_u128(office_id), at, task: None })
    }

    #[tokio::test]
    async fn two_messages_of_one_moment_get_two_names() {
        for layout in [Layout::Nanobot, Layout::Chipset] {
            let dir = tempfile::tempdir().unwrap();
            let ledger = opened(dir.path(), layout);
            let same = |office_id| match incoming(office_id, None) {
                NewCrossing { sender, recipient, what: What::In { office_id, nonce, task, .. } } => {
                    let sent_at = Timestamp::UNIX_EPOCH;
                    NewCrossing { sender, recipient, what: What::In { office_id, sent_at, nonce, task } }
                }
                other => other,
            };
            let rows = ledger.begin(vec![same(1), same(2)]).await.unwrap();
            assert_ne!((&rows[0].dir_id, &rows[0].file), (&rows[1].dir_id, &rows[1].file), "{layout}");
        }
    }

    #[tokio::test]
    async fn what_was_begun_comes_back_as_it_was_written_first() {
        let dir = tempfile::tempdir().unwrap();
        let ledger = opened(dir.path(), Layout::Nanobot);
        let first = ledger.begin(vec![outgoing("d1", 1), incoming(2, None)]).await.unwrap();
        assert!(first.iter().all(|row| !row.again && row.state == State::Crossing));
        drop(ledger);
        let ledger = opened(dir.path(), Layout::Nanobot);
        // Another try has other ids for the other side: those that were written down hold.
        let again = ledger.begin(vec![outgoing("d1", 9), incoming(2, None)]).await.unwrap();
        assert!(again.iter().all(|row| row.again));
        assert_eq!(again[0].office_id, Some(Uuid::from_u128(1)));
        assert_eq!((&again[1].dir_id, again[1].at), (&first[1].dir_id, first[1].at));
        assert_eq!(again.iter().map(|row| row.number).collect::<Vec<_>>(), [1, 2]);
    }

    #[tokio::test]
    async fn states_and_cursors_are_kept_together() {
        let dir = tempfile::tempdir().unwrap();
        let ledger = opened(dir.path(), Layout::Nanobot);
        let ben: AgentName = "ben".parse().unwrap();
        ledger.begin(vec![outgoing("d1", 1), outgoing("d2", 2)]).await.unwrap();
        ledger.settle(Way::Out, &ben, 70, vec![(1, State::Across), (2, State::Waiting)]).await.unwrap();
        assert_eq!(ledger.cursor(Way::Out, &ben).await.unwrap(), 70);
        assert_eq!(ledger.cursor(Way::In, &ben).await.unwrap(), 0);
        let waiting = ledger.open_ones(Way::Out, State::Waiting, Some(&ben), 0, 9).await.unwrap();
        assert_eq!(waiting.iter().map(|row| row.dir_id.as_str()).collect::<Vec<_>>(), ["d2"]);
        assert_eq!(ledger.waiting().await.unwrap(), 1);
    }

    #[tokio::test]
    async fn ids_are_found_from_either_side() {
        let dir = tempfile::tempdir().unwrap();
        let ledger = opened(dir.path(), Layout::Nanobot);
        let (ann, ben, zoe): (AgentName, AgentName, AgentName) =
            ("ann".parse().unwrap(), "ben".parse().unwrap(), "zoe".parse().unwrap());
        let task = |text: &str| Some(text.parse::<TaskId>().unwrap());
        let row = ledger.begin(vec![incoming(1, task("o"))]).await.unwrap().remove(0);
        let (d1, o1): (MessageId, MessageId) = (row.dir_id, Uuid::from_u128(1).into());
        let of_dir: TaskId = d1.as_str().parse().unwrap();
        assert_eq!(ledger.dir_id(&o1).await.unwrap(), Some(d1.clone()));
        assert_eq!(ledger.office_id(&ben, &d1).await.unwrap(), Some(o1));
        assert_eq!(ledger.office_id(&zoe, &d1).await.unwrap(), None, "another's message");
        assert_eq!(ledger.dir_task(&task("o").unwrap()).await.unwrap(), Some(of_dir.clone()));
        assert_eq!(ledger.office_task(&ann, &ben, &of_dir).await.unwrap(), task("o"));
        assert_eq!(ledger.office_task(&zoe, &ben, &of_dir).await.unwrap(), None);
    }
}
