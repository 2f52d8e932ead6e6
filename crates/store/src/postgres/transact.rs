//! One transaction a verb, tried again when another was in its way, and never waited for without an end.

use std::time::Duration;

/// How long a verb may take before the database counts as gone.
pub(super) const PATIENCE: Duration = Duration::from_secs(15);
/// How often a transaction is tried that others keep getting in the way of.
pub(super) const TRIES: usize = 8;

/// Runs `$body`, an expression that gives a future of `Result<T, Trouble>`, in a transaction called `$tx`. Answers
/// `Result<T, Trouble>`; all but a commit leaves nothing behind.
macro_rules! transact {
    ($store:expr, $tx:ident => $body:expr) => {{
        let mut tries = 0;
        loop {
            tries += 1;
            let mut client = $store.client().await?;
            let attempt = async {
                let $tx = client.transaction().await?;
                let answer = $body.await?;
                $tx.commit().await?;
                Ok::<_, $crate::postgres::error::Trouble>(answer)
            };
            match tokio::time::timeout($crate::postgres::transact::PATIENCE, attempt).await {
                Ok(Err(trouble)) if trouble.is_passing() && tries < $crate::postgres::transact::TRIES => {}
                Ok(outcome) => break outcome,
                Err(_) => {
                    // What it was asked may still be under way on it: nobody else shall get this connection.
                    drop(deadpool_postgres::Object::take(client));
                    break Err($crate::postgres::error::Trouble::Store($crate::postgres::error::unavailable()));
                }
            }
        }
    }};
}
pub(super) use transact;
