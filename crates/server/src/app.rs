//! What every request can reach.

use std::ops::Deref;
use std::sync::Arc;

use amb_store::{Store, Written};
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use crate::config::Config;
use crate::hub::Hub;
use crate::meter::Meter;
use crate::rate::Limiter;

/// The office at work. Cheap to clone.
#[derive(Clone)]
pub(crate) struct App(Arc<Inner>);

/// See [`App`].
pub(crate) struct Inner {
    pub(crate) store: Arc<dyn Store>,
    pub(crate) config: Config,
    pub(crate) hub: Hub,
    pub(crate) limits: Limiter,
    pub(crate) meter: Meter,
    /// Cancelled when the office is to close: long polls answer, sockets say goodbye.
    pub(crate) closing: CancellationToken,
    /// Everything that a shutdown waits for.
    pub(crate) tasks: TaskTracker,
}

impl Deref for App {
    type Target = Inner;

    fn deref(&self) -> &Inner {
        &self.0
    }
}

impl App {
    pub(crate) fn new(store: Arc<dyn Store>, config: Config) -> Self {
        Self(Arc::new(Inner {
            store,
            hub: Hub::default(),
            limits: Limiter::new(config.rate_limits),
            meter: Meter::new(),
            closing: CancellationToken::new(),
            tasks: TaskTracker::new(),
            config,
        }))
    }

    /// Tells the sockets what a verb wrote, and gives its answer. Called after the commit, never before.
    pub(crate) fn told<T>(&self, written: Written<T>) -> T {
        self.hub.publish(&written.news);
        written.answer
    }
}
