//! `amb serve`: the network office.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::path::{Path, PathBuf};
use std::time::Duration;

use amb_core::{Quotas, Timestamp};
use amb_dir::{DirOffice, DirOptions};
use amb_server::{Config, HouseholdToken, Listeners, Registration, TlsFiles, serve};
use amb_store::Store;
use anyhow::{Context, Result};
use serde::Deserialize;
use tokio::net::TcpListener;

use crate::args::OfficeArgs;
use crate::database::default_url;
use crate::env_file;
use crate::failure::Failure;
use crate::household;
use crate::local::{self, LISTEN, LocalOfficeLock};
use crate::nats::NatsArgs;
use crate::output::Output;
use crate::signals::interruption;

/// Run the network office: HTTP and WebSocket on one port
///
/// Needs no configuration: by default it uses SQLite in your data directory. Each setting can be a flag, an environment
/// variable or an entry of the configuration file (`listen = "0.0.0.0:8000"`), in this order of precedence.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  amb serve
  amb serve --listen 0.0.0.0:8000 --tls-cert cert.pem --tls-key key.pem
  amb serve --mount ~/.nanobot/mailboxes
  DATABASE_URL=postgres://mailbox@localhost/agent_mailbox amb serve --metrics-listen 127.0.0.1:9000
  amb serve --database-url postgres://… --nats-url nats://127.0.0.1:4222      as one of several replicas")]
pub(crate) struct ServeCommand {
    /// TOML configuration file; each setting has the name of its flag, with _ for -
    #[arg(long, value_name = "FILE", env = "AMB_CONFIG")]
    config: Option<PathBuf>,
    /// File of environment variables, one NAME=value per line; variables that are already set take precedence
    #[arg(long, value_name = "FILE")]
    env_file: Option<PathBuf>,
    #[command(flatten)]
    // Boxed: no other verb has so many arguments.
    settings: Box<ServeSettings>,
    #[command(flatten)]
    nats: NatsArgs,
    /// Started by `amb up`: the local office, in a session of its own, whose stderr is this file
    #[arg(long, value_name = "LOG", hide = true)]
    background: Option<PathBuf>,
}

