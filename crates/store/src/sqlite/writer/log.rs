//! The log of a mailbox: appending to it, and reading it. Its numbers are shared by `deliveries` and `events`.

use amb_core::{Entry, Event, Timestamp};
use futures_util::FutureExt;
use rusqlite::{Connection, params};
use uuid::Uuid;

use crate::columns::{Addressee, Columns};
use crate::error::Result;
use crate::outgoing::json;
use crate::replicas::{ListenerState, StaleListener};
use crate::sqlite::engine::run;
use crate::sqlite::error::failed;
use crate::sqlite::plans::Prepared;
use crate::sqlite::writer::WriteTx;
use crate::types::{AgentKey, LogEntry, log_number};
use crate::verbs::{by_key, has_entry_after, log_head};

impl WriteTx {
    /// The number that the next entry of an agent's log gets. Remembered as given only when its row is written
    /// ([`WriteTx::number_given`]): a row that is refused leaves no gap.
    fn next_number(&mut self, agent: i64) -> Result<i64> {
        match self.caches.heads.get(&agent) {
            Some(head) => Ok(head + 1),
            None => Ok(i64::try_from(run(log_head(&mut self.db, agent).boxed())?).unwrap_or(i64::MAX - 1) + 1),
        }
    }

    /// The row with this number is written.
    fn number_given(&mut self, agent: i64, number: i64) {
        self.caches.heads.insert(agent, number);
    }

    /// Appends an event other than mail to an agent's log.
    pub(in crate::sqlite) fn append_event(&mut self, agent: i64, event: Event, now: Timestamp) -> Result<LogEntry> {
        let number = self.next_number(agent)?;
        self.changed.agent(agent);
        self.db
            .prepared("INSERT INTO events (agent_id, number, event, at) VALUES (?1, ?2, ?3, ?4)")
            .map_err(failed)?
            .execute(params![agent, number, json(&event)?, now.as_microsecond()])
            .map_err(failed)?;
        self.number_given(agent, number);
        Ok(LogEntry { agent: AgentKey(agent), entry: Entry { event, cursor: log_number(number).into() } })
    }

    /// Appends a message to its session and to the logs of its recipients, and counts it as unread there. Without
    /// recipients it stays in the session, and no log tells of it. Returns its number in each log.
    pub(in crate::sqlite) fn append_rows(
        &mut self,
        session: i64,
        message: Columns<'_>,
        recipients: &[Addressee],
    ) -> Result<Vec<(Addressee, u64)>> {
        let stored = message.stored(recipients.len());
        let row = self
            .db
            .prepared(
                "INSERT INTO messages (public_id, session_id, sender_id, created_at, priority, ttl, kind, trace,
                                       reply_to, correlation_id, task, callback, content, parts, metadata)
                 VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11, ?12, ?13, ?14, ?15)",
            )
            .and_then(|mut insert| {
                insert.insert(params![
                    message.id.as_bytes(),
                    session,
                    message.sender,
                    message.at.as_microsecond(),
                    message.priority,
                    message.ttl,
                    message.kind,
                    message.trace,
                    message.reply_to.as_ref().map(Uuid::as_bytes),
                    message.correlation_id,
                    message.task,
                    message.callback,
                    message.content,
                    message.parts,
                    message.metadata,
                ])
            })
            .map_err(failed)?;
        self.changed.agent(message.sender);
        let mut copies = Vec::with_capacity(recipients.len());
        for to in recipients {
            copies.push((*to, log_number(self.deliver(*to, session, row, message.priority)?)));
        }
        self.charge(message.payer, stored)?;
        Ok(copies)
    }

    /// Appends a message to an agent's log. Returns its number there.
    fn deliver(&mut self, to: Addressee, session: i64, message: i64, priority: i16) -> Result<i64> {
        let Addressee { agent: AgentKey(agent), from_person } = to;
        let number = self.next_number(agent)?;
        self.db
            .prepared(
                "INSERT INTO deliveries (message_id, agent_id, number, priority, from_person) VALUES (?1, ?2, ?3, ?4, ?5)",
            )
            .and_then(|mut insert| insert.execute(params![message, agent, number, priority, from_person.then_some(1)]))
            .map_err(failed)?;
        self.number_given(agent, number);
        self.db
            .prepared("UPDATE session_members SET unread = unread + 1 WHERE agent_id = ?1 AND session_id = ?2")
            .and_then(|mut update| update.execute([agent, session]))
            .map_err(failed)?;
        self.changed.agent(agent);
        self.findable.push(AgentKey(agent));
        Ok(number)
    }
}

