//! One request and its answer, tried again only where a repeat is safe.

use std::time::Duration;

use amb_core::{Code, OfficeError};
use reqwest::header::{HeaderValue, RETRY_AFTER};
use reqwest::{Method, RequestBuilder, Url};
use secrecy::{ExposeSecret, SecretString};
use serde::Serialize;
use serde::de::DeserializeOwned;

use crate::problem::problem;
use crate::url::ServerUrl;

/// How often a safe request is tried.
const TRIES: u32 = 4;
/// The first wait between two tries; it doubles.
const FIRST_WAIT: Duration = Duration::from_millis(200);
/// A server that asks for more patience than this is reported, not waited for.
const LONGEST_WAIT: Duration = Duration::from_secs(5);
const CONNECT_TIMEOUT: Duration = Duration::from_secs(10);
const ANSWER_TIMEOUT: Duration = Duration::from_secs(30);

/// Speaks HTTP to one server with one key.
#[derive(Debug, Clone)]
pub(crate) struct Http {
    client: reqwest::Client,
    server: ServerUrl,
    key: Option<SecretString>,
}

/// What to ask.
pub(crate) struct Call {
    method: Method,
    url: Url,
    body: Option<Vec<u8>>,
    idempotency_key: Option<String>,
}

impl Call {
    /// Makes a repeat of this call safe.
    pub(crate) fn once(mut self, key: String) -> Self {
        self.idempotency_key = Some(key);
        self
    }

    /// Adds a query parameter where there is a value.
    pub(crate) fn query(mut self, name: &str, value: Option<impl ToString>) -> Self {
        if let Some(value) = value {
            self.url.query_pairs_mut().append_pair(name, &value.to_string());
        }
        self
    }

    fn is_safe_to_repeat(&self) -> bool {
        self.method == Method::GET || self.idempotency_key.is_some()
    }
}

impl Http {
    pub(crate) fn new(server: ServerUrl, key: Option<SecretString>) -> Result<Self, OfficeError> {
        crate::use_ring();
        let client = reqwest::Client::builder()
            .connect_timeout(CONNECT_TIMEOUT)
            .user_agent(concat!("amb/", env!("CARGO_PKG_VERSION")))
            .build()
            .map_err(OfficeError::internal)?;
        Ok(Self { client, server, key })
    }

    pub(crate) fn server(&self) -> &ServerUrl {
        &self.server
    }

    pub(crate) fn key(&self) -> Option<&SecretString> {
        self.key.as_ref()
    }

    pub(crate) fn get(&self, path: &[&str]) -> Call {
        let url = self.server.join(path);
        Call { method: Method::GET, url, body: None, idempotency_key: None }
    }

    pub(crate) fn with_body(&self, method: Method, path: &[&str], body: &impl Serialize) -> Result<Call, OfficeError> {
        let body = serde_json::to_vec(body).map_err(OfficeError::internal)?;
        Ok(Call { method, body: Some(body), ..self.get(path) })
    }

    pub(crate) fn post(&self, path: &[&str], body: &impl Serialize) -> Result<Call, OfficeError> {
        self.with_body(Method::POST, path, body)
    }

    /// Asks and understands the answer.
    pub(crate) async fn ask<T: DeserializeOwned>(&self, call: Call) -> Result<T, OfficeError> {
        let body = self.answer(call).await?;
        serde_json::from_slice(&body).map_err(|error| {
            OfficeError::new(
                Code::Internal,
                "the server's answer makes no sense to this client; are both of one version?",
            )
            .caused_by(error)
        })
    }

    /// Asks where the answer is only that it was done.
    pub(crate) async fn tell(&self, call: Call) -> Result<(), OfficeError> {
        self.answer(call).await.map(drop)
    }

    async fn answer(&self, call: Call) -> Result<Vec<u8>, OfficeError> {
        let mut wait = FIRST_WAIT;
        for attempt in 1.. {
            let error = match self.attempt(&call).await {
                Ok(body) => return Ok(body),
                Err(error) => error,
            };
            let passing = matches!(error.code(), Code::Unavailable | Code::TooManyRequests);
            let pause = error.wait().unwrap_or(wait).max(wait);
            if !passing || !call.is_safe_to_repeat() || attempt >= TRIES || pause > LONGEST_WAIT {
                return Err(error);
            }
            tracing::debug!(%error, attempt, "trying again");
            tokio::time::sleep(pause).await;
            wait *= 2;
        }
        unreachable!("the loop ends by returning")
    }

    async fn attempt(&self, call: &Call) -> Result<Vec<u8>, OfficeError> {
        let answer = self.request(call)?.send().await.map_err(|error| self.out_of_reach(error))?;
        let status = answer.status();
        let retry_after = answer.headers().get(RETRY_AFTER).and_then(seconds);
        let body = answer.bytes().await.map_err(|error| self.out_of_reach(error))?;
        match status.is_success() {
            true => Ok(body.into()),
            false => Err(problem(status, retry_after, &body)),
        }
    }

    fn request(&self, call: &Call) -> Result<RequestBuilder, OfficeError> {
        let mut request = self.client.request(call.method.clone(), call.url.clone()).timeout(ANSWER_TIMEOUT);
        if let Some(key) = &self.key {
            let mut value = HeaderValue::from_str(key.expose_secret())
                .map_err(|_| OfficeError::new(Code::Unauthorized, "the API key holds characters that no key has"))?;
            value.set_sensitive(true);
            request = request.header("x-api-key", value);
        }
        if let Some(key) = &call.idempotency_key {
            request = request.header("idempotency-key", key);
        }
        if let Some(body) = &call.body {
            request = request.header("content-type", "application/json").body(body.clone());
        }
        Ok(request)
    }

    fn out_of_reach(&self, error: reqwest::Error) -> OfficeError {
        // The address of a request can hold what a person typed; the server's own is enough to act on.
        let detail = match error.is_timeout() {
            true => format!("{} did not answer in time", self.server),
            false => format!("cannot reach {}; is the server running? (`amb serve`)", self.server),
        };
        OfficeError::unavailable(detail).caused_by(error.without_url())
    }
}

fn seconds(header: &HeaderValue) -> Option<Duration> {
    header.to_str().ok()?.trim().parse().ok().map(Duration::from_secs)
}
