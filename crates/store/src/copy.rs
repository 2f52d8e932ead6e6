//! Moving an office from SQLite to PostgreSQL.
//!
//! Table by table, page by page; each page and the note of how far it goes are one transaction, so a copy that was
//! interrupted goes on where it stopped. The SQLite file is locked meanwhile, and only read. Until all of it is there and
//! was compared, no server opens the target.

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

/// What a copy is doing.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CopyStage {
    /// Rows go over.
    Copying,
    /// Both sides are read and compared.
    Comparing,
}

/// How far a copy has come.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CopyProgress {
    /// What it is doing.
    pub stage: CopyStage,
    /// The table under way.
    pub table: &'static str,
    /// Rows of it that are done.
    pub done: u64,
    /// Rows that it has.
    pub total: u64,
}

/// What a finished copy holds.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Copied {
    /// Rows of each table, the same on both sides.
    pub rows: Vec<(&'static str, u64)>,
    /// SHA-256 over every column of every row of all tables, the same on both sides.
    pub checksum: String,
}

/// Copies everything from a SQLite file that no server has open to an empty PostgreSQL database, or goes on with a copy
/// that was interrupted. `progress` is called for every page, and may stop the copy; the same call later goes on.
///
/// Counts and checksums of both sides are compared at the end, and only then can a server open the target. A half copy of
/// a file that has changed since is refused; with `start_over` it is removed, and the copy begins anew.
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
    // Opening brings the schema up to date.
    SqliteStore::open(from).await?.close().await;
    let _lock = Lock::take(from)?;
    let source = CopySource::open(from)?;
    let (client, driver) = postgres::connect(&url, "amb move").await?;
    let mut target = CopyTarget(client);
    let outcome = copy(&source, &mut target, start_over, &mut progress).await;
    drop(target);
    // The connection ends when its client is gone.
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
    match target.look().await? {
        TargetState::Nothing => target.begin(&fingerprint).await?,
        TargetState::Half(_) if start_over => {
            target.clear().await?;
            target.begin(&fingerprint).await?;
        }
        TargetState::Half(of) if of == fingerprint => {}
        TargetState::Half(_) => return Err(target::changed()),
        TargetState::Whole { of, copied } if of == fingerprint => return Ok(copied),
        TargetState::Whole { .. } => return Err(target::moved_already()),
    }
    for table in &TABLES {
        let total = source.count(table)?;
        loop {
            let place = target.place(table).await?;
            if place.done {
                break;
            }
            let done = target.take(table, &source.page(table, &place.last)?, place).await?;
            tell(progress, CopyStage::Copying, table.name, done, total)?;
        }
    }
    target.finish_rows().await?;
    let copied = compare::compare(source, target, progress).await?;
    target.seal(&copied).await?;
    Ok(copied)
}

/// Tells how far it is; stops where that is wanted.
fn tell(
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
