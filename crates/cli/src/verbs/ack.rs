//! `amb ack`: this mail is handled.

use amb_core::MessageId;

use crate::args::OfficeArgs;
use crate::failure::Failure;
use crate::output::Output;

/// Mark messages as handled; doing it twice is no error
#[derive(Debug, clap::Args)]
#[command(after_help = "Example:\n  amb --as ben ack 0199c0de-...")]
pub(crate) struct Ack {
    /// The messages
    #[arg(required = true)]
    ids: Vec<MessageId>,
}

impl Ack {
    pub(crate) async fn run(self, office: &OfficeArgs, output: Output) -> Result<(), Failure> {
        let changed = office.open().await?.ack(&self.ids).await?;
        if output.json {
            return Ok(output.document(&serde_json::json!({ "acknowledged": changed }))?);
        }
        output.say(format!("{changed} acknowledged"))?;
        Ok(())
    }
}
