//! What happens to every request before routing and after the response. One function instead of a stack of layers,
//! because each layer costs an allocation for each request.

use std::convert::Infallible;
use std::net::IpAddr;
use std::panic::AssertUnwindSafe;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, LazyLock};
use std::time::Instant;

use amb_core::web::WebRules;
use amb_core::{Code, OfficeError};
use axum::Router;
use axum::http::{HeaderMap, HeaderName, HeaderValue, Request, StatusCode, header};
use axum::response::{IntoResponse, Response};
use futures_util::FutureExt;
use hyper::body::Incoming;
use tower::Service;

use crate::app::App;
use crate::connection::{Hangup, in_flight, track};
use crate::rate::network;
use crate::request::{Cause, ClientAddress, Problem};

const REQUEST_ID: HeaderName = HeaderName::from_static("x-request-id");
const FORWARDED_FOR: &str = "x-forwarded-for";
/// Longest request id accepted from a client.
const MAX_REQUEST_ID: usize = 64;

/// Distinguishes the request ids of this process from those of others.
static RUN: LazyLock<u32> = LazyLock::new(|| {
    let mut bytes = [0; 4];
    // A failure is harmless: the ids are not secret.
    let _ = getrandom::fill(&mut bytes);
    u32::from_le_bytes(bytes)
});
static COUNT: AtomicU64 = AtomicU64::new(0);

/// Returns the client's id for the request if it is short and plain, else a new one.
fn request_id(headers: &HeaderMap) -> HeaderValue {
    let plain = |value: &&HeaderValue| {
        let bytes = value.as_bytes();
        let fits = |b: &u8| b.is_ascii_alphanumeric() || matches!(b, b'-' | b'_' | b'.');
        (1..=MAX_REQUEST_ID).contains(&bytes.len()) && bytes.iter().all(fits)
    };
    match headers.get(REQUEST_ID).filter(plain) {
        Some(theirs) => theirs.clone(),
        None => {
            let id = format!("{:08x}-{:x}", *RUN, COUNT.fetch_add(1, Ordering::Relaxed));
            HeaderValue::from_maybe_shared(axum::body::Bytes::from(id))
                .unwrap_or_else(|_| HeaderValue::from_static("-"))
        }
    }
}

/// Returns the client address that a request is charged to.
fn address_of(app: &App, peer: IpAddr, headers: &HeaderMap) -> IpAddr {
    if !app.config.trust_forwarded_for {
        return peer;
    }
    // The last entry is the one that our own proxy wrote; the client can forge those before it.
    let last = headers.get_all(FORWARDED_FOR).iter().next_back().and_then(|value| value.to_str().ok());
    last.and_then(|list| list.rsplit(',').next()).and_then(|ip| ip.trim().parse().ok()).unwrap_or(peer)
}

fn too_many_at_once() -> OfficeError {
    OfficeError::new(
        Code::TooManyRequests,
        "too many requests from this address are under way; wait for answers before sending more",
    )
}

/// What the requests of one connection share.
#[derive(Clone)]
pub(crate) struct Middleware {
    pub(crate) app: App,
    pub(crate) router: Router,
    /// Allowed hosts and web origins.
    pub(crate) web: Arc<WebRules>,
    /// The address at the other end of the connection.
    pub(crate) peer: IpAddr,
}

/// Rejects requests from web origins and to hosts that are not allowed.
fn check_web(web: &WebRules, request: &Request<Incoming>) -> Result<(), Problem> {
    // A value that is not ASCII matches no allowed name.
    let text = |value: &HeaderValue| value.to_str().map(str::to_owned).unwrap_or_default();
    let headers = request.headers();
    let origin = headers.get(header::ORIGIN).map(text);
    let authority = request.uri().authority().map(ToString::to_string);
    let mut hosts = authority.into_iter().chain(headers.get_all(header::HOST).iter().map(text)).peekable();
    let checked = match hosts.peek() {
        None => web.check(None, origin.as_deref()),
        Some(_) => hosts.try_for_each(|host| web.check(Some(&host), origin.as_deref())),
    };
    checked.map_err(|refusal| Problem::new(StatusCode::FORBIDDEN, refusal.code(), refusal.detail()))
}

/// Answers one request.
pub(crate) async fn answer(
    middleware: Middleware,
    hangup: Hangup,
    request: Request<Incoming>,
) -> Result<Response, Infallible> {
    let started = Instant::now();
    let Middleware { app, mut router, web, peer } = middleware;
    let allowed = check_web(&web, &request);
    let id = request_id(request.headers());
    let address = address_of(&app, peer, request.headers());
    let method = request.method().clone();
    let uri = request.uri().clone();
    let (parts, body) = request.into_parts();
    let (body, unread) = track(body, &parts.headers);
    let mut request = Request::from_parts(parts, body);
    let permit = allowed.and_then(|()| {
        app.limits.address(address)?;
        Ok(app.requests.acquire(network(address)).ok_or_else(too_many_at_once)?)
    });
    let (mut response, permit) = match permit {
        Err(problem) => {
            drop(request);
            (problem.into_response(), None)
        }
        Ok(permit) => {
            request.extensions_mut().insert(ClientAddress(address));
            request.extensions_mut().insert(hangup);
            let routed = AssertUnwindSafe(router.call(request)).catch_unwind();
            let response = match routed.await {
                Ok(Ok(response)) => response,
                Err(_) => Problem::from(OfficeError::internal("a handler panicked")).into_response(),
            };
            (response, Some(permit))
        }
    };
    unread.drain(app.config.body_limit, &mut response).await;
    let took = started.elapsed();
    let status = response.status();
    // Without the query string, in which `/ws` may have a key.
    let path = uri.path();
    app.metrics.answered(path, status.as_u16(), took);
    app.stats.counters.answered(path, status.as_u16(), took);
    if let Some(Cause(cause)) = response.extensions_mut().remove::<Cause>() {
        let source = std::error::Error::source(&*cause).map(|source| format!("{source:#}"));
        tracing::error!(
            request_id = id.to_str().unwrap_or_default(),
            %method,
            path,
            status = status.as_u16(),
            code = %cause.code(),
            cause = source.as_deref().unwrap_or_default(),
            "{cause}"
        );
    } else {
        tracing::debug!(
            request_id = id.to_str().unwrap_or_default(),
            %method,
            path,
            status = status.as_u16(),
            micros = u64::try_from(took.as_micros()).unwrap_or(u64::MAX),
            "answered"
        );
    }
    response.headers_mut().insert(REQUEST_ID, id);
    Ok(match permit {
        Some(permit) => in_flight::hold(response, permit),
        None => response,
    })
}
