//! `amb key`: replaces the key of an agent, or stores one that somebody else created.

use std::io::{self, IsTerminal};

use amb_client::{Client, ExposeSecret, SecretString};
use amb_core::{AgentName, Code, Mailbox, OfficeError};
use rustix::termios::{LocalModes, OptionalActions, tcgetattr, tcsetattr};
use serde_json::json;

use crate::args::OfficeArgs;
use crate::failure::Failure;
use crate::output::Output;
use crate::{input, keys, profile};

/// Replace an agent's key at a server, or store one that you were given
///
/// Keys are stored in keys.json in your configuration directory, which only you can read.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  amb --as coder key rotate               a new key; the old one works for another hour
  amb --as coder key rotate --grace 0     the old one ends at once
  amb key import coder < key.txt          stores the key that `amb admin key coder` printed")]
pub(crate) struct KeyCommand {
    #[command(subcommand)]
    verb: KeyVerb,
}

#[derive(Debug, clap::Subcommand)]
enum KeyVerb {
    Rotate(RotateKey),
    Import(ImportKey),
}

/// Replace the key of the acting agent, and store the new one
///
/// Programs that hold the old key, such as bridges and clients that run, have to be started again before it ends.
/// Where the office's answer is lost, the old key goes on working for its grace period but cannot be replaced again:
/// the office's operator then creates a key with `amb admin key NAME`, and `amb key import NAME` stores it.
#[derive(Debug, clap::Args)]
#[command(after_help = "Example:\n  amb --as coder key rotate --grace 600")]
struct RotateKey {
    /// How many seconds the old key goes on working; an hour by default. With 0 a lost answer locks the agent out
    #[arg(long, value_name = "SECONDS")]
    grace: Option<u32>,
    /// Print the new key
    #[arg(long)]
    show: bool,
}

/// Store the key of an agent, after checking it at the office
///
/// The key is read from stdin; in a terminal it is asked for, and not shown. It replaces a stored key of the agent.
#[derive(Debug, clap::Args)]
#[command(after_help = "Example:\n  amb admin key coder | amb key import coder")]
struct ImportKey {
    /// The agent
    name: AgentName,
}

impl KeyCommand {
    pub(crate) async fn run(self, office: &OfficeArgs, output: Output) -> Result<(), Failure> {
        match self.verb {
            KeyVerb::Rotate(verb) => verb.run(office, output).await,
            KeyVerb::Import(verb) => verb.run(office, output).await,
        }
    }
}

const NO_KEYS: &str = "a directory has no keys: its agents are whoever can write to its files";

impl RotateKey {
    async fn run(self, office: &OfficeArgs, output: Output) -> Result<(), Failure> {
        let server = office.server_or(NO_KEYS)?;
        let old = office.acting_key(server).await?;
        let client = Client::open(server.clone(), old.clone()).await?;
        let name = client.me();
        // The key that works is stored first: a file that cannot be written fails here, before anything is replaced.
        let path = keys::store(server, name, old.expose_secret())?;
        let rotated = match client.rotate_key(self.grace).await {
            Err(error) if error.may_be_done() => return Err(lost(&client, &old, error).await.into()),
            rotated => rotated?,
        };
        // Printed in the error, since nobody else has it.
        keys::store(server, name, &rotated.api_key).map_err(|error| {
            error.context(format!("{} is the new key of {name}, and it could not be stored", rotated.api_key))
        })?;
        let ends = match rotated.previous_key_until {
            Some(until) => format!("the old one works until {until}; start again what uses it before then"),
            None => "the old one has ended".to_owned(),
        };
        let mut document = json!({ "name": name, "key_file": path });
        if let Some(until) = rotated.previous_key_until {
            document["previous_key_until"] = json!(until);
        }
        let line = match self.show {
            true => {
                document["api_key"] = json!(rotated.api_key);
                rotated.api_key.clone()
            }
            false => format!("{name} has a new key at {server}"),
        };
        output.result(&document, line)?;
        output.note(format!("it is kept in {}; {ends}", path.display()));
        if profile::key_from_env().is_some() {
            output.note("MAILBOX_API_KEY in the environment is not changed");
        }
        Ok(())
    }
}

/// The error where the answer of the office was lost: says whether the key was replaced, and what to do.
async fn lost(client: &Client, old: &SecretString, error: OfficeError) -> OfficeError {
    let name = client.me();
    let renew =
        format!("`amb admin key {name}` by the office's operator creates one, and `amb key import {name}` stores it");
    let detail = match client.profile().await {
        Ok(profile) if old.expose_secret().starts_with(&profile.api_key_prefix) => {
            "the answer was lost, and the key was not replaced; run it again".to_owned()
        }
        Ok(profile) => {
            let until = profile.previous_key_until.map(|until| format!(" until {until}")).unwrap_or_default();
            format!("the key was replaced, but the answer with the new one was lost; the old one works{until}. {renew}")
        }
        Err(_) => format!(
            "{}. Where the key was replaced, the old one works until its grace period ends, and cannot be replaced again; \
             then {renew}",
            error.detail()
        ),
    };
    OfficeError::new(Code::Unavailable, detail).caused_by(error)
}

impl ImportKey {
    async fn run(self, office: &OfficeArgs, output: Output) -> Result<(), Failure> {
        let server = office.server_or(NO_KEYS)?;
        let text = match io::stdin().is_terminal() {
            true => ask(&format!("key of {}: ", self.name), output).await?,
            false => input::stdin()?,
        };
        let key = text.trim();
        if key.is_empty() {
            return Err(Failure::usage("no key was given; `amb admin key NAME` prints one"));
        }
        let client = Client::open(server.clone(), SecretString::from(key)).await?;
        let name = client.me();
        if !name.eq_ignore_case(self.name.as_str()) {
            return Err(Failure::usage(format!("this is the key of {name}; `amb key import {name}` stores it")));
        }
        let path = keys::store(server, name, key)?;
        output.result(&json!({ "name": name, "key_file": path }), format!("the key of {name} at {server} is good"))?;
        output.note(format!("it is kept in {}", path.display()));
        Ok(())
    }
}

/// Reads a line from the terminal without showing it.
async fn ask(prompt: &str, output: Output) -> Result<String, Failure> {
    let before = tcgetattr(io::stdin()).map_err(io::Error::from)?;
    let mut hidden = before.clone();
    hidden.local_modes.remove(LocalModes::ECHO);
    output.raw(prompt);
    tcsetattr(io::stdin(), OptionalActions::Now, &hidden).map_err(io::Error::from)?;
    let line = tokio::select! {
        line = tokio::task::spawn_blocking(|| io::stdin().lines().next().transpose()) => line.map_err(io::Error::from),
        // The terminal would not show what is typed after this program.
        _ = tokio::signal::ctrl_c() => Ok(Ok(None)),
    };
    tcsetattr(io::stdin(), OptionalActions::Now, &before).map_err(io::Error::from)?;
    output.raw("\n");
    Ok(line??.unwrap_or_default())
}
