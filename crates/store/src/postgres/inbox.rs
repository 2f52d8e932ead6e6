//! Looking into the inbox and into a session.

use std::cmp::Reverse;

use amb_core::doc::{History, Inbox, MessageView, PendingConnection, SessionSummary};
use amb_core::limits::INBOX_PREVIEW;
use amb_core::office::HistoryPage;
use amb_core::receipt::Receipt;
use amb_core::{Event, Timestamp};
use deadpool_postgres::{Object, Transaction};
use tokio_postgres::Row;
use uuid::Uuid;

use super::error::{Trouble, failed};
use super::messages::{AFTER, message_columns, message_row};
use super::write::{Heads, Pages};
use crate::error::Result;
use crate::letter::{message_uuid, no_session, not_in_session};
use crate::row;
use crate::types::{Agent, News};
use crate::words;

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
            " AND NOT EXISTS (
                SELECT FROM copies o JOIN entries r ON r.agent_id = o.agent_id AND r.number = o.number
                WHERE o.message_public_id = ",
            $message,
            ".public_id AND r.read_at IS NULL))"
        )
    };
}

/// The caller's sessions and the requests that wait for it.
pub(super) async fn inbox(client: &Object, caller: &Agent, unread_only: bool, now: Timestamp) -> Result<Inbox> {
    let (sessions, pending_connections) =
        tokio::try_join!(sessions(client, caller, unread_only), pending(client, caller, now))?;
    Ok(Inbox { sessions, pending_connections })
}

/// Each session with its newest messages, found by its own index: one look at each, none at the rest.
/// Of a group's session an agent sees what it sent and what came to it.
async fn sessions(client: &Object, caller: &Agent, unread_only: bool) -> Result<Vec<SessionSummary>> {
    let sql = concat!(
        "SELECT ",
        message_columns!(),
        ", b.session_id, b.unread, s.public_id, s.subject, o.name, s.created_at, g.name, m.all_read
         FROM session_members b
         JOIN sessions s ON s.id = b.session_id
         LEFT JOIN groups g ON g.id = s.group_id
         JOIN agents o ON o.id = coalesce(s.low_id + s.high_id - b.agent_id, g.owner_id)
         LEFT JOIN LATERAL (
             SELECT x.*, c.agent_id AS copy_agent, c.number AS copy_number, ",
        all_read!("s.group_id", "x", "$1"),
        " AS all_read
             FROM messages x
             LEFT JOIN copies c ON s.group_id IS NOT NULL AND c.message_public_id = x.public_id AND c.agent_id = $1
             WHERE x.session_id = b.session_id
             AND (s.group_id IS NULL OR x.sender_id = $1 OR c.number IS NOT NULL)
             ORDER BY x.seq DESC LIMIT $3
         ) m ON TRUE
         LEFT JOIN agents f ON f.id = m.sender_id
         LEFT JOIN agents t ON t.id = m.recipient_id
         LEFT JOIN entries e ON e.agent_id = coalesce(m.recipient_id, m.copy_agent)
                             AND e.number = coalesce(m.delivery_number, m.copy_number)
         WHERE b.agent_id = $1 AND b.unread >= $2
         ORDER BY b.session_id, m.seq DESC"
    );
    let select = client.prepare_cached(sql).await.map_err(failed)?;
    let least = i64::from(unread_only);
    let rows = client
        .query(&select, &[&caller.key.0, &least, &i64::try_from(INBOX_PREVIEW).unwrap_or(3)])
        .await
        .map_err(failed)?;
    let mut sessions: Vec<(i64, SessionSummary)> = Vec::new();
    for row in &rows {
        let id: i64 = row.try_get(AFTER).map_err(failed)?;
        if sessions.last().is_none_or(|(last, _)| *last != id) {
            sessions.push((id, summary(row)?));
        }
        let message: Option<Uuid> = row.try_get(0).map_err(failed)?;
        if let (Some((_, session)), Some(_)) = (sessions.last_mut(), message) {
            let mut view = message_row(row).map_err(failed)?.view(&caller.name)?;
            view.is_read |= row.try_get::<_, bool>(AFTER + 7).map_err(failed)?;
            if session.recent_messages.is_empty() {
                session.last_message_at = view.created_at;
            }
            session.recent_messages.push(view);
        }
    }
    let mut sessions: Vec<SessionSummary> = sessions.into_iter().map(|(_, session)| session).collect();
    sessions.sort_by_key(|session| Reverse(session.last_message_at));
    Ok(sessions)
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

/// The requests that wait for the caller.
pub(super) async fn pending(client: &Object, caller: &Agent, now: Timestamp) -> Result<Vec<PendingConnection>> {
    let select = client
        .prepare_cached(
            "SELECT c.public_id, a.name, c.message, CASE WHEN c.code_private THEN NULL ELSE c.verification_code END,
                    c.created_at
             FROM connections c JOIN agents a ON a.id = c.requester_id
             WHERE c.target_id = $1 AND c.status = 'PENDING' AND (c.expires_at IS NULL OR c.expires_at > $2)
             ORDER BY c.id",
        )
        .await
        .map_err(failed)?;
    let rows = client.query(&select, &[&caller.key.0, &now]).await.map_err(failed)?;
    rows.iter()
        .map(|row| {
            let id: Uuid = row.try_get(0).map_err(failed)?;
            Ok(PendingConnection {
                connection_id: id.into(),
                from_agent_name: row::name(row.try_get(1).map_err(failed)?)?,
                message: row.try_get(2).map_err(failed)?,
                verification_code: row.try_get(3).map_err(failed)?,
                created_at: row.try_get(4).map_err(failed)?,
            })
        })
        .collect()
}

/// What of a page the viewer has not read: the entry that delivers it, and who sent it.
#[derive(Debug, Clone, Copy)]
pub(super) struct Unread {
    pub(super) number: i64,
    pub(super) sender: i64,
}

/// A page of a session as it is before it is marked, and what to mark.
pub(super) async fn history(
    client: &Object,
    caller: &Agent,
    session: Uuid,
    wanted: &HistoryPage,
) -> Result<(History, Vec<Unread>)> {
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
        return Err(words::not_a_member());
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
         AND (s.group_id IS NULL OR m.sender_id = $4 OR c.number IS NOT NULL)
         ORDER BY m.seq DESC LIMIT $3"
    );
    let select = client.prepare_cached(sql).await.map_err(failed)?;
    let rows = client.query(&select, &[&id, &end, &i64::from(wanted.limit), &caller.key.0]).await.map_err(failed)?;
    let mut messages: Vec<MessageView> = Vec::with_capacity(rows.len());
    let mut unread = Vec::new();
    for row in &rows {
        let message = message_row(row).map_err(failed)?;
        let recipient: Option<i64> = row.try_get(AFTER + 1).map_err(failed)?;
        if message.read_at.is_none() && recipient == Some(caller.key.0) {
            let number = row.try_get(AFTER + 2).map_err(failed)?;
            unread.push(Unread { number, sender: row.try_get(AFTER).map_err(failed)? });
        }
        let mut view = message.view(&caller.name)?;
        // What is answered is read by the time it is answered.
        view.is_read |= view.sender_name != caller.name || row.try_get(AFTER + 3).map_err(failed)?;
        messages.push(view);
    }
    let subject = found.try_get(1).map_err(failed)?;
    Ok((History { session_id: session.into(), subject, messages }, unread))
}