/// All settings. The names are the same in the file, with `_` for `-`.
#[derive(Debug, Default, Deserialize, clap::Args)]
#[serde(deny_unknown_fields, default)]
struct ServeSettings {
    /// Address and port to listen on [default: 127.0.0.1:8000]
    #[arg(long, value_name = "ADDR", env = "AMB_LISTEN")]
    listen: Option<String>,
    /// Database: sqlite:PATH or postgres://… [default: SQLite in your data directory]
    #[arg(long, value_name = "URL", env = "DATABASE_URL", hide_env_values = true)]
    database_url: Option<String>,
    /// Address and port for Prometheus metrics, separate from the office [default: none]
    #[arg(long, value_name = "ADDR", env = "AMB_METRICS_LISTEN")]
    metrics_listen: Option<String>,
    /// Rate limiting of requests, registrations, connection requests, wrong codes and wrong keys [default: on]
    #[arg(long, value_name = "on|off", env = "AMB_RATE_LIMITS")]
    rate_limits: Option<Switch>,
    /// Show codes of connection requests only to the requester, not in the recipient's inbox and events, so that people
    /// must pass them on
    #[arg(long, env = "AMB_PRIVATE_CODES", num_args = 0..=1, default_missing_value = "true")]
    private_codes: Option<bool>,
    /// Let operators (`amb admin operator`) read all mail on the dashboard; everybody who registers or signs in is
    /// notified
    #[arg(long, env = "AMB_OPERATORS_READ_MAIL", num_args = 0..=1, default_missing_value = "true")]
    operators_read_mail: Option<bool>,
    /// Lifetime of a code for a connection request, in seconds [default: 3600]
    #[arg(long, value_name = "SECONDS", env = "AMB_CODE_TTL")]
    code_ttl: Option<u64>,
    /// Interval of WebSocket pings (heartbeats), in seconds [default: 30]
    #[arg(long, value_name = "SECONDS", env = "WS_PING_INTERVAL")]
    ws_ping_interval: Option<u64>,
    /// Close a WebSocket after this many seconds without a response to pings [default: 60]
    #[arg(long, value_name = "SECONDS", env = "WS_PING_TIMEOUT")]
    ws_ping_timeout: Option<u64>,
    /// Retention of event log entries other than mail, and of idempotency keys, in days [default: unlimited]
    #[arg(long, value_name = "DAYS", env = "AMB_EVENT_RETENTION_DAYS")]
    event_retention_days: Option<u64>,
    /// Retention of mail after all its recipients have read it, in days; unread mail is never deleted [default:
    /// unlimited]
    #[arg(long, value_name = "DAYS", env = "AMB_KEEP_READ_MAIL")]
    keep_read_mail: Option<u64>,
    /// Quota of stored messages per sending agent; a message counts once for each recipient; 0 means unlimited
    /// [default: 1000000]
    #[arg(long, value_name = "COUNT", env = "AMB_AGENT_MESSAGES")]
    agent_messages: Option<u64>,
    /// Quota of stored mail per sending agent, in bytes; 0 means unlimited [default: 4294967296]
    #[arg(long, value_name = "BYTES", env = "AMB_AGENT_BYTES")]
    agent_bytes: Option<u64>,
    /// Quota of stored messages of all agents; 0 means unlimited [default: 0]
    #[arg(long, value_name = "COUNT", env = "AMB_OFFICE_MESSAGES")]
    office_messages: Option<u64>,
    /// Quota of stored mail of all agents, in bytes; 0 means unlimited [default: 0]
    #[arg(long, value_name = "BYTES", env = "AMB_OFFICE_BYTES")]
    office_bytes: Option<u64>,
    /// Host name to accept in the Host header, such as that of a proxy (repeatable) [default: only loopback names on
    /// connections to a loopback address, any name on others]
    #[arg(long = "allow-host", value_name = "NAME", env = "AMB_ALLOW_HOSTS", value_delimiter = ',')]
    #[serde(rename = "allow_host")]
    allowed_hosts: Vec<String>,
    /// Web origin that browsers may send requests from (CORS; repeatable, * for all) [default: none]
    #[arg(long = "cors-origin", value_name = "ORIGIN", env = "AMB_CORS_ORIGINS", value_delimiter = ',')]
    #[serde(rename = "cors_origin")]
    cors_origins: Vec<String>,
    /// Trust the X-Forwarded-For header; only safe behind a proxy that sets it
    #[arg(long, env = "AMB_TRUST_FORWARDED_FOR", num_args = 0..=1, default_missing_value = "true")]
    trust_forwarded_for: Option<bool>,
    /// Who may register: anybody, whoever has the registration token, or nobody [default: open, or token if
    /// --registration-token is set]
    #[arg(long, value_name = "open|token|closed", env = "AMB_REGISTRATION")]
    registration: Option<RegistrationMode>,
    /// Token that is required to register; pass it to `amb register` with the same flag
    #[arg(long, value_name = "TOKEN", env = "AMB_REGISTRATION_TOKEN", hide_env_values = true)]
    registration_token: Option<String>,
    /// Maximum number of connections from one address [default: 16384]
    #[arg(long, value_name = "COUNT", env = "AMB_CONNECTIONS_PER_ADDRESS")]
    connections_per_address: Option<usize>,
    /// Maximum number of requests in flight from one address, including long polls [default: 4096]
    #[arg(long, value_name = "COUNT", env = "AMB_REQUESTS_PER_ADDRESS")]
    requests_per_address: Option<usize>,
    /// Disconnect a client that does not read its response, or reads it slower than 16 KiB per second, after this many
    /// seconds [default: 30]
    #[arg(long, value_name = "SECONDS", env = "AMB_WRITE_TIMEOUT")]
    write_timeout: Option<u64>,
    /// Mount a directory of mailboxes, so that its agents and those of the office can exchange mail (repeatable)
    #[arg(long = "mount", value_name = "DIR", env = "AMB_MOUNTS", value_delimiter = ',')]
    #[serde(rename = "mount")]
    mounts: Vec<PathBuf>,
    /// Let `*` in the allow_from of a mounted agent include all agents of this server, strangers too [default: only the
    /// agents of its own directory]
    #[arg(long, env = "AMB_MOUNT_OPEN", num_args = 0..=1, default_missing_value = "true")]
    mount_open: Option<bool>,
    /// Do not create a household at startup [default: an office on a loopback address creates one if it has none,
    /// and stores its token in your configuration directory]
    #[arg(long, env = "AMB_NO_HOUSEHOLD", num_args = 0..=1, default_missing_value = "true")]
    no_household: Option<bool>,
    /// TLS certificate chain, a PEM file
    #[arg(long, value_name = "FILE", env = "AMB_TLS_CERT", requires = "tls_key")]
    tls_cert: Option<PathBuf>,
    /// Private key of the TLS certificate, a PEM file
    #[arg(long, value_name = "FILE", env = "AMB_TLS_KEY", requires = "tls_cert")]
    tls_key: Option<PathBuf>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize, clap::ValueEnum)]
