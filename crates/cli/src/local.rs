//! The local office: the one that `amb up` starts, or `amb serve` with neither an address nor a database. How it is found
//! by the other verbs.
//!
//! The serving process holds a lock for as long as its process lives, so the kernel itself says whether it runs; beside the
//! lock lies a record with its address. Both are named after its database, so that two homes have two local offices.

use std::fs::TryLockError;
use std::path::PathBuf;
use std::time::Duration;

use amb_client::ServerUrl;
use amb_core::{Code, OfficeError, Timestamp};
use anyhow::{Context, Result};
use fs_err::os::unix::fs::OpenOptionsExt as _;
use rustix::process::{Pid, Signal, kill_process, test_kill_process};
use serde::{Deserialize, Serialize};
use tokio::net::TcpListener;

use crate::database::default_url;
use crate::failure::Failure;
use crate::{durable, home, household, keys};

/// Where it listens if nothing else does.
pub(crate) const LISTEN: &str = "127.0.0.1:8000";
/// Ports that are tried, from the usual one on.
const PORTS: std::ops::Range<u16> = 8_000..8_100;
/// How long somebody who merely looks may hold the lock before whoever wants to serve gives up. A look takes microseconds.
const LOOKS: u32 = 200;
/// How long an office has to finish what it accepted; the server itself gives up earlier.
const ENDING: Duration = Duration::from_secs(40);
/// Names the space in which databases are hashed into names of records; it must never change.
const DATABASES: uuid::Uuid = uuid::Uuid::from_u128(0x7a41_0e86_52c9_5d3b_9f10_c86e_2b7d_14a5);

/// A local office that runs, as it wrote itself down when it was ready.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) struct Record {
    /// Its address.
    pub(crate) url: String,
    /// Its process.
    pub(crate) pid: i32,
    /// Where mail rests.
    pub(crate) store: String,
    /// The version that runs.
    pub(crate) version: String,
    /// Since when.
    pub(crate) started_at: Timestamp,
}

impl Record {
    pub(crate) fn server(&self) -> Result<ServerUrl, OfficeError> {
        self.url.parse()
    }
}

/// The files of this user's local office.
#[derive(Debug, Clone)]
struct Files {
    lock: PathBuf,
    record: PathBuf,
}

impl Files {
    fn find() -> Result<Self> {
        let name = uuid::Uuid::new_v5(&DATABASES, default_url()?.as_bytes()).simple().to_string();
        let directory = home::runtime_dir()?;
        let file = |ending: &str| directory.join(format!("office-{}.{ending}", &name[..12]));
        Ok(Self { lock: file("lock"), record: file("json") })
    }

    fn open_lock(&self) -> Result<fs_err::File> {
        durable::create_private(self.lock.parent().context("no directory")?)?;
        Ok(fs_err::OpenOptions::new()
            .create(true)
            .truncate(false)
            .write(true)
            .mode(durable::PRIVATE)
            .open(&self.lock)?)
    }

    /// The record, of an office that runs or ran.
    fn read(&self) -> Option<Record> {
        let bytes = fs_err::read(&self.record).ok()?;
        serde_json::from_slice(&bytes).ok().filter(|record: &Record| is_alive(record.pid))
    }
}

fn is_alive(pid: i32) -> bool {
    match Pid::from_raw(pid).map(test_kill_process) {
        Some(Ok(())) => true,
        // It is there, and somebody else's.
        Some(Err(error)) => error == rustix::io::Errno::PERM,
        None => false,
    }
}

/// The local office, if one runs. Reads two files and asks nobody, so that any verb can afford it.
pub(crate) fn running() -> Option<Record> {
    let files = Files::find().ok()?;
    // Without a lock nobody ever served here.
    let lock = fs_err::OpenOptions::new().write(true).open(&files.lock).ok()?;
    match lock.file().try_lock_shared() {
        // Nobody serves, whatever a killed process has left.
        Ok(()) => None,
        // Held: it runs. A file system without locks leaves the process as the only witness.
        Err(TryLockError::WouldBlock | TryLockError::Error(_)) => files.read(),
    }
}

/// Held by whoever serves the local office, from before it listens until its end.
#[derive(Debug)]
pub(crate) struct Held {
    files: Files,
    _lock: fs_err::File,
}

