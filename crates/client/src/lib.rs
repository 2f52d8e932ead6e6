//! The network office as an agent sees it.
//!
//! [`Client`] implements [`amb_core::Mailbox`] over HTTP, with retries only if a repeat is safe, and follows the agent's
//! log over a WebSocket that reconnects with backoff and resumes from its cursor.
//!
//! ```no_run
//! # async fn run() -> Result<(), amb_core::OfficeError> {
//! use amb_client::{Client, ServerUrl};
//! use amb_core::doc::RegisterBody;
//! use amb_core::{Draft, Mailbox};
//!
//! let server: ServerUrl = "127.0.0.1:8000".parse()?;
//! let registered = amb_client::register(&server, &RegisterBody::new(&"ann".parse()?, Default::default())).await?;
//! let ann = Client::open(server, registered.api_key).await?;
//! ann.send(Draft::text("ben".parse()?, "Plan", "shall we start?")).await?;
//! # Ok(()) }
//! ```

#![forbid(unsafe_code)]

mod dashboard;
mod health;
mod household;
mod http;
mod mailbox;
mod pages;
mod problem;
mod registration;
mod socket;
mod url;

pub use health::{ServerHealth, health};
pub use mailbox::Client;
pub use registration::{RegisteredAgent, claim_person, household_token, register};
pub use secrecy::{ExposeSecret, SecretString};
pub use socket::EventFollower;
pub use url::ServerUrl;

/// Installs ring as the process's rustls provider, once. [`Client`] does so itself; call this before using reqwest or a
/// WebSocket library directly.
pub fn use_ring() {
    // An error means that a provider is installed already.
    let _ = rustls::crypto::ring::default_provider().install_default();
}
