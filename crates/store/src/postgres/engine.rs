//! PostgreSQL as the verbs use it: one transaction a verb, tried again when another was in its way, and never waited for
//! without an end.

use std::collections::HashMap;

use amb_core::doc::{History, Sent};
use amb_core::mailbox::HistoryPage;
use amb_core::{AgentName, Draft, Event, Timestamp};
use async_trait::async_trait;
use deadpool_postgres::{GenericClient, Transaction};
use tokio_postgres::types::private::BytesMut;
use tokio_postgres::types::{IsNull, ToSql, Type, to_sql_checked};
use uuid::Uuid;

use super::batch::{self, Outcome};
use super::error::unavailable;
use super::page::rows_of_page;
use super::transact::{InUse, PATIENCE, TRIES};
use super::write::{Heads, Pages, To};
use super::{PostgresStore, deliveries, groups, inbox, replicas, usage};
use crate::columns::Columns;
use crate::engine::{
    Cell, Changes, Db, Delivery, Dialect, Engine, Failed, Look, Mark, Marked, NewLine, Query, Read, Row, Tried, Tx,
    Value, Write,
};
use crate::error::Result;
use crate::known::KnownKeys;
use crate::outgoing::OutgoingMessage;
use crate::quota::{Account, Stored};
use crate::refusals;
use crate::row::MessageRow;
use crate::types::{Agent, AgentKey, News, Written};

const DIALECT: Dialect = Dialect {
    group_key: r#"lower(name COLLATE "C")"#,
    for_update: " FOR NO KEY UPDATE",
    for_update_key: " FOR UPDATE",
    for_share: " FOR SHARE",
    yes: "TRUE",
    no: "FALSE",
    task_id: "t.public_id::text",
    undelivered_task: "EXISTS (SELECT FROM messages m WHERE m.public_id = t.message_public_id
                               AND m.delivery_number IS NULL)",
};

/// Of two processes that start at once on an empty database, one founds the household. Any fixed number will do.
const FOUNDING: i64 = 0x616d_625f_686f_6d65;

impl ToSql for Value<'_> {
    fn to_sql(&self, ty: &Type, out: &mut BytesMut) -> Result<IsNull, Box<dyn std::error::Error + Sync + Send>> {
        match self {
            Value::Int(it) => it.to_sql_checked(ty, out),
            Value::Text(it) => it.to_sql_checked(ty, out),
            Value::Id(it) => it.to_sql_checked(ty, out),
            Value::Time(it) => it.to_sql_checked(ty, out),
            Value::Flag(it) => it.to_sql_checked(ty, out),
            Value::Bytes(it) => it.to_sql_checked(ty, out),
        }
    }

    fn accepts(_: &Type) -> bool {
        // Each value says itself what it can be.
        true
    }

    to_sql_checked!();
}

fn cells(row: &tokio_postgres::Row) -> Tried<Row> {
    let mut cells = Vec::with_capacity(row.len());
    for (index, column) in row.columns().iter().enumerate() {
        cells.push(match *column.type_() {
            Type::INT8 => row.try_get::<_, Option<i64>>(index)?.map(Cell::Int),
            Type::INT4 => row.try_get::<_, Option<i32>>(index)?.map(|it| Cell::Int(it.into())),
            Type::INT2 => row.try_get::<_, Option<i16>>(index)?.map(|it| Cell::Int(it.into())),
            Type::BOOL => row.try_get::<_, Option<bool>>(index)?.map(Cell::Flag),
            Type::UUID => row.try_get::<_, Option<Uuid>>(index)?.map(Cell::Id),
            Type::TIMESTAMPTZ => row.try_get::<_, Option<Timestamp>>(index)?.map(Cell::Time),
            Type::BYTEA => row.try_get::<_, Option<Vec<u8>>>(index)?.map(Cell::Bytes),
            _ => row.try_get::<_, Option<String>>(index)?.map(Cell::Text),
        });
    }
    Ok(Row::new(cells.into_iter().map(Option::unwrap_or_default).collect()))
}

