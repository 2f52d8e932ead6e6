//! Groups and their members. Members send to a group by its name, as to an agent. The session is that of the group and
//! the subject; each other member gets a copy with its own receipt.

use amb_core::consent::Consent;
use amb_core::doc::{Group, GroupMember};
use amb_core::limits::MAX_GROUPS;
use amb_core::{AgentName, AllowFrom, Timestamp};
use async_trait::async_trait;
use futures_util::FutureExt;

use super::agents::{agent_named, is_taken};
use super::connections::consent;
use super::once::once;
use crate::columns::Addressee;
use crate::engine::{
    Changes, Db, Engine, Exclusive, Failed, Query, ReadLength, Tried, Tx, from_row, read, values, write, write_unlogged,
};
use crate::error::Result;
use crate::outgoing::OutgoingMessage;
use crate::types::{Agent, AgentKey, Written, to_micros};
use crate::{refusals, row};

/// Groups and their members.
#[async_trait]
pub trait GroupVerbs: Engine {
    /// Creates a group whose owner, and first member, is the caller.
    async fn create_group(&self, caller: &Agent, name: &AgentName, now: Timestamp) -> Result<Group> {
        let asked = (caller.clone(), name.clone(), to_micros(now));
        write_unlogged(self, Changes::All, asked, |tx, (caller, name, now)| {
            once!(tx, caller, *now, create(tx, caller, name, *now))
        })
        .await
    }

    /// Returns the groups that the caller is in or was invited to.
    async fn groups(&self, caller: &Agent) -> Result<Vec<Group>> {
        read(self, ReadLength::Long, caller.clone(), |db, caller| list(db, caller).boxed()).await
    }

    /// Invites an agent, by mail, to a group of the caller. `conflict` where the group is full
    /// ([`amb_core::limits::MAX_GROUP_MEMBERS`]), or the agent is in [`MAX_GROUPS`].
    async fn invite_to_group(
        &self,
        caller: &Agent,
        group: &AgentName,
        agent: &AgentName,
        now: Timestamp,
    ) -> Result<Written<Group>> {
        let asked = (caller.clone(), group.clone(), agent.clone(), now);
        write(self, Changes::All, asked, |tx, (caller, group, agent, now)| {
            once!(tx, caller, to_micros(*now), invite(tx, caller, group, agent, *now))
        })
        .await
    }

    /// Removes an agent, or its invitation, from a group of the caller.
    async fn remove_from_group(&self, caller: &Agent, group: &AgentName, agent: &AgentName) -> Result<Group> {
        let asked = (caller.clone(), group.clone(), agent.clone());
        write_unlogged(self, Changes::All, asked, |tx, (caller, group, agent)| remove(tx, caller, group, agent).boxed())
            .await
    }

    /// Accepts an invitation (`true`), or leaves a group or declines (`false`). When its owner leaves, the member that
    /// registered first becomes the owner; without members the group has ended, and its name stays taken.
    async fn join_group(&self, caller: &Agent, group: &AgentName, joined: bool) -> Result<Group> {
        let asked = (caller.clone(), group.clone(), joined);
        write_unlogged(self, Changes::All, asked, |tx, (caller, group, joined)| {
            join(tx, caller, group, *joined).boxed()
        })
        .await
    }
}

impl<E: Engine> GroupVerbs for E {}

async fn create(tx: &mut dyn Tx, caller: &Agent, name: &AgentName, now: Timestamp) -> Tried<Group> {
    tx.lock_exclusive(Exclusive::Names).await?;
    if is_taken(tx, name).await? {
        return Err(refusals::name_taken(name).into());
    }
    if is_in_most(tx, caller.key.0).await? {
        return Err(refusals::in_most_groups("you are").into());
    }
    let sql = "INSERT INTO groups (name, owner_id, created_at) VALUES ($1, $2, $3)";
    let id = match tx.insert(sql, values![name.as_str(), caller.key.0, now]).await {
        Err(Failed::Taken(_)) => return Err(refusals::name_taken(name).into()),
        inserted => inserted?,
    };
    put_member(tx, id, caller.key.0, true).await?;
    load(tx, id).await
}

async fn put_member(tx: &mut dyn Tx, group: i64, agent: i64, joined: bool) -> Tried<()> {
    let sql = "INSERT INTO group_members (group_id, agent_id, joined) VALUES ($1, $2, $3) ON CONFLICT DO NOTHING";
    tx.execute(sql, values![group, agent, joined]).await.map(drop)
}

/// Returns the row id and the owner of a group, and whether the agent has joined it (`None` where it was not invited).
pub(crate) async fn find(db: &mut dyn Db, name: &AgentName, agent: i64) -> Tried<Option<(i64, i64, Option<bool>)>> {
    let sql = format!(
        "SELECT g.id, g.owner_id, m.joined FROM groups g
         LEFT JOIN group_members m ON m.group_id = g.id AND m.agent_id = $2
         WHERE {} = $1 ORDER BY g.name = $3 DESC LIMIT 1",
        db.dialect().group_key
    );
    db.find(&sql, values![&name.folded(), agent, name.as_str()]).await
}

