//! Connections: requests, approvals, revocations, blocks.

use std::collections::HashMap;

use amb_core::doc::{
    Connected, Connection, ConnectionChange, ConnectionRequested, ConnectionStatus, PendingConnection,
};
use amb_core::id::fresh_uuid;
use amb_core::limits::MAX_WAITING_REQUESTS;
use amb_core::{AgentName, Consent, Event, Timestamp};
use async_trait::async_trait;
use futures_util::FutureExt;
use uuid::Uuid;

use super::agents::{agent_named, agent_or_deleted, is_registered};
use super::once::once;
use super::{tasks, transcripts};
use crate::engine::{Cached, Changes, Db, Engine, Failed, Query, ReadLength, Tried, Tx, from_row, read, values, write};
use crate::error::{Result, conflict};
use crate::types::{Agent, Ask, Written, to_micros};
use crate::{StoreError, refusals};

/// Most requests that expire in one transaction.
const BATCH: i64 = 200;

/// Attempts to find a free code. With 676,000 codes this is enough unless nearly all are in use.
const CODE_TRIES: usize = 64;

/// Connections between agents.
#[async_trait]
pub trait ConnectionVerbs: Engine {
    /// Requests a connection with another agent.
    ///
    /// `invalid` where the target is the caller, `not_found` for an unknown target, `conflict` where the two are
    /// connected or the same request is pending, `not_allowed` where the target blocked the caller, `too_many_requests`
    /// beyond `max_pending` of the caller or [`MAX_WAITING_REQUESTS`] of the target. Expired requests do not count.
    async fn request_connection(
        &self,
        caller: &Agent,
        ask: Ask,
        now: Timestamp,
    ) -> Result<Written<ConnectionRequested>> {
        refusals::check_text("message", ask.intro.as_deref())?;
        let ask = Ask { expires_at: ask.expires_at.map(to_micros), ..ask };
        write(self, Changes::All, (caller.clone(), ask, to_micros(now)), |tx, (caller, ask, now)| {
            once!(tx, caller, *now, request(tx, caller, ask, None, *now))
        })
        .await
    }

    /// Approves the request that has this code: `not_found` where none is pending for the caller, `forbidden` where it
    /// is the caller's own, `gone` where it has expired. Of concurrent approvals, one succeeds.
    async fn approve_connection(&self, caller: &Agent, code: &str, now: Timestamp) -> Result<Written<Connected>> {
        if code.contains('\0') {
            return Err(refusals::no_code());
        }
        let asked = (caller.clone(), code.to_owned(), to_micros(now));
        write(self, Changes::All, asked, |tx, (caller, code, now)| {
            once!(tx, caller, *now, approve(tx, caller, code, None, *now))
        })
        .await
    }

    /// Approves the pending request of this agent to the caller, without its code: for mounts, which decide for the
    /// caller. `not_found` where none is pending, `gone` where it has expired.
    async fn accept_connection(&self, caller: &Agent, from: &AgentName, now: Timestamp) -> Result<Written<Connected>> {
        let asked = (caller.clone(), from.clone(), to_micros(now));
        write(self, Changes::All, asked, |tx, (caller, from, now)| accept(tx, caller, from, *now).boxed()).await
    }

    /// Returns all of the caller's connections, one for each peer, the one that changed last first.
    async fn connections(&self, caller: &Agent) -> Result<Vec<Connection>> {
        read(self, ReadLength::Long, caller.clone(), |db, caller| connections(db, caller).boxed()).await
    }

    /// Returns the pending requests to the caller.
    async fn pending_connections(&self, caller: &Agent, now: Timestamp) -> Result<Vec<PendingConnection>> {
        read(self, ReadLength::Short, (caller.clone(), now), |db, (caller, now)| pending(db, caller, *now).boxed())
            .await
    }

    /// Rejects, revokes, blocks or unblocks. After a revocation or a block has returned, no send between the two is
    /// accepted. Both end the open tasks between the two, with updates to both, and the transcripts that they share.
    async fn change_connection(
        &self,
        caller: &Agent,
        peer: &AgentName,
        change: ConnectionChange,
        now: Timestamp,
    ) -> Result<Written<Connection>> {
        let asked = (caller.clone(), peer.clone(), change, to_micros(now));
        write(self, Changes::All, asked, |tx, (caller, peer, change, now)| {
            change_connection(tx, caller, peer, *change, None, *now).boxed()
        })
        .await
    }

