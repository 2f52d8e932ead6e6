//! Settings of a network office: plain values with defaults, filled in by the caller of [`serve`](crate::serve()).

use std::fmt;
use std::path::PathBuf;
use std::time::Duration;

use amb_core::Quotas;
use amb_live::NatsOptions;

use crate::rate::RateLimits;

/// Everything about an office that can be set, except where it listens and what it remembers.
#[derive(Debug, Clone)]
pub struct Config {
    /// Withhold verification codes from the target's inbox and events, so that they must travel by a human channel.
    pub private_codes: bool,
    /// How long a verification code can be used.
    pub code_ttl: Duration,
    /// Most requests for connections that one agent may have waiting.
    pub max_pending: u32,
    /// How often a silent WebSocket is pinged.
    pub ws_ping_interval: Duration,
    /// How long a WebSocket may stay without an answer to a ping.
    pub ws_ping_timeout: Duration,
    /// How long a WebSocket that gave no key may take to send one.
    pub ws_auth_timeout: Duration,
    /// How long a WebSocket may refuse to take what is sent to it before it is cut off.
    pub ws_slow_timeout: Duration,
    /// Most WebSockets of one agent.
    pub ws_per_agent: usize,
    /// Rate limits; `None` for no limits.
    pub rate_limits: Option<RateLimits>,
    /// Largest body of a request, in bytes.
    pub body_limit: usize,
    /// Longest time a `GET /events` waits, whatever it asks for (60 s at most).
    pub max_wait: Duration,
    /// Host names by which the office is called, besides those of loopback. Where a connection comes to a loopback address no
    /// other passes; elsewhere every name does unless some are given, and every IP address.
    pub allowed_hosts: Vec<String>,
    /// Web origins that browsers may call from, besides the office's own; none by default, `*` is all.
    pub cors_origins: Vec<String>,
    /// Believe `X-Forwarded-For` (its last entry): set only behind a proxy that writes it.
    pub trust_forwarded_for: bool,
    /// How long entries of the logs are kept; `None` keeps them for ever.
    pub event_retention: Option<Duration>,
    /// How long mail is kept after all its recipients read it; `None` keeps it for ever.
    pub read_mail_retention: Option<Duration>,
    /// How much mail an agent, and all agents together, may have stored.
    pub quotas: Quotas,
    /// How long the old key works after a rotation.
    pub key_grace: Duration,
    /// How long a shutdown waits for requests under way.
    pub shutdown_grace: Duration,
    /// How long a client may take to send the head of a request, and then its body.
    pub header_timeout: Duration,
    /// How long a client may leave an answer unread, or read it too slowly, before its connection is closed.
    pub write_timeout: Duration,
    /// Most connections from one address, WebSockets included; not counted behind a proxy whose `X-Forwarded-For` is believed.
    pub connections_per_address: usize,
    /// Most requests under way from one address, long polls and unread answers included.
    pub requests_per_address: usize,
    /// Who may register.
    pub registration: Registration,
    /// Directories whose agents are reached from here, and the other way round.
    pub mounts: Vec<PathBuf>,
    /// `*` in the `allow_from` of a mounted agent means every agent of the office, not only those of its directory.
    pub mount_open: bool,
    /// NATS for hints between replicas; without it they go through the database.
    pub nats: Option<NatsOptions>,
    /// How often subscribers are checked: the longest delay after a lost hint or after the end of a key.
    pub look_interval: Duration,
    /// Operators can read all mail on the dashboard. Registration, profiles and every page say so.
    pub operators_read_mail: bool,
    /// The person of the first household sees the office's health, as an operator does: for an office whose machine is theirs.
    pub owner_is_operator: bool,
    /// Certificate and key, for those without a proxy.
    pub tls: Option<TlsFiles>,
}

/// Who may register.
#[derive(Clone, PartialEq, Eq)]
pub enum Registration {
    /// Anybody who reaches the office.
    Open,
    /// Agents that show this token.
    Token(String),
    /// Nobody: agents come by a mount, or while registration is open.
    Closed,
}

impl fmt::Debug for Registration {
    /// Without the token.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Open => "Open",
            Self::Token(_) => "Token",
            Self::Closed => "Closed",
        })
    }
}

/// Where the certificate chain and its key are, both in PEM.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TlsFiles {
    /// The certificate chain, the server's own first.
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
            look_interval: Duration::from_secs(5),
            operators_read_mail: false,
            owner_is_operator: false,
            tls: None,
        }
    }
}