/// Those listeners whose logs are longer than they know, or whose keys have ended.
pub(in crate::sqlite) fn stale_listeners(
    db: &mut Connection,
    listeners: &[ListenerState],
    now: Timestamp,
) -> Result<Vec<StaleListener>> {
    let mut found = Vec::new();
    for (index, listener) in listeners.iter().enumerate() {
        let agent = listener.agent.0;
        let head = run(log_head(db, agent).boxed())?;
        // The head may have been advanced, and what was after a listener may have been removed.
        let behind = head > listener.at && run(has_entry_after(db, agent, listener.at).boxed())?;
        let key_ended = match listener.key {
            Some(key) => run(by_key(db, key, now).boxed())?.is_none_or(|(agent, _)| agent.key != listener.agent),
            None => false,
        };
        if behind || key_ended {
            found.push(StaleListener { index, head, key_ended });
        }
    }
    Ok(found)
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use amb_core::doc::{ConnectionChange, ConnectionStatus};

    use super::*;
    use crate::sqlite::SqliteStore;
    use crate::sqlite::writer::Isolation;
    use crate::unit::{TestStore, at, new_agent};
    use crate::{ConnectionDecision, Join, KeyHash, NewAgent, NewKey};

    async fn execute(store: &SqliteStore, sql: &'static str) {
        let execute = move |tx: &mut WriteTx| tx.db.execute_batch(sql).map_err(failed);
        store.writer().unwrap().write(Isolation::Everybody, execute).await.unwrap();
    }

    fn event() -> Event {
        let connection_id = uuid::Uuid::nil().into();
        Event::ConnectionChanged { connection_id, agent: "bob".parse().unwrap(), status: ConnectionStatus::Active }
    }

    #[tokio::test]
    async fn an_entry_that_the_database_refuses_leaves_no_gap_in_a_log() {
        let directory = tempfile::tempdir().unwrap();
        let store = Arc::new(SqliteStore::open(&directory.path().join("mail.db")).await.unwrap());
        let alice = TestStore(store.clone()).enter("alice").await.key;
        let append = || {
            let store = store.clone();
            async move {
                let appended = store
                    .writer()
                    .unwrap()
                    .write(Isolation::Everybody, move |tx| tx.append_event(alice.0, event(), at(1)))
                    .await;
                appended.map(|one| one.entry.cursor.to_string())
            }
        };
        assert_eq!(append().await.unwrap(), "1");
        execute(
            &store,
            "CREATE TEMP TRIGGER refuse BEFORE INSERT ON main.events BEGIN SELECT RAISE(ABORT, 'refused'); END",
        )
        .await;
        append().await.unwrap_err();
        execute(&store, "DROP TRIGGER temp.refuse").await;
        assert_eq!(append().await.unwrap(), "2", "the refused entry took no number");
        store.shut().await;
    }

    #[tokio::test]
    async fn an_act_in_an_agents_name_that_cannot_be_told_has_not_happened() {
        let directory = tempfile::tempdir().unwrap();
        let store = Arc::new(SqliteStore::open(&directory.path().join("mail.db")).await.unwrap());
        let office = TestStore(store.clone());
        office.found_household(KeyHash::of("home"), true, at(0)).await.unwrap().unwrap();
        let join = async |name, person| {
            let join = Some(Join { token: KeyHash::of("home"), person });
            office.register_agent(NewAgent { join, ..new_agent(name) }, at(0)).await.unwrap().answer
        };
        let (ann, coder, friend) = (join("ann", true).await, join("coder", false).await, office.enter("friend").await);
        office.connect(&friend, &coder).await;
        let block = ConnectionDecision::Change { peer: friend.name.clone(), change: ConnectionChange::Block };
        let key = NewKey { hash: KeyHash::of("new"), prefix: "amb_new".into() };
        execute(
            &store,
            "CREATE TEMP TRIGGER refuse BEFORE INSERT ON main.events WHEN NEW.event LIKE '%stepped_in%'
             BEGIN SELECT RAISE(ABORT, 'refused'); END",
        )
        .await;
        office.decide_connection(&ann, &coder.name, block.clone(), at(2)).await.unwrap_err();
        office.renew_key(&ann, &coder.name, key.clone(), at(2)).await.unwrap_err();
        office.say(&friend, &coder, "Plan", "still connected").await;
        let knows = async |text| office.agent_by_key_hash(KeyHash::of(text), at(3)).await.unwrap().is_some();
        assert!(knows("coder").await && !knows("new").await);
        execute(&store, "DROP TRIGGER temp.refuse").await;
        office.decide_connection(&ann, &coder.name, block, at(4)).await.unwrap();
        office.renew_key(&ann, &coder.name, key, at(4)).await.unwrap();
        assert!(!knows("coder").await && knows("new").await);
        store.shut().await;
    }
}