/// Becomes the one that serves the local office.
pub(crate) async fn hold() -> Result<Held, Failure> {
    let files = Files::find()?;
    let lock = files.open_lock()?;
    for _ in 0..LOOKS {
        match lock.file().try_lock() {
            Ok(()) => return Ok(Held { files, _lock: lock }),
            Err(TryLockError::Error(error)) => {
                tracing::warn!(%error, "{} cannot be locked", files.lock.display());
                return Ok(Held { files, _lock: lock });
            }
            Err(TryLockError::WouldBlock) => {}
        }
        if let Some(record) = files.read() {
            return Err(runs_already(&record));
        }
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    let detail = format!("another process holds {} and is not ready yet; try again", files.lock.display());
    Err(OfficeError::unavailable(detail).into())
}

fn runs_already(record: &Record) -> Failure {
    let detail = format!(
        "the local office runs already at {} (process {}); `amb down` ends it, and another office needs --listen and \
         --database-url of its own",
        record.url, record.pid
    );
    OfficeError::new(Code::Conflict, detail).into()
}

impl Held {
    /// Where the local office listened last; in the foreground it goes there or nowhere, so that nobody looks for it in vain.
    pub(crate) fn address(&self) -> String {
        last().and_then(|url| port_of(&url)).map_or_else(|| LISTEN.to_owned(), |port| format!("127.0.0.1:{port}"))
    }

    /// Listens where the local office listened last, so that addresses in the settings of clients stay right; else at the
    /// first free port.
    pub(crate) async fn bind(&self) -> Result<TcpListener, Failure> {
        let ports = last().and_then(|url| port_of(&url)).into_iter().chain(PORTS);
        for port in ports {
            match TcpListener::bind(("127.0.0.1", port)).await {
                Ok(listener) => return Ok(listener),
                Err(error) => tracing::debug!(port, %error, "not here"),
            }
        }
        let detail = format!("every port from {} to {} of 127.0.0.1 is taken", PORTS.start, PORTS.end - 1);
        Err(OfficeError::unavailable(detail).into())
    }

    /// Writes down that the office listens here. What is kept by its address before moves along with it.
    pub(crate) fn record(&self, url: &str, store: &str) -> Result<()> {
        let server: ServerUrl = url.parse()?;
        if let Some(before) = last().filter(|before| *before != server.to_string()) {
            keys::moved(&before, &server.to_string())?;
            household::moved(&before, &server.to_string())?;
        }
        remember(&server.to_string())?;
        let pid = i32::try_from(std::process::id()).context("a process id")?;
        let version = env!("CARGO_PKG_VERSION").to_owned();
        let record = Record { url: server.to_string(), pid, store: store.to_owned(), version, started_at: now() };
        Ok(durable::replace(&self.files.record, &serde_json::to_vec_pretty(&record)?, durable::PRIVATE)?)
    }
}

impl Drop for Held {
    fn drop(&mut self) {
        // A record that stays is harmless: readers check the lock too.
        let _ = fs_err::remove_file(&self.files.record);
    }
}

/// To the second: a person reads it.
fn now() -> Timestamp {
    let now = Timestamp::now();
    Timestamp::from_second(now.as_second()).unwrap_or(now)
}

/// Asks a local office to end, and waits until it has; the lock says when.
pub(crate) async fn end(record: &Record) -> Result<(), Failure> {
    let pid = Pid::from_raw(record.pid).context("the record names no process")?;
    let lock = Files::find()?.open_lock()?;
    kill_process(pid, Signal::TERM).with_context(|| format!("cannot end process {}", record.pid))?;
    let ended = tokio::task::spawn_blocking(move || lock.file().lock());
    match tokio::time::timeout(ENDING, ended).await {
        Ok(locked) => Ok(locked.context("waiting for the office")??),
        Err(_) => {
            let detail = format!("process {} is still finishing; look again with `amb status`", record.pid);
            Err(OfficeError::unavailable(detail).into())
        }
    }
}

/// Taken by each `amb up`, so that two at once start one office.
pub(crate) async fn turn() -> Result<fs_err::File, Failure> {
    let path = Files::find()?.lock.with_extension("up");
    durable::create_private(path.parent().context("no directory")?)?;
    let file =
        fs_err::OpenOptions::new().create(true).truncate(false).write(true).mode(durable::PRIVATE).open(&path)?;
    let locked = tokio::task::spawn_blocking(move || file.file().lock().map(|()| file));
    Ok(locked.await.context("waiting for another `amb up`")??)
}

/// Where the office in the background writes what happens.
pub(crate) fn log_file() -> Result<PathBuf> {
    Ok(home::state_dir()?.join("office.log"))
}

/// Where the address that it had last is kept: with its mail, since it belongs to that.
fn last_file() -> Result<PathBuf> {
    Ok(home::data_dir()?.join("local-office"))
}

fn last() -> Option<String> {
    let text = fs_err::read_to_string(last_file().ok()?).ok()?;
    Some(text.trim().to_owned()).filter(|url| !url.is_empty())
}

fn port_of(url: &str) -> Option<u16> {
    url.rsplit_once(':')?.1.parse().ok()
}

fn remember(url: &str) -> Result<()> {
    let path = last_file()?;
    durable::create_private(path.parent().context("no directory")?)?;
    Ok(durable::replace(&path, url.as_bytes(), durable::PRIVATE)?)
}
