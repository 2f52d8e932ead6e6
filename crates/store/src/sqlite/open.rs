//! Opening the file: its lock, its schema, its connections.

use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;

use rusqlite::config::DbConfig;
use rusqlite::{Connection, OpenFlags};

use super::backup::sync_directory;
use super::checkpoint::Checkpoints;
use super::error::failed;
use super::lock::Lock;
use super::plans::Prepared;
use super::readers::Readers;
use super::search::Indexer;
use super::sight::{Counters, Sights};
use super::sync::Durability;
use super::tray::{AS_IF_SORTED, HoldsMail};
use super::usage::Office;
use super::writer::{Desk, STATEMENTS, Shared, Writer};
use crate::StoreError;
use crate::error::Result;
use crate::known::KnownKeys;
use crate::quota::Account;
use crate::types::AgentKey;
use crate::unindexed::Unindexed;

/// How often a look at mail is tried that others put into place meanwhile, before it is left to those who look into the tray
/// too, which is slow.
const TRIES: u32 = 32;

mod schema {
    refinery::embed_migrations!("migrations/sqlite");
}

/// What the office remembers, in one file.
#[derive(Debug)]
pub struct SqliteStore {
    pub(super) path: PathBuf,
    /// `None` once closed.
    writer: Mutex<Option<Writer>>,
    readers: Readers,
    /// Those that look into the tray too, once there was need of them.
    unsorted: Mutex<Option<Readers>>,
    durability: Arc<Durability>,
    holds_mail: HoldsMail,
    pub(super) sights: Arc<Sights>,
    placed: Arc<Counters>,
    pub(super) indexer: Indexer,
    pub(super) unindexed: Arc<Unindexed>,
    pub(super) known: Arc<KnownKeys>,
    pub(super) account: Arc<Account>,
    checkpoints: Mutex<Option<Checkpoints>>,
    thread: Mutex<Option<JoinHandle<()>>>,
    /// Let go last, when nothing of ours touches the file any more.
    lock: Mutex<Option<Lock>>,
}

impl SqliteStore {
    /// Opens the file, made with its directory where missing, and brings its schema up to date. A second process on the
    /// same file is refused.
    pub async fn open(path: &Path) -> Result<Self> {
        let path = path.to_path_buf();
        let opened = tokio::task::spawn_blocking(move || Self::open_now(&path, |log| log.sync_data()));
        opened.await.map_err(StoreError::internal)?
    }

    /// Opens the file; `sync` makes the write-ahead log durable.
    fn open_now(path: &Path, sync: impl Fn(&fs_err::File) -> std::io::Result<()> + Send + 'static) -> Result<Self> {
        if let Some(directory) = path.parent().filter(|directory| !directory.as_os_str().is_empty()) {
            fs_err::create_dir_all(directory).map_err(cannot_open)?;
        }
        let lock = Lock::take_or_make(path)?;
        let path = lock.database().to_path_buf();
        let flags = OpenFlags::SQLITE_OPEN_READ_WRITE | OpenFlags::SQLITE_OPEN_NO_MUTEX;
        let mut db = Connection::open_with_flags(&path, flags).map_err(failed)?;
        prepare_writer(&db).map_err(failed)?;
        migrate(&mut db)?;
        let log = inherit_log(&db, &path, &sync)?;
        let indexer = Indexer::open(&path)?;
        let durability = Arc::new(Durability::default());
        let cores = std::thread::available_parallelism().map_or(2, usize::from);
        let readers = Readers::open(&path, cores.clamp(2, 8), "", durability.clone())?;
        let folding = Connection::open_with_flags(&path, flags).map_err(failed)?;
        folding.execute_batch("PRAGMA synchronous = NORMAL").map_err(failed)?;
        let checkpoints = Checkpoints::start(folding, durability.clone()).map_err(cannot_open)?;
        let (unindexed, holds_mail) = (Arc::new(Unindexed::default()), HoldsMail::perhaps());
        let (sights, placed) = (Arc::new(Sights::default()), Arc::new(Counters::default()));
        let (known, account) = (Arc::<KnownKeys>::default(), Arc::<Account>::default());
        let office = Office::count(&db, account.clone())?;
        let (writer, thread) = Writer::start(
            db,
            office,
            Shared {
                unindexed: unindexed.clone(),
                holds_mail: holds_mail.clone(),
                sights: sights.clone(),
                placed: placed.clone(),
                durability: durability.clone(),
                known: known.clone(),
            },
            move || sync(&log),
        )
        .map_err(cannot_open)?;
        Ok(Self {
            path,
            writer: Mutex::new(Some(writer)),
            readers,
            unsorted: Mutex::new(None),
            durability,
            holds_mail,
            sights,
            placed,
            indexer,
            unindexed,
            known,
            account,
            checkpoints: Mutex::new(Some(checkpoints)),
            thread: Mutex::new(Some(thread)),
            lock: Mutex::new(Some(lock)),
        })
    }

