//! PostgreSQL as the verbs use it: one transaction a verb, retried after a conflict with another, with a timeout.

use amb_core::doc::Sent;
use amb_core::send::Storage;
use amb_core::{AgentName, Draft, Event, Timestamp};
use async_trait::async_trait;
use deadpool_postgres::{GenericClient, Transaction};
use futures_util::TryStreamExt;
use tokio_postgres::types::private::BytesMut;
use tokio_postgres::types::{IsNull, ToSql, Type, to_sql_checked};
use uuid::Uuid;

use super::batch::{self, Outcome};
use super::error::{failed, unavailable};
use super::transact::{InUse, PATIENCE, transact};
use super::write::{Heads, Pages, To};
use super::{PostgresStore, deliveries, groups, replicas};
use crate::columns::{Addressee, Columns};
use crate::engine::{
    Cell, Cells, Changes, Db, Dialect, Engine, Exclusive, Failed, Look, Mark, Marked, NewLine, POSTGRES, Query, Read,
    Row, Tried, Tx, Value, Visit, Write, values,
};
use crate::error::Result;
use crate::known::KnownKeys;
use crate::outgoing::OutgoingMessage;
use crate::quota::{Account, Stored};
use crate::refusals;
use crate::types::{Agent, AgentKey, LogEntry, Written};
use crate::verbs::stored_by;

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
            Value::Ints(it) => it.to_sql_checked(ty, out),
            Value::Ids(it) => it.to_sql_checked(ty, out),
        }
    }

    fn accepts(_: &Type) -> bool {
        // Each value says itself what it can be.
        true
    }

    to_sql_checked!();
}

impl Cells for tokio_postgres::Row {
    fn cell(&self, index: usize) -> Result<Cell> {
        let kind = self.columns().get(index).map(|column| column.type_().clone());
        let cell = match kind.unwrap_or(Type::TEXT) {
            Type::INT8 => self.try_get::<_, Option<i64>>(index).map(|it| it.map(Cell::Int)),
            Type::INT4 => self.try_get::<_, Option<i32>>(index).map(|it| it.map(|it| Cell::Int(it.into()))),
            Type::INT2 => self.try_get::<_, Option<i16>>(index).map(|it| it.map(|it| Cell::Int(it.into()))),
            Type::BOOL => self.try_get::<_, Option<bool>>(index).map(|it| it.map(Cell::Flag)),
            Type::UUID => self.try_get::<_, Option<Uuid>>(index).map(|it| it.map(Cell::Id)),
            Type::TIMESTAMPTZ => self.try_get::<_, Option<Timestamp>>(index).map(|it| it.map(Cell::Time)),
            Type::BYTEA => self.try_get::<_, Option<Vec<u8>>>(index).map(|it| it.map(Cell::Bytes)),
            _ => self.try_get::<_, Option<String>>(index).map(|it| it.map(Cell::Text)),
        };
        Ok(cell.map_err(failed)?.unwrap_or(Cell::Null))
    }
}

async fn each<C: GenericClient>(client: &C, sql: &str, values: &[Value<'_>], visit: Visit<'_>) -> Tried<()> {
    let statement = client.prepare_cached(sql).await?;
    let values = values.iter().map(|value| value as &(dyn ToSql + Sync));
    let mut rows = std::pin::pin!(client.query_raw(&statement, values).await?);
    while let Some(row) = rows.try_next().await? {
        if !visit(Row::new(&row))? {
            break;
        }
    }
    Ok(())
}

/// A connection that a verb reads on.
pub(super) struct Reading<'a, C>(pub(super) &'a C);

#[async_trait]
impl<C: GenericClient + Sync> Db for Reading<'_, C> {
    async fn each(&mut self, sql: &str, values: &[Value<'_>], visit: Visit<'_>) -> Tried<()> {
        each(self.0, sql, values, visit).await
    }

    fn dialect(&self) -> &'static Dialect {
        &POSTGRES
    }
}

/// The transaction of a verb.
struct PgTx<'a> {
    tx: &'a Transaction<'a>,
    account: &'a Account,
    /// The mailboxes that are locked.
    heads: Heads,
    /// What logs and sessions get; written by [`Tx::flush`].
    pages: Pages,
    entries: Vec<LogEntry>,
    /// What was charged to agents so far.
    charged: Stored,
}

