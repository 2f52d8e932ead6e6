//! HTTP requests, retried only if a repeat is safe.

use std::time::{Duration, Instant};

use amb_core::id::fresh_uuid;
use amb_core::{Backoff, Code, OfficeError, Timestamp};
use reqwest::header::{HeaderValue, LOCATION, RETRY_AFTER};
use reqwest::{Method, RequestBuilder, Url};
use secrecy::{ExposeSecret, SecretString};
use serde::Serialize;
use serde::de::DeserializeOwned;

use crate::problem::problem;
use crate::url::ServerUrl;

/// Maximum number of attempts of a request that is safe to repeat.
const MAX_ATTEMPTS: u32 = 4;
/// The delay before the second attempt.
const FIRST_DELAY: Duration = Duration::from_millis(200);
/// Maximum delay between attempts. A longer `Retry-After` is returned as an error.
const MAX_DELAY: Duration = Duration::from_secs(5);
const CONNECT_TIMEOUT: Duration = Duration::from_secs(10);
/// Timeout of one call, all attempts together.
const CALL_TIMEOUT: Duration = Duration::from_secs(30);

/// An HTTP client for one server and one key.
#[derive(Debug, Clone)]
pub(crate) struct Http {
    client: reqwest::Client,
    server: ServerUrl,
    key: Option<SecretString>,
    timeout: Duration,
}

/// One request, ready to be sent.
pub(crate) struct ApiCall {
    method: Method,
    url: Url,
    body: Option<Vec<u8>>,
    idempotency_key: Option<String>,
    household_token: Option<SecretString>,
}

impl ApiCall {
    /// Authenticates with the owner's token of a household.
    pub(crate) fn with_household_token(mut self, token: SecretString) -> Self {
        self.household_token = Some(token);
        self
    }

    /// Makes the call safe to repeat, with a fresh idempotency key.
    pub(crate) fn with_fresh_key(self) -> Self {
        self.with_key(fresh_uuid(Timestamp::now()).to_string())
    }

    /// Makes the call safe to repeat, with this idempotency key.
    pub(crate) fn with_key(mut self, key: String) -> Self {
        self.idempotency_key = Some(key);
        self
    }

    /// Adds a query parameter if there is a value.
    pub(crate) fn query(mut self, name: &str, value: Option<impl ToString>) -> Self {
        if let Some(value) = value {
            self.url.query_pairs_mut().append_pair(name, &value.to_string());
        }
        self
    }

    fn changes_something(&self) -> bool {
        self.method != Method::GET
    }

    fn is_safe_to_repeat(&self) -> bool {
        self.method == Method::GET || self.idempotency_key.is_some()
    }
}

impl Http {
    pub(crate) fn new(server: ServerUrl, key: Option<SecretString>) -> Result<Self, OfficeError> {
        crate::use_ring();
        let mut client = reqwest::Client::builder();
        if server.is_loopback() {
            // A proxy would connect to its own loopback.
            client = client.no_proxy();
        }
        let client = client
            .connect_timeout(CONNECT_TIMEOUT)
            // The key is for this server alone, and reqwest would send our header to the redirect's host.
            .redirect(reqwest::redirect::Policy::none())
            .user_agent(concat!("amb/", env!("CARGO_PKG_VERSION")))
            .build()
            .map_err(OfficeError::internal)?;
        Ok(Self { client, server, key, timeout: CALL_TIMEOUT })
    }

    /// The same with another timeout, which its errors name.
    pub(crate) fn with_timeout(self, timeout: Duration) -> Self {
        Self { timeout, ..self }
    }

    pub(crate) fn server(&self) -> &ServerUrl {
        &self.server
    }

    pub(crate) fn key(&self) -> Option<&SecretString> {
        self.key.as_ref()
    }

    pub(crate) fn get(&self, path: &[&str]) -> ApiCall {
        let url = self.server.join(path);
        ApiCall { method: Method::GET, url, body: None, idempotency_key: None, household_token: None }
    }

