//! `amb restore`: replaces the office's database by a copy.

use std::path::PathBuf;

use crate::args::OfficeArgs;
use crate::database::{DatabaseArgs, Progress, bytes, percent, shown};
use crate::failure::Failure;
use crate::output::Output;

const POSTGRES: &str = "PostgreSQL is restored with its own tools, while no server works on it: \
                        pg_restore --clean --if-exists --no-owner --dbname=\"$DATABASE_URL\" FILE, \
                        then `amb admin advance-cursors`";

/// Restore the SQLite database of the network office from a backup
///
/// Takes a file that `amb backup` wrote. Fails if a server has the database open, or if the backup is damaged or was
/// written by a newer version of amb. The replaced database is kept in the same directory, with the time in its file
/// name. The cursors of all logs are advanced by a million, so that clients with cursors from after the backup miss
/// nothing. The search index is rebuilt in the background after the next
/// start.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  amb restore /backups/mail-2026-11-15.db
  amb restore latest.db --database-url sqlite:/var/lib/amb/mailbox.db

With PostgreSQL:
  pg_restore --clean --if-exists --no-owner --dbname=\"$DATABASE_URL\" FILE && amb admin advance-cursors")]
pub(crate) struct RestoreCommand {
    /// Backup file to restore
    file: PathBuf,
    #[command(flatten)]
    database: DatabaseArgs,
}

impl RestoreCommand {
    pub(crate) async fn run(self, _office: &OfficeArgs, output: Output) -> Result<(), Failure> {
        let database = self.database.file(POSTGRES)?;
        let mut progress = Progress::new(output.json);
        let restored = amb_store::restore(&self.file, &database, move |now| {
            progress.show(&format!("copying: {} of {}", percent(now.done, now.total), bytes(now.total)));
        })
        .await?;
        let amb_store::Contents { agents, messages, .. } = &restored.contents;
        output.result(&restored, format!("{}: {messages} messages of {agents} agents", shown(&database)))?;
        if let Some(kept) = &restored.kept {
            output.note(format!("what was there is in {}; remove it when you need it no more", shown(kept)));
        }
        Ok(())
    }
}
