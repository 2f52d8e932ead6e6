//! Retries of requests to a busy service.

use std::time::Duration;

use amb_core::{Backoff, Code, OfficeError};
use reqwest::header::HeaderMap;

/// How often and how long a request is retried when the service is busy or fails.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RetryPolicy {
    /// Attempts, including the first.
    pub tries: u32,
    /// Wait before the second attempt if the service requests none; doubles with each attempt.
    pub first_wait: Duration,
    /// Longest total wait for one response.
    pub total_wait: Duration,
}

impl Default for RetryPolicy {
    fn default() -> Self {
        Self { tries: 5, first_wait: Duration::from_millis(500), total_wait: Duration::from_secs(60) }
    }
}

/// Retry state of one request.
#[derive(Debug)]
pub(super) struct Retries {
    policy: RetryPolicy,
    backoff: Backoff,
    tries: u32,
    waited: Duration,
}

impl Retries {
    pub(super) fn new(policy: RetryPolicy) -> Self {
        let backoff = Backoff::new(policy.first_wait, policy.total_wait);
        Self { policy, backoff, tries: 1, waited: Duration::ZERO }
    }

    /// Waits before the next attempt. If the policy allows none, returns the error, with the wait if that is a rate
    /// limit.
    pub(super) async fn wait(&mut self, requested: Option<Duration>, error: OfficeError) -> Result<(), OfficeError> {
        let wait = requested.unwrap_or_else(|| self.backoff.pause());
        if self.tries >= self.policy.tries || self.waited.saturating_add(wait) > self.policy.total_wait {
            return Err(if error.code() == Code::TooManyRequests { error.retry_after(wait) } else { error });
        }
        self.tries += 1;
        self.waited += wait;
        tokio::time::sleep(wait).await;
        Ok(())
    }
}

pub(super) fn rate_limited() -> OfficeError {
    OfficeError::new(Code::TooManyRequests, "Feishu limits how often it is asked; try again later")
}

/// Returns the wait that the service requests: the longer of its own header and the standard one, in seconds.
pub(super) fn requested_wait(headers: &HeaderMap) -> Option<Duration> {
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
    fn the_longer_of_two_waits_counts_and_invalid_ones_do_not() {
        let mut headers = HeaderMap::new();
        assert_eq!(requested_wait(&headers), None);
        headers.insert("x-ogw-ratelimit-reset", "3".parse().unwrap());
        headers.insert("retry-after", "1".parse().unwrap());
        assert_eq!(requested_wait(&headers), Some(Duration::from_secs(3)));
        headers.insert("x-ogw-ratelimit-reset", "-1".parse().unwrap());
        headers.insert("retry-after", "Sun, 15 Nov 2026 00:00:00 GMT".parse().unwrap());
        assert_eq!(requested_wait(&headers), None);
    }

    #[tokio::test]
    async fn a_wait_beyond_the_policy_is_an_error_with_retry_after() {
        let mut retries = Retries::new(RetryPolicy::default());
        let error = retries.wait(Some(Duration::from_secs(3_600)), rate_limited()).await.unwrap_err();
        assert_eq!((error.code(), error.wait()), (Code::TooManyRequests, Some(Duration::from_secs(3_600))));
    }
}
