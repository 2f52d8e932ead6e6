//! Rows that are no longer needed.
//!
//! A row keeps a message from crossing twice, tells what an answer answers, and which task an update is about. It is of no
//! use any more once all of these hold:
//! - It is read where it went. A message of the directory's that was handled there is not carried without a row, and
//!   an old one of the office's is looked for in the mailbox before it is put there.
//! - It brought no task: updates name a task for as long as it lives, and that is not the ledger's to know.
//! - It is a report, which nobody can answer; or the office has removed the message, so that no answer can name it.

use rusqlite::params;

use super::row::{columns, crossing};
use super::{CrossingLedger, CrossingRow, CrossingState, Result};

impl CrossingLedger {
    /// Rows that were read and brought no task, after this number, in order. Never the last row of all: its number would
    /// be given to another message.
    pub(crate) async fn read_ones(&self, after: i64, most: u32) -> Result<Vec<CrossingRow>> {
        self.run(move |db| {
            let mut select = db.prepare_cached(columns!(
                "WHERE state = ?1 AND number > ?2 AND office_task IS NULL AND dir_task IS NULL
                   AND number < (SELECT max(number) FROM crossings)
                 ORDER BY number LIMIT ?3"
            ))?;
            let rows = select.query_map(params![CrossingState::Read as i64, after, most], crossing)?;
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
