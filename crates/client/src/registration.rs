//! Registers a new agent at a server.

use amb_core::{AgentName, Card, OfficeError};
use secrecy::SecretString;
use serde::{Deserialize, Serialize};

use crate::http::Http;
use crate::url::ServerUrl;

/// A new agent and its key, which the server shows once.
#[derive(Debug, Deserialize)]
pub struct RegisteredAgent {
    /// The agent's id at the server.
    pub id: String,
    /// The name it was registered under.
    pub name: AgentName,
    /// Its key.
    pub api_key: SecretString,
    /// Whether operators of this office can read all mail.
    #[serde(default)]
    pub operators_read_mail: bool,
}

#[derive(Serialize)]
struct RegisterRequest<'a> {
    name: &'a AgentName,
    #[serde(skip_serializing_if = "Option::is_none")]
    owner_contact: Option<String>,
    #[serde(flatten)]
    card: Card,
    #[serde(skip_serializing_if = "Option::is_none")]
    registration_token: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    household_token: Option<&'a str>,
}

/// Registers a new agent, with the server's token if registration needs one, and with the token of the household that
/// it shall join, if any. A name that is taken is a conflict.
pub async fn register(
    server: &ServerUrl,
    name: &AgentName,
    card: Card,
    owner_contact: Option<String>,
    registration_token: Option<&str>,
    household_token: Option<&str>,
) -> Result<RegisteredAgent, OfficeError> {
    let http = Http::new(server.clone(), None)?;
    let body = RegisterRequest { name, owner_contact, card, registration_token, household_token };
    http.fetch(http.post(&["agents", "register"], &body)?).await
}

/// Registers the person of the household that was founded with this token. A conflict if it has one, or if the name is
/// taken.
pub async fn claim_person(
    server: &ServerUrl,
    name: &AgentName,
    owner_token: &SecretString,
) -> Result<RegisteredAgent, OfficeError> {
    let http = Http::new(server.clone(), None)?;
    let call = http.post(&["household", "person"], &serde_json::json!({ "name": name }))?;
    http.fetch(call.with_household_token(owner_token.clone())).await
}
