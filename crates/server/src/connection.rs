//! Connections: accepting them, TLS, timeouts, and limits for each address.

mod concurrency;
mod drain;
mod hangup;
pub(crate) mod in_flight;
mod tls;
mod write_timeout;

use std::io;
use std::net::{IpAddr, Ipv4Addr};
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

use self::concurrency::ConcurrencyPermit;
use self::hangup::RunToEnd;
use self::write_timeout::WriteTimeout;
use crate::app::App;
use crate::middleware::{self, Middleware};
use crate::rate::network;

pub(crate) use self::concurrency::ConcurrencyLimit;
pub(crate) use self::drain::track;
pub(crate) use self::hangup::Hangup;
pub(crate) use self::tls::ServerTls;

/// Pause after `accept` failed because the system has no file descriptors left; without it the loop would spin.
const ACCEPT_RETRY: Duration = Duration::from_millis(50);
/// Maximum size of a request's head: as much as other servers take.
const HEAD_BYTES: usize = 32 * 1024;

/// Accepts connections in a task of its own, until the office closes.
///
/// Not an `async fn`: a future is compiled in the crate that polls it, so that everything that serves a request would
/// be compiled with the binary's optimisation settings instead of this crate's.
pub(crate) fn open(app: &App, listener: TcpListener, router: Router, tls: Option<ServerTls>) -> JoinHandle<()> {
    let rules = |address: Ipv4Addr| {
        Arc::new(WebRules::new(address.into(), &app.config.allowed_hosts, &app.config.cors_origins))
    };
    let listener = Listener {
        app: app.clone(),
        router,
        tls,
        loopback: rules(Ipv4Addr::LOCALHOST),
        elsewhere: rules(Ipv4Addr::UNSPECIFIED),
        listener,
    };
    tokio::spawn(async move { listener.accept().await })
}

struct Listener {
    app: App,
    router: Router,
    tls: Option<ServerTls>,
    /// Hosts and web origins allowed for connections to a loopback address: a listener on all addresses serves both.
    loopback: Arc<WebRules>,
    /// Hosts and web origins allowed for all other connections.
    elsewhere: Arc<WebRules>,
    listener: TcpListener,
}

/// Counts a connection against its address; `None` where connections are not counted.
type Permit = Option<ConcurrencyPermit>;

impl Listener {
    /// Accepts connections until the office closes. Each is served in a task that a shutdown waits for.
    async fn accept(self) {
        let app = &self.app;
        while let Some(accepted) = app.closing.run_until_cancelled(self.listener.accept()).await {
            match accepted {
                Ok((stream, peer)) => match permit(app, peer.ip()) {
                    Some(permit) => {
                        let middleware = Middleware {
                            app: app.clone(),
                            router: self.router.clone(),
                            web: Arc::clone(if is_loopback(&stream) { &self.loopback } else { &self.elsewhere }),
                            peer: peer.ip(),
                        };
                        app.tasks.spawn(serve(middleware, stream, self.tls.clone(), permit));
                    }
                    None => reject(&stream, self.tls.is_some()),
                },
                Err(error) if is_about_the_connection(&error) => {}
                Err(error) => {
                    tracing::warn!(%error, "accept failed; retrying");
                    tokio::time::sleep(ACCEPT_RETRY).await;
                }
            }
        }
    }
}

/// Whether the connection's local address is a loopback address. Also true for a connection without an address, which
/// is closed already: the rules for loopback are the stricter ones.
fn is_loopback(stream: &TcpStream) -> bool {
    stream.local_addr().map_or(true, |address| address.ip().to_canonical().is_loopback())
}

/// Whether `accept` failed because of one connection, not because of the listener.
fn is_about_the_connection(error: &io::Error) -> bool {
    use io::ErrorKind::{ConnectionAborted, ConnectionRefused, ConnectionReset, Interrupted};
    matches!(error.kind(), ConnectionAborted | ConnectionRefused | ConnectionReset | Interrupted)
}

/// Takes a permit for a connection from this address; `None` at the limit. Connections of a trusted proxy are not
/// counted.
fn permit(app: &App, address: IpAddr) -> Option<Permit> {
    match app.config.trust_forwarded_for {
        true => Some(None),
        false => app.connections.acquire(network(address)).map(Some),
    }
}

/// Sends a 429 before closing, if one write suffices. Not over TLS, which would need a handshake first.
fn reject(stream: &TcpStream, tls: bool) {
    const BODY: &str = r#"{"type":"urn:amb:problem:too_many_requests","title":"Too Many Requests","status":429,"detail":"too many connections from this address; close some, or have the operator raise --connections-per-address","code":"too_many_requests"}"#;
    if !tls {
        let head = "HTTP/1.1 429 Too Many Requests\r\ncontent-type: application/problem+json\r\nretry-after: 1";
        let response = format!("{head}\r\nconnection: close\r\ncontent-length: {}\r\n\r\n{BODY}", BODY.len());
        // An error means that the client is gone.
        let _ = stream.try_write(response.as_bytes());
    }
}

/// Serves one connection, after the TLS handshake if there is one.
async fn serve(middleware: Middleware, stream: TcpStream, tls: Option<ServerTls>, permit: Permit) {
    // A response is one small write; waiting to fill a packet would only delay it.
    if let Err(error) = stream.set_nodelay(true) {
        tracing::debug!(%error, "cannot set TCP_NODELAY");
    }
    let Some(tls) = tls else { return serve_http(middleware, stream, permit).await };
    let (app, peer) = (middleware.app.clone(), middleware.peer);
    let handshake = tokio::time::timeout(app.config.header_timeout, tls.accept(stream));
    match app.closing.run_until_cancelled(handshake).await {
        None => {}
        Some(Ok(Ok(stream))) => Box::pin(serve_http(middleware, stream, permit)).await,
        Some(Ok(Err(error))) => tracing::debug!(%error, address = %peer, "TLS handshake failed"),
        Some(Err(_)) => tracing::debug!(address = %peer, "TLS handshake timeout"),
    }
}

async fn serve_http(
    middleware: Middleware,
    stream: impl AsyncRead + AsyncWrite + Unpin + Send + 'static,
    permit: Permit,
) {
    let app = &middleware.app;
    let closing = app.closing.clone();
    // The permit is kept with the stream, which a WebSocket takes over from this connection.
    let stream = WriteTimeout::new(stream, app.config.write_timeout, permit);
    let mut builder = http1::Builder::new();
    builder.timer(TokioTimer::new()).header_read_timeout(app.config.header_timeout).max_buf_size(HEAD_BYTES);
    let service = service_fn(move |request| {
        let hangup = Hangup::default();
        let tasks = middleware.app.tasks.clone();
        RunToEnd::new(middleware::answer(middleware.clone(), hangup.clone(), request), hangup, tasks)
    });
    let connection = builder.serve_connection(TokioIo::new(stream), service).with_upgrades();
    let mut connection = std::pin::pin!(connection);
    let served = tokio::select! {
        served = connection.as_mut() => served,
        () = closing.cancelled() => {
            // Finishes the request in flight and accepts no other.
            connection.as_mut().graceful_shutdown();
            connection.await
        }
    };
    if let Err(error) = served {
        tracing::trace!(%error, "connection ended");
    }
}
