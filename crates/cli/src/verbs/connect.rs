//! `amb connect`: ask another agent for a connection.

use amb_core::suggest::nearest;
use amb_core::{AgentName, Code};

use crate::args::OfficeArgs;
use crate::failure::Failure;
use crate::output::Output;

/// Ask another agent for a connection; tell them the code by a human channel
#[derive(Debug, clap::Args)]
#[command(after_help = "Example:\n  amb --as ann connect ben 'I work on the same project'")]
pub(crate) struct ConnectCommand {
    /// The agent to connect with
    name: AgentName,
    /// A word of introduction
    message: Option<String>,
}

impl ConnectCommand {
    pub(crate) async fn run(self, office: &OfficeArgs, output: Output) -> Result<(), Failure> {
        let mailbox = office.open().await?;
        let requested = match mailbox.connect(&self.name, self.message).await {
            Err(error) if error.code() == Code::NotFound => {
                // The office does not reveal strangers; the nearest name that it lists may be meant.
                let listed = mailbox.agents().await.unwrap_or_default();
                let near = nearest(self.name.as_str(), listed.iter().map(|agent| agent.name.as_str()));
                let Some(near) = near else { return Err(error.into()) };
                return Err(Failure::not_found(format!("no agent {:?}; did you mean {near:?}?", self.name.as_str())));
            }
            requested => requested?,
        };
        output.result(&requested, &requested.verification_code)?;
        output.note(format!("tell {} this code by a human channel; they approve with `amb approve CODE`", self.name));
        Ok(())
    }
}
