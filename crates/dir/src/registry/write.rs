//! Writes `_registry.json`.
//!
//! The file is replaced whole, under a lock of ours, so that it parses at every instant. Heartbeats are in a file of
//! each agent; every [`UPDATE_INTERVAL`] some process merges them into the registry.
//!
//! Other programs read, change and replace the file without a lock. What they wrote between our read and our write is
//! returned by the exchange of names ([`durable::swap`]) and merged, so we lose nothing of theirs. What they overwrite
//! is restored: our cards by the next update, and entries of other programs that one of our updates has seen and that
//! disappeared within [`RESTORE_WINDOW`] (`.amb/registry.seen.json`). An older entry was in every program's copy, so it
//! was removed on purpose.

use std::collections::{BTreeMap, HashSet};
use std::time::Duration;

use amb_core::card::Presence;
use amb_core::doc::AgentEntry;
use amb_core::limits::HEARTBEAT_TIMEOUT;
use amb_core::wire::Stamp;
use amb_core::wire::registry::{Registry, RegistryEntry};
use amb_core::{AgentName, OfficeError, Timestamp};
use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::files::durable::{self, Swapped, Wait};
use crate::files::failure::IoContext;
use crate::files::layout::Layout;
use crate::files::lock::FileLock;
use crate::files::open;
use crate::office::OfficeState;
use crate::registry::presence::{RegisteredCard, read_json, write_json};
use crate::registry::{MAX_BYTES, salvage};

/// How far the registry may lag behind the heartbeats.
pub(crate) const UPDATE_INTERVAL: Duration = Duration::from_secs(2);
/// An entry of another program that disappears this soon after it registered was overwritten; an older one was removed.
const RESTORE_WINDOW: Duration = Duration::from_secs(60);
/// How far, in seconds, a heartbeat may be ahead of the start of an update.
const MAX_SKEW_SECONDS: i64 = 5;
/// Attempts of an update to write between other programs' writes.
const MAX_TRIES: usize = 200;
/// How often a new card is looked for in the registry, and the pause before each check: longer than another program
/// takes from its read to its write.
const LISTED_CHECKS: usize = 20;
const LISTED_CHECK_PAUSE: Duration = Duration::from_millis(20);

/// Entries of other programs that the last update has seen, by name.
#[derive(Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(transparent)]
struct SeenEntries(BTreeMap<String, SeenEntry>);

#[derive(Debug, PartialEq, Serialize, Deserialize)]
struct SeenEntry {
    /// When it registered, or was first seen.
    since: Timestamp,
    entry: Value,
}

impl OfficeState {
    /// Updates the registry if the last update is old enough and no other process is updating it.
    pub(crate) fn update_registry_if_due(&self) -> Result<(), OfficeError> {
        if self.paths.layout != Layout::Nanobot {
            return Ok(());
        }
        // The lock's mtime is our last update. The registry's own mtime is useless: other programs replace it too.
        let lock = self.paths.registry_lock();
        let age = open::metadata(&lock).ok().and_then(|metadata| open::age(&metadata));
        // A time in the future (no age) is due too: the clock was set back.
        if age.is_some_and(|age| age < UPDATE_INTERVAL) {
            return Ok(());
        }
        match FileLock::try_lock(&lock).context("could not lock the registry")? {
            Some(locked) => self.merge_into_registry(&locked, Wait::Cached),
            None => Ok(()),
        }
    }

    /// Updates the registry now.
    pub(crate) fn update_registry(&self, wait: Wait) -> Result<(), OfficeError> {
        if self.paths.layout != Layout::Nanobot {
            return Ok(());
        }
        let locked = FileLock::lock(&self.paths.registry_lock()).context("could not lock the registry")?;
        self.merge_into_registry(&locked, wait)
    }

