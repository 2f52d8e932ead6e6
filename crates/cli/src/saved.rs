//! The profile: `config.toml` in the configuration directory, with the offices that this user has saved by name.
//!
//! ```toml
//! as = "ann"                          # the agent that acts
//! office = "work"                     # the saved office that verbs use; without it, the local one
//! [offices.work]
//! server = "https://mail.example"     # or dir = "/srv/mail", with a layout where it is not detected
//! as = "ann-at-work"
//! ```
//! A `server` or `dir` outside the tables is an office without a name, from before offices had names.

use std::collections::BTreeMap;
use std::path::PathBuf;

use amb_core::suggest::nearest;
use amb_core::{AgentName, OfficeError};
use anyhow::{Context, Result};
use serde::{Deserialize, Serialize};
use toml_edit::{DocumentMut, Item, Table, value};

use crate::{durable, home, local};

/// The name of the office that `amb up` starts, which cannot be saved.
pub(crate) const LOCAL: &str = "local";
/// Most characters in the name of a saved office.
const MAX_NAME: usize = 64;

/// The contents of the file.
#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct ProfileFile {
    dir: Option<PathBuf>,
    layout: Option<String>,
    server: Option<String>,
    #[serde(rename = "as")]
    pub(crate) me: Option<AgentName>,
    /// Which of the saved offices verbs use.
    pub(crate) office: Option<String>,
    #[serde(default)]
    pub(crate) offices: BTreeMap<String, SavedOffice>,
}

/// Where an office is, and which agent acts there.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct SavedOffice {
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) server: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) dir: Option<PathBuf>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) layout: Option<String>,
    #[serde(rename = "as", skip_serializing_if = "Option::is_none")]
    pub(crate) me: Option<AgentName>,
}

impl SavedOffice {
    /// For people.
    pub(crate) fn shown(&self) -> String {
        match (&self.server, &self.dir) {
            (Some(server), _) => server.clone(),
            (None, Some(dir)) => dir.display().to_string(),
            (None, None) => String::new(),
        }
    }
}

impl ProfileFile {
    /// A saved office by its name. `local` is the one that runs here, if any.
    pub(crate) fn office(&self, name: &str) -> Result<SavedOffice> {
        if name == LOCAL {
            let detail = "no local office runs; `amb up` starts it";
            let record = local::running().ok_or_else(|| OfficeError::not_found(detail))?;
            return Ok(SavedOffice { server: Some(record.url), ..SavedOffice::default() });
        }
        let found = self.offices.get(name).cloned();
        Ok(found.ok_or_else(|| OfficeError::not_found(self.unknown(name)))?)
    }

    pub(crate) fn unknown(&self, name: &str) -> String {
        match nearest(name, self.offices.keys().map(String::as_str).chain([LOCAL])) {
            Some(near) => format!("no office {name:?} is saved; did you mean {near:?}?"),
            None => format!("no office {name:?} is saved; `amb office add {name} URL` saves one"),
        }
    }

    /// The office that verbs use where none is named; empty where the profile has none.
    pub(crate) fn chosen(&self) -> Result<SavedOffice> {
        match &self.office {
            Some(name) if name != LOCAL => self.office(name).context("`office` in the profile"),
            Some(_) => Ok(SavedOffice::default()),
            None => Ok(SavedOffice {
                // The directory always had precedence over the server.
                server: self.server.clone().filter(|_| self.dir.is_none()),
                dir: self.dir.clone(),
                layout: self.layout.clone(),
                me: None,
            }),
        }
    }
}

/// A name under which an office can be saved.
pub(crate) fn check_name(name: &str) -> Result<(), OfficeError> {
    let plain = |c: char| c.is_ascii_alphanumeric() || c == '-' || c == '_';
    match name {
        LOCAL => Err(OfficeError::invalid("`local` is the office that `amb up` starts; choose another name")),
        _ if !name.is_empty() && name.len() <= MAX_NAME && name.chars().all(plain) => Ok(()),
        _ => Err(OfficeError::invalid(format!(
            "an office's name has 1 to {MAX_NAME} letters, digits, - or _; not {name:?}"
        ))),
    }
}

