//! `Idempotency-Key`: a repeated request returns the first result and changes nothing.

use amb_store::Agent;
use axum::extract::FromRequestParts;
use axum::http::request::Parts;
use serde::Serialize;
use utoipa::IntoParams;

use super::problem::Problem;

const IDEMPOTENCY_KEY: &str = "idempotency-key";

/// Extracts the idempotency key, if there is one. Extracting a `HeaderMap` instead would copy all headers.
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
    /// Binds the caller to the key, so that the store recognises a repeat: a request with the same verb and content.
    pub(crate) fn bind(self, caller: Agent, verb: &str, content: &impl Serialize) -> Result<Agent, Problem> {
        let once = self.0.map(|key| amb_store::Once::new(key, verb, content)).transpose()?;
        Ok(caller.under(once))
    }
}
