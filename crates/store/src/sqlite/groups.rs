//! Groups: who is in them, and mail to all of them.

use amb_core::doc::{Group, GroupMember};
use std::collections::HashSet;

use amb_core::id::fresh_uuid;
use amb_core::{AgentName, Draft, Kind, Timestamp};
use rusqlite::{Connection, OptionalExtension, params};

use super::cache::Thread;
use super::error::{failed, is_taken};
use super::keys::instant_at;
use super::messages::Found;
use super::plans::Prepared;
use super::send::{Outcome, letter_post, placed};
use super::writer::WriteTx;
use crate::error::Result;
use crate::outgoing::{self, OutgoingMessage, Placed, no_session};
use crate::row;
use crate::types::{Agent, Written};
use crate::words;

impl WriteTx {
    pub(super) fn create_group(&mut self, caller: &Agent, name: &AgentName, now: Timestamp) -> Result<Group> {
        if self.is_agent(name)? || self.is_group(name)? {
            return Err(words::name_taken(name));
        }
        let id = self
            .db
            .prepared("INSERT INTO groups (name, owner_id, created_at) VALUES (?1, ?2, ?3)")
            .and_then(|mut insert| insert.insert(params![name.as_str(), caller.key.0, now.as_microsecond()]))
            .map_err(|error| if is_taken(&error) { words::name_taken(name) } else { failed(error) })?;
        self.put_member(id, caller.key.0, true)?;
        load(&self.db, id)
    }

    /// The group of this name that the agent has joined.
    pub(super) fn group_of(&self, name: &AgentName, agent: i64) -> Result<Option<i64>> {
        let found = find(&self.db, name, agent)?;
        match found {
            Some((id, _, Some(true))) => Ok(Some(id)),
            Some((_, _, Some(false))) => Err(words::not_in_group(name)),
            _ => Ok(None),
        }
    }

    pub(super) fn is_group(&self, name: &AgentName) -> Result<bool> {
        self.db
            .prepared("SELECT 1 FROM groups WHERE lower(name) = ?1")
            .and_then(|mut select| select.exists([name.folded()]))
            .map_err(failed)
    }

    fn put_member(&self, group: i64, agent: i64, joined: bool) -> Result<()> {
        self.db
            .prepared(
                "INSERT INTO group_members (group_id, agent_id, joined) VALUES (?1, ?2, ?3)
                 ON CONFLICT (group_id, agent_id) DO UPDATE SET joined = excluded.joined",
            )
            .and_then(|mut insert| insert.execute(params![group, agent, joined]))
            .map_err(failed)
            .map(drop)
    }

    /// Invites, and tells the invited by mail, which the two may exchange.
    pub(super) fn invite_to_group(
        &mut self,
        caller: &Agent,
        group: &AgentName,
        agent: &AgentName,
        now: Timestamp,
    ) -> Result<Written<Group>> {
        let Some((id, owner, Some(_))) = find(&self.db, group, caller.key.0)? else {
            return Err(words::no_group(group));
        };
        if owner != caller.key.0 {
            return Err(words::not_the_owner());
        }
        let Some(peer) = self.peer(agent)?.filter(|peer| !peer.deleted) else {
            return Err(words::not_connected(agent));
        };
        self.consent(caller.key.0, peer.id)?.check(agent)?;
        let already = matches!(find(&self.db, group, peer.id)?, Some((_, _, Some(_))));
        if already {
            return Ok(Written::quiet(load(&self.db, id)?));
        }
        self.put_member(id, peer.id, false)?;
        let draft = words::invitation(group, agent, &caller.name)?;
        let letter = OutgoingMessage::new(&caller.name, draft, now)?;
        let news = match self.send(caller, letter)? {
            Outcome::Placed(placed) => {
                let (letter, placed) = *placed;
                letter.into_written(placed).news
            }
            Outcome::Repeat(_) => Vec::new(),
        };
        let group = load(&self.db, id)?;
        words::check_members(&group)?;
        Ok(Written { answer: group, news })
    }

    pub(super) fn join_group(&mut self, caller: &Agent, group: &AgentName, joined: bool) -> Result<Group> {
        let Some((id, _, Some(_))) = find(&self.db, group, caller.key.0)? else { return Err(words::no_group(group)) };
        if joined {
            self.put_member(id, caller.key.0, true)?;
            // What was said before is not theirs to read: they enter the sessions as mail comes to them.
        } else {
            self.leave_group(id, caller.key.0)?;
        }
        load(&self.db, id)
    }

