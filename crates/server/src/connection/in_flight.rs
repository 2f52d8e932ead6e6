//! Counts a request as in flight until the last byte of its response is written to the socket.
//!
//! hyper drops a body as soon as it has the body's bytes, and keeps the bytes until the client reads them. So the
//! permit is kept with the bytes.

use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use axum::body::{Body, Bytes, HttpBody};
use axum::response::Response;
use hyper::body::{Frame, SizeHint};

/// Keeps the permit until the response is written or dropped.
pub(crate) fn hold<P: Send + Sync + 'static>(response: Response, permit: P) -> Response {
    if response.body().is_end_stream() {
        return response;
    }
    response.map(|body| Body::new(PermitBody { body, permit: Arc::new(permit) }))
}

struct PermitBody<P> {
    body: Body,
    permit: Arc<P>,
}

struct PermitBytes<P> {
    bytes: Bytes,
    _permit: Arc<P>,
}

impl<P> AsRef<[u8]> for PermitBytes<P> {
    fn as_ref(&self) -> &[u8] {
        &self.bytes
    }
}

impl<P: Send + Sync + 'static> HttpBody for PermitBody<P> {
    type Data = Bytes;
    type Error = axum::Error;

    fn poll_frame(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, axum::Error>>> {
        let Self { body, permit } = self.get_mut();
        let hold = |bytes| Bytes::from_owner(PermitBytes { bytes, _permit: Arc::clone(permit) });
        Pin::new(body).poll_frame(cx).map_ok(|frame| frame.map_data(hold))
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}

#[cfg(test)]
mod tests {
    use futures_util::StreamExt;

    use super::*;

    #[tokio::test]
    async fn the_permit_is_dropped_with_the_last_byte() {
        let permit = Arc::new(());
        let response = hold(Response::new(Body::from("answer")), permit.clone());
        assert_eq!(response.body().size_hint().exact(), Some(6), "the length is still known");
        let mut frames = response.into_body().into_data_stream();
        let bytes = frames.next().await.unwrap().unwrap();
        drop(frames);
        assert_eq!((&*bytes, Arc::strong_count(&permit)), (&b"answer"[..], 2), "the bytes are not written yet");
        drop(bytes);
        assert_eq!(Arc::strong_count(&permit), 1);
        drop(hold(Response::new(Body::from("unread")), permit.clone()));
        assert_eq!(Arc::strong_count(&permit), 1, "the body was dropped");
    }

    #[test]
    fn a_response_without_a_body_keeps_no_permit() {
        let permit = Arc::new(());
        let _response = hold(Response::new(Body::empty()), permit.clone());
        assert_eq!(Arc::strong_count(&permit), 1);
    }
}
