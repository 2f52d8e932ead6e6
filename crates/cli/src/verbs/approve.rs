//! `amb approve`: let another agent write to you.

use crate::args::OfficeArgs;
use crate::failure::Failure;
use crate::output::Output;

/// Approve a connection request by its code
#[derive(Debug, clap::Args)]
#[command(after_help = "Example:\n  amb --as ben approve XC-992")]
pub(crate) struct ApproveCommand {
    /// Code of the request, such as XC-992
    code: String,
}

impl ApproveCommand {
    pub(crate) async fn run(self, office: &OfficeArgs, output: Output) -> Result<(), Failure> {
        let connected = office.open().await?.approve(&self.code).await?;
        output.result(&connected, format!("connected with {}", connected.connected_agent_name))
    }
}
