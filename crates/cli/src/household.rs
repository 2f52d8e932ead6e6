//! The households of this user, by server: the token with which agents join, and the name of the person. In a file that only
//! this user reads, beside the keys.

use std::collections::BTreeMap;
use std::path::PathBuf;

use amb_client::{ExposeSecret, SecretString, ServerUrl};
use amb_core::{AgentName, Code, OfficeError, Timestamp};
use anyhow::Result;
use serde::{Deserialize, Serialize};

use crate::args::{OfficeArgs, Origin};
use crate::failure::Failure;
use crate::{durable, home, keys};

/// Households that are remembered; the oldest is forgotten first.
const MOST: usize = 500;
/// Names that are tried for the person before it is left to the user to say one.
const NAMES: usize = 20;
/// Gives a token for this one run.
const TOKEN: &str = "AMB_HOUSEHOLD_TOKEN";

/// A household as this machine knows it.
#[derive(Debug, Clone, Serialize, Deserialize)]
struct Membership {
    /// The owner's token, or this machine's.
    token: String,
    /// Under which name the person writes; known once it was claimed here.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    person: Option<AgentName>,
    /// Since when.
    since: Timestamp,
}

type Known = BTreeMap<String, Membership>;

fn path() -> Result<PathBuf> {
    Ok(home::config_dir()?.join("household.json"))
}

fn read() -> Result<Known> {
    durable::read_json(&path()?)
}

/// The token with which agents of this machine join the household at a server: the environment's, else the one that is kept.
pub(crate) fn token(server: &ServerUrl) -> Result<Option<SecretString>> {
    if let Ok(token) = std::env::var(TOKEN)
        && !token.is_empty()
    {
        return Ok(Some(token.into()));
    }
    Ok(read()?.remove(&server.to_string()).map(|known| known.token.into()))
}

/// The token with which an agent that is registered now joins: where that was asked for, and by itself at the local office or a
/// saved one, if a token is kept for it. An office that was named joins nobody unasked: old scripts see what they saw.
pub(crate) fn joining(office: &OfficeArgs, server: &ServerUrl, asked: bool) -> Result<Option<SecretString>, Failure> {
    match (asked, office.origin) {
        (true, _) => token_asked_for(server).map(Some),
        (false, Origin::Local | Origin::Saved) => Ok(token(server)?),
        (false, Origin::Said) => Ok(None),
    }
}

/// The token where it was asked for by name: without one that is a mistake.
pub(crate) fn token_asked_for(server: &ServerUrl) -> Result<SecretString, Failure> {
    token(server)?.ok_or_else(|| {
        let detail = format!(
            "no household's token for {server} is kept here; get one with `amb invite` on a machine of the household, then \
             `amb join {server} TOKEN` here, or set {TOKEN}"
        );
        OfficeError::not_found(detail).into()
    })
}

/// Under which name this user writes as the person of the household at a server, where that was claimed here.
pub(crate) fn person(server: &ServerUrl) -> Result<Option<AgentName>> {
    Ok(read()?.remove(&server.to_string()).and_then(|known| known.person))
}

/// Stores a token; returns once it is on disk.
pub(crate) fn keep(server: &ServerUrl, token: &str) -> Result<PathBuf> {
    change(|known| {
        let membership = Membership { token: token.to_owned(), person: None, since: Timestamp::now() };
        known.insert(server.to_string(), membership);
    })
}

/// Forgets the household at a server, if its token is still this one.
pub(crate) fn forget(server: &ServerUrl, token: &str) -> Result<()> {
    change(|known| {
        if known.get(&server.to_string()).is_some_and(|known| known.token == token) {
            known.remove(&server.to_string());
        }
    })?;
    Ok(())
}

/// An office has another address now: what is kept by the old one is kept by the new one.
pub(crate) fn moved(before: &str, after: &str) -> Result<()> {
    if !read()?.contains_key(before) {
        return Ok(());
    }
    change(|known| {
        if let Some(membership) = known.remove(before) {
            known.insert(after.to_owned(), membership);
        }
    })?;
    Ok(())
}

/// Who the user is at a household's office: the person, made now with the owner's token if nobody has been it yet. `None`
/// where no household's token is kept for the server, or this machine was invited and has no person of its own.
pub(crate) async fn claim_person(server: &ServerUrl) -> Result<Option<AgentName>, Failure> {
    if let Some(person) = person(server)? {
        return Ok(Some(person));
    }
    let Some(token) = token(server)? else { return Ok(None) };
    for name in names() {
        match claim(server, &name, &token).await {
            Ok(person) => return Ok(Some(person)),
            // A machine's token makes no person.
            Err(error) if error.code() == Code::Forbidden => return Ok(None),
            Err(error) if is_taken(&error) => {}
            Err(error) => match person(server)? {
                // Two commands at once: the other one has claimed it.
                Some(person) if error.code() == Code::Conflict => return Ok(Some(person)),
                _ => return Err(error.into()),
            },
        }
    }
    let detail = format!("no free name for the household's person at {server}; say one: amb household person NAME");
    Err(OfficeError::new(Code::Conflict, detail).into())
}

/// Makes the person of the household at a server, under this name, and keeps the key.
pub(crate) async fn claim(
    server: &ServerUrl,
    name: &AgentName,
    token: &SecretString,
) -> Result<AgentName, OfficeError> {
    let registered = amb_client::claim_person(server, name, token).await?;
    // The key first: a name without a key would claim nothing any more.
    let kept = keys::keep(server, &registered.name, registered.api_key.expose_secret()).and_then(|_| {
        change(|known| {
            let kept = known.entry(server.to_string()).or_insert_with(|| Membership {
                token: token.expose_secret().to_owned(),
                person: None,
                since: Timestamp::now(),
            });
            kept.person = Some(registered.name.clone());
        })
    });
    kept.map_err(OfficeError::internal)?;
    Ok(registered.name)
}

/// Whether the name was the trouble. The office says so in the same words to everybody who registers.
fn is_taken(error: &OfficeError) -> bool {
    error.code() == Code::Conflict && error.detail().contains("is taken")
}

/// Names for the person: the user's own where it is one, else `person`, which no agent gets, and then with a number.
fn names() -> impl Iterator<Item = AgentName> {
    let user = std::env::var("USER").ok().and_then(|user| AgentName::parse_for_server(&user).ok());
    let numbered = (2..NAMES).map(|number| format!("person-{number}"));
    let person = std::iter::once("person".to_owned()).chain(numbered);
    user.into_iter().chain(person.filter_map(|name| AgentName::parse_for_person(&name).ok()))
}

fn change(edit: impl FnOnce(&mut Known)) -> Result<PathBuf> {
    let path = path()?;
    durable::update_json(&path, |known: &mut Known| {
        edit(known);
        while known.len() > MOST {
            let oldest = known.iter().min_by_key(|(_, known)| known.since).map(|(server, _)| server.clone());
            oldest.and_then(|server| known.remove(&server));
        }
    })?;
    Ok(path)
}
