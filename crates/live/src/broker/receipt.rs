//! What is told of a parcel, sooner or later.

use std::fmt;
use std::pin::Pin;
use std::task::{Context, Poll};

use super::{BrokerError, PublishOutcome};

/// What becomes of one parcel: await it.
pub type PublishReceipt<'a> = Soon<'a, Result<PublishOutcome, BrokerError>>;

/// A value that is there at once or comes later. Where it is there at once, nothing is allocated for the wait.
#[must_use = "it does nothing, or nothing is known of it, unless it is awaited"]
pub struct Soon<'a, T>(State<'a, T>);

enum State<'a, T> {
    Now(Option<T>),
    Later(Pin<Box<dyn Future<Output = T> + Send + 'a>>),
}

impl<'a, T> Soon<'a, T> {
    /// It is there.
    pub fn now(value: T) -> Self {
        Self(State::Now(Some(value)))
    }

    /// It comes with this.
    pub fn later(value: impl Future<Output = T> + Send + 'a) -> Self {
        Self(State::Later(Box::pin(value)))
    }
}

impl<T: Unpin> Future for Soon<'_, T> {
    type Output = T;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<T> {
        match &mut self.0 {
            // `None` is a second await after the value was taken: like any other future, it never comes again.
            State::Now(value) => value.take().map_or(Poll::Pending, Poll::Ready),
            State::Later(value) => value.as_mut().poll(context),
        }
    }
}

impl<T: fmt::Debug> fmt::Debug for Soon<'_, T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.0 {
            State::Now(value) => f.debug_tuple("Now").field(value).finish(),
            State::Later(_) => f.write_str("Later"),
        }
    }
}