    /// Takes an agent out of a group. One that its owner leaves is the member's that registered first; without a member
    /// nobody is invited any more either.
    fn leave_group(&self, group: i64, agent: i64) -> Result<()> {
        self.db
            .prepared("DELETE FROM group_members WHERE group_id = ?1 AND agent_id = ?2")
            .and_then(|mut delete| delete.execute([group, agent]))
            .map_err(failed)?;
        self.db
            .prepared(
                "UPDATE groups SET owner_id = coalesce((
                     SELECT min(agent_id) FROM group_members WHERE group_id = ?1 AND joined), owner_id)
                 WHERE id = ?1 AND owner_id = ?2",
            )
            .and_then(|mut update| update.execute([group, agent]))
            .map_err(failed)?;
        self.db
            .prepared(
                "DELETE FROM group_members WHERE group_id = ?1
                 AND NOT EXISTS (SELECT 1 FROM group_members o WHERE o.group_id = ?1 AND o.joined)",
            )
            .and_then(|mut delete| delete.execute([group]))
            .map_err(failed)
            .map(drop)
    }

    /// Takes an agent that leaves the office out of all groups.
    pub(super) fn leave_all_groups(&self, agent: i64) -> Result<()> {
        let groups: Vec<i64> = self
            .db
            .prepared("SELECT group_id FROM group_members WHERE agent_id = ?1")
            .and_then(|mut select| select.query_map([agent], |row| row.get(0)).and_then(Iterator::collect))
            .map_err(failed)?;
        groups.into_iter().try_for_each(|group| self.leave_group(group, agent))
    }

    pub(super) fn remove_from_group(&mut self, caller: &Agent, group: &AgentName, agent: &AgentName) -> Result<Group> {
        let Some((id, owner, Some(_))) = find(&self.db, group, caller.key.0)? else {
            return Err(words::no_group(group));
        };
        if owner != caller.key.0 {
            return Err(words::not_the_owner());
        }
        let Some(peer) = self.peer(agent)? else { return Err(words::no_member(group, agent)) };
        if peer.id == caller.key.0 {
            return Err(words::remove_oneself(group));
        }
        if !matches!(find(&self.db, group, peer.id)?, Some((_, _, Some(_)))) {
            return Err(words::no_member(group, agent));
        }
        self.leave_group(id, peer.id)?;
        load(&self.db, id)
    }

    /// Writes a letter into the group's session of its subject, and into the log of each other member.
    pub(super) fn place_in_group(&mut self, caller: &Agent, group: i64, letter: &OutgoingMessage) -> Result<Placed> {
        if letter.kind == Kind::Task {
            return Err(words::no_task_to_group());
        }
        let parent = self.parent_of(caller, letter)?;
        let in_group = parent.as_ref().is_some_and(|found| found.group == Some(group));
        let answered =
            parent.as_ref().filter(|_| in_group && letter.reply_to().is_some()).map(|found| found.row.session);
        let parent = parent.map(Found::message).transpose()?;
        let hop = letter.hop(parent.as_ref(), in_group)?;
        let members = self.audience(group, caller)?;
        // Before anything is written: a session that was made for nothing would take the whole transaction with it.
        letter.check_copies(members.len())?;
        self.check_quota(caller.key.0, letter.stored(members.len()))?;
        let thread = match letter.thread(answered)? {
            outgoing::Thread::Existing(id) => {
                let thread = self.thread_by_public_id(id)?.ok_or_else(no_session)?;
                if thread.group != Some(group) {
                    return Err(words::not_both_members(&letter.to));
                }
                thread
            }
            outgoing::Thread::Subject(outgoing::Subject { subject, key }) => {
                self.group_session(group, caller.key.0, subject, key, letter.at)?
            }
        };
        for member in members.iter().chain([&caller.key.0]) {
            self.db
                .prepared("INSERT OR IGNORE INTO session_members (agent_id, session_id) VALUES (?1, ?2)")
                .and_then(|mut insert| insert.execute([*member, thread.id]))
                .map_err(failed)?;
        }
        let (_, copies) = self.post(thread.id, letter_post(caller, letter, &hop, None)?, &members)?;
        Ok(placed(&thread, copies))
    }

    /// The other members, but for those who blocked the sender or do not hear it.
    fn audience(&self, group: i64, sender: &Agent) -> Result<Vec<i64>> {
        let members: Vec<(i64, String)> = self
            .db
            .prepared(
                "SELECT g.agent_id, a.allow_from FROM group_members g JOIN agents a ON a.id = g.agent_id
                 WHERE g.group_id = ?1 AND g.joined AND g.agent_id <> ?2
                 AND NOT EXISTS (SELECT 1 FROM connections c WHERE c.requester_id = g.agent_id AND c.target_id = ?2
                                 AND c.status = 'BLOCKED')
                 ORDER BY g.agent_id",
            )
            .and_then(|mut select| {
                let rows = select.query_map([group, sender.key.0], |row| Ok((row.get(0)?, row.get(1)?)))?;
                rows.collect()
            })
            .map_err(failed)?;
        row::who_hear(members, &sender.name)
    }

    fn group_session(&mut self, group: i64, me: i64, subject: &str, key: &str, now: Timestamp) -> Result<Thread> {
        let known: Option<i64> = self
            .db
            .prepared("SELECT id FROM sessions WHERE group_id = ?1 AND subject_key = ?2")
            .and_then(|mut select| select.query_row(params![group, key], |row| row.get(0)).optional())
            .map_err(failed)?;
        let id = match known {
            Some(id) => id,
            None => self
                .db
                .prepared(
                    "INSERT INTO sessions (public_id, subject, subject_key, initiator_id, group_id, created_at)
                     VALUES (?1, ?2, ?3, ?4, ?5, ?6)",
                )
                .and_then(|mut insert| {
                    insert.insert(params![fresh_uuid(now).as_bytes(), subject, key, me, group, now.as_microsecond()])
                })
                .map_err(failed)?,
        };
        self.thread(id)?.ok_or_else(no_session)
    }

    /// Sends one draft to each of several agents, all or none.
    pub(super) fn send_all(
        &mut self,
        caller: &Agent,
        to: &[AgentName],
        draft: &Draft,
        now: Timestamp,
    ) -> Result<Vec<(OutgoingMessage, Placed)>> {
        let (mut sent, mut known) = (Vec::with_capacity(to.len()), HashSet::new());
        for name in to {
            if !known.insert(self.recipient(name)?) {
                continue;
            }
            let draft = Draft { to: name.clone(), idempotency_key: None, ..draft.clone() };
            let letter = OutgoingMessage::new(&caller.name, draft, now)?;
            if let Outcome::Placed(placed) = self.send(caller, letter)? {
                sent.push(*placed);
            }
        }
        draft.check_copies(sent.iter().map(|(_, placed)| placed.copies.len()).sum())?;
        Ok(sent)
    }

    /// Whom a name means: an agent, else a group; nobody, where no one has it.
    fn recipient(&mut self, name: &AgentName) -> Result<(Option<i64>, Option<i64>, Option<AgentName>)> {
        let agent = self.peer(name)?.filter(|peer| !peer.deleted).map(|peer| peer.id);
        let group = match agent {
            Some(_) => None,
            None => find(&self.db, name, 0)?.map(|(id, _, _)| id),
        };
        Ok((agent, group, (agent.is_none() && group.is_none()).then(|| name.clone())))
    }
}

