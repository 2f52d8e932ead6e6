//! How the live verbs and the replicas of an office connect to NATS.

use std::path::PathBuf;

use amb_live::{BrokerError, LivePeers, NatsAuth, NatsOptions, NatsServers, NatsTls};
use anyhow::Context;
use serde::Deserialize;

use crate::failure::Failure;

/// The NATS server and our credentials.
#[derive(Debug, Clone, Default, Deserialize, clap::Args)]
#[serde(deny_unknown_fields, default)]
pub(crate) struct NatsArgs {
    /// NATS server that connects live peers, or the replicas of an office; separate several URLs by commas
    #[arg(long, value_name = "URL", env = "NATS_URL", hide_env_values = true)]
    pub(crate) nats_url: Option<NatsServers>,
    /// Token to authenticate to NATS
    #[arg(long, value_name = "TOKEN", env = "NATS_TOKEN", hide_env_values = true)]
    nats_token: Option<String>,
    /// User to authenticate to NATS; the password is read from NATS_PASSWORD
    #[arg(long, value_name = "USER", env = "NATS_USER")]
    nats_user: Option<String>,
    /// File with the NKey seed to authenticate to NATS
    #[arg(long, value_name = "FILE", env = "NATS_NKEY")]
    nats_nkey: Option<PathBuf>,
    /// NATS credentials file, as written by nsc
    #[arg(long, value_name = "FILE", env = "NATS_CREDS")]
    nats_creds: Option<PathBuf>,
    /// PEM file of certificate authorities to trust for NATS, in addition to the system's
    #[arg(long, value_name = "FILE", env = "NATS_CA")]
    nats_ca: Option<PathBuf>,
}

/// The form in which messages to live goals are written. Both forms are read.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, clap::ValueEnum)]
pub(crate) enum LiveEnvelope {
    /// The message without an envelope
    #[default]
    Bare,
    /// The message inside the `Event` that a nexo runtime reads
    Nexo,
}

#[derive(Debug, Clone, clap::Args)]
pub(crate) struct EnvelopeArgs {
    /// Format of messages to live goals; goals of a nexo runtime read only `nexo`
    #[arg(long, value_name = "FORM", value_enum, default_value_t)]
    envelope: LiveEnvelope,
}

impl EnvelopeArgs {
    /// The same connection, with messages in this form.
    pub(crate) fn apply(&self, options: NatsOptions) -> NatsOptions {
        NatsOptions { envelope: self.envelope == LiveEnvelope::Nexo, ..options }
    }
}

impl NatsArgs {
    /// Whether a server is named.
    pub(crate) fn is_named(&self) -> bool {
        self.nats_url.as_ref().is_some_and(|servers| !servers.is_empty())
    }

    /// These settings, completed by `other`. Credentials are taken from one of the two, never mixed.
    pub(crate) fn or(self, other: Self) -> Self {
        let has_credentials =
            [self.nats_token.is_some(), self.nats_user.is_some(), self.nats_nkey.is_some(), self.nats_creds.is_some()];
        let credentials = if has_credentials.contains(&true) { self.clone() } else { other.clone() };
        Self { nats_url: self.nats_url.or(other.nats_url), nats_ca: self.nats_ca.or(other.nats_ca), ..credentials }
    }

    /// The options of the connection.
    pub(crate) fn options(&self) -> Result<NatsOptions, Failure> {
        let servers = self
            .nats_url
            .clone()
            .ok_or_else(|| Failure::usage("live goals meet at a NATS server: --nats-url nats://127.0.0.1:4222"))?;
        let auth = match (&self.nats_token, &self.nats_user, &self.nats_nkey, &self.nats_creds) {
            (None, None, None, None) => NatsAuth::None,
            (Some(token), None, None, None) => NatsAuth::Token(token.clone()),
            (None, Some(user), None, None) => {
                let password = std::env::var("NATS_PASSWORD").context("NATS_PASSWORD is not set")?;
                NatsAuth::UserPassword { user: user.clone(), password }
            }
            (None, None, Some(seed), None) => NatsAuth::NKey(fs_err::read_to_string(seed)?.trim().to_owned()),
            (None, None, None, Some(creds)) => NatsAuth::CredsFile(creds.clone()),
            _ => return Err(Failure::usage("say who you are to NATS in one way: token, user, nkey or creds")),
        };
        let tls = NatsTls { ca_file: self.nats_ca.clone(), ..NatsTls::default() };
        Ok(NatsOptions { auth, tls, ..NatsOptions::at(servers) })
    }

    /// The live peers at that server.
    pub(crate) async fn connect(&self) -> Result<LivePeers, Failure> {
        connect(self.options()?).await
    }
}

/// The live peers at a server.
pub(crate) async fn connect(options: NatsOptions) -> Result<LivePeers, Failure> {
    Ok(LivePeers::connect(options).await.map_err(unreachable)?)
}

/// A broker error as an unreachable office.
pub(crate) fn unreachable(error: BrokerError) -> amb_core::OfficeError {
    amb_core::OfficeError::unavailable(error.to_string()).caused_by(error)
}