#[async_trait]
impl Db for PgTx<'_> {
    async fn each(&mut self, sql: &str, values: &[Value<'_>], visit: Visit<'_>) -> Tried<()> {
        each(self.tx, sql, values, visit).await
    }

    fn dialect(&self) -> &'static Dialect {
        &POSTGRES
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
        let heads = Heads::lock(self.tx, agents).await?;
        self.heads.add(heads);
        Ok(())
    }

    fn holds(&self, agent: i64) -> bool {
        self.heads.holds(agent)
    }

    async fn lock_exclusive(&mut self, what: Exclusive<'_>) -> Tried<()> {
        let locked = match what {
            Exclusive::Names => self.execute("SELECT pg_advisory_xact_lock(7461627)", &[]).await,
            Exclusive::Founding => self.execute("SELECT pg_advisory_xact_lock($1)", values![FOUNDING]).await,
            Exclusive::Key(agent, key) => {
                let sql = "SELECT pg_advisory_xact_lock(hashtextextended($2, $1))";
                self.execute(sql, values![agent, key]).await
            }
            Exclusive::Claims(agent) => {
                let sql = "SELECT pg_advisory_xact_lock(7461628, ($1::bigint % 2147483647)::int)";
                self.execute(sql, values![agent]).await
            }
        };
        locked.map(drop)
    }

    async fn tell(&mut self, agent: i64, event: Event, now: Timestamp) -> Tried<u64> {
        let told = self.pages.tell(&mut self.heads, agent, event, now)?;
        let number = told.as_ref().and_then(|one| one.entry.cursor.as_number()).unwrap_or(0);
        self.entries.extend(told);
        Ok(number)
    }

    fn stamp(&mut self, at: Timestamp) -> Timestamp {
        // The statement that writes it does this.
        at
    }

    async fn post(&mut self, session: i64, message: Columns<'_>, to: Addressee) -> Tried<Option<u64>> {
        let copies = self.pages.post(&mut self.heads, session, message, To::One(to));
        Ok(copies.first().map(|(_, number)| *number))
    }

    async fn send_message(&mut self, caller: &Agent, message: OutgoingMessage) -> Tried<()> {
        let to = message.to.clone();
        match batch::write_in(self.tx, self.account, &[(caller.clone(), message)]).await?.pop() {
            Some(Ok(Outcome::Placed(placed))) => {
                let (message, placed) = *placed;
                self.entries.extend(message.into_written(placed).entries);
                Ok(())
            }
            Some(Err(error)) => Err(error.into()),
            _ => Err(refusals::not_connected(&to).into()),
        }
    }

    fn put_entry(&mut self, entry: LogEntry) {
        self.entries.push(entry);
    }

    async fn flush(&mut self) -> Tried<()> {
        let pages = std::mem::take(&mut self.pages);
        pages.write(self.tx).await?.correct(&mut self.entries);
        self.charged += pages.charged();
        Ok(())
    }

    async fn send_all(&mut self, caller: &Agent, to: &[AgentName], draft: &Draft, now: Timestamp) -> Tried<Vec<Sent>> {
        let sent = groups::send_all(self.tx, self.account, caller, to, draft, now).await?;
        let written = Written::gather(sent.into_iter().map(|(message, placed)| message.into_written(placed)));
        self.entries.extend(written.entries);
        Ok(written.answer)
    }

    async fn open_mailbox(&mut self, agent: i64) -> Tried<()> {
        self.execute("INSERT INTO mailboxes (agent_id) VALUES ($1)", &[agent.into()]).await.map(drop)
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

    async fn mark(&mut self, agent: i64, places: &[i64], mark: Mark, now: Timestamp) -> Tried<Vec<Marked>> {
        let sql = match mark {
            Mark::Delivered => deliveries::DELIVERED,
            Mark::Rung => deliveries::RUNG,
            Mark::Read => deliveries::READ,
        };
        self.rows(sql, values![agent, places, now]).await
    }

    async fn check_quota(&mut self, sender: i64, more: Stored) -> Tried<()> {
        // Not locked: of sends that run at the same time none sees what the others add.
        let stored = stored_by(self, sender).await?;
        let Storage { quotas, sender, office, more } = self.account.storage(stored, Stored::default(), more);
        Ok(quotas.check(sender, office, more)?)
    }

    async fn charge(&mut self, agent: i64, more: Stored) -> Tried<()> {
        self.charged += more;
        let sql = "INSERT INTO usage AS u (agent_id, messages, bytes) VALUES ($1, $2, $3)
                   ON CONFLICT (agent_id) DO UPDATE SET messages = u.messages + excluded.messages,
                                                        bytes = u.bytes + excluded.bytes";
        self.execute(sql, values![agent, more.messages, more.bytes]).await.map(drop)
    }

    // Nothing is remembered here that others could change.

    fn connection_changed(&mut self, _: i64, _: i64) {}

    fn household_changed(&mut self) {}

    fn session_changed(&mut self, _: i64) {}

    fn card_changed(&mut self, _: &AgentName) {}

    async fn key_ended(&mut self, agent: AgentKey) -> Tried<()> {
        replicas::keys_end(self.tx, agent).await
    }
}

#[async_trait]
impl Engine for PostgresStore {
    async fn write(&self, _: Changes, mut verb: Write) -> Result<Vec<LogEntry>> {
        let (entries, charged) = transact!(self, tx => async {
            let mut tx = PgTx {
                tx: &tx,
                account: &self.account,
                heads: Heads::default(),
                pages: Pages::default(),
                entries: Vec::new(),
                charged: Stored::default(),
            };
            verb(&mut tx).await?;
            tx.flush().await?;
            Ok::<_, Failed>((tx.entries, tx.charged))
        })?;
        self.account.add_to_office(charged);
        self.note_mail(&entries);
        Ok(entries)
    }

    async fn read(&self, _: Look, mut verb: Read) -> Result<()> {
        let client = InUse::new(self.client().await?);
        let Ok(seen) = tokio::time::timeout(PATIENCE, verb(&mut Reading(&*client))).await else {
            return Err(unavailable());
        };
        client.finished();
        Ok(seen?)
    }

    async fn send_message(&self, caller: &Agent, message: OutgoingMessage) -> Result<Written<Sent>> {
        let outcome = match self.queue.send(caller.clone(), message).await? {
            Outcome::NoAgent(message) => {
                transact!(self, tx => groups::send(&tx, &self.account, caller, &message, None))?
            }
            outcome => outcome,
        };
        Ok(match outcome {
            Outcome::Repeat(sent) => Written::quiet(sent),
            Outcome::NoAgent(message) => return Err(refusals::not_connected(&message.to)),
            Outcome::Placed(placed) => {
                let (message, placed) = *placed;
                let written = message.into_written(placed);
                self.note_mail(&written.entries);
                written
            }
        })
    }

    fn account(&self) -> &Account {
        &self.account
    }

    fn known_keys(&self) -> &KnownKeys {
        &self.known
    }
}
