//! Transactions with a timeout, retried after a conflict with another.

use std::ops::{Deref, DerefMut};
use std::time::Duration;

use deadpool_postgres::Object;

/// How long a verb may take before the database counts as unreachable.
pub(super) const TIMEOUT: Duration = Duration::from_secs(15);
/// How often a transaction that conflicts with others is attempted.
pub(super) const MAX_ATTEMPTS: usize = 8;

/// A connection of the pool while a verb uses it. [`InUse::finished`] returns it to the pool. Where the verb was
/// cancelled or timed out before that, statements may still run on it, so it is closed instead.
pub(super) struct InUse(Option<Object>);

impl InUse {
    pub(super) fn new(client: Object) -> Self {
        Self(Some(client))
    }

    /// Returns the connection to the pool.
    pub(super) fn finished(mut self) {
        drop(self.0.take());
    }
}

impl Drop for InUse {
    fn drop(&mut self) {
        if let Some(client) = self.0.take() {
            drop(Object::take(client));
        }
    }
}

impl Deref for InUse {
    type Target = Object;

    #[allow(clippy::expect_used)] // Only `finished` and `drop` take it, and neither leaves anything to call this on.
    fn deref(&self) -> &Object {
        self.0.as_ref().expect("a connection in use")
    }
}

impl DerefMut for InUse {
    #[allow(clippy::expect_used)] // As above.
    fn deref_mut(&mut self) -> &mut Object {
        self.0.as_mut().expect("a connection in use")
    }
}

/// Runs `$body`, a future of `Result<T, Failed>`, in a transaction called `$tx`, which is rolled back where the result
/// is an error. A macro, because no closure type lets the future borrow both the transaction and the caller's
/// variables.
macro_rules! transact {
    ($store:expr, $tx:ident => $body:expr) => {{
        let mut attempts = 0;
        loop {
            attempts += 1;
            let mut client = $crate::postgres::transact::InUse::new($store.client().await?);
            let attempt = async {
                let $tx = client.transaction().await?;
                let answer = $body.await?;
                $tx.commit().await?;
                Ok::<_, $crate::engine::Failed>(answer)
            };
            match tokio::time::timeout($crate::postgres::transact::TIMEOUT, attempt).await {
                Ok(outcome) => {
                    client.finished();
                    match outcome {
                        Err($crate::engine::Failed::Retry(_))
                            if attempts < $crate::postgres::transact::MAX_ATTEMPTS => {}
                        outcome => break outcome,
                    }
                }
                Err(_) => break Err($crate::engine::Failed::Error($crate::postgres::error::unavailable())),
            }
        }
    }};
}
pub(super) use transact;
