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

/// Entries of one member in a page: who does much does not hide the others.
const EACH: usize = 50;

/// How far each member's log was read.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct HouseholdCursor {
    /// The member at whose log the last page was full.
    pub behind: AgentKey,
    /// The number in each member's log that was read last.
    pub of: BTreeMap<AgentKey, u64>,
}

/// A page of what happened to the members of a household.
#[derive(Debug, Clone)]
pub struct HouseholdPage {
    /// Who is in the household.
    pub members: Vec<(AgentKey, AgentName)>,
    /// What happened, of each member in the order of its log.
    pub events: Vec<HouseholdEntry>,
    /// Where the next page begins. It knows all members and nobody else.
    pub cursor: HouseholdCursor,
}

/// A member, and where its log ends for it.
struct LogEnd {
    key: i64,
    name: AgentName,
    end: i64,
}

impl FromRow for LogEnd {
    fn from_row(row: &mut Row<'_>) -> Result<Self> {
        let (key, name, paused_from, head) = <(i64, AgentName, Option<i64>, i64)>::from_row(row)?;
        Ok(Self { key, name, end: paused_from.map_or(head, |from| from.min(head)) })
    }
}

pub(super) async fn events(
    db: &mut dyn Db,
    household: HouseholdKey,
    since: HouseholdCursor,
    last: i64,
) -> Tried<HouseholdPage> {
    let sql = format!(
        "SELECT a.id, a.name, a.paused_from, {} FROM agents a
         WHERE a.household_id = $1 AND a.deleted_at IS NULL ORDER BY a.id LIMIT {MAX_MEMBERS}",
        (db.dialect().log_head)("a.id")
    );
    let mut members: Vec<LogEnd> = db.rows(&sql, values![household.0]).await?;
    let begin = |member: &LogEnd| match since.of.get(&AgentKey(member.key)) {
        Some(place) => i64::try_from(*place).unwrap_or(i64::MAX),
        None => member.end.saturating_sub(last).max(0),
    };
    let place = |number: i64| u64::try_from(number).unwrap_or(0);
    let of = members.iter().map(|member| (AgentKey(member.key), place(begin(member)))).collect();
    let mut cursor = HouseholdCursor { behind: since.behind, of };
    // Where the last page was full, those behind it come first.
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
        // Whoever has none here had them pruned.
        cursor.of.extend(grown.iter().map(|member| (AgentKey(member.key), place(member.end))));
    }
    let names: BTreeMap<i64, &AgentName> = members.iter().map(|member| (member.key, &member.name)).collect();
    let mut events = Vec::with_capacity(found.len());
    for (agent, number, event) in found {
        cursor.of.insert(AgentKey(agent), place(number));
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

/// Reads logs from their places, in the order of the list; returns whether something was left out for its size.
async fn entries(db: &mut dyn Db, places: &str) -> Tried<(Vec<(i64, i64, Event)>, bool)> {
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
    let entries = found.into_iter().map(|(agent, SizedEntry(entry, _))| {
        let number = entry.cursor.as_number().and_then(|number| i64::try_from(number).ok()).unwrap_or(0);
        (agent, number, entry.event)
    });
    Ok((entries.collect(), full))
}
