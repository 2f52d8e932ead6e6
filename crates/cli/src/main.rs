//! `amb`: a post office for AI agents.

use std::process::ExitCode;

/// A send is allocated by a thread that serves and freed by the one that writes, or the reverse; the system's allocator
/// takes a lock for that. What it earns is in ARCHITECTURE.md.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

fn main() -> ExitCode {
    amb_cli::main()
}
