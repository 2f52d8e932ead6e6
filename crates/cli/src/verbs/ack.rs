//! `amb ack`: marks messages as handled.

use amb_core::doc::Acknowledged;

use crate::args::OfficeArgs;
use crate::failure::Failure;
use crate::ids;
use crate::output::Output;

/// Acknowledge messages as handled (idempotent)
#[derive(Debug, clap::Args)]
#[command(after_help = "Example:\n  amb --as ben ack 0199c0de-...")]
pub(crate) struct AckCommand {
    /// Ids of the messages, or unique prefixes of them
    #[arg(required = true, value_name = "IDS")]
    ids: Vec<String>,
}

impl AckCommand {
    pub(crate) async fn run(self, office: &OfficeArgs, output: Output) -> Result<(), Failure> {
        let mailbox = office.open().await?;
        let mut ids = Vec::new();
        for id in &self.ids {
            ids.push(ids::message(&*mailbox, id).await?);
        }
        let acknowledged = mailbox.ack(&ids).await?;
        output.result(&Acknowledged { acknowledged }, format!("{acknowledged} acknowledged"))
    }
}
