//! Pages of an inbox: sessions with their newest messages.

use std::cmp::Reverse;
use std::collections::BTreeMap;
use std::collections::btree_map::Entry;

use amb_core::Timestamp;
use amb_core::doc::{MessageView, SessionSummary};
use amb_core::limits::{INBOX_PREVIEW, MAX_PREVIEW_BYTES, MAX_PREVIEW_CHARS};
use uuid::Uuid;

use super::history::{MessageLine, OWN_DELIVERY, line_columns, mark_read_by_all, page};
use super::messages::{shown_as_delivered, shown_to};
use crate::engine::{Db, Dialect, FromRow, Query, Row, SqlOf, Tried, Value, values};
use crate::outgoing::{no_session, session_uuid};
use crate::query::InboxPage;
use crate::row::Shape;
use crate::types::Agent;

/// Returns the sessions of a page in order, and one more where there is one, for
/// [`inbox_page`](crate::row::inbox_page).
pub(crate) async fn page_of_sessions(db: &mut dyn Db, caller: &Agent, page: &InboxPage) -> Tried<Vec<SessionSummary>> {
    // Usually there is at most one page: then all sessions are read, and sorted here.
    if let Some(all) = all_sessions(db, caller, page, page.limit).await? {
        return Ok(all);
    }
    let (at, id) = match &page.before {
        Some(before) => Some(place_of(db, caller, session_uuid(before)?).await?),
        None => None,
    }
    .unzip();
    let sql = ORDERED.get(db.dialect(), |dialect| {
        let newest = newest();
        format!(
            "WITH n AS MATERIALIZED (
                 SELECT b.session_id, b.unread, {newest} AS newest
                 FROM session_members b JOIN sessions s ON s.id = b.session_id WHERE b.agent_id = $1 AND b.unread >= $2
             ), w AS (
                 SELECT session_id, unread FROM n WHERE newest IS NOT NULL
                 AND (CAST($4 AS timestamptz) IS NULL OR (newest, session_id) < ($4, CAST($5 AS bigint)))
                 ORDER BY newest DESC, session_id DESC LIMIT $3
             ) {}",
            select_sessions(dialect, "w")
        )
    });
    let most = i64::from(page.limit) + 1;
    let values = values![caller.key.0, i64::from(page.unread_only), most, at, id];
    Ok(sessions(db, caller, sql, values, usize::MAX).await?.unwrap_or_default())
}

/// Returns all sessions of a first page, in order. `None` where the caller has more than `most`, and for later pages.
pub(crate) async fn all_sessions(
    db: &mut dyn Db,
    caller: &Agent,
    page: &InboxPage,
    most: u32,
) -> Tried<Option<Vec<SessionSummary>>> {
    if page.before.is_some() {
        return Ok(None);
    }
    let sql = ALL.get(db.dialect(), |dialect| {
        let members = "SELECT session_id, unread FROM session_members WHERE agent_id = $1 AND unread >= $2 LIMIT $3";
        select_sessions(dialect, &format!("({members}) w"))
    });
    let values = values![caller.key.0, i64::from(page.unread_only), i64::from(most) + 1];
    sessions(db, caller, sql, values, most as usize).await
}

static ALL: SqlOf = SqlOf::new();
static ORDERED: SqlOf = SqlOf::new();

/// Returns the time of the newest message of the session `s` that the agent `$1` sees.
fn newest() -> String {
    let shown = shown_to("$1");
    format!("(SELECT m.created_at FROM messages m WHERE m.session_id = s.id AND {shown} ORDER BY m.id DESC LIMIT 1)")
}

