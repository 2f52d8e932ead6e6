//! Caches an app's access token until shortly before it expires.

use std::fmt;
use std::time::{Duration, Instant};

use tokio::sync::Mutex;

/// How long before its expiry a token is replaced; at most half its lifetime.
const EARLY: Duration = Duration::from_secs(5 * 60);

/// A token and the time to refresh it.
struct CachedToken {
    value: String,
    refresh_at: Instant,
}

/// The cached token of one app.
#[derive(Default)]
pub(super) struct TokenCell(Mutex<Option<CachedToken>>);

impl fmt::Debug for TokenCell {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("TokenCell")
    }
}

impl TokenCell {
    /// Returns the cached token, or a new one from `fetch`, which returns it and its lifetime in seconds. Concurrent
    /// callers share one fetch.
    pub(super) async fn get<E>(&self, fetch: impl AsyncFnOnce() -> Result<(String, u64), E>) -> Result<String, E> {
        let mut held = self.0.lock().await;
        if let Some(token) = held.as_ref().filter(|token| Instant::now() < token.refresh_at) {
            return Ok(token.value.clone());
        }
        *held = None;
        let (value, seconds) = fetch().await?;
        let life = Duration::from_secs(seconds.min(24 * 60 * 60));
        let refresh_at = Instant::now() + (life - EARLY.min(life / 2));
        *held = Some(CachedToken { value: value.clone(), refresh_at });
        Ok(value)
    }

    /// Drops a token that was refused, unless it has been replaced already.
    pub(super) async fn invalidate(&self, value: &str) {
        let mut held = self.0.lock().await;
        if held.as_ref().is_some_and(|token| token.value == value) {
            *held = None;
        }
    }
}
