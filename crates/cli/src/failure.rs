//! The errors of verbs: a kind, which is the exit code, and a sentence.

use std::error::Error;
use std::io;
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

    /// The kind of error, where it has one.
    fn code(&self) -> Option<Code> {
        match self {
            // An office in a directory returns `unavailable` for every failed file operation, because bridges and
            // mounts retry it. For a person the reason matters.
            Failure::Office(error) if error.code() == Code::Unavailable => {
                let code = error.source().and_then(code_of_cause);
                Some(code.filter(|code| *code != Code::NotFound).unwrap_or(Code::Unavailable))
            }
            Failure::Office(error) => Some(error.code()),
            Failure::Other(error) => error.chain().find_map(code_of_cause),
        }
    }

    /// Prints the error on stderr and returns the exit code.
    pub(crate) fn report(self, output: Output) -> ExitCode {
        // Writing into a closed pipe (`amb inbox | head -1`) is no failure.
        if let Failure::Other(error) = &self
            && is_closed_pipe(error)
        {
            return ExitCode::SUCCESS;
        }
        let (name, exit_code) = self.code().map_or(("failed", 1), |code| (code.as_str(), exit_code(code)));
        output.error(name, &self.detail());
        if let Failure::Office(error) = &self
            && let Some(cause) = error.source()
        {
            tracing::debug!(%cause, "cause of the error");
        }
        ExitCode::from(exit_code)
    }
}

fn is_closed_pipe(error: &anyhow::Error) -> bool {
    error.downcast_ref::<io::Error>().is_some_and(|error| error.kind() == io::ErrorKind::BrokenPipe)
}

/// The code of a failed file operation, or of a file with syntax errors.
fn code_of_cause(error: &(dyn Error + 'static)) -> Option<Code> {
    use io::ErrorKind::{IsADirectory, NotADirectory, NotFound, PermissionDenied, ReadOnlyFilesystem};
    if error.is::<toml::de::Error>() || error.is::<toml_edit::TomlError>() {
        return Some(Code::Invalid);
    }
    match error.downcast_ref::<io::Error>()?.kind() {
        PermissionDenied | ReadOnlyFilesystem => Some(Code::Forbidden),
        NotFound => Some(Code::NotFound),
        IsADirectory | NotADirectory => Some(Code::Invalid),
        _ => None,
    }
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

#[cfg(test)]
mod tests {
    use anyhow::Context;

    use super::*;

    #[test]
    fn a_failed_file_operation_has_the_code_of_its_reason_wherever_it_failed() {
        let denied = || io::Error::from(io::ErrorKind::PermissionDenied);
        let in_office = |cause: io::Error| Failure::Office(OfficeError::unavailable("no").caused_by(cause)).code();
        assert_eq!(Failure::from(denied()).code(), Some(Code::Forbidden));
        assert_eq!(Failure::from(Err::<(), _>(denied()).context("keys").unwrap_err()).code(), Some(Code::Forbidden));
        assert_eq!(in_office(denied()), Some(Code::Forbidden));
        assert_eq!(in_office(io::ErrorKind::NotADirectory.into()), Some(Code::Invalid));
        assert_eq!(in_office(io::ErrorKind::NotFound.into()), Some(Code::Unavailable), "it may come back");
        assert_eq!(in_office(io::ErrorKind::StorageFull.into()), Some(Code::Unavailable));
        assert_eq!(Failure::from(io::Error::from(io::ErrorKind::StorageFull)).code(), None);
    }
}
