//! What a verb reads from stdin.

use std::io::{ErrorKind, Read};

use amb_core::limits::MAX_MESSAGE_BYTES;

use crate::failure::Failure;

/// All of stdin as text, but at most one byte more than a message holds: so that too much is told apart from just enough.
pub(crate) fn stdin() -> Result<String, Failure> {
    let mut text = String::new();
    match std::io::stdin().lock().take(MAX_MESSAGE_BYTES as u64 + 1).read_to_string(&mut text) {
        Ok(_) => Ok(text),
        Err(error) if error.kind() == ErrorKind::InvalidData => {
            Err(Failure::usage("what came on stdin is not UTF-8; put such content in a file and name it with --file"))
        }
        Err(error) => Err(error.into()),
    }
}
