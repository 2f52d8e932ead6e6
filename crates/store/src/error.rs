//! A store's failures are the office's: the same codes, a detail for the caller, a cause for the log.

use amb_core::{Code, OfficeError};

/// What went wrong. The store speaks the office's codes, so that nothing has to be translated on the way to the caller.
pub type StoreError = OfficeError;

/// The answer of a verb.
pub type Result<T, E = StoreError> = std::result::Result<T, E>;

/// It exists already, or has changed meanwhile.
pub(crate) fn conflict(detail: impl Into<String>) -> StoreError {
    StoreError::new(Code::Conflict, detail)
}
