//! The households of this user, by server: the token with which agents join, and the name of the person. In a private
//! file beside the keys.

use std::collections::BTreeMap;
use std::path::PathBuf;

use amb_client::{ExposeSecret, SecretString, ServerUrl};
use amb_core::{AgentName, Code, OfficeError, Timestamp};
use anyhow::Result;
use serde::{Deserialize, Serialize};

use crate::args::{OfficeArgs, OfficeOrigin};
use crate::failure::Failure;
use crate::{durable, home, keys, profile};

/// The most households that are stored; the oldest are dropped.
const MAX_HOUSEHOLDS: usize = 500;
/// How many names are tried for the person before the user has to choose one.
const MAX_NAMES: usize = 20;
/// The variable that gives a token for one run.
const TOKEN: &str = "AMB_HOUSEHOLD_TOKEN";

/// A household as this machine knows it.
#[derive(Debug, Clone, Serialize, Deserialize)]
struct KnownHousehold {
    /// The owner's token, or this machine's.
    token: String,
    /// The person's name; known once it was claimed here.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    person: Option<AgentName>,
    /// When it was stored.
    since: Timestamp,
}

impl KnownHousehold {
    fn new(token: &str) -> Self {
        Self { token: token.to_owned(), person: None, since: Timestamp::now() }
    }
}

type Memberships = BTreeMap<String, KnownHousehold>;

fn path() -> Result<PathBuf> {
    Ok(home::config_dir()?.join("household.json"))
}

fn read() -> Result<Memberships> {
    durable::read_json(&path()?)
}

/// The token with which agents of this machine join the household at a server: from the environment, else the stored
/// one.
pub(crate) fn token(server: &ServerUrl) -> Result<Option<SecretString>> {
    if let Some(token) = profile::variable(TOKEN) {
        return Ok(Some(token.into()));
    }
    Ok(read()?.remove(&server.to_string()).map(|known| known.token.into()))
}

/// The token for an agent that is being registered: on request, and by default at the local office or a saved one, if a
/// token is stored for it. At an office that was named explicitly agents join only on request, so that old scripts
/// behave as before.
pub(crate) fn token_to_join(
    office: &OfficeArgs,
    server: &ServerUrl,
    requested: bool,
) -> Result<Option<SecretString>, Failure> {
    match (requested, office.origin) {
        (true, _) => required_token(server).map(Some),
        (false, OfficeOrigin::Local | OfficeOrigin::Saved) => Ok(token(server)?),
        (false, OfficeOrigin::Explicit) => Ok(None),
    }
}

/// The token; an error that says how to get one if there is none.
pub(crate) fn required_token(server: &ServerUrl) -> Result<SecretString, Failure> {
    token(server)?.ok_or_else(|| {
        let detail = format!(
            "no household's token for {server} is kept here; get one with `amb invite` on a machine of the household, then \
             `amb join {server} TOKEN` here, or set {TOKEN}"
        );
        OfficeError::not_found(detail).into()
    })
}

/// The name of the household's person at a server, where it was claimed here.
pub(crate) fn person(server: &ServerUrl) -> Result<Option<AgentName>> {
    Ok(read()?.remove(&server.to_string()).and_then(|known| known.person))
}

/// Stores a token that the office knows; returns once it is on disk. An owner's token is not replaced by a machine's:
/// with that, this user would lose the person. The person is kept as far as its key is here.
pub(crate) async fn join(server: &ServerUrl, token: &SecretString) -> Result<PathBuf, Failure> {
    let joined = amb_client::household_token(server, token).await?;
    if let Some(known) = read()?.remove(&server.to_string()).filter(|_| !joined.owner) {
        match amb_client::household_token(server, &known.token.into()).await {
            Ok(known) if known.owner => {
                let detail = format!(
                    "the owner's token for {server} is kept here, and this is a machine's, which can do less; run \
                     `amb join` on the machine that you invited"
                );
                return Err(OfficeError::new(Code::Conflict, detail).into());
            }
            Err(error) if error.code() != Code::Unauthorized => return Err(error.into()),
            _ => {}
        }
    }
    let person = match joined.person {
        Some(person) => keys::find(server, &person)?.map(|_| person),
        None => None,
    };
    let household = KnownHousehold { person, ..KnownHousehold::new(token.expose_secret()) };
    Ok(change(|known| {
        known.insert(server.to_string(), household);
    })?)
}

/// Stores a token; returns once it is on disk.
pub(crate) fn store_token(server: &ServerUrl, token: &str) -> Result<PathBuf> {
    change(|known| {
        known.insert(server.to_string(), KnownHousehold::new(token));
    })
}