    pub(crate) fn with(&self, method: Method, path: &[&str]) -> ApiCall {
        ApiCall { method, ..self.get(path) }
    }

    pub(crate) fn with_body(
        &self,
        method: Method,
        path: &[&str],
        body: &impl Serialize,
    ) -> Result<ApiCall, OfficeError> {
        let body = serde_json::to_vec(body).map_err(OfficeError::internal)?;
        Ok(ApiCall { method, body: Some(body), ..self.get(path) })
    }

    pub(crate) fn post(&self, path: &[&str], body: &impl Serialize) -> Result<ApiCall, OfficeError> {
        self.with_body(Method::POST, path, body)
    }

    /// Sends a call and parses the response.
    pub(crate) async fn fetch<T: DeserializeOwned>(&self, call: ApiCall) -> Result<T, OfficeError> {
        let body = self.send_with_retries(call).await?;
        serde_json::from_slice(&body).map_err(|error| {
            OfficeError::new(
                Code::Internal,
                "the server's answer makes no sense to this client; are both of one version?",
            )
            .caused_by(error)
        })
    }

    /// Sends a call and discards the body of the response.
    pub(crate) async fn execute(&self, call: ApiCall) -> Result<(), OfficeError> {
        self.send_with_retries(call).await.map(drop)
    }

    /// Sends a call once and returns the response, whatever its status.
    pub(crate) async fn send_once(&self, call: &ApiCall, timeout: Duration) -> Result<reqwest::Response, OfficeError> {
        self.request(call)?.timeout(timeout).send().await.map_err(|error| self.failed(call, error))
    }

    async fn send_with_retries(&self, call: ApiCall) -> Result<Vec<u8>, OfficeError> {
        let deadline = Instant::now() + self.timeout;
        let mut backoff = Backoff::new(FIRST_DELAY, MAX_DELAY);
        // An attempt whose response was lost may have been executed, whatever later attempts return.
        let mut may_be_done = false;
        for attempt in 1.. {
            let error = match self.attempt(&call, deadline).await {
                Ok(body) => return Ok(body),
                Err(error) => error,
            };
            may_be_done |= error.may_be_done();
            let delay = error.wait().unwrap_or_default().max(backoff.pause());
            let may_retry = error.is_transient() && call.is_safe_to_repeat() && attempt < MAX_ATTEMPTS;
            if !may_retry || delay > MAX_DELAY || Instant::now() + delay >= deadline {
                return Err(if may_be_done { error.perhaps_done() } else { error });
            }
            tracing::debug!(%error, attempt, ?delay, "request failed; retrying");
            tokio::time::sleep(delay).await;
        }
        unreachable!("the loop ends by returning")
    }

    async fn attempt(&self, call: &ApiCall, deadline: Instant) -> Result<Vec<u8>, OfficeError> {
        let response = self.send_once(call, deadline.saturating_duration_since(Instant::now())).await?;
        let status = response.status();
        if status.is_redirection() {
            return Err(self.redirected(response.headers().get(LOCATION)));
        }
        let retry_after = response.headers().get(RETRY_AFTER).and_then(seconds);
        let body = response.bytes().await.map_err(|error| self.failed(call, error))?;
        match status.is_success() {
            true => Ok(body.into()),
            false => {
                let error = problem(status, retry_after, &body);
                // The server, or a proxy in front of it, may have failed after executing it.
                let unsure = call.changes_something() && status.is_server_error();
                Err(if unsure { error.perhaps_done() } else { error })
            }
        }
    }

