//! The middleware: what happens to every request before it is routed and after it is answered. One function instead of a
//! stack of layers, because each layer costs an allocation for each request.

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
use crate::caller::ClientAddress;
use crate::drain::track;
use crate::hangup::Hangup;
use crate::in_flight;
use crate::listen::{ConnectionAddresses, OriginRules};
use crate::problem::{Cause, Problem};
use crate::rate::network;

const REQUEST_ID: HeaderName = HeaderName::from_static("x-request-id");
const FORWARDED_FOR: &str = "x-forwarded-for";
/// Longest id that is taken over from a caller.
const MAX_REQUEST_ID: usize = 64;

/// Distinguishes the request ids of this process.
static RUN: LazyLock<u32> = LazyLock::new(|| {
    let mut bytes = [0; 4];
    // Without randomness the ids still count; they are no secret.
    let _ = getrandom::fill(&mut bytes);
    u32::from_le_bytes(bytes)
});
static COUNT: AtomicU64 = AtomicU64::new(0);

/// The caller's id for the request where it is short and plain, else a new one.
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

/// The client address that a request is charged to.
fn address_of(app: &App, socket: IpAddr, headers: &HeaderMap) -> IpAddr {
    if !app.config.trust_forwarded_for {
        return socket;
    }
    // The last entry is the one that our own proxy wrote; those before it are whatever the client said.
    let last = headers.get_all(FORWARDED_FOR).iter().next_back().and_then(|value| value.to_str().ok());
    last.and_then(|list| list.rsplit(',').next()).and_then(|ip| ip.trim().parse().ok()).unwrap_or(socket)
}

fn too_many_at_once() -> OfficeError {
    OfficeError::new(
        Code::TooManyRequests,
        "too many requests from this address are under way; wait for answers before sending more",
    )
}

/// What the requests of one listener share.
#[derive(Clone)]
pub(crate) struct Middleware {
    pub(crate) app: App,
    pub(crate) router: Router,
    /// Which hosts and web pages pass.
    pub(crate) web: Arc<OriginRules>,
}

/// Refuses requests from web origins and hosts that are not allowed.
fn check_web(web: &WebRules, request: &Request<Incoming>) -> Result<(), Problem> {
    // A value that is not ASCII matches no allowed name.
    let text = |value: &HeaderValue| value.to_str().map(str::to_owned).unwrap_or_default();
    let headers = request.headers();
    let origin = headers.get(header::ORIGIN).map(text);
    let named = request.uri().authority().map(ToString::to_string);
    let mut hosts = named.into_iter().chain(headers.get_all(header::HOST).iter().map(text));
    let checked = match hosts.next() {
        None => web.check(None, origin.as_deref()),
        Some(first) => {
            std::iter::once(first).chain(hosts).try_for_each(|host| web.check(Some(&host), origin.as_deref()))
        }
    };
    checked.map_err(|refusal| Problem::new(StatusCode::FORBIDDEN, refusal.code(), refusal.detail()))
}

/// Answers one request.
pub(crate) async fn answer(
    door: Middleware,
    ends: ConnectionAddresses,
    hangup: Hangup,
    request: Request<Incoming>,
) -> Result<Response, Infallible> {
    let started = Instant::now();
    let Middleware { app, mut router, web } = door;
    let passed = check_web(web.at(ends.local), &request);
    let id = request_id(request.headers());
    let address = address_of(&app, ends.peer, request.headers());
    let method = request.method().clone();
    let uri = request.uri().clone();
    let (parts, body) = request.into_parts();
    let (body, unread) = track(body, &parts.headers);
    let mut request = Request::from_parts(parts, body);
    let admitted = passed.and_then(|()| {
        app.limits.address(address)?;
        Ok(app.requests.take(network(address)).ok_or_else(too_many_at_once)?)
    });
    let (mut response, place) = match admitted {
        Err(refused) => {
            drop(request);
            (refused.into_response(), None)
        }
        Ok(place) => {
            request.extensions_mut().insert(ClientAddress(address));
            request.extensions_mut().insert(hangup);
            let routed = AssertUnwindSafe(router.call(request)).catch_unwind();
            let response = match routed.await {
                Ok(Ok(response)) => response,
                Err(_) => Problem::from(OfficeError::internal("a handler panicked")).into_response(),
            };
            (response, Some(place))
        }
    };
    unread.drain(app.config.body_limit, &mut response).await;
    let took = started.elapsed();
    let status = response.status();
    // Without the query, in which `/ws` may have a key.
    let path = uri.path();
    app.metrics.answered(path, status.as_u16(), took);
    app.ring.counters.answered(path, status.as_u16(), took);
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
    Ok(match place {
        Some(place) => in_flight::hold(response, place),
        None => response,
    })
}
