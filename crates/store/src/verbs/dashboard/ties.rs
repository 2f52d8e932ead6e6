//! Connections, groups and transcripts of a household.

use amb_core::doc::{Group, NumberedLine};
use amb_core::transcript::TranscriptKey;
use amb_core::{AgentName, Timestamp};

use super::types::{HouseholdConnection, HouseholdKey, TranscriptLine};
use crate::engine::{Db, Query, Tried, from_row, values};
use crate::refusals;
use crate::verbs::{groups, transcripts};

/// Most groups shown.
const GROUPS: i64 = 100;

from_row!(HouseholdConnection: agent connection);

pub(super) async fn connections(
    db: &mut dyn Db,
    household: HouseholdKey,
    now: Timestamp,
    limit: u32,
) -> Tried<Vec<HouseholdConnection>> {
    let join = db.dialect().then_join;
    let sql = format!(
        "SELECT h.name, c.public_id, o.name, c.status, c.requester_id = h.id, c.message,
                CASE WHEN c.requester_id = h.id AND c.status = 'PENDING' AND (c.expires_at IS NULL OR c.expires_at > $2)
                     THEN c.verification_code END, c.created_at, c.updated_at
         FROM (SELECT n.id AS agent, c.id AS link FROM agents n {join} connections c ON c.requester_id = n.id
                   WHERE n.household_id = $1
               UNION SELECT n.id, c.id FROM agents n {join} connections c ON c.target_id = n.id
                   WHERE n.household_id = $1 AND c.status <> 'BLOCKED') w
         JOIN connections c ON c.id = w.link JOIN agents h ON h.id = w.agent
         JOIN agents o ON o.id = c.low_id + c.high_id - h.id
         WHERE c.status IN ('ACTIVE', 'PENDING', 'BLOCKED') ORDER BY c.updated_at DESC, c.id DESC LIMIT $3"
    );
    db.rows(&sql, values![household.0, now, limit]).await
}

pub(super) async fn groups(db: &mut dyn Db, household: HouseholdKey) -> Tried<Vec<Group>> {
    let sql = format!(
        "SELECT DISTINCT m.group_id FROM agents n {} group_members m ON m.agent_id = n.id
         WHERE n.household_id = $1 ORDER BY m.group_id DESC LIMIT $2",
        db.dialect().then_join
    );
    let ids = db.rows(&sql, values![household.0, GROUPS]).await?;
    groups::load_all(db, ids).await
}

from_row!(TranscriptLine: owner key created_at lines);

pub(super) async fn transcripts(db: &mut dyn Db, household: HouseholdKey, limit: u32) -> Tried<Vec<TranscriptLine>> {
    let join = db.dialect().then_join;
    let sql = format!(
        "SELECT o.name, t.key, t.created_at, t.last_seq
         FROM (SELECT t.id FROM agents n {join} transcripts t ON t.owner_id = n.id WHERE n.household_id = $1
               UNION SELECT x.transcript_id FROM agents n {join} transcript_access x ON x.agent_id = n.id
                   WHERE n.household_id = $1) w
         JOIN transcripts t ON t.id = w.id JOIN agents o ON o.id = t.owner_id ORDER BY t.id DESC LIMIT $2"
    );
    db.rows(&sql, values![household.0, limit]).await
}

pub(super) async fn transcript_lines(
    db: &mut dyn Db,
    household: HouseholdKey,
    owner: &AgentName,
    key: &TranscriptKey,
    before: Option<u64>,
    limit: u32,
) -> Tried<Vec<NumberedLine>> {
    let sql = "SELECT t.id FROM agents o JOIN transcripts t ON t.owner_id = o.id AND t.key = $3
               WHERE o.name = $2 AND (o.household_id = $1 OR EXISTS (
                   SELECT 1 FROM transcript_access x JOIN agents h ON h.id = x.agent_id
                   WHERE x.transcript_id = t.id AND h.household_id = $1))";
    let found = db.find(sql, values![household.0, owner.as_str(), key.as_str()]).await?;
    let (transcript,) = found.ok_or_else(|| refusals::no_transcript(Some(owner), key))?;
    let mut lines = transcripts::lines_between(db, transcript, 0, before, true, limit as usize).await?;
    lines.reverse();
    Ok(lines)
}