/// Returns the group of this name that the agent has joined; `None` where there is none, or the agent was not invited.
pub(crate) async fn joined(db: &mut dyn Db, name: &AgentName, agent: i64) -> Tried<Option<i64>> {
    match find(db, name, agent).await? {
        Some((id, _, Some(true))) => Ok(Some(id)),
        Some((_, _, Some(false))) => Err(refusals::not_in_group(name).into()),
        _ => Ok(None),
    }
}

/// Returns the other members, without those who blocked the sender or whose `allow_from` excludes it.
pub(crate) async fn audience(db: &mut dyn Db, group: i64, sender: &Agent) -> Tried<Vec<Addressee>> {
    let sql = "SELECT g.agent_id, a.allow_from,
                      coalesce(a.household_id = (SELECT o.household_id FROM agents o WHERE o.id = $2), FALSE)
               FROM group_members g JOIN agents a ON a.id = g.agent_id
               WHERE g.group_id = $1 AND g.joined AND g.agent_id <> $2
               AND NOT EXISTS (SELECT 1 FROM connections c WHERE c.requester_id = g.agent_id AND c.target_id = $2
                               AND c.status = 'BLOCKED')
               ORDER BY g.agent_id";
    let members: Vec<(i64, String, bool)> = db.rows(sql, values![group, sender.key.0]).await?;
    let mut recipients = Vec::with_capacity(members.len());
    for (agent, allow_from, same_household) in members {
        let allow_from: AllowFrom = row::parse(Some(allow_from))?.unwrap_or_default();
        if allow_from.allows_in_any_case(&sender.name) {
            let consent = Consent { same_household, ..Consent::default() };
            recipients.push(Addressee { agent: AgentKey(agent), from_person: consent.marks_person(sender.person) });
        }
    }
    Ok(recipients)
}

/// Returns the group of this name, which must be owned by the caller.
async fn own(db: &mut dyn Db, caller: &Agent, group: &AgentName) -> Tried<i64> {
    match find(db, group, caller.key.0).await? {
        Some((id, owner, Some(_))) if owner == caller.key.0 => Ok(id),
        Some((_, _, Some(_))) => Err(refusals::not_the_owner().into()),
        _ => Err(refusals::no_group(group).into()),
    }
}

/// Returns whether the agent is in the group, or was invited.
async fn is_in(db: &mut dyn Db, group: i64, agent: i64) -> Tried<bool> {
    db.exists("SELECT 1 FROM group_members WHERE group_id = $1 AND agent_id = $2", values![group, agent]).await
}

/// Returns whether the agent is in as many groups as it may be, invitations included.
async fn is_in_most(db: &mut dyn Db, agent: i64) -> Tried<bool> {
    let (groups,): (i64,) = db.one("SELECT count(*) FROM group_members WHERE agent_id = $1", values![agent]).await?;
    Ok(groups >= i64::from(MAX_GROUPS))
}

/// Invites an agent by mail, which fails where the caller may not write to it.
async fn invite(tx: &mut dyn Tx, caller: &Agent, group: &AgentName, agent: &AgentName, now: Timestamp) -> Tried<Group> {
    own(tx, caller, group).await?;
    let peer = agent_named(tx, agent).await?.ok_or_else(|| refusals::not_connected(agent))?.key.0;
    // Owner and members of a group change only under the locks of the agents affected.
    tx.lock(&[caller.key.0, peer]).await?;
    let id = own(tx, caller, group).await?;
    if is_in(tx, id, peer).await? {
        return load(tx, id).await;
    }
    if is_in_most(tx, peer).await? {
        return Err(refusals::in_most_groups(&format!("{agent} is")).into());
    }
    let draft = refusals::invitation(group, agent, &caller.name)?;
    tx.send_message(caller, OutgoingMessage::new(&caller.name, draft, now)?).await?;
    put_member(tx, id, peer, false).await?;
    let group = load(tx, id).await?;
    // Only the owner invites, whose lock is held: the group does not grow meanwhile.
    refusals::check_members(&group)?;
    Ok(group)
}

async fn join(tx: &mut dyn Tx, caller: &Agent, group: &AgentName, joined: bool) -> Tried<Group> {
    // A send to the group holds the locks of its members from before it reads them until it is committed: when this
    // returns, no send is in progress that saw the old membership.
    tx.lock(&[caller.key.0]).await?;
    let Some((id, _, Some(_))) = find(tx, group, caller.key.0).await? else {
        return Err(refusals::no_group(group).into());
    };
    if !joined {
        leave(tx, id, caller.key.0).await?;
        return load(tx, id).await;
    }
    // The last member that leaves revokes invitations under the group's lock, without that of the caller.
    lock_group(tx, id).await?;
    // A new member does not see older messages: it enters a session with the next message.
    let sql = "UPDATE group_members SET joined = TRUE WHERE group_id = $1 AND agent_id = $2";
    match tx.execute(sql, values![id, caller.key.0]).await? {
        0 => Err(refusals::no_group(group).into()),
        _ => load(tx, id).await,
    }
}