    pub(super) fn writer(&self) -> Result<Writer> {
        let writer = self.writer.lock().unwrap_or_else(PoisonError::into_inner);
        writer.clone().ok_or_else(super::error::closed)
    }

    /// The readers, for what has nothing to do with mail.
    pub(super) fn readers(&self) -> &Readers {
        &self.readers
    }

    /// Looks at this agent's mail, here and now.
    pub(super) async fn look_for<T>(&self, agent: AgentKey, look: impl Fn(&Connection) -> Result<T>) -> Result<T> {
        for _ in 0..TRIES {
            let Some(placed) = self.placed_for(agent).await? else { break };
            let seen = self.readers.look(|db| unmoved(db, &self.placed, agent, placed, &look)).await?;
            if let Some(seen) = seen {
                return Ok(seen);
            }
        }
        self.readers_of_unsorted()?.look(look).await
    }

    /// Looks at this agent's mail, on a thread that may block.
    pub(super) async fn read_for<T, F>(&self, agent: AgentKey, look: F) -> Result<T>
    where
        T: Send + 'static,
        F: Fn(&Connection) -> Result<T> + Clone + Send + 'static,
    {
        for _ in 0..TRIES {
            let turn = self.readers.turn().await?;
            let Some(placed) = self.placed_for(agent).await? else { break };
            let (look, counters) = (look.clone(), self.placed.clone());
            let seen = self.readers.read_by(turn, move |db| unmoved(db, &counters, agent, placed, look)).await?;
            if let Some(seen) = seen {
                return Ok(seen);
            }
        }
        self.readers_of_unsorted()?.read(look).await
    }

    /// Looks at the mail of several agents at one moment, on a thread that may block. Returns with it those of them whose
    /// mail was put into place meanwhile, at whom it did not look.
    pub(super) async fn read_for_all<T, F>(&self, agents: &[AgentKey], look: F) -> Result<(T, Vec<AgentKey>)>
    where
        T: Send + 'static,
        F: FnOnce(&Connection, &[AgentKey]) -> Result<T> + Send + 'static,
    {
        let turn = self.readers.turn().await?;
        let placed: Vec<u64> = agents.iter().map(|agent| self.placed.of(*agent)).collect();
        let placed = match self.holds_mail.get() {
            false => placed,
            true => {
                let agents = agents.to_vec();
                let sort = move |desk: &mut Desk| {
                    desk.sort_for_all(&agents)?;
                    Ok(agents.iter().map(|agent| desk.placed.of(*agent)).collect())
                };
                self.writer()?.settle_all(sort).await?
            }
        };
        let (agents, counters) = (agents.to_vec(), self.placed.clone());
        let read = self.readers.read_by(turn, move |db| {
            pin(db)?;
            let still = |(agent, placed): &(AgentKey, u64)| counters.of(*agent) == *placed;
            let (still, moved): (Vec<_>, Vec<_>) = agents.into_iter().zip(placed).partition(still);
            let [still, moved] =
                [still, moved].map(|some| some.into_iter().map(|(agent, _)| agent).collect::<Vec<_>>());
            Ok((look(db, &still)?, moved))
        });
        read.await
    }

    /// Has this agent's mail put where readers look for it, and answers how much of it was by then: as long as that is so,
    /// they see it whole. `None` where nothing can be put anywhere.
    async fn placed_for(&self, agent: AgentKey) -> Result<Option<u64>> {
        let placed = self.placed.of(agent);
        if !self.holds_mail.get() {
            return Ok(Some(placed));
        }
        match self.writer()?.settle(agent, move |desk| Ok(desk.placed.of(agent))).await {
            Ok(placed) => Ok(Some(placed)),
            Err(error) => {
                tracing::warn!(%error, "reading mail that could not be sorted");
                Ok(None)
            }
        }
    }

    /// Readers that see mail whole wherever it lies, at a high price: for a disk that takes no more writes, and for mail that
    /// never comes to rest.
    fn readers_of_unsorted(&self) -> Result<Readers> {
        let mut readers = self.unsorted.lock().unwrap_or_else(PoisonError::into_inner);
        if readers.is_none() {
            *readers = Some(Readers::open(&self.path, 0, AS_IF_SORTED, self.durability.clone())?);
        }
        readers.clone().ok_or_else(super::error::closed)
    }