    fn request(&self, call: &ApiCall) -> Result<RequestBuilder, OfficeError> {
        let mut request = self.client.request(call.method.clone(), call.url.clone());
        for (header, secret) in [("x-api-key", &self.key), ("x-household-token", &call.household_token)] {
            let Some(secret) = secret else { continue };
            let mut value = HeaderValue::from_str(secret.expose_secret()).map_err(|_| {
                OfficeError::new(Code::Unauthorized, "the API key or token holds characters that none has")
            })?;
            value.set_sensitive(true);
            request = request.header(header, value);
        }
        if let Some(key) = &call.idempotency_key {
            request = request.header("idempotency-key", key);
        }
        if let Some(body) = &call.body {
            request = request.header("content-type", "application/json").body(body.clone());
        }
        Ok(request)
    }

    /// The error for a redirect. A person has to decide whether to trust its target.
    fn redirected(&self, location: Option<&HeaderValue>) -> OfficeError {
        let target = location.and_then(|value| value.to_str().ok()).map(|text| self.server.join(&[]).join(text));
        let detail = match target {
            Some(Ok(mut url)) => {
                url.set_query(None);
                // Cannot fail for a URL that has a host; one without a host has neither.
                let _ = url.set_username("").and_then(|()| url.set_password(None));
                format!(
                    "{} redirects to {url}; redirects are not followed: if you trust that address, name it",
                    self.server
                )
            }
            _ => format!("{} redirects; redirects are not followed: name the server's own address", self.server),
        };
        OfficeError::invalid(detail)
    }

    /// The error for a request without a complete response.
    fn failed(&self, call: &ApiCall, error: reqwest::Error) -> OfficeError {
        // Without a connection nothing was sent.
        let unsure = call.changes_something() && !error.is_connect();
        // Only the server's address: the URL of a request can contain user input.
        let mut detail = match error.is_timeout() && !error.is_connect() {
            true => format!("{} did not answer within {} seconds", self.server, self.timeout.as_secs()),
            false => format!("cannot reach {}; is the server running? (`amb serve`)", self.server),
        };
        if unsure {
            detail.push_str("; whether it was done is not known");
        }
        let error = OfficeError::unavailable(detail).caused_by(error.without_url());
        if unsure { error.perhaps_done() } else { error }
    }
}

