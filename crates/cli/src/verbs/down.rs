//! `amb down`: ends the local office.

use serde_json::json;

use crate::args::OfficeArgs;
use crate::failure::Failure;
use crate::local;
use crate::output::Output;

/// Stop the local office; its mail stays stored
///
/// The office finishes the requests that it has accepted, then stops. `amb up` starts the office again with the same mail.
#[derive(Debug, clap::Args)]
#[command(after_help = "Example:\n  amb down")]
pub(crate) struct DownCommand {}

impl DownCommand {
    pub(crate) async fn run(self, _office: &OfficeArgs, output: Output) -> Result<(), Failure> {
        let Some(record) = local::running() else {
            if output.json {
                return Ok(output.document(&json!({ "running": false, "ended": false }))?);
            }
            output.note("no local office runs; there is nothing to stop");
            return Ok(());
        };
        local::stop(&record).await?;
        let document = json!({ "running": false, "ended": true, "url": record.url, "store": record.store });
        output.result(&document, format!("the office at {} is stopped", record.url))?;
        output.note(format!("its mail is stored in {}; `amb up` starts the office again", record.store));
        Ok(())
    }
}
