//! Drains unread request bodies, such as that of a request rejected for its headers.
//!
//! With HTTP/1 such a body must be read, or the connection closed, and hyper closes it without `Connection: close`: the
//! client's next request on that connection fails. So the rest of the body is read and discarded, within bounds; beyond
//! them the response has `Connection: close`.

use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use axum::body::{Body, Bytes, HttpBody};
use axum::http::{HeaderMap, HeaderValue, StatusCode, header};
use axum::response::Response;
use futures_util::StreamExt;
use hyper::body::{Frame, Incoming, SizeHint};
use parking_lot::Mutex;

/// How long a response waits for the rest of an unread body.
const DRAIN_TIMEOUT: Duration = Duration::from_secs(5);

/// Receives the body when it is dropped before its end.
type UnreadSlot = Arc<Mutex<Option<Incoming>>>;

/// A body that moves to its slot when the handler drops it unread.
struct TrackedBody {
    body: Option<Incoming>,
    slot: UnreadSlot,
}

impl HttpBody for TrackedBody {
    type Data = Bytes;
    type Error = hyper::Error;

    fn poll_frame(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, hyper::Error>>> {
        let this = self.get_mut();
        let Some(body) = &mut this.body else { return Poll::Ready(None) };
        let polled = Pin::new(body).poll_frame(cx);
        if matches!(polled, Poll::Ready(None | Some(Err(_)))) {
            this.body = None;
        }
        polled
    }

    fn is_end_stream(&self) -> bool {
        self.body.as_ref().is_none_or(HttpBody::is_end_stream)
    }

    fn size_hint(&self) -> SizeHint {
        self.body.as_ref().map_or_else(|| SizeHint::with_exact(0), HttpBody::size_hint)
    }
}

impl Drop for TrackedBody {
    fn drop(&mut self) {
        if let Some(body) = self.body.take().filter(|body| !body.is_end_stream()) {
            *self.slot.lock() = Some(body);
        }
    }
}

/// The unread rest of a request's body.
pub(crate) struct UnreadBody {
    slot: Option<UnreadSlot>,
    /// The client sent `Expect: 100-continue`, so it does not send the body unless a handler reads it.
    expects_continue: bool,
}

/// Returns the body for the handler, and what drains it afterwards.
pub(crate) fn track(body: Incoming, headers: &HeaderMap) -> (Body, UnreadBody) {
    if body.is_end_stream() {
        return (Body::empty(), UnreadBody { slot: None, expects_continue: false });
    }
    let slot = UnreadSlot::default();
    let tracked = TrackedBody { body: Some(body), slot: Arc::clone(&slot) };
    let expects_continue = headers.contains_key(header::EXPECT);
    (Body::new(tracked), UnreadBody { slot: Some(slot), expects_continue })
}

impl UnreadBody {
    /// Reads the rest of the body, at most `max` bytes, or adds `Connection: close` to the response.
    pub(crate) async fn drain(self, max: usize, response: &mut Response) {
        let Some(body) = self.slot.and_then(|slot| slot.lock().take()) else { return };
        // For these two, the body was already read until a timeout or a limit.
        let gave_up = matches!(response.status(), StatusCode::REQUEST_TIMEOUT | StatusCode::PAYLOAD_TOO_LARGE);
        let drained = !gave_up && !self.expects_continue && {
            tokio::time::timeout(DRAIN_TIMEOUT, read_to_end(body, max)).await.unwrap_or(false)
        };
        if !drained {
            response.headers_mut().insert(header::CONNECTION, HeaderValue::from_static("close"));
        }
    }
}

/// Returns whether the body ended within `max` bytes.
async fn read_to_end(body: Incoming, max: usize) -> bool {
    let mut frames = Body::new(body).into_data_stream();
    let mut size = 0_usize;
    while let Some(frame) = frames.next().await {
        let Ok(frame) = frame else { return false };
        size = size.saturating_add(frame.len());
        if size > max {
            return false;
        }
    }
    true
}
