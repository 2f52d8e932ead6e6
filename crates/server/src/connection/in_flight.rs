//! Responses not yet written: each counts as a request in flight until the system has taken its last byte.
//!
//! hyper drops a body as soon as it has the body's bytes, and keeps the bytes until the client reads them. So the permit is kept
//! with the bytes.

use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use axum::body::{Body, Bytes, HttpBody};
use axum::response::Response;
use hyper::body::{Frame, SizeHint};

/// Holds something until an answer is written or given up.
pub(crate) fn hold<H: Send + Sync + 'static>(response: Response, held: H) -> Response {
    if response.body().is_end_stream() {
        return response;
    }
    response.map(|body| Body::new(Counted { body, held: Arc::new(held) }))
}

struct Counted<H> {
    body: Body,
    held: Arc<H>,
}

/// Bytes with what is held until they are dropped.
struct CountedBytes<H> {
    bytes: Bytes,
    _held: Arc<H>,
}

impl<H> AsRef<[u8]> for CountedBytes<H> {
    fn as_ref(&self) -> &[u8] {
        &self.bytes
    }
}

impl<H: Send + Sync + 'static> HttpBody for Counted<H> {
    type Data = Bytes;
    type Error = axum::Error;

    fn poll_frame(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, axum::Error>>> {
        let Self { body, held } = self.get_mut();
        let hold = |bytes| Bytes::from_owner(CountedBytes { bytes, _held: Arc::clone(held) });
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
    async fn what_is_held_is_let_go_of_with_the_last_byte() {
        let held = Arc::new(());
        let response = hold(Response::new(Body::from("answer")), held.clone());
        assert_eq!(response.body().size_hint().exact(), Some(6), "the length is still known");
        let mut frames = response.into_body().into_data_stream();
        let bytes = frames.next().await.unwrap().unwrap();
        drop(frames);
        assert_eq!((&*bytes, Arc::strong_count(&held)), (&b"answer"[..], 2), "the bytes are not written yet");
        drop(bytes);
        assert_eq!(Arc::strong_count(&held), 1);
        drop(hold(Response::new(Body::from("unread")), held.clone()));
        assert_eq!(Arc::strong_count(&held), 1, "a body that is dropped is given up");
    }

    #[test]
    fn an_answer_without_a_body_holds_nothing() {
        let held = Arc::new(());
        let _response = hold(Response::new(Body::empty()), held.clone());
        assert_eq!(Arc::strong_count(&held), 1);
    }
}
