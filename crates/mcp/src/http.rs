//! Many clients over streamable HTTP, on a loopback address.

use std::future::Future;
use std::sync::Arc;

use axum::Router;
use rmcp::transport::streamable_http_server::session::local::LocalSessionManager;
use rmcp::transport::streamable_http_server::{StreamableHttpServerConfig, StreamableHttpService};
use tokio::net::TcpListener;
use tokio_util::sync::CancellationToken;

use crate::handler::Handler;
use crate::options::{Options, ServeError};
use crate::seat::Seat;
use crate::seen::Seen;
use crate::watch::Watch;

/// Where the door is.
const PATH: &str = "/mcp";

/// Serves `/mcp` on the listener until `shutdown` is done.
///
/// There are no keys: whoever reaches the listener speaks for the office's seat. So the listener must be a loopback one,
/// a request must name a loopback host (a page on the web cannot rebind its own name to us), and where a browser says
/// which page it acts for, that page must be ours or one that the options allow.
pub async fn serve_http(
    listener: TcpListener,
    seat: impl Into<Seat>,
    options: Options,
    shutdown: impl Future<Output = ()> + Send + 'static,
) -> Result<(), ServeError> {
    let address = listener.local_addr().map_err(ServeError::Listener)?;
    if !address.ip().is_loopback() {
        return Err(ServeError::NotLoopback(address));
    }
    let seat = seat.into();
    let closing = CancellationToken::new();
    let _ends = closing.clone().drop_guard();
    let watch = Watch::new(seat.clone(), closing.clone());
    let shared = Arc::new(Seen::default());
    shared.begin(&seat).await;
    let config = config(address.port(), &options, closing.clone());
    let options = Arc::new(options);
    let make = move || {
        let (seat, options) = (seat.clone(), Arc::clone(&options));
        Ok(Handler::one_of_many(seat, options, watch.clone(), Arc::clone(&shared)))
    };
    let service = StreamableHttpService::new(make, Arc::new(LocalSessionManager::default()), config);
    let router = Router::new().route_service(PATH, service);
    let ended = async move {
        shutdown.await;
        // Streams that wait for mail would otherwise hold the server open.
        closing.cancel();
    };
    axum::serve(listener, router).with_graceful_shutdown(ended).await.map_err(ServeError::Listener)
}

fn config(port: u16, options: &Options, closing: CancellationToken) -> StreamableHttpServerConfig {
    let own = ["localhost", "127.0.0.1", "[::1]"].map(|host| format!("http://{host}:{port}"));
    let origins = own.into_iter().chain(options.allowed_origins.iter().cloned());
    StreamableHttpServerConfig::default()
        .with_allowed_hosts(["localhost", "127.0.0.1", "::1"])
        .with_allowed_origins(origins)
        .enforce_origin_validation()
        .with_cancellation_token(closing)
}
