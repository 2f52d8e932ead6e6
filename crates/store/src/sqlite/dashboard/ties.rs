//! Connections, groups and transcripts of a household.

use amb_core::AgentName;
use amb_core::doc::NumberedLine;
use amb_core::transcript::TranscriptKey;
use rusqlite::{Connection, OptionalExtension, Row, params};

use crate::dashboard::{HouseholdConnection, HouseholdKey, TranscriptLine};
use crate::error::Result;
use crate::refusals;
use crate::row;
use crate::sqlite::error::failed;
use crate::sqlite::keys::{instant_at, number_of, place_of, range, uuid_at};
use crate::sqlite::plans::Prepared;
use crate::verbs::numbered_line;
use crate::verbs::{ConnectionRow, connection};

/// Groups of a household that are shown.
const GROUPS: i64 = 100;

pub(super) fn links(db: &Connection, household: HouseholdKey, limit: u32) -> Result<Vec<HouseholdConnection>> {
    let mut select = db
        .prepared(
            "SELECT h.name, c.public_id, o.name, c.status, c.requester_id = h.id, c.message, c.created_at, c.updated_at
             FROM (SELECT n.id AS agent, c.id AS link FROM agents n CROSS JOIN connections c ON c.requester_id = n.id
                       WHERE n.household_id = ?1
                   UNION SELECT n.id, c.id FROM agents n CROSS JOIN connections c ON c.target_id = n.id
                       WHERE n.household_id = ?1 AND c.status <> 'BLOCKED') w
             JOIN connections c ON c.id = w.link JOIN agents h ON h.id = w.agent
             JOIN agents o ON o.id = c.low_id + c.high_id - h.id
             WHERE c.status IN ('ACTIVE', 'PENDING', 'BLOCKED') ORDER BY c.updated_at DESC, c.id DESC LIMIT ?2",
        )
        .map_err(failed)?;
    let mut rows = select.query([household.0, limit.into()]).map_err(failed)?;
    let mut links = Vec::new();
    while let Some(found) = rows.next().map_err(failed)? {
        let agent: String = found.get(0).map_err(failed)?;
        links.push(HouseholdConnection {
            agent: row::name(&agent)?,
            connection: connection(link(found).map_err(failed)?)?,
        });
    }
    Ok(links)
}

fn link(row: &Row<'_>) -> rusqlite::Result<ConnectionRow> {
    Ok((uuid_at(row, 1)?, row.get(2)?, row.get(3)?, row.get(4)?, row.get(5)?, instant_at(row, 6)?, instant_at(row, 7)?))
}

pub(super) fn groups(db: &Connection, household: HouseholdKey) -> Result<Vec<i64>> {
    db.prepared(
        "SELECT DISTINCT m.group_id FROM agents n CROSS JOIN group_members m ON m.agent_id = n.id
             WHERE n.household_id = ?1 ORDER BY m.group_id DESC LIMIT ?2",
    )
    .and_then(|mut select| select.query_map([household.0, GROUPS], |row| row.get(0)).and_then(Iterator::collect))
    .map_err(failed)
}

pub(super) fn transcripts(db: &Connection, household: HouseholdKey, limit: u32) -> Result<Vec<TranscriptLine>> {
    let mut select = db
        .prepared(
            "SELECT o.name, t.key, t.created_at, t.id,
                    (SELECT max(l.id) FROM transcript_lines l WHERE l.id BETWEEN t.id << 32 AND (t.id << 32) + 4294967295)
             FROM (SELECT t.id FROM agents n CROSS JOIN transcripts t ON t.owner_id = n.id WHERE n.household_id = ?1
                   UNION SELECT x.transcript_id FROM agents n CROSS JOIN transcript_access x ON x.agent_id = n.id
                       WHERE n.household_id = ?1) w
             JOIN transcripts t ON t.id = w.id JOIN agents o ON o.id = t.owner_id ORDER BY 5 DESC LIMIT ?2",
        )
        .map_err(failed)?;
    let mut rows = select.query([household.0, limit.into()]).map_err(failed)?;
    let mut lines = Vec::new();
    while let Some(found) = rows.next().map_err(failed)? {
        let last: Option<i64> = found.get(4).map_err(failed)?;
        lines.push(TranscriptLine {
            owner: row::name(&found.get::<_, String>(0).map_err(failed)?)?,
            key: found.get::<_, String>(1).map_err(failed)?.parse().map_err(crate::StoreError::internal)?,
            created_at: instant_at(found, 2).map_err(failed)?,
            lines: last.map_or(0, |last| number_of(place_of(last))),
        });
    }
    Ok(lines)
}

pub(super) fn transcript_lines(
    db: &Connection,
    household: HouseholdKey,
    owner: &AgentName,
    key: &TranscriptKey,
    before: Option<u64>,
    limit: u32,
) -> Result<Vec<NumberedLine>> {
    let found: Option<i64> = db
        .prepared(
            "SELECT t.id FROM agents o JOIN transcripts t ON t.owner_id = o.id AND t.key = ?3
             WHERE o.name = ?2 AND (o.household_id = ?1 OR EXISTS (
                 SELECT 1 FROM transcript_access x JOIN agents h ON h.id = x.agent_id
                 WHERE x.transcript_id = t.id AND h.household_id = ?1))",
        )
        .and_then(|mut select| {
            select.query_row(params![household.0, owner.as_str(), key.as_str()], |row| row.get(0)).optional()
        })
        .map_err(failed)?;
    let Some(transcript) = found else { return Err(refusals::no_transcript(Some(owner), key)) };
    let (first, last) = range(transcript);
    let end = before.and_then(|before| i64::try_from(before).ok()).map_or(last, |before| (first + before).min(last));
    let rows: Vec<(i64, String, String)> = db
        .prepared(
            "SELECT l.id, l.line, a.name FROM transcript_lines l JOIN agents a ON a.id = l.author_id
             WHERE l.id >= ?1 AND l.id < ?2 ORDER BY l.id DESC LIMIT ?3",
        )
        .and_then(|mut select| {
            select
                .query_map([first, end, limit.into()], |row| Ok((row.get(0)?, row.get(1)?, row.get(2)?)))
                .and_then(Iterator::collect)
        })
        .map_err(failed)?;
    rows.into_iter().rev().map(|(id, line, author)| numbered_line(number_of(place_of(id)), &line, &author)).collect()
}
