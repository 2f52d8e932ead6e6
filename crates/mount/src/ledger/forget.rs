//! Deletes rows that are no longer needed.
//!
//! A row keeps a message from crossing twice, and maps the ids in answers and task updates. It is obsolete once all of
//! these hold:
//! - The message is read on the other side. Without a row, a read message of the directory is not carried, and an old
//!   one of the office is looked for in the mailbox before it is delivered.
//! - It brought no task: updates refer to a task for as long as it lives, which the ledger cannot know.
//! - It is a task report, which cannot be answered; or the office has removed the message, so that no answer refers to
//!   it.

use rusqlite::params;

use super::row::{columns, crossing};
use super::{CrossingLedger, CrossingRow, CrossingState, Result};

impl CrossingLedger {
    /// Returns rows after this number that are read and brought no task, in order. Never the last row: its number would
    /// be reused.
    pub(crate) async fn read_rows(&self, after: i64, max: u32) -> Result<Vec<CrossingRow>> {
        self.run(move |db| {
            let mut select = db.prepare_cached(columns!(
                "WHERE state = ?1 AND number > ?2 AND office_task IS NULL AND dir_task IS NULL
                   AND number < (SELECT max(number) FROM crossings)
                 ORDER BY number LIMIT ?3"
            ))?;
            let rows = select.query_map(params![CrossingState::Read as i64, after, max], crossing)?;
            rows.collect()
        })
        .await
    }

    /// Deletes these rows.
    pub(crate) async fn forget(&self, numbers: Vec<i64>) -> Result<()> {
        if numbers.is_empty() {
            return Ok(());
        }
        self.run(move |db| {
            let tx = db.transaction()?;
            {
                let mut delete = tx.prepare_cached("DELETE FROM crossings WHERE number = ?1")?;
                for number in numbers {
                    delete.execute([number])?;
                }
            }
            tx.commit()
        })
        .await
    }
}
