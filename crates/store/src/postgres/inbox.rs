//! Looking into the inbox and into a session.

use std::cmp::Reverse;

use amb_core::Timestamp;
use amb_core::doc::{History, Inbox, MessageView, SessionSummary};
use amb_core::limits::{INBOX_PREVIEW, MAX_PREVIEW_BYTES, MAX_PREVIEW_CHARS};
use amb_core::mailbox::HistoryPage;
use deadpool_postgres::{GenericClient, Object};
use tokio_postgres::Row;
use tokio_postgres::types::ToSql;
use uuid::Uuid;

use super::engine::Reading;
use super::error::failed;
use super::messages::{AFTER, PLAIN, message_columns, message_row, shown_in_pair};
use super::page::rows_of_page;
use crate::engine::Delivery;
use crate::error::Result;
use crate::outgoing::{message_uuid, no_session, not_in_session, session_uuid};
use crate::query::InboxPage;
use crate::refusals;
use crate::row::{self, Shape};
use crate::types::Agent;
use crate::verbs::pending;

/// Whether everybody has read what the viewer sent to a group.
macro_rules! all_read {
    ($group:literal, $message:literal, $viewer:literal) => {
        concat!(
            "(",
            $group,
            " IS NOT NULL AND ",
            $message,
            ".sender_id = ",
            $viewer,
            " AND EXISTS (SELECT FROM copies o WHERE o.message_public_id = ",
            $message,
            ".public_id) AND NOT EXISTS (
                SELECT FROM copies o JOIN entries r ON r.agent_id = o.agent_id AND r.number = o.number
                WHERE o.message_public_id = ",
            $message,
            ".public_id AND r.read_at IS NULL))"
        )
    };
}

/// Each session with its newest messages, found by its own index: one look at each, none at the rest.
/// Of a group's session an agent sees what it sent and what came to it. Long texts come cut, one character longer than
/// they are shown, so that it is seen that they are.
macro_rules! sessions_sql {
    ($($members:expr),+) => {
        concat!(
            "SELECT ",
            message_columns!(),
            ", b.session_id, b.unread, s.public_id, s.subject, o.name, s.created_at, g.name, m.all_read
             FROM (",
            $($members,)+
            ") b
             JOIN sessions s ON s.id = b.session_id
             LEFT JOIN groups g ON g.id = s.group_id
             JOIN agents o ON o.id = coalesce(s.low_id + s.high_id - b.agent_id, g.owner_id)
             LEFT JOIN LATERAL (
                 SELECT x.seq, x.public_id, x.sender_id, x.recipient_id, x.delivery_number, x.created_at, x.priority,
                        x.ttl, x.kind, x.trace, x.reply_to, x.correlation_id, x.task, left(x.content, 2001) AS content,
                        left(x.parts, 4097) AS parts, left(x.metadata, 4097) AS metadata,
                        left(x.callback, 4097) AS callback,
                        c.agent_id AS copy_agent, c.number AS copy_number, ",
            all_read!("s.group_id", "x", "$1"),
            " AS all_read
                 FROM messages x
                 LEFT JOIN copies c ON s.group_id IS NOT NULL AND c.message_public_id = x.public_id AND c.agent_id = $1
                 WHERE x.session_id = b.session_id
                 AND CASE WHEN s.group_id IS NULL THEN ",
            shown_in_pair!("x", "$1"),
            " ELSE x.sender_id = $1 OR c.number IS NOT NULL END
                 ORDER BY x.seq DESC LIMIT 3
             ) m ON TRUE
             LEFT JOIN agents f ON f.id = m.sender_id
             LEFT JOIN agents t ON t.id = m.recipient_id
             LEFT JOIN entries e ON e.agent_id = coalesce(m.recipient_id, m.copy_agent)
                                 AND e.number = coalesce(m.delivery_number, m.copy_number)
             ORDER BY b.session_id, m.seq DESC"
        )
    };
}
/// A page of the caller's sessions, and the requests that wait for it.
pub(super) async fn inbox(client: &Object, caller: &Agent, wanted: &InboxPage, now: Timestamp) -> Result<Inbox> {
    let waiting = async {
        let mut db = Reading(client);
        Ok(pending(&mut db, caller, now).await?)
    };
    let (sessions, pending_connections) = tokio::try_join!(page_of_sessions(client, caller, wanted), waiting)?;
    let limit = usize::try_from(wanted.limit).unwrap_or(usize::MAX);
    Ok(row::inbox_page(sessions, limit, pending_connections))
}

/// What an agent sees of a session `$s` of its messages `$x`: in a group what it sent and what came to it.
macro_rules! newest_seen {
    ($session:literal, $group:literal) => {
        concat!(
            "LEFT JOIN LATERAL (
                 SELECT x.created_at FROM messages x
                 WHERE x.session_id = ",
            $session,
            " AND CASE WHEN ",
            $group,
            " IS NULL THEN ",
            shown_in_pair!("x", "$1"),
            " ELSE x.sender_id = $1
                   OR EXISTS (SELECT FROM copies c WHERE c.message_public_id = x.public_id AND c.agent_id = $1) END
                 ORDER BY x.seq DESC LIMIT 1
             ) n ON TRUE"
        )
    };
}

