//! Archives old messages of a chipset directory in the background of a verb that keeps running.

use amb_dir::DirOptions;
use amb_dir::archive::keep_archiving;
use tokio::task::JoinSet;

use crate::args::OfficeArgs;
use crate::failure::Failure;

/// Whether a verb that keeps running archives old mail of its agent.
#[derive(Debug, Clone, Copy, clap::Args)]
pub(crate) struct Archiving {
    /// Do not archive old mail. By default, read mail older than 24 h is moved to archive/ at startup and every hour
    /// (chipset directories only)
    #[arg(long)]
    no_archive: bool,
}

impl Archiving {
    /// Starts archiving, unless it is switched off or the office has no archive. It stops when the set is dropped.
    pub(crate) fn start(self, office: &OfficeArgs) -> Result<JoinSet<()>, Failure> {
        let mut tasks = JoinSet::new();
        if !self.no_archive && office.server.is_none() {
            let (directory, me) = (office.directory(DirOptions::default())?, office.acting_agent()?);
            tasks.spawn(async move { keep_archiving(&directory, &me).await });
        }
        Ok(tasks)
    }
}
