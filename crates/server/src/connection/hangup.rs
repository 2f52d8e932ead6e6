//! Clients that hang up in the middle of a request.
//!
//! hyper drops the future of a request when its client closes the connection. The store has committed by then or will, but
//! whatever comes after the `.await` (forgetting keys, hints to sockets and replicas, closing listeners) would never
//! happen. So a request that was begun goes on in a task of its own when hyper lets go of it. Only then: a task for each
//! request would cost every answer a switch between threads.

use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll};

use amb_core::OfficeError;
use axum::extract::FromRequestParts;
use axum::http::request::Parts;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use crate::problem::Problem;

/// Tells a handler that its client is gone. A handler that waits for something to happen must end then.
#[derive(Debug, Clone, Default)]
pub(crate) struct Hangup(CancellationToken);

impl Hangup {
    /// Resolves when the client has closed its connection.
    pub(crate) async fn happened(&self) {
        self.0.cancelled().await;
    }

    /// Whether the client has closed its connection.
    pub(crate) fn has_happened(&self) -> bool {
        self.0.is_cancelled()
    }
}

impl<S: Sync> FromRequestParts<S> for Hangup {
    type Rejection = Problem;

    async fn from_request_parts(parts: &mut Parts, _: &S) -> Result<Self, Problem> {
        // Put there for every request before it is routed.
        let hangup = parts.extensions.get::<Self>().cloned();
        hangup.ok_or_else(|| OfficeError::internal("a request without a connection").into())
    }
}

/// A request under way. Dropped before its end, it goes on in a task that a shutdown waits for.
pub(crate) struct Finished<F: Future<Output: Send> + Send + 'static> {
    /// `None` once it is done.
    request: Option<Pin<Box<F>>>,
    hangup: Hangup,
    tasks: TaskTracker,
}

impl<F: Future<Output: Send> + Send + 'static> Finished<F> {
    pub(crate) fn new(request: F, hangup: Hangup, tasks: TaskTracker) -> Self {
        Self { request: Some(Box::pin(request)), hangup, tasks }
    }
}

impl<F: Future<Output: Send> + Send + 'static> Future for Finished<F> {
    type Output = F::Output;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<F::Output> {
        let Some(request) = &mut self.request else { return Poll::Pending };
        let polled = request.as_mut().poll(cx);
        if polled.is_ready() {
            self.request = None;
        }
        polled
    }
}

impl<F: Future<Output: Send> + Send + 'static> Drop for Finished<F> {
    fn drop(&mut self) {
        let Some(request) = self.request.take() else { return };
        self.hangup.0.cancel();
        // Without a runtime the process is ending, and no task would run.
        if tokio::runtime::Handle::try_current().is_ok() {
            self.tasks.spawn(request);
        }
    }
}

#[cfg(test)]
mod tests {
    use tokio::sync::oneshot;

    use super::*;

    #[tokio::test]
    async fn what_is_dropped_in_the_middle_goes_on_and_learns_of_it() {
        let (go_on, waits) = oneshot::channel::<()>();
        let (done, is_done) = oneshot::channel();
        let (hangup, tasks) = (Hangup::default(), TaskTracker::new());
        let seen = hangup.clone();
        let request = async move {
            seen.happened().await;
            waits.await.unwrap();
            done.send(()).unwrap();
        };
        let mut request = Finished::new(request, hangup, tasks.clone());
        assert!(futures_util::poll!(&mut request).is_pending());
        drop(request);
        tasks.close();
        assert_eq!(tasks.len(), 1, "a shutdown waits for it");
        go_on.send(()).unwrap();
        is_done.await.unwrap();
        tasks.wait().await;
    }

    #[tokio::test]
    async fn what_is_done_is_not_done_again() {
        let tasks = TaskTracker::new();
        assert_eq!(Finished::new(async { 7 }, Hangup::default(), tasks.clone()).await, 7);
        assert!(tasks.is_empty());
    }
}
