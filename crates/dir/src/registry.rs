//! `_registry.json`, which other programs read and write too.
//!
//! It is replaced whole, under a lock, never edited in place, so that it parses at every instant. Heartbeats do not touch
//! it: each agent's sign of life is in a file of its own, and every [`FOLD_EVERY`] whoever comes by folds them in. Other
//! programs take no lock, so what they overwrite comes back with the next fold; entries and fields of theirs are kept.

use std::io;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use amb_core::card::Presence;
use amb_core::limits::HEARTBEAT_TIMEOUT;
use amb_core::wire::Stamp;
use amb_core::wire::registry::{Entry, Registry};
use amb_core::{AgentName, OfficeError, Timestamp};
use serde_json::Value;

use crate::durable::{self, Wait};
use crate::failure::Doing;
use crate::layout::Layout;
use crate::lock::Locked;
use crate::office::Shared;
use crate::people::Registered;

/// How far the registry may lag behind the signs of life.
pub(crate) const FOLD_EVERY: Duration = Duration::from_secs(2);

/// The registry as last parsed, with what tells that the file is still the same.
#[derive(Debug, Default)]
pub(crate) struct Cache(Mutex<Option<(Version, Arc<Registry>)>>);

/// Inode, time of change and length: a replaced file differs in the first.
type Version = (u64, i128, u64);

impl Shared {
    /// The registry, if it is there and parses.
    pub(crate) fn registry(&self) -> Result<Option<Arc<Registry>>, OfficeError> {
        use std::os::unix::fs::MetadataExt;
        let path = self.paths.registry();
        let doing = "could not read _registry.json";
        let about = match fs_err::metadata(&path) {
            Ok(about) => about,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
            Err(error) => return Err(error).doing(doing),
        };
        let version =
            (about.ino(), i128::from(about.mtime()) * 1_000_000_000 + i128::from(about.mtime_nsec()), about.len());
        let mut cache = self.registry_cache.0.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some((cached, registry)) = &*cache
            && *cached == version
        {
            return Ok(Some(registry.clone()));
        }
        let bytes = match fs_err::read(&path) {
            Ok(bytes) => bytes,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
            Err(error) => return Err(error).doing(doing),
        };
        match Registry::parse(&bytes) {
            Ok(registry) => {
                let registry = Arc::new(registry);
                *cache = Some((version, registry.clone()));
                Ok(Some(registry))
            }
            Err(error) => {
                tracing::warn!(path = %path.display(), %error, "the registry does not parse; reading what can be read of it");
                Ok(Some(Arc::new(salvage(&bytes))))
            }
        }
    }

    /// Every entry that can be understood.
    pub(crate) fn registry_entries(&self) -> Result<Vec<Entry>, OfficeError> {
        let Some(registry) = self.registry()? else { return Ok(Vec::new()) };
        let understood = registry.entries().filter_map(|entry| {
            entry
                .inspect_err(|(key, error)| tracing::warn!(key, %error, "an entry of the registry is not understood"))
                .ok()
        });
        Ok(understood.collect())
    }

    /// One entry. One that is there but not understood is an error, lest a broken `allow_from` be read as "everybody".
    pub(crate) fn registry_entry(&self, name: &AgentName) -> Result<Option<Entry>, OfficeError> {
        let Some(registry) = self.registry()? else { return Ok(None) };
        registry.get(name).map_err(|error| {
            OfficeError::unavailable(format!("the entry of {name} in _registry.json is not understood: {error}"))
        })
    }

    /// Brings the registry up to date if that was not done lately and nobody else is at it.
    pub(crate) fn fold_if_due(&self) -> Result<(), OfficeError> {
        if self.paths.layout != Layout::Nanobot {
            return Ok(());
        }
        let path = self.paths.registry();
        let age = fs_err::metadata(&path).and_then(|about| about.modified()).ok().and_then(|at| at.elapsed().ok());
        // A file from the future (no age) is folded too: it may have been so for long.
        if age.is_some_and(|age| age < FOLD_EVERY) {
            return Ok(());
        }
        match Locked::attempt(&self.paths.registry_lock()).doing("could not lock the registry")? {
            Some(locked) => self.fold(&locked, Wait::Cached),
            None => Ok(()),
        }
    }

    /// Brings the registry up to date now.
    pub(crate) fn fold_now(&self, wait: Wait) -> Result<(), OfficeError> {
        if self.paths.layout != Layout::Nanobot {
            return Ok(());
        }
        let locked = Locked::wait(&self.paths.registry_lock()).doing("could not lock the registry")?;
        self.fold(&locked, wait)
    }