async fn query<C: GenericClient>(client: &C, sql: &str, values: &[Value<'_>]) -> Tried<Vec<Row>> {
    let statement = client.prepare_cached(sql).await?;
    let values: Vec<&(dyn ToSql + Sync)> = values.iter().map(|value| value as &(dyn ToSql + Sync)).collect();
    client.query(&statement, &values).await?.iter().map(cells).collect()
}

async fn lines<C: GenericClient>(
    client: &C,
    transcript: i64,
    after: i64,
    newest_first: bool,
    limit: usize,
) -> Tried<Vec<(i64, String, String)>> {
    let order = if newest_first { "DESC" } else { "ASC" };
    let sql = format!(
        "SELECT l.seq, l.line, a.name FROM transcript_lines l JOIN agents a ON a.id = l.author_id
         WHERE l.transcript_id = $1 AND l.seq > $2 ORDER BY l.seq {order} LIMIT $3"
    );
    let (select, limit) = (client.prepare_cached(&sql).await?, i64::try_from(limit).unwrap_or(i64::MAX));
    let (rows, _) = rows_of_page(client, &select, &[&transcript, &after, &limit], &[]).await?;
    rows.iter().map(|row| Ok((row.try_get(0)?, row.try_get(1)?, row.try_get(2)?))).collect()
}

/// A connection that a verb reads on.
pub(super) struct Reading<'a, C>(pub(super) &'a C);

#[async_trait]
impl<C: GenericClient + Sync> Db for Reading<'_, C> {
    async fn query(&mut self, sql: &str, values: &[Value<'_>]) -> Tried<Vec<Row>> {
        query(self.0, sql, values).await
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
        lines(self.0, transcript, after, newest_first, limit).await
    }

    async fn history(&mut self, caller: &Agent, session: Uuid, page: &HistoryPage) -> Tried<(History, Vec<Delivery>)> {
        Ok(inbox::history(self.0, caller, session, page).await?)
    }
}

/// The transaction of a verb.
struct PgTx<'a> {
    tx: Transaction<'a>,
    account: &'a Account,
    /// The mailboxes that are locked.
    heads: Heads,
    /// What logs and sessions get; written by [`Tx::flush`].
    pages: Pages,
    news: Vec<News>,
    /// What was charged to agents so far.
    charged: Stored,
}

impl PgTx<'_> {
    /// Returns what was put into logs.
    async fn commit(mut self) -> Tried<Vec<News>> {
        self.flush().await?;
        self.tx.commit().await?;
        self.account.add_to_office(self.charged);
        Ok(self.news)
    }
}

#[async_trait]
impl Db for PgTx<'_> {
    async fn query(&mut self, sql: &str, values: &[Value<'_>]) -> Tried<Vec<Row>> {
        query(&self.tx, sql, values).await
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
        lines(&self.tx, transcript, after, newest_first, limit).await
    }

    async fn history(&mut self, caller: &Agent, session: Uuid, page: &HistoryPage) -> Tried<(History, Vec<Delivery>)> {
        Ok(inbox::history(&self.tx, caller, session, page).await?)
    }
}