#[serde(rename_all = "snake_case")]
enum Switch {
    On,
    Off,
}

/// Who may register.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize, clap::ValueEnum)]
#[serde(rename_all = "snake_case")]
enum RegistrationMode {
    Open,
    Token,
    Closed,
}

impl ServeSettings {
    /// These settings, completed by `other`.
    fn or(self, other: Self) -> Self {
        Self {
            listen: self.listen.or(other.listen),
            database_url: self.database_url.or(other.database_url),
            metrics_listen: self.metrics_listen.or(other.metrics_listen),
            rate_limits: self.rate_limits.or(other.rate_limits),
            private_codes: self.private_codes.or(other.private_codes),
            operators_read_mail: self.operators_read_mail.or(other.operators_read_mail),
            code_ttl: self.code_ttl.or(other.code_ttl),
            ws_ping_interval: self.ws_ping_interval.or(other.ws_ping_interval),
            ws_ping_timeout: self.ws_ping_timeout.or(other.ws_ping_timeout),
            event_retention_days: self.event_retention_days.or(other.event_retention_days),
            keep_read_mail: self.keep_read_mail.or(other.keep_read_mail),
            agent_messages: self.agent_messages.or(other.agent_messages),
            agent_bytes: self.agent_bytes.or(other.agent_bytes),
            office_messages: self.office_messages.or(other.office_messages),
            office_bytes: self.office_bytes.or(other.office_bytes),
            allowed_hosts: if self.allowed_hosts.is_empty() { other.allowed_hosts } else { self.allowed_hosts },
            registration: self.registration.or(other.registration),
            registration_token: self.registration_token.or(other.registration_token),
            connections_per_address: self.connections_per_address.or(other.connections_per_address),
            requests_per_address: self.requests_per_address.or(other.requests_per_address),
            write_timeout: self.write_timeout.or(other.write_timeout),
            cors_origins: if self.cors_origins.is_empty() { other.cors_origins } else { self.cors_origins },
            trust_forwarded_for: self.trust_forwarded_for.or(other.trust_forwarded_for),
            mount_open: self.mount_open.or(other.mount_open),
            mounts: if self.mounts.is_empty() { other.mounts } else { self.mounts },
            no_household: self.no_household.or(other.no_household),
            tls_cert: self.tls_cert.or(other.tls_cert),
            tls_key: self.tls_key.or(other.tls_key),
        }
    }

    fn config(&self) -> Result<Config> {
        let defaults = Config::default();
        let seconds = |given: Option<u64>, default: Duration| match given {
            Some(0) => anyhow::bail!("a time of 0 seconds makes no sense"),
            Some(seconds) => Ok(Duration::from_secs(seconds)),
            None => Ok(default),
        };
        let tls = match (&self.tls_cert, &self.tls_key) {
            (Some(certificate), Some(key)) => Some(TlsFiles { certificate: certificate.clone(), key: key.clone() }),
            (None, None) => None,
            _ => anyhow::bail!("TLS needs both tls_cert and tls_key"),
        };
        let registration = match (self.registration, &self.registration_token) {
            (Some(RegistrationMode::Closed), _) => Registration::Closed,
            (Some(RegistrationMode::Open), _) | (None, None) => Registration::Open,
            (Some(RegistrationMode::Token) | None, Some(token)) if !token.is_empty() => {
                Registration::Token(token.clone())
            }
            _ => anyhow::bail!("registration by token needs one; say it with --registration-token"),
        };
        Ok(Config {
            registration,
            private_codes: self.private_codes.unwrap_or(defaults.private_codes),
            operators_read_mail: self.operators_read_mail.unwrap_or(defaults.operators_read_mail),
            code_ttl: seconds(self.code_ttl, defaults.code_ttl)?,
            ws_ping_interval: seconds(self.ws_ping_interval, defaults.ws_ping_interval)?,
            ws_ping_timeout: seconds(self.ws_ping_timeout, defaults.ws_ping_timeout)?,
            rate_limits: defaults.rate_limits.filter(|_| self.rate_limits != Some(Switch::Off)),
            allowed_hosts: self.allowed_hosts.clone(),
            connections_per_address: self.connections_per_address.unwrap_or(defaults.connections_per_address),
            requests_per_address: self.requests_per_address.unwrap_or(defaults.requests_per_address),
            write_timeout: seconds(self.write_timeout, defaults.write_timeout)?,
            cors_origins: self.cors_origins.clone(),
            trust_forwarded_for: self.trust_forwarded_for.unwrap_or(defaults.trust_forwarded_for),
            event_retention: self.event_retention_days.map(days),
            read_mail_retention: self.keep_read_mail.map(days),
            quotas: self.quotas(defaults.quotas),
            mounts: self.mounts.clone(),
            mount_open: self.mount_open.unwrap_or(defaults.mount_open),
            tls,
            ..defaults
        })
    }

