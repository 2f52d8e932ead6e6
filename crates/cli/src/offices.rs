//! Which office the command line uses, and as which agent.

use std::path::PathBuf;
use std::sync::Arc;

use amb_client::{Client, SecretString, ServerUrl};
use amb_core::suggest::{nearest, unknown_agent};
use amb_core::{AgentName, Code, Mailbox, OfficeError};
use amb_dir::{DirOffice, DirOptions, Layout};
use amb_mcp::LazyMailbox;

use crate::args::{OfficeArgs, OfficeOrigin};
use crate::failure::Failure;
use crate::init::nanobot::{self, Section};
use crate::output::Output;
use crate::verbs::init::ensure_registered;
use crate::{consent, home, household, keys, local, profile};

/// Where the chipset stores messages, below a project.
pub(crate) const CHIPSET_ROOT: &str = ".chipset/state/mail";

impl OfficeArgs {
    /// The caller's mailbox at the office.
    pub(crate) async fn open(&self) -> Result<Arc<dyn Mailbox>, Failure> {
        self.open_with(DirOptions::default()).await
    }

    /// The caller's mailbox, with options for a directory.
    pub(crate) async fn open_with(&self, options: DirOptions) -> Result<Arc<dyn Mailbox>, Failure> {
        match &self.server {
            Some(server) => Ok(Arc::new(self.client(server).await?)),
            None => {
                let mailbox = self.directory(options)?.mailbox(self.acting_agent()?);
                // Using the office shows that the agent is alive; a server records the same for every request. A
                // failure is ignored: nobody may be registered, or the directory may be read-only.
                if let Err(error) = mailbox.heartbeat().await {
                    tracing::debug!(%error, "no heartbeat was recorded");
                }
                Ok(Arc::new(mailbox))
            }
        }
    }

    /// The caller's mailbox at an office that may be unreachable now: it is opened on first use. Wrong arguments are
    /// errors at once.
    pub(crate) fn mailbox(&self) -> Result<LazyMailbox, Failure> {
        if let Some(server) = self.server.clone() {
            let key = self.key(&server)?;
            if self.names_local() {
                let office = self.clone();
                return Ok(LazyMailbox::opened_by(move || office.clone().open_local()));
            }
            return Ok(LazyMailbox::opened_by(move || {
                let (server, key) = (server.clone(), key.clone());
                async move { Ok(Arc::new(Client::open(server, key).await?) as Arc<dyn Mailbox>) }
            }));
        }
        let mailbox: Arc<dyn Mailbox> = Arc::new(self.directory(DirOptions::default())?.mailbox(self.acting_agent()?));
        let section = self.nanobot_section(mailbox.me());
        Ok(LazyMailbox::opened_by(move || {
            let (mailbox, section) = (Arc::clone(&mailbox), section.clone());
            async move {
                if ensure_registered(&*mailbox, section.as_ref()).await? {
                    tracing::info!(agent = %mailbox.me(), office = %mailbox.describe(), "registered");
                }
                Ok(mailbox)
            }
        }))
    }

    /// The caller's mailbox at the local office, at the address that it has now. While it does not run, nothing is sent
    /// to its last address, which another server may use.
    async fn open_local(self) -> Result<Arc<dyn Mailbox>, OfficeError> {
        let down = || OfficeError::unavailable("the local office does not run; `amb up` starts it");
        let server = local::running().ok_or_else(down)?.server()?;
        let key = self.key(&server).map_err(|error| match error {
            Failure::Office(error) => error,
            Failure::Other(error) => OfficeError::internal(error),
        })?;
        Ok(Arc::new(Client::open(server, key).await?))
    }

    /// The section of nanobot's configuration, where it applies to this agent in this directory.
    pub(crate) fn nanobot_section(&self, agent: &AgentName) -> Option<Section> {
        let (home, root) = (home::user().ok()?, self.root().ok()?);
        let path = home::nanobot_config().ok()?;
        let text = match fs_err::read_to_string(&path) {
            Ok(text) => text,
            Err(error) => {
                // Most machines have no nanobot. Where the file was named explicitly, an error matters.
                if std::env::var_os(home::NANOBOT_CONFIG).is_some() {
                    tracing::warn!(%error, "{} cannot be read", home::NANOBOT_CONFIG);
                }
                return None;
            }
        };
        let found = nanobot::section(&text).unwrap_or_else(|error| {
            tracing::warn!(path = %path.display(), "{error:#}; its settings of the mailbox are ignored");
            None
        });
        found.filter(|section| self.server.is_none() && section.is_about(agent, &root, &home))
    }

