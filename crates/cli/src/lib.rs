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

use amb_core::Code;
use amb_core::suggest::nearest;
use anyhow::Context;
use clap::error::{ContextKind, ContextValue, ErrorKind};
use clap::{CommandFactory, Parser};

use crate::failure::Failure;
use crate::output::Output;

/// Runs the command line of this process.
pub fn main() -> ExitCode {
    let cli = match args::Cli::try_parse() {
        Ok(cli) => cli,
        Err(error) => return report_usage_error(error),
    };
    let output = Output::new(cli.office.json);
    match run(cli, output) {
        Ok(()) => ExitCode::SUCCESS,
        Err(failure) => failure.report(output),
    }
}

/// Reports wrong arguments, or prints help. A hook exits with 0 all the same: exit code 2 makes some clients go on, so a
/// hook with an argument that this version does not know would keep its client running.
fn report_usage_error(mut error: clap::Error) -> ExitCode {
    let program = args::Cli::command();
    let words: Vec<String> = std::env::args_os().skip(1).map(|word| word.to_string_lossy().into_owned()).collect();
    suggest_verb(&mut error, &program, &words);
    if error.exit_code() == 0 {
        let printed = error.print().and_then(|()| std::io::stdout().flush());
        return match printed.context("standard output could not be written") {
            Ok(()) => ExitCode::SUCCESS,
            Err(error) => Failure::from(error).report(Output::new(false)),
        };
    }
    if words.iter().take_while(|word| *word != "--").any(|word| word == "--json") {
        Output::new(true).error(Code::Invalid.as_str(), &usage_detail(&error));
    } else {
        // The terminal may be gone.
        let _ = match words.as_slice() {
            [] => std::io::stderr().write_all(args::OVERVIEW.as_bytes()),
            _ => error.print(),
        };
    }
    let is_verb = |word: &&String| program.get_subcommands().any(|verb| verb.get_name() == *word);
    let is_hook = words.iter().find(is_verb).is_some_and(|verb| verb == "hook");
    if is_hook { ExitCode::SUCCESS } else { ExitCode::from(u8::try_from(error.exit_code()).unwrap_or(2)) }
}

/// The error on one line, without the usage.
fn usage_detail(error: &clap::Error) -> String {
    if matches!(error.kind(), ErrorKind::MissingSubcommand | ErrorKind::DisplayHelpOnMissingArgumentOrSubcommand) {
        return "a command is missing; --help lists the commands".into();
    }
    let text = error.to_string();
    let end = ["\n\nUsage:", "\n\nFor more information"].iter().filter_map(|end| text.find(end)).min();
    let text = &text[..end.unwrap_or(text.len())];
    text.trim_start_matches("error:").split_whitespace().collect::<Vec<_>>().join(" ")
}

/// Suggests a verb where clap itself has no suggestion: for a short word one typo exceeds clap's threshold. clap also
/// suggests hidden verbs.
fn suggest_verb(error: &mut clap::Error, program: &clap::Command, words: &[String]) {
    let Some(ContextValue::String(wrong)) = error.get(ContextKind::InvalidSubcommand) else { return };
    let wrong = wrong.clone();
    let verb = words.iter().fold(program, |verb, word| clap::Command::find_subcommand(verb, word).unwrap_or(verb));
    let shown = verb.get_subcommands().filter(|verb| !verb.is_hide_set()).map(clap::Command::get_name);
    let shown: Vec<&str> = shown.collect();
    let mut near = match error.remove(ContextKind::SuggestedSubcommand) {
        Some(ContextValue::Strings(near)) => near,
        Some(ContextValue::String(near)) => vec![near],
        _ => Vec::new(),
    };
    near.retain(|near| shown.contains(&near.as_str()));
    if near.is_empty() {
        near.extend(nearest(&wrong, shown).map(str::to_owned));
    }
    if near.is_empty() {
        error.remove(ContextKind::Suggested);
    } else {
        error.insert(ContextKind::SuggestedSubcommand, ContextValue::Strings(near));
    }
}

fn run(mut cli: args::Cli, output: Output) -> Result<(), Failure> {
    output::init_log(cli.verbose, cli.verb.log_file());
    let resolved = match cli.verb {
        // Its client may start before the office does.
        args::Verb::Mcp(_) => cli.office.resolve_or_wait(),
        _ => cli.office.resolve(),
    };
    match resolved {
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
