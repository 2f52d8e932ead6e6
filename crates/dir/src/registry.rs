//! Reads `_registry.json`, which other programs read and write too. [`crate::registry::write`] writes it.

pub(crate) mod presence;
pub(crate) mod write;

use std::sync::Arc;

use amb_core::wire::registry::{Registry, RegistryEntry};
use amb_core::{AgentName, OfficeError};
use parking_lot::Mutex;
use serde_json::Value;

use crate::files::failure::IoContext;
use crate::files::open;
use crate::office::OfficeState;

/// A larger registry is refused. Enough for some thirty thousand cards.
pub(crate) const MAX_BYTES: u64 = 16 << 20;

/// The registry as last parsed, and the version of its file.
#[derive(Debug, Default)]
pub(crate) struct Cache(Mutex<Option<(Version, Arc<Registry>)>>);

/// Inode, mtime and length: a replaced file differs in the inode.
type Version = (u64, i128, u64);

impl OfficeState {
    /// Returns the registry, or the readable entries of a corrupt one; `None` if there is none.
    pub(crate) fn registry(&self) -> Result<Option<Arc<Registry>>, OfficeError> {
        use std::os::unix::fs::MetadataExt;
        let path = self.paths.registry();
        let context = "could not read _registry.json";
        let Some(file) = open::if_exists(open::regular(&path)).context(context)? else { return Ok(None) };
        let metadata = file.metadata().context(context)?;
        let version = (
            metadata.ino(),
            i128::from(metadata.mtime()) * 1_000_000_000 + i128::from(metadata.mtime_nsec()),
            metadata.len(),
        );
        let mut cache = self.registry_cache.0.lock();
        if let Some((cached, registry)) = &*cache
            && *cached == version
        {
            return Ok(Some(registry.clone()));
        }
        let bytes = open::read_file(file.file(), &path, MAX_BYTES).context(context)?;
        match Registry::parse(&bytes) {
            Ok(registry) => {
                let registry = Arc::new(registry);
                *cache = Some((version, registry.clone()));
                Ok(Some(registry))
            }
            Err(error) => {
                tracing::warn!(path = %path.display(), %error, "corrupt registry; reading the entries that parse");
                Ok(Some(Arc::new(salvage(&bytes))))
            }
        }
    }

    /// Returns every entry that parses.
    pub(crate) fn registry_entries(&self) -> Result<Vec<RegistryEntry>, OfficeError> {
        let Some(registry) = self.registry()? else { return Ok(Vec::new()) };
        let understood = registry.entries().filter_map(|entry| {
            entry.inspect_err(|(key, error)| tracing::warn!(key, %error, "registry entry does not parse; ignored")).ok()
        });
        Ok(understood.collect())
    }

    /// Returns one entry. An entry that does not parse is an error, so that a corrupt `allow_from` does not admit
    /// everybody.
    pub(crate) fn registry_entry(&self, name: &AgentName) -> Result<Option<RegistryEntry>, OfficeError> {
        let Some(registry) = self.registry()? else { return Ok(None) };
        registry.get(name).map_err(|error| {
            OfficeError::unavailable(format!("the entry of {name} in _registry.json is not understood: {error}"))
        })
    }
}

/// Returns the readable entries of a corrupt registry: truncated, duplicated, or with garbage in between.
pub(crate) fn salvage(bytes: &[u8]) -> Registry {
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
            let parsed = values.byte_offset();
            found.insert(key.to_owned(), Value::Object(fields));
            rest = &value[parsed..];
        }
    }
    serde_json::to_vec(&found).ok().and_then(|bytes| Registry::parse(&bytes).ok()).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_readable_entries_of_a_corrupt_registry_are_kept() {
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
