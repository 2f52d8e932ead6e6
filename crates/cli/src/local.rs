//! The local office, which `amb up` starts, or `amb serve` with neither an address nor a database; and how other verbs
//! find it.
//!
//! The serving process holds a lock for as long as it lives, so the kernel tells whether it runs; a record with its
//! address is beside the lock. Both are named after its database, so that two home directories have two local offices.

use std::fs::TryLockError;
use std::path::PathBuf;
use std::time::Duration;

use amb_client::ServerUrl;
use amb_core::{Code, OfficeError, Timestamp};
use anyhow::{Context, Result};
use rustix::process::{Pid, Signal, kill_process, test_kill_process};
use serde::{Deserialize, Serialize};
use tokio::net::TcpListener;

use crate::database::default_url;
use crate::failure::Failure;
use crate::{durable, home, household, keys};

/// Its default address.
pub(crate) const LISTEN: &str = "127.0.0.1:8000";
/// The ports that are tried, in order.
const PORTS: std::ops::Range<u16> = 8_000..8_100;
/// How many attempts are made to take the lock, which a verb that checks for the office may hold for microseconds.
const LOCK_ATTEMPTS: u32 = 200;
/// How long an office has to finish what it accepted; the server itself gives up earlier.
const STOP_TIMEOUT: Duration = Duration::from_secs(40);
/// The UUID namespace in which databases are hashed into file names; it must never change.
const NAMESPACE: uuid::Uuid = uuid::Uuid::from_u128(0x7a41_0e86_52c9_5d3b_9f10_c86e_2b7d_14a5);

/// The record of a running local office.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) struct OfficeRecord {
    /// Its address.
    pub(crate) url: String,
    /// Its process.
    pub(crate) pid: i32,
    /// Where its messages are stored.
    pub(crate) store: String,
    /// The version that runs.
    pub(crate) version: String,
    /// When it started.
    pub(crate) started_at: Timestamp,
}

impl OfficeRecord {
    pub(crate) fn server(&self) -> Result<ServerUrl, OfficeError> {
        self.url.parse()
    }
}

/// A file of this user's local office: its `lock`, its record (`json`), or the lock of `amb up` (`up`).
fn file(extension: &str) -> Result<PathBuf> {
    let name = uuid::Uuid::new_v5(&NAMESPACE, default_url()?.as_bytes()).simple().to_string();
    Ok(home::runtime_dir()?.join(format!("office-{}.{extension}", &name[..12])))
}

/// The record of an office whose process lives.
fn read_record() -> Option<OfficeRecord> {
    let bytes = fs_err::read(file("json").ok()?).ok()?;
    serde_json::from_slice(&bytes).ok().filter(|record: &OfficeRecord| is_alive(record.pid))
}

fn is_alive(pid: i32) -> bool {
    match Pid::from_raw(pid).map(test_kill_process) {
        Some(Ok(())) => true,
        // The process exists and belongs to another user.
        Some(Err(error)) => error == rustix::io::Errno::PERM,
        None => false,
    }
}

/// The local office, if one runs. Reads two files and no network, so that any verb can call it.
pub(crate) fn running() -> Option<OfficeRecord> {
    // Without a lock file no office ever ran here.
    let lock = fs_err::OpenOptions::new().write(true).open(file("lock").ok()?).ok()?;
    match lock.file().try_lock_shared() {
        // The lock is free: no office runs, whatever record a killed process has left.
        Ok(()) => None,
        // The lock is held: it runs. On a file system without locks the process id in the record decides.
        Err(TryLockError::WouldBlock | TryLockError::Error(_)) => read_record(),
    }
}

/// The lock of the process that serves the local office, from before it listens until its end.
#[derive(Debug)]
pub(crate) struct LocalOfficeLock {
    record: PathBuf,
    _lock: fs_err::File,
}

