//! Authentication: finds the agent of a request's key.

use std::net::IpAddr;

use amb_core::{Code, OfficeError, Timestamp};
use amb_store::{Agent, AgentKey, KeyHash};
use axum::extract::FromRequestParts;
use axum::http::request::Parts;

use super::key::{is_key_shaped, key_in};
use super::problem::Problem;
use crate::app::App;

/// The address that a request is charged to.
#[derive(Debug, Clone, Copy)]
pub(crate) struct ClientAddress(pub(crate) IpAddr);

impl<S: Sync> FromRequestParts<S> for ClientAddress {
    type Rejection = Problem;

    async fn from_request_parts(parts: &mut Parts, _: &S) -> Result<Self, Problem> {
        // The middleware inserts it before routing.
        parts.extensions.get::<Self>().copied().ok_or_else(|| OfficeError::internal("a request without a peer").into())
    }
}

/// The authenticated agent.
#[derive(Debug, Clone)]
pub(crate) struct Caller(pub(crate) Agent);

impl FromRequestParts<App> for Caller {
    type Rejection = Problem;

    async fn from_request_parts(parts: &mut Parts, app: &App) -> Result<Self, Problem> {
        let CallerWithKey(agent, _) = CallerWithKey::from_request_parts(parts, app).await?;
        Ok(Self(agent))
    }
}

/// The authenticated agent and the hash of the key it used, for handlers that depend on that key or end with it.
#[derive(Debug, Clone)]
pub(crate) struct CallerWithKey(pub(crate) Agent, pub(crate) KeyHash);

impl FromRequestParts<App> for CallerWithKey {
    type Rejection = Problem;

    async fn from_request_parts(parts: &mut Parts, app: &App) -> Result<Self, Problem> {
        let ClientAddress(address) = ClientAddress::from_request_parts(parts, app).await?;
        let Some(key) = key_in(&parts.headers) else {
            return Err(unauthorized("this needs a key: send it as X-API-Key").into());
        };
        let (agent, hash) = authenticate(app, key, address).await?;
        parts.extensions.insert(KeyInUse { agent: agent.key, hash });
        Ok(Self(agent, hash))
    }
}

/// The key that a request was authenticated with, for checking it again later.
#[derive(Debug, Clone, Copy)]
pub(super) struct KeyInUse {
    agent: AgentKey,
    hash: KeyHash,
}

impl KeyInUse {
    /// Refuses a request whose key has ended since it was authenticated.
    pub(super) async fn check(self, app: &App) -> Result<(), OfficeError> {
        match app.store.agent_by_key_hash(self.hash, Timestamp::now()).await? {
            Some(agent) if agent.key == self.agent => Ok(()),
            _ => Err(key_ended()),
        }
    }
}

/// Returns the agent of a key, and the key's hash. Charges wrong keys to the address they come from.
pub(crate) async fn authenticate(app: &App, key: &str, address: IpAddr) -> Result<(Agent, KeyHash), OfficeError> {
    if is_key_shaped(key) {
        let hash = KeyHash::of(key);
        if let Some(agent) = app.store.agent_by_key_hash(hash, Timestamp::now()).await? {
            app.limits.agent(agent.key)?;
            app.heartbeats.record(agent.key);
            return Ok((agent, hash));
        }
    }
    app.limits.wrong_key(address).await?;
    Err(unauthorized("this key is not known here; register, or ask the office's operator"))
}

/// The error of a request whose key ended while it waited.
pub(crate) fn key_ended() -> OfficeError {
    unauthorized("this key ended while the request waited; use the one that replaced it")
}

fn unauthorized(detail: &str) -> OfficeError {
    OfficeError::new(Code::Unauthorized, detail)
}
