//! Errors as Python exceptions. The classes are written in Python (`agent_mailbox/errors.py`).

use std::error::Error;

use amb_core::{Code, OfficeError};
use pyo3::prelude::*;
use pyo3::types::PyDict;

const CLASSES: [&str; 10] = [
    "MailboxError",
    "InvalidError",
    "NotFoundError",
    "NotAllowedError",
    "LoopRefusedError",
    "ConflictError",
    "QuotaError",
    "UnsupportedError",
    "UnavailableError",
    "ClosedError",
];

fn class_of(code: Code) -> &'static str {
    match code {
        Code::Invalid | Code::TooLarge => "InvalidError",
        Code::NotFound | Code::Gone => "NotFoundError",
        Code::Unauthorized | Code::Forbidden | Code::OldKey | Code::NotConnected | Code::NotAllowed => {
            "NotAllowedError"
        }
        Code::LoopRefused => "LoopRefusedError",
        Code::Conflict | Code::IllegalMove => "ConflictError",
        Code::OverQuota | Code::TooManyRequests => "QuotaError",
        Code::Unsupported => "UnsupportedError",
        Code::Unavailable | Code::Internal => "UnavailableError",
        _ => "MailboxError",
    }
}

/// Exports the classes where the stubs declare them.
pub(crate) fn add_to(module: &Bound<'_, PyModule>) -> PyResult<()> {
    let errors = errors(module.py())?;
    CLASSES.iter().try_for_each(|name| module.add(*name, errors.getattr(*name)?))
}

fn errors(py: Python<'_>) -> PyResult<Bound<'_, PyModule>> {
    py.import("agent_mailbox.errors")
}

/// The exception for an error of an office.
pub(crate) fn raise(py: Python<'_>, error: &OfficeError) -> PyErr {
    let seconds = error.wait().map(|wait| wait.as_secs_f64());
    let hint = match error.code() {
        // There is no other log with the cause.
        Code::Internal => error.source().map(causes),
        _ if error.may_be_done() => Some("it may have been carried out all the same; look before you repeat it".into()),
        _ => seconds.map(|seconds| format!("try again in {} s", seconds.ceil())),
    };
    let fields = PyDict::new(py);
    let set = || -> PyResult<()> {
        fields.set_item("code", error.code().as_str())?;
        fields.set_item("hint", hint)?;
        fields.set_item("retry_after", seconds)?;
        fields.set_item("may_be_done", error.may_be_done())?;
        fields.set_item("may_succeed_later", error.may_succeed_later())
    };
    match set() {
        Ok(()) => build(py, class_of(error.code()), error.detail(), &fields),
        Err(failed) => failed,
    }
}

/// The exception for an invalid field.
pub(crate) fn invalid(py: Python<'_>, detail: impl Into<String>) -> PyErr {
    raise(py, &OfficeError::invalid(detail))
}

/// The exception for a mailbox that was closed.
pub(crate) fn closed(py: Python<'_>) -> PyErr {
    let fields = PyDict::new(py);
    match fields.set_item("code", "closed") {
        Ok(()) => build(py, "ClosedError", "this mailbox was closed; open it again", &fields),
        Err(failed) => failed,
    }
}

fn build(py: Python<'_>, class: &str, detail: &str, fields: &Bound<'_, PyDict>) -> PyErr {
    let made = || errors(py)?.getattr(class)?.call((detail,), Some(fields));
    made().map_or_else(|failed| failed, PyErr::from_value)
}

fn causes(error: &(dyn Error + 'static)) -> String {
    let mut text = error.to_string();
    let mut next = error.source();
    while let Some(cause) = next {
        text = format!("{text}: {cause}");
        next = cause.source();
    }
    text
}