    /// Ends some of the expired requests, with an event to the requester. Returns how many; 0 when done.
    async fn expire_connections(&self, now: Timestamp) -> Result<Written<u64>> {
        write(self, Changes::All, to_micros(now), |tx, now| expire(tx, *now).boxed()).await
    }
}

impl<E: Engine> ConnectionVerbs for E {}

/// Returns two agents in the order of their ids.
pub(crate) fn pair(a: i64, b: i64) -> (i64, i64) {
    if a < b { (a, b) } else { (b, a) }
}

/// Returns whether these two may write to each other. Call it under the lock of either: whoever revokes it holds both.
pub(crate) async fn consent(db: &mut dyn Db, a: i64, b: i64) -> Tried<Consent> {
    let (low, high) = pair(a, b);
    let sql = "SELECT EXISTS (SELECT 1 FROM agents a, agents b
                              WHERE a.id = $1 AND b.id = $2 AND +a.household_id = +b.household_id),
                      EXISTS (SELECT 1 FROM connections WHERE low_id = $1 AND high_id = $2 AND status = 'ACTIVE'),
                      EXISTS (SELECT 1 FROM connections WHERE requester_id = $1 AND target_id = $2 AND status = 'BLOCKED')
                      OR EXISTS (SELECT 1 FROM connections
                                 WHERE requester_id = $2 AND target_id = $1 AND status = 'BLOCKED')";
    let (same_household, connected, blocked) = db.one(sql, values![low, high]).await?;
    Ok(Consent { same_household, connected, blocked })
}

/// Locks the mailboxes that a change of a connection writes to.
async fn lock(tx: &mut dyn Tx, a: i64, b: i64, person: Option<i64>) -> Tried<()> {
    let locked: Vec<i64> = [a, b].into_iter().chain(person).collect();
    tx.lock(&locked).await
}

fn changed(id: Uuid, agent: &AgentName, status: ConnectionStatus) -> Event {
    Event::ConnectionChanged { connection_id: id.into(), agent: agent.clone(), status }
}

/// Requests a connection. A `person` who decides in the caller's name gets an event in the same transaction, and so is
/// locked too; the same for [`approve`] and [`change_connection`].
pub(super) async fn request(
    tx: &mut dyn Tx,
    caller: &Agent,
    ask: &Ask,
    person: Option<i64>,
    now: Timestamp,
) -> Tried<ConnectionRequested> {
    let me = caller.key.0;
    let target = agent_named(tx, &ask.target).await?.ok_or_else(|| refusals::no_agent(&ask.target))?;
    let peer = target.key.0;
    if peer == me {
        return Err(refusals::connect_to_oneself().into());
    }
    // Under both locks nothing between the two changes, nor their numbers of pending requests.
    lock(tx, me, peer, person).await?;
    if !is_registered(tx, me).await? {
        return Err(refusals::not_the_current_key(false).into());
    }
    if !is_registered(tx, peer).await? {
        return Err(refusals::no_agent(&ask.target).into());
    }
    let (blocked, blocks, pending, mine, theirs): (bool, bool, bool, i64, i64) = tx
        .one(
            "SELECT EXISTS (SELECT 1 FROM connections WHERE requester_id = $1 AND target_id = $2 AND status = 'BLOCKED'),
                    EXISTS (SELECT 1 FROM connections WHERE requester_id = $2 AND target_id = $1 AND status = 'BLOCKED'),
                    EXISTS (SELECT 1 FROM connections WHERE requester_id = $2 AND target_id = $1 AND status = 'PENDING'
                            AND (expires_at IS NULL OR expires_at > $3)),
                    (SELECT count(*) FROM connections WHERE requester_id = $2 AND status = 'PENDING'
                     AND (expires_at IS NULL OR expires_at > $3)),
                    (SELECT count(*) FROM connections WHERE target_id = $1 AND status = 'PENDING'
                     AND (expires_at IS NULL OR expires_at > $3))",
            values![peer, me, now],
        )
        .await?;
    if blocked {
        return Err(refusals::request_refused(&caller.name, &ask.target).into());
    }
    if blocks {
        return Err(refusals::blocked_by_oneself(&ask.target).into());
    }
    if consent(tx, me, peer).await?.is_given() {
        return Err(refusals::connected_already(&ask.target).into());
    }
    if pending {
        return Err(refusals::asked_already(&ask.target).into());
    }
    if let Some(most) = ask.max_pending.filter(|most| mine >= i64::from(*most)) {
        return Err(refusals::too_many_pending(most).into());
    }
    if theirs >= i64::from(MAX_WAITING_REQUESTS) {
        return Err(refusals::too_many_waiting(&ask.target).into());
    }
    if let Some(expired) = set_status(tx, Between::FromTo(me, peer), "PENDING", "EXPIRED", now).await? {
        tx.log_event(me, changed(expired, &target.name, ConnectionStatus::Expired), now).await?;
    }
    let id = fresh_uuid(now);
    let code = insert_request(tx, me, peer, id, ask, now).await?;
    let event = Event::ConnectionRequest {
        connection_id: id.into(),
        from_agent: caller.name.clone(),
        message: ask.intro.clone(),
        verification_code: (!ask.private_code).then(|| code.clone()),
    };
    tx.log_event(peer, event, now).await?;
    Ok(ConnectionRequested {
        connection_id: id.into(),
        verification_code: code,
        target_agent_name: target.name,
        status: ConnectionStatus::Pending,
    })
}

