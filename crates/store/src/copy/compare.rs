//! Compares both sides of a copy by checksums over all rows in one order.

use std::ops::ControlFlow;

use futures_util::TryStreamExt;
use sha2::{Digest, Sha256};

use super::source::CopySource;
use super::tables::{TABLES, Table};
use super::target::{CopyTarget, failed};
use super::{Copied, CopyProgress, CopyStage, report};
use crate::error::{Result, conflict};

/// Rows between two progress reports.
const REPORT_EVERY: u64 = 20_000;
/// Ends a row (the ASCII record separator). A text that contains it changes both checksums alike.
const END: [u8; 1] = [30];

pub(super) async fn compare(
    source: &CopySource,
    target: &CopyTarget,
    progress: &mut (impl FnMut(CopyProgress) -> ControlFlow<()> + Send),
) -> Result<Copied> {
    let mut rows = Vec::with_capacity(TABLES.len());
    let mut whole = Sha256::new();
    for table in &TABLES {
        let here = sum_source(source, table)?;
        let there = sum_target(target, table, here.0, progress).await?;
        if here.0 != there.0 {
            let detail = format!("{} has {} rows in the file and {} in the copy", table.name, here.0, there.0);
            return Err(differ(&detail));
        }
        if here.1 != there.1 {
            return Err(differ(&format!("the rows of {} in the copy are not those of the file", table.name)));
        }
        whole.update(table.name);
        whole.update(here.1);
        rows.push((table.name, here.0));
    }
    Ok(Copied { rows, checksum: hex::encode(whole.finalize()) })
}

fn differ(detail: &str) -> crate::StoreError {
    conflict(format!("{detail}; --start-over removes the copy and begins anew"))
}

/// Returns the number of rows and their checksum in SQLite.
fn sum_source(source: &CopySource, table: &Table) -> Result<(u64, [u8; 32])> {
    let sql = table.check_source();
    source.with(|db| {
        let (mut count, mut sum) = (0, Sha256::new());
        let mut select = db.prepare(&sql)?;
        let mut rows = select.query([])?;
        while let Some(row) = rows.next()? {
            sum.update(row.get_ref(0)?.as_bytes()?);
            sum.update(END);
            count += 1;
        }
        Ok((count, sum.finalize().into()))
    })
}

/// Returns the number of rows and their checksum in PostgreSQL.
async fn sum_target(
    target: &CopyTarget,
    table: &Table,
    total: u64,
    progress: &mut (impl FnMut(CopyProgress) -> ControlFlow<()> + Send),
) -> Result<(u64, [u8; 32])> {
    let (mut count, mut sum) = (0, Sha256::new());
    let rows = target.0.query_raw(&table.check_target(), std::iter::empty::<&str>()).await.map_err(failed)?;
    let mut rows = std::pin::pin!(rows);
    while let Some(row) = rows.try_next().await.map_err(failed)? {
        sum.update(row.get::<_, &str>(0));
        sum.update(END);
        count += 1;
        if count % REPORT_EVERY == 0 {
            report(progress, CopyStage::Comparing, table.name, count, total)?;
        }
    }
    report(progress, CopyStage::Comparing, table.name, count, total)?;
    Ok((count, sum.finalize().into()))
}
