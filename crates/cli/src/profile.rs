//! What the environment and the profile set where the command line does not.

use std::path::{Path, PathBuf};

use amb_client::{SecretString, ServerUrl};
use amb_dir::Layout;
use anyhow::{Context, Result};

use crate::args::{OfficeArgs, OfficeOrigin};
use crate::local;
use crate::offices::CHIPSET_ROOT;
use crate::saved::{self, SavedOffice};

fn env(name: &str) -> Option<String> {
    std::env::var(name).ok().filter(|value| !value.is_empty())
}

/// The key that the environment gives, for any server.
pub(crate) fn key_from_env() -> Option<SecretString> {
    env("MAILBOX_API_KEY").map(SecretString::from)
}

impl OfficeArgs {
    /// Fills in what was not given: flags first, then the environment, then the profile, then what is found here. An office from
    /// one of them is never mixed with settings from a later one.
    pub(crate) fn settle(&mut self) -> Result<()> {
        if self.me.is_none() {
            self.me = env("AMB_AS").map(|name| name.parse()).transpose().context("AMB_AS")?;
        }
        if self.layout.is_none() {
            self.layout = env("AMB_LAYOUT").map(|layout| layout.parse()).transpose().context("AMB_LAYOUT")?;
        }
        let profile = saved::read()?;
        if let Some(name) = self.office.clone() {
            self.take(profile.office(&name)?)?;
        }
        if !self.is_placed() {
            self.dir = env("AMB_DIR").map(PathBuf::from);
            if self.dir.is_none() {
                self.server =
                    env("MAILBOX_SERVER_URL").map(|url| url.parse()).transpose().context("MAILBOX_SERVER_URL")?;
            }
        }
        let chosen = profile.chosen()?;
        self.me = self.me.take().or(profile.me);
        if !self.is_placed() {
            self.take(chosen)?;
        }
        if !self.is_placed() && self.layout.is_none() && !Path::new(CHIPSET_ROOT).is_dir() {
            // A record that does not parse is ignored.
            self.server = local::running().and_then(|record| record.server().ok());
            if self.server.is_some() {
                self.origin = OfficeOrigin::Local;
            }
        }
        Ok(())
    }

    /// Uses a saved office, for what was not given.
    fn take(&mut self, place: SavedOffice) -> Result<()> {
        self.server = place.server.map(|url| url.parse::<ServerUrl>()).transpose().context("server in the profile")?;
        self.dir = place.dir;
        self.me = self.me.take().or(place.me);
        if self.layout.is_none() {
            self.layout = place.layout.map(|layout| layout.parse::<Layout>()).transpose()?;
        }
        if self.is_placed() {
            self.origin = OfficeOrigin::Saved;
        }
        Ok(())
    }

    fn is_placed(&self) -> bool {
        self.dir.is_some() || self.server.is_some()
    }

    /// The office that was named by a flag, the environment or the profile, for people.
    pub(crate) fn place_said(&self) -> Option<String> {
        match (&self.server, &self.dir) {
            (Some(server), _) if self.origin != OfficeOrigin::Local => Some(server.to_string()),
            (None, Some(dir)) => Some(dir.display().to_string()),
            _ => None,
        }
    }
}