/// Locks a group, so that concurrent leaves are serialized. Returns its owner.
async fn lock_group(tx: &mut dyn Tx, group: i64) -> Tried<i64> {
    let sql = format!("SELECT owner_id FROM groups WHERE id = $1{}", tx.dialect().for_update);
    let (owner,) = tx.one(&sql, values![group]).await?;
    Ok(owner)
}

/// Removes an agent from a group. Where it was the owner, the member that registered first becomes the owner; without
/// members the invitations are removed too.
async fn leave(tx: &mut dyn Tx, group: i64, agent: i64) -> Tried<()> {
    let owner = lock_group(tx, group).await?;
    tx.execute("DELETE FROM group_members WHERE group_id = $1 AND agent_id = $2", values![group, agent]).await?;
    let first = "SELECT min(agent_id) FROM group_members WHERE group_id = $1 AND joined";
    let (next,): (Option<i64>,) = tx.one(first, values![group]).await?;
    match next {
        Some(next) if owner == agent => {
            tx.execute("UPDATE groups SET owner_id = $2 WHERE id = $1", values![group, next]).await?;
        }
        Some(_) => {}
        None => {
            tx.execute("DELETE FROM group_members WHERE group_id = $1", values![group]).await?;
        }
    }
    Ok(())
}

/// Removes an agent that is deleted from all groups.
pub(super) async fn leave_all(tx: &mut dyn Tx, agent: i64) -> Tried<()> {
    for group in groups_of(tx, agent).await? {
        leave(tx, group, agent).await?;
    }
    Ok(())
}

/// Removes an agent from the groups of those of `others` that it may no longer write to, and them from its own. The
/// mailboxes of all of them are locked.
pub(super) async fn leave_without_consent(tx: &mut dyn Tx, agent: i64, others: &[i64]) -> Tried<()> {
    for group in groups_of(tx, agent).await? {
        let owner = lock_group(tx, group).await?;
        let sql = "SELECT agent_id FROM group_members WHERE group_id = $1 AND agent_id <> $2 ORDER BY agent_id";
        // Pairs of the agent whose consent is needed, and the agent that leaves without it.
        let with: Vec<(i64, i64)> = match owner == agent {
            true => tx.rows::<(i64,)>(sql, values![group, agent]).await?.into_iter().map(|(id,)| (id, id)).collect(),
            false => vec![(owner, agent)],
        };
        for (other, leaves) in with.into_iter().filter(|(other, _)| others.contains(other)) {
            if !consent(tx, agent, other).await?.is_given() {
                leave(tx, group, leaves).await?;
            }
        }
    }
    Ok(())
}

async fn groups_of(db: &mut dyn Db, agent: i64) -> Tried<Vec<i64>> {
    let sql = "SELECT group_id FROM group_members WHERE agent_id = $1 ORDER BY group_id";
    db.rows(sql, values![agent]).await
}

async fn remove(tx: &mut dyn Tx, caller: &Agent, group: &AgentName, agent: &AgentName) -> Tried<Group> {
    own(tx, caller, group).await?;
    let peer = agent_named(tx, agent).await?.ok_or_else(|| refusals::no_member(group, agent))?.key;
    if peer == caller.key {
        return Err(refusals::remove_oneself(group).into());
    }
    // As in `join`: with the lock of the removed agent, it gets no mail after this returns.
    tx.lock(&[caller.key.0, peer.0]).await?;
    let id = own(tx, caller, group).await?;
    if !is_in(tx, id, peer.0).await? {
        return Err(refusals::no_member(group, agent).into());
    }
    leave(tx, id, peer.0).await?;
    load(tx, id).await
}

/// Returns a group with its members.
async fn load(db: &mut dyn Db, id: i64) -> Tried<Group> {
    let sql = "SELECT g.name, a.name, g.created_at FROM groups g JOIN agents a ON a.id = g.owner_id WHERE g.id = $1";
    let (name, owner, created_at) = db.one(sql, values![id]).await?;
    let sql = "SELECT a.name, m.joined FROM group_members m JOIN agents a ON a.id = m.agent_id
               WHERE m.group_id = $1 ORDER BY a.name";
    let members = db.rows(sql, values![id]).await?;
    Ok(Group { name, owner, members, created_at })
}

from_row!(GroupMember: name joined);

async fn list(db: &mut dyn Db, caller: &Agent) -> Tried<Vec<Group>> {
    let ids = groups_of(db, caller.key.0).await?;
    load_all(db, ids).await
}

/// Returns the groups of these row ids.
pub(super) async fn load_all(db: &mut dyn Db, ids: Vec<i64>) -> Tried<Vec<Group>> {
    let mut groups = Vec::with_capacity(ids.len());
    for id in ids {
        groups.push(load(db, id).await?);
    }
    Ok(groups)
}
