//! Asking for a connection, and approving one.

use amb_core::doc::{Connected, ConnectionRequested, ConnectionStatus};
use amb_core::id::fresh_uuid;
use amb_core::limits::MAX_WAITING_REQUESTS;
use amb_core::{AgentName, Event, Timestamp};
use deadpool_postgres::Transaction;
use uuid::Uuid;

use super::error::Trouble;
use super::write::{Heads, Pages};
use super::{agents, consent};
use crate::error::Result;
use crate::row;
use crate::types::{Agent, Ask, Written};
use crate::words;

pub(super) async fn request(
    tx: &Transaction<'_>,
    caller: &Agent,
    ask: &Ask,
    now: Timestamp,
) -> Result<Written<ConnectionRequested>, Trouble> {
    let me = caller.key.0;
    let Some(target) = agents::by_name(tx, &ask.target).await? else {
        return Err(words::no_agent(&ask.target).into());
    };
    let peer = target.key.0;
    if peer == me {
        return Err(words::connect_to_oneself().into());
    }
    // Under both locks nothing between the two changes, and nobody else's count of waiting requests is touched.
    let mut heads = Heads::lock(tx, &[me, peer]).await?;
    let here = tx.prepare_cached("SELECT id FROM agents WHERE id = ANY($1) AND deleted_at IS NULL").await?;
    let here: Vec<i64> = tx.query(&here, &[&vec![me, peer]]).await?.iter().map(|row| row.get(0)).collect();
    if !here.contains(&me) {
        return Err(words::not_the_current_key(false).into());
    }
    if !here.contains(&peer) {
        return Err(words::no_agent(&ask.target).into());
    }
    let look = tx
        .prepare_cached(
            "SELECT EXISTS (SELECT FROM connections WHERE requester_id = $1 AND target_id = $2 AND status = 'BLOCKED'),
                    EXISTS (SELECT FROM connections WHERE requester_id = $2 AND target_id = $1 AND status = 'PENDING'
                            AND (expires_at IS NULL OR expires_at > $3)),
                    (SELECT count(*) FROM connections WHERE requester_id = $2 AND status = 'PENDING'
                     AND (expires_at IS NULL OR expires_at > $3)),
                    (SELECT count(*) FROM connections WHERE target_id = $1 AND status = 'PENDING'
                     AND (expires_at IS NULL OR expires_at > $3))",
        )
        .await?;
    let seen = tx.query_one(&look, &[&peer, &me, &now]).await?;
    if seen.try_get(0)? {
        return Err(words::not_heard(&caller.name, &ask.target).into());
    }
    if consent::between(tx, me, peer).await?.is_given() {
        return Err(words::connected_already(&ask.target).into());
    }
    if seen.try_get(1)? {
        return Err(words::asked_already(&ask.target).into());
    }
    if let Some(most) = ask.max_pending
        && seen.try_get::<_, i64>(2)? >= i64::from(most)
    {
        return Err(words::too_many_pending(most).into());
    }
    if seen.try_get::<_, i64>(3)? >= i64::from(MAX_WAITING_REQUESTS) {
        return Err(words::too_many_waiting(&ask.target).into());
    }
    let mut pages = Pages::default();
    let mut news = Vec::new();
    // A request that ran out of time is in nobody's way.
    let expire = tx
        .prepare_cached(
            "UPDATE connections SET status = 'EXPIRED', updated_at = $3
             WHERE requester_id = $1 AND target_id = $2 AND status = 'PENDING' RETURNING public_id",
        )
        .await?;
    if let Some(expired) = tx.query_opt(&expire, &[&me, &peer, &now]).await? {
        let event = words::changed(expired.try_get(0)?, &ask.target, ConnectionStatus::Expired);
        news.extend(pages.tell(&mut heads, me, event, now)?);
    }
    let id = fresh_uuid(now);
    let code = insert(tx, me, peer, id, ask, now).await?;
    let event = Event::ConnectionRequest {
        connection_id: id.into(),
        from_agent: caller.name.clone(),
        message: ask.intro.clone(),
        verification_code: (!ask.private_code).then(|| code.clone()),
    };
    news.extend(pages.tell(&mut heads, peer, event, now)?);
    pages.write(tx).await?;
    let answer = ConnectionRequested {
        connection_id: id.into(),
        verification_code: code,
        target_agent_name: target.name,
        status: ConnectionStatus::Pending,
    };
    Ok(Written { answer, news })
}

