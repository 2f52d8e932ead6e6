//! Mail to groups, and to many.

use std::collections::HashSet;

use amb_core::id::fresh_uuid;
use amb_core::{AgentName, Draft, Timestamp};
use rusqlite::{Connection, OptionalExtension, params};

use super::cache::Session;
use super::error::failed;
use super::plans::Prepared;
use super::send::Outcome;
use super::writer::WriteTx;
use crate::error::Result;
use crate::outgoing::{OutgoingMessage, Placed, Subject, no_session};
use crate::refusals;
use crate::row;
use crate::types::Agent;

impl WriteTx {
    /// The group of this name that the agent has joined.
    pub(super) fn group_of(&self, name: &AgentName, agent: i64) -> Result<Option<i64>> {
        let found = find(&self.db, name, agent)?;
        match found {
            Some((id, _, Some(true))) => Ok(Some(id)),
            Some((_, _, Some(false))) => Err(refusals::not_in_group(name)),
            _ => Ok(None),
        }
    }

    /// The other members, but for those who blocked the sender or do not hear it.
    pub(super) fn audience(&self, group: i64, sender: &Agent) -> Result<Vec<i64>> {
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

    /// Those who get a message in a group's session are members of it, and so is its sender.
    pub(super) fn enter_session(&self, session: i64, members: &[i64], sender: i64) -> Result<()> {
        for member in members.iter().chain([&sender]) {
            self.db
                .prepared("INSERT OR IGNORE INTO session_members (agent_id, session_id) VALUES (?1, ?2)")
                .and_then(|mut insert| insert.execute([*member, session]))
                .map_err(failed)?;
        }
        Ok(())
    }

    /// The group's session of a subject, made where it is missing.
    pub(super) fn group_session(&mut self, group: i64, me: i64, subject: &Subject, now: Timestamp) -> Result<Session> {
        let Subject { subject, key } = subject;
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
        self.session(id)?.ok_or_else(no_session)
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
            if !known.insert(self.meant_by(name)?) {
                continue;
            }
            let draft = Draft { to: name.clone(), idempotency_key: None, ..draft.clone() };
            let message = OutgoingMessage::new(&caller.name, draft, now)?;
            if let Outcome::Placed(placed) = self.send(caller, message)? {
                sent.push(*placed);
            }
        }
        draft.check_copies(sent.iter().map(|(_, placed)| placed.copies.len()).sum())?;
        Ok(sent)
    }

    /// Whom a name means: an agent, else a group; nobody, where no one has it.
    fn meant_by(&mut self, name: &AgentName) -> Result<(Option<i64>, Option<i64>, Option<AgentName>)> {
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
