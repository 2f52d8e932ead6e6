//! `Idempotency-Key`: a request that creates something does it once, however often it is sent.

use amb_store::Agent;
use axum::extract::FromRequestParts;
use axum::http::request::Parts;
use serde::Serialize;
use utoipa::IntoParams;

use crate::problem::Problem;

/// The header under which a repeat answers the first result.
const IDEMPOTENCY_KEY: &str = "idempotency-key";

/// The key of a request, if there is one. Read from the request's parts, since extracting a `HeaderMap` copies all headers.
#[derive(IntoParams)]
#[into_params(parameter_in = Header, names("Idempotency-Key"))]
pub(crate) struct IdempotencyKey(
    /// A repeat with the same key and body answers the first result and changes nothing
    #[param(max_length = 255, pattern = "^[!-~]+$")]
    pub(crate) Option<String>,
);

impl<S: Sync> FromRequestParts<S> for IdempotencyKey {
    type Rejection = Problem;

    async fn from_request_parts(parts: &mut Parts, _: &S) -> Result<Self, Problem> {
        let Some(value) = parts.headers.get(IDEMPOTENCY_KEY) else { return Ok(Self(None)) };
        match value.to_str() {
            Ok(text) => Ok(Self(Some(text.to_owned()))),
            Err(_) => Err(Problem::field("header.Idempotency-Key", "must be printable ASCII")),
        }
    }
}

impl IdempotencyKey {
    /// Returns the caller bound to the key of its request. Two requests are the same if verb and content are.
    pub(crate) fn of(self, caller: Agent, verb: &str, asked: &impl Serialize) -> Result<Agent, Problem> {
        let once = self.0.map(|key| amb_store::Once::new(key, verb, asked)).transpose()?;
        Ok(caller.under(once))
    }
}
