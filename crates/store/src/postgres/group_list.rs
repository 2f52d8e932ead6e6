//! Groups as their members see them.

use amb_core::doc::{Group, GroupMember};
use deadpool_postgres::GenericClient;

use super::error::Trouble;
use crate::error::Result;
use crate::row;
use crate::types::Agent;

/// A group with its members.
pub(super) async fn load<C: GenericClient>(client: &C, id: i64) -> Result<Group, Trouble> {
    let select = client
        .prepare_cached(
            "SELECT g.name, a.name, g.created_at FROM groups g JOIN agents a ON a.id = g.owner_id WHERE g.id = $1",
        )
        .await?;
    let group = client.query_one(&select, &[&id]).await?;
    let select = client
        .prepare_cached(
            "SELECT a.name, m.joined FROM group_members m JOIN agents a ON a.id = m.agent_id
             WHERE m.group_id = $1 ORDER BY a.name",
        )
        .await?;
    let members = client.query(&select, &[&id]).await?;
    let members = members
        .iter()
        .map(|row| Ok(GroupMember { name: row::name(row.get(0))?, joined: row.get(1) }))
        .collect::<Result<_>>()?;
    Ok(Group { name: row::name(group.get(0))?, owner: row::name(group.get(1))?, members, created_at: group.get(2) })
}

/// The groups that the agent is in or was invited to.
pub(super) async fn groups<C: GenericClient>(client: &C, caller: &Agent) -> Result<Vec<Group>, Trouble> {
    let select =
        client.prepare_cached("SELECT group_id FROM group_members WHERE agent_id = $1 ORDER BY group_id").await?;
    let mut groups = Vec::new();
    for row in client.query(&select, &[&caller.key.0]).await? {
        groups.push(load(client, row.get(0)).await?);
    }
    Ok(groups)
}
