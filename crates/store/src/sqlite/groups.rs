//! Mail to groups, and to many.

use std::collections::HashSet;

use amb_core::id::fresh_uuid;
use amb_core::{AgentName, Draft, Timestamp};
use futures_util::FutureExt;
use rusqlite::{OptionalExtension, params};

use super::cache::Session;
use super::engine::now as run;
use super::error::failed;
use super::plans::Prepared;
use super::send::Outcome;
use super::writer::WriteTx;
use crate::columns::Addressee;
use crate::error::Result;
use crate::outgoing::{OutgoingMessage, Placed, Subject, no_session};
use crate::types::Agent;
use crate::verbs::group_named;

impl WriteTx {
    /// Those who get a message in a group's session are members of it, and so is its sender.
    pub(super) fn enter_session(&self, session: i64, members: &[Addressee], sender: i64) -> Result<()> {
        for member in members.iter().map(|to| to.agent.0).chain([sender]) {
            self.db
                .prepared("INSERT OR IGNORE INTO session_members (agent_id, session_id) VALUES (?1, ?2)")
                .and_then(|mut insert| insert.execute([member, session]))
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
            None => run(group_named(self, name, 0).boxed())?.map(|(id, _, _)| id),
        };
        Ok((agent, group, (agent.is_none() && group.is_none()).then(|| name.clone())))
    }
}
