//! Why a bridge waits or ends: its office or its ledger failed.

use std::io;

use amb_core::{Code, OfficeError};

use crate::runtime::TurnError;

#[derive(Debug, thiserror::Error)]
pub(crate) enum BridgeError {
    #[error("the office: {0}")]
    Office(#[from] OfficeError),
    #[error("the ledger: {0}")]
    Ledger(#[from] io::Error),
}

impl BridgeError {
    /// The office's error, if it refuses this one message permanently while others may pass.
    pub(crate) fn lasting(&self) -> Option<&OfficeError> {
        match self {
            BridgeError::Office(error) if is_lasting(error.code()) => Some(error),
            _ => None,
        }
    }
}

/// Whether a retry cannot help.
pub(crate) fn is_lasting(code: Code) -> bool {
    // An error of the key is not among them: it ends the bridge, and the next one may have another key.
    !code.may_succeed_later()
}

/// Why a message is not finished.
pub(crate) enum Stop {
    /// Retry this message later; others go on.
    Later,
    /// The runtime takes no turns now.
    Pause(TurnError),
    /// The office or the ledger failed.
    Broken(BridgeError),
}

impl<E: Into<BridgeError>> From<E> for Stop {
    fn from(error: E) -> Self {
        Stop::Broken(error.into())
    }
}
