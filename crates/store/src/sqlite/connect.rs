//! Asking for a connection, and approving one.

use amb_core::doc::{Connected, ConnectionRequested, ConnectionStatus};
use amb_core::id::fresh_uuid;
use amb_core::limits::MAX_WAITING_REQUESTS;
use amb_core::{AgentName, Consent, Event, Timestamp};
use rusqlite::{OptionalExtension, params};
use uuid::Uuid;

use super::error::{failed, is_taken};
use super::keys::{maybe_instant_at, uuid_at};
use super::plans::Prepared;
use super::writer::WriteTx;
use crate::error::{Result, conflict};
use crate::row;
use crate::types::{Agent, Ask, Written};
use crate::words;

impl WriteTx {
    pub(super) fn request_connection(
        &mut self,
        caller: &Agent,
        ask: Ask,
        now: Timestamp,
    ) -> Result<Written<ConnectionRequested>> {
        let me = caller.key.0;
        let peer = self.peer(&ask.target)?.filter(|peer| !peer.deleted);
        let Some(peer) = peer else { return Err(words::no_agent(&ask.target)) };
        if peer.id == me {
            return Err(words::connect_to_oneself());
        }
        if self.is_blocked(peer.id, me)? {
            return Err(words::not_heard(&caller.name, &ask.target));
        }
        if self.consent(me, peer.id)?.is_given() {
            return Err(words::connected_already(&ask.target));
        }
        // A request that ran out of time is in nobody's way.
        let expired = self.expire_between(me, peer.id, now)?;
        if let Some(most) = ask.max_pending
            && self.pending_of(me, now)? >= i64::from(most)
        {
            return Err(words::too_many_pending(most));
        }
        if self.waiting_for(peer.id, now)? >= i64::from(MAX_WAITING_REQUESTS) {
            return Err(words::too_many_waiting(&ask.target));
        }
        let id = fresh_uuid(now);
        let code = self.insert_request(me, peer.id, id, &ask, now)?;
        let event = Event::ConnectionRequest {
            connection_id: id.into(),
            from_agent: caller.name.clone(),
            message: ask.intro,
            verification_code: (!ask.private_code).then(|| code.clone()),
        };
        let mut news = Vec::new();
        if let Some(expired) = expired {
            news.push(self.tell(me, words::changed(expired, &peer.name, ConnectionStatus::Expired), now)?);
        }
        news.push(self.tell(peer.id, event, now)?);
        let answer = ConnectionRequested {
            connection_id: id.into(),
            verification_code: code,
            target_agent_name: peer.name,
            status: ConnectionStatus::Pending,
        };
        Ok(Written { answer, news })
    }

    pub(super) fn approve_connection(
        &mut self,
        caller: &Agent,
        code: &str,
        now: Timestamp,
    ) -> Result<Written<Connected>> {
        let found: Option<(i64, Uuid, i64, i64, Option<Timestamp>, String)> = self
            .db
            .prepared(
                "SELECT c.id, c.public_id, c.requester_id, c.target_id, c.expires_at, a.name
                 FROM connections c JOIN agents a ON a.id = c.requester_id
                 WHERE c.verification_code = ?1 AND c.status = 'PENDING'",
            )
            .and_then(|mut select| {
                select
                    .query_row([code], |row| {
                        Ok((
                            row.get(0)?,
                            uuid_at(row, 1)?,
                            row.get(2)?,
                            row.get(3)?,
                            maybe_instant_at(row, 4)?,
                            row.get(5)?,
                        ))
                    })
                    .optional()
            })
            .map_err(failed)?;
        let Some((id, public_id, requester, target, expires_at, requester_name)) = found else {
            return Err(words::no_code());
        };
        if target != caller.key.0 {
            // To anybody else a code that waits looks like any wrong one.
            return Err(if requester == caller.key.0 { words::own_request() } else { words::no_code() });
        }
        if expires_at.is_some_and(|at| at <= now) {
            return Err(words::code_expired());
        }
        let (low, high) = pair(requester, target);
        // The other side may have asked too: one connection is enough, and its request has served.
        self.db
            .prepared(
                "UPDATE connections SET status = 'EXPIRED', updated_at = ?3
                 WHERE requester_id = ?1 AND target_id = ?2 AND status = 'PENDING'",
            )
            .and_then(|mut update| update.execute(params![target, requester, now.as_microsecond()]))
            .map_err(failed)?;
        // Who asks for a connection hears the other side again.
        self.db
            .prepared(
                "UPDATE connections SET status = 'REVOKED', updated_at = ?3
                 WHERE requester_id = ?1 AND target_id = ?2 AND status = 'BLOCKED'",
            )
            .and_then(|mut update| update.execute(params![requester, target, now.as_microsecond()]))
            .map_err(failed)?;
        self.db
            .prepared("UPDATE connections SET status = 'ACTIVE', updated_at = ?2 WHERE id = ?1")
            .and_then(|mut update| update.execute(params![id, now.as_microsecond()]))
            .map_err(
                |error| if is_taken(&error) { conflict("the two are connected already") } else { failed(error) },
            )?;
        self.caches.consent.remove(&(low, high));
        let event = Event::ConnectionApproved { connection_id: public_id.into(), connected_agent: caller.name.clone() };
        let news = vec![self.tell(requester, event, now)?];
        let answer = Connected {
            connection_id: public_id.into(),
            status: ConnectionStatus::Active,
            connected_agent_name: row::name(&requester_name)?,
        };
        Ok(Written { answer, news })
    }

