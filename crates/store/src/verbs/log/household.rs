//! The logs of a household's members as one stream, for its person.

use std::collections::BTreeMap;

use amb_core::doc::HouseholdEntry;
use amb_core::limits::MAX_EVENTS;
use amb_core::{AgentName, Event};
use serde_json::json;

use super::SizedEntry;
use crate::engine::{Db, FromRow, Query, Row, Tried, values};
use crate::error::Result;
use crate::row::message_columns;
use crate::types::AgentKey;
use crate::verbs::{HouseholdKey, MAX_MEMBERS};

/// Most entries of one member in a page, so that a busy member does not hide the others.
const EACH: usize = 50;

/// A cursor in each member's log.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct HouseholdCursor {
    /// The member at whose log the last page ended, if it was full.
    pub behind: AgentKey,
    /// The number of the last entry read of each member's log.
    pub of: BTreeMap<AgentKey, u64>,
}

/// A page of the entries of a household's members.
#[derive(Debug, Clone)]
pub struct HouseholdPage {
    /// The members of the household.
    pub members: Vec<(AgentKey, AgentName)>,
    /// The entries, those of each member in the order of its log.
    pub events: Vec<HouseholdEntry>,
    /// The cursor of the next page, with all members and nobody else.
    pub cursor: HouseholdCursor,
}

/// A member, and the end of its log as it sees it.
struct LogEnd {
    key: i64,
    name: AgentName,
    end: u64,
}

impl FromRow for LogEnd {
    fn from_row(row: &mut Row<'_>) -> Result<Self> {
        let (key, name, paused_from, head) = <(i64, AgentName, Option<u64>, u64)>::from_row(row)?;
        Ok(Self { key, name, end: paused_from.map_or(head, |from| from.min(head)) })
    }
}

pub(super) async fn events(
    db: &mut dyn Db,
    household: HouseholdKey,
    since: HouseholdCursor,
    last: u64,
) -> Tried<HouseholdPage> {
    let sql = format!(
        "SELECT a.id, a.name, a.paused_from, {} FROM agents a
         WHERE a.household_id = $1 AND a.deleted_at IS NULL ORDER BY a.id LIMIT {MAX_MEMBERS}",
        (db.dialect().log_head)("a.id")
    );
    let mut members: Vec<LogEnd> = db.rows(&sql, values![household.0]).await?;
    let begin = |member: &LogEnd| {
        since.of.get(&AgentKey(member.key)).copied().unwrap_or_else(|| member.end.saturating_sub(last))
    };
    let of = members.iter().map(|member| (AgentKey(member.key), begin(member))).collect();
    let mut cursor = HouseholdCursor { behind: since.behind, of };
    // After a full page, begin with the members that it did not reach.
    let first = members.iter().position(|member| member.key > since.behind.0).unwrap_or(0);
    members.rotate_left(first);
    let grown: Vec<&LogEnd> = members.iter().filter(|member| begin(member) < member.end).collect();
    let asked: Vec<_> = grown.iter().map(|member| json!([member.key, begin(member), member.end])).collect();
    let (found, full) = match asked.is_empty() {
        true => (Vec::new(), false),
        false => entries(db, &json!(asked).to_string()).await?,
    };
    let full = full || found.len() >= MAX_EVENTS;
    if !full {
        // Members without an entry here had theirs pruned.
        cursor.of.extend(grown.iter().map(|member| (AgentKey(member.key), member.end)));
    }
    let names: BTreeMap<i64, &AgentName> = members.iter().map(|member| (member.key, &member.name)).collect();
    let mut events = Vec::with_capacity(found.len());
    for (agent, number, event) in found {
        cursor.of.insert(AgentKey(agent), number);
        if full {
            cursor.behind = AgentKey(agent);
        }
        if let Some(name) = names.get(&agent) {
            events.push(HouseholdEntry { agent: (*name).clone(), event });
        }
    }
    let mut members: Vec<_> = members.into_iter().map(|member| (AgentKey(member.key), member.name)).collect();
    members.sort_unstable_by_key(|(key, _)| *key);
    Ok(HouseholdPage { members, events, cursor })
}

/// Reads logs from these places, in the order of the list. Returns whether something was left out for its size.
async fn entries(db: &mut dyn Db, places: &str) -> Tried<(Vec<(i64, u64, Event)>, bool)> {
    let sql = format!(
        "SELECT n.agent_id, n.number, n.event, {} FROM ({}) n
         LEFT JOIN messages m ON m.id = n.message_id
         LEFT JOIN sessions s ON s.id = m.session_id
         LEFT JOIN agents f ON f.id = m.sender_id
         LEFT JOIN agents t ON t.id = n.agent_id ORDER BY n.place, n.number",
        message_columns("n"),
        (db.dialect().logs)(EACH, MAX_EVENTS)
    );
    let (found, full) = db.page(&sql, values![places], |(_, SizedEntry(_, bytes)): &(i64, SizedEntry)| *bytes).await?;
    let entries = found
        .into_iter()
        .map(|(agent, SizedEntry(entry, _))| (agent, entry.cursor.as_number().unwrap_or(0), entry.event));
    Ok((entries.collect(), full))
}
