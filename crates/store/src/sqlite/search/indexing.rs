//! Indexing mail in the background.

use async_trait::async_trait;

use crate::StoreError;
use crate::engine::Engine;
use crate::error::Result;
use crate::index_queue::{Index, Indexed};
use crate::sqlite::{SqliteStore, search};
use crate::types::AgentKey;

#[async_trait]
impl Index for SqliteStore {
    async fn index(&self, agents: &[AgentKey]) -> Result<Indexed> {
        let agents = agents.to_vec();
        let pages = self.readers.read_long(move |db| search::pages(db, &agents)).await?;
        let indexer = self.indexer.clone();
        let added = tokio::task::spawn_blocking(move || indexer.add(&pages).map(|()| pages));
        Ok(added.await.map_err(StoreError::internal)??.indexed)
    }

    async fn behind(&self) -> Result<Vec<AgentKey>> {
        // A killed process may have left removed mail in the index.
        self.unindex(self.readers.read_long(|db| search::orphans(db)).await?).await?;
        self.readers.read_long(|db| search::behind(db)).await
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use amb_core::mailbox::SearchQuery;

    use super::*;
    use crate::Store;
    use crate::engine::Changes;
    use crate::sqlite::error::failed;
    use crate::sqlite::writer::Isolation;
    use crate::testing::{TestStore, at};
    use amb_testing::SqliteFile;

    async fn index(store: &SqliteStore) {
        while store.index_mail().await.is_ok_and(|indexed| indexed > 0) {}
    }

    #[tokio::test]
    async fn removed_mail_that_a_killed_process_left_in_the_index_is_unindexed() {
        let file = SqliteFile::fresh();
        let store = Arc::new(SqliteStore::open(&file.path()).await.unwrap());
        let office = TestStore(store.clone());
        let (alice, bob) = office.pair().await;
        let sent = office.say(&alice, &bob, "Plan", "needle").await.answer;
        office.say(&alice, &bob, "Plan", "newest").await;
        office.ack(&bob, std::slice::from_ref(&sent.message_id), at(2)).await.unwrap();
        index(&store).await;
        // A process that dies after it removed mail and before it unindexed it.
        let remove = "DELETE FROM deliveries WHERE message_id IN (SELECT id FROM messages WHERE content = 'needle');
                      DELETE FROM messages WHERE content = 'needle'";
        store
            .writer()
            .unwrap()
            .write(Isolation::Savepoint(Changes::All), |tx| tx.db.execute_batch(remove).map_err(failed))
            .await
            .unwrap();
        let words = || rusqlite::Connection::open(format!("{}-search", file.path().display())).unwrap();
        let docs = || words().query_row("SELECT count(*) FROM docs", [], |row| row.get::<_, i64>(0)).unwrap();
        assert_eq!(docs(), 2);
        office.close().await;
        drop((office, store));
        let store = SqliteStore::open(&file.path()).await.unwrap();
        index(&store).await;
        assert_eq!(docs(), 1);
        store.close().await;
    }

    #[tokio::test]
    async fn a_log_that_cannot_be_indexed_does_not_stop_the_others() {
        let file = SqliteFile::fresh();
        let store = Arc::new(SqliteStore::open(&file.path()).await.unwrap());
        let office = TestStore(store.clone());
        let (alice, bob) = office.pair().await;
        let carol = office.enter("carol").await;
        office.connect(&alice, &carol).await;
        index(&store).await;
        office.say(&alice, &bob, "Plan", "needle").await;
        office.say(&alice, &carol, "Plan", "needle").await;
        office.inbox(&bob, false, at(2)).await.unwrap();
        // Not UTF-8: the indexer cannot read it.
        let bad = rusqlite::Connection::open(file.path()).unwrap();
        let sql = "UPDATE messages SET content = CAST(x'ff' AS TEXT)
                   WHERE id = (SELECT message_id FROM deliveries WHERE agent_id = ?1)";
        assert_eq!(bad.execute(sql, [bob.key.0]).unwrap(), 1);
        index(&store).await;
        let query = SearchQuery { text: "needle".into(), ..SearchQuery::default() };
        assert_eq!(office.search(&carol, query).await.unwrap().len(), 1);
        office.close().await;
    }
}
