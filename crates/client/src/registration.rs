//! Registers a new agent at a server.

use amb_core::doc::{PersonBody, RegisterBody, Registered, TokenInfo};
use amb_core::{AgentName, OfficeError};
use secrecy::SecretString;

use crate::http::Http;
use crate::url::ServerUrl;

/// A new agent and its key, which the server shows once.
pub type RegisteredAgent = Registered<SecretString>;

/// Registers a new agent. A name that is taken is a conflict.
pub async fn register(server: &ServerUrl, body: &RegisterBody) -> Result<RegisteredAgent, OfficeError> {
    let http = Http::new(server.clone(), None)?;
    http.fetch(http.post(&["agents", "register"], body)?).await
}

/// Registers the person of the household that was founded with this token. A conflict if it has one, or if the name is
/// taken.
pub async fn claim_person(
    server: &ServerUrl,
    name: &AgentName,
    owner_token: &SecretString,
) -> Result<RegisteredAgent, OfficeError> {
    let http = Http::new(server.clone(), None)?;
    let call = http.post(&["household", "person"], &PersonBody { name: name.to_string() })?;
    http.fetch(call.with_household_token(owner_token.clone())).await
}

/// What a household's token gives; `unauthorized` where the server does not know it.
pub async fn household_token(server: &ServerUrl, token: &SecretString) -> Result<TokenInfo, OfficeError> {
    let http = Http::new(server.clone(), None)?;
    http.fetch(http.get(&["household", "token"]).with_household_token(token.clone())).await
}
