//! Moving an office from SQLite to PostgreSQL.
//!
//! Table by table, page by page; each page and its progress are written in one transaction, so that an interrupted copy
//! continues where it stopped. The SQLite file is locked and only read. No server opens the target until the copy is
//! complete and compared.

use std::ops::ControlFlow;
use std::path::Path;

use crate::error::Result;
use crate::sqlite::{Lock, SqliteStore};
use crate::{DatabaseUrl, Store, StoreError, postgres};

mod compare;
mod source;
mod tables;
mod target;

use source::CopySource;
use tables::TABLES;
use target::{CopyTarget, TargetState};

/// The stage of a copy.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CopyStage {
    /// Rows are copied.
    Copying,
    /// Both sides are read and compared.
    Comparing,
}

/// The progress of a copy.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CopyProgress {
    /// The stage.
    pub stage: CopyStage,
    /// The current table.
    pub table: &'static str,
    /// Rows of it that are done.
    pub done: u64,
    /// Rows of it in all.
    pub total: u64,
}

/// The result of a finished copy.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Copied {
    /// Rows of each table, the same on both sides.
    pub rows: Vec<(&'static str, u64)>,
    /// SHA-256 over every column of every row of all tables, the same on both sides.
    pub checksum: String,
}

/// Copies everything from a SQLite file that no server has open to an empty PostgreSQL database, or continues an
/// interrupted copy. `progress` is called for every page, and may stop the copy; the same call later continues it.
///
/// Counts and checksums of both sides are compared at the end, and only then can a server open the target. Fails where
/// the target has a partial copy of a file that has changed since; with `start_over` that is removed, and the copy
/// starts over.
pub async fn copy_to_postgres(
    from: &Path,
    to: &str,
    start_over: bool,
    mut progress: impl FnMut(CopyProgress) -> ControlFlow<()> + Send,
) -> Result<Copied> {
    let DatabaseUrl::Postgres(url) = DatabaseUrl::parse(to)? else {
        return Err(StoreError::invalid("the target of a move is postgres://USER:PASSWORD@HOST/DATABASE"));
    };
    if !from.exists() {
        return Err(StoreError::not_found(format!("there is no database {}", from.display())));
    }
    // Opening migrates the schema.
    SqliteStore::open(from).await?.close().await;
    let _lock = Lock::take(from)?;
    let source = CopySource::open(from)?;
    let (client, driver) = postgres::connect(&url, "amb move").await?;
    let mut target = CopyTarget(client);
    let outcome = copy(&source, &mut target, start_over, &mut progress).await;
    drop(target);
    // The connection ends when its client is dropped.
    let _ = driver.await;
    outcome
}

async fn copy(
    source: &CopySource,
    target: &mut CopyTarget,
    start_over: bool,
    progress: &mut (impl FnMut(CopyProgress) -> ControlFlow<()> + Send),
) -> Result<Copied> {
    let fingerprint = source.fingerprint()?;
    match target.state().await? {
        TargetState::Empty => target.begin(&fingerprint).await?,
        TargetState::Partial(_) if start_over => {
            target.clear().await?;
            target.begin(&fingerprint).await?;
        }
        TargetState::Partial(of) if of == fingerprint => {}
        TargetState::Partial(_) => return Err(target::changed()),
        TargetState::Complete { of, copied } if of == fingerprint => return Ok(copied),
        TargetState::Complete { .. } => return Err(target::moved_already()),
    }
    for table in &TABLES {
        let total = source.count(table)?;
        loop {
            let place = target.place(table).await?;
            if place.done {
                break;
            }
            let done = target.write_page(table, &source.page(table, &place.last)?, place).await?;
            report(progress, CopyStage::Copying, table.name, done, total)?;
        }
    }
    target.set_sequences().await?;
    let copied = compare::compare(source, target, progress).await?;
    target.mark_complete(&copied).await?;
    Ok(copied)
}

/// Reports the progress; fails where the caller stops the copy.
fn report(
    progress: &mut (impl FnMut(CopyProgress) -> ControlFlow<()> + Send),
    stage: CopyStage,
    table: &'static str,
    done: u64,
    total: u64,
) -> Result<()> {
    match progress(CopyProgress { stage, table, done, total }) {
        ControlFlow::Continue(()) => Ok(()),
        ControlFlow::Break(()) => Err(StoreError::unavailable("the move was interrupted; run it again to go on")),
    }
}