/// The page's sessions in order, and one more where there is more.
async fn page_of_sessions(client: &Object, caller: &Agent, wanted: &InboxPage) -> Result<Vec<SessionSummary>> {
    let least = i64::from(wanted.unread_only);
    let count = i64::from(wanted.limit) + 1;
    let before = wanted.before.as_ref().map(session_uuid).transpose()?;
    if before.is_none() {
        // Mostly there is no more than a page, and then which sessions it has is no question of their order.
        let sql = sessions_sql!("SELECT * FROM session_members WHERE agent_id = $1 AND unread >= $2 LIMIT $3");
        let all = sessions(client, caller, sql, &[&caller.key.0, &least, &count]).await?;
        if all.len() <= usize::try_from(wanted.limit).unwrap_or(usize::MAX) {
            // One in which all was delivered to nobody is the other's alone, its subject too.
            return Ok(all.into_iter().filter(|session| !session.recent_messages.is_empty()).collect());
        }
    }
    let place: Option<(Timestamp, i64)> = match before {
        None => None,
        Some(id) => {
            let find = client
                .prepare_cached(concat!(
                    "SELECT coalesce(n.created_at, s.created_at), s.id
                     FROM sessions s JOIN session_members b ON b.session_id = s.id AND b.agent_id = $1 ",
                    newest_seen!("s.id", "s.group_id"),
                    " WHERE s.public_id = $2"
                ))
                .await
                .map_err(failed)?;
            let found = client.query_opt(&find, &[&caller.key.0, &id]).await.map_err(failed)?.ok_or_else(no_session)?;
            Some((found.try_get(0).map_err(failed)?, found.try_get(1).map_err(failed)?))
        }
    };
    let (at, id) = place.unzip();
    let sql = sessions_sql!(
        "SELECT b.* FROM session_members b JOIN sessions s ON s.id = b.session_id ",
        newest_seen!("b.session_id", "s.group_id"),
        " WHERE b.agent_id = $1 AND b.unread >= $2 AND n.created_at IS NOT NULL
          AND ($4::timestamptz IS NULL OR (coalesce(n.created_at, s.created_at), b.session_id) < ($4, $5::bigint))
          ORDER BY coalesce(n.created_at, s.created_at) DESC, b.session_id DESC LIMIT $3"
    );
    sessions(client, caller, sql, &[&caller.key.0, &least, &count, &at, &id]).await
}

/// What the numbers in [`sessions_sql`] are.
const _: () = assert!(INBOX_PREVIEW == 3 && MAX_PREVIEW_CHARS == 2_000 && MAX_PREVIEW_BYTES == 4_096);

async fn sessions(
    client: &Object,
    caller: &Agent,
    sql: &str,
    values: &[&(dyn ToSql + Sync)],
) -> Result<Vec<SessionSummary>> {
    let select = client.prepare_cached(sql).await.map_err(failed)?;
    let rows = client.query(&select, values).await.map_err(failed)?;
    let mut sessions: Vec<(i64, SessionSummary)> = Vec::new();
    for row in &rows {
        let id: i64 = row.try_get(AFTER).map_err(failed)?;
        if sessions.last().is_none_or(|(last, _)| *last != id) {
            sessions.push((id, summary(row)?));
        }
        let message: Option<Uuid> = row.try_get(0).map_err(failed)?;
        if let (Some((_, session)), Some(_)) = (sessions.last_mut(), message) {
            let mut view = message_row(row).map_err(failed)?.view(&caller.name, Shape::Preview)?;
            view.is_read |= row.try_get::<_, bool>(AFTER + 7).map_err(failed)?;
            if session.recent_messages.is_empty() {
                session.last_message_at = view.created_at;
            }
            session.recent_messages.push(view);
        }
    }
    sessions.sort_by_key(|(id, session)| Reverse((session.last_message_at, *id)));
    Ok(sessions.into_iter().map(|(_, session)| session).collect())
}

