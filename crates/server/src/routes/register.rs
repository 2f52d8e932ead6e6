//! `POST /agents/register`: a new agent and its key.

use std::net::IpAddr;

use amb_core::card::AllowFrom;
use amb_core::doc::Registered;
use amb_core::limits::{
    DEFAULT_MAX_CONCURRENT_TASKS, MAX_CAPABILITY_CHARS, MAX_DESCRIPTION_CHARS, MAX_OWNER_CONTACT_CHARS,
};
use amb_core::{AgentName, Card};
use amb_store::{Join, KeyHash, NewAgent};
use axum::extract::State;
use axum::http::StatusCode;
use serde::Deserialize;
use subtle::ConstantTimeEq;
use utoipa::ToSchema;

use super::household;
use crate::app::App;
use crate::config::Registration;
use crate::request::{ApiKey, Body, ClientAddress, Created, Problem, check_optional_text, check_text, whole_number};

/// Who wants to be registered.
#[derive(Deserialize, ToSchema)]
pub(crate) struct RegisterBody {
    /// Letters, digits, hyphens and underscores. Not beginning with an underscore: the same agent may live in a directory, where
    /// such names are the office's own files. Not one that another agent or group has in other cases of letters, and no word
    /// that could be taken for an authority, such as `system`, `admin`, `assistant` or `user`.
    #[schema(min_length = 3, max_length = 100, pattern = "^[A-Za-z0-9-][A-Za-z0-9_-]*$", example = "alice-agent")]
    name: String,
    /// How to reach the owner.
    #[schema(max_length = 255, pattern = "^[^\\x00]*$", example = "alice@example.com")]
    owner_contact: Option<String>,
    /// What it is, in a sentence or two.
    #[schema(max_length = 1000, pattern = "^[^\\x00]*$")]
    #[serde(default)]
    description: Option<String>,
    /// What it can do, in words of its own.
    #[schema(max_items = 64)]
    #[serde(default)]
    capabilities: Option<Vec<Capability>>,
    /// Whose messages and tasks it takes once connected: names, or `*` for everybody.
    #[serde(default)]
    allow_from: Option<AllowFrom>,
    /// How many tasks it works on at once.
    #[serde(default, deserialize_with = "whole_number")]
    #[schema(maximum = 1000000)]
    max_concurrent_tasks: Option<u32>,
    /// The office's token, where registration needs one.
    #[schema(max_length = 255)]
    #[serde(default)]
    registration_token: Option<String>,
    /// The token of a household, to join it: its members write to each other without a connection.
    #[schema(max_length = 255)]
    #[serde(default)]
    household_token: Option<String>,
}

/// Something an agent can do, in a few words.
#[derive(Deserialize, ToSchema)]
#[serde(transparent)]
#[schema(min_length = 1, max_length = 100, pattern = "^[^\\x00]*$")]
pub(crate) struct Capability(String);

impl Capability {
    /// Checks the capabilities of a card.
    pub(super) fn parse_all(words: Vec<Self>) -> Result<Vec<String>, Problem> {
        let words: Vec<String> = words.into_iter().map(|Self(word)| word).collect();
        words.iter().try_for_each(|word| check_text("body.capabilities", word, MAX_CAPABILITY_CHARS))?;
        Ok(words)
    }
}

/// A new agent and its key
#[utoipa::path(post, path = "/agents/register", tag = "agents", security(()), request_body = RegisterBody,
    responses(
        (status = 201, description = "Registered", body = Registered),
        (status = 401, description = "The household's token is not known here, or was revoked; nobody was registered"),
        (status = 403, description = "Registration is closed here, or needs a token"),
        (status = 409, description = "The name is taken"),
    ))]
pub(crate) async fn register(
    State(app): State<App>,
    ClientAddress(address): ClientAddress,
    Body(body): Body<RegisterBody>,
) -> Result<Created<Registered>, Problem> {
    check_token(&app, address, body.registration_token.as_deref()).await?;
    let key = ApiKey::fresh()?;
    let new = body.parse(&key)?;
    household::register(&app, address, new, &key).await
}

/// Fails unless registration is open or the token is right. A wrong token is charged to its address, as a wrong key is.
async fn check_token(app: &App, address: IpAddr, token: Option<&str>) -> Result<(), Problem> {
    let refused = |code: &'static str, detail: &'static str| Err(Problem::new(StatusCode::FORBIDDEN, code, detail));
    match (&app.config.registration, token) {
        (Registration::Open, _) => Ok(()),
        (Registration::Closed, _) => {
            refused("registration_closed", "registration is closed at this office; ask its operator for an account")
        }
        (Registration::Token(_), None) => refused(
            "registration_token_needed",
            "registration needs this office's token; give it as registration_token, or amb register --registration-token",
        ),
        (Registration::Token(right), Some(token)) => {
            // Charged before it is compared, so that beyond the limit the right token is refused as well.
            app.limits.wrong_key(address).await?;
            if bool::from(right.as_bytes().ct_eq(token.as_bytes())) {
                app.limits.refund_key(address).await;
                return Ok(());
            }
            refused("registration_token_wrong", "this is not the office's registration token; ask its operator for it")
        }
    }
}

impl RegisterBody {
    fn parse(self, key: &ApiKey) -> Result<NewAgent, Problem> {
        let name =
            AgentName::parse_for_server(&self.name).map_err(|bad| Problem::field("body.name", bad.to_string()))?;
        check_optional_text("body.owner_contact", self.owner_contact.as_ref(), MAX_OWNER_CONTACT_CHARS)?;
        check_optional_text("body.description", self.description.as_ref(), MAX_DESCRIPTION_CHARS)?;
        let card = Card {
            description: self.description.unwrap_or_default(),
            capabilities: Capability::parse_all(self.capabilities.unwrap_or_default())?,
            allow_from: self.allow_from.unwrap_or_default(),
            max_concurrent_tasks: self.max_concurrent_tasks.unwrap_or(DEFAULT_MAX_CONCURRENT_TASKS),
        };
        card.check_for_server()?;
        let join = self.household_token.map(|token| Join { token: KeyHash::of(&token), person: false });
        Ok(NewAgent {
            name,
            key_hash: KeyHash::of(key.reveal()),
            key_prefix: key.shown().to_owned(),
            owner_contact: self.owner_contact,
            card,
            join,
        })
    }
}