/// A group by name: its row, its owner, and whether the agent has joined it (`None` where it was never asked).
fn find(db: &Connection, name: &AgentName, agent: i64) -> Result<Option<(i64, i64, Option<bool>)>> {
    db.prepared(
        "SELECT g.id, g.owner_id, m.joined FROM groups g
         LEFT JOIN group_members m ON m.group_id = g.id AND m.agent_id = ?2
         WHERE lower(g.name) = ?1 ORDER BY g.name = ?3 DESC LIMIT 1",
    )
    .and_then(|mut select| {
        select
            .query_row(params![name.folded(), agent, name.as_str()], |row| Ok((row.get(0)?, row.get(1)?, row.get(2)?)))
            .optional()
    })
    .map_err(failed)
}

fn load(db: &Connection, id: i64) -> Result<Group> {
    let (name, owner, created_at): (String, String, Timestamp) = db
        .prepared(
            "SELECT g.name, a.name, g.created_at FROM groups g JOIN agents a ON a.id = g.owner_id WHERE g.id = ?1",
        )
        .and_then(|mut select| select.query_row([id], |row| Ok((row.get(0)?, row.get(1)?, instant_at(row, 2)?))))
        .map_err(failed)?;
    let mut select = db
        .prepared(
            "SELECT a.name, m.joined FROM group_members m JOIN agents a ON a.id = m.agent_id
             WHERE m.group_id = ?1 ORDER BY a.name",
        )
        .map_err(failed)?;
    let members = select
        .query_map([id], |row| Ok((row.get::<_, String>(0)?, row.get(1)?)))
        .map_err(failed)?
        .map(|member| {
            let (name, joined) = member.map_err(failed)?;
            Ok(GroupMember { name: row::name(&name)?, joined })
        })
        .collect::<Result<_>>()?;
    Ok(Group { name: row::name(&name)?, owner: row::name(&owner)?, members, created_at })
}

/// The groups that the agent is in or was invited to.
pub(super) fn groups(db: &Connection, caller: &Agent) -> Result<Vec<Group>> {
    let ids: Vec<i64> = db
        .prepared("SELECT group_id FROM group_members WHERE agent_id = ?1 ORDER BY group_id")
        .and_then(|mut select| select.query_map([caller.key.0], |row| row.get(0)).and_then(Iterator::collect))
        .map_err(failed)?;
    ids.into_iter().map(|id| load(db, id)).collect()
}
