//! The outcome of a publish, available at once or later.

use std::pin::Pin;
use std::task::{Context, Poll};

use super::{BrokerError, PublishOutcome};

/// The outcome of one publish.
pub type PublishReceipt<'a> = Soon<'a, Result<PublishOutcome, BrokerError>>;

/// A future that is ready at once or boxed. A ready one allocates nothing.
#[must_use = "it does nothing, or nothing is known of it, unless it is awaited"]
pub struct Soon<'a, T>(SoonState<'a, T>);

enum SoonState<'a, T> {
    Now(Option<T>),
    Later(Pin<Box<dyn Future<Output = T> + Send + 'a>>),
}

impl<'a, T> Soon<'a, T> {
    /// A value that is ready.
    pub fn now(value: T) -> Self {
        Self(SoonState::Now(Some(value)))
    }

    /// The value of a future.
    pub fn later(value: impl Future<Output = T> + Send + 'a) -> Self {
        Self(SoonState::Later(Box::pin(value)))
    }
}

impl<T: Unpin> Future for Soon<'_, T> {
    type Output = T;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<T> {
        match &mut self.0 {
            // `None` means polled again after completion, which never resolves.
            SoonState::Now(value) => value.take().map_or(Poll::Pending, Poll::Ready),
            SoonState::Later(value) => value.as_mut().poll(context),
        }
    }
}