/// Inserts the request under a code that no other pending request has.
async fn insert_request(tx: &mut dyn Tx, me: i64, peer: i64, id: Uuid, ask: &Ask, now: Timestamp) -> Tried<String> {
    let (low, high) = pair(me, peer);
    for _ in 0..CODE_TRIES {
        let code = (ask.codes)()?;
        let intro = ask.intro.as_deref();
        let inserted = tx
            .execute(
                "INSERT INTO connections (public_id, requester_id, target_id, low_id, high_id, verification_code,
                                          code_private, message, created_at, updated_at, expires_at)
                 VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $9, $10)
                 ON CONFLICT (verification_code) WHERE status = 'PENDING' DO NOTHING",
                values![id, me, peer, low, high, &code, ask.private_code, intro, now, ask.expires_at],
            )
            .await?;
        if inserted == 1 {
            return Ok(code);
        }
    }
    Err(refusals::no_code_left().into())
}

/// Approves the pending request of this agent to the caller.
async fn accept(tx: &mut dyn Tx, caller: &Agent, from: &AgentName, now: Timestamp) -> Tried<Connected> {
    let requester = agent_named(tx, from).await?.ok_or_else(|| refusals::no_pending(from))?;
    let sql = "SELECT verification_code FROM connections
               WHERE requester_id = $1 AND target_id = $2 AND status = 'PENDING'";
    let found: Option<String> = tx.find(sql, values![requester.key.0, caller.key.0]).await?;
    let code = found.ok_or_else(|| refusals::no_pending(from))?;
    approve(tx, caller, &code, None, now).await
}

