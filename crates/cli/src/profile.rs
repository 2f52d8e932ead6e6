//! The office and agent from the environment and the profile, where the command line does not name them.

use std::path::{Path, PathBuf};

use amb_client::{SecretString, ServerUrl};
use amb_core::AgentName;
use amb_dir::Layout;
use anyhow::{Context, Result};

use crate::args::{OfficeArgs, OfficeOrigin};
use crate::local;
use crate::offices::CHIPSET_ROOT;
use crate::saved::{self, LOCAL, SavedOffice};

/// The environment variable with an agent's key.
pub(crate) const KEY_VARIABLE: &str = "MAILBOX_API_KEY";

/// An environment variable that is set and not empty.
pub(crate) fn variable(name: &str) -> Option<String> {
    std::env::var(name).ok().filter(|value| !value.is_empty())
}

/// The key that the environment gives, for any server.
pub(crate) fn key_from_env() -> Option<SecretString> {
    variable(KEY_VARIABLE).map(SecretString::from)
}

impl OfficeArgs {
    /// Fills in what no flag gave: from the environment, then the profile, then the local office. An office from one of
    /// them is never mixed with settings from a later one.
    pub(crate) fn resolve(&mut self) -> Result<()> {
        if self.me.is_none() {
            self.me = variable("AMB_AS").map(|name| name.parse()).transpose().context("AMB_AS")?;
        }
        if self.layout.is_none() {
            self.layout = variable("AMB_LAYOUT").map(|layout| layout.parse()).transpose().context("AMB_LAYOUT")?;
        }
        let profile = saved::read()?;
        let mut saved_agent = None;
        if let Some(name) = self.office.clone() {
            saved_agent = self.use_saved(profile.office(&name)?)?;
        }
        if !self.has_office() {
            self.dir = variable("AMB_DIR").map(PathBuf::from);
            if self.dir.is_none() {
                self.server =
                    variable("MAILBOX_SERVER_URL").map(|url| url.parse()).transpose().context("MAILBOX_SERVER_URL")?;
            }
        }
        let chosen = profile.chosen()?;
        saved_agent = saved_agent.or(profile.me);
        if !self.has_office() {
            saved_agent = saved_agent.or(self.use_saved(chosen)?);
        }
        if !self.has_office() && self.layout.is_none() && !Path::new(CHIPSET_ROOT).is_dir() {
            // A record that does not parse is ignored.
            self.server = local::running().and_then(|record| record.server().ok());
            if self.server.is_some() {
                self.origin = OfficeOrigin::Local;
            }
        }
        // At a server, a key in the environment identifies the agent.
        if self.me.is_none() && (self.server.is_none() || key_from_env().is_none()) {
            self.me = saved_agent;
        }
        Ok(())
    }

    /// [`OfficeArgs::resolve`] for a process that waits for its office: while the local office, named as such, does not
    /// run, its last address stands for it. Nothing may be sent there, because another server may use it.
    pub(crate) fn resolve_or_wait(&mut self) -> Result<()> {
        match local::last_server() {
            Ok(server) if self.is_local_down() => {
                let named = self.office.take();
                (self.server, self.origin) = (Some(server), OfficeOrigin::Saved);
                let resolved = self.resolve();
                self.office = named;
                resolved
            }
            _ => self.resolve(),
        }
    }

    /// Uses a saved office for what was not given. Returns the agent that acts there.
    fn use_saved(&mut self, place: SavedOffice) -> Result<Option<AgentName>> {
        self.server = place.server.map(|url| url.parse::<ServerUrl>()).transpose().context("server in the profile")?;
        self.dir = place.dir;
        if self.layout.is_none() {
            self.layout = place.layout.map(|layout| layout.parse::<Layout>()).transpose()?;
        }
        if self.has_office() {
            self.origin = OfficeOrigin::Saved;
        }
        Ok(place.me)
    }

    /// Whether the local office was named, and does not run.
    pub(crate) fn is_local_down(&self) -> bool {
        self.names_local() && local::running().is_none()
    }

    /// Whether the local office was named, whose address may change.
    pub(crate) fn names_local(&self) -> bool {
        self.office.as_deref() == Some(LOCAL)
    }

    fn has_office(&self) -> bool {
        self.dir.is_some() || self.server.is_some()
    }

    /// The office that was named by a flag, the environment or the profile, for people.
    pub(crate) fn named_office(&self) -> Option<String> {
        match (&self.server, &self.dir) {
            (Some(server), _) if self.origin != OfficeOrigin::Local => Some(server.to_string()),
            (None, Some(dir)) => Some(dir.display().to_string()),
            _ => None,
        }
    }
}
