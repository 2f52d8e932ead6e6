//! SQLite as the verbs use it. Nothing here waits: every future is ready when it is first polled, so that a verb runs to its
//! end on the thread that polls it once.

use std::collections::HashMap;

use amb_core::doc::{History, Sent};
use amb_core::mailbox::HistoryPage;
use amb_core::{AgentName, Draft, Event, Timestamp};
use async_trait::async_trait;
use futures_util::FutureExt;
use futures_util::future::BoxFuture;
use rusqlite::types::{ToSqlOutput, ValueRef};
use rusqlite::{Connection, OptionalExtension, Statement, ToSql, params};
use uuid::Uuid;

use super::error::{failed, is_taken};
use super::plans::Prepared;
use super::writer::WriteTx;
use super::{SqliteStore, inbox, keys, messages};
use crate::StoreError;
use crate::budget::Budget;
use crate::columns::Columns;
use crate::engine::{
    Cell, Changes, Db, Delivery, Dialect, Engine, Failed, Look, Mark, Marked, NewLine, Read, Row, Tried, Tx, Value,
    Write,
};
use crate::error::Result;
use crate::known::KnownKeys;
use crate::outgoing::OutgoingMessage;
use crate::quota::{Account, Stored};
use crate::row::MessageRow;
use crate::types::{Agent, AgentKey, News, Written};
use crate::verbs::pair;

const DIALECT: Dialect = Dialect {
    group_key: "lower(name)",
    for_update: "",
    for_update_key: "",
    for_share: "",
    yes: "1",
    no: "0",
    task_id: "hex(t.public_id)",
    undelivered_task: "EXISTS (SELECT 1 FROM messages m WHERE m.id = t.message_id
                               AND NOT EXISTS (SELECT 1 FROM deliveries d WHERE d.message_id = m.id))",
};

impl ToSql for Value<'_> {
    fn to_sql(&self) -> rusqlite::Result<ToSqlOutput<'_>> {
        let integer = |it: Option<i64>| it.map_or(ValueRef::Null, ValueRef::Integer);
        Ok(ToSqlOutput::Borrowed(match self {
            Value::Int(it) => integer(*it),
            Value::Text(it) => it.map_or(ValueRef::Null, |it| ValueRef::Text(it.as_bytes())),
            Value::Id(it) => it.as_ref().map_or(ValueRef::Null, |it| ValueRef::Blob(it.as_bytes())),
            Value::Time(it) => integer(it.map(|it| it.as_microsecond())),
            Value::Flag(it) => integer(Some(i64::from(*it))),
            Value::Bytes(it) => ValueRef::Blob(it),
        }))
    }
}

fn cell(value: ValueRef<'_>) -> rusqlite::Result<Cell> {
    Ok(match value {
        ValueRef::Null => Cell::Null,
        ValueRef::Integer(it) => Cell::Int(it),
        ValueRef::Text(_) => Cell::Text(value.as_str()?.to_owned()),
        ValueRef::Blob(it) => Cell::Bytes(it.to_vec()),
        ValueRef::Real(it) => return Err(rusqlite::Error::IntegralValueOutOfRange(0, it as i64)),
    })
}

impl From<rusqlite::Error> for Failed {
    fn from(error: rusqlite::Error) -> Self {
        match is_taken(&error) {
            true => Failed::Taken(StoreError::internal(error)),
            false => Failed::Error(failed(error)),
        }
    }
}

/// Gives a statement its parameters. To SQLite `$1` is a name, so each is found by it.
fn bind(statement: &mut Statement<'_>, values: &[Value<'_>]) -> rusqlite::Result<()> {
    for index in 1..=statement.parameter_count() {
        let place: Option<usize> = statement.parameter_name(index).and_then(|name| name.get(1..)?.parse().ok());
        let value = place.and_then(|place| values.get(place.checked_sub(1)?));
        let value = value.ok_or(rusqlite::Error::InvalidParameterCount(values.len(), index))?;
        statement.raw_bind_parameter(index, value)?;
    }
    Ok(())
}

