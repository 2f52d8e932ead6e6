//! Drains unread request bodies: a request that is refused by its head alone leaves one.
//!
//! HTTP/1 has no other way past such a body than to read it or to close the connection, and hyper closes it without saying
//! so: the client's next request on that connection fails, though the answer before it was a plain 401. So what is left is
//! read off and thrown away, within bounds, and beyond them the answer says that the connection ends.

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
const PATIENCE: Duration = Duration::from_secs(5);

/// Receives the body when it is dropped before its end.
type UnreadSlot = Arc<Mutex<Option<Incoming>>>;

/// A body that returns to its slot when the handler drops it.
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

/// What may be left of one request's body.
pub(crate) struct UnreadBody {
    slot: Option<UnreadSlot>,
    /// The client sends the body only when it is asked for, so there is nothing to wait for.
    asks_first: bool,
}

/// The body for a handler, and what will be left of it.
pub(crate) fn track(body: Incoming, headers: &HeaderMap) -> (Body, UnreadBody) {
    if body.is_end_stream() {
        return (Body::empty(), UnreadBody { slot: None, asks_first: false });
    }
    let slot = UnreadSlot::default();
    let tracked = TrackedBody { body: Some(body), slot: Arc::clone(&slot) };
    let asks_first = headers.contains_key(header::EXPECT);
    (Body::new(tracked), UnreadBody { slot: Some(slot), asks_first })
}

impl UnreadBody {
    /// Reads what is left, at most so many bytes, or marks the response `Connection: close`.
    pub(crate) async fn drain(self, most: usize, response: &mut Response) {
        let Some(body) = self.slot.and_then(|slot| slot.lock().take()) else { return };
        // These two were read until their timeout or their limit already.
        let waited = matches!(response.status(), StatusCode::REQUEST_TIMEOUT | StatusCode::PAYLOAD_TOO_LARGE);
        let drained = !waited && !self.asks_first && {
            tokio::time::timeout(PATIENCE, read_to_end(body, most)).await.unwrap_or(false)
        };
        if !drained {
            response.headers_mut().insert(header::CONNECTION, HeaderValue::from_static("close"));
        }
    }
}

/// Whether the body came to its end within so many bytes.
async fn read_to_end(body: Incoming, most: usize) -> bool {
    let mut frames = Body::new(body).into_data_stream();
    let mut size = 0_usize;
    while let Some(frame) = frames.next().await {
        let Ok(frame) = frame else { return false };
        size = size.saturating_add(frame.len());
        if size > most {
            return false;
        }
    }
    true
}
