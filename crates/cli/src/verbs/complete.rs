//! `amb complete`: names for a shell's completion. Hidden: the scripts of `amb completions` call it.

use std::time::Duration;

use amb_core::mailbox::TaskFilter;

use crate::args::OfficeArgs;
use crate::failure::Failure;
use crate::output::Output;
use crate::{keys, saved};

/// The timeout of a completion.
const TIMEOUT: Duration = Duration::from_secs(2);
/// The most candidates.
const MAX_CANDIDATES: usize = 200;

/// Print completion candidates, one per line; nothing if they are not available
#[derive(Debug, clap::Args)]
#[command(after_help = "Example:\n  amb complete agents")]
pub(crate) struct CompleteCommand {
    #[arg(value_enum)]
    what: CompletionKind,
}

#[derive(Debug, Clone, Copy, clap::ValueEnum)]
enum CompletionKind {
    /// Agents that you can write to
    Agents,
    /// Your own agents, whose keys are stored
    Mine,
    /// Open tasks
    Tasks,
    /// Saved offices
    Offices,
}

impl CompleteCommand {
    pub(crate) async fn run(self, office: &OfficeArgs, output: Output) -> Result<(), Failure> {
        let names = tokio::time::timeout(TIMEOUT, self.names(office)).await;
        // A shell's completion shows no errors.
        let names = names.unwrap_or_else(|_| Ok(Vec::new())).unwrap_or_default();
        if output.json {
            return Ok(output.document(&names)?);
        }
        names.iter().take(MAX_CANDIDATES).try_for_each(|name| output.say(crate::output::visible(name)))?;
        Ok(())
    }

    async fn names(&self, office: &OfficeArgs) -> Result<Vec<String>, Failure> {
        Ok(match (self.what, &office.server) {
            (CompletionKind::Mine, Some(server)) => {
                keys::agents(server)?.into_iter().map(|name| name.to_string()).collect()
            }
            (CompletionKind::Agents | CompletionKind::Mine, _) => {
                let agents = office.open_read_only().await?.agents().await?;
                agents.into_iter().map(|agent| agent.name.to_string()).collect()
            }
            (CompletionKind::Tasks, _) => {
                let open = TaskFilter { open: true, ..TaskFilter::default() };
                office.open().await?.tasks(open).await?.into_iter().map(|task| task.id.to_string()).collect()
            }
            (CompletionKind::Offices, _) => {
                saved::read()?.offices.into_keys().chain([saved::LOCAL.to_owned()]).collect()
            }
        })
    }
}
