//! How long to wait for a busy service.

use std::time::Duration;

use amb_core::{Backoff, Code, OfficeError};
use reqwest::header::HeaderMap;

/// How often and how long to try again when the service says it is busy, or fails.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Patience {
    /// Requests made for one response, the first included.
    pub tries: u32,
    /// The wait before the second try where the service names none; it doubles from try to try.
    pub first_wait: Duration,
    /// The longest wait for one response, all tries together.
    pub total_wait: Duration,
}

impl Default for Patience {
    fn default() -> Self {
        Self { tries: 5, first_wait: Duration::from_millis(500), total_wait: Duration::from_secs(60) }
    }
}

/// What is left of the patience for one response.
#[derive(Debug)]
pub(super) struct Patient {
    patience: Patience,
    backoff: Backoff,
    tries: u32,
    waited: Duration,
}

impl Patient {
    pub(super) fn new(patience: Patience) -> Self {
        let backoff = Backoff::new(patience.first_wait, patience.total_wait);
        Self { patience, backoff, tries: 1, waited: Duration::ZERO }
    }

    /// Waits before the next try; an error if there is to be none.
    pub(super) async fn wait(&mut self, asked: Option<Duration>, why: Busy) -> Result<(), OfficeError> {
        let wait = asked.unwrap_or_else(|| self.backoff.pause());
        if self.tries >= self.patience.tries || self.waited.saturating_add(wait) > self.patience.total_wait {
            return Err(why.into_error(wait));
        }
        self.tries += 1;
        self.waited += wait;
        tokio::time::sleep(wait).await;
        Ok(())
    }
}

/// Why the service gave no result.
#[derive(Debug)]
pub(super) enum Busy {
    /// It counts requests and we made too many.
    Limited,
    /// It, or the way to it, failed.
    Failed(Box<dyn std::error::Error + Send + Sync>),
}

impl Busy {
    fn into_error(self, wait: Duration) -> OfficeError {
        match self {
            Busy::Limited => {
                OfficeError::new(Code::TooManyRequests, "Feishu limits how often it is asked; try again later")
                    .retry_after(wait)
            }
            Busy::Failed(cause) => {
                OfficeError::unavailable("Feishu cannot be reached or fails; try again later").caused_by(cause)
            }
        }
    }
}

/// The wait the service names: the longer of its own header and the standard one, in seconds.
pub(super) fn asked_wait(headers: &HeaderMap) -> Option<Duration> {
    ["x-ogw-ratelimit-reset", "retry-after"]
        .iter()
        .filter_map(|name| headers.get(*name)?.to_str().ok()?.trim().parse::<f64>().ok())
        .filter_map(|seconds| Duration::try_from_secs_f64(seconds).ok())
        .max()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_longer_of_two_waits_is_kept_and_nonsense_is_not() {
        let mut headers = HeaderMap::new();
        assert_eq!(asked_wait(&headers), None);
        headers.insert("x-ogw-ratelimit-reset", "3".parse().unwrap());
        headers.insert("retry-after", "1".parse().unwrap());
        assert_eq!(asked_wait(&headers), Some(Duration::from_secs(3)));
        headers.insert("x-ogw-ratelimit-reset", "-1".parse().unwrap());
        headers.insert("retry-after", "Sun, 15 Nov 2026 00:00:00 GMT".parse().unwrap());
        assert_eq!(asked_wait(&headers), None);
    }

    #[tokio::test]
    async fn a_wait_beyond_the_patience_is_an_error_that_says_when() {
        let mut patient = Patient::new(Patience::default());
        let error = patient.wait(Some(Duration::from_secs(3_600)), Busy::Limited).await.unwrap_err();
        assert_eq!((error.code(), error.wait()), (Code::TooManyRequests, Some(Duration::from_secs(3_600))));
    }
}