    pub(super) async fn shut(&self) {
        drop(self.writer.lock().unwrap_or_else(PoisonError::into_inner).take());
        self.readers.close();
        if let Some(readers) = self.unsorted.lock().unwrap_or_else(PoisonError::into_inner).take() {
            readers.close();
        }
        drop(self.checkpoints.lock().unwrap_or_else(PoisonError::into_inner).take());
        let thread = self.thread.lock().unwrap_or_else(PoisonError::into_inner).take();
        if let Some(thread) = thread {
            // Joining waits for the last transaction; the thread reports its own failures.
            let _ = tokio::task::spawn_blocking(move || thread.join()).await;
        }
        drop(self.lock.lock().unwrap_or_else(PoisonError::into_inner).take());
    }
}

impl Drop for SqliteStore {
    fn drop(&mut self) {
        drop(self.writer.lock().unwrap_or_else(PoisonError::into_inner).take());
        if let Some(thread) = self.thread.lock().unwrap_or_else(PoisonError::into_inner).take() {
            // Nobody is left who could give it work, so this waits for one transaction at most. Its lock goes after it.
            let _ = thread.join();
        }
    }
}

/// Looks at an agent's mail, unless some of it was put into place since there was so much.
fn unmoved<T>(
    db: &Connection,
    placed: &Counters,
    agent: AgentKey,
    before: u64,
    look: impl FnOnce(&Connection) -> Result<T>,
) -> Result<Option<T>> {
    pin(db)?;
    if placed.of(agent) == before { look(db).map(Some) } else { Ok(None) }
}

/// Pins the read snapshot of a transaction: whatever is in it was counted before it was there.
fn pin(db: &Connection) -> Result<()> {
    db.prepared("SELECT 1 FROM main.agents WHERE id = 0").and_then(|mut s| s.exists([])).map_err(failed).map(drop)
}

/// What every connection wants.
pub(super) fn tune(db: &Connection) -> rusqlite::Result<()> {
    db.set_prepared_statement_cache_capacity(STATEMENTS);
    // Without this every new value of a parameter in a range makes SQLite plan the statement again.
    db.set_db_config(DbConfig::SQLITE_DBCONFIG_ENABLE_QPSG, true)?;
    db.execute_batch("PRAGMA temp_store = MEMORY; PRAGMA cache_size = -16000; PRAGMA busy_timeout = 5000;")
}

/// Opens the write-ahead log and syncs what is in it: a process that was killed may have left commits that nobody synced, and
/// readers would see them; and that the log is there at all has to last too. Where that fails, the log stays as it is.
///
/// It is one and the same file for as long as a connection is open, and nothing but `sync` makes a commit in it durable.
fn inherit_log(
    db: &Connection,
    path: &Path,
    sync: impl Fn(&fs_err::File) -> std::io::Result<()>,
) -> Result<fs_err::File> {
    let opened = fs_err::OpenOptions::new().write(true).open(format!("{}-wal", path.display())).map_err(cannot_open);
    let synced = opened.and_then(|log| {
        sync(&log).map_err(cannot_open)?;
        sync_directory(path)?;
        Ok(log)
    });
    if synced.is_err()
        && let Err(error) = db.set_db_config(DbConfig::SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE, true)
    {
        tracing::error!(%error, "the write-ahead log may be folded in after the disk failed");
    }
    synced
}

fn prepare_writer(db: &Connection) -> rusqlite::Result<()> {
    tune(db)?;
    // NORMAL leaves the sync of a commit to us: see `sync`.
    db.execute_batch(
        "PRAGMA journal_mode = WAL; PRAGMA synchronous = NORMAL; PRAGMA foreign_keys = ON;
         PRAGMA wal_autocheckpoint = 16000; PRAGMA journal_size_limit = 67108864;",
    )
}

/// Brings a file to an older version of the schema, for tests of what comes after it.
#[cfg(feature = "test-support")]
pub(crate) fn migrate_to(path: &Path, version: i32) -> Result<()> {
    let mut db = Connection::open(path).map_err(failed)?;
    let runner = schema::migrations::runner().set_target(refinery::Target::Version(version));
    runner.run(&mut db).map(drop).map_err(StoreError::internal)
}

/// The newest form of the schema that this program knows.
pub(super) fn newest_form() -> i64 {
    let runner = schema::migrations::runner();
    runner.get_migrations().iter().map(|step| i64::from(step.version())).max().unwrap_or(0)
}

fn migrate(db: &mut Connection) -> Result<()> {
    schema::migrations::runner().run(db).map(drop).map_err(|error| {
        let detail = format!("the database's schema could not be brought up to date: {error}");
        StoreError::unavailable(detail).caused_by(error)
    })
}

fn cannot_open(error: std::io::Error) -> StoreError {
    StoreError::unavailable(format!("the database cannot be opened: {error}")).caused_by(error)
}

#[cfg(test)]
mod tests;