fn path() -> Result<PathBuf> {
    Ok(home::config_dir()?.join("config.toml"))
}

/// The profile; an empty one where there is none.
pub(crate) fn read() -> Result<ProfileFile> {
    // Without a home directory there is no profile, which is no error.
    let Ok(path) = path() else { return Ok(ProfileFile::default()) };
    let parsed = text(durable::read(&path)?).and_then(|text| Ok(toml::from_str(&text)?));
    parsed.with_context(|| path.display().to_string())
}

fn text(bytes: Option<Vec<u8>>) -> Result<String> {
    Ok(String::from_utf8(bytes.unwrap_or_default())?)
}

/// Saves an office, replacing one of the same name.
pub(crate) fn save(name: &str, place: &SavedOffice) -> Result<PathBuf> {
    check_name(name)?;
    change(|file| {
        let offices = file.entry("offices").or_insert_with(|| Item::Table(Table::new()));
        let offices = offices.as_table_mut().context("`offices` in the profile is no table")?;
        offices.set_implicit(true);
        let mut table = Table::new();
        let dir = place.dir.as_ref().map(|dir| dir.display().to_string());
        let me = place.me.as_ref().map(ToString::to_string);
        for (key, said) in [("server", &place.server), ("dir", &dir), ("layout", &place.layout), ("as", &me)] {
            if let Some(said) = said {
                table.insert(key, value(said.as_str()));
            }
        }
        offices.insert(name, Item::Table(table));
        Ok(())
    })
}

/// Makes a saved office, or the local one, the one that verbs use.
pub(crate) fn choose(name: &str) -> Result<PathBuf> {
    change(|file| {
        file.insert("office", value(name));
        Ok(())
    })
}

/// Removes a saved office; where verbs used it, they use none of the saved ones.
pub(crate) fn remove(name: &str) -> Result<PathBuf> {
    change(|file| {
        if let Some(offices) = file.get_mut("offices").and_then(Item::as_table_like_mut) {
            offices.remove(name);
        }
        if file.get("office").and_then(Item::as_str) == Some(name) {
            file.remove("office");
        }
        Ok(())
    })
}

/// Changes the file and leaves what `edit` does not touch as it is written, comments included.
fn change(edit: impl FnOnce(&mut DocumentMut) -> Result<()>) -> Result<PathBuf> {
    let path = path()?;
    durable::update(&path, |bytes| {
        let mut file: DocumentMut = text(bytes)?.parse().with_context(|| path.display().to_string())?;
        edit(&mut file)?;
        Ok(file.to_string().into_bytes())
    })?;
    Ok(path)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_old_profile_has_an_office_without_a_name() {
        let profile: ProfileFile = toml::from_str("server = \"http://h:1\"\nas = \"ann\"").unwrap();
        assert_eq!(profile.chosen().unwrap().server.as_deref(), Some("http://h:1"));
        let both: ProfileFile = toml::from_str("server = \"http://h:1\"\ndir = \"/m\"").unwrap();
        assert_eq!(both.chosen().unwrap().shown(), "/m", "of the two the directory");
    }

    #[test]
    fn the_chosen_office_takes_precedence_over_the_one_without_a_name() {
        let text = "server = \"http://h:1\"\noffice = \"work\"\n[offices.work]\nserver = \"http://w:2\"\nas = \"ben\"";
        let profile: ProfileFile = toml::from_str(text).unwrap();
        let place = profile.chosen().unwrap();
        assert_eq!((place.shown().as_str(), place.me.unwrap().as_str()), ("http://w:2", "ben"));
        assert!(profile.unknown("wrok").contains("did you mean \"work\"?"));
    }

    #[test]
    fn a_name_is_one_word() {
        for good in ["work", "at-home", "a_1"] {
            check_name(good).unwrap();
        }
        for bad in ["", LOCAL, "a b", "a.b", "ä", &"x".repeat(65)] {
            assert!(check_name(bad).is_err(), "{bad}");
        }
    }
}
