//! How to reach NATS.

use std::fmt;
use std::path::PathBuf;
use std::time::Duration;

use super::servers::NatsServers;
use crate::outbox::OutboxOptions;

/// The bucket that holds who is live by default.
pub const PRESENCE_BUCKET: &str = "amb_presence";

/// Everything about a connection to NATS.
#[derive(Debug, Clone)]
pub struct NatsOptions {
    /// Where to connect to.
    pub servers: NatsServers,
    /// How to authenticate.
    pub auth: NatsAuth,
    /// Encryption.
    pub tls: NatsTls,
    /// Name of this connection in the server's monitoring.
    pub name: String,
    /// How long a receiver has to acknowledge before a message counts as published only.
    pub ack_timeout: Duration,
    /// How long connecting may take.
    pub connect_timeout: Duration,
    /// How often the connection is checked for life.
    pub ping_interval: Duration,
    /// The key-value bucket for presence. Deployments that must not see each other use different ones.
    pub presence_bucket: String,
    /// How long the goals of a dead process stay listed. Heartbeats are sent three times as often. If the bucket exists
    /// already, its own expiry applies.
    pub expiry: Duration,
    /// What a publish does while there is no connection.
    pub on_outage: OnOutage,
    /// Send messages inside the event envelope, for runtimes that read nothing else. Both forms are accepted.
    pub envelope: bool,
    /// The prefix of reply subjects, where permissions ask for another than `_INBOX`.
    pub inbox_prefix: Option<String>,
}

impl NatsOptions {
    /// The usual settings for one server, or several separated by commas.
    pub fn new(servers: &str) -> Self {
        let Ok(servers) = servers.parse();
        Self::at(servers)
    }

    /// The usual settings for these servers.
    pub fn at(servers: NatsServers) -> Self {
        Self {
            servers,
            auth: NatsAuth::None,
            tls: NatsTls::default(),
            name: "amb-live".into(),
            ack_timeout: Duration::from_secs(2),
            connect_timeout: Duration::from_secs(5),
            ping_interval: Duration::from_secs(15),
            presence_bucket: PRESENCE_BUCKET.into(),
            expiry: Duration::from_secs(30),
            on_outage: OnOutage::Refuse,
            envelope: false,
            inbox_prefix: None,
        }
    }
}

/// How to authenticate at the server.
#[derive(Clone, Default)]
pub enum NatsAuth {
    /// No credentials, or those in the server's URL.
    #[default]
    None,
    /// A shared token.
    Token(String),
    /// A user with a password.
    UserPassword {
        /// The user.
        user: String,
        /// The password.
        password: String,
    },
    /// An NKey, by its seed (`SU…`). The seed never leaves the process.
    NKey(String),
    /// A credentials file with a JWT and a seed, as `nsc` writes it.
    CredsFile(PathBuf),
}

impl fmt::Debug for NatsAuth {
    /// Prints the method, never the secret.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            NatsAuth::None => f.write_str("None"),
            NatsAuth::Token(_) => f.write_str("Token(…)"),
            NatsAuth::UserPassword { user, .. } => write!(f, "UserPassword({user:?}, …)"),
            NatsAuth::NKey(_) => f.write_str("NKey(…)"),
            NatsAuth::CredsFile(path) => write!(f, "CredsFile({path:?})"),
        }
    }
}

/// Encryption of the connection.
#[derive(Debug, Clone, Default)]
pub struct NatsTls {
    /// Refuse a connection without TLS. A `tls://` URL asks for the same.
    pub required: bool,
    /// Begin with TLS, before the server's greeting (the server must be set up for it).
    pub first: bool,
    /// PEM file of the authorities to trust besides the system's.
    pub ca_file: Option<PathBuf>,
    /// PEM files of the client's certificate and key.
    pub client: Option<(PathBuf, PathBuf)>,
}

/// What a publish does while there is no connection.
#[derive(Debug, Clone, Default)]
pub enum OnOutage {
    /// Return an error.
    #[default]
    Refuse,
    /// Write the message to a durable outbox here and send it in order when the connection is back.
    Queue(OutboxOptions),
}
