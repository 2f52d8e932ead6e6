//! `amb archive`: old mail out of the way.

use crate::args::OfficeArgs;
use crate::failure::Failure;
use crate::output::{Output, duration};

/// Move old mail of a directory to its archive
///
/// Files are renamed. In the chipset layout, mail is moved to archive/ by the age of the timestamp in its file name; in
/// the nanobot layout, processed mail is moved to monthly folders. With --as, only the mail of that agent is archived,
/// otherwise that of all agents.
///
/// In the chipset layout, `amb watch`, `amb mcp` and `amb bridge` automatically archive read mail of their agent that
/// is older than 24 hours.
#[derive(Debug, clap::Args)]
#[command(after_help = "Example:\n  amb archive --older-than 24h --keep-unread --dry-run")]
pub(crate) struct ArchiveCommand {
    /// Minimum age of the mail to archive
    #[arg(long, value_name = "AGE", default_value = "24h", value_parser = duration)]
    older_than: std::time::Duration,
    /// Do not archive unread mail
    #[arg(long)]
    keep_unread: bool,
    /// Show what would be archived without moving anything
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
