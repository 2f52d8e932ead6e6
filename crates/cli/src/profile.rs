//! What the environment and the profile file say where the command line says nothing.

use std::path::PathBuf;

use amb_client::{SecretString, ServerUrl};
use amb_core::AgentName;
use amb_dir::Layout;
use anyhow::{Context, Result};
use serde::Deserialize;

use crate::args::OfficeArgs;
use crate::home;

/// `config.toml` in the configuration directory.
#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
struct Profile {
    dir: Option<PathBuf>,
    layout: Option<String>,
    server: Option<String>,
    #[serde(rename = "as")]
    me: Option<AgentName>,
}

fn env(name: &str) -> Option<String> {
    std::env::var(name).ok().filter(|value| !value.is_empty())
}

/// The key that the environment gives, for any server.
pub(crate) fn key_from_env() -> Option<SecretString> {
    env("MAILBOX_API_KEY").map(SecretString::from)
}

impl OfficeArgs {
    /// Fills in what was not said: flags first, then the environment, then the profile. A place named in one of them is
    /// never mixed with a place named in a later one.
    pub(crate) fn settle(&mut self) -> Result<()> {
        if self.me.is_none() {
            self.me = env("AMB_AS").map(|name| name.parse()).transpose().context("AMB_AS")?;
        }
        if self.layout.is_none() {
            self.layout = env("AMB_LAYOUT").map(|layout| layout.parse()).transpose().context("AMB_LAYOUT")?;
        }
        if !self.is_placed() {
            self.dir = env("AMB_DIR").map(PathBuf::from);
            if self.dir.is_none() {
                self.server =
                    env("MAILBOX_SERVER_URL").map(|url| url.parse()).transpose().context("MAILBOX_SERVER_URL")?;
            }
        }
        let profile = read_profile()?;
        self.me = self.me.take().or(profile.me);
        if !self.is_placed() {
            self.dir = profile.dir;
            if self.dir.is_none() {
                self.server =
                    profile.server.map(|url| url.parse::<ServerUrl>()).transpose().context("server in the profile")?;
            }
            if self.layout.is_none() {
                self.layout = profile.layout.map(|layout| layout.parse::<Layout>()).transpose()?;
            }
        }
        Ok(())
    }

    fn is_placed(&self) -> bool {
        self.dir.is_some() || self.server.is_some()
    }
}

fn read_profile() -> Result<Profile> {
    // Without a home there is no profile, which is no error.
    let Ok(directory) = home::config_dir() else { return Ok(Profile::default()) };
    let path = directory.join("config.toml");
    match fs_err::read_to_string(&path) {
        Ok(text) => toml::from_str(&text).with_context(|| path.display().to_string()),
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(Profile::default()),
        Err(error) => Err(error.into()),
    }
}
