//! Reports of wake-ups. The processes that ring report them; the agent and its household's person see them.

use std::collections::BTreeMap;

use amb_core::wake::{
    MAX_WAKE_SESSIONS, WAKE_REPORT_KEPT, WakeReason, WakeReport, WakeSession, WakeState, unresponsive,
};
use amb_core::{AgentName, Status, Timestamp};
use async_trait::async_trait;
use futures_util::FutureExt;

use super::HouseholdKey;
use super::agents::agent_named;
use super::directory::{LastSeen, presence};
use super::household::{self, household_of};
use crate::engine::{Changes, Db, Engine, FromRow, Query, ReadLength, Row, Tried, Tx, read, values, write_unlogged};
use crate::error::Result;
use crate::types::{Agent, to_micros};
use crate::{StoreError, refusals};

/// Most wake-ups that one report adds to the office's metrics: reports are not verified.
const MAX_ADDED: u64 = 1_000;

/// Wake-ups that a report adds to the one before it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct NewWakeUps {
    /// Wake-ups that a door accepted.
    pub rung: u64,
    /// Those of them that the client held back.
    pub held: u64,
    /// Wake-ups that failed.
    pub failed: u64,
}

/// Reports of wake-ups.
#[async_trait]
pub trait WakeVerbs: Engine {
    /// Stores the report of a client session of the caller, in place of the session's previous report. Beyond
    /// [`MAX_WAKE_SESSIONS`] the session with the oldest report is deleted. The same report again adds no wake-ups.
    async fn report_wake(&self, caller: &Agent, report: WakeReport, now: Timestamp) -> Result<NewWakeUps> {
        let asked = (caller.key.0, report, to_micros(now));
        write_unlogged(self, Changes::Logs, asked, |tx, (agent, report, now)| store(tx, *agent, report, *now).boxed())
            .await
    }

    /// Returns the client sessions of an agent, the last report first: the caller's own, or those of an agent in the
    /// household whose person the caller is. `forbidden` for everybody else.
    async fn wake_sessions(&self, caller: &Agent, name: &AgentName, now: Timestamp) -> Result<Vec<WakeSession>> {
        let asked = (caller.clone(), name.clone(), now);
        read(self, ReadLength::Short, asked, |db, (caller, name, now)| seen_by(db, caller, name, *now).boxed()).await
    }
}

impl<E: Engine> WakeVerbs for E {}

async fn store(tx: &mut dyn Tx, agent: i64, report: &WakeReport, now: Timestamp) -> Tried<NewWakeUps> {
    let sql = format!(
        "SELECT state, since, rung, held, failed FROM wake_sessions WHERE agent_id = $1 AND session = $2{}",
        tx.dialect().for_update
    );
    let before: Option<(String, Timestamp, u64, u64, u64)> = tx.find(&sql, values![agent, &report.session]).await?;
    let (state, reason) = (report.state.as_str(), report.reason.map(WakeReason::as_str));
    let since = before.as_ref().filter(|(before, ..)| before == state).map_or(now, |(_, since, ..)| *since);
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
            report.rung,
            report.held,
            report.failed,
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
    // A process that was restarted counts from 0.
    let added = |now: u64, before: u64| now.checked_sub(before).unwrap_or(now).min(MAX_ADDED);
    Ok(NewWakeUps {
        rung: added(report.rung, rung_before),
        held: added(report.held, held_before),
        failed: added(report.failed, failed_before),
    })
}

fn oldest_kept(now: Timestamp) -> Timestamp {
    now.saturating_sub(WAKE_REPORT_KEPT).unwrap_or(now)
}

/// Deletes the reports of an agent that is deleted.
pub(super) async fn delete_reports(tx: &mut dyn Tx, agent: i64) -> Tried<()> {
    tx.execute("DELETE FROM wake_sessions WHERE agent_id = $1", values![agent]).await.map(drop)
}

/// The columns of [`StoredReport`], of `w`.
const SESSION: &str =
    "w.session, w.client, w.door, w.state, w.reason, w.rung, w.held, w.failed, w.since, w.reported_at";

struct StoredReport {
    report: WakeReport,
    since: Timestamp,
    reported_at: Timestamp,
}

impl FromRow for StoredReport {
    fn from_row(row: &mut Row<'_>) -> Result<Self> {
        let (session, client, door) = (row.take()?, row.take()?, row.take()?);
        let (state, reason): (String, Option<String>) = (row.take()?, row.take()?);
        let state = WakeState::parse(&state).ok_or_else(|| StoreError::internal(format!("no such state: {state}")))?;
        let reason = reason.as_deref().and_then(WakeReason::parse);
        let (rung, held, failed) = (row.take()?, row.take()?, row.take()?);
        let report = WakeReport { session, client, door, state, reason, rung, held, failed };
        Ok(Self { report, since: row.take()?, reported_at: row.take()? })
    }
}

impl StoredReport {
    fn session(self, presence: Status, now: Timestamp) -> WakeSession {
        let Self { report, since, reported_at } = self;
        WakeSession { report, since, reported_at, stale: WakeSession::is_stale(reported_at, presence, now) }
    }
}

/// Returns the sessions of an agent with this presence, the last report first.
pub(super) async fn sessions(db: &mut dyn Db, agent: i64, presence: Status, now: Timestamp) -> Tried<Vec<WakeSession>> {
    let sql = format!(
        "SELECT {SESSION} FROM wake_sessions w WHERE w.agent_id = $1 AND w.reported_at > $2
         ORDER BY w.reported_at DESC, w.session"
    );
    let found: Vec<StoredReport> = db.rows(&sql, values![agent, oldest_kept(now)]).await?;
    Ok(found.into_iter().map(|report| report.session(presence, now)).collect())
}

fn status(seen: LastSeen, now: Timestamp) -> Status {
    presence(seen, Vec::new(), now).status
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

/// Returns the agents of a household with unread mail that nothing wakes, by name. Paused agents are not woken.
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
    let found: Vec<(AgentName, LastSeen, StoredReport)> = db.rows(&sql, values![household.0, oldest_kept(now)]).await?;
    let mut agents: BTreeMap<AgentName, Vec<WakeSession>> = BTreeMap::new();
    for (name, seen, report) in found {
        agents.entry(name).or_default().push(report.session(status(seen, now), now));
    }
    let unwoken = agents.into_iter().filter_map(|(name, sessions)| Some((name, unresponsive(&sessions)?.clone())));
    Ok(unwoken.collect())
}
