//! `amb backup`: a copy of the office's database, while it is open.

use std::path::PathBuf;

use serde::Serialize;

use crate::args::OfficeArgs;
use crate::database::{DatabaseArgs, Progress, bytes, percent, shown};
use crate::failure::Failure;
use crate::output::Output;

const POSTGRES: &str = "PostgreSQL is backed up with its own tools, while the office works: \
                        pg_dump --format=custom --file=FILE \"$DATABASE_URL\"";

/// Back up the SQLite database of the network office, even while it runs
///
/// The backup is a consistent snapshot in one file that only you can read. It is written to FILE.making, verified,
/// synced to disk and then renamed; the next run replaces a FILE.making that was left behind. `amb restore` restores
/// it.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  amb backup /backups/mail-$(date +%F).db
  amb backup --database-url sqlite:/var/lib/amb/mailbox.db --force latest.db

With PostgreSQL: pg_dump --format=custom --file=FILE \"$DATABASE_URL\"")]
pub(crate) struct BackupCommand {
    /// File to write the backup to
    file: PathBuf,
    /// Overwrite an existing file
    #[arg(long)]
    force: bool,
    #[command(flatten)]
    database: DatabaseArgs,
}

#[derive(Serialize)]
struct BackupReport {
    file: PathBuf,
    #[serde(flatten)]
    contents: amb_store::Contents,
}

impl BackupCommand {
    pub(crate) async fn run(self, _office: &OfficeArgs, output: Output) -> Result<(), Failure> {
        let from = self.database.file(POSTGRES)?;
        let mut progress = Progress::new(output.json);
        let contents = amb_store::backup(&from, &self.file, self.force, |now| {
            progress.show(&format!("copying: {} of {}", percent(now.done, now.total), bytes(now.total)));
        })
        .await?;
        drop(progress);
        let amb_store::Contents { agents, messages, bytes: size } = contents;
        let line = format!("{}: {messages} messages of {agents} agents, {}", shown(&self.file), bytes(size));
        output.result(&BackupReport { file: self.file, contents }, line)
    }
}