    fn quotas(&self, defaults: Quotas) -> Quotas {
        let limit = |given: Option<u64>, default: Option<u64>| match given {
            Some(0) => None,
            Some(limit) => Some(limit),
            None => default,
        };
        Quotas {
            agent_messages: limit(self.agent_messages, defaults.agent_messages),
            agent_bytes: limit(self.agent_bytes, defaults.agent_bytes),
            office_messages: limit(self.office_messages, defaults.office_messages),
            office_bytes: limit(self.office_bytes, defaults.office_bytes),
        }
    }
}

fn days(count: u64) -> Duration {
    Duration::from_secs(count.saturating_mul(86_400))
}

impl ServeCommand {
    pub(crate) fn log_file(&self) -> Option<&Path> {
        self.background.as_deref()
    }

    pub(crate) async fn run(self, _office: &OfficeArgs, output: Output) -> Result<(), Failure> {
        if let Some(path) = &self.env_file {
            env_file::load(path)?;
        }
        let (mut settings, nats) = match &self.config {
            Some(path) => {
                let (settings, nats) = read(path)?;
                (Box::new(self.settings.or(settings)), self.nats.or(nats))
            }
            None => (self.settings, self.nats),
        };
        if self.background.is_some() {
            // The terminal may close. An error means that this process leads a group already.
            let _ = rustix::process::setsid();
            // It is the local office, whatever a project's environment says about other databases.
            (settings.listen, settings.database_url) = (None, None);
        }
        let local = settings.lock_local(self.background.is_some()).await?;
        let nats = nats.is_named().then(|| nats.options()).transpose()?;
        let mut config = Config { nats, ..settings.config()? };
        for directory in &config.mounts {
            // Errors are reported before the office is announced.
            DirOffice::open(directory, DirOptions::default())?;
        }
        let scheme = if config.tls.is_some() { "https" } else { "http" };
        let office = match &local {
            Some(local) if self.background.is_some() => local.bind().await?,
            Some(local) => bind(&local.address()).await?,
            None => bind(settings.listen.as_deref().unwrap_or(LISTEN)).await?,
        };
        let metrics = match &settings.metrics_listen {
            Some(address) => Some(bind(address).await?),
            None => None,
        };
        let address = office.local_addr()?;
        let url = format!("{scheme}://{address}");
        // The store creates the directory of the default database.
        let database_url = settings.database_url.clone().map_or_else(default_url, Ok)?;
        let store = amb_store::open(&database_url).await?;
        // A URL of PostgreSQL may hold a password.
        let place = database_url.strip_prefix("sqlite:").unwrap_or("PostgreSQL");
        // Before a household is founded, whose token the one of the previous address would replace.
        let moved = local.as_ref().map_or(Ok(()), |local| local.move_to(&url));
        if address.ip().is_loopback() && settings.no_household != Some(true) {
            found_household(&*store, &url, output).await?;
        }
        config.owner_is_operator = address.ip().is_loopback();
        // Before "listening" is printed: a script that reads it may stop the office at once.
        let shutdown = interruption()?;
        if let Some(local) = &local
            && let Err(error) = moved.and_then(|()| local.record(&url, place))
        {
            output.note(format!("warning: other verbs do not find this office by themselves: {error:#}"));
        }
        announce(output, scheme, address, place, local.is_some())?;
        if config.operators_read_mail {
            output.note("operators can read all mail; everybody who registers or signs in is told");
        }
        if let Some(metrics) = &metrics {
            output.note(format!("metrics at http://{}/metrics", metrics.local_addr()?));
        }
        for directory in &config.mounts {
            output.note(format!("mounting {}", directory.display()));
        }
        serve(Listeners { office, metrics }, store.clone(), config, shutdown).await?;
        store.close().await;
        // From now on another process may serve the same database.
        drop(local);
        Ok(())
    }
}

