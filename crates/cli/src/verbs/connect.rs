//! `amb connect`: ask another agent for a connection.

use amb_core::AgentName;

use crate::args::OfficeArgs;
use crate::failure::Failure;
use crate::output::Output;

/// Ask another agent for a connection; tell them the code by a human channel
#[derive(Debug, clap::Args)]
#[command(after_help = "Example:\n  amb --as ann connect ben 'I work on the same project'")]
pub(crate) struct Connect {
    /// The agent to connect with
    name: AgentName,
    /// A word of introduction
    message: Option<String>,
}

impl Connect {
    pub(crate) async fn run(self, office: &OfficeArgs, output: Output) -> Result<(), Failure> {
        let requested = office.open().await?.connect(&self.name, self.message).await?;
        if output.json {
            return Ok(output.document(&requested)?);
        }
        output.say(&requested.verification_code)?;
        output.note(format!("tell {} this code by a human channel; they approve with `amb approve CODE`", self.name));
        Ok(())
    }
}
