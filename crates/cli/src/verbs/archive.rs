//! `amb archive`: old mail out of the way.

use crate::args::OfficeArgs;
use crate::failure::Failure;
use crate::output::{Output, duration};

/// Move old mail of a directory into its archive, by rename
///
/// In the chipset layout mail goes to archive/ once the stamp in its name is old enough; in the nanobot layout
/// processed mail goes into monthly folders. With --as only that agent's mail; else everybody's.
///
/// `amb watch`, `amb mcp` and `amb bridge` do this by themselves for their agent in the chipset layout, with what was
/// read and is older than 24 hours.
#[derive(Debug, clap::Args)]
#[command(after_help = "Example:\n  amb archive --older-than 24h --keep-unread --dry-run")]
pub(crate) struct ArchiveCommand {
    /// Only mail older than this
    #[arg(long, value_name = "AGE", default_value = "24h", value_parser = duration)]
    older_than: std::time::Duration,
    /// Leave unread mail where it is
    #[arg(long)]
    keep_unread: bool,
    /// Only say what would move
    #[arg(long)]
    dry_run: bool,
}

impl ArchiveCommand {
    pub(crate) async fn run(self, office: &OfficeArgs, output: Output) -> Result<(), Failure> {
        let directory = office.directory(amb_dir::DirOptions::default())?;
        let options = amb_dir::archive::ArchiveOptions {
            older_than: self.older_than,
            keep_unread: self.keep_unread,
            dry_run: self.dry_run,
            ..Default::default()
        };
        let report = amb_dir::archive::archive(&directory, office.me.as_ref(), options).await?;
        let verb = if self.dry_run { "would archive" } else { "archived" };
        output.result(&report, format!("{verb} {}", report.moved.len()))
    }
}