/// Marks deliveries as read, and tells the senders.
pub(super) async fn mark_read(
    tx: &Transaction<'_>,
    caller: &Agent,
    unread: &[Unread],
    now: Timestamp,
) -> Result<Vec<News>, Trouble> {
    let mut agents: Vec<i64> = unread.iter().map(|unread| unread.sender).collect();
    agents.push(caller.key.0);
    let mut heads = Heads::lock(tx, &agents).await?;
    let numbers: Vec<i64> = unread.iter().map(|unread| unread.number).collect();
    let update = tx
        .prepare_cached(
            "WITH marked AS (
                 UPDATE entries SET read_at = $3, delivered_at = coalesce(delivered_at, $3), lease_until = NULL
                 WHERE agent_id = $1 AND number = ANY($2) AND session_id IS NOT NULL AND read_at IS NULL
                 RETURNING number, session_id, seq, delivered_at
             ), counted AS (
                 UPDATE session_members b SET unread = b.unread - c.n
                 FROM (SELECT session_id, count(*) AS n FROM marked GROUP BY session_id) c
                 WHERE b.agent_id = $1 AND b.session_id = c.session_id
             )
             SELECT m.public_id, m.sender_id, m.created_at, k.delivered_at
             FROM marked k JOIN messages m ON m.session_id = k.session_id AND m.seq = k.seq ORDER BY k.number DESC",
        )
        .await?;
    let rows = tx.query(&update, &[&caller.key.0, &numbers, &now]).await?;
    let mut pages = Pages::default();
    let mut news = Vec::new();
    for row in &rows {
        let id: Uuid = row.try_get(0)?;
        let receipt = Receipt::of(caller.name.clone(), row.try_get(2)?, row.try_get(3)?, Some(now));
        let event = Event::Receipt { message_id: id.into(), receipt };
        news.extend(pages.tell(&mut heads, row.try_get(1)?, event, now)?);
    }
    pages.write(tx).await?;
    Ok(news)
}
