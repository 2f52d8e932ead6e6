//! How waking an agent's clients stands. The processes that ring report it; the agent and its household's person see it.

use std::collections::BTreeMap;

use amb_core::limits::HEARTBEAT_TIMEOUT;
use amb_core::wake::{MAX_WAKE_SESSIONS, WAKE_REPORT_KEPT, WakeReason, WakeReport, WakeSession, WakeState, in_vain};
use amb_core::{AgentName, Presence, Status, Timestamp};
use async_trait::async_trait;
use futures_util::FutureExt;

use super::HouseholdKey;
use super::agents::agent_named;
use super::household::{self, household_of};
use crate::engine::{Changes, Db, Engine, FromRow, Query, ReadLength, Row, Tried, Tx, read, values, write};
use crate::error::Result;
use crate::types::{Agent, to_micros};
use crate::{StoreError, refusals};

/// Wake-ups that one report adds to the office's figures at most: a report is an agent's own word.
const MOST_COUNTED: u64 = 1_000;

/// Wake-ups that a report tells of and the one before it did not.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct NewWakeUps {
    /// That a door took.
    pub rung: u64,
    /// Of these, those that the client held.
    pub held: u64,
    /// That could not be made.
    pub failed: u64,
}

/// Reports of wake-ups.
#[async_trait]
pub trait WakeVerbs: Engine {
    /// Keeps how waking a client session of the caller's stands, in place of what was reported of that session before. Of more than
    /// [`MAX_WAKE_SESSIONS`] the one that was reported longest ago goes. Reporting the same again counts nothing anew.
    async fn report_wake(&self, caller: &Agent, report: WakeReport, now: Timestamp) -> Result<NewWakeUps> {
        let asked = (caller.key.0, report, to_micros(now));
        let kept = write(self, Changes::Logs, asked, |tx, (agent, report, now)| keep(tx, *agent, report, *now).boxed());
        kept.await.map(|done| done.answer)
    }

    /// The client sessions of an agent, the one that was reported last first: the caller's own, or those of an agent in the household
    /// whose person the caller is. `forbidden` for everybody else.
    async fn wake_sessions(&self, caller: &Agent, name: &AgentName, now: Timestamp) -> Result<Vec<WakeSession>> {
        let asked = (caller.clone(), name.clone(), now);
        read(self, ReadLength::Short, asked, |db, (caller, name, now)| seen_by(db, caller, name, *now).boxed()).await
    }
}

impl<E: Engine> WakeVerbs for E {}

async fn keep(tx: &mut dyn Tx, agent: i64, report: &WakeReport, now: Timestamp) -> Tried<NewWakeUps> {
    let sql = format!(
        "SELECT state, since, rung, held, failed FROM wake_sessions WHERE agent_id = $1 AND session = $2{}",
        tx.dialect().for_update
    );
    let before: Option<(String, Timestamp, i64, i64, i64)> = tx.find(&sql, values![agent, &report.session]).await?;
    let (state, reason) = (report.state.as_str(), report.reason.map(WakeReason::as_str));
    let since = before.as_ref().filter(|(before, ..)| before == state).map_or(now, |(_, since, ..)| *since);
    let [rung, held, failed] =
        [report.rung, report.held, report.failed].map(|count| i64::try_from(count).unwrap_or(i64::MAX));
    tx.execute(
        "INSERT INTO wake_sessions (agent_id, session, client, door, state, reason, rung, held, failed, since, reported_at)
         VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11)
         ON CONFLICT (agent_id, session) DO UPDATE SET client = excluded.client, door = excluded.door,
             state = excluded.state, reason = excluded.reason, rung = excluded.rung, held = excluded.held,
             failed = excluded.failed, since = excluded.since, reported_at = excluded.reported_at",
        values![
            agent,
            &report.session,
            &report.client,
            report.door.as_deref(),
            state,
            reason,
            rung,
            held,
            failed,
            since,
            now
        ],
    )
    .await?;
    tx.execute(
        "DELETE FROM wake_sessions WHERE agent_id = $1 AND session <> $2 AND (reported_at <= $3 OR session NOT IN (
             SELECT session FROM wake_sessions WHERE agent_id = $1 AND session <> $2
             ORDER BY reported_at DESC, session LIMIT $4))",
        values![agent, &report.session, oldest_kept(now), MAX_WAKE_SESSIONS as i64 - 1],
    )
    .await?;
    let (_, _, rung_before, held_before, failed_before) = before.unwrap_or((String::new(), now, 0, 0, 0));
    // A process that began anew counts from 0.
    let added = |now: i64, before: i64| {
        let added = if now >= before { now.saturating_sub(before) } else { now };
        u64::try_from(added).unwrap_or(0).min(MOST_COUNTED)
    };
    Ok(NewWakeUps {
        rung: added(rung, rung_before),
        held: added(held, held_before),
        failed: added(failed, failed_before),
    })
}