/// Approves the request that has this code.
pub(super) async fn approve(
    tx: &mut dyn Tx,
    caller: &Agent,
    code: &str,
    person: Option<i64>,
    now: Timestamp,
) -> Tried<Connected> {
    let sql = "SELECT requester_id, target_id FROM connections WHERE verification_code = $1 AND status = 'PENDING'";
    let found: Option<(i64, i64)> = tx.find(sql, values![code]).await?;
    let Some((requester, target)) = found else { return Err(no_waiting_code(tx, caller, code, now).await?.into()) };
    if target != caller.key.0 {
        // To any other agent a pending code looks like an unknown one.
        let own = requester == caller.key.0;
        return Err(if own { refusals::own_request() } else { refusals::no_code() }.into());
    }
    lock(tx, requester, target, person).await?;
    // Read again under the locks.
    let sql = "SELECT c.id, c.public_id, c.expires_at, a.name FROM connections c JOIN agents a ON a.id = c.requester_id
               WHERE c.verification_code = $1 AND c.status = 'PENDING' AND c.requester_id = $2 AND c.target_id = $3";
    let found: Option<(i64, Uuid, Option<Timestamp>, AgentName)> =
        tx.find(sql, values![code, requester, target]).await?;
    let (id, public_id, expires_at, requester_name) = found.ok_or_else(refusals::no_code)?;
    if expires_at.is_some_and(|at| at <= now) {
        return Err(refusals::code_expired().into());
    }
    // The other side may have a request pending too: one connection is enough.
    set_status(tx, Between::FromTo(target, requester), "PENDING", "EXPIRED", now).await?;
    let sql = "UPDATE connections SET status = 'ACTIVE', updated_at = $2 WHERE id = $1";
    tx.execute(sql, values![id, now]).await.map_err(|failed| match failed {
        Failed::Taken(_) => conflict("the two are connected already").into(),
        failed => failed,
    })?;
    tx.invalidate(Cached::Connection(requester, target));
    let event = Event::ConnectionApproved { connection_id: public_id.into(), connected_agent: caller.name.clone() };
    tx.log_event(requester, event, now).await?;
    Ok(Connected {
        connection_id: public_id.into(),
        status: ConnectionStatus::Active,
        connected_agent_name: requester_name,
    })
}

/// Returns why no request with this code is pending. Only the agent that it was for learns that it has expired.
async fn no_waiting_code(tx: &mut dyn Tx, caller: &Agent, code: &str, now: Timestamp) -> Tried<StoreError> {
    let sql = "SELECT 1 FROM connections
               WHERE target_id = $1 AND status = 'EXPIRED' AND verification_code = $2 AND expires_at <= $3";
    Ok(match tx.exists(sql, values![caller.key.0, code, now]).await? {
        true => refusals::code_expired(),
        false => refusals::no_code(),
    })
}

/// Selects the connection of two agents.
#[derive(Clone, Copy)]
enum Between {
    /// In either direction.
    Pair(i64, i64),
    /// Requested by the first.
    FromTo(i64, i64),
}

/// Changes the status of the connection that has the status `from`. Returns its id.
async fn set_status(tx: &mut dyn Tx, which: Between, from: &str, to: &str, now: Timestamp) -> Tried<Option<Uuid>> {
    let (condition, (first, second)) = match which {
        Between::Pair(a, b) => ("low_id = $1 AND high_id = $2", pair(a, b)),
        Between::FromTo(a, b) => ("requester_id = $1 AND target_id = $2", (a, b)),
    };
    // The status is a literal, so that the partial indexes are used.
    let sql = format!(
        "UPDATE connections SET status = $3, updated_at = $4 WHERE {condition} AND status = '{from}' RETURNING public_id"
    );
    tx.find(&sql, values![first, second, to, now]).await
}

/// Rejects, revokes, blocks or unblocks.
pub(super) async fn change_connection(
    tx: &mut dyn Tx,
    caller: &Agent,
    peer: &AgentName,
    change: ConnectionChange,
    person: Option<i64>,
    now: Timestamp,
) -> Tried<Connection> {
    // A deleted agent can be unblocked by its exact name.
    let other = agent_or_deleted(tx, peer).await?.ok_or_else(|| refusals::no_agent(peer))?;
    let me = caller.key.0;
    if other == me {
        return Err(refusals::connect_to_oneself().into());
    }
    // A send holds its recipient's lock from before it reads the connection until it is committed. With both locks
    // held, every send between the two is either committed or will find the connection gone.
    lock(tx, me, other, person).await?;
    tx.invalidate(Cached::Connection(me, other));
    let id = match change {
        ConnectionChange::Reject => {
            let id = set_status(tx, Between::FromTo(other, me), "PENDING", "REJECTED", now).await?;
            let id = id.ok_or_else(|| refusals::no_pending(peer))?;
            tx.log_event(other, changed(id, &caller.name, ConnectionStatus::Rejected), now).await?;
            id
        }
        ConnectionChange::Revoke => {
            let id = set_status(tx, Between::Pair(me, other), "ACTIVE", "REVOKED", now).await?;
            let id = id.ok_or_else(|| refusals::no_connection(peer))?;
            end_between(tx, caller, other, id, now).await?;
            id
        }
        ConnectionChange::Block => block(tx, caller, other, now).await?,
        ConnectionChange::Unblock => {
            let id = set_status(tx, Between::FromTo(me, other), "BLOCKED", "REVOKED", now).await?;
            id.ok_or_else(|| refusals::not_blocked(peer))?
        }
    };
    tx.flush().await?;
    let sql = format!("{CONNECTIONS} WHERE c.public_id = $2");
    tx.one(&sql, values![me, id]).await
}