    /// A mailbox for reading only, for which a directory needs no agent.
    pub(crate) async fn open_read_only(&self) -> Result<Arc<dyn Mailbox>, Failure> {
        match (&self.me, &self.server) {
            (None, None) => {
                let nobody = AgentName::parse("amb").map_err(OfficeError::from)?;
                Ok(Arc::new(self.directory(DirOptions::default())?.mailbox(nobody)))
            }
            _ => self.open().await,
        }
    }

    /// The office in a directory, for the verbs that only a directory has.
    pub(crate) fn directory(&self, options: DirOptions) -> Result<DirOffice, Failure> {
        let directory_only = |server: &ServerUrl| {
            OfficeError::unsupported(format!("this verb works on a directory (--dir PATH), not on {server}"))
        };
        let root = match (&self.server, self.origin) {
            (None, _) => self.root()?,
            // Beside a local office that nobody named, there may be nanobot's mailboxes.
            (Some(server), OfficeOrigin::Local) => self.root().map_err(|_| directory_only(server))?,
            (Some(server), _) => return Err(directory_only(server).into()),
        };
        // The same transcripts that `amb transcript` reads and writes.
        let transcripts = options.transcripts.clone().or_else(|| home::nanobot_transcripts().ok());
        let options = DirOptions { layout: self.layout, transcripts, ..options };
        let is_new = self.dir.is_none() && options.layout == Some(Layout::Chipset) && !root.exists();
        let office = DirOffice::open(&root, options)?;
        if is_new {
            // A directory that this verb creates is the user's own, so it is trusted from now on.
            office.when_made(consent::remember);
        }
        Ok(office)
    }

    /// Warns on stderr that no agent in the directory has this name but one has a similar name: often a typo, but no
    /// error, since mailboxes are created implicitly.
    pub(crate) async fn warn_if_unknown(&self, mailbox: &dyn Mailbox, output: Output) {
        if self.server.is_some() {
            return;
        }
        let (agents, me) = (mailbox.agents().await.unwrap_or_default(), mailbox.me().as_str());
        let known: Vec<&str> = agents.iter().map(|agent| agent.name.as_str()).collect();
        if !known.contains(&me) && nearest(me, known.iter().copied()).is_some() {
            output.note(unknown_agent(me, known));
        }
    }

    /// The directory that was named, or the one found here to which the user agrees.
    pub(crate) fn root(&self) -> Result<PathBuf, Failure> {
        if let Some(dir) = &self.dir {
            return Ok(dir.clone());
        }
        let here = PathBuf::from(CHIPSET_ROOT);
        match self.layout {
            // A directory that does not exist yet holds no messages.
            Some(Layout::Chipset) if !here.exists() => {}
            Some(Layout::Chipset) => consent::ask(&here)?,
            None if here.is_dir() => consent::ask(&here)?,
            Some(_) => return Ok(home::nanobot_mailboxes()?),
            None => {
                let mailboxes = home::nanobot_mailboxes()?;
                return if mailboxes.is_dir() { Ok(mailboxes) } else { Err(no_office()) };
            }
        }
        Ok(here)
    }

    /// The agent that acts.
    pub(crate) fn acting_agent(&self) -> Result<AgentName, Failure> {
        self.me.clone().ok_or_else(|| Failure::usage("say who you are: --as NAME, or AMB_AS in the environment"))
    }

