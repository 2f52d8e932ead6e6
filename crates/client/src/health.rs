//! The health of a server.

use std::time::{Duration, Instant};

use amb_core::doc::Health;
use amb_core::{Code, OfficeError, Timestamp};
use reqwest::header::{DATE, HeaderMap};

use crate::http::Http;
use crate::problem::problem;
use crate::url::ServerUrl;

/// Timeout of the health check.
const TIMEOUT: Duration = Duration::from_secs(5);

/// The health of a server.
#[derive(Debug, Clone)]
pub struct ServerHealth {
    /// Its version.
    pub version: Option<String>,
    /// Why it accepts no mail, if it does not.
    pub problem: Option<String>,
    /// The server's clock, to the second.
    pub clock: Option<Timestamp>,
    /// The duration of the request.
    pub took: Duration,
}

/// Checks the health of a server; needs no key. An error means that it cannot be reached, or that it is no office.
pub async fn health(server: &ServerUrl) -> Result<ServerHealth, OfficeError> {
    let http = Http::new(server.clone(), None)?.with_timeout(TIMEOUT);
    let started = Instant::now();
    let response = http.send_once(&http.get(&["health"]), TIMEOUT).await?;
    let (status, clock) = (response.status(), clock(response.headers()));
    let body = response.bytes().await.unwrap_or_default();
    let took = started.elapsed();
    if let Ok(Health { status, version, .. }) = serde_json::from_slice(&body)
        && status == "ok"
    {
        return Ok(ServerHealth { version: Some(version), problem: None, clock, took });
    }
    let error = problem(status, None, &body);
    if error.code() == Code::Unavailable {
        return Ok(ServerHealth { version: None, problem: Some(error.detail().to_owned()), clock, took });
    }
    let detail = format!("what listens at {server} is no office (it answered {status}); is the address right?");
    Err(OfficeError::new(Code::Unavailable, detail))
}

fn clock(headers: &HeaderMap) -> Option<Timestamp> {
    let text = headers.get(DATE)?.to_str().ok()?;
    jiff::fmt::rfc2822::DateTimeParser::new().parse_timestamp(text).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_date_header_is_parsed() {
        let mut headers = HeaderMap::new();
        headers.insert(DATE, "Wed, 18 Nov 2026 00:28:37 GMT".parse().unwrap());
        assert_eq!(clock(&headers), Some("2026-11-18T00:28:37Z".parse().unwrap()));
        assert_eq!(clock(&HeaderMap::new()), None);
    }
}