/// Ends what a revoked connection allowed, with an event to the other side.
async fn end_between(tx: &mut dyn Tx, caller: &Agent, other: i64, id: Uuid, now: Timestamp) -> Tried<()> {
    tasks::end_between(tx, caller, other, now).await?;
    transcripts::unshare(tx, caller.key.0, other).await?;
    tx.log_event(other, changed(id, &caller.name, ConnectionStatus::Revoked), now).await.map(drop)
}

/// Ends the connection of the two, and inserts a block. The other side is told that the connection ended, not that it
/// is blocked.
async fn block(tx: &mut dyn Tx, caller: &Agent, other: i64, now: Timestamp) -> Tried<Uuid> {
    let me = caller.key.0;
    let given = consent(tx, me, other).await?.is_given();
    if let Some(id) = set_status(tx, Between::Pair(me, other), "ACTIVE", "REVOKED", now).await? {
        end_between(tx, caller, other, id, now).await?;
    } else if given {
        // They share a household, so there is no connection to revoke.
        tasks::end_between(tx, caller, other, now).await?;
        transcripts::unshare(tx, me, other).await?;
    }
    if let Some(id) = set_status(tx, Between::FromTo(other, me), "PENDING", "REJECTED", now).await? {
        tx.log_event(other, changed(id, &caller.name, ConnectionStatus::Rejected), now).await?;
    }
    set_status(tx, Between::FromTo(me, other), "PENDING", "EXPIRED", now).await?;
    if let Some(id) = set_status(tx, Between::FromTo(me, other), "BLOCKED", "BLOCKED", now).await? {
        return Ok(id);
    }
    let (id, (low, high)) = (fresh_uuid(now), pair(me, other));
    tx.execute(
        "INSERT INTO connections (public_id, requester_id, target_id, low_id, high_id, status, created_at, updated_at)
         VALUES ($1, $2, $3, $4, $5, 'BLOCKED', $6, $6)",
        values![id, me, other, low, high, now],
    )
    .await?;
    Ok(id)
}

/// Ends expired requests, with an event to the requester.
async fn expire(tx: &mut dyn Tx, now: Timestamp) -> Tried<u64> {
    let sql = "SELECT c.id, c.public_id, c.requester_id, a.name FROM connections c JOIN agents a ON a.id = c.target_id
               WHERE c.status = 'PENDING' AND c.expires_at <= $1 ORDER BY c.expires_at LIMIT $2";
    let due: Vec<(i64, Uuid, i64, AgentName)> = tx.rows(sql, values![now, BATCH]).await?;
    let requesters: Vec<i64> = due.iter().map(|(_, _, requester, _)| *requester).collect();
    tx.lock(&requesters).await?;
    let mut expired = 0;
    for (id, public_id, requester, target) in due {
        let sql = "UPDATE connections SET status = 'EXPIRED', updated_at = $2 WHERE id = $1 AND status = 'PENDING'";
        if tx.execute(sql, values![id, now]).await? == 1 {
            let event = changed(public_id, &target, ConnectionStatus::Expired);
            tx.log_event(requester, event, now).await?;
            expired += 1;
        }
    }
    Ok(expired)
}

/// Returns the agents that an agent is connected with.
pub(super) async fn peers_of(db: &mut dyn Db, agent: i64) -> Tried<Vec<i64>> {
    let sql = "SELECT target_id FROM connections WHERE requester_id = $1 AND status = 'ACTIVE'
               UNION SELECT requester_id FROM connections WHERE target_id = $1 AND status = 'ACTIVE'";
    db.rows(sql, values![agent]).await
}