    fn fold(&self, _locked: &Locked, wait: Wait) -> Result<(), OfficeError> {
        let path = self.paths.registry();
        let bytes = match fs_err::read(&path) {
            Ok(bytes) => Some(bytes),
            Err(error) if error.kind() == io::ErrorKind::NotFound => None,
            Err(error) => return Err(error).doing("could not read _registry.json"),
        };
        let mut registry = match &bytes {
            None => Registry::default(),
            Some(bytes) => match Registry::parse(bytes) {
                Ok(registry) => registry,
                Err(error) => {
                    let aside = self.put_aside(bytes)?;
                    tracing::warn!(%error, kept = %aside, "the registry did not parse; it was rebuilt, the old one kept");
                    salvage(bytes)
                }
            },
        };
        let now = self.now();
        for name in self.our_agents()? {
            self.fold_one(&mut registry, &name, now)?;
        }
        let new = registry.write().map_err(OfficeError::internal)?;
        if bytes.as_deref() == Some(&new) {
            // Nothing to say; but the time of change tells others that somebody has looked.
            let now = std::time::SystemTime::from(now);
            return fs_err::OpenOptions::new()
                .write(true)
                .open(&path)
                .and_then(|file| file.set_modified(now))
                .doing("could not touch _registry.json");
        }
        durable::replace(&path, &new, wait, &self.syncer).doing("could not write _registry.json")
    }

    fn fold_one(&self, registry: &mut Registry, name: &AgentName, now: Timestamp) -> Result<(), OfficeError> {
        let Some(ours) = self.our_entry(name, now)? else { return Ok(()) };
        // An entry that we do not understand is replaced by ours: the agent registered here.
        let theirs = registry.get(name).ok().flatten();
        let mut entry = Entry::from(ours);
        if let Some(theirs) = theirs {
            let when = |stamp: &Option<Stamp>| stamp.as_ref().map(Stamp::at);
            if when(&theirs.registered_at) > when(&entry.registered_at) {
                // It registered again with another program since: that one's card is the newer.
                let registered_at = when(&theirs.registered_at).unwrap_or(now);
                self.write_card(name, &Registered { card: theirs.card.clone(), registered_at })?;
                entry.card = theirs.card.clone();
                entry.registered_at = theirs.registered_at.clone();
            } else if when(&theirs.registered_at) == when(&entry.registered_at) {
                entry.registered_at = theirs.registered_at.clone();
            }
            if when(&theirs.last_heartbeat) > when(&entry.last_heartbeat) {
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

/// The entries that can be read in a registry that does not parse as a whole: torn, doubled, or with garbage between.
fn salvage(bytes: &[u8]) -> Registry {
    let text = String::from_utf8_lossy(bytes);
    let mut found = serde_json::Map::new();
    let mut rest: &str = &text;
    while let Some(quote) = rest.find('"') {
        rest = &rest[quote + 1..];
        let Some(end) = rest.find('"') else { break };
        let (key, after) = (&rest[..end], rest[end + 1..].trim_start());
        let value = after.strip_prefix(':').map(str::trim_start).filter(|value| value.starts_with('{'));
        let (Some(value), Ok(_)) = (value, AgentName::parse(key)) else { continue };
        let mut values = serde_json::Deserializer::from_str(value).into_iter::<Value>();
        if let Some(Ok(Value::Object(fields))) = values.next()
            && ["agent_id", "last_heartbeat", "capabilities", "status"].iter().any(|field| fields.contains_key(*field))
        {
            let taken = values.byte_offset();
            found.insert(key.to_owned(), Value::Object(fields));
            rest = &value[taken..];
        }
    }
    serde_json::to_vec(&found).ok().and_then(|bytes| Registry::parse(&bytes).ok()).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_can_be_read_of_a_broken_registry_is_kept() {
        let torn = r#"{
  "coder": {"agent_id": "coder", "status": "idle", "allow_from": ["a"]},
  "writer": {"agent_id": "writer", "capabilities": ["x"], "stat"#;
        let doubled = r#"{"coder": {"agent_id": "coder", "allow_from": ["a"]}}"reader": {"agent_id": "reader"}}"#;
        for (text, names) in [(torn, &["coder"][..]), (doubled, &["coder", "reader"]), ("", &[]), ("\"\"\"", &[])] {
            let registry = salvage(text.as_bytes());
            assert_eq!(registry.len(), names.len(), "{text}");
            for name in names {
                assert!(registry.contains(&name.parse().unwrap()));
            }
        }
        let coder = salvage(torn.as_bytes()).get(&"coder".parse().unwrap()).unwrap().unwrap();
        assert_eq!(coder.card.allow_from.0, ["a"]);
    }
}
