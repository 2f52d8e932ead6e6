//! Tells whether a file was written since it was last read.

use std::fs::Metadata;
use std::os::unix::fs::MetadataExt;

use serde::{Deserialize, Serialize};

/// Identifies the contents of a file. The inode alone does not: other programs write in place, and a file system may
/// give a new file the inode of one that was just removed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct FileVersion {
    #[serde(rename = "i")]
    pub(crate) inode: u64,
    /// ctime in nanoseconds, and size, since the ctime may be as coarse as a timer tick. Missing in lines of earlier
    /// versions.
    #[serde(rename = "v", default, skip_serializing_if = "Option::is_none")]
    written: Option<(i64, u64)>,
}

impl FileVersion {
    /// Of no file in the mailbox.
    pub(crate) const NONE: Self = Self { inode: 0, written: None };

    pub(crate) fn of(metadata: &Metadata) -> Self {
        let ctime = metadata.ctime().wrapping_mul(1_000_000_000).wrapping_add(metadata.ctime_nsec());
        Self { inode: metadata.ino(), written: Some((ctime, metadata.len())) }
    }
}
