//! Variables by which a client lets its own children in. They are used by the process that got them and go no further.

use std::ffi::OsStr;

/// Whether a variable is one of them, which no child process of ours inherits and no log shows.
pub fn is_secret(name: &OsStr) -> bool {
    name.to_str()
        .is_some_and(|name| name.starts_with("CLAUDE_CODE_MESSAGING_") || name.starts_with("QWEN_CODE_MESSAGING_"))
}
