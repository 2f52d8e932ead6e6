//! The look-ups and writes of a send. Most look-ups are answered by the writer's caches.

use std::collections::HashSet;

use amb_core::doc::Sent;
use amb_core::id::fresh_uuid;
use amb_core::send::Storage;
use amb_core::{AgentName, Card, Consent, Draft, Timestamp};
use rusqlite::params;
use uuid::Uuid;

use crate::columns::{Addressee, Columns};
use crate::engine::{FromRow, Query, Row, SQLITE, SqlOf, Tx, values};
use crate::error::Result;
use crate::outgoing::{OutgoingMessage, Subject, json, no_session};
use crate::quota::Stored;
use crate::sqlite::engine::run;
use crate::sqlite::error::failed;
use crate::sqlite::plans::Prepared;
use crate::sqlite::writer::WriteTx;
use crate::types::{Agent, AgentKey, Once, Written, log_number};
use crate::verbs::{
    NewTask, ParentRow, RecipientRow, SendTx, SessionRow, TASK_OF_MESSAGE, To, agent_named, answer_under, audience,
    consent, group_named, joined, keep_answer, pair, send, session_columns,
};

impl FromRow for RecipientRow {
    fn from_row(row: &mut Row<'_>) -> Result<Self> {
        Ok(Self { id: row.take()?, name: row.take()?, paused: row.take()?, card: Card::from_row(row)?.into() })
    }
}

static PARENT: SqlOf = SqlOf::new();

impl SendTx for WriteTx {
    fn atomically<T>(&mut self, operation: impl FnOnce(&mut Self) -> Result<T>) -> Result<T> {
        self.in_savepoint(operation)
    }

    fn stamp(&mut self, at: Timestamp) -> Timestamp {
        self.clock.stamp(at)
    }

    fn answer_under(&mut self, caller: i64, once: &Once) -> Result<Option<Sent>> {
        run(answer_under(self, caller, once))
    }

    fn keep_answer(&mut self, caller: i64, once: &Once, sent: Sent, at: Timestamp) -> Result<()> {
        run(keep_answer(self, caller, once, &json(&sent)?, at))
    }

    fn recipient(&mut self, caller: &Agent, name: &AgentName) -> Result<Option<To>> {
        if let Some(peer) = self.peer(name)? {
            return Ok(Some(To::Agent(peer)));
        }
        let Some(group) = run(joined(self, name, caller.key.0))? else { return Ok(None) };
        Ok(Some(To::Group(group, run(audience(self, group, caller))?)))
    }

    fn consent(&mut self, a: i64, b: i64) -> Result<Consent> {
        let pair = pair(a, b);
        if let Some(consent) = self.caches.consent.get(&pair) {
            return Ok(*consent);
        }
        let consent = run(consent(self, a, b))?;
        self.caches.consent.insert(pair, consent);
        Ok(consent)
    }

    fn current_tasks(&mut self, agent: i64) -> Result<usize> {
        let sql = "SELECT count(*) FROM tasks WHERE assignee_id = $1 AND state IN ('accepted', 'working')";
        let count: i64 = run(self.one(sql, values![agent]))?;
        Ok(usize::try_from(count).unwrap_or(usize::MAX))
    }

    fn storage(&mut self, sender: i64, more: Stored) -> Result<Storage> {
        let sender = self.stored_by(sender)?.usage();
        let quotas = self.office.account.quotas();
        Ok(Storage { quotas, sender, office: self.office.now().usage(), more: more.usage() })
    }

    fn parent(&mut self, caller: i64, id: Uuid) -> Result<Option<ParentRow>> {
        let sql = PARENT.get(&SQLITE, |_| ParentRow::select("messages m", "$1") + " WHERE m.public_id = $2");
        run(self.find(sql, values![caller, id]))
    }

    fn session(&mut self, id: Uuid) -> Result<Option<SessionRow>> {
        if let Some(row) = self.caches.by_public_id.get(&id).copied() {
            return self.session_at(row);
        }
        let found = run(self.find("SELECT id FROM sessions WHERE public_id = $1", values![id]))?;
        let Some(row) = found else { return Ok(None) };
        self.caches.by_public_id.insert(id, row);
        self.session_at(row)
    }

