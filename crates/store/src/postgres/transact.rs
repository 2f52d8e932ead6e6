//! One transaction a verb, retried after a conflict with another, with a timeout.

use std::ops::{Deref, DerefMut};
use std::time::Duration;

use deadpool_postgres::Object;

/// How long a verb may take before the database counts as gone.
pub(super) const PATIENCE: Duration = Duration::from_secs(15);
/// How often a transaction is tried that conflicts with others.
pub(super) const TRIES: usize = 8;

/// A connection of the pool while a verb uses it. It goes back to the pool when the verb says that it has its answers; where
/// the verb was cancelled or timed out before that, statements may still run on it, so it is closed instead.
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

/// Runs `$body`, an expression that gives a future of `Result<T, Failed>`, in a transaction called `$tx`. Returns that result;
/// where it is an error, the transaction is rolled back.
macro_rules! transact {
    ($store:expr, $tx:ident => $body:expr) => {{
        let mut tries = 0;
        loop {
            tries += 1;
            let mut client = $crate::postgres::transact::InUse::new($store.client().await?);
            let attempt = async {
                let $tx = client.transaction().await?;
                let answer = $body.await?;
                $tx.commit().await?;
                Ok::<_, $crate::engine::Failed>(answer)
            };
            match tokio::time::timeout($crate::postgres::transact::PATIENCE, attempt).await {
                Ok(outcome) => {
                    client.finished();
                    match outcome {
                        Err($crate::engine::Failed::Retry(_)) if tries < $crate::postgres::transact::TRIES => {}
                        outcome => break outcome,
                    }
                }
                Err(_) => break Err($crate::engine::Failed::Error($crate::postgres::error::unavailable())),
            }
        }
    }};
}
pub(super) use transact;