/// Takes the lock; an error where the office runs already.
pub(crate) async fn lock() -> Result<LocalOfficeLock, Failure> {
    let (path, record) = (file("lock")?, file("json")?);
    let lock = durable::open_lock(&path)?;
    for _ in 0..LOCK_ATTEMPTS {
        match lock.file().try_lock() {
            Ok(()) => return Ok(LocalOfficeLock { record, _lock: lock }),
            Err(TryLockError::Error(error)) => {
                tracing::warn!(%error, "{} cannot be locked", path.display());
                return Ok(LocalOfficeLock { record, _lock: lock });
            }
            Err(TryLockError::WouldBlock) => {}
        }
        if let Some(record) = read_record() {
            return Err(runs_already(&record));
        }
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    let detail = format!("another process holds {} and is not ready yet; try again", path.display());
    Err(OfficeError::unavailable(detail).into())
}

fn runs_already(record: &OfficeRecord) -> Failure {
    let detail = format!(
        "the local office runs already at {} (process {}); `amb down` ends it, and another office needs --listen and \
         --database-url of its own",
        record.url, record.pid
    );
    OfficeError::new(Code::Conflict, detail).into()
}

impl LocalOfficeLock {
    /// The last address of the local office; in the foreground it is the only one that is tried, so that clients find
    /// the office.
    pub(crate) fn address(&self) -> String {
        last_port().map_or_else(|| LISTEN.to_owned(), |port| format!("127.0.0.1:{port}"))
    }

    /// Listens at the last address of the local office, so that clients' settings stay right; else at the first free
    /// port.
    pub(crate) async fn bind(&self) -> Result<TcpListener, Failure> {
        for port in last_port().into_iter().chain(PORTS) {
            match TcpListener::bind(("127.0.0.1", port)).await {
                Ok(listener) => return Ok(listener),
                Err(error) => tracing::debug!(port, %error, "cannot listen on this port"),
            }
        }
        let detail = format!("every port from {} to {} of 127.0.0.1 is taken", PORTS.start, PORTS.end - 1);
        Err(OfficeError::unavailable(detail).into())
    }

    /// Makes this the address of the local office. The keys and the household of the previous address move to it.
    pub(crate) fn move_to(&self, url: &str) -> Result<()> {
        let server = url.parse::<ServerUrl>()?.to_string();
        if let Some(before) = last_address().filter(|before| *before != server) {
            keys::change_address(&before, &server)?;
            household::change_address(&before, &server)?;
        }
        durable::replace_private(&last_address_file()?, server.as_bytes())
    }

    /// Writes the record by which other verbs find the office.
    pub(crate) fn record(&self, url: &str, store: &str) -> Result<()> {
        let url = url.parse::<ServerUrl>()?.to_string();
        let pid = i32::try_from(std::process::id()).context("a process id")?;
        let version = env!("CARGO_PKG_VERSION").to_owned();
        let record = OfficeRecord { url, pid, store: store.to_owned(), version, started_at: now() };
        Ok(durable::replace(&self.record, &serde_json::to_vec_pretty(&record)?, durable::PRIVATE)?)
    }
}

impl Drop for LocalOfficeLock {
    fn drop(&mut self) {
        // A leftover record is harmless: readers check the lock too.
        let _ = fs_err::remove_file(&self.record);
    }
}

/// The current time, rounded to the second for people.
fn now() -> Timestamp {
    let now = Timestamp::now();
    Timestamp::from_second(now.as_second()).unwrap_or(now)
}

/// Asks a local office to stop, and waits for its lock to be released.
pub(crate) async fn stop(record: &OfficeRecord) -> Result<(), Failure> {
    let pid = Pid::from_raw(record.pid).context("the record names no process")?;
    kill_process(pid, Signal::TERM).with_context(|| format!("cannot end process {}", record.pid))?;
    ended(record).await
}

/// Waits until the lock of an office that ends is released.
pub(crate) async fn ended(record: &OfficeRecord) -> Result<(), Failure> {
    let lock = durable::open_lock(&file("lock")?)?;
    let ended = tokio::task::spawn_blocking(move || lock.file().lock());
    match tokio::time::timeout(STOP_TIMEOUT, ended).await {
        Ok(locked) => Ok(locked.context("waiting for the office")??),
        Err(_) => {
            let detail = format!("process {} is still finishing; look again with `amb status`", record.pid);
            Err(OfficeError::unavailable(detail).into())
        }
    }
}

/// Takes the lock of `amb up`, so that two at once start one office.
pub(crate) async fn lock_startup() -> Result<fs_err::File, Failure> {
    let file = durable::open_lock(&file("up")?)?;
    let locked = tokio::task::spawn_blocking(move || file.file().lock().map(|()| file));
    Ok(locked.await.context("waiting for another `amb up`")??)
}

/// The log file of the office in the background.
pub(crate) fn log_file() -> Result<PathBuf> {
    Ok(home::state_dir()?.join("office.log"))
}

/// The file with the last address: beside the database, since it belongs to that.
fn last_address_file() -> Result<PathBuf> {
    Ok(home::data_dir()?.join("local-office"))
}

fn last_address() -> Option<String> {
    let text = fs_err::read_to_string(last_address_file().ok()?).ok()?;
    Some(text.trim().to_owned()).filter(|url| !url.is_empty())
}

/// The last address of the local office. Another server may use it meanwhile, so no key may be sent there.
pub(crate) fn last_server() -> Result<ServerUrl> {
    let address = last_address().context("no local office has run yet; `amb up` starts it")?;
    Ok(address.parse()?)
}

fn last_port() -> Option<u16> {
    last_address()?.rsplit_once(':')?.1.parse().ok()
}
