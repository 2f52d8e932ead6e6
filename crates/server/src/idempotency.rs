//! `Idempotency-Key`: a request that creates something does it once, however often it is sent.

use amb_store::Agent;
use axum::extract::FromRequestParts;
use axum::http::request::Parts;
use serde::Serialize;

use crate::problem::Problem;

/// The header under which a repeat answers the first result.
const IDEMPOTENCY_KEY: &str = "idempotency-key";

/// The key of a request, if there is one. Not by way of all headers: those would be copied.
pub(crate) struct IdempotencyKey(pub(crate) Option<String>);

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
    /// The caller of a verb, under the key of its request. Requests are the same where they ask the same of the same verb.
    pub(crate) fn of(self, caller: Agent, verb: &str, asked: &impl Serialize) -> Result<Agent, Problem> {
        let once = self.0.map(|key| amb_store::Once::new(key, verb, asked)).transpose()?;
        Ok(caller.under(once))
    }
}
