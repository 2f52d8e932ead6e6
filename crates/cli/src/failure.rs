//! The errors of verbs: a kind, which is the exit code, and a sentence.

use std::process::ExitCode;

use amb_core::{Code, OfficeError};

use crate::output::Output;

/// A failed verb.
#[derive(Debug)]
pub(crate) enum Failure {
    /// The office returned an error.
    Office(OfficeError),
    /// Something else failed.
    Other(anyhow::Error),
}

impl From<OfficeError> for Failure {
    fn from(error: OfficeError) -> Self {
        Failure::Office(error)
    }
}

impl From<anyhow::Error> for Failure {
    fn from(error: anyhow::Error) -> Self {
        match error.downcast::<OfficeError>() {
            Ok(office) => Failure::Office(office),
            Err(other) => Failure::Other(other),
        }
    }
}

impl From<std::io::Error> for Failure {
    fn from(error: std::io::Error) -> Self {
        Failure::Other(error.into())
    }
}

impl From<serde_json::Error> for Failure {
    fn from(error: serde_json::Error) -> Self {
        Failure::Other(error.into())
    }
}

impl Failure {
    /// Bad input that no office has seen.
    pub(crate) fn usage(detail: impl Into<String>) -> Self {
        Failure::Office(OfficeError::invalid(detail))
    }

    /// Something that a person named and that does not exist.
    pub(crate) fn not_found(detail: impl Into<String>) -> Self {
        Failure::Office(OfficeError::not_found(detail))
    }

    /// The error in a sentence.
    pub(crate) fn detail(&self) -> String {
        match self {
            Failure::Office(error) => error.detail().to_owned(),
            // Errors of TOML end with a line break.
            Failure::Other(error) => format!("{error:#}").trim_end().to_owned(),
        }
    }

    /// Prints the error on stderr and returns the exit code.
    pub(crate) fn report(self, output: Output) -> ExitCode {
        match self {
            Failure::Office(error) => {
                output.error(error.code().as_str(), error.detail());
                if let Some(cause) = std::error::Error::source(&error) {
                    tracing::debug!(%cause, "cause of the error");
                }
                ExitCode::from(exit_code(error.code()))
            }
            // Writing into a closed pipe (`amb inbox | head -1`) is no failure.
            Failure::Other(error) if is_closed_pipe(&error) => ExitCode::SUCCESS,
            Failure::Other(error) => {
                output.error("failed", &format!("{error:#}"));
                ExitCode::FAILURE
            }
        }
    }
}

fn is_closed_pipe(error: &anyhow::Error) -> bool {
    error.downcast_ref::<std::io::Error>().is_some_and(|error| error.kind() == std::io::ErrorKind::BrokenPipe)
}

fn exit_code(code: Code) -> u8 {
    match code {
        Code::Invalid | Code::TooLarge => 2,
        Code::NotFound | Code::Gone => 3,
        Code::Unauthorized | Code::Forbidden | Code::OldKey | Code::NotConnected | Code::NotAllowed => 4,
        Code::Conflict | Code::LoopRefused | Code::IllegalMove | Code::OverQuota => 5,
        Code::TooManyRequests | Code::Unavailable => 6,
        Code::Unsupported => 7,
        _ => 1,
    }
}