fn seconds(header: &HeaderValue) -> Option<Duration> {
    header.to_str().ok()?.trim().parse().ok().map(Duration::from_secs)
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::sync::atomic::{AtomicUsize, Ordering};

    use serde_json::{Value, json};
    use tokio::io::{AsyncReadExt, AsyncWriteExt};
    use tokio::net::TcpListener;

    use super::*;

    /// A server that counts requests and answers each with this response, or not at all.
    async fn server(answer: &'static str) -> (Http, Arc<AtomicUsize>) {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("http://{}", listener.local_addr().unwrap()).parse().unwrap();
        let requests = Arc::new(AtomicUsize::new(0));
        let count = Arc::clone(&requests);
        tokio::spawn(async move {
            let mut open = Vec::new();
            while let Ok((mut stream, _)) = listener.accept().await {
                let read = stream.read(&mut [0; 4096]).await.unwrap();
                assert!(read > 0);
                count.fetch_add(1, Ordering::SeqCst);
                stream.write_all(answer.as_bytes()).await.unwrap();
                // Without a response the connection stays open.
                if answer.is_empty() {
                    open.push(stream);
                }
            }
        });
        (Http::new(url, None).unwrap(), requests)
    }

    #[tokio::test]
    async fn a_server_that_hangs_fails_the_call_after_its_timeout() {
        let (http, requests) = server("").await;
        let http = Http { timeout: Duration::from_millis(300), ..http };
        let error = http.fetch::<Value>(http.get(&["inbox"])).await.unwrap_err();
        assert_eq!(error.code(), Code::Unavailable);
        assert!(error.detail().contains("did not answer within"), "{error}");
        assert!(!error.may_be_done(), "a GET changes nothing");
        assert_eq!(requests.load(Ordering::SeqCst), 1, "the timeout is for all attempts together");
        let http = http.with_timeout(Duration::from_secs(1));
        let error = http.send_once(&http.get(&["health"]), Duration::from_secs(1)).await.unwrap_err();
        assert!(error.detail().contains("did not answer within 1 seconds"), "{error}");
    }

    #[tokio::test]
    async fn a_send_whose_response_is_lost_may_have_been_accepted() {
        let (http, _) = server("").await;
        let http = Http { timeout: Duration::from_millis(300), ..http };
        let call = http.post(&["messages", "send"], &json!({})).unwrap().with_key("key".into());
        let error = http.fetch::<Value>(call).await.unwrap_err();
        assert!(error.may_be_done() && error.detail().ends_with("whether it was done is not known"), "{error}");
        let (http, _) = server("HTTP/1.1 502 Bad Gateway\r\nContent-Length: 0\r\nConnection: close\r\n\r\n").await;
        let error = http.fetch::<Value>(http.post(&["messages", "ack"], &json!({})).unwrap()).await.unwrap_err();
        assert!(error.may_be_done(), "{error}");
    }

    #[tokio::test]
    async fn a_redirect_is_reported_and_not_followed() {
        let (other, redirected) = server("HTTP/1.1 200 OK\r\nContent-Length: 2\r\nConnection: close\r\n\r\n{}").await;
        let elsewhere = format!("{}/inbox?x=secret", other.server());
        let answer = format!(
            "HTTP/1.1 307 Temporary Redirect\r\nLocation: {elsewhere}\r\nContent-Length: 0\r\nConnection: close\r\n\r\n"
        );
        let (http, requests) = server(answer.leak()).await;
        let http = Http { key: Some("amb_key".to_owned().into()), ..http };
        for call in [http.get(&["inbox"]), http.post(&["messages", "send"], &json!({})).unwrap()] {
            let error = http.fetch::<Value>(call).await.unwrap_err();
            assert_eq!(error.code(), Code::Invalid);
            assert!(error.detail().contains(&format!("redirects to {}/inbox;", other.server())), "{error}");
        }
        assert_eq!((redirected.load(Ordering::SeqCst), requests.load(Ordering::SeqCst)), (0, 2));
    }

    #[tokio::test]
    async fn a_send_that_gets_503_is_retried_with_its_key() {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("http://{}", listener.local_addr().unwrap()).parse().unwrap();
        let serving = tokio::spawn(async move {
            let mut keys = Vec::new();
            for (status, body) in [("503 Service Unavailable", "{}"), ("201 Created", r#"{"sent":true}"#)] {
                let (mut stream, _) = listener.accept().await.unwrap();
                let (mut head, mut some) = (String::new(), [0; 4096]);
                while !head.contains("\r\n\r\n") {
                    let read = stream.read(&mut some).await.unwrap();
                    head.push_str(std::str::from_utf8(&some[..read]).unwrap());
                }
                keys.extend(head.lines().find_map(|line| line.strip_prefix("idempotency-key: ").map(str::to_owned)));
                let length = body.len();
                let answer =
                    format!("HTTP/1.1 {status}\r\nContent-Length: {length}\r\nConnection: close\r\n\r\n{body}");
                stream.write_all(answer.as_bytes()).await.unwrap();
            }
            keys
        });
        let http = Http::new(url, None).unwrap();
        let call = http.post(&["messages", "send"], &json!({})).unwrap().with_key("the key".into());
        assert_eq!(http.fetch::<Value>(call).await.unwrap(), json!({"sent": true}));
        assert_eq!(serving.await.unwrap(), ["the key", "the key"]);
    }

    #[tokio::test]
    async fn a_refused_connection_means_that_nothing_was_accepted() {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("http://{}", listener.local_addr().unwrap()).parse().unwrap();
        drop(listener);
        let http = Http::new(url, None).unwrap();
        let error = http.fetch::<Value>(http.post(&["messages", "send"], &json!({})).unwrap()).await.unwrap_err();
        assert!(!error.may_be_done() && error.detail().contains("amb serve"), "{error}");
    }
}