    fn session_of_subject(&mut self, caller: i64, to: &To, subject: &Subject, at: Timestamp) -> Result<SessionRow> {
        let found = match to {
            To::Agent(peer) => self.pair_session(pair(caller, peer.id), &subject.key)?,
            To::Group(group, _) => {
                let sql = "SELECT id FROM sessions WHERE group_id = $1 AND subject_key = $2";
                run(self.find(sql, values![*group, &subject.key]))?
            }
        };
        match found {
            Some(row) => self.session_at(row)?.ok_or_else(no_session),
            None => self.new_session(caller, to, subject, at),
        }
    }

    fn enter_session(&mut self, session: i64, members: &[Addressee], sender: i64) -> Result<()> {
        let sql = "INSERT INTO session_members (agent_id, session_id) VALUES ($1, $2) ON CONFLICT DO NOTHING";
        for member in members.iter().map(|to| to.agent.0).chain([sender]) {
            run(self.execute(sql, values![member, session]))?;
        }
        Ok(())
    }

    fn task_of_message(&mut self, message: Uuid) -> Result<Option<i64>> {
        run(self.find(TASK_OF_MESSAGE, values![message]))
    }

    fn append(&mut self, session: i64, message: Columns<'_>, to: &[Addressee]) -> Result<Vec<(Addressee, u64)>> {
        let stored = message.stored(to.len());
        let id = self
            .db
            .prepared(
                "INSERT INTO messages (public_id, session_id, sender_id, created_at, priority, ttl, kind, trace,
                                       reply_to, correlation_id, task, callback, content, parts, metadata)
                 VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11, ?12, ?13, ?14, ?15)",
            )
            .and_then(|mut insert| {
                insert.insert(params![
                    message.id.as_bytes(),
                    session,
                    message.sender,
                    message.at.as_microsecond(),
                    message.priority,
                    message.ttl,
                    message.kind,
                    message.trace,
                    message.reply_to.as_ref().map(Uuid::as_bytes),
                    message.correlation_id,
                    message.task,
                    message.callback,
                    message.content,
                    message.parts,
                    message.metadata,
                ])
            })
            .map_err(failed)?;
        self.changed.add(message.sender);
        let mut copies = Vec::with_capacity(to.len());
        for addressee in to {
            copies.push((*addressee, log_number(self.deliver(*addressee, session, id, message.priority)?)));
        }
        self.charge(message.payer, stored)?;
        Ok(copies)
    }

    fn insert_task(&mut self, task: NewTask) -> Result<()> {
        let NewTask { id, owner, assignee, message, session, parent, deadline, at, .. } = task;
        let (state, subject, note, callback) =
            (task.state.as_str(), &*task.subject, task.note.as_deref(), task.callback.as_deref());
        let values =
            values![id, owner, assignee, state, subject, message, session, parent, deadline, note, callback, at];
        run(self.execute(NewTask::INSERT, values)).map(drop)
    }
}

impl WriteTx {
    /// Appends a message to an agent's log and counts it as unread. Returns its number in the log.
    fn deliver(&mut self, to: Addressee, session: i64, message: i64, priority: i16) -> Result<i64> {
        let Addressee { agent: AgentKey(agent), from_person } = to;
        let number = self.next_number(agent)?;
        self.db
            .prepared(
                "INSERT INTO deliveries (message_id, agent_id, number, priority, from_person) VALUES (?1, ?2, ?3, ?4, ?5)",
            )
            .and_then(|mut insert| insert.execute(params![message, agent, number, priority, from_person.then_some(1)]))
            .map_err(failed)?;
        self.caches.heads.insert(agent, number);
        self.db
            .prepared("UPDATE session_members SET unread = unread + 1 WHERE agent_id = ?1 AND session_id = ?2")
            .and_then(|mut update| update.execute([agent, session]))
            .map_err(failed)?;
        self.changed.add(agent);
        self.to_index.push(AgentKey(agent));
        Ok(number)
    }

