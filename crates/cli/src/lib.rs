//! `amb`: a post office for AI agents, in one binary. One file a verb.
//!
//! A library with one function: Cargo compiles a library while its dependencies are still in code generation, a binary
//! only after it.

#![forbid(unsafe_code)]

mod archiving;
mod args;
mod codes;
mod consent;
mod database;
mod durable;
mod env_file;
mod failure;
mod home;
mod household;
mod ids;
mod init;
mod input;
mod keys;
mod last;
mod local;
mod log_file;
mod nats;
mod offices;
mod output;
mod profile;
#[cfg(test)]
mod reference;
mod saved;
mod signals;
mod table;
mod typing;
mod verbs;
mod waking;

use std::io::Write;
use std::process::ExitCode;

use amb_core::suggest::nearest;
use clap::error::{ContextKind, ContextValue};
use clap::{CommandFactory, Parser};

/// Runs the command line of this process.
pub fn main() -> ExitCode {
    let cli = match args::Cli::try_parse() {
        Ok(cli) => cli,
        Err(error) => return report_usage_error(error),
    };
    let output = output::Output::new(cli.office.json);
    match run(cli, output) {
        Ok(()) => ExitCode::SUCCESS,
        Err(failure) => failure.report(output),
    }
}

/// Reports wrong arguments. A hook exits with 0 all the same: exit code 2 makes some clients go on, so a hook with an
/// argument that this version does not know would keep its client running.
fn report_usage_error(mut error: clap::Error) -> ExitCode {
    let program = args::Cli::command();
    suggest_verb(&mut error, &program);
    // The terminal may be gone.
    let _ = match std::env::args_os().len() {
        1 => std::io::stderr().write_all(args::OVERVIEW.as_bytes()),
        _ => error.print(),
    };
    let is_verb = |word: &String| program.get_subcommands().any(|verb| verb.get_name() == word);
    let is_hook = std::env::args().skip(1).find(is_verb).is_some_and(|verb| verb == "hook");
    match error.exit_code() {
        0 => ExitCode::SUCCESS,
        _ if is_hook => ExitCode::SUCCESS,
        code => ExitCode::from(u8::try_from(code).unwrap_or(2)),
    }
}

/// Suggests a verb where clap itself has no suggestion: for a short word one typo exceeds clap's threshold.
fn suggest_verb(error: &mut clap::Error, program: &clap::Command) {
    let Some(ContextValue::String(wrong)) = error.get(ContextKind::InvalidSubcommand) else { return };
    if error.get(ContextKind::SuggestedSubcommand).is_some() {
        return;
    }
    let deeper = |verb, word: String| clap::Command::find_subcommand(verb, word).unwrap_or(verb);
    let verb = std::env::args().skip(1).fold(program, deeper);
    let known = verb.get_subcommands().filter(|verb| !verb.is_hide_set()).map(clap::Command::get_name);
    if let Some(near) = nearest(wrong, known) {
        let near = ContextValue::Strings(vec![near.to_owned()]);
        error.insert(ContextKind::SuggestedSubcommand, near);
    }
}

fn run(mut cli: args::Cli, output: output::Output) -> Result<(), failure::Failure> {
    output::init_log(cli.verbose, cli.verb.log_file());
    match cli.office.resolve() {
        // A profile that names a missing office is repaired by the verb `office`.
        Err(error) if matches!(cli.verb, args::Verb::Office(_)) => output.note(format!("warning: {error:#}")),
        // A hook prints nothing rather than disturb its client.
        Err(error) if matches!(cli.verb, args::Verb::Hook(_)) => {
            tracing::debug!(%error, "the hook prints nothing");
            return Ok(());
        }
        resolved => resolved?,
    }
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build()?;
    let done = runtime.block_on(cli.verb.run(&cli.office, output));
    // Does not wait for a thread that still reads stdin or watches a directory.
    runtime.shutdown_background();
    done
}
