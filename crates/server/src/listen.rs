//! Connections: accepted, served, and let go of when the office closes.

use std::io;
use std::net::{IpAddr, SocketAddr};
use std::time::Duration;

use axum::Router;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::{TokioIo, TokioTimer};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinHandle;

use crate::app::App;
use crate::front;
use crate::hangup::{Finished, Hangup};
use crate::tls::Tls;

/// How long to rest when the system has no more file descriptors: accepting at once would spin.
const EXHAUSTED_REST: Duration = Duration::from_millis(50);
/// The most that one connection keeps of a request's head. What is beyond it is never read, and a client that still writes
/// may see a broken connection instead of the 431; so it is far more than any true head.
const HEAD_BYTES: usize = 256 * 1024;

/// Takes connections on a task of its own, until the office closes.
///
/// No `async fn`: a future is compiled where it is polled, and all that serves a request would be compiled with the
/// program that awaits this, as carelessly as a program's verbs may be.
pub(crate) fn open(app: &App, listener: TcpListener, router: Router, tls: Option<Tls>) -> JoinHandle<()> {
    let app = app.clone();
    tokio::spawn(async move { accept(&app, listener, router, tls).await })
}

/// Accepts connections until the office closes. Each is served on a task that a shutdown waits for.
async fn accept(app: &App, listener: TcpListener, router: Router, tls: Option<Tls>) {
    loop {
        let accepted = tokio::select! {
            accepted = listener.accept() => accepted,
            () = app.closing.cancelled() => return,
        };
        match accepted {
            Ok((stream, peer)) => {
                let connection = connection(app.clone(), stream, peer, router.clone(), tls.clone());
                app.tasks.spawn(connection);
            }
            Err(error) if is_about_the_connection(&error) => {}
            Err(error) => {
                tracing::warn!(%error, "cannot accept connections; trying again");
                tokio::time::sleep(EXHAUSTED_REST).await;
            }
        }
    }
}

fn is_about_the_connection(error: &io::Error) -> bool {
    use io::ErrorKind::{ConnectionAborted, ConnectionRefused, ConnectionReset, Interrupted};
    matches!(error.kind(), ConnectionAborted | ConnectionRefused | ConnectionReset | Interrupted)
}

async fn connection(app: App, stream: TcpStream, peer: SocketAddr, router: Router, tls: Option<Tls>) {
    // An answer is one small write; waiting to fill a packet would only delay it.
    if let Err(error) = stream.set_nodelay(true) {
        tracing::debug!(%error, "cannot set TCP_NODELAY");
    }
    let address = peer.ip();
    match tls {
        None => http(app, stream, address, router).await,
        Some(tls) => {
            // A client that never finishes its handshake must not be kept for ever.
            let handshake = tokio::time::timeout(app.config.header_timeout, tls.accept(stream));
            let greeted = tokio::select! {
                greeted = handshake => greeted,
                () = app.closing.cancelled() => return,
            };
            match greeted {
                Ok(Ok(stream)) => Box::pin(http(app, stream, address, router)).await,
                Ok(Err(error)) => tracing::debug!(%error, %address, "TLS handshake failed"),
                Err(_) => tracing::debug!(%address, "TLS handshake took too long"),
            }
        }
    }
}

async fn http(app: App, stream: impl AsyncRead + AsyncWrite + Unpin + Send + 'static, address: IpAddr, router: Router) {
    let closing = app.closing.clone();
    let mut builder = http1::Builder::new();
    builder.timer(TokioTimer::new()).header_read_timeout(app.config.header_timeout).max_buf_size(HEAD_BYTES);
    let service = service_fn(move |request| {
        let hangup = Hangup::default();
        let answer = front::answer(app.clone(), router.clone(), address, hangup.clone(), request);
        Finished::new(answer, hangup, app.tasks.clone())
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
