//! The office from its opening to its closing.

use std::future::Future;
use std::io;
use std::sync::Arc;
use std::time::Duration;

use amb_core::Timestamp;
use amb_store::Store;
use axum::Router;
use axum::http::header;
use axum::routing::get;
use tokio::net::TcpListener;
use tokio::sync::broadcast::error::RecvError;

use crate::app::App;
use crate::config::Config;
use crate::listen;
use crate::routes;
use crate::tls::Tls;

/// How often idle cells of the limits are forgotten and figures folded.
const UPKEEP: Duration = Duration::from_secs(10);
/// How often old entries are looked for, where they are not kept for ever.
const PRUNE: Duration = Duration::from_secs(300);

/// Where an office listens. The caller has bound them, so that it knows the ports and owns them.
#[derive(Debug)]
pub struct Listeners {
    /// For agents.
    pub office: TcpListener,
    /// For Prometheus: apart, because figures are nobody's business who can merely reach the office.
    pub metrics: Option<TcpListener>,
}

impl From<TcpListener> for Listeners {
    fn from(office: TcpListener) -> Self {
        Self { office, metrics: None }
    }
}

/// Serves until `shutdown` resolves, then finishes what was accepted and closes every socket with a reason.
///
/// Does not close the store: whoever opened it does, after this returned.
///
/// # Errors
/// Where the certificate or its key cannot be used. Failures of single connections are logged, never returned.
pub async fn serve(
    listeners: impl Into<Listeners>,
    store: Arc<dyn Store>,
    config: Config,
    shutdown: impl Future<Output = ()>,
) -> io::Result<()> {
    let Listeners { office, metrics } = listeners.into();
    let tls = config.tls.as_ref().map(Tls::load).transpose()?;
    let app = App::new(store, config);
    let router = routes::router(&app)?;
    tokio::spawn(upkeep(app.clone()));
    if let Some(hints) = app.store.hints() {
        tokio::spawn(relay_hints(app.clone(), hints));
    }
    let accepting = {
        let app = app.clone();
        tokio::spawn(async move { listen::accept(&app, office, router, tls).await })
    };
    if let Some(metrics) = metrics {
        let app = app.clone();
        tokio::spawn(async move { listen::accept(&app, metrics, metrics_router(&app), None).await });
    }
    shutdown.await;
    tracing::info!("closing: finishing what was accepted");
    app.closing.cancel();
    if let Err(error) = accepting.await {
        tracing::error!(%error, "the accepting task failed");
    }
    app.tasks.close();
    if tokio::time::timeout(app.config.shutdown_grace, app.tasks.wait()).await.is_err() {
        tracing::warn!(left = app.tasks.len(), "closing without waiting any longer");
    }
    Ok(())
}

fn metrics_router(app: &App) -> Router {
    let text = [(header::CONTENT_TYPE, "text/plain; version=0.0.4; charset=utf-8")];
    Router::new().route(
        "/metrics",
        get({
            let app = app.clone();
            async move || (text, app.meter.render())
        }),
    )
}

/// Small chores, until the office closes.
async fn upkeep(app: App) {
    let mut chores = tokio::time::interval(UPKEEP);
    let mut prunes = tokio::time::interval(PRUNE);
    loop {
        tokio::select! {
            _ = chores.tick() => {
                app.limits.sweep();
                app.meter.upkeep();
            }
            _ = prunes.tick() => prune(&app).await,
            () = app.closing.cancelled() => return,
        }
    }
}

async fn prune(app: &App) {
    let Some(keep) = app.config.event_retention else { return };
    let Ok(before) = Timestamp::now().checked_sub(keep) else { return };
    loop {
        match app.store.prune(before).await {
            Ok(0) => return,
            // Others want the database too.
            Ok(_) => tokio::task::yield_now().await,
            Err(error) => return tracing::warn!(%error, "cannot remove old entries now"),
        }
    }
}

/// Wakes listeners whose logs grew by the hand of another process.
async fn relay_hints(app: App, mut hints: tokio::sync::broadcast::Receiver<amb_store::AgentKey>) {
    loop {
        let hint = tokio::select! {
            hint = hints.recv() => hint,
            () = app.closing.cancelled() => return,
        };
        match hint {
            Ok(agent) => app.hub.poke(agent),
            Err(RecvError::Lagged(_)) => app.hub.poke_all(),
            Err(RecvError::Closed) => return,
        }
    }
}