fn query(db: &Connection, sql: &str, values: &[Value<'_>]) -> Tried<Vec<Row>> {
    let mut statement = db.prepared(sql)?;
    bind(&mut statement, values)?;
    let columns = statement.column_count();
    let (mut rows, mut found) = (statement.raw_query(), Vec::new());
    while let Some(row) = rows.next()? {
        let cells = (0..columns).map(|column| row.get_ref(column).and_then(cell));
        found.push(Row::new(cells.collect::<rusqlite::Result<_>>()?));
    }
    Ok(found)
}

/// Lines of a transcript, whose row numbers hold their places.
fn lines(
    db: &Connection,
    transcript: i64,
    after: i64,
    newest_first: bool,
    limit: usize,
) -> Tried<Vec<(i64, String, String)>> {
    let Ok(after) = u32::try_from(after) else { return Ok(Vec::new()) };
    let order = if newest_first { "DESC" } else { "ASC" };
    let sql = format!(
        "SELECT l.id, l.line, a.name FROM transcript_lines l JOIN agents a ON a.id = l.author_id
         WHERE l.id > ?1 AND l.id <= ?2 ORDER BY l.id {order} LIMIT ?3"
    );
    let limit = i64::try_from(limit).unwrap_or(i64::MAX);
    let mut select = db.prepared(&sql)?;
    let (_, last) = keys::range(transcript);
    let mut rows = select.query([keys::row(transcript, after.into()), last, limit])?;
    let (mut found, mut budget) = (Vec::new(), Budget::page());
    while let Some(row) = rows.next()? {
        let line: String = row.get(1)?;
        if !budget.takes(line.len()) {
            break;
        }
        found.push((keys::place_of(row.get(0)?), line, row.get(2)?));
    }
    Ok(found)
}

#[async_trait]
impl Db for Connection {
    async fn query(&mut self, sql: &str, values: &[Value<'_>]) -> Tried<Vec<Row>> {
        query(self, sql, values)
    }

    fn dialect(&self) -> Dialect {
        DIALECT
    }

    async fn lines(
        &mut self,
        transcript: i64,
        after: i64,
        newest_first: bool,
        limit: usize,
    ) -> Tried<Vec<(i64, String, String)>> {
        lines(self, transcript, after, newest_first, limit)
    }

    async fn history(&mut self, caller: &Agent, session: Uuid, page: &HistoryPage) -> Tried<(History, Vec<Delivery>)> {
        Ok(inbox::history(self, caller, session, page)?)
    }
}

#[async_trait]
impl Db for WriteTx {
    async fn query(&mut self, sql: &str, values: &[Value<'_>]) -> Tried<Vec<Row>> {
        query(&self.db, sql, values)
    }

    fn dialect(&self) -> Dialect {
        DIALECT
    }

    async fn lines(
        &mut self,
        transcript: i64,
        after: i64,
        newest_first: bool,
        limit: usize,
    ) -> Tried<Vec<(i64, String, String)>> {
        lines(&self.db, transcript, after, newest_first, limit)
    }

    async fn history(&mut self, caller: &Agent, session: Uuid, page: &HistoryPage) -> Tried<(History, Vec<Delivery>)> {
        Ok(inbox::history(&self.db, caller, session, page)?)
    }
}

#[async_trait]
impl Tx for WriteTx {
    async fn execute(&mut self, sql: &str, values: &[Value<'_>]) -> Tried<u64> {
        let mut statement = self.db.prepared(sql)?;
        bind(&mut statement, values)?;
        Ok(statement.raw_execute()? as u64)
    }

    async fn insert(&mut self, sql: &str, values: &[Value<'_>]) -> Tried<i64> {
        self.execute(sql, values).await?;
        Ok(self.db.last_insert_rowid())
    }

    // There is one writer, so nothing has to be locked.

    async fn lock(&mut self, _: &[i64]) -> Tried<()> {
        Ok(())
    }

    fn holds(&self, _: i64) -> bool {
        true
    }

    async fn lock_names(&mut self) -> Tried<()> {
        Ok(())
    }

    async fn lock_founding(&mut self) -> Tried<()> {
        Ok(())
    }

    async fn lock_key(&mut self, _: i64, _: &str) -> Tried<()> {
        Ok(())
    }

    async fn tell(&mut self, agent: i64, event: Event, now: Timestamp) -> Tried<()> {
        let news = self.append_event(agent, event, now)?;
        self.news.push(news);
        Ok(())
    }

    fn stamp(&mut self, at: Timestamp) -> Timestamp {
        self.newest.stamp(at)
    }

    async fn post(&mut self, session: i64, message: Columns<'_>, to: i64) -> Tried<Option<(AgentKey, u64)>> {
        let (_, copies) = self.append_message(session, message, &[to])?;
        Ok(copies.first().copied())
    }

    async fn send_message(&mut self, caller: &Agent, message: OutgoingMessage) -> Tried<()> {
        if let super::send::Outcome::Placed(placed) = self.send(caller, message)? {
            let (message, placed) = *placed;
            self.news.extend(message.into_written(placed).news);
        }
        Ok(())
    }

    fn put_news(&mut self, news: News) {
        self.news.push(news);
    }

    async fn flush(&mut self) -> Tried<()> {
        Ok(())
    }

    async fn send_all(&mut self, caller: &Agent, to: &[AgentName], draft: &Draft, now: Timestamp) -> Tried<Vec<Sent>> {
        let sent = WriteTx::send_all(self, caller, to, draft, now)?;
        let written = Written::gather(sent.into_iter().map(|(message, placed)| message.into_written(placed)));
        self.news.extend(written.news);
        Ok(written.answer)
    }

    async fn open_mailbox(&mut self, _: i64) -> Tried<()> {
        Ok(())
    }

    async fn seen(&mut self, agents: &[AgentKey], here: bool, now: Timestamp) -> Tried<()> {
        for agent in agents {
            self.db
                .prepared(
                    "INSERT INTO presence (agent_id, last_seen, here) VALUES (?1, ?2, ?3)
                     ON CONFLICT (agent_id) DO UPDATE SET last_seen = max(last_seen, excluded.last_seen),
                                                          here = excluded.here",
                )?
                .execute(params![agent.0, now.as_microsecond(), here])?;
        }
        Ok(())
    }

    async fn last_line(&mut self, transcript: i64) -> Tried<i64> {
        let (first, last) = keys::range(transcript);
        let newest: Option<i64> = self
            .db
            .prepared("SELECT max(id) FROM transcript_lines WHERE id BETWEEN ?1 AND ?2")?
            .query_row([first, last], |row| row.get(0))?;
        Ok(newest.map_or(0, keys::place_of))
    }

    async fn find_line(&mut self, transcript: i64, message_id: &str) -> Tried<Option<i64>> {
        let known: Option<i64> = self
            .db
            .prepared("SELECT id FROM transcript_lines WHERE transcript_id = ?1 AND message_id = ?2")?
            .query_row(params![transcript, message_id], |row| row.get(0))
            .optional()?;
        Ok(known.map(keys::place_of))
    }

    async fn add_line(&mut self, line: NewLine<'_>) -> Tried<()> {
        let NewLine { transcript, place, author, message_id, text, now } = line;
        self.db
            .prepared(
                "INSERT INTO transcript_lines (id, transcript_id, author_id, message_id, line, created_at)
                 VALUES (?1, ?2, ?3, ?4, ?5, ?6)",
            )?
            .execute(params![
                keys::row(transcript, place),
                transcript,
                author,
                message_id,
                text,
                now.as_microsecond()
            ])?;
        Ok(())
    }

    async fn deliveries(&mut self, agent: i64, ids: &[Uuid]) -> Tried<HashMap<Uuid, Delivery>> {
        WriteTx::deliveries(self, agent, ids)
    }

    async fn undelivered(&mut self, agent: i64, after: u64, up_to: u64, limit: usize) -> Tried<Vec<(u64, Delivery)>> {
        WriteTx::undelivered(self, agent, after, up_to, limit)
    }

    async fn mark(&mut self, agent: i64, places: &[i64], mark: Mark, now: Timestamp) -> Tried<Vec<Marked>> {
        WriteTx::mark(self, agent, places, mark, now)
    }

    async fn lock_claims(&mut self, _: i64) -> Tried<()> {
        Ok(())
    }

    async fn unclaimed(
        &mut self,
        agent: i64,
        now: Timestamp,
        limit: usize,
        urgent_first: bool,
    ) -> Tried<Vec<(Delivery, usize)>> {
        WriteTx::unclaimed(self, agent, now, limit, urgent_first)
    }

    async fn hold(
        &mut self,
        agent: i64,
        places: &[i64],
        until: Option<Timestamp>,
        held_at: Option<Timestamp>,
    ) -> Tried<Vec<i64>> {
        WriteTx::hold(self, agent, places, until, held_at)
    }

    async fn delivered_messages(&mut self, agent: i64, places: &[i64]) -> Tried<HashMap<i64, MessageRow>> {
        let row = |place: &i64| Ok((*place, messages::delivered_message(&self.db, *place, agent)?));
        places.iter().map(row).collect()
    }

    async fn check_quota(&mut self, sender: i64, more: Stored) -> Tried<()> {
        Ok(WriteTx::check_quota(self, sender, more)?)
    }

    async fn charge(&mut self, agent: i64, more: Stored) -> Tried<()> {
        Ok(WriteTx::charge(self, agent, more)?)
    }

    fn connection_changed(&mut self, a: i64, b: i64) {
        self.caches.consent.remove(&pair(a, b));
    }

    fn household_changed(&mut self) {
        self.caches.consent.clear();
    }

    fn card_changed(&mut self, name: &AgentName) {
        self.caches.peers.remove(name);
    }

    async fn key_ended(&mut self, _: AgentKey) -> Tried<()> {
        self.ended_key = true;
        Ok(())
    }
}

/// The answer of a verb that does not wait.
pub(super) fn now<T>(verb: BoxFuture<'_, Tried<T>>) -> Result<T> {
    match verb.now_or_never() {
        Some(answer) => Ok(answer?),
        None => Err(StoreError::internal("a verb waited in a transaction of SQLite")),
    }
}

#[async_trait]
impl Engine for SqliteStore {
    async fn write(&self, changes: Changes, mut verb: Write) -> Result<Vec<News>> {
        let run = move |tx: &mut WriteTx| {
            tx.news.clear();
            now(verb(tx))?;
            Ok(std::mem::take(&mut tx.news))
        };
        match changes {
            Changes::All => self.writer()?.write(run).await,
            Changes::Logs => self.writer()?.write_own(run).await,
        }
    }

    async fn read(&self, look: Look, mut verb: Read) -> Result<()> {
        match look {
            Look::Short => self.readers().look(move |db| now(verb(db))).await,
            Look::Long => self.readers().read(move |db| now(verb(db))).await,
        }
    }

    fn account(&self) -> &Account {
        &self.account
    }

    fn known_keys(&self) -> &KnownKeys {
        &self.known
    }
}