impl ServeSettings {
    /// Takes the lock of the local office, unless another address or another database was named.
    async fn lock_local(&self, background: bool) -> Result<Option<LocalOfficeLock>, Failure> {
        if self.listen.is_some() || self.database_url.is_some() || self.tls_cert.is_some() {
            return Ok(None);
        }
        match local::lock().await {
            Ok(lock) => Ok(Some(lock)),
            Err(Failure::Other(error)) if !background => {
                tracing::warn!("other verbs do not find this office by themselves: {error:#}");
                Ok(None)
            }
            Err(error) => Err(error),
        }
    }
}

/// Founds a household where there is none, for the agents of the user who runs this office. Not where its token cannot
/// be stored: no agent could ever join it.
async fn found_household(store: &dyn Store, url: &str, output: Output) -> Result<(), Failure> {
    if store.has_household().await? {
        return Ok(());
    }
    let (server, token) = (url.parse()?, HouseholdToken::fresh()?);
    if let Err(error) = household::store_token(&server, token.reveal()) {
        tracing::warn!(
            error = %format!("{error:#}"),
            "no household was founded, since its token cannot be kept; `amb admin household` founds one and prints it"
        );
        return Ok(());
    }
    // Another process on the same database may have been faster.
    match store.found_household(token.hash(), true, Timestamp::now()).await? {
        Some(_) => output.note("your agents here are a household: `amb household` lists them"),
        None => household::remove_token(&server, token.reveal())?,
    }
    Ok(())
}

fn announce(output: Output, scheme: &str, address: SocketAddr, store: &str, is_local: bool) -> Result<(), Failure> {
    // Scripts wait for this line: the port is bound and the store is open.
    let document = serde_json::json!({ "listening": format!("{scheme}://{address}"), "store": store });
    output.stream(&document, || format!("listening on {scheme}://{address}"))?;
    let place = if is_local { String::new() } else { format!(" --server {scheme}://{}", reachable(address)) };
    output.note(format!("mail is stored in {store}; `amb register NAME{place}` registers an agent"));
    if !address.ip().is_loopback() && scheme == "http" {
        output.note("warning: keys travel in the clear on this address; use --tls-cert and --tls-key, or a proxy");
    }
    Ok(())
}

/// An address at which a client on this machine reaches a listener: a wildcard address is none.
fn reachable(listener: SocketAddr) -> SocketAddr {
    let ip = match listener.ip() {
        IpAddr::V4(ip) if ip.is_unspecified() => Ipv4Addr::LOCALHOST.into(),
        IpAddr::V6(ip) if ip.is_unspecified() => Ipv6Addr::LOCALHOST.into(),
        ip => ip,
    };
    SocketAddr::new(ip, listener.port())
}

async fn bind(address: &str) -> Result<TcpListener> {
    TcpListener::bind(address).await.with_context(|| match address.rsplit_once(':') {
        Some((_, port)) if port.parse::<u16>().is_ok() => {
            format!("cannot listen on {address}; is another server there? --listen names another address, and `amb up` takes a free one")
        }
        _ => format!("cannot listen on {address}; say an address and a port, such as 127.0.0.1:8000"),
    })
}

/// The settings in a file: those of NATS begin with its name, and are the same for every verb that uses it.
fn read(path: &Path) -> Result<(ServeSettings, NatsArgs)> {
    let split = |text: &str| -> Result<_, toml::de::Error> {
        let all: toml::Table = toml::from_str(text)?;
        let (nats, rest): (toml::Table, toml::Table) = all.into_iter().partition(|(name, _)| name.starts_with("nats_"));
        Ok((rest.try_into()?, nats.try_into()?))
    };
    split(&fs_err::read_to_string(path)?).with_context(|| path.display().to_string())
}