/// Inserts the request under a code that no other waiting request has.
async fn insert(
    tx: &Transaction<'_>,
    me: i64,
    peer: i64,
    id: Uuid,
    ask: &Ask,
    now: Timestamp,
) -> Result<String, Trouble> {
    let insert = tx
        .prepare_cached(
            "INSERT INTO connections (public_id, requester_id, target_id, low_id, high_id, verification_code,
                                      code_private, message, created_at, updated_at, expires_at)
             VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $9, $10)
             ON CONFLICT (verification_code) WHERE status = 'PENDING' DO NOTHING",
        )
        .await?;
    for _ in 0..words::CODE_TRIES {
        let code = (ask.codes)()?;
        let (low, high) = (me.min(peer), me.max(peer));
        let inserted = tx
            .execute(
                &insert,
                &[&id, &me, &peer, &low, &high, &code, &ask.private_code, &ask.intro, &now, &ask.expires_at],
            )
            .await?;
        if inserted == 1 {
            return Ok(code);
        }
    }
    Err(words::no_code_left().into())
}

/// Approves the request of this agent that waits for the caller.
pub(super) async fn accept(
    tx: &Transaction<'_>,
    caller: &Agent,
    from: &AgentName,
    now: Timestamp,
) -> Result<Written<Connected>, Trouble> {
    let Some(requester) = agents::by_name(tx, from).await? else { return Err(words::no_pending(from).into()) };
    let find = tx
        .prepare_cached(
            "SELECT verification_code FROM connections
             WHERE requester_id = $1 AND target_id = $2 AND status = 'PENDING'",
        )
        .await?;
    let Some(found) = tx.query_opt(&find, &[&requester.key.0, &caller.key.0]).await? else {
        return Err(words::no_pending(from).into());
    };
    approve(tx, caller, found.try_get(0)?, now).await
}

pub(super) async fn approve(
    tx: &Transaction<'_>,
    caller: &Agent,
    code: &str,
    now: Timestamp,
) -> Result<Written<Connected>, Trouble> {
    let find = tx
        .prepare_cached(
            "SELECT c.requester_id, c.target_id FROM connections c
             WHERE c.verification_code = $1 AND c.status = 'PENDING'",
        )
        .await?;
    let Some(found) = tx.query_opt(&find, &[&code]).await? else { return Err(words::no_code().into()) };
    let (requester, target): (i64, i64) = (found.try_get(0)?, found.try_get(1)?);
    if target != caller.key.0 {
        // To anybody else a code that waits looks like any wrong one.
        let own = requester == caller.key.0;
        return Err(if own { words::own_request() } else { words::no_code() }.into());
    }
    let mut heads = Heads::lock(tx, &[requester, target]).await?;
    // Once more, now that nobody else can decide about it.
    let again = tx
        .prepare_cached(
            "SELECT c.id, c.public_id, c.expires_at, a.name FROM connections c JOIN agents a ON a.id = c.requester_id
             WHERE c.verification_code = $1 AND c.status = 'PENDING' AND c.requester_id = $2 AND c.target_id = $3",
        )
        .await?;
    let Some(found) = tx.query_opt(&again, &[&code, &requester, &target]).await? else {
        return Err(words::no_code().into());
    };
    let (id, public_id): (i64, Uuid) = (found.try_get(0)?, found.try_get(1)?);
    if found.try_get::<_, Option<Timestamp>>(2)?.is_some_and(|at| at <= now) {
        return Err(words::code_expired().into());
    }
    // The other side may have asked too: one connection is enough, and its request has served.
    let served = tx
        .prepare_cached(
            "UPDATE connections SET status = 'EXPIRED', updated_at = $3
             WHERE requester_id = $1 AND target_id = $2 AND status = 'PENDING'",
        )
        .await?;
    tx.execute(&served, &[&target, &requester, &now]).await?;
    // Who asks for a connection hears the other side again.
    let unblock = tx
        .prepare_cached(
            "UPDATE connections SET status = 'REVOKED', updated_at = $3
             WHERE requester_id = $1 AND target_id = $2 AND status = 'BLOCKED'",
        )
        .await?;
    tx.execute(&unblock, &[&requester, &target, &now]).await?;
    let update = tx.prepare_cached("UPDATE connections SET status = 'ACTIVE', updated_at = $2 WHERE id = $1").await?;
    tx.execute(&update, &[&id, &now]).await?;
    let mut pages = Pages::default();
    let event = Event::ConnectionApproved { connection_id: public_id.into(), connected_agent: caller.name.clone() };
    let news = pages.tell(&mut heads, requester, event, now)?.into_iter().collect();
    pages.write(tx).await?;
    let answer = Connected {
        connection_id: public_id.into(),
        status: ConnectionStatus::Active,
        connected_agent_name: row::name(found.try_get(3)?)?,
    };
    Ok(Written { answer, news })
}