fn oldest_kept(now: Timestamp) -> Timestamp {
    now.saturating_sub(WAKE_REPORT_KEPT).unwrap_or(now)
}

/// Forgets what was reported of an agent that leaves the office.
pub(super) async fn forget(tx: &mut dyn Tx, agent: i64) -> Tried<()> {
    tx.execute("DELETE FROM wake_sessions WHERE agent_id = $1", values![agent]).await.map(drop)
}

/// The columns of [`KeptReport`], of `w`.
const SESSION: &str =
    "w.session, w.client, w.door, w.state, w.reason, w.rung, w.held, w.failed, w.since, w.reported_at";

struct KeptReport {
    report: WakeReport,
    since: Timestamp,
    reported_at: Timestamp,
}

impl FromRow for KeptReport {
    fn from_row(row: &mut Row<'_>) -> Result<Self> {
        let count = |number: i64| u64::try_from(number).unwrap_or(0);
        let (session, client, door) = (row.take()?, row.take()?, row.take()?);
        let (state, reason): (String, Option<String>) = (row.take()?, row.take()?);
        let state = WakeState::parse(&state).ok_or_else(|| StoreError::internal(format!("no such state: {state}")))?;
        let reason = reason.as_deref().and_then(WakeReason::parse);
        let (rung, held, failed) = (count(row.take()?), count(row.take()?), count(row.take()?));
        let report = WakeReport { session, client, door, state, reason, rung, held, failed };
        Ok(Self { report, since: row.take()?, reported_at: row.take()? })
    }
}

impl KeptReport {
    fn session(self, presence: Status, now: Timestamp) -> WakeSession {
        let Self { report, since, reported_at } = self;
        WakeSession { report, since, reported_at, stale: WakeSession::is_stale(reported_at, presence, now) }
    }
}

/// The sessions of an agent with this presence, the one that was reported last first.
pub(super) async fn sessions(db: &mut dyn Db, agent: i64, presence: Status, now: Timestamp) -> Tried<Vec<WakeSession>> {
    let sql = format!(
        "SELECT {SESSION} FROM wake_sessions w WHERE w.agent_id = $1 AND w.reported_at > $2
         ORDER BY w.reported_at DESC, w.session"
    );
    let found: Vec<KeptReport> = db.rows(&sql, values![agent, oldest_kept(now)]).await?;
    Ok(found.into_iter().map(|kept| kept.session(presence, now)).collect())
}

/// When an agent was last seen, and whether it has not said goodbye.
type LastSeen = (Option<Timestamp>, Option<bool>);

fn status((last_seen, here): LastSeen, now: Timestamp) -> Status {
    let claimed = if here.unwrap_or(false) { Status::Idle } else { Status::Offline };
    Presence::at(now, claimed, last_seen, Vec::new(), HEARTBEAT_TIMEOUT).status
}

async fn seen_by(db: &mut dyn Db, caller: &Agent, name: &AgentName, now: Timestamp) -> Tried<Vec<WakeSession>> {
    let agent = match agent_named(db, name).await? {
        Some(agent) if agent.key == caller.key => agent,
        found => {
            let household = household::person(db, caller).await?;
            let agent = found.ok_or_else(|| refusals::no_household_member(name))?;
            if household_of(db, agent.key.0).await? != Some(household) {
                return Err(refusals::no_household_member(name).into());
            }
            agent
        }
    };
    let sql = "SELECT last_seen, here FROM presence WHERE agent_id = $1";
    let seen: LastSeen = db.find(sql, values![agent.key.0]).await?.unwrap_or_default();
    sessions(db, agent.key.0, status(seen, now), now).await
}

/// Agents of a household with unread mail that nothing wakes, by name. Whom the person paused is not to be woken.
pub(super) async fn unwoken(
    db: &mut dyn Db,
    household: HouseholdKey,
    now: Timestamp,
) -> Tried<Vec<(AgentName, WakeSession)>> {
    let sql = format!(
        "SELECT a.name, p.last_seen, p.here, {SESSION} FROM agents a {} wake_sessions w ON w.agent_id = a.id
         LEFT JOIN presence p ON p.agent_id = a.id
         WHERE a.household_id = $1 AND a.deleted_at IS NULL AND a.paused_by IS NULL AND NOT a.person AND w.reported_at > $2
         AND EXISTS (SELECT 1 FROM session_members b WHERE b.agent_id = a.id AND b.unread > 0)",
        db.dialect().then_join
    );
    let found: Vec<(AgentName, LastSeen, KeptReport)> = db.rows(&sql, values![household.0, oldest_kept(now)]).await?;
    let mut agents: BTreeMap<AgentName, Vec<WakeSession>> = BTreeMap::new();
    for (name, seen, kept) in found {
        agents.entry(name).or_default().push(kept.session(status(seen, now), now));
    }
    let unwoken = agents.into_iter().filter_map(|(name, sessions)| Some((name, in_vain(&sessions)?.clone())));
    Ok(unwoken.collect())
}