fn summary(row: &Row) -> Result<SessionSummary> {
    let unread: i64 = row.try_get(AFTER + 1).map_err(failed)?;
    let session: Uuid = row.try_get(AFTER + 2).map_err(failed)?;
    Ok(SessionSummary {
        session_id: session.into(),
        subject: row.try_get(AFTER + 3).map_err(failed)?,
        other_agent_name: row::name(row.try_get(AFTER + 4).map_err(failed)?)?,
        unread_count: u64::try_from(unread).unwrap_or(0),
        last_message_at: row.try_get(AFTER + 5).map_err(failed)?,
        recent_messages: Vec::new(),
        group: row.try_get(AFTER + 6).map_err(failed)?,
    })
}

/// A page of a session as it is before it is marked, and what to mark.
pub(super) async fn history<C: GenericClient>(
    client: &C,
    caller: &Agent,
    session: Uuid,
    wanted: &HistoryPage,
) -> Result<(History, Vec<Delivery>)> {
    let before = wanted.before.as_ref().map(message_uuid).transpose()?;
    // One look at the session and the page; whether the caller may see it is decided before anything is shown.
    let find = client
        .prepare_cached(
            "SELECT s.id, s.subject,
                    EXISTS (SELECT FROM session_members b WHERE b.agent_id = $2 AND b.session_id = s.id),
                    (SELECT m.seq FROM messages m WHERE m.public_id = $3 AND m.session_id = s.id)
             FROM sessions s WHERE s.public_id = $1",
        )
        .await
        .map_err(failed)?;
    let found = client.query_opt(&find, &[&session, &caller.key.0, &before]).await.map_err(failed)?;
    let Some(found) = found else { return Err(no_session()) };
    if !found.try_get::<_, bool>(2).map_err(failed)? {
        return Err(refusals::not_a_member());
    }
    let at: Option<i64> = found.try_get(3).map_err(failed)?;
    let end = match (&wanted.before, at) {
        (None, _) => i64::MAX,
        (Some(_), Some(seq)) => seq,
        (Some(before), None) => return Err(not_in_session(before)),
    };
    let id: i64 = found.try_get(0).map_err(failed)?;
    let sql = concat!(
        "SELECT ",
        message_columns!(),
        ", m.sender_id, e.agent_id, e.number, ",
        all_read!("s.group_id", "m", "$4"),
        " FROM messages m
         JOIN sessions s ON s.id = m.session_id
         JOIN agents f ON f.id = m.sender_id
         LEFT JOIN agents t ON t.id = m.recipient_id
         LEFT JOIN copies c ON m.recipient_id IS NULL AND c.message_public_id = m.public_id AND c.agent_id = $4
         LEFT JOIN entries e ON e.agent_id = coalesce(m.recipient_id, c.agent_id)
                             AND e.number = coalesce(m.delivery_number, c.number)
         WHERE m.session_id = $1 AND m.seq < $2
         AND CASE WHEN s.group_id IS NULL THEN ",
        shown_in_pair!("m", "$4"),
        " ELSE m.sender_id = $4 OR c.number IS NOT NULL END
         ORDER BY m.seq DESC LIMIT $3"
    );
    let select = client.prepare_cached(sql).await.map_err(failed)?;
    let values: [&(dyn ToSql + Sync); 4] = [&id, &end, &i64::from(wanted.limit), &caller.key.0];
    let (rows, _) = rows_of_page(client, &select, &values, PLAIN).await.map_err(failed)?;
    let mut messages: Vec<MessageView> = Vec::with_capacity(rows.len());
    let mut unread = Vec::new();
    for row in &rows {
        let message = message_row(row).map_err(failed)?;
        let recipient: Option<i64> = row.try_get(AFTER + 1).map_err(failed)?;
        if message.read_at.is_none() && recipient == Some(caller.key.0) {
            let place = row.try_get(AFTER + 2).map_err(failed)?;
            unread.push(Delivery { place, sender: row.try_get(AFTER).map_err(failed)? });
        }
        let mut view = message.view(&caller.name, Shape::Whole)?;
        // What is answered is read by the time it is answered.
        view.is_read |= view.sender_name != caller.name || row.try_get(AFTER + 3).map_err(failed)?;
        messages.push(view);
    }
    if messages.is_empty() && wanted.before.is_none() {
        return Err(no_session());
    }
    let subject = found.try_get(1).map_err(failed)?;
    Ok((History { session_id: session.into(), subject, messages }, unread))
}