/// Returns the agents whose requests to an agent are pending.
pub(super) async fn requesters_of(db: &mut dyn Db, agent: i64) -> Tried<Vec<i64>> {
    let sql = "SELECT requester_id FROM connections WHERE target_id = $1 AND status = 'PENDING' ORDER BY id";
    db.rows(sql, values![agent]).await
}

/// Ends all connections and requests of an agent that is deleted, with an event to those it was connected with and to
/// those who asked it for a connection.
pub(super) async fn end_all_of(tx: &mut dyn Tx, caller: &Agent, now: Timestamp) -> Tried<()> {
    let me = caller.key.0;
    for peer in peers_of(tx, me).await? {
        if let Some(id) = set_status(tx, Between::Pair(me, peer), "ACTIVE", "REVOKED", now).await? {
            tx.invalidate(Cached::Connection(me, peer));
            tx.log_event(peer, changed(id, &caller.name, ConnectionStatus::Revoked), now).await?;
        }
    }
    for requester in requesters_of(tx, me).await? {
        if let Some(id) = set_status(tx, Between::FromTo(requester, me), "PENDING", "EXPIRED", now).await? {
            tx.log_event(requester, changed(id, &caller.name, ConnectionStatus::Expired), now).await?;
        }
    }
    let sql =
        "UPDATE connections SET status = 'EXPIRED', updated_at = $2 WHERE requester_id = $1 AND status = 'PENDING'";
    tx.execute(sql, values![me, now]).await.map(drop)
}

/// Selects connections as `$1`, one side of them, sees them.
const CONNECTIONS: &str =
    "SELECT c.public_id, a.name, c.status, c.requester_id = $1, c.message,
            CASE WHEN c.requester_id = $1 AND c.status = 'PENDING' THEN c.verification_code END, c.created_at, c.updated_at
     FROM connections c JOIN agents a ON a.id = c.low_id + c.high_id - $1 ";

from_row!(Connection: connection_id agent_name status outgoing message verification_code created_at updated_at);

/// Returns one connection for each peer: the active, pending or blocked one, else the last.
async fn connections(db: &mut dyn Db, caller: &Agent) -> Tried<Vec<Connection>> {
    let sql = format!(
        "{CONNECTIONS} WHERE c.id IN (SELECT id FROM connections WHERE requester_id = $1
                                UNION SELECT id FROM connections WHERE target_id = $1 AND status <> 'BLOCKED')
         ORDER BY c.updated_at DESC, c.id DESC"
    );
    let found: Vec<Connection> = db.rows(&sql, values![caller.key.0]).await?;
    let is_current =
        |status| matches!(status, ConnectionStatus::Active | ConnectionStatus::Pending | ConnectionStatus::Blocked);
    let mut connections: Vec<Connection> = Vec::new();
    let mut places: HashMap<AgentName, usize> = HashMap::new();
    for one in found {
        match places.get(&one.agent_name).and_then(|place| connections.get_mut(*place)) {
            None => {
                places.insert(one.agent_name.clone(), connections.len());
                connections.push(one);
            }
            Some(known) if !is_current(known.status) && is_current(one.status) => *known = one,
            Some(_) => {}
        }
    }
    Ok(connections)
}

from_row!(PendingConnection: connection_id from_agent_name message verification_code created_at);

/// Returns the pending requests to the caller.
pub(crate) async fn pending(db: &mut dyn Db, caller: &Agent, now: Timestamp) -> Tried<Vec<PendingConnection>> {
    let sql = "SELECT c.public_id, a.name, c.message, CASE WHEN c.code_private THEN NULL ELSE c.verification_code END,
                      c.created_at
               FROM connections c JOIN agents a ON a.id = c.requester_id
               WHERE c.target_id = $1 AND c.status = 'PENDING' AND (c.expires_at IS NULL OR c.expires_at > $2)
               ORDER BY c.id LIMIT $3";
    db.rows(sql, values![caller.key.0, now, MAX_WAITING_REQUESTS]).await
}
