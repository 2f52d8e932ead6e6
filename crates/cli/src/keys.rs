//! The keys of this user's agents, by server and name, in a file that only this user reads.

use std::collections::BTreeMap;
use std::io::Write;
use std::path::{Path, PathBuf};

use amb_client::{SecretString, ServerUrl};
use amb_core::AgentName;
use anyhow::{Context, Result};
use fs_err::os::unix::fs::OpenOptionsExt as _;
use serde::de::DeserializeOwned;

use crate::{home, local};

type Known = BTreeMap<String, BTreeMap<AgentName, String>>;

fn path() -> Result<PathBuf> {
    Ok(home::config_dir()?.join("keys.json"))
}

fn read() -> Result<Known> {
    read_or_default(&path()?)
}

/// Reads a JSON file of this user; the default where there is none yet.
pub(crate) fn read_or_default<T: Default + DeserializeOwned>(path: &Path) -> Result<T> {
    match fs_err::read(path) {
        Ok(bytes) => serde_json::from_slice(&bytes).with_context(|| format!("{} is damaged", path.display())),
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(T::default()),
        Err(error) => Err(error.into()),
    }
}

/// The agents that this user has at a server.
pub(crate) fn agents(server: &ServerUrl) -> Result<Vec<AgentName>> {
    Ok(read()?.remove(&server.to_string()).unwrap_or_default().into_keys().collect())
}

/// The key of an agent at a server.
pub(crate) fn find(server: &ServerUrl, name: &AgentName) -> Result<Option<SecretString>> {
    let key = read()?.get_mut(&server.to_string()).and_then(|keys| keys.remove(name));
    Ok(key.map(SecretString::from))
}

/// Whose keys are kept, by server.
pub(crate) fn all() -> Result<BTreeMap<String, Vec<String>>> {
    let names = |keys: BTreeMap<AgentName, String>| keys.into_keys().map(|name| name.to_string()).collect();
    Ok(read()?.into_iter().map(|(server, keys)| (server, names(keys))).collect())
}

/// Stores a key; returns once it is on disk.
pub(crate) fn keep(server: &ServerUrl, name: &AgentName, key: &str) -> Result<PathBuf> {
    change(|known| {
        known.entry(server.to_string()).or_default().insert(name.clone(), key.to_owned());
    })
}

/// Forgets all keys at a server; returns how many there were.
pub(crate) fn forget(server: &str) -> Result<usize> {
    let mut count = 0;
    change(|known| count = known.remove(server).unwrap_or_default().len())?;
    Ok(count)
}

/// An office has another address now: what is kept by the old one is kept by the new one, since whoever listens at the old
/// one must not be shown its keys.
pub(crate) fn moved(before: &str, after: &str) -> Result<()> {
    if !read()?.contains_key(before) {
        return Ok(());
    }
    change(|known| {
        let keys = known.remove(before).unwrap_or_default();
        known.entry(after.to_owned()).or_default().extend(keys);
    })?;
    Ok(())
}

fn change(edit: impl FnOnce(&mut Known)) -> Result<PathBuf> {
    let path = path()?;
    let directory = home::config_dir()?;
    local::make_private(&directory)?;
    // Two agents may be registered at once: read and written under one lock.
    let lock = fs_err::OpenOptions::new()
        .create(true)
        .truncate(false)
        .write(true)
        .mode(0o600)
        .open(directory.join("keys.lock"))?;
    lock.file().lock()?;
    let mut known = read()?;
    edit(&mut known);
    let draft = path.with_extension(format!("tmp{}", std::process::id()));
    let mut file = fs_err::OpenOptions::new().create(true).truncate(true).write(true).mode(0o600).open(&draft)?;
    serde_json::to_writer_pretty(&mut file, &known)?;
    file.write_all(b"\n")?;
    file.sync_all()?;
    fs_err::rename(&draft, &path)?;
    fs_err::File::open(&directory)?.sync_all()?;
    Ok(path)
}