    /// Approves the request of this agent that waits for the caller.
    pub(super) fn accept_connection(
        &mut self,
        caller: &Agent,
        from: &AgentName,
        now: Timestamp,
    ) -> Result<Written<Connected>> {
        let Some(peer) = self.peer(from)? else { return Err(words::no_pending(from)) };
        let code: Option<String> = self
            .db
            .prepared(
                "SELECT verification_code FROM connections
                 WHERE requester_id = ?1 AND target_id = ?2 AND status = 'PENDING'",
            )
            .and_then(|mut select| select.query_row([peer.id, caller.key.0], |row| row.get(0)).optional())
            .map_err(failed)?;
        let Some(code) = code else { return Err(words::no_pending(from)) };
        self.approve_connection(caller, &code, now)
    }

    /// What lets the two write to each other.
    pub(super) fn consent(&mut self, a: i64, b: i64) -> Result<Consent> {
        let pair = pair(a, b);
        if let Some(consent) = self.caches.consent.get(&pair) {
            return Ok(*consent);
        }
        let consent = self
            .db
            .prepared(
                "SELECT EXISTS (SELECT 1 FROM agents a, agents b
                                WHERE a.id = ?1 AND b.id = ?2 AND +a.household_id = +b.household_id),
                        EXISTS (SELECT 1 FROM connections WHERE low_id = ?1 AND high_id = ?2 AND status = 'ACTIVE'),
                        EXISTS (SELECT 1 FROM connections
                                WHERE requester_id = ?1 AND target_id = ?2 AND status = 'BLOCKED')
                        OR EXISTS (SELECT 1 FROM connections
                                   WHERE requester_id = ?2 AND target_id = ?1 AND status = 'BLOCKED')",
            )
            .and_then(|mut select| {
                select.query_row([pair.0, pair.1], |row| {
                    Ok(Consent { same_household: row.get(0)?, connected: row.get(1)?, blocked: row.get(2)? })
                })
            })
            .map_err(failed)?;
        self.caches.consent.put(pair, consent);
        Ok(consent)
    }

    /// Whether `by` wants to hear nothing of `whom`.
    pub(super) fn is_blocked(&self, by: i64, whom: i64) -> Result<bool> {
        self.db
            .prepared("SELECT 1 FROM connections WHERE requester_id = ?1 AND target_id = ?2 AND status = 'BLOCKED'")
            .and_then(|mut select| select.exists([by, whom]))
            .map_err(failed)
    }

    /// Ends the request from `requester` to `target` if its time is over.
    fn expire_between(&self, requester: i64, target: i64, now: Timestamp) -> Result<Option<Uuid>> {
        self.db
            .prepared(
                "UPDATE connections SET status = 'EXPIRED', updated_at = ?3
                 WHERE requester_id = ?1 AND target_id = ?2 AND status = 'PENDING' AND expires_at <= ?3
                 RETURNING public_id",
            )
            .and_then(|mut update| {
                update.query_row(params![requester, target, now.as_microsecond()], |row| uuid_at(row, 0)).optional()
            })
            .map_err(failed)
    }

    fn pending_of(&self, requester: i64, now: Timestamp) -> Result<i64> {
        self.db
            .prepared(
                "SELECT count(*) FROM connections
                 WHERE requester_id = ?1 AND status = 'PENDING' AND (expires_at IS NULL OR expires_at > ?2)",
            )
            .and_then(|mut select| select.query_row([requester, now.as_microsecond()], |row| row.get(0)))
            .map_err(failed)
    }

    /// How many requests wait for this agent.
    fn waiting_for(&self, target: i64, now: Timestamp) -> Result<i64> {
        self.db
            .prepared(
                "SELECT count(*) FROM connections
                 WHERE target_id = ?1 AND status = 'PENDING' AND (expires_at IS NULL OR expires_at > ?2)",
            )
            .and_then(|mut select| select.query_row([target, now.as_microsecond()], |row| row.get(0)))
            .map_err(failed)
    }

    /// Inserts the request under a code that no other waiting request has.
    fn insert_request(&self, me: i64, peer: i64, id: Uuid, ask: &Ask, now: Timestamp) -> Result<String> {
        let waiting = self
            .db
            .prepared("SELECT 1 FROM connections WHERE requester_id = ?1 AND target_id = ?2 AND status = 'PENDING'")
            .and_then(|mut select| select.exists([me, peer]))
            .map_err(failed)?;
        if waiting {
            return Err(words::asked_already(&ask.target));
        }
        let (low, high) = pair(me, peer);
        for _ in 0..words::CODE_TRIES {
            let code = (ask.codes)()?;
            let inserted = self
                .db
                .prepared(
                    "INSERT INTO connections (public_id, requester_id, target_id, low_id, high_id, verification_code,
                                              code_private, message, created_at, updated_at, expires_at)
                     VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?9, ?10)
                     ON CONFLICT (verification_code) WHERE status = 'PENDING' DO NOTHING",
                )
                .and_then(|mut insert| {
                    insert.execute(params![
                        id.as_bytes(),
                        me,
                        peer,
                        low,
                        high,
                        code,
                        ask.private_code,
                        ask.intro,
                        now.as_microsecond(),
                        ask.expires_at.map(|at| at.as_microsecond()),
                    ])
                })
                .map_err(failed)?;
            if inserted == 1 {
                return Ok(code);
            }
        }
        Err(words::no_code_left())
    }
}

/// Two agents in one order, whoever asked.
pub(super) fn pair(a: i64, b: i64) -> (i64, i64) {
    if a < b { (a, b) } else { (b, a) }
}
