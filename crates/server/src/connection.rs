//! Accepts and serves connections until the office closes.

use std::io;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

use amb_core::web::WebRules;
use axum::Router;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::{TokioIo, TokioTimer};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinHandle;

use crate::app::App;
use crate::concurrency::ConcurrencyPermit;
use crate::config::Config;
use crate::hangup::{Finished, Hangup};
use crate::middleware::{self, Middleware};
use crate::rate::network;
use crate::tls::ServerTls;
use crate::write_timeout::WriteTimeout;

/// Pause when the system has no file descriptors left; without it accepting would spin.
const EXHAUSTED_REST: Duration = Duration::from_millis(50);
/// The most that one connection keeps of a request's head: as much as other servers take.
const HEAD_BYTES: usize = 32 * 1024;

/// Accepts connections on a task of its own, until the office closes.
///
/// Not an `async fn`: a future is compiled in the crate that polls it, so that everything that serves a request would be compiled
/// with the binary's optimisation settings instead of this crate's.
pub(crate) fn open(app: &App, listener: TcpListener, router: Router, tls: Option<ServerTls>) -> JoinHandle<()> {
    let door = Middleware { app: app.clone(), router, web: Arc::new(OriginRules::new(&app.config)) };
    tokio::spawn(async move { accept(door, listener, tls).await })
}

/// Allowed hosts and web origins, by the local address of a connection: a listener on all addresses also serves
/// loopback.
pub(crate) struct OriginRules {
    loopback: WebRules,
    elsewhere: WebRules,
}

impl OriginRules {
    fn new(config: &Config) -> Self {
        let at = |address: Ipv4Addr| WebRules::new(address.into(), &config.allowed_hosts, &config.cors_origins);
        Self { loopback: at(Ipv4Addr::LOCALHOST), elsewhere: at(Ipv4Addr::UNSPECIFIED) }
    }

    /// The rules of a connection that came to this address of ours.
    pub(crate) fn at(&self, local: Local) -> &WebRules {
        match local {
            Local::Loopback => &self.loopback,
            Local::Elsewhere => &self.elsewhere,
        }
    }
}

/// To which address of ours a connection came.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Local {
    Loopback,
    Elsewhere,
}

impl Local {
    fn of(stream: &TcpStream) -> Self {
        match stream.local_addr() {
            Ok(address) if !address.ip().to_canonical().is_loopback() => Self::Elsewhere,
            // Without an address the connection is gone; the strict rules do no harm.
            _ => Self::Loopback,
        }
    }
}

/// Accepts connections until the office closes. Each is served on a task that a shutdown waits for.
async fn accept(door: Middleware, listener: TcpListener, tls: Option<ServerTls>) {
    let app = &door.app;
    loop {
        let accepted = tokio::select! {
            accepted = listener.accept() => accepted,
            () = app.closing.cancelled() => return,
        };
        match accepted {
            Ok((stream, peer)) => match slot_for(app, peer.ip()) {
                Some(place) => drop(app.tasks.spawn(connection(door.clone(), stream, peer, tls.clone(), place))),
                None => turn_away(&stream, tls.is_some()),
            },
            Err(error) if is_about_the_connection(&error) => {}
            Err(error) => {
                tracing::warn!(%error, "accept failed; retrying");
                tokio::time::sleep(EXHAUSTED_REST).await;
            }
        }
    }
}

fn is_about_the_connection(error: &io::Error) -> bool {
    use io::ErrorKind::{ConnectionAborted, ConnectionRefused, ConnectionReset, Interrupted};
    matches!(error.kind(), ConnectionAborted | ConnectionRefused | ConnectionReset | Interrupted)
}

/// A permit among the connections of one address; none where they are not counted.
type ConnectionSlot = Option<ConcurrencyPermit<IpAddr>>;

/// The two ends of a connection.
#[derive(Debug, Clone, Copy)]
pub(crate) struct ConnectionAddresses {
    pub(crate) local: Local,
    pub(crate) peer: IpAddr,
}

/// Takes a permit for a connection from this address. Connections of a trusted proxy are not counted.
fn slot_for(app: &App, address: IpAddr) -> Option<ConnectionSlot> {
    match app.config.trust_forwarded_for {
        true => Some(None),
        false => app.connections.take(network(address)).map(Some),
    }
}

/// Sends a 429 before closing, if that is possible in one write. Not over TLS, which would need a handshake first.
fn turn_away(stream: &TcpStream, tls: bool) {
    const BODY: &str = r#"{"type":"urn:amb:problem:too_many_requests","title":"Too Many Requests","status":429,"detail":"too many connections from this address; close some, or have the operator raise --connections-per-address","code":"too_many_requests"}"#;
    if !tls {
        let head = "HTTP/1.1 429 Too Many Requests\r\ncontent-type: application/problem+json\r\nretry-after: 1";
        let answer = format!("{head}\r\nconnection: close\r\ncontent-length: {}\r\n\r\n{BODY}", BODY.len());
        // A client that is gone already needs no answer.
        let _ = stream.try_write(answer.as_bytes());
    }
}

async fn connection(
    door: Middleware,
    stream: TcpStream,
    peer: SocketAddr,
    tls: Option<ServerTls>,
    place: ConnectionSlot,
) {
    // An answer is one small write; waiting to fill a packet would only delay it.
    if let Err(error) = stream.set_nodelay(true) {
        tracing::debug!(%error, "cannot set TCP_NODELAY");
    }
    let app = door.app.clone();
    let ends = ConnectionAddresses { local: Local::of(&stream), peer: peer.ip() };
    match tls {
        None => http(door, stream, ends, place).await,
        Some(tls) => {
            // A client that never finishes its handshake must not be kept for ever.
            let handshake = tokio::time::timeout(app.config.header_timeout, tls.accept(stream));
            let greeted = tokio::select! {
                greeted = handshake => greeted,
                () = app.closing.cancelled() => return,
            };
            match greeted {
                Ok(Ok(stream)) => Box::pin(http(door, stream, ends, place)).await,
                Ok(Err(error)) => tracing::debug!(%error, address = %ends.peer, "TLS handshake failed"),
                Err(_) => tracing::debug!(address = %ends.peer, "TLS handshake took too long"),
            }
        }
    }
}

async fn http(
    door: Middleware,
    stream: impl AsyncRead + AsyncWrite + Unpin + Send + 'static,
    ends: ConnectionAddresses,
    place: ConnectionSlot,
) {
    let app = &door.app;
    let closing = app.closing.clone();
    // The place goes with the stream, which a WebSocket takes over from this connection.
    let stream = WriteTimeout::new(stream, app.config.write_timeout, place);
    let mut builder = http1::Builder::new();
    builder.timer(TokioTimer::new()).header_read_timeout(app.config.header_timeout).max_buf_size(HEAD_BYTES);
    let service = service_fn(move |request| {
        let hangup = Hangup::default();
        let tasks = door.app.tasks.clone();
        Finished::new(middleware::answer(door.clone(), ends, hangup.clone(), request), hangup, tasks)
    });
    let connection = builder.serve_connection(TokioIo::new(stream), service).with_upgrades();
    let mut connection = std::pin::pin!(connection);
    let served = tokio::select! {
        served = connection.as_mut() => served,
        () = closing.cancelled() => {
            // Finishes the request under way and takes no other.
            connection.as_mut().graceful_shutdown();
            connection.await
        }
    };
    if let Err(error) = served {
        // Clients come and go; only the client knows why.
        tracing::trace!(%error, "connection ended");
    }
}
