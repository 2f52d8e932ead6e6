//! Whether the codes of waiting requests are shown. Whoever types a code consents, and models read what these verbs print,
//! beside a stranger's words; so a code is for a person's eyes unless it is asked for.

use std::io::IsTerminal;

/// Whether codes are shown.
#[derive(Debug, Clone, Copy, clap::Args)]
pub(crate) struct Codes {
    /// Show the codes of waiting requests where stdout is no terminal
    ///
    /// Whoever types a code consents to the connection. Programs and models do not see it unless this is given.
    #[arg(long)]
    show_codes: bool,
}

impl Codes {
    pub(crate) fn are_shown(self) -> bool {
        self.show_codes || std::io::stdout().is_terminal()
    }
}
