//! `/household`: one owner's agents and that person, who may write to each other without a connection.

use std::net::IpAddr;

use amb_core::doc::{
    Household, JoinBody, MachineBody, NewMachine, PersonBody, Registered, TokenInfo, check_optional_text,
};
use amb_core::limits::MAX_LABEL_CHARS;
use amb_core::{AgentName, Card, Code, OfficeError, Timestamp};
use amb_store::{Join, KeyHash, NewAgent, Written};
use axum::extract::State;
use axum::http::{HeaderMap, StatusCode};

use crate::app::App;
use crate::request::{
    ApiKey, Body, Caller, ClientAddress, Created, HouseholdToken, IdempotencyKey, OkJson, Problem, Segment, parse_id,
    path_name,
};

const HOUSEHOLD_TOKEN: &str = "x-household-token";
const DEFAULT_LABEL: &str = "machine";

/// The household that the caller is in
///
/// Its members, whether they are there, and the machines whose tokens they were registered with.
#[utoipa::path(get, path = "/household", tag = "household",
    responses(
        (status = 200, description = "The household", body = Household),
        (status = 404, description = "The caller is in no household"),
    ))]
pub(crate) async fn household(State(app): State<App>, Caller(caller): Caller) -> Result<OkJson<Household>, Problem> {
    Ok(OkJson(app.store.household(&caller, Timestamp::now()).await?))
}

/// What a household's token gives
///
/// For a machine that was given a token, before it stores it.
#[utoipa::path(get, path = "/household/token", operation_id = "household_token", tag = "household", security(()),
    params(("X-Household-Token" = String, Header, description = "The owner's token, or a machine's")),
    responses(
        (status = 200, description = "The token is valid", body = TokenInfo),
        (status = 401, description = "No token, or one that is not known here"),
        (status = 503, description = "The database does not answer; try again"),
    ))]
pub(crate) async fn token(
    State(app): State<App>,
    ClientAddress(address): ClientAddress,
    headers: HeaderMap,
) -> Result<OkJson<TokenInfo>, Problem> {
    let token = token_in(&headers, "this needs a household's token: send it as X-Household-Token")?;
    Ok(OkJson(or_charge(&app, address, app.store.household_token(token).await).await?))
}

/// The person of a household, and that one's key
///
/// Made once, by whoever has the token that the household was founded with. The office marks this account as a person's,
/// which no agent can be; no stranger finds it in the directory.
#[utoipa::path(post, path = "/household/person", tag = "household", request_body = PersonBody, security(()),
    params(("X-Household-Token" = String, Header, description = "The owner's token")),
    responses(
        (status = 201, description = "The person, and the key to speak with", body = Registered),
        (status = 401, description = "No token, or one that is not known here"),
        (status = 403, description = "A machine's token makes no person"),
        (status = 409, description = "The household has its person already, or the name is taken"),
    ))]
pub(crate) async fn person(
    State(app): State<App>,
    ClientAddress(address): ClientAddress,
    headers: HeaderMap,
    Body(body): Body<PersonBody>,
) -> Result<Created<Registered>, Problem> {
    let token = token_in(&headers, "this needs the owner's token of a household: send it as X-Household-Token")?;
    let name = AgentName::parse_for_person(&body.name).map_err(|bad| Problem::field("body.name", bad.to_string()))?;
    let key = ApiKey::fresh()?;
    let new = NewAgent {
        name,
        key_hash: KeyHash::of(key.reveal()),
        key_prefix: key.shown().to_owned(),
        owner_contact: None,
        card: Card::default(),
        join: Some(Join { token, person: true }),
    };
    register(&app, address, new, &key).await
}

/// The token that a request has; `unauthorized` with this detail if it has none.
fn token_in(headers: &HeaderMap, missing: &str) -> Result<KeyHash, OfficeError> {
    let token = headers.get(HOUSEHOLD_TOKEN).ok_or_else(|| OfficeError::new(Code::Unauthorized, missing))?;
    Ok(KeyHash::of(token.to_str().unwrap_or_default()))
}

/// Registers an agent, which joins a household if it has its token.
pub(super) async fn register(
    app: &App,
    address: IpAddr,
    new: NewAgent,
    key: &ApiKey,
) -> Result<Created<Registered>, Problem> {
    app.limits.register(address).await?;
    let agent = publish_or_charge(app, address, app.store.register_agent(new, Timestamp::now()).await).await?;
    let operators_read_mail = app.config.operators_read_mail;
    Ok(Created(Registered { id: agent.id, name: agent.name, api_key: key.reveal().to_owned(), operators_read_mail }))
}

