//! Writing `_registry.json`.
//!
//! The file is replaced whole, under a lock of ours, so that it parses at every instant. Heartbeats do not touch it: each
//! agent's sign of life is in a file of its own, and every [`FOLD_EVERY`] whoever comes by folds them in.
//!
//! Other programs read, change and replace the file without a lock. What they wrote between our read and our write is
//! handed back by the exchange of names ([`durable::swap`]) and merged, so nothing of theirs is lost through us. What
//! they overwrite comes back: cards of ours with the next fold, and those of other programs that one of our folds has
//! seen and that fell out within [`YOUNG`] (`.amb/registry.seen.json`). One that was there for longer was in everybody's
//! copy, so whoever took it out meant it.

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
use crate::files::failure::{Doing, broken};
use crate::files::layout::Layout;
use crate::files::lock::FileLock;
use crate::files::open;
use crate::office::OfficeState;
use crate::registry::presence::{RegisteredCard, read_json, write_json};
use crate::registry::{LARGEST, salvage};

/// How far the registry may lag behind the signs of life.
pub(crate) const FOLD_EVERY: Duration = Duration::from_secs(2);
/// An entry of another program's that vanishes so soon after it registered was overwritten; a later one was removed.
const YOUNG: Duration = Duration::from_secs(60);
/// How far, in seconds, a heartbeat may be ahead of the moment at which a fold began.
const AHEAD: i64 = 5;
/// How often a fold tries to get in between other programs' writes.
const TRIES: usize = 200;
/// How often a new card is looked for in the registry, and how long to wait before each look: longer than another
/// program takes from its read to its write.
const LOOKS: usize = 20;
const BEFORE_A_LOOK: Duration = Duration::from_millis(20);

