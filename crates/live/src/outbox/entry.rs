//! One queued message as a file.

use std::io::{self, Write};
use std::path::Path;

use amb_core::Timestamp;
use fs_err as fs;
use serde::{Deserialize, Serialize};

/// A message that waits.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(crate) struct OutboxEntry {
    /// Lets the receiver skip a repeat.
    pub(crate) id: String,
    pub(crate) subject: String,
    pub(crate) queued_at: Timestamp,
    /// The bytes on the wire, which are JSON text.
    pub(crate) payload: String,
    /// Why it is dead, where it is.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) why: Option<String>,
}

impl OutboxEntry {
    pub(super) fn read(path: &Path) -> io::Result<Self> {
        Ok(serde_json::from_slice(&fs::read(path)?)?)
    }

    /// Writes the file durably: bytes, name and directory are synced.
    pub(super) fn write(&self, path: &Path) -> io::Result<()> {
        let aside = path.with_extension("json.tmp");
        let mut file = fs::File::create(&aside)?;
        file.write_all(&serde_json::to_vec(self)?)?;
        file.sync_all()?;
        fs::rename(&aside, path)?;
        match path.parent() {
            Some(dir) => fs::File::open(dir)?.sync_all(),
            None => Ok(()),
        }
    }
}
