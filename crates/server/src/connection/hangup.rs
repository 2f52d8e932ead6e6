//! Clients that disconnect in the middle of a request.
//!
//! hyper drops the future of a request when its client closes the connection. The store may have committed by then, but
//! what comes after the `.await` (hints to subscribers and replicas, eviction of subscribers) would never run. So a
//! request that hyper drops continues in a task of its own. Not every request gets a task: that would cost each
//! response a switch between threads.

use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll};

use crate::request::Problem;
use amb_core::OfficeError;
use axum::extract::FromRequestParts;
use axum::http::request::Parts;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

/// Signals that the client has disconnected. A handler that waits for an event must return then.
#[derive(Debug, Clone, Default)]
pub(crate) struct Hangup(CancellationToken);

impl Hangup {
    /// Resolves when the client has disconnected.
    pub(crate) async fn happened(&self) {
        self.0.cancelled().await;
    }

    pub(crate) fn has_happened(&self) -> bool {
        self.0.is_cancelled()
    }
}

impl<S: Sync> FromRequestParts<S> for Hangup {
    type Rejection = Problem;

    async fn from_request_parts(parts: &mut Parts, _: &S) -> Result<Self, Problem> {
        // The middleware inserts it before routing.
        let hangup = parts.extensions.get::<Self>().cloned();
        hangup.ok_or_else(|| OfficeError::internal("a request without a connection").into())
    }
}

/// A request in flight. If it is dropped before its end, it continues in a task that a shutdown waits for.
pub(super) struct RunToEnd<F: Future<Output: Send> + Send + 'static> {
    /// `None` after the end.
    request: Option<Pin<Box<F>>>,
    hangup: Hangup,
    tasks: TaskTracker,
}

impl<F: Future<Output: Send> + Send + 'static> RunToEnd<F> {
    pub(super) fn new(request: F, hangup: Hangup, tasks: TaskTracker) -> Self {
        Self { request: Some(Box::pin(request)), hangup, tasks }
    }
}

impl<F: Future<Output: Send> + Send + 'static> Future for RunToEnd<F> {
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

impl<F: Future<Output: Send> + Send + 'static> Drop for RunToEnd<F> {
    fn drop(&mut self) {
        let Some(request) = self.request.take() else { return };
        self.hangup.0.cancel();
        // Without a runtime the process is exiting.
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
    async fn a_request_dropped_in_the_middle_continues_and_sees_the_hangup() {
        let (go_on, waits) = oneshot::channel::<()>();
        let (done, is_done) = oneshot::channel();
        let (hangup, tasks) = (Hangup::default(), TaskTracker::new());
        let seen = hangup.clone();
        let request = async move {
            seen.happened().await;
            waits.await.unwrap();
            done.send(()).unwrap();
        };
        let mut request = RunToEnd::new(request, hangup, tasks.clone());
        assert!(futures_util::poll!(&mut request).is_pending());
        drop(request);
        tasks.close();
        assert_eq!(tasks.len(), 1, "a shutdown waits for it");
        go_on.send(()).unwrap();
        is_done.await.unwrap();
        tasks.wait().await;
    }

    #[tokio::test]
    async fn a_finished_request_is_not_run_again() {
        let tasks = TaskTracker::new();
        assert_eq!(RunToEnd::new(async { 7 }, Hangup::default(), tasks.clone()).await, 7);
        assert!(tasks.is_empty());
    }
}
