//! `amb move`: the office from SQLite to PostgreSQL.

use std::ops::ControlFlow;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use amb_store::{CopyStage, copy_to_postgres};
use serde_json::json;

use crate::args::OfficeArgs;
use crate::database::{DatabaseArgs, Progress, percent};
use crate::failure::Failure;
use crate::output::Output;
use crate::signals::interruption;

/// The interval of progress lines where stderr is no terminal.
const PROGRESS_INTERVAL: Duration = Duration::from_secs(10);

/// Migrate the network office from SQLite to PostgreSQL
///
/// Stop the server first, and start it with the new database when the migration is complete. If it is interrupted, run
/// the same command again: it resumes. At the end it compares every row of both databases; until then no server can
/// open the new one. The SQLite file is not modified.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  createdb agent_mailbox
  amb move --to postgres://mailbox:secret@localhost/agent_mailbox
  AMB_MOVE_TO=postgres://mailbox@db/agent_mailbox amb move --database-url sqlite:/var/lib/amb/mailbox.db")]
pub(crate) struct MoveCommand {
    /// Target PostgreSQL database; it must be empty, or contain an interrupted migration of the same office
    #[arg(long, value_name = "URL", env = "AMB_MOVE_TO", hide_env_values = true)]
    to: String,
    /// If the SQLite file has changed since an interrupted migration: delete what it has copied, and start again
    #[arg(long)]
    start_over: bool,
    #[command(flatten)]
    database: DatabaseArgs,
}

impl MoveCommand {
    pub(crate) async fn run(self, _office: &OfficeArgs, output: Output) -> Result<(), Failure> {
        let from = self.database.file("only an office on SQLite moves; --database-url sqlite:PATH says which")?;
        let stop = Arc::new(AtomicBool::new(false));
        // After Ctrl-C or SIGTERM it stops between two pages.
        let signals = tokio::spawn({
            let (stop, interrupted) = (stop.clone(), interruption()?);
            async move {
                interrupted.await;
                stop.store(true, Ordering::Relaxed);
            }
        });
        let mut progress = Progress::new(output.json);
        let (begun, mut noted_at) = (Instant::now(), Instant::now());
        let copied = copy_to_postgres(&from, &self.to, self.start_over, |now| {
            let doing = match now.stage {
                CopyStage::Copying => "copying",
                CopyStage::Comparing => "comparing",
            };
            let line = format!("{doing} {}: {} of {}", now.table, percent(now.done, now.total), now.total);
            progress.show(&line);
            if noted_at.elapsed() > PROGRESS_INTERVAL && !progress.is_visible() {
                noted_at = Instant::now();
                output.note(&line);
            }
            if stop.load(Ordering::Relaxed) { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
        })
        .await;
        signals.abort();
        drop(progress);
        let copied = copied?;
        let rows: u64 = copied.rows.iter().map(|(_, rows)| rows).sum();
        let tables: serde_json::Map<String, serde_json::Value> =
            copied.rows.iter().map(|(table, rows)| ((*table).to_owned(), (*rows).into())).collect();
        let (checksum, seconds) = (copied.checksum, begun.elapsed().as_secs_f64());
        let line = format!("moved: {rows} rows, the same on both sides (SHA-256 {checksum}), {seconds:.0} s");
        output.result(&json!({ "rows": tables, "checksum": checksum, "seconds": seconds }), line)?;
        output.note("start the server with --database-url set to the new database; the old file is no longer used");
        Ok(())
    }
}
