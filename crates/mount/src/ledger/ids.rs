//! Maps ids of messages and tasks between the two sides.

use std::str::FromStr;

use amb_core::{AgentName, MessageId, TaskId};
use rusqlite::{OptionalExtension, Params};
use uuid::Uuid;

use super::row::find;
use super::{CrossingLedger, CrossingRow, Result};

impl CrossingLedger {
    /// Returns the row of a message of the directory.
    pub(crate) async fn by_dir_id(&self, recipient: &AgentName, dir_id: &MessageId) -> Result<Option<CrossingRow>> {
        let (recipient, dir_id) = (recipient.clone(), dir_id.clone());
        self.run(move |db| find(db, "inward = 0 AND dir_id = ?1 AND recipient = ?2", dir_id.as_str(), &recipient)).await
    }

    /// Returns the outward row of a message in the office.
    pub(crate) async fn by_office_id(&self, recipient: &AgentName, office_id: Uuid) -> Result<Option<CrossingRow>> {
        let recipient = recipient.clone();
        self.run(move |db| {
            find(db, "inward = 0 AND office_id = ?1 AND recipient = ?2", &office_id.to_string(), &recipient)
        })
        .await
    }

    /// Returns the id in the directory of a message of the office.
    pub(crate) async fn dir_id(&self, office_id: &MessageId) -> Result<Option<MessageId>> {
        self.id("SELECT dir_id FROM crossings WHERE office_id = ?1", [office_id.to_string()]).await
    }

    /// Returns the id in the office of a message of the directory that this agent received or sent.
    pub(crate) async fn office_id(&self, agent: &AgentName, dir_id: &MessageId) -> Result<Option<MessageId>> {
        let sql = "SELECT office_id FROM crossings WHERE dir_id = ?1 AND (sender = ?2 OR recipient = ?2)";
        self.id(sql, [dir_id.to_string(), agent.to_string()]).await
    }

    /// Returns the id in the directory of a task of the office that crossed.
    pub(crate) async fn dir_task(&self, office_task: &TaskId) -> Result<Option<TaskId>> {
        let sql = "SELECT dir_task FROM crossings WHERE office_task = ?1 AND dir_task IS NOT NULL";
        self.id(sql, [office_task.to_string()]).await
    }

    /// Returns the id in the office of a task that crossed to the directory, from its owner to its assignee.
    pub(crate) async fn office_task(
        &self,
        owner: &AgentName,
        assignee: &AgentName,
        dir_task: &TaskId,
    ) -> Result<Option<TaskId>> {
        let sql = "SELECT office_task FROM crossings
                   WHERE dir_task = ?1 AND sender = ?2 AND recipient = ?3 AND inward = 1 AND office_task IS NOT NULL";
        self.id(sql, [dir_task.to_string(), owner.to_string(), assignee.to_string()]).await
    }

    /// Runs a query for one id.
    async fn id<T: FromStr>(&self, sql: &'static str, params: impl Params + Send + 'static) -> Result<Option<T>> {
        let found: Option<Option<String>> =
            self.run(move |db| db.query_row(sql, params, |row| row.get(0)).optional()).await?;
        Ok(found.flatten().and_then(|id| id.parse().ok()))
    }
}
