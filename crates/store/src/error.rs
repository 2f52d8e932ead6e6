//! Errors of the store are errors of the office: the same codes, a detail for the caller, a cause for the log.

use amb_core::{Code, OfficeError};

/// An error of the store. It has the codes of the office, so that the server does not map it.
pub type StoreError = OfficeError;

/// The result of a verb.
pub type Result<T, E = StoreError> = std::result::Result<T, E>;

/// Returns a `conflict`: something exists already, or has changed meanwhile.
pub(crate) fn conflict(detail: impl Into<String>) -> StoreError {
    StoreError::new(Code::Conflict, detail)
}
