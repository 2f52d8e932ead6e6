//! Runs the office until shutdown.

use std::future::Future;
use std::io;
use std::sync::Arc;

use amb_store::Store;
use axum::Router;
use axum::http::header;
use axum::routing::get;
use tokio::net::TcpListener;

use crate::app::App;
use crate::config::Config;
use crate::connection;
use crate::connection::ServerTls;
use crate::jobs;
use crate::mounts;
use crate::replicas;
use crate::routes;

/// The sockets of an office, bound by the caller, who thus knows the ports.
#[derive(Debug)]
pub struct Listeners {
    /// For agents.
    pub office: TcpListener,
    /// For Prometheus. Separate, because metrics are not for everybody who can reach the office.
    pub metrics: Option<TcpListener>,
}

impl From<TcpListener> for Listeners {
    fn from(office: TcpListener) -> Self {
        Self { office, metrics: None }
    }
}

/// Serves until `shutdown` resolves, then finishes requests in flight and closes every WebSocket with a reason.
///
/// Does not close the store: the caller does, after this returned.
///
/// # Errors
/// If the certificate or its key cannot be used, or a path to mount is not a directory. Errors of single connections
/// are logged, not returned.
pub async fn serve(
    listeners: impl Into<Listeners>,
    store: Arc<dyn Store>,
    config: Config,
    shutdown: impl Future<Output = ()>,
) -> io::Result<()> {
    let Listeners { office, metrics } = listeners.into();
    let tls = config.tls.as_ref().map(ServerTls::load).transpose()?;
    let app = App::new(store, config).map_err(io::Error::other)?;
    let router = routes::router(&app)?;
    jobs::start(&app);
    let accepting = connection::open(&app, office, router, tls);
    if let Some(metrics) = metrics {
        connection::open(&app, metrics, metrics_router(&app), None);
    }
    shutdown.await;
    tracing::info!("shutting down: finishing requests in flight");
    app.closing.cancel();
    if let Err(error) = accepting.await {
        tracing::error!(%error, "the accepting task failed");
    }
    app.tasks.close();
    if tokio::time::timeout(app.config.shutdown_grace, app.tasks.wait()).await.is_err() {
        tracing::warn!(left = app.tasks.len(), "shutdown timeout: closing with requests in flight");
    }
    replicas::send_queued_hints(&app).await;
    Ok(())
}

fn metrics_router(app: &App) -> Router {
    let text = [(header::CONTENT_TYPE, "text/plain; version=0.0.4; charset=utf-8")];
    Router::new().route(
        "/metrics",
        get({
            let app = app.clone();
            async move || (text, app.metrics.render() + &mounts::metrics(&app.mounts))
        }),
    )
}
