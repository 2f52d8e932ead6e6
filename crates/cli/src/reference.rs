//! Generates `docs/cli.md` from `--help`; a test keeps the two equal.

use std::fmt::Write;

use clap::{Command, CommandFactory};

use crate::args::Cli;

const HEAD: &str = "# The command line\n\nThe output of `amb --help` and `amb COMMAND --help`. Generated; a test compares this page with the program.\n";

fn reference() -> String {
    let mut page = HEAD.to_owned();
    let mut root = Cli::command().max_term_width(100).term_width(100);
    root.build();
    describe(&mut page, &root, "amb");
    page
}

fn describe(page: &mut String, command: &Command, path: &str) {
    // Global flags are described once, at the top.
    let mut shown = command.clone();
    if path != "amb" {
        shown = shown.mut_args(|arg| if arg.is_global_set() { arg.hide(true) } else { arg });
    }
    let help = shown.term_width(100).render_long_help().to_string();
    let help: Vec<&str> = help.lines().map(str::trim_end).collect();
    let _ = write!(page, "\n## `{path}`\n\n```text\n{}\n```\n", help.join("\n").trim_end());
    for sub in command.get_subcommands().filter(|sub| sub.get_name() != "help" && !sub.is_hide_set()) {
        describe(page, sub, &format!("{path} {}", sub.get_name()));
    }
}

#[test]
fn the_page_says_what_help_says() {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/cli.md");
    let now = reference();
    if std::env::var_os("UPDATE_DOCS").is_some() {
        fs_err::write(path, &now).unwrap();
    }
    let page = fs_err::read_to_string(path).unwrap_or_default();
    assert!(
        page == now,
        "docs/cli.md is not what --help says; run UPDATE_DOCS=1 cargo nextest run -p amb the_page_says"
    );
}

/// Adds the commands whose help has no example.
fn collect_without_example(found: &mut Vec<String>, command: &Command, path: &str) {
    if !command.get_after_help().is_some_and(|help| help.to_string().contains("Example")) {
        found.push(path.to_owned());
    }
    for sub in command.get_subcommands().filter(|sub| sub.get_name() != "help" && !sub.is_hide_set()) {
        collect_without_example(found, sub, &format!("{path} {}", sub.get_name()));
    }
}

#[test]
fn every_command_has_an_example_and_valid_arguments() {
    Cli::command().debug_assert();
    let mut found = Vec::new();
    collect_without_example(&mut found, &Cli::command(), "amb");
    assert_eq!(found, Vec::<String>::new(), "these have no example in their help");
}
