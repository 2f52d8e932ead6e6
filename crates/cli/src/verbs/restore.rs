//! `amb restore`: replaces the office's database by a copy.

use std::path::PathBuf;

use crate::args::OfficeArgs;
use crate::database::{DatabaseArgs, Progress, bytes, percent, shown};
use crate::failure::Failure;
use crate::output::Output;

const POSTGRES: &str = "PostgreSQL is restored with its own tools, while no server works on it: \
                        pg_restore --clean --if-exists --no-owner --dbname=\"$DATABASE_URL\" FILE, \
                        then `amb admin advance-cursors`";

/// Put a copy that `amb backup` made in the place of the network office's database
///
/// Refuses while a server has the database open, and where the copy is damaged or of a newer amb. What was there is
/// kept beside it under a name with the time. Numbers in every log go on a million higher, so that clients that
/// remember cursors from after the copy miss nothing. Search finds everything again some time after the next start.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  amb restore /backups/mail-2026-11-15.db
  amb restore latest.db --database-url sqlite:/var/lib/amb/mailbox.db

With PostgreSQL:
  pg_restore --clean --if-exists --no-owner --dbname=\"$DATABASE_URL\" FILE && amb admin advance-cursors")]
pub(crate) struct RestoreCommand {
    /// The copy
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
