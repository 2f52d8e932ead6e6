//! The environment variables that hold a client's secrets for its child processes. They stay in the process that got them.

use std::ffi::OsStr;

/// Whether a variable is one of them: no child process of ours inherits it, and no log shows it.
pub fn is_secret(name: &OsStr) -> bool {
    name.to_str()
        .is_some_and(|name| name.starts_with("CLAUDE_CODE_MESSAGING_") || name.starts_with("QWEN_CODE_MESSAGING_"))
}
