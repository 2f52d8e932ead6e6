//! Connects, and follows the state of the connection.

use std::sync::Arc;
use std::time::Duration;

use amb_core::Backoff;
use async_nats::{Client, ConnectOptions, Event};
use tokio::sync::{Notify, mpsc};

use super::presence::{PresenceBucket, causes};
use super::wire::Wire;
use super::{NatsAuth, NatsOptions};
use crate::broker::BrokerError;

/// Capacity of the client's queue for one goal.
const CLIENT_QUEUE: usize = 1_024;
/// The first and the longest delay before a reconnect.
const RECONNECT_DELAYS: (Duration, Duration) = (Duration::from_millis(40), Duration::from_secs(2));

/// Connects with these options, adjusted by `adjust`. Later events of the connection are sent to `events`.
pub(super) async fn connect(
    options: &NatsOptions,
    events: mpsc::Sender<Event>,
    adjust: impl FnOnce(ConnectOptions) -> ConnectOptions,
) -> Result<Client, BrokerError> {
    let rejected = |error: &dyn std::error::Error| {
        BrokerError::Rejected(format!("cannot connect to {}: {}", options.servers, causes(error)))
    };
    if options.servers.is_empty() {
        return Err(BrokerError::Rejected("no NATS server was named".into()));
    }
    let addresses: Result<Vec<async_nats::ServerAddr>, _> =
        options.servers.addresses().map(|address| address.parse()).collect();
    let addresses = addresses.map_err(|error| rejected(&error))?;
    let tls = &options.tls;
    let mut connect = ConnectOptions::new()
        .name(&options.name)
        .connection_timeout(options.connect_timeout)
        .ping_interval(options.ping_interval)
        .subscription_capacity(CLIENT_QUEUE)
        .max_reconnects(None)
        .reconnect_delay_callback(|tries| {
            let backoff = Backoff::new(RECONNECT_DELAYS.0, RECONNECT_DELAYS.1);
            backoff.after(u32::try_from(tries).unwrap_or(u32::MAX))
        })
        .event_callback(move |event| {
            let events = events.clone();
            async move {
                // The receiver ends with the broker.
                let _ = events.send(event).await;
            }
        })
        .require_tls(tls.required);
    if tls.first {
        connect = connect.tls_first();
    }
    if let Some(ca) = &tls.ca_file {
        connect = connect.add_root_certificates(ca.clone());
    }
    if let Some((certificate, key)) = &tls.client {
        connect = connect.add_client_certificate(certificate.clone(), key.clone());
    }
    if let Some(prefix) = &options.inbox_prefix {
        connect = connect.custom_inbox_prefix(prefix);
    }
    connect = match &options.auth {
        NatsAuth::None => match options.servers.login() {
            None => connect,
            Some((user, Some(password))) => connect.user_and_password(user, password),
            Some((token, None)) => connect.token(token),
        },
        NatsAuth::Token(token) => connect.token(token.clone()),
        NatsAuth::UserPassword { user, password } => connect.user_and_password(user.clone(), password.clone()),
        NatsAuth::NKey(seed) => connect.nkey(seed.clone()),
        NatsAuth::CredsFile(path) => connect.credentials_file(path).await.map_err(|error| {
            BrokerError::Rejected(format!("cannot read the credentials in {}: {error}", path.display()))
        })?,
    };
    adjust(connect).connect(addresses).await.map_err(|error| rejected(&error))
}

/// Follows the state of the connection: settles waiting acknowledgements when it breaks, and replays presence and
/// outbox when it is back.
pub(super) async fn watch(
    mut events: mpsc::Receiver<Event>,
    wire: Arc<Wire>,
    presence: Arc<PresenceBucket>,
    replay: Arc<Notify>,
) {
    while let Some(event) = events.recv().await {
        match event {
            Event::Disconnected => {
                tracing::warn!(url = %wire.url, "NATS connection lost; reconnecting");
                wire.awaited.fail_all();
            }
            Event::Connected => {
                tracing::debug!(url = %wire.url, "connected to NATS");
                presence.reconnected();
                replay.notify_one();
            }
            event => tracing::warn!(url = %wire.url, %event, "NATS"),
        }
    }
}
