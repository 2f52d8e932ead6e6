//! An HTTP client of a network office, with shorthands for frequent requests.

use std::future::Future;
use std::time::Duration;

use reqwest::header::HeaderMap;
use reqwest::{Client, Method, RequestBuilder, Response, StatusCode};
use serde_json::{Value, json};

/// Longer than any operation takes: a test that waits this long fails.
pub const PATIENCE: Duration = Duration::from_secs(120);

/// Awaits a future, with [`PATIENCE`] as the timeout.
#[track_caller]
pub fn soon<F: Future>(what: F) -> impl Future<Output = F::Output> {
    let place = std::panic::Location::caller();
    async move {
        match tokio::time::timeout(PATIENCE, what).await {
            Ok(output) => output,
            Err(_) => panic!("waited in vain at {place}"),
        }
    }
}

/// An HTTP client with connections of its own, and without a proxy.
pub fn client() -> Client {
    // Fails if one is installed already.
    let _ = rustls::crypto::ring::default_provider().install_default();
    Client::builder().no_proxy().timeout(PATIENCE).build().unwrap()
}

/// A registered agent.
#[derive(Debug, Clone)]
pub struct TestAgent {
    /// Its name.
    pub name: String,
    /// Its API key.
    pub key: String,
}

/// A response with its whole body: JSON, or else a text.
#[derive(Debug)]
pub struct TestAnswer {
    /// The status.
    pub status: StatusCode,
    /// The headers.
    pub headers: HeaderMap,
    /// The body.
    pub body: Value,
}

impl TestAnswer {
    /// Reads a response to its end.
    pub async fn read(response: Response) -> reqwest::Result<Self> {
        let (status, headers) = (response.status(), response.headers().clone());
        let text = response.text().await?;
        let body = serde_json::from_str(&text).unwrap_or(Value::String(text));
        Ok(Self { status, headers, body })
    }

    /// The body of an answer with this status.
    #[track_caller]
    pub fn expect(self, status: u16) -> Value {
        assert_eq!(self.status.as_u16(), status, "{}", self.body);
        self.body
    }

    /// Checks that this is a problem with this status and code.
    #[track_caller]
    pub fn problem(self, status: u16, code: &str) -> Value {
        assert_eq!((self.status.as_u16(), self.body["code"].as_str()), (status, Some(code)), "{}", self.body);
        assert_eq!(self.headers["content-type"], "application/problem+json");
        assert_eq!(self.body["status"], status);
        assert!(self.body["title"].is_string(), "{}", self.body);
        assert!(self.body["detail"].as_str().is_some_and(|detail| !detail.is_empty()), "{}", self.body);
        assert_eq!(self.body["type"], format!("urn:amb:problem:{code}"));
        self.body
    }
}

/// A network office at an address.
#[derive(Debug, Clone)]
pub struct HttpOffice {
    /// Host and port.
    pub host: String,
    /// The client of all requests.
    pub http: Client,
}

impl HttpOffice {
    /// With a client of its own.
    pub fn at(host: impl Into<String>) -> Self {
        Self { host: host.into(), http: client() }
    }

    /// The URL of a path.
    pub fn url(&self, path: &str) -> String {
        format!("http://{}{path}", self.host)
    }

    /// Sends a request.
    pub async fn request(&self, request: RequestBuilder) -> TestAnswer {
        soon(TestAnswer::read(soon(request.send()).await.unwrap())).await.unwrap()
    }

    /// Sends a request, with a key and a JSON body if they are given.
    pub async fn call(&self, method: Method, path: &str, key: Option<&str>, body: Option<&Value>) -> TestAnswer {
        let mut request = self.http.request(method, self.url(path));
        if let Some(key) = key {
            request = request.header("X-API-Key", key);
        }
        if let Some(body) = body {
            request = request.json(body);
        }
        self.request(request).await
    }

    /// `GET` as an agent.
    pub async fn get(&self, agent: &TestAgent, path: &str) -> TestAnswer {
        self.call(Method::GET, path, Some(&agent.key), None).await
    }

    /// `POST` as an agent.
    pub async fn post(&self, agent: &TestAgent, path: &str, body: Value) -> TestAnswer {
        self.call(Method::POST, path, Some(&agent.key), Some(&body)).await
    }

    /// Registers an agent.
    pub async fn register(&self, name: &str) -> TestAgent {
        let body = json!({"name": name, "owner_contact": format!("{name}@example.com")});
        let got = self.call(Method::POST, "/agents/register", None, Some(&body)).await.expect(201);
        let text = |field: &str| got[field].as_str().unwrap().to_owned();
        TestAgent { name: text("name"), key: text("api_key") }
    }

    /// Asks for a connection; returns the code.
    pub async fn ask(&self, from: &TestAgent, to: &TestAgent) -> String {
        let body = json!({"target_agent_name": to.name, "message": "hello"});
        let got = self.post(from, "/connections/request", body).await.expect(201);
        got["verification_code"].as_str().unwrap().to_owned()
    }

    /// Connects two agents.
    pub async fn connect(&self, from: &TestAgent, to: &TestAgent) {
        let code = self.ask(from, to).await;
        self.post(to, "/connections/approve", json!({"verification_code": code})).await.expect(200);
    }
}
