//! `amb office`: the saved offices.

use std::path::PathBuf;

use amb_client::ServerUrl;
use amb_core::{Code, OfficeError};
use anyhow::Context;
use serde_json::json;

use crate::args::{OfficeArgs, OfficeOrigin};
use crate::failure::Failure;
use crate::output::Output;
use crate::saved::{self, LOCAL, SavedOffice};
use crate::{keys, local};

/// Save offices by name, and select the default one
///
/// If none is selected, commands use the local office (`amb up`). `--office NAME` selects another for one command. The
/// keys of all offices are stored in keys.json in your configuration directory.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  amb office add work https://mail.example --as ann
  amb office use work
  amb office list
  amb --office local inbox
  amb office use local")]
pub(crate) struct OfficeCommand {
    #[command(subcommand)]
    verb: OfficeVerb,
}

#[derive(Debug, clap::Subcommand)]
enum OfficeVerb {
    /// Save an office; --as sets the agent to act as there
    #[command(after_help = "\
Examples:
  amb office add work https://mail.example --as ann
  amb office add project ~/project/mail")]
    Add {
        /// Name to save the office under
        name: String,
        /// URL of the office, such as https://mail.example, or a directory
        place: String,
    },
    /// Set the default office; `local` is the one that `amb up` starts
    #[command(after_help = "Examples:\n  amb office use work\n  amb office use local")]
    Use {
        /// The name of the office
        name: String,
    },
    /// List your offices, the default first, and the agents whose keys you have there
    #[command(after_help = "Example:\n  amb office list")]
    List,
    /// Remove a saved office
    #[command(after_help = "Example:\n  amb office remove work")]
    Remove {
        /// The name of the office
        name: String,
        /// Also delete the stored keys of its agents; nobody can act as these agents afterwards
        #[arg(long)]
        keys: bool,
    },
}

impl OfficeCommand {
    pub(crate) async fn run(self, office: &OfficeArgs, output: Output) -> Result<(), Failure> {
        match self.verb {
            OfficeVerb::Add { name, place } => add(office, output, &name, &place),
            OfficeVerb::Use { name } => choose(output, &name),
            OfficeVerb::List => list(office, output),
            OfficeVerb::Remove { name, keys } => remove(output, &name, keys),
        }
    }
}

fn add(office: &OfficeArgs, output: Output, name: &str, place: &str) -> Result<(), Failure> {
    let place =
        SavedOffice { me: office.me.clone(), layout: office.layout.map(|layout| layout.to_string()), ..read(place)? };
    let there = saved::read()?.offices.remove(name).filter(|there| *there != place);
    if let Some(there) = there {
        let detail = format!("{name} is {} already; `amb office remove {name}` first", there.shown());
        return Err(OfficeError::new(Code::Conflict, detail).into());
    }
    let file = saved::save(name, &place)?;
    output.result(&json!({ "name": name, "office": place, "file": file }), format!("{name} is {}", place.shown()))?;
    output.note(format!("`amb office use {name}` makes it the default"));
    Ok(())
}

/// Parses an address or a directory.
fn read(place: &str) -> Result<SavedOffice, Failure> {
    let path = PathBuf::from(place);
    if !place.contains("://") && (place.contains('/') || path.is_dir()) {
        let path = std::path::absolute(&path).context("the directory")?;
        return Ok(SavedOffice { dir: Some(path), ..SavedOffice::default() });
    }
    let server: ServerUrl = place.parse()?;
    Ok(SavedOffice { server: Some(server.to_string()), ..SavedOffice::default() })
}

fn choose(output: Output, name: &str) -> Result<(), Failure> {
    let profile = saved::read()?;
    let place = match name {
        LOCAL => None,
        _ => Some(profile.office(name)?),
    };
    saved::choose(name)?;
    let line = match &place {
        Some(place) => format!("the default office is {name}, {}", place.shown()),
        None => "the default office is the local one".into(),
    };
    output.result(&json!({ "name": name, "office": place }), line)
}

fn remove(output: Output, name: &str, with_keys: bool) -> Result<(), Failure> {
    let mut profile = saved::read()?;
    let unknown = profile.unknown(name);
    let place = profile.offices.remove(name).ok_or_else(|| OfficeError::not_found(unknown))?;
    saved::remove(name)?;
    let mut forgotten = 0;
    if let Some(server) = place.server.as_ref().filter(|_| with_keys) {
        forgotten = keys::remove_server(server)?;
    }
    output.result(
        &json!({ "name": name, "office": place, "keys_forgotten": forgotten }),
        match with_keys {
            true => format!("{name} is removed, with the keys of its agents: {forgotten}"),
            false => format!("{name} is removed"),
        },
    )
}

/// One office of the list.
struct OfficeRow {
    name: String,
    place: String,
    /// Why it is the one in use.
    used: Option<&'static str>,
    agents: Vec<String>,
}

fn list(office: &OfficeArgs, output: Output) -> Result<(), Failure> {
    let profile = saved::read()?;
    let mut kept = keys::agents_by_server()?;
    let mut row = |name: &str, place: String| {
        let agents = kept.remove(&place).unwrap_or_default();
        OfficeRow { name: name.to_owned(), place, used: None, agents }
    };
    let local = local::running().map(|record| record.url);
    let mut rows = vec![row(LOCAL, local.clone().unwrap_or_default())];
    rows.extend(profile.offices.iter().map(|(name, place)| row(name, place.shown())));
    // Servers with stored keys that were used by their address.
    let others: Vec<_> =
        kept.into_iter().map(|(place, agents)| OfficeRow { name: "".into(), place, used: None, agents }).collect();
    rows.extend(others);
    mark(&mut rows, office, profile.office.as_deref());
    rows.sort_by_key(|row| row.used.is_none());
    if output.json {
        let rows: Vec<_> = rows
            .iter()
            .map(|row| json!({ "name": row.name, "place": row.place, "used": row.used, "agents": row.agents }))
            .collect();
        return Ok(output.document(&json!({ "offices": rows }))?);
    }
    let rows = rows.into_iter().map(|row| {
        let place = if row.place.is_empty() { "not running; `amb up` starts it".to_owned() } else { row.place };
        vec![row.used.unwrap_or_default().to_owned(), row.name, place, row.agents.join(", ")]
    });
    output.table(&["USED", "OFFICE", "PLACE", "AGENTS"], rows)?;
    Ok(())
}

/// Marks the office that verbs use in this shell, and why.
fn mark(rows: &mut Vec<OfficeRow>, office: &OfficeArgs, chosen: Option<&str>) {
    let place = match (&office.server, &office.dir) {
        (Some(server), _) => server.to_string(),
        (None, Some(dir)) => dir.display().to_string(),
        (None, None) => return,
    };
    let why = match office.origin {
        OfficeOrigin::Local => "running",
        OfficeOrigin::Saved => "profile",
        OfficeOrigin::Explicit => "named",
    };
    let by_name = |row: &OfficeRow| office.origin == OfficeOrigin::Saved && Some(row.name.as_str()) == chosen;
    let index = rows.iter().position(by_name).or_else(|| rows.iter().position(|row| row.place == place));
    match index.and_then(|index| rows.get_mut(index)) {
        Some(row) => row.used = Some(why),
        None => rows.push(OfficeRow { name: String::new(), place, used: Some(why), agents: Vec::new() }),
    }
}
