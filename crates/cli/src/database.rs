//! The arguments that name the office's database, for the verbs that work on it directly.

use std::io::IsTerminal;
use std::path::{Path, PathBuf};

use amb_store::DatabaseUrl;
use anyhow::{Context, Result};
use serde::Deserialize;

use crate::failure::Failure;
use crate::home;

/// The database, named as for `amb serve`.
#[derive(Debug, clap::Args)]
pub(crate) struct DatabaseArgs {
    /// Database of the office: sqlite:PATH or postgres://… [default: SQLite in your data directory]
    #[arg(long, value_name = "URL", env = "DATABASE_URL", hide_env_values = true)]
    database_url: Option<String>,
    /// Configuration file of `amb serve`, whose database_url is used
    #[arg(long, value_name = "FILE", env = "AMB_CONFIG")]
    config: Option<PathBuf>,
}

/// The settings of `amb serve` that are read here.
#[derive(Deserialize)]
struct DatabaseSettings {
    database_url: Option<String>,
}

impl DatabaseArgs {
    /// The database that the arguments name.
    pub(crate) fn url(&self) -> Result<DatabaseUrl, Failure> {
        let mut url = self.database_url.clone();
        if let (None, Some(path)) = (&url, &self.config) {
            let settings: DatabaseSettings =
                toml::from_str(&fs_err::read_to_string(path)?).with_context(|| path.display().to_string())?;
            url = settings.database_url;
        }
        Ok(DatabaseUrl::parse(&url.map_or_else(default_url, Ok)?)?)
    }

    /// The SQLite file; for PostgreSQL the error says to do `instead`.
    pub(crate) fn file(&self, instead: &str) -> Result<PathBuf, Failure> {
        match self.url()? {
            DatabaseUrl::Sqlite(path) => Ok(path),
            DatabaseUrl::Postgres(_) => Err(Failure::Office(amb_core::OfficeError::unsupported(instead))),
        }
    }
}

/// The default database of `amb serve`.
pub(crate) fn default_url() -> Result<String> {
    Ok(format!("sqlite:{}", home::data_dir()?.join("mailbox.db").display()))
}

/// A progress line that the next one overwrites, on a terminal only.
#[derive(Debug)]
pub(crate) struct Progress {
    /// Whether stderr is a terminal, and no JSON was asked for.
    is_visible: bool,
    /// Whether a line is on the screen.
    is_drawn: bool,
}

impl Progress {
    pub(crate) fn new(json: bool) -> Self {
        Self { is_visible: !json && std::io::stderr().is_terminal(), is_drawn: false }
    }

    pub(crate) fn is_visible(&self) -> bool {
        self.is_visible
    }

    #[allow(clippy::print_stderr)]
    pub(crate) fn show(&mut self, line: &str) {
        if self.is_visible {
            eprint!("\r\x1b[K{line}");
            self.is_drawn = true;
        }
    }
}

impl Drop for Progress {
    #[allow(clippy::print_stderr)]
    fn drop(&mut self) {
        if self.is_drawn {
            eprint!("\r\x1b[K");
        }
    }
}

/// `12.3 MB`, for people.
pub(crate) fn bytes(count: u64) -> String {
    const UNITS: [&str; 4] = ["kB", "MB", "GB", "TB"];
    if count < 1_000 {
        return format!("{count} bytes");
    }
    let mut size = count as f64 / 1_000.0;
    let mut unit = 0;
    while size >= 1_000.0 && unit + 1 < UNITS.len() {
        size /= 1_000.0;
        unit += 1;
    }
    format!("{size:.1} {}", UNITS.get(unit).copied().unwrap_or_default())
}

/// Progress as `40 %`.
pub(crate) fn percent(done: u64, total: u64) -> String {
    format!("{} %", (done * 100).checked_div(total).unwrap_or(100))
}

/// A path without control characters, for the terminal.
pub(crate) fn shown(path: &Path) -> String {
    crate::output::visible(&path.display().to_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_and_progress_are_rounded_for_people() {
        assert_eq!(bytes(999), "999 bytes");
        assert_eq!(bytes(1_500), "1.5 kB");
        assert_eq!(bytes(2_000_000_000), "2.0 GB");
        assert_eq!((percent(1, 3), percent(0, 0)), ("33 %".to_owned(), "100 %".to_owned()));
    }
}
