//! Authentication: finds the agent of a request's key.

use std::net::IpAddr;

use amb_core::{Code, OfficeError, Timestamp};
use amb_store::{Agent, KeyHash};
use axum::extract::FromRequestParts;
use axum::http::request::Parts;

use crate::app::App;
use crate::key::{is_key_shaped, key_in};
use crate::problem::Problem;

/// Where a request came from.
#[derive(Debug, Clone, Copy)]
pub(crate) struct ClientAddress(pub(crate) IpAddr);

impl<S: Sync> FromRequestParts<S> for ClientAddress {
    type Rejection = Problem;

    async fn from_request_parts(parts: &mut Parts, _: &S) -> Result<Self, Problem> {
        // Put there for every request before it is routed.
        parts.extensions.get::<Self>().copied().ok_or_else(|| OfficeError::internal("a request without a peer").into())
    }
}

/// The agent whose key came with the request.
#[derive(Debug, Clone)]
pub(crate) struct Caller(pub(crate) Agent);

impl FromRequestParts<App> for Caller {
    type Rejection = Problem;

    async fn from_request_parts(parts: &mut Parts, app: &App) -> Result<Self, Problem> {
        let CallerWithKey(agent, _) = CallerWithKey::from_request_parts(parts, app).await?;
        Ok(Self(agent))
    }
}

/// The caller and the key it used, for verbs that depend on that key or end with it.
#[derive(Debug, Clone)]
pub(crate) struct CallerWithKey(pub(crate) Agent, pub(crate) KeyHash);

impl FromRequestParts<App> for CallerWithKey {
    type Rejection = Problem;

    async fn from_request_parts(parts: &mut Parts, app: &App) -> Result<Self, Problem> {
        let ClientAddress(address) = ClientAddress::from_request_parts(parts, app).await?;
        let Some(key) = key_in(&parts.headers) else {
            return Err(unauthorized("this needs a key: send it as X-API-Key").into());
        };
        let caller = Self(who(app, key, address).await?, KeyHash::of(key));
        parts.extensions.insert(caller.clone());
        Ok(caller)
    }
}

impl CallerWithKey {
    /// Refuses a caller whose key has ended since it was authenticated.
    pub(crate) async fn check_still_valid(&self, app: &App) -> Result<(), OfficeError> {
        let Self(agent, key) = self;
        let found = app.store.agent_by_key_hash(*key, Timestamp::now()).await?;
        match found.is_some_and(|found| found.key == agent.key) {
            true => Ok(()),
            false => Err(key_ended()),
        }
    }
}

/// Returns the agent of a key. Wrong keys are charged to the address they come from.
pub(crate) async fn who(app: &App, key: &str, address: IpAddr) -> Result<Agent, OfficeError> {
    let found = match is_key_shaped(key) {
        true => app.store.agent_by_key_hash(KeyHash::of(key), Timestamp::now()).await?,
        false => None,
    };
    match found {
        Some(agent) => {
            app.limits.agent(agent.key)?;
            app.heartbeats.note(agent.key);
            Ok(agent)
        }
        None => {
            app.limits.wrong_key(&*app.store, address).await?;
            Err(unauthorized("this key is not known here; register, or ask the office's operator"))
        }
    }
}

/// The answer to a request that was waiting when its key ended.
pub(crate) fn key_ended() -> OfficeError {
    unauthorized("this key ended while the request waited; use the one that replaced it")
}

fn unauthorized(detail: &str) -> OfficeError {
    OfficeError::new(Code::Unauthorized, detail)
}