/// Removes the household at a server, if its token is still this one.
pub(crate) fn remove_token(server: &ServerUrl, token: &str) -> Result<()> {
    change(|known| {
        if known.get(&server.to_string()).is_some_and(|known| known.token == token) {
            known.remove(&server.to_string());
        }
    })?;
    Ok(())
}

/// Moves the entry of an office to its new address.
pub(crate) fn change_address(before: &str, after: &str) -> Result<()> {
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

/// The person of the household at a server, created now with the owner's token if there is none yet. `None` where no
/// token is stored for the server, or this machine was invited and has no person of its own.
pub(crate) async fn claim_person(server: &ServerUrl) -> Result<Option<AgentName>, Failure> {
    if let Some(person) = person(server)? {
        return Ok(Some(person));
    }
    let Some(token) = token(server)? else { return Ok(None) };
    for name in candidate_names() {
        match create_person(server, &name, &token).await {
            Ok(person) => return Ok(Some(person)),
            // A machine's token cannot create a person.
            Err(error) if error.code() == Code::Forbidden => return Ok(None),
            Err(error) if is_taken(&error) => {}
            Err(error) if error.code() == Code::Conflict => {
                // Another command claimed it at the same time, or `amb join` has replaced the token.
                let known = person(server)?.map_or_else(|| person_with_key(server, &error), |name| Ok(Some(name)))?;
                return known.map(Some).ok_or_else(|| error.into());
            }
            Err(error) => return Err(error.into()),
        }
    }
    let detail = format!("no free name for the household's person at {server}; say one: amb household person NAME");
    Err(OfficeError::new(Code::Conflict, detail).into())
}

/// Makes sure that the person of the household at a server has this name, which can be chosen only once.
pub(crate) async fn name_person(server: &ServerUrl, name: &AgentName) -> Result<(), Failure> {
    let created = match person(server)? {
        Some(known) => Ok(known),
        None => create_person(server, name, &required_token(server)?).await,
    };
    let known = match created {
        Err(error) if error.code() == Code::Conflict && !is_taken(&error) => {
            person_with_key(server, &error)?.ok_or(error)?
        }
        created => created?,
    };
    if known == *name {
        return Ok(());
    }
    let detail = format!(
        "you are {known} at this office, and the person's name cannot be changed; at a new office choose it with \
         `amb up --person NAME`"
    );
    Err(OfficeError::new(Code::Conflict, detail).into())
}

/// Creates the person of the household at a server under this name, and stores the key.
async fn create_person(server: &ServerUrl, name: &AgentName, token: &SecretString) -> Result<AgentName, OfficeError> {
    let registered = amb_client::claim_person(server, name, token).await?;
    // The key first: a name without a key would be useless.
    let stored = keys::store(server, &registered.name, registered.api_key.expose_secret())
        .and_then(|_| store_person(server, &registered.name, token));
    stored.map_err(OfficeError::internal)?;
    Ok(registered.name)
}

fn store_person(server: &ServerUrl, name: &AgentName, token: &SecretString) -> Result<PathBuf> {
    change(|known| {
        let household = known.entry(server.to_string());
        let household = household.or_insert_with(|| KnownHousehold::new(token.expose_secret()));
        household.person = Some(name.clone());
    })
}

/// The person that the office names in its refusal to create another one, if that one's key is stored here; its name is
/// stored again.
fn person_with_key(server: &ServerUrl, refusal: &OfficeError) -> Result<Option<AgentName>> {
    let is_person = |name: &AgentName| refusal.detail().contains(&format!("has its person already: {name};"));
    let found = keys::agents(server)?.into_iter().find(is_person);
    if let (Some(name), Some(token)) = (&found, token(server)?) {
        store_person(server, name, &token)?;
    }
    Ok(found)
}

/// Whether the name is taken. The office uses the same sentence for every registration.
fn is_taken(error: &OfficeError) -> bool {
    error.code() == Code::Conflict && error.detail().contains("is taken")
}

/// Names for the person: the user's own where it is valid, then `person`, which no agent can have, then that with a
/// number.
fn candidate_names() -> impl Iterator<Item = AgentName> {
    let user = std::env::var("USER").ok().and_then(|user| AgentName::parse_for_server(&user).ok());
    let numbered = (2..MAX_NAMES).map(|number| format!("person-{number}"));
    let person = std::iter::once("person".to_owned()).chain(numbered);
    user.into_iter().chain(person.filter_map(|name| AgentName::parse_for_person(&name).ok()))
}

fn change(edit: impl FnOnce(&mut Memberships)) -> Result<PathBuf> {
    let path = path()?;
    durable::update_json(&path, |known: &mut Memberships| {
        edit(known);
        durable::drop_oldest(known, MAX_HOUSEHOLDS, |household| household.since);
    })?;
    Ok(path)
}