    /// Writes a new card again until the registry keeps it: another program may have read the registry before the
    /// update and replace it afterwards.
    pub(crate) fn ensure_listed(&self, name: &AgentName) -> Result<(), OfficeError> {
        if self.paths.layout != Layout::Nanobot {
            return Ok(());
        }
        for _ in 0..LISTED_CHECKS {
            let ours = self.registered_agents()?;
            let is_ours = |key: &String| ours.iter().any(|name| name.as_str() == key);
            if self.registry()?.is_none_or(|registry| registry.raw().keys().all(is_ours)) {
                // No other program writes here.
                return Ok(());
            }
            std::thread::sleep(LISTED_CHECK_PAUSE);
            if self.registry()?.is_some_and(|registry| registry.contains(name)) {
                return Ok(());
            }
            self.update_registry(Wait::Synced)?;
        }
        tracing::warn!(%name, "other programs keep overwriting _registry.json; the card comes back with the next heartbeat");
        Ok(())
    }

    fn merge_into_registry(&self, _locked: &FileLock, wait: Wait) -> Result<(), OfficeError> {
        let path = self.paths.registry();
        let now = self.now();
        let mut ours = Vec::new();
        for name in self.registered_agents()? {
            ours.extend(self.registered_entry(&name, now)?);
        }
        let seen: SeenEntries = read_json(&self.paths.registry_seen())?.unwrap_or_default();
        // What other programs wrote meanwhile, with the common base: kept until a registry that contains it is written.
        let mut displaced: Vec<(Registry, Registry)> = Vec::new();
        let mut kept = None;
        for _ in 0..MAX_TRIES {
            let before = open::if_exists(open::read(&path, MAX_BYTES)).context("could not read _registry.json")?;
            let (base, whole) = match before.as_deref().map(|bytes| (Registry::parse(bytes), bytes)) {
                None => (Registry::default(), true),
                Some((Ok(registry), _)) => (registry, true),
                Some((Err(error), bytes)) => {
                    if kept.as_deref() != Some(bytes) {
                        let aside = self.keep_corrupt_copy(bytes)?;
                        tracing::warn!(%error, kept = %aside, "the registry is corrupt; it was rebuilt, the old one kept");
                        kept = Some(bytes.to_vec());
                    }
                    (salvage(bytes), false)
                }
            };
            let mut registry = base.clone();
            for (base, theirs) in &displaced {
                registry.merge(base, theirs);
            }
            if before.is_some() {
                seen.restore_lost(&mut registry, whole, now);
            }
            for agent in &ours {
                self.merge_entry(&mut registry, agent.clone(), now)?;
            }
            let new = registry.write().map_err(OfficeError::internal)?;
            let swapped = match before.as_deref() == Some(&new) {
                true => Swapped::Done,
                false => durable::swap(&path, &new, before.as_deref(), MAX_BYTES, wait, &self.syncer)
                    .context("could not write _registry.json")?,
            };
            match swapped {
                Swapped::Done => return self.record_update(&registry, &ours, seen, now),
                Swapped::Changed => {}
                Swapped::Displaced(bytes) => {
                    displaced.push((base, Registry::parse(&bytes).unwrap_or_else(|_| salvage(&bytes))));
                }
            }
        }
        Err(OfficeError::unavailable("other programs replace _registry.json faster than it can be written; try again"))
    }

