//! The clients that `amb init` set up: whether each can start `amb`, and whether its wake-ups arrive.

use std::path::Path;

use amb_client::ServerUrl;
use amb_core::AgentName;
use clap::ValueEnum;

use super::CheckResult;
use crate::args::OfficeArgs;
use crate::init::{InitClient, Scope, flag_at, server_at};
use crate::output::ago;
use crate::verbs::init::{is_on_path, places};
use crate::verbs::wake::{failures, reach};
use crate::{keys, local};

/// The default name of the mailbox in a client's configuration.
const NAME: &str = "mailbox";

pub(super) async fn check(office: &OfficeArgs) -> Vec<CheckResult> {
    let Ok(places) = places() else { return Vec::new() };
    let mut checks = Vec::new();
    for client in InitClient::value_variants() {
        let name = client.name();
        for scope in [Scope::User, Scope::Project] {
            // Some clients have one configuration only.
            let Ok((path, format)) = client.config_file(scope, &places) else { continue };
            let Ok(text) = fs_err::read_to_string(&path) else { continue };
            match server_at(format, &text, &client.path(NAME)) {
                Ok(Some(command)) => {
                    checks.push(check_command(&name, &path, &command));
                    let flag = |flag| flag_at(format, &text, &client.path(NAME), flag).ok().flatten();
                    if let (Some(server), Some(agent)) = (flag("--server"), flag("--as")) {
                        checks.extend(check_address(&name, &path, &server, &agent));
                    }
                }
                Ok(None) => {}
                Err(error) => checks.push(CheckResult::problem(
                    "client",
                    format!("{name}: {} cannot be read: {error:#}", path.display()),
                    "mend the file: the client itself cannot read it either",
                )),
            }
        }
    }
    for (session, reached) in reach(office).await {
        checks.push(match reached {
            Ok(()) => CheckResult::ok("wake-up", format!("{session} can be woken")),
            Err(detail) => CheckResult::problem(
                "wake-up",
                format!("{session} cannot be woken: {detail}"),
                "its mail waits until it looks; start the client anew, or see `amb wake test` in a shell of it",
            ),
        });
    }
    for (agent, at, detail) in failures(office) {
        checks.push(CheckResult::problem(
            "wake-up",
            format!("{agent}: {}: {detail}", ago(at)),
            "`amb wake status` shows how it stands; `amb wake test` in a shell of the client tries its door",
        ));
    }
    checks
}

/// A problem where the client uses a former address of the local office: the agent's key has moved to the present one.
fn check_address(client: &str, path: &Path, server: &str, agent: &str) -> Option<CheckResult> {
    let (server, agent) = (server.parse::<ServerUrl>().ok()?, AgentName::parse(agent).ok()?);
    let local = local::last_server().ok().filter(|local| *local != server && server.is_loopback())?;
    if keys::find(&server, &agent).ok()?.is_some() || keys::find(&local, &agent).ok()?.is_none() {
        return None;
    }
    Some(CheckResult::problem(
        "client",
        format!("{client}: {} uses {server}, and the local office with {agent}'s key is at {local}", path.display()),
        format!("run `amb init {client} --as {agent}` again: it follows the local office from then on"),
    ))
}

/// Whether the program that the client starts exists.
fn check_command(client: &str, path: &Path, command: &str) -> CheckResult {
    let is_path = command.contains('/');
    let is_found = if is_path { command.contains("://") || Path::new(command).is_file() } else { is_on_path(command) };
    if is_found {
        return CheckResult::ok("client", format!("{client}: {} starts {command}", path.display()));
    }
    CheckResult::problem(
        "client",
        format!("{client}: {} starts {command}, which is not there", path.display()),
        format!("`amb init {client}` writes it anew with where amb is now"),
    )
}
