//! Variables by which a client lets its own children in. They are used by the process that got them and go no further.

use std::ffi::OsStr;

/// The variables, which no child process of ours inherits and no log shows.
pub const SECRETS: [&str; 3] =
    ["CLAUDE_CODE_MESSAGING_SOCKET", "CLAUDE_CODE_MESSAGING_TOKEN", "QWEN_CODE_MESSAGING_TOKEN"];

/// Whether a variable is one of [`SECRETS`], or another that begins like them.
pub fn is_secret(name: &OsStr) -> bool {
    name.to_str()
        .is_some_and(|name| name.starts_with("CLAUDE_CODE_MESSAGING_") || name.starts_with("QWEN_CODE_MESSAGING_"))
}
