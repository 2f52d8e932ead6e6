//! Why a bridge waits or ends: its office or its ledger failed.

use std::io;

use amb_core::OfficeError;

use crate::runtime::TurnError;

#[derive(Debug, thiserror::Error)]
pub(crate) enum BridgeError {
    #[error("the office: {0}")]
    Office(#[from] OfficeError),
    #[error("the ledger: {0}")]
    Ledger(#[from] io::Error),
}

/// Whether a retry cannot help. False for a rejected key: that ends the bridge, and the next one may have another key.
pub(crate) fn is_permanent(error: &OfficeError) -> bool {
    !error.code().may_succeed_later()
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
