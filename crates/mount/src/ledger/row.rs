//! Rows of the table `crossings`.

use amb_core::{AgentName, MessageId, Timestamp};
use amb_dir::DirOffice;
use rusqlite::{Connection, OptionalExtension, Row, params};

use super::{CrossingRow, CrossingState, NewCrossing, NewCrossingKind};

/// Selects the columns of a row, with the rest of the statement.
macro_rules! columns {
    ($rest:literal) => {
        concat!("SELECT number, sender, recipient, office_id, dir_id, file, at, nonce, state FROM crossings ", $rest)
    };
}

pub(super) use columns;

/// Inserts a row, or returns the existing one.
pub(super) fn begin_one(db: &Connection, office: &DirOffice, new: NewCrossing) -> rusqlite::Result<CrossingRow> {
    let NewCrossing { sender, recipient, what } = new;
    let before = match &what {
        NewCrossingKind::In { office_id, .. } => {
            find(db, "inward = 1 AND office_id = ?1 AND recipient = ?2", &office_id.to_string(), &recipient)?
        }
        NewCrossingKind::Out { dir_id, .. } | NewCrossingKind::Report { dir_id, .. } => {
            find(db, "inward = 0 AND dir_id = ?1 AND recipient = ?2", dir_id.as_str(), &recipient)?
        }
    };
    if let Some(before) = before {
        return Ok(before);
    }
    let inward = matches!(what, NewCrossingKind::In { .. });
    let (mut file, mut of_office, mut of_dir) = (None, None, None);
    let (office_id, dir_id, at, nonce) = match what {
        NewCrossingKind::In { office_id, sent_at, nonce, task } => {
            let mut at = sent_at;
            let mut named = office.carried_as(&sender, at, nonce);
            // In a layout whose file names are timestamps, two messages of one sender may collide.
            while is_taken(db, &named.0)? {
                at = Timestamp::from_microsecond(at.as_microsecond() + 1).unwrap_or(at);
                named = office.carried_as(&sender, at, nonce);
            }
            of_dir = task.as_ref().map(|_| named.0.to_string());
            of_office = task.map(|task| task.to_string());
            file = Some(named.1);
            (Some(office_id), named.0, at, nonce)
        }
        NewCrossingKind::Out { dir_id, office_id, at, task } => {
            of_office = task.as_ref().map(|_| office_id.to_string());
            of_dir = task.map(|task| task.to_string());
            (Some(office_id), dir_id, at, 0)
        }
        NewCrossingKind::Report { dir_id, at } => (None, dir_id, at, 0),
    };
    db.prepare_cached(
        "INSERT INTO crossings (inward, sender, recipient, office_id, dir_id, file, at, nonce, office_task, dir_task,
                                state)
         VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, 0)",
    )?
    .execute(params![
        inward,
        sender.as_str(),
        recipient.as_str(),
        office_id.map(|id| id.to_string()),
        dir_id.as_str(),
        file,
        at.as_microsecond(),
        nonce,
        of_office,
        of_dir,
    ])?;
    let number = db.last_insert_rowid();
    if !inward && office_id.is_some() {
        super::contacts::record(db, &sender, &recipient)?;
    }
    Ok(CrossingRow {
        number,
        sender,
        recipient,
        office_id,
        dir_id,
        file,
        at,
        nonce,
        state: CrossingState::Crossing,
        again: false,
    })
}

fn is_taken(db: &Connection, dir_id: &MessageId) -> rusqlite::Result<bool> {
    db.prepare_cached("SELECT 1 FROM crossings WHERE dir_id = ?1")?.exists([dir_id.as_str()])
}

pub(super) fn find(
    db: &Connection,
    condition: &str,
    id: &str,
    recipient: &AgentName,
) -> rusqlite::Result<Option<CrossingRow>> {
    let sql = format!("{}{condition}", columns!("WHERE "));
    db.prepare_cached(&sql)?.query_row([id, recipient.as_str()], crossing).optional()
}

/// Converts a row. Names and ids were checked when they were written.
pub(super) fn crossing(row: &Row<'_>) -> rusqlite::Result<CrossingRow> {
    fn bad(error: impl std::error::Error + Send + Sync + 'static) -> rusqlite::Error {
        rusqlite::Error::FromSqlConversionFailure(0, rusqlite::types::Type::Text, Box::new(error))
    }
    let name = |at: usize| -> rusqlite::Result<AgentName> { row.get::<_, String>(at)?.parse().map_err(bad) };
    let office_id: Option<String> = row.get(3)?;
    Ok(CrossingRow {
        number: row.get(0)?,
        sender: name(1)?,
        recipient: name(2)?,
        office_id: office_id.map(|id| id.parse().map_err(bad)).transpose()?,
        dir_id: MessageId::parse(&row.get::<_, String>(4)?).map_err(bad)?,
        file: row.get(5)?,
        at: Timestamp::from_microsecond(row.get(6)?).map_err(bad)?,
        nonce: row.get(7)?,
        state: CrossingState::of(row.get(8)?),
        again: true,
    })
}
