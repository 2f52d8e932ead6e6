//! Reading no more than a page holds.

use amb_core::draft::json_len;
use deadpool_postgres::GenericClient;
use futures_util::TryStreamExt;
use tokio_postgres::types::ToSql;
use tokio_postgres::{Row, Statement};

use crate::budget::Budget;

/// The first rows, as many as a page has bytes for, and whether some were left out. Those are not kept in memory. `plain` are
/// the columns of texts that grow when they are written as JSON.
pub(super) async fn rows_of_page<C: GenericClient>(
    client: &C,
    select: &Statement,
    values: &[&(dyn ToSql + Sync)],
    plain: &[usize],
) -> Result<(Vec<Row>, bool), tokio_postgres::Error> {
    let mut rows = std::pin::pin!(client.query_raw(select, values.iter().copied()).await?);
    let (mut page, mut budget) = (Vec::new(), Budget::page());
    while let Some(row) = rows.try_next().await? {
        let mut bytes = row.raw_size_bytes();
        for column in plain {
            let text: Option<&str> = row.try_get(*column)?;
            bytes += text.map_or(0, |text| json_len(&text).saturating_sub(text.len()));
        }
        if !budget.takes(bytes) {
            break;
        }
        page.push(row);
    }
    Ok((page, budget.is_full()))
}
