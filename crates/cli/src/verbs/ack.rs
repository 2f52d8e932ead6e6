//! `amb ack`: marks messages as handled.

use crate::args::OfficeArgs;
use crate::failure::Failure;
use crate::ids;
use crate::output::Output;

/// Mark messages as handled; doing it twice is no error
#[derive(Debug, clap::Args)]
#[command(after_help = "Example:\n  amb --as ben ack 0199c0de-...")]
pub(crate) struct AckCommand {
    /// The messages, or unique prefixes of their ids
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
        let changed = mailbox.ack(&ids).await?;
        output.result(&serde_json::json!({ "acknowledged": changed }), format!("{changed} acknowledged"))
    }
}
