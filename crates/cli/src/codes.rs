//! Whether the codes of pending connection requests are shown. Entering a code is consent to the connection, and models
//! read what these verbs print, next to a stranger's text; so a code is shown only on a terminal or on request.
//! `--json` is the contract's document and always has it.

use std::io::IsTerminal;

use crate::output::Output;

/// Whether the codes of connection requests are shown.
#[derive(Debug, Clone, Copy, clap::Args)]
pub(crate) struct Codes {
    /// Show the codes of pending connection requests even if stdout is not a terminal
    ///
    /// Entering a code approves the connection, so a model that runs this command does not see codes without this flag.
    /// The output of --json always contains them.
    #[arg(long)]
    show_codes: bool,
}

impl Codes {
    pub(crate) fn are_shown(self, output: Output) -> bool {
        self.show_codes || output.json || std::io::stdout().is_terminal()
    }
}
