//! `amb completions`: for the shell.

use clap::CommandFactory;

use crate::args::{Cli, OfficeArgs};
use crate::failure::Failure;
use crate::output::Output;

/// Print completions for a shell
#[derive(Debug, clap::Args)]
#[command(after_help = "Example:\n  amb completions bash > ~/.local/share/bash-completion/completions/amb")]
pub(crate) struct Completions {
    /// Which shell
    shell: clap_complete::Shell,
}

impl Completions {
    pub(crate) async fn run(self, _office: &OfficeArgs, _output: Output) -> Result<(), Failure> {
        clap_complete::generate(self.shell, &mut Cli::command(), "amb", &mut std::io::stdout());
        Ok(())
    }
}
