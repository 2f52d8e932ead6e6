//! Maps ids of messages and tasks between the two sides.

use amb_core::{AgentName, MessageId, TaskId};
use rusqlite::OptionalExtension;
use uuid::Uuid;

use super::row::find;
use super::{CrossingLedger, CrossingRow, Result};

impl CrossingLedger {
    /// The crossing of this message of the directory's, if it was begun.
    pub(crate) async fn outward(&self, recipient: &AgentName, dir_id: &MessageId) -> Result<Option<CrossingRow>> {
        let (recipient, dir_id) = (recipient.clone(), dir_id.clone());
        self.run(move |db| find(db, "inward = 0 AND dir_id = ?1 AND recipient = ?2", dir_id.as_str(), &recipient)).await
    }

    /// The crossing by which this message of the office's came to be.
    pub(crate) async fn sent_as(&self, recipient: &AgentName, office_id: Uuid) -> Result<Option<CrossingRow>> {
        let recipient = recipient.clone();
        self.run(move |db| {
            find(db, "inward = 0 AND office_id = ?1 AND recipient = ?2", &office_id.to_string(), &recipient)
        })
        .await
    }

    /// The id in the directory of a message of the office's.
    pub(crate) async fn dir_id(&self, office_id: &MessageId) -> Result<Option<MessageId>> {
        let id = office_id.to_string();
        let found: Option<String> = self
            .run(move |db| {
                db.query_row("SELECT dir_id FROM crossings WHERE office_id = ?1", [id], |row| row.get(0)).optional()
            })
            .await?;
        Ok(found.and_then(|id| MessageId::parse(&id).ok()))
    }

    /// The id in the office of a message of the directory's that came to this agent or was sent by it.
    pub(crate) async fn office_id(&self, agent: &AgentName, dir_id: &MessageId) -> Result<Option<MessageId>> {
        let (agent, id) = (agent.clone(), dir_id.clone());
        let found: Option<Option<String>> = self
            .run(move |db| {
                db.query_row(
                    "SELECT office_id FROM crossings WHERE dir_id = ?1 AND (sender = ?2 OR recipient = ?2)",
                    [id.as_str(), agent.as_str()],
                    |row| row.get(0),
                )
                .optional()
            })
            .await?;
        Ok(found.flatten().and_then(|id| MessageId::parse(&id).ok()))
    }

    /// The id in the directory of a task of the office's that crossed.
    pub(crate) async fn dir_task(&self, office_task: &TaskId) -> Result<Option<TaskId>> {
        let id = office_task.to_string();
        let found: Option<String> = self
            .run(move |db| {
                let sql = "SELECT dir_task FROM crossings WHERE office_task = ?1 AND dir_task IS NOT NULL";
                db.query_row(sql, [id], |row| row.get(0)).optional()
            })
            .await?;
        Ok(found.and_then(|id| TaskId::parse(&id).ok()))
    }

    /// The id in the office of a task that crossed to the directory, from its owner to its assignee.
    pub(crate) async fn office_task(
        &self,
        owner: &AgentName,
        assignee: &AgentName,
        dir_task: &TaskId,
    ) -> Result<Option<TaskId>> {
        let (owner, assignee, id) = (owner.clone(), assignee.clone(), dir_task.clone());
        let found: Option<String> = self
            .run(move |db| {
                db.query_row(
                    "SELECT office_task FROM crossings
                     WHERE dir_task = ?1 AND sender = ?2 AND recipient = ?3 AND inward = 1 AND office_task IS NOT NULL",
                    [id.as_str(), owner.as_str(), assignee.as_str()],
                    |row| row.get(0),
                )
                .optional()
            })
            .await?;
        Ok(found.and_then(|id| TaskId::parse(&id).ok()))
    }
}
