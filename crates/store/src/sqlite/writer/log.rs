//! An agent's log. The tables `deliveries` and `events` share its numbers.

use amb_core::{Entry, Event, Timestamp};
use rusqlite::{Connection, params};

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
    /// Returns the next number of an agent's log. The caller caches it as the head once the row is written, so that a
    /// row that the database refuses leaves no gap.
    pub(super) fn next_number(&mut self, agent: i64) -> Result<i64> {
        match self.caches.heads.get(&agent) {
            Some(head) => Ok(head + 1),
            None => Ok(i64::try_from(run(log_head(&mut self.db, agent))?).unwrap_or(i64::MAX - 1) + 1),
        }
    }

    /// Appends an event other than mail to an agent's log.
    pub(in crate::sqlite) fn append_event(&mut self, agent: i64, event: Event, now: Timestamp) -> Result<LogEntry> {
        let number = self.next_number(agent)?;
        self.changed.add(agent);
        self.db
            .prepared("INSERT INTO events (agent_id, number, event, at) VALUES (?1, ?2, ?3, ?4)")
            .map_err(failed)?
            .execute(params![agent, number, json(&event)?, now.as_microsecond()])
            .map_err(failed)?;
        self.caches.heads.insert(agent, number);
        Ok(LogEntry { agent: AgentKey(agent), entry: Entry { event, cursor: log_number(number).into() } })
    }
}

/// Returns the listeners that have not seen the end of their logs, or whose keys have ended.
pub(in crate::sqlite) fn stale_listeners(
    db: &mut Connection,
    listeners: &[ListenerState],
    now: Timestamp,
) -> Result<Vec<StaleListener>> {
    let mut found = Vec::new();
    for (index, listener) in listeners.iter().enumerate() {
        let agent = listener.agent.0;
        let head = run(log_head(db, agent))?;
        // The head alone does not decide: it may have been advanced, and the entries after the listener's removed.
        let behind = head > listener.at && run(has_entry_after(db, agent, listener.at))?;
        let key_ended = match listener.key {
            Some(key) => run(by_key(db, key, now))?.is_none_or(|(agent, _)| agent.key != listener.agent),
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
    use crate::engine::Changes;
    use crate::sqlite::SqliteStore;
    use crate::sqlite::writer::Isolation;
    use crate::testing::{TestStore, at, new_agent};
    use crate::{ConnectionDecision, Join, KeyHash, NewAgent, NewKey, Store};

    async fn execute(store: &SqliteStore, sql: &'static str) {
        let execute = move |tx: &mut WriteTx| tx.db.execute_batch(sql).map_err(failed);
        store.writer().unwrap().write(Isolation::Savepoint(Changes::All), execute).await.unwrap();
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
                    .write(Isolation::Savepoint(Changes::All), move |tx| tx.append_event(alice.0, event(), at(1)))
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
        store.close().await;
    }

    #[tokio::test]
    async fn an_act_in_an_agents_name_is_rolled_back_where_its_event_cannot_be_logged() {
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
        store.close().await;
    }
}