    /// Returns the registered agent that this name resolves to.
    fn peer(&mut self, name: &AgentName) -> Result<Option<RecipientRow>> {
        if let Some(peer) = self.caches.peers.get(name) {
            return Ok(Some(peer.clone()));
        }
        let sql = "SELECT id, name, paused_by IS NOT NULL, description, capabilities, allow_from, max_concurrent_tasks
                   FROM agents WHERE name = $1 AND deleted_at IS NULL";
        let found: Option<RecipientRow> = run(self.find(sql, values![name.as_str()]))?;
        let Some(peer) = found else {
            // Cached only under its own name, by which it is invalidated when its card changes.
            return match run(agent_named(self, name))? {
                Some(like) => self.peer(&like.name),
                None => Ok(None),
            };
        };
        self.caches.peers.insert(name.clone(), peer.clone());
        Ok(Some(peer))
    }

    /// Returns the session of this row id.
    fn session_at(&mut self, row: i64) -> Result<Option<SessionRow>> {
        if let Some(session) = self.caches.sessions.get(&row) {
            return Ok(Some(session.clone()));
        }
        let sql = concat!("SELECT ", session_columns!(), " FROM sessions s WHERE s.id = $1");
        let found: Option<SessionRow> = run(self.find(sql, values![row]))?;
        if let Some(session) = &found {
            self.caches.sessions.insert(row, session.clone());
        }
        Ok(found)
    }

    /// Returns the row id of the session of two agents and a subject.
    fn pair_session(&mut self, (low, high): (i64, i64), key: &str) -> Result<Option<i64>> {
        if let Some(row) = self.caches.by_subject.get(&(low, high, key.into())) {
            return Ok(Some(*row));
        }
        let sql = "SELECT id FROM sessions WHERE low_id = $1 AND high_id = $2 AND subject_key = $3";
        let found = run(self.find(sql, values![low, high, key]))?;
        if let Some(row) = found {
            self.caches.by_subject.insert((low, high, key.into()), row);
        }
        Ok(found)
    }

    fn new_session(&mut self, caller: i64, to: &To, subject: &Subject, at: Timestamp) -> Result<SessionRow> {
        let public_id = fresh_uuid(at);
        let (peer, group) = match to {
            To::Agent(peer) => (Some(peer.id), None),
            To::Group(group, _) => (None, Some(*group)),
        };
        let pair = peer.map(|peer| pair(caller, peer));
        let (low, high) = pair.unzip();
        let sql =
            "INSERT INTO sessions (public_id, subject, subject_key, initiator_id, participant_id, group_id, low_id,
                                         high_id, created_at)
                   VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9)";
        let values = values![public_id, &subject.subject, &subject.key, caller, peer, group, low, high, at];
        let id = run(self.insert(sql, values))?;
        if let Some((low, high)) = pair {
            let sql = "INSERT INTO session_members (agent_id, session_id) VALUES ($1, $3), ($2, $3)";
            run(self.execute(sql, values![low, high, id]))?;
            self.caches.by_subject.insert((low, high, subject.key.as_str().into()), id);
        }
        let subject = subject.subject.as_str().into();
        let session = SessionRow { id, public_id, subject, pair, group, ended_by: None };
        self.caches.by_public_id.insert(public_id, id);
        self.caches.sessions.insert(id, session.clone());
        Ok(session)
    }

    /// Sends one draft to each of several recipients, all or none.
    pub(in crate::sqlite) fn send_all(
        &mut self,
        caller: &Agent,
        to: &[AgentName],
        draft: &Draft,
        now: Timestamp,
    ) -> Result<Vec<Written<Sent>>> {
        let (mut sent, mut seen, mut copies) = (Vec::with_capacity(to.len()), HashSet::new(), 0);
        for name in to {
            if !seen.insert(self.resolve(name)?) {
                continue;
            }
            let draft = Draft { to: name.clone(), idempotency_key: None, ..draft.clone() };
            let message = OutgoingMessage::new(&caller.name, draft, now)?;
            let outcome = send(self, caller, message)?;
            copies += outcome.copies();
            sent.push(outcome.into_written());
        }
        draft.check_copies(copies)?;
        Ok(sent)
    }

    /// Resolves a name to an agent, else a group, else itself.
    fn resolve(&mut self, name: &AgentName) -> Result<(Option<i64>, Option<i64>, Option<AgentName>)> {
        let agent = self.peer(name)?.map(|peer| peer.id);
        let group = match agent {
            Some(_) => None,
            None => run(group_named(self, name, 0))?.map(|(id, _, _)| id),
        };
        Ok((agent, group, (agent.is_none() && group.is_none()).then(|| name.clone())))
    }
}
