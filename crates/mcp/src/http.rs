//! Many clients over streamable HTTP, on a loopback address.

use std::future::Future;
use std::sync::Arc;

use amb_core::web::{WebRefusal, WebRules};
use axum::Router;
use axum::extract::Request;
use axum::http::{HeaderMap, HeaderValue, StatusCode, header};
use axum::middleware::{Next, from_fn};
use axum::response::IntoResponse;
use rmcp::model::ProtocolVersion;
use rmcp::transport::streamable_http_server::session::local::LocalSessionManager;
use rmcp::transport::streamable_http_server::{StreamableHttpServerConfig, StreamableHttpService};
use tokio::net::TcpListener;
use tokio_util::sync::CancellationToken;

use crate::client_memory::ClientMemory;
use crate::handler::Handler;
use crate::lazy_mailbox::LazyMailbox;
use crate::options::{McpOptions, ServeError};
use crate::watch::LogWatch;

const PATH: &str = "/mcp";

/// The most sessions of the protocols that have some. One that is idle for five minutes ends.
const MAX_SESSIONS: usize = 256;

/// Serves `/mcp` on the listener until `shutdown` is done.
///
/// There are no keys: whoever reaches the listener acts as the mailbox's agent. So the listener must be a loopback one,
/// a request must name a loopback host (against DNS rebinding), and where a browser sends an `Origin`, it must be ours
/// or one that the options allow.
pub async fn serve_http(
    listener: TcpListener,
    mailbox: impl Into<LazyMailbox>,
    options: McpOptions,
    shutdown: impl Future<Output = ()> + Send + 'static,
) -> Result<(), ServeError> {
    let address = listener.local_addr().map_err(ServeError::Listener)?;
    if !address.ip().is_loopback() {
        return Err(ServeError::NotLoopback(address));
    }
    let mailbox = mailbox.into();
    let closing = CancellationToken::new();
    let _ends = closing.clone().drop_guard();
    let watch = LogWatch::new(mailbox.clone(), closing.clone());
    let shared = Arc::new(ClientMemory::default());
    shared.connect(&mailbox).await;
    let web = Arc::new(WebRules::new(address.ip(), &[], &options.allowed_origins));
    // Our own checks, the same for all our listeners, replace the library's.
    let config = StreamableHttpServerConfig::default().disable_allowed_hosts().with_cancellation_token(closing.clone());
    let options = Arc::new(options);
    let make = move || {
        let (mailbox, options) = (mailbox.clone(), Arc::clone(&options));
        Ok(Handler::new(mailbox, options, watch.clone(), Some(Arc::clone(&shared))))
    };
    let sessions = Arc::new(LocalSessionManager::default());
    let service = StreamableHttpService::new(make, Arc::clone(&sessions), config);
    let router = Router::new().route_service(PATH, service).layer(from_fn(move |request: Request, next: Next| {
        let (web, sessions) = (Arc::clone(&web), Arc::clone(&sessions));
        async move {
            if let Err(refusal) = check(&web, request.headers()) {
                return (StatusCode::FORBIDDEN, detail(refusal)).into_response();
            }
            if opens_session(request.headers()) && sessions.sessions.read().await.len() >= MAX_SESSIONS {
                return (StatusCode::SERVICE_UNAVAILABLE, TOO_MANY_SESSIONS).into_response();
            }
            next.run(request).await
        }
    }));
    let ended = async move {
        shutdown.await;
        // Streams that wait for messages would otherwise keep the server running.
        closing.cancel();
    };
    axum::serve(listener, router).with_graceful_shutdown(ended).await.map_err(ServeError::Listener)
}

const TOO_MANY_SESSIONS: &str = "256 sessions are open; end one with DELETE, or wait until an idle one ends";

/// Whether a request would open a session: it is in none, and its protocol is not the stateless one, of which every
/// request names the version.
fn opens_session(headers: &HeaderMap) -> bool {
    let is_stateless = headers
        .get("mcp-protocol-version")
        .is_some_and(|version| version.as_bytes() >= ProtocolVersion::V_2026_07_28.as_str().as_bytes());
    !headers.contains_key("mcp-session-id") && !is_stateless
}

/// What to do about a refusal, with the options that `amb mcp` has.
fn detail(refusal: WebRefusal) -> &'static str {
    match refusal {
        WebRefusal::Host => "this listener has no such host name; call it as localhost or by the address it listens on",
        WebRefusal::Origin => "pages of this origin may not call; start the listener with --allow-origin ORIGIN",
    }
}

/// Whether a request names a host of ours and comes from no foreign page.
fn check(web: &WebRules, headers: &HeaderMap) -> Result<(), WebRefusal> {
    // A value that is not text matches nothing.
    let text = |name| headers.get(name).map(|value: &HeaderValue| value.to_str().unwrap_or_default());
    web.check(text(header::HOST), text(header::ORIGIN))
}
