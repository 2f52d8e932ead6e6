//! Connections, groups and transcripts of a household.

use amb_core::AgentName;
use amb_core::doc::NumberedLine;
use amb_core::transcript::TranscriptKey;
use deadpool_postgres::Transaction;
use tokio_postgres::Row;

use crate::StoreError;
use crate::dashboard::{HouseholdConnection, HouseholdKey, TranscriptLine};
use crate::engine::Failed;
use crate::error::Result;
use crate::refusals;
use crate::row;
use crate::verbs::connection;
use crate::verbs::numbered_line;

/// Groups of a household that are shown.
const GROUPS: i64 = 100;

pub(super) async fn links(
    tx: &Transaction<'_>,
    household: HouseholdKey,
    limit: u32,
) -> Result<Vec<HouseholdConnection>, Failed> {
    let select = tx
        .prepare_cached(
            "SELECT h.name, c.public_id, o.name, c.status, c.requester_id = h.id, c.message, c.created_at, c.updated_at
             FROM (SELECT n.id AS agent, c.id AS link FROM agents n JOIN connections c ON c.requester_id = n.id
                       WHERE n.household_id = $1
                   UNION SELECT n.id, c.id FROM agents n JOIN connections c ON c.target_id = n.id
                       WHERE n.household_id = $1 AND c.status <> 'BLOCKED') w
             JOIN connections c ON c.id = w.link JOIN agents h ON h.id = w.agent
             JOIN agents o ON o.id = c.low_id + c.high_id - h.id
             WHERE c.status IN ('ACTIVE', 'PENDING', 'BLOCKED') ORDER BY c.updated_at DESC, c.id DESC LIMIT $2",
        )
        .await?;
    let rows = tx.query(&select, &[&household.0, &i64::from(limit)]).await?;
    let shown = |found: &Row| {
        let link = (
            found.try_get(1)?,
            found.try_get(2)?,
            found.try_get(3)?,
            found.try_get(4)?,
            found.try_get(5)?,
            found.try_get(6)?,
            found.try_get(7)?,
        );
        Ok(HouseholdConnection { agent: row::name(found.try_get(0)?)?, connection: connection(link)? })
    };
    rows.iter().map(shown).collect()
}

pub(super) async fn groups(tx: &Transaction<'_>, household: HouseholdKey) -> Result<Vec<i64>, Failed> {
    let select = tx
        .prepare_cached(
            "SELECT DISTINCT m.group_id FROM agents n JOIN group_members m ON m.agent_id = n.id
             WHERE n.household_id = $1 ORDER BY m.group_id DESC LIMIT $2",
        )
        .await?;
    let rows = tx.query(&select, &[&household.0, &GROUPS]).await?;
    rows.iter().map(|found| Ok(found.try_get(0)?)).collect()
}

pub(super) async fn transcripts(
    tx: &Transaction<'_>,
    household: HouseholdKey,
    limit: u32,
) -> Result<Vec<TranscriptLine>, Failed> {
    let select = tx
        .prepare_cached(
            "SELECT o.name, t.key, t.created_at, t.last_seq
             FROM (SELECT t.id FROM agents n JOIN transcripts t ON t.owner_id = n.id WHERE n.household_id = $1
                   UNION SELECT x.transcript_id FROM agents n JOIN transcript_access x ON x.agent_id = n.id
                       WHERE n.household_id = $1) w
             JOIN transcripts t ON t.id = w.id JOIN agents o ON o.id = t.owner_id ORDER BY t.id DESC LIMIT $2",
        )
        .await?;
    let rows = tx.query(&select, &[&household.0, &i64::from(limit)]).await?;
    let line = |found: &Row| {
        let key: String = found.try_get(1)?;
        Ok(TranscriptLine {
            owner: row::name(found.try_get(0)?)?,
            key: key.parse().map_err(StoreError::internal)?,
            created_at: found.try_get(2)?,
            lines: u64::try_from(found.try_get::<_, i64>(3)?).unwrap_or(0),
        })
    };
    rows.iter().map(line).collect()
}

pub(super) async fn transcript_lines(
    tx: &Transaction<'_>,
    household: HouseholdKey,
    owner: &AgentName,
    key: &TranscriptKey,
    before: Option<u64>,
    limit: u32,
) -> Result<Vec<NumberedLine>, Failed> {
    let select = tx
        .prepare_cached(
            "SELECT t.id FROM agents o JOIN transcripts t ON t.owner_id = o.id AND t.key = $3
             WHERE o.name = $2 AND (o.household_id = $1 OR EXISTS (
                 SELECT FROM transcript_access x JOIN agents h ON h.id = x.agent_id
                 WHERE x.transcript_id = t.id AND h.household_id = $1))",
        )
        .await?;
    let found = tx.query_opt(&select, &[&household.0, &owner.as_str(), &key.as_str()]).await?;
    let Some(found) = found else { return Err(refusals::no_transcript(Some(owner), key).into()) };
    let transcript: i64 = found.try_get(0)?;
    let before = before.and_then(|before| i64::try_from(before).ok()).unwrap_or(i64::MAX);
    let select = tx
        .prepare_cached(
            "SELECT l.seq, l.line, a.name FROM transcript_lines l JOIN agents a ON a.id = l.author_id
             WHERE l.transcript_id = $1 AND l.seq < $2 ORDER BY l.seq DESC LIMIT $3",
        )
        .await?;
    let rows = tx.query(&select, &[&transcript, &before, &i64::from(limit)]).await?;
    let line = |found: &Row| {
        let number = u64::try_from(found.try_get::<_, i64>(0)?).unwrap_or(0);
        Ok(numbered_line(number, found.try_get(1)?, found.try_get(2)?)?)
    };
    rows.iter().rev().map(line).collect()
}
