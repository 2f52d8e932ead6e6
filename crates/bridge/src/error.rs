//! What makes a bridge wait or end: its office or its ledger fails.

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
    /// The office's reason for which this one mail will never go through, while others may.
    pub(crate) fn lasting(&self) -> Option<&OfficeError> {
        match self {
            BridgeError::Office(error) if is_lasting(error.code()) => Some(error),
            _ => None,
        }
    }
}

/// Whether trying again cannot help.
pub(crate) fn is_lasting(code: Code) -> bool {
    // A key that is not taken any more ends the bridge; the next one may have another.
    !code.may_succeed_later()
}

/// Why a mail is not done with.
pub(crate) enum Stop {
    /// This mail later, others meanwhile.
    Later,
    /// Nothing goes through now.
    Pause(TurnError),
    /// The office or the ledger failed.
    Broken(BridgeError),
}

impl<E: Into<BridgeError>> From<E> for Stop {
    fn from(error: E) -> Self {
        Stop::Broken(error.into())
    }
}
