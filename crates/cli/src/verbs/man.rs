//! `amb man`: manual pages.

use std::path::PathBuf;

use anyhow::Context;
use clap::CommandFactory;
use serde_json::json;

use crate::args::{Cli, OfficeArgs};
use crate::failure::Failure;
use crate::output::Output;

/// Write manual pages to a directory, one for each command
#[derive(Debug, clap::Args)]
#[command(after_help = "Example:\n  amb man ~/.local/share/man/man1 && man amb-send")]
pub(crate) struct ManCommand {
    /// Directory to write to; created if it does not exist
    dir: PathBuf,
}

impl ManCommand {
    pub(crate) async fn run(self, _office: &OfficeArgs, output: Output) -> Result<(), Failure> {
        fs_err::create_dir_all(&self.dir)?;
        clap_mangen::generate_to(Cli::command(), &self.dir).with_context(|| self.dir.display().to_string())?;
        output.result(
            &json!({ "dir": self.dir }),
            format!("amb.1 and a page for each verb are in {}", self.dir.display()),
        )
    }
}
