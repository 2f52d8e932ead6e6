//! Settings of a network office: plain values with defaults, filled in by the caller of [`serve`](crate::serve()).

use std::fmt;
use std::path::PathBuf;
use std::time::Duration;

use amb_core::Quotas;
use amb_live::NatsOptions;

use crate::rate::RateLimits;

/// Everything about an office that can be set, except its listeners and its store.
#[derive(Debug, Clone)]
pub struct Config {
    /// Withholds verification codes from the target's inbox and events, so that people must pass them on.
    pub private_codes: bool,
    /// How long a verification code is valid.
    pub code_ttl: Duration,
    /// Maximum number of pending connection requests of one agent.
    pub max_pending: u32,
    /// How often an idle WebSocket is pinged.
    pub ws_ping_interval: Duration,
    /// How long a WebSocket may leave a ping unanswered.
    pub ws_ping_timeout: Duration,
    /// How long a WebSocket that connected without a key may take to send one.
    pub ws_auth_timeout: Duration,
    /// How long one write to a WebSocket may take before it is closed as too slow.
    pub ws_slow_timeout: Duration,
    /// Maximum number of subscribers (WebSockets, long polls, pages) of one agent.
    pub ws_per_agent: usize,
    /// Rate limits; `None` for no limits.
    pub rate_limits: Option<RateLimits>,
    /// Maximum size of a request's body, in bytes.
    pub body_limit: usize,
    /// Upper bound of a long poll's `wait` (at most 60 s).
    pub max_wait: Duration,
    /// Allowed values of `Host`, besides the names of loopback. Connections to a loopback address allow no others;
    /// other connections allow every IP address, and every name if this is empty.
    pub allowed_hosts: Vec<String>,
    /// Web origins that browsers may call from, besides the office's own; none by default, `*` for all.
    pub cors_origins: Vec<String>,
    /// Trusts the last entry of `X-Forwarded-For`: only for an office behind a proxy that writes it.
    pub trust_forwarded_for: bool,
    /// How long log entries are kept; `None` for ever.
    pub event_retention: Option<Duration>,
    /// How long mail is kept after all its recipients read it; `None` for ever.
    pub read_mail_retention: Option<Duration>,
    /// How much mail an agent, and all agents together, may have stored.
    pub quotas: Quotas,
    /// How long the old key stays valid after a rotation.
    pub key_grace: Duration,
    /// How long a shutdown waits for requests in flight.
    pub shutdown_grace: Duration,
    /// How long a client may take to send the head of a request, and then its body.
    pub header_timeout: Duration,
    /// How long a client may leave a response unread, or read it too slowly, before its connection is closed.
    pub write_timeout: Duration,
    /// Maximum number of connections from one address, including WebSockets. Not enforced with `trust_forwarded_for`.
    pub connections_per_address: usize,
    /// Maximum number of requests in flight from one address, including long polls and unread responses.
    pub requests_per_address: usize,
    /// Who may register.
    pub registration: Registration,
    /// Directories to mount: their agents and those of the office reach each other.
    pub mounts: Vec<PathBuf>,
    /// `*` in the `allow_from` of a mounted agent means every agent of the office, not only those of its directory.
    pub mount_open: bool,
    /// NATS for hints between replicas; without it they go through the database.
    pub nats: Option<NatsOptions>,
    /// How often subscribers are checked: the maximum delay after a lost hint or the end of a key.
    pub poll_interval: Duration,
    /// Operators can read all mail on the dashboard. Registration, profiles and every page say so.
    pub operators_read_mail: bool,
    /// The person of the first household sees the office's health, as an operator does: for an office on their own
    /// machine.
    pub owner_is_operator: bool,
    /// Certificate and key, for an office without a proxy.
    pub tls: Option<TlsFiles>,
}

/// Who may register.
#[derive(Clone, PartialEq, Eq)]
pub enum Registration {
    /// Anybody who can reach the office.
    Open,
    /// Clients that send this token.
    Token(String),
    /// Nobody: agents were registered before, or come by a mount.
    Closed,
}

impl fmt::Debug for Registration {
    /// Omits the token.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Open => "Open",
            Self::Token(_) => "Token",
            Self::Closed => "Closed",
        })
    }
}

/// Paths of the certificate chain and its key, both in PEM.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TlsFiles {
    /// The certificate chain, the server's own certificate first.
    pub certificate: PathBuf,
    /// The private key.
    pub key: PathBuf,
}

impl Default for Config {
    fn default() -> Self {
        Self {
            private_codes: false,
            code_ttl: Duration::from_secs(60 * 60),
            max_pending: 3,
            ws_ping_interval: Duration::from_secs(30),
            ws_ping_timeout: Duration::from_secs(60),
            ws_auth_timeout: Duration::from_secs(5),
            ws_slow_timeout: Duration::from_secs(10),
            ws_per_agent: 64,
            rate_limits: Some(RateLimits::default()),
            // The largest message, and room for the names of its fields.
            body_limit: amb_core::limits::MAX_MESSAGE_BYTES + 64 * 1024,
            max_wait: Duration::from_secs(60),
            allowed_hosts: Vec::new(),
            cors_origins: Vec::new(),
            trust_forwarded_for: false,
            event_retention: None,
            read_mail_retention: None,
            quotas: Quotas::default(),
            key_grace: Duration::from_secs(60 * 60),
            shutdown_grace: Duration::from_secs(10),
            header_timeout: Duration::from_secs(15),
            write_timeout: Duration::from_secs(30),
            connections_per_address: 16_384,
            requests_per_address: 4_096,
            registration: Registration::Open,
            mounts: Vec::new(),
            mount_open: false,
            nats: None,
            poll_interval: Duration::from_secs(5),
            operators_read_mail: false,
            owner_is_operator: false,
            tls: None,
        }
    }
}
