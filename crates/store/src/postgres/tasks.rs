//! What decides about tasks that are given.

use std::collections::HashMap;

use deadpool_postgres::GenericClient;
use uuid::Uuid;

use crate::engine::Failed;
use crate::error::Result;

/// How many tasks each of these agents works on.
pub(super) async fn current<C: GenericClient>(client: &C, assignees: &[i64]) -> Result<HashMap<i64, usize>, Failed> {
    if assignees.is_empty() {
        return Ok(HashMap::new());
    }
    let select = client
        .prepare_cached(
            "SELECT assignee_id, count(*) FROM tasks
             WHERE assignee_id = ANY($1) AND state IN ('accepted', 'working') GROUP BY assignee_id",
        )
        .await?;
    let rows = client.query(&select, &[&assignees]).await?;
    Ok(rows.iter().map(|row| (row.get(0), usize::try_from(row.get::<_, i64>(1)).unwrap_or(usize::MAX))).collect())
}

/// The rows of the tasks that these messages brought.
pub(super) async fn of_messages<C: GenericClient>(client: &C, messages: &[Uuid]) -> Result<HashMap<Uuid, i64>, Failed> {
    if messages.is_empty() {
        return Ok(HashMap::new());
    }
    let select =
        client.prepare_cached("SELECT message_public_id, id FROM tasks WHERE message_public_id = ANY($1)").await?;
    let rows = client.query(&select, &[&messages]).await?;
    Ok(rows.iter().map(|row| (row.get(0), row.get(1))).collect())
}