/// The entries of other programs that the last fold has seen.
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
    /// Brings the registry up to date if that was not done lately and nobody else is at it.
    pub(crate) fn fold_if_due(&self) -> Result<(), OfficeError> {
        if self.paths.layout != Layout::Nanobot {
            return Ok(());
        }
        // The lock's time of change is that of our last fold. The registry's own says nothing: others replace it too.
        let lock = self.paths.registry_lock();
        let age = open::about(&lock).and_then(|about| about.modified()).ok().and_then(|at| at.elapsed().ok());
        // A time in the future (no age) is due too: it may have been so for long.
        if age.is_some_and(|age| age < FOLD_EVERY) {
            return Ok(());
        }
        match FileLock::attempt(&lock).doing("could not lock the registry")? {
            Some(locked) => self.fold(&locked, Wait::Cached),
            None => Ok(()),
        }
    }

    /// Brings the registry up to date now.
    pub(crate) fn fold_now(&self, wait: Wait) -> Result<(), OfficeError> {
        if self.paths.layout != Layout::Nanobot {
            return Ok(());
        }
        let locked = FileLock::wait(&self.paths.registry_lock()).doing("could not lock the registry")?;
        self.fold(&locked, wait)
    }

    /// Puts a card of ours that was just entered back until the registry keeps it: another program may have read the
    /// registry before and replace it after.
    pub(crate) fn stay_listed(&self, name: &AgentName) -> Result<(), OfficeError> {
        if self.paths.layout != Layout::Nanobot {
            return Ok(());
        }
        for _ in 0..LOOKS {
            let ours = self.our_agents()?;
            let is_ours = |key: &String| ours.iter().any(|name| name.as_str() == key);
            if self.registry()?.is_none_or(|registry| registry.raw().keys().all(is_ours)) {
                // Nobody else writes here.
                return Ok(());
            }
            std::thread::sleep(BEFORE_A_LOOK);
            if self.registry()?.is_some_and(|registry| registry.contains(name)) {
                return Ok(());
            }
            self.fold_now(Wait::Synced)?;
        }
        tracing::warn!(%name, "other programs keep overwriting _registry.json; the card comes back with the next heartbeat");
        Ok(())
    }

    fn fold(&self, _locked: &FileLock, wait: Wait) -> Result<(), OfficeError> {
        let path = self.paths.registry();
        let now = self.now();
        let mut ours = Vec::new();
        for name in self.our_agents()? {
            ours.extend(self.our_entry(&name, now)?);
        }
        let seen: SeenEntries = read_json(&self.paths.registry_seen())?.unwrap_or_default();
        // What others wrote while we did, with what both began from: kept until a registry with it is in place.
        let mut displaced: Vec<(Registry, Registry)> = Vec::new();
        let mut put_aside = None;
        for _ in 0..TRIES {
            let before = open::if_there(open::bytes(&path, LARGEST)).doing("could not read _registry.json")?;
            let (base, whole) = match before.as_deref().map(|bytes| (Registry::parse(bytes), bytes)) {
                None => (Registry::default(), true),
                Some((Ok(registry), _)) => (registry, true),
                Some((Err(error), bytes)) => {
                    if put_aside.as_deref() != Some(bytes) {
                        let aside = self.put_aside(bytes)?;
                        tracing::warn!(%error, kept = %aside, "the registry is corrupt; it was rebuilt, the old one kept");
                        put_aside = Some(bytes.to_vec());
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
                self.fold_one(&mut registry, agent.clone(), now)?;
            }
            let new = registry.write().map_err(OfficeError::internal)?;
            let swapped = match before.as_deref() == Some(&new) {
                true => Swapped::Done,
                false => durable::swap(&path, &new, before.as_deref(), LARGEST, wait, &self.syncer)
                    .doing("could not write _registry.json")?,
            };
            match swapped {
                Swapped::Done => return self.note_fold(&registry, &ours, seen, now),
                Swapped::Changed => {}
                Swapped::Displaced(bytes) => {
                    displaced.push((base, Registry::parse(&bytes).unwrap_or_else(|_| salvage(&bytes))));
                }
            }
        }
        Err(broken("other programs replace _registry.json faster than it can be written; try again"))
    }

    /// Writes down when the fold was done and which entries of other programs it saw.
    fn note_fold(
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
        // Not for each heartbeat of theirs: what was seen a minute ago is good enough to be put back.
        let path = self.paths.registry_seen();
        let age = open::about(&path).and_then(|about| about.modified()).ok().and_then(|at| at.elapsed().ok());
        if !seen.0.keys().eq(before.0.keys()) || age.is_none_or(|age| age > YOUNG) && !seen.0.is_empty() {
            write_json(self, &path, &seen, Wait::Cached)?;
        }
        let at = std::time::SystemTime::from(now);
        open::regular_with(&self.paths.registry_lock(), open::options().write(true))
            .and_then(|file| file.set_modified(at))
            .doing("could not note that the registry was written")
    }

    fn fold_one(&self, registry: &mut Registry, ours: AgentEntry, now: Timestamp) -> Result<(), OfficeError> {
        let name = ours.name.clone();
        // An entry that we do not understand is replaced by ours: the agent registered here.
        let theirs = registry.get(&name).ok().flatten();
        let mut entry = RegistryEntry::from(ours);
        if let Some(theirs) = theirs {
            let when = |stamp: &Option<Stamp>| stamp.as_ref().map(Stamp::at);
            if when(&theirs.registered_at) > when(&entry.registered_at) {
                // It registered again with another program since: that one's card is the newer.
                let registered_at = when(&theirs.registered_at).unwrap_or(now);
                self.write_card(&name, &RegisteredCard { card: theirs.card.clone(), registered_at })?;
                entry.card = theirs.card.clone();
                entry.registered_at = theirs.registered_at.clone();
            } else if when(&theirs.registered_at) == when(&entry.registered_at) {
                entry.registered_at = theirs.registered_at.clone();
            }
            // One of the time to come was written before the clock was set back: it is not newer, it is wrong.
            let latest = now.checked_add(jiff::SignedDuration::from_secs(AHEAD)).unwrap_or(now);
            let theirs_at = when(&theirs.last_heartbeat).filter(|at| *at <= latest);
            if theirs_at > when(&entry.last_heartbeat).filter(|at| *at <= latest) {
                // It lives in another program now; whether it still does, that one's heartbeat says.
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

    /// Keeps the bytes of a registry that does not parse.
    fn put_aside(&self, bytes: &[u8]) -> Result<String, OfficeError> {
        let stamp = self.now().as_millisecond();
        durable::create(&self.paths.side(), bytes, &self.syncer, |attempt| {
            format!("registry-{stamp}-{attempt}.corrupt")
        })
        .doing("could not keep the broken registry aside")
    }
}

impl SeenEntries {
    /// Puts back what fell out. Of a registry that does not parse nobody removed anything.
    fn restore_lost(&self, registry: &mut Registry, whole: bool, now: Timestamp) {
        for (key, seen) in &self.0 {
            // Seen in the time to come: the clock was set back, and nobody knows how long ago that was.
            let age = Duration::try_from(now.duration_since(seen.since)).unwrap_or(Duration::MAX);
            if age < YOUNG || !whole {
                registry.restore(key, &seen.entry);
            }
        }
    }
}
