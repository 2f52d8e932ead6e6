//! Whether a server is there, and how it is.

use std::time::{Duration, Instant};

use amb_core::{Code, OfficeError, Timestamp};
use reqwest::header::{DATE, HeaderMap};
use serde::Deserialize;

use crate::http::Http;
use crate::problem::problem;
use crate::url::ServerUrl;

/// An office that says nothing for this long is out of reach.
const PATIENCE: Duration = Duration::from_secs(5);

/// How a server is. Needs no key.
#[derive(Debug, Clone)]
pub struct ServerHealth {
    /// Its version.
    pub version: Option<String>,
    /// Why it takes no mail now, where it does not.
    pub problem: Option<String>,
    /// What time it is there, to the second.
    pub clock: Option<Timestamp>,
    /// How long the answer took.
    pub took: Duration,
}

#[derive(Deserialize)]
struct Answer {
    status: String,
    version: String,
}

/// Asks a server how it is. An error says that nothing is there, or something else than an office.
pub async fn health(server: &ServerUrl) -> Result<ServerHealth, OfficeError> {
    let http = Http::new(server.clone(), None)?;
    let began = Instant::now();
    let answer = http.look(&http.get(&["health"]), PATIENCE).await?;
    let (status, clock) = (answer.status(), clock(answer.headers()));
    let body = answer.bytes().await.unwrap_or_default();
    let took = began.elapsed();
    if let Ok(Answer { status: said, version }) = serde_json::from_slice(&body)
        && said == "ok"
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
    fn the_time_of_an_answer_is_read() {
        let mut headers = HeaderMap::new();
        headers.insert(DATE, "Wed, 18 Nov 2026 00:28:37 GMT".parse().unwrap());
        assert_eq!(clock(&headers), Some("2026-11-18T00:28:37Z".parse().unwrap()));
        assert_eq!(clock(&HeaderMap::new()), None);
    }
}
