//! `POST /agents/register`: a new agent and its key.

use std::net::IpAddr;

use amb_core::doc::{FieldError, RegisterBody, Registered, check_optional_text, check_text};
use amb_core::limits::{
    DEFAULT_MAX_CONCURRENT_TASKS, MAX_CAPABILITY_CHARS, MAX_DESCRIPTION_CHARS, MAX_OWNER_CONTACT_CHARS,
};
use amb_core::{AgentName, Card};
use amb_store::{Join, KeyHash, NewAgent};
use axum::extract::State;
use axum::http::StatusCode;
use subtle::ConstantTimeEq;

use super::household;
use crate::app::App;
use crate::config::Registration;
use crate::request::{ApiKey, Body, ClientAddress, Created, Problem};

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
    let new = parse(body, &key)?;
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

fn parse(body: RegisterBody, key: &ApiKey) -> Result<NewAgent, Problem> {
    let name = AgentName::parse_for_server(&body.name).map_err(|bad| Problem::field("body.name", bad.to_string()))?;
    check_optional_text("body.owner_contact", body.owner_contact.as_ref(), MAX_OWNER_CONTACT_CHARS)?;
    check_optional_text("body.description", body.description.as_ref(), MAX_DESCRIPTION_CHARS)?;
    check_capabilities(body.capabilities.as_deref())?;
    let card = Card {
        description: body.description.unwrap_or_default(),
        capabilities: body.capabilities.unwrap_or_default(),
        allow_from: body.allow_from.unwrap_or_default(),
        max_concurrent_tasks: body.max_concurrent_tasks.unwrap_or(DEFAULT_MAX_CONCURRENT_TASKS),
    };
    card.check_for_server()?;
    let join = body.household_token.map(|token| Join { token: KeyHash::of(&token), person: false });
    Ok(NewAgent {
        name,
        key_hash: KeyHash::of(key.reveal()),
        key_prefix: key.shown().to_owned(),
        owner_contact: body.owner_contact,
        card,
        join,
    })
}

pub(super) fn check_capabilities(words: Option<&[String]>) -> Result<(), FieldError> {
    let mut words = words.unwrap_or_default().iter();
    words.try_for_each(|word| check_text("body.capabilities", word, MAX_CAPABILITY_CHARS))
}