#[async_trait]
impl Tx for PgTx<'_> {
    async fn execute(&mut self, sql: &str, values: &[Value<'_>]) -> Tried<u64> {
        let statement = self.tx.prepare_cached(sql).await?;
        let values: Vec<&(dyn ToSql + Sync)> = values.iter().map(|value| value as &(dyn ToSql + Sync)).collect();
        Ok(self.tx.execute(&statement, &values).await?)
    }

    async fn insert(&mut self, sql: &str, values: &[Value<'_>]) -> Tried<i64> {
        let (id,) = self.one(&format!("{sql} RETURNING id"), values).await?;
        Ok(id)
    }

    async fn lock(&mut self, agents: &[i64]) -> Tried<()> {
        let heads = Heads::lock(&self.tx, agents).await?;
        self.heads.add(heads);
        Ok(())
    }

    fn holds(&self, agent: i64) -> bool {
        self.heads.holds(agent)
    }

    async fn lock_names(&mut self) -> Tried<()> {
        self.execute("SELECT pg_advisory_xact_lock(7461627)", &[]).await.map(drop)
    }

    async fn lock_founding(&mut self) -> Tried<()> {
        self.execute("SELECT pg_advisory_xact_lock($1)", &[FOUNDING.into()]).await.map(drop)
    }

    async fn lock_key(&mut self, agent: i64, key: &str) -> Tried<()> {
        let sql = "SELECT pg_advisory_xact_lock(hashtextextended($2, $1))";
        self.execute(sql, &[agent.into(), key.into()]).await.map(drop)
    }

    async fn tell(&mut self, agent: i64, event: Event, now: Timestamp) -> Tried<()> {
        let news = self.pages.tell(&mut self.heads, agent, event, now)?;
        self.news.extend(news);
        Ok(())
    }

    fn stamp(&mut self, at: Timestamp) -> Timestamp {
        // The statement that writes it does this.
        at
    }

    async fn post(&mut self, session: i64, message: Columns<'_>, to: i64) -> Tried<Option<(AgentKey, u64)>> {
        Ok(self.pages.post(&mut self.heads, session, message, To::One(to)).first().copied())
    }

    async fn send_message(&mut self, caller: &Agent, message: OutgoingMessage) -> Tried<()> {
        let to = message.to.clone();
        match batch::write_in(&self.tx, self.account, &[(caller.clone(), message)]).await?.pop() {
            Some(Ok(Outcome::Placed(placed))) => {
                let (message, placed) = *placed;
                self.news.extend(message.into_written(placed).news);
                Ok(())
            }
            Some(Err(error)) => Err(error.into()),
            _ => Err(refusals::not_connected(&to).into()),
        }
    }

    fn put_news(&mut self, news: News) {
        self.news.push(news);
    }

    async fn flush(&mut self) -> Tried<()> {
        let pages = std::mem::take(&mut self.pages);
        pages.write(&self.tx).await?.correct(&mut self.news);
        self.charged += pages.charged();
        Ok(())
    }

    async fn send_all(&mut self, caller: &Agent, to: &[AgentName], draft: &Draft, now: Timestamp) -> Tried<Vec<Sent>> {
        let sent = groups::send_all(&self.tx, self.account, caller, to, draft, now).await?;
        let written = Written::gather(sent.into_iter().map(|(message, placed)| message.into_written(placed)));
        self.news.extend(written.news);
        Ok(written.answer)
    }

    async fn open_mailbox(&mut self, agent: i64) -> Tried<()> {
        self.execute("INSERT INTO mailboxes (agent_id) VALUES ($1)", &[agent.into()]).await.map(drop)
    }

    async fn seen(&mut self, agents: &[AgentKey], here: bool, now: Timestamp) -> Tried<()> {
        // In one order, so that two processes that say so at once do not wait for each other.
        let mut agents: Vec<i64> = agents.iter().map(|agent| agent.0).collect();
        agents.sort_unstable();
        agents.dedup();
        let insert = self
            .tx
            .prepare_cached(
                "INSERT INTO presence (agent_id, last_seen, here) SELECT unnest($1::bigint[]), $2, $3
                 ON CONFLICT (agent_id) DO UPDATE SET last_seen = greatest(presence.last_seen, excluded.last_seen),
                                                      here = excluded.here",
            )
            .await?;
        self.tx.execute(&insert, &[&agents, &now, &here]).await?;
        Ok(())
    }

    async fn last_line(&mut self, transcript: i64) -> Tried<i64> {
        // The transcript's own row is its lock: places are given and duplicates found under it.
        let lock = self.tx.prepare_cached("SELECT last_seq FROM transcripts WHERE id = $1 FOR NO KEY UPDATE").await?;
        Ok(self.tx.query_one(&lock, &[&transcript]).await?.try_get(0)?)
    }

    async fn find_line(&mut self, transcript: i64, message_id: &str) -> Tried<Option<i64>> {
        let sql = "SELECT seq FROM transcript_lines WHERE transcript_id = $1 AND message_id = $2";
        let select = self.tx.prepare_cached(sql).await?;
        let row = self.tx.query_opt(&select, &[&transcript, &message_id]).await?;
        Ok(row.map(|row| row.try_get(0)).transpose()?)
    }

    async fn add_line(&mut self, line: NewLine<'_>) -> Tried<()> {
        let NewLine { transcript, place, author, message_id, text, now } = line;
        let sql = "INSERT INTO transcript_lines (transcript_id, seq, author_id, message_id, line, created_at)
                   VALUES ($1, $2, $3, $4, $5, $6)";
        let values = [transcript.into(), place.into(), author.into(), message_id.into(), text.into(), now.into()];
        self.execute(sql, &values).await?;
        let sql = "UPDATE transcripts SET last_seq = $2 WHERE id = $1";
        self.execute(sql, &[transcript.into(), place.into()]).await.map(drop)
    }

    async fn deliveries(&mut self, agent: i64, ids: &[Uuid]) -> Tried<HashMap<Uuid, Delivery>> {
        deliveries::deliveries(&self.tx, agent, ids).await
    }

    async fn undelivered(&mut self, agent: i64, after: u64, up_to: u64, limit: usize) -> Tried<Vec<(u64, Delivery)>> {
        deliveries::undelivered(&self.tx, agent, after, up_to, limit).await
    }

    async fn mark(&mut self, agent: i64, places: &[i64], mark: Mark, now: Timestamp) -> Tried<Vec<Marked>> {
        deliveries::mark(&self.tx, agent, places, mark, now).await
    }

    async fn lock_claims(&mut self, agent: i64) -> Tried<()> {
        deliveries::lock_claims(&self.tx, agent).await
    }

    async fn unclaimed(
        &mut self,
        agent: i64,
        now: Timestamp,
        limit: usize,
        urgent_first: bool,
    ) -> Tried<Vec<(Delivery, usize)>> {
        deliveries::unclaimed(&self.tx, agent, now, limit, urgent_first).await
    }

    async fn hold(
        &mut self,
        agent: i64,
        places: &[i64],
        until: Option<Timestamp>,
        held_at: Option<Timestamp>,
    ) -> Tried<Vec<i64>> {
        deliveries::hold(&self.tx, agent, places, until, held_at).await
    }

    async fn delivered_messages(&mut self, agent: i64, places: &[i64]) -> Tried<HashMap<i64, MessageRow>> {
        deliveries::messages(&self.tx, agent, places).await
    }

    async fn check_quota(&mut self, sender: i64, more: Stored) -> Tried<()> {
        usage::check(&self.tx, self.account, sender, more).await
    }

    async fn charge(&mut self, agent: i64, more: Stored) -> Tried<()> {
        self.charged += more;
        usage::charge(&self.tx, agent, more).await
    }

    // Nothing is remembered here that others could change.

    fn connection_changed(&mut self, _: i64, _: i64) {}

    fn household_changed(&mut self) {}

    fn card_changed(&mut self, _: &AgentName) {}

    async fn key_ended(&mut self, agent: AgentKey) -> Tried<()> {
        replicas::keys_end(&self.tx, agent).await
    }
}

#[async_trait]
impl Engine for PostgresStore {
    async fn write(&self, _: Changes, mut verb: Write) -> Result<Vec<News>> {
        let mut tries = 0;
        loop {
            tries += 1;
            let mut client = InUse::new(self.client().await?);
            let attempt = async {
                let mut tx = PgTx {
                    tx: client.transaction().await?,
                    account: &self.account,
                    heads: Heads::default(),
                    pages: Pages::default(),
                    news: Vec::new(),
                    charged: Stored::default(),
                };
                verb(&mut tx).await?;
                tx.commit().await
            };
            let Ok(outcome) = tokio::time::timeout(PATIENCE, attempt).await else { return Err(unavailable()) };
            client.finished();
            match outcome {
                Err(Failed::Retry(_)) if tries < TRIES => {}
                outcome => {
                    let news = outcome?;
                    self.note_mail(&news);
                    return Ok(news);
                }
            }
        }
    }

    async fn read(&self, _: Look, mut verb: Read) -> Result<()> {
        let client = InUse::new(self.client().await?);
        let Ok(seen) = tokio::time::timeout(PATIENCE, verb(&mut Reading(&*client))).await else {
            return Err(unavailable());
        };
        client.finished();
        Ok(seen?)
    }

    fn account(&self) -> &Account {
        &self.account
    }

    fn known_keys(&self) -> &KnownKeys {
        &self.known
    }
}
