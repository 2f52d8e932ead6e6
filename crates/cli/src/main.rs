//! `amb`: a post office for AI agents.

use std::process::ExitCode;

fn main() -> ExitCode {
    amb_cli::main()
}
