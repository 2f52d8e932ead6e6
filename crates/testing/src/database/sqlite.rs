//! A SQLite file that is removed with its guard.

use tempfile::TempDir;

/// The path of a database file, removed when this is dropped.
#[derive(Debug)]
pub struct SqliteFile {
    directory: TempDir,
}

impl SqliteFile {
    /// A path of a file that does not exist yet.
    pub fn fresh() -> Self {
        Self { directory: TempDir::new().expect("a temporary directory") }
    }

    /// The path of the file.
    pub fn path(&self) -> std::path::PathBuf {
        self.directory.path().join("mail.db")
    }

    /// Fails if a statement of this process scanned a whole table.
    pub fn assert_no_full_scan(&self) {
        let scans = amb_store::test_support::sqlite_scans();
        assert!(scans.is_empty(), "statements that look at whole tables: {scans:#?}");
    }

    /// Its URL, for [`amb_store::open`].
    pub fn url(&self) -> String {
        format!("sqlite:{}", self.path().display())
    }
}
