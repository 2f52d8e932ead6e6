//! The keys of this user's agents, by server and name, in a private file.

use std::collections::BTreeMap;
use std::path::PathBuf;

use amb_client::{SecretString, ServerUrl};
use amb_core::AgentName;
use anyhow::Result;

use crate::{durable, home};

type StoredKeys = BTreeMap<String, BTreeMap<AgentName, String>>;

/// The file with the keys.
pub(crate) fn path() -> Result<PathBuf> {
    Ok(home::config_dir()?.join("keys.json"))
}

fn read() -> Result<StoredKeys> {
    durable::read_json(&path()?)
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

/// The agents whose keys are stored, by server.
pub(crate) fn agents_by_server() -> Result<BTreeMap<String, Vec<String>>> {
    let names = |keys: BTreeMap<AgentName, String>| keys.into_keys().map(|name| name.to_string()).collect();
    Ok(read()?.into_iter().map(|(server, keys)| (server, names(keys))).collect())
}

/// Stores a key; returns once it is on disk.
pub(crate) fn store(server: &ServerUrl, name: &AgentName, key: &str) -> Result<PathBuf> {
    change(|known| {
        known.entry(server.to_string()).or_default().insert(name.clone(), key.to_owned());
    })
}

/// Removes all keys at a server; returns how many there were.
pub(crate) fn remove_server(server: &str) -> Result<usize> {
    let mut count = 0;
    change(|known| count = known.remove(server).unwrap_or_default().len())?;
    Ok(count)
}

/// Moves the keys of an office to its new address, lest they are sent to another server at the old one.
pub(crate) fn change_address(before: &str, after: &str) -> Result<()> {
    if !read()?.contains_key(before) {
        return Ok(());
    }
    change(|known| {
        let keys = known.remove(before).unwrap_or_default();
        known.entry(after.to_owned()).or_default().extend(keys);
    })?;
    Ok(())
}

fn change(edit: impl FnOnce(&mut StoredKeys)) -> Result<PathBuf> {
    let path = path()?;
    durable::update_json(&path, edit)?;
    Ok(path)
}