    /// What to do where a server rejects a stored key.
    fn explain_refused_key(&self, server: &ServerUrl, error: OfficeError) -> Failure {
        if error.code() != Code::Unauthorized {
            return error.into();
        }
        let is_stored = |name: &&AgentName| keys::find(server, name).is_ok_and(|key| key.is_some());
        let name = match &self.me {
            Some(name) => Some(name).filter(is_stored).cloned(),
            None if profile::key_from_env().is_some() => None,
            None => household::person(server).ok().flatten(),
        };
        let detail = match name {
            Some(name) => {
                let flag = self.server_flag();
                format!(
                    "{server} does not take the key that is kept here for {name}: the key was renewed elsewhere, or the office's \
                     database replaced. `amb register {name}{flag} --anew` registers it again where the name is free; else the \
                     office's operator gives it a new key: `amb admin key {name}`, and `amb key import {name}{flag}` stores it"
                )
            }
            None => format!(
                "{server} does not take this key ({}); see MAILBOX_API_KEY in the environment, or speak as another: --as NAME",
                error.detail()
            ),
        };
        OfficeError::new(Code::Unauthorized, detail).into()
    }

    /// The flag that names the same server again; empty where it is the default.
    fn server_flag(&self) -> String {
        match (&self.server, self.origin) {
            (Some(server), OfficeOrigin::Explicit) => format!(" --server {server}"),
            _ => String::new(),
        }
    }

    /// The server, for a verb that needs one; else an error with this detail.
    pub(crate) fn server_or(&self, detail: &str) -> Result<&ServerUrl, Failure> {
        if self.server.is_none() {
            // Fails where there is no office at all.
            self.root()?;
        }
        self.server.as_ref().ok_or_else(|| OfficeError::unsupported(detail).into())
    }

    /// The mailbox of the acting agent at a server.
    pub(crate) async fn client(&self, server: &ServerUrl) -> Result<Client, Failure> {
        let opened = Client::open(server.clone(), self.acting_key(server).await?).await;
        opened.map_err(|error| self.explain_refused_key(server, error))
    }

    /// These arguments with the person of the household as the acting agent, where no agent was named. Not at a server
    /// that was named explicitly and where only one agent has a key: that agent acts.
    pub(crate) async fn as_person(&self, server: &ServerUrl) -> Result<Option<OfficeArgs>, Failure> {
        if self.me.is_some() || profile::key_from_env().is_some() {
            return Ok(None);
        }
        if self.origin == OfficeOrigin::Explicit && keys::agents(server)?.len() == 1 {
            return Ok(None);
        }
        let person = household::claim_person(server).await?;
        Ok(person.map(|person| OfficeArgs { me: Some(person), ..self.clone() }))
    }

    /// The key of the acting agent at a server, or of the household's person.
    pub(crate) async fn acting_key(&self, server: &ServerUrl) -> Result<SecretString, Failure> {
        self.as_person(server).await?.as_ref().unwrap_or(self).key(server)
    }

    /// The key for a server: of the agent that was named, else from the environment, else the only one that is stored.
    pub(crate) fn key(&self, server: &ServerUrl) -> Result<SecretString, Failure> {
        let missing = |name: &AgentName| {
            let known = keys::agents(server).unwrap_or_default();
            let hint = match nearest(name.as_str(), known.iter().map(AgentName::as_str)) {
                Some(near) => format!("no key for {name} at {server}; did you mean {near:?}?"),
                None => format!("no key for {name} at {server}; `amb register {name}{}` makes one", self.server_flag()),
            };
            Failure::Office(OfficeError::new(Code::Unauthorized, hint))
        };
        if let Some(name) = &self.me {
            let stored = keys::find(server, name)?;
            return stored.or_else(profile::key_from_env).ok_or_else(|| missing(name));
        }
        if let Some(key) = profile::key_from_env() {
            return Ok(key);
        }
        match keys::agents(server)?.as_slice() {
            [only] => keys::find(server, only)?.ok_or_else(|| missing(only)),
            [] => {
                let flag = self.server_flag();
                Err(Failure::usage(format!("you have no agent at {server}; `amb register NAME{flag}` registers one")))
            }
            several => {
                let names: Vec<_> = several.iter().map(AgentName::as_str).collect();
                Err(Failure::usage(format!("say who you are with --as; at {server} you have {}", names.join(", "))))
            }
        }
    }
}

/// The error where no office was named or found.
fn no_office() -> Failure {
    let detail = "no office is running here; `amb up` starts one (or name another: --server URL, --dir PATH)";
    OfficeError::not_found(detail).into()
}