/// Publishes the result of a verb that took a household's token, or charges a wrong token to its address.
async fn publish_or_charge<T>(
    app: &App,
    address: IpAddr,
    result: Result<Written<T>, OfficeError>,
) -> Result<T, Problem> {
    Ok(app.publish(or_charge(app, address, result).await?))
}

/// Charges a wrong token to its address.
async fn or_charge<T>(app: &App, address: IpAddr, result: Result<T, OfficeError>) -> Result<T, Problem> {
    if let Err(error) = &result
        && error.code() == Code::Unauthorized
    {
        app.limits.wrong_key(address).await?;
    }
    Ok(result?)
}

/// A token with which agents of another machine join the household
///
/// For the household's person. The token is shown once.
#[utoipa::path(post, path = "/household/machines", tag = "household", request_body = MachineBody,
    params(("Idempotency-Key" = Option<String>, Header, max_length = 255, pattern = "^[!-~]+$",
        description = "A repeat with the same key and body answers the same machine, with a new token that replaces the first")),
    responses(
        (status = 201, description = "The machine and its token", body = NewMachine),
        (status = 403, description = "The caller is not the person of a household"),
        (status = 409, description = "The household has 100 machines, or the idempotency key was used for another request"),
    ))]
pub(crate) async fn add_machine(
    State(app): State<App>,
    Caller(caller): Caller,
    once: IdempotencyKey,
    Body(body): Body<MachineBody>,
) -> Result<Created<NewMachine>, Problem> {
    check_optional_text("body.label", body.label.as_ref(), MAX_LABEL_CHARS)?;
    let caller = once.bind(caller, "household/machines", &body)?;
    let token = HouseholdToken::fresh()?;
    let label = body.label.as_deref().filter(|label| !label.trim().is_empty()).unwrap_or(DEFAULT_LABEL);
    let machine = app.store.add_machine(&caller, label, token.hash(), Timestamp::now()).await?;
    Ok(Created(NewMachine { id: machine.id, label: machine.label, token: token.reveal().to_owned() }))
}

/// Takes a machine's token back, and its agents out of the household
///
/// For the household's person. What the household alone allowed between them and others ends at once: mail, open tasks, shared
/// transcripts, groups.
#[utoipa::path(delete, path = "/household/machines/{id}", tag = "household",
    params(("id" = uuid::Uuid, Path, description = "Which machine")),
    responses(
        (status = 204, description = "Revoked"),
        (status = 403, description = "The caller is not the person of a household"),
        (status = 404, description = "The household has no such machine, or it was revoked before"),
        (status = 409, description = "It is the owner's token"),
    ))]
pub(crate) async fn revoke_machine(
    State(app): State<App>,
    Caller(caller): Caller,
    Segment(id): Segment,
) -> Result<StatusCode, Problem> {
    let id = parse_id("path.id", &id)?;
    app.publish(app.store.revoke_machine(&caller, id, Timestamp::now()).await?);
    Ok(StatusCode::NO_CONTENT)
}

/// Lets the caller join a household
///
/// As if it had been registered with the token. A caller that is in this household already stays in it.
#[utoipa::path(post, path = "/household/members", operation_id = "join_household", tag = "household",
    request_body = JoinBody,
    responses(
        (status = 204, description = "It is a member"),
        (status = 401, description = "The token is not known here, or was revoked"),
        (status = 409, description = "The caller is in another household, or this one is full"),
    ))]
pub(crate) async fn join(
    State(app): State<App>,
    ClientAddress(address): ClientAddress,
    Caller(caller): Caller,
    Body(body): Body<JoinBody>,
) -> Result<StatusCode, Problem> {
    // The person gets an event each time, so the limit is that of connection requests.
    app.limits.connect(caller.key).await?;
    let token = KeyHash::of(&body.household_token);
    publish_or_charge(&app, address, app.store.join_household(&caller, token, Timestamp::now()).await).await?;
    Ok(StatusCode::NO_CONTENT)
}

/// Takes an agent out of the household
///
/// The caller itself, unless it is paused; or any agent, where the caller is the household's person.
#[utoipa::path(delete, path = "/household/members/{name}", operation_id = "leave_household", tag = "household",
    params(("name" = AgentName, Path, description = "Who leaves")),
    responses(
        (status = 204, description = "It is no member any more"),
        (status = 403, description = "The caller is not the household's person"),
        (status = 404, description = "The caller is in no household, or this agent is not in it"),
        (status = 409, description = "It is the person, who stays, or the caller is paused"),
    ))]
pub(crate) async fn leave(
    State(app): State<App>,
    Caller(caller): Caller,
    Segment(name): Segment,
) -> Result<StatusCode, Problem> {
    let name = path_name(&name)?;
    app.publish(app.store.leave_household(&caller, &name, Timestamp::now()).await?);
    Ok(StatusCode::NO_CONTENT)
}
