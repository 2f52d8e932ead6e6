//! Whom the names of one send mean.

use std::collections::HashSet;

use amb_core::AgentName;
use deadpool_postgres::Transaction;
use tokio_postgres::Row;

use super::write::Heads;
use crate::engine::Failed;
use crate::error::Result;
use crate::row;
use crate::types::Agent;

/// Recipients of one send, whose mailboxes are locked.
pub(super) struct Recipients {
    /// Each once, by the name that it has. A name that nobody has stays as it is.
    pub(super) names: Vec<AgentName>,
    pub(super) heads: Heads,
}

/// Finds whom these names mean, and locks the mailboxes of all that they reach, agents and members of groups, before any of
/// them is written to: the messages are written one group after the other, and each would lock its own.
pub(super) async fn lock(tx: &Transaction<'_>, caller: &Agent, to: &[AgentName]) -> Result<Recipients, Failed> {
    let folded: Vec<String> = to.iter().map(AgentName::folded).collect();
    let agents =
        tx.prepare_cached("SELECT name, id FROM agents WHERE lower(name) = ANY($1) AND deleted_at IS NULL").await?;
    let groups = tx.prepare_cached(r#"SELECT name, id FROM groups WHERE lower(name COLLATE "C") = ANY($1)"#).await?;
    let agents = tx.query(&agents, &[&folded]).await?;
    let groups = tx.query(&groups, &[&folded]).await?;
    let members = tx.prepare_cached("SELECT agent_id FROM group_members WHERE group_id = ANY($1) AND joined").await?;
    let ids: Vec<i64> = groups.iter().map(|row| row.get(1)).collect();
    let members = tx.query(&members, &[&ids]).await?;
    let mut locked: Vec<i64> = agents.iter().map(|row| row.get(1)).collect();
    locked.extend(members.iter().map(|row| row.get::<_, i64>(0)));
    locked.push(caller.key.0);

    let (mut names, mut known) = (Vec::with_capacity(to.len()), HashSet::new());
    for name in to {
        let meant = |rows: &[Row]| name.meant(rows.iter().map(|row| row.get::<_, String>(0)), |name| name.as_str());
        let name = match meant(&agents).or_else(|| meant(&groups)) {
            Some(name) => row::name(&name)?,
            None => name.clone(),
        };
        if known.insert(name.clone()) {
            names.push(name);
        }
    }
    Ok(Recipients { names, heads: Heads::lock(tx, &locked).await? })
}