    /// Records the time of the update and the entries of other programs that it saw.
    fn record_update(
        &self,
        registry: &Registry,
        ours: &[AgentEntry],
        before: SeenEntries,
        now: Timestamp,
    ) -> Result<(), OfficeError> {
        let ours: HashSet<&str> = ours.iter().map(|agent| agent.name.as_str()).collect();
        let theirs = registry.raw().iter().filter(|(key, _)| !ours.contains(key.as_str()));
        let since = |key: &str| {
            let entry = AgentName::parse(key).ok().and_then(|name| registry.get(&name).ok()?);
            let registered = entry.and_then(|entry| Some(entry.registered_at?.at()));
            let first = registered.or_else(|| Some(before.0.get(key)?.since));
            first.unwrap_or(now).min(now)
        };
        let seen = SeenEntries(
            theirs.map(|(key, entry)| (key.clone(), SeenEntry { since: since(key), entry: entry.clone() })).collect(),
        );
        // Not for each of their heartbeats: an entry of a minute ago is good enough to be restored.
        let path = self.paths.registry_seen();
        let age = open::metadata(&path).ok().and_then(|metadata| open::age(&metadata));
        if !seen.0.keys().eq(before.0.keys()) || age.is_none_or(|age| age > RESTORE_WINDOW) && !seen.0.is_empty() {
            write_json(self, &path, &seen, Wait::Cached)?;
        }
        let at = std::time::SystemTime::from(now);
        open::regular_with(&self.paths.registry_lock(), open::options().write(true))
            .and_then(|file| file.set_modified(at))
            .context("could not note that the registry was written")
    }

    fn merge_entry(&self, registry: &mut Registry, ours: AgentEntry, now: Timestamp) -> Result<(), OfficeError> {
        let name = ours.name.clone();
        // An entry that does not parse is replaced by ours: the agent registered here.
        let theirs = registry.get(&name).ok().flatten();
        let mut entry = RegistryEntry::from(ours);
        if let Some(theirs) = theirs {
            let when = |stamp: &Option<Stamp>| stamp.as_ref().map(Stamp::at);
            if when(&theirs.registered_at) > when(&entry.registered_at) {
                // It registered again with another program since, so that card is newer.
                let registered_at = when(&theirs.registered_at).unwrap_or(now);
                self.write_card(&name, &RegisteredCard { card: theirs.card.clone(), registered_at })?;
                entry.card = theirs.card.clone();
                entry.registered_at = theirs.registered_at.clone();
            } else if when(&theirs.registered_at) == when(&entry.registered_at) {
                entry.registered_at = theirs.registered_at.clone();
            }
            // A time in the future was written before the clock was set back: wrong, not newer.
            let latest = now.checked_add(jiff::SignedDuration::from_secs(MAX_SKEW_SECONDS)).unwrap_or(now);
            let theirs_at = when(&theirs.last_heartbeat).filter(|at| *at <= latest);
            if theirs_at > when(&entry.last_heartbeat).filter(|at| *at <= latest) {
                // Another program runs it now; its heartbeat there tells whether it still does.
                let seen = when(&theirs.last_heartbeat);
                let tasks = theirs.current_tasks.clone();
                entry.status = Presence::at(now, theirs.status, seen, tasks, HEARTBEAT_TIMEOUT).status;
                entry.last_heartbeat = theirs.last_heartbeat;
                entry.current_tasks = theirs.current_tasks;
            } else if when(&theirs.last_heartbeat) == when(&entry.last_heartbeat) {
                entry.last_heartbeat = theirs.last_heartbeat;
            }
        }
        registry.put(&entry);
        Ok(())
    }

    /// Keeps a copy of a corrupt registry.
    fn keep_corrupt_copy(&self, bytes: &[u8]) -> Result<String, OfficeError> {
        let stamp = self.now().as_millisecond();
        durable::create(&self.paths.own_dir(), bytes, &self.syncer, |attempt| {
            format!("registry-{stamp}-{attempt}.corrupt")
        })
        .context("could not keep the broken registry aside")
    }
}

impl SeenEntries {
    /// Restores entries that disappeared. From a corrupt registry (`whole` is false) nothing was removed on purpose.
    fn restore_lost(&self, registry: &mut Registry, whole: bool, now: Timestamp) {
        for (key, seen) in &self.0 {
            // A time in the future: the clock was set back, and the age is unknown.
            let age = Duration::try_from(now.duration_since(seen.since)).unwrap_or(Duration::MAX);
            if age < RESTORE_WINDOW || !whole {
                registry.restore(key, &seen.entry);
            }
        }
    }
}