/// Returns a statement for the sessions `w`; the other agent of a group's session is its owner. With
/// [`Dialect::joins_newest`] it also selects the newest messages that the agent `$1` sees, with texts cut to one
/// character more than a preview shows.
fn select_sessions(dialect: &Dialect, members: &str) -> String {
    let (mut columns, mut joins) = (String::new(), String::new());
    if dialect.joins_newest {
        let cut = |column: &str, most: usize| format!("left({column}, {})", most + 1);
        let texts = [
            cut("m.callback", MAX_PREVIEW_BYTES),
            cut("m.content", MAX_PREVIEW_CHARS),
            cut("m.parts", MAX_PREVIEW_BYTES),
            cut("m.metadata", MAX_PREVIEW_BYTES),
        ];
        columns = format!(", {}", line_columns("m", "f.name", &texts.join(", ")));
        joins = format!(
            "LEFT JOIN LATERAL (
                 SELECT m.*, e.message_id, e.read_at, e.from_person FROM messages m {OWN_DELIVERY}
                 WHERE m.session_id = s.id AND {} ORDER BY m.id DESC LIMIT {INBOX_PREVIEW}
             ) m ON TRUE
             LEFT JOIN agents f ON f.id = CASE WHEN s.group_id IS NOT NULL THEN m.sender_id END",
            shown_as_delivered("$1")
        );
    }
    format!(
        "SELECT w.session_id, w.unread, s.public_id, s.subject, o.id, o.name, g.name, s.ended_by{columns}
         FROM {members}
         {join} sessions s ON s.id = w.session_id
         LEFT JOIN groups g ON g.id = s.group_id
         {join} agents o ON o.id = coalesce(s.low_id + s.high_id - $1, g.owner_id) {joins}",
        join = dialect.then_join
    )
}

/// A session and its newest messages, each with its row id.
struct SessionMessages {
    summary: SessionSummary,
    other: i64,
    recent: Vec<(i64, MessageView)>,
}

/// Reads the rows of [`select_sessions`]; `None` where there are more than `most`.
async fn sessions(
    db: &mut dyn Db,
    caller: &Agent,
    sql: &str,
    values: &[Value<'_>],
    most: usize,
) -> Tried<Option<Vec<SessionSummary>>> {
    let (mut found, joins_newest) = (BTreeMap::<i64, SessionMessages>::new(), db.dialect().joins_newest);
    let mut read = |mut row: Row<'_>| {
        let (id, unread_count, session_id): (i64, _, _) = FromRow::from_row(&mut row)?;
        let (subject, other, other_agent_name, group, ended_by) = FromRow::from_row(&mut row)?;
        let SessionMessages { summary, recent, .. } = match found.entry(id) {
            Entry::Occupied(known) => known.into_mut(),
            Entry::Vacant(new) => {
                let summary = SessionSummary {
                    session_id,
                    subject,
                    other_agent_name,
                    unread_count,
                    last_message_at: Timestamp::default(),
                    recent_messages: Vec::new(),
                    group,
                    ended_by,
                };
                new.insert(SessionMessages { summary, other, recent: Vec::new() })
            }
        };
        if joins_newest && let Some(line) = MessageLine::take(&mut row, caller, &summary.other_agent_name)? {
            recent.push((line.id, line.row.view(Shape::Preview)?));
        }
        Ok(true)
    };
    db.each(sql, values, &mut read).await?;
    if found.len() > most {
        return Ok(None);
    }
    if joins_newest {
        let mut in_groups = Vec::new();
        for session in found.values_mut().filter(|session| session.summary.group.is_some()) {
            in_groups.extend(session.recent.iter_mut().map(|(_, view)| view));
        }
        mark_read_by_all(db, caller, in_groups).await?;
    }
    let mut sessions: Vec<(i64, SessionSummary)> = Vec::with_capacity(found.len());
    for (id, SessionMessages { mut summary, other, mut recent }) in found {
        if joins_newest {
            recent.sort_unstable_by_key(|(id, _)| Reverse(*id));
            summary.recent_messages = recent.into_iter().map(|(_, view)| view).collect();
        } else {
            let other = summary.group.is_none().then_some((other, &summary.other_agent_name));
            let (messages, _, _) =
                page(db, caller, (id, other), i64::MAX, INBOX_PREVIEW as u32, Shape::Preview).await?;
            summary.recent_messages = messages;
        }
        // Where the caller sees no message of a session, it does not see the session either.
        if let Some(newest) = summary.recent_messages.first() {
            summary.last_message_at = newest.created_at;
            sessions.push((id, summary));
        }
    }
    sessions.sort_unstable_by_key(|(id, session)| Reverse((session.last_message_at, *id)));
    Ok(Some(sessions.into_iter().map(|(_, session)| session).collect()))
}

/// Returns the sort key of the last session of the previous page.
async fn place_of(db: &mut dyn Db, caller: &Agent, session: Uuid) -> Tried<(Timestamp, i64)> {
    let sql = format!(
        "SELECT {}, s.id FROM sessions s JOIN session_members b ON b.session_id = s.id AND b.agent_id = $1
         WHERE s.public_id = $2",
        newest()
    );
    match db.find(&sql, values![caller.key.0, session]).await? {
        Some((Some(at), id)) => Ok((at, id)),
        _ => Err(no_session().into()),
    }
}
