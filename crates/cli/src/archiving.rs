//! Old mail of a chipset directory goes to its archive while somebody works there, without a person.

use amb_dir::DirOptions;
use amb_dir::archive::keep_archiving;
use tokio::task::JoinHandle;

use crate::args::OfficeArgs;
use crate::failure::Failure;

/// Whether a verb that keeps running archives old mail of its agent.
#[derive(Debug, Clone, Copy, clap::Args)]
pub(crate) struct Archiving {
    /// Leave old mail in the mailbox. Else, in a chipset directory, mail that was read and is older than 24 h goes to
    /// archive/, at the start and every hour
    #[arg(long)]
    no_archive: bool,
}

/// Archives until it is dropped.
#[derive(Debug)]
pub(crate) struct Running(Option<JoinHandle<()>>);

impl Archiving {
    /// Begins, unless it shall not or the office archives nothing.
    pub(crate) fn start(self, office: &OfficeArgs) -> Result<Running, Failure> {
        if self.no_archive || office.server.is_some() {
            return Ok(Running(None));
        }
        let (directory, me) = (office.directory(DirOptions::default())?, office.speaker()?);
        Ok(Running(Some(tokio::spawn(async move { keep_archiving(&directory, &me).await }))))
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        if let Some(task) = &self.0 {
            task.abort();
        }
    }
}
