//! `/groups` and `POST /messages/send-many`: one message, several recipients. A group is written to by its name, with
//! `POST /messages/send`.

use amb_core::doc::{Group, GroupBody, Groups, InviteBody, SendBody, SentMany};
use amb_core::{AgentName, Timestamp};
use axum::extract::State;
use utoipa::ToSchema;

use crate::app::App;
use crate::request::{Body, Caller, Created, IdempotencyKey, OkJson, Problem, Segment, fit_page, path_name};

/// Maximum number of recipients of one send.
const MAX_RECIPIENTS: usize = 100;

/// The groups that the caller is in or was invited to
#[utoipa::path(get, path = "/groups", tag = "groups",
    responses((status = 200, description = "The groups", body = Groups)))]
pub(crate) async fn groups(State(app): State<App>, Caller(caller): Caller) -> Result<OkJson<Groups>, Problem> {
    let (groups, truncated) = fit_page(app.store.groups(&caller).await?);
    Ok(OkJson(Groups { groups, truncated }))
}

/// Makes a group whose owner and first member is the caller
#[utoipa::path(post, path = "/groups", tag = "groups", request_body = GroupBody,
    params(IdempotencyKey),
    responses(
        (status = 201, description = "Made", body = Group),
        (status = 409, description = "The name is taken, or the caller is in 1,000 groups"),
    ))]
pub(crate) async fn create(
    State(app): State<App>,
    Caller(caller): Caller,
    once: IdempotencyKey,
    Body(body): Body<GroupBody>,
) -> Result<Created<Group>, Problem> {
    let name = AgentName::parse_for_server(&body.name).map_err(|bad| Problem::field("body.name", bad.to_string()))?;
    let caller = once.bind(caller, "groups", &name)?;
    Ok(Created(app.store.create_group(&caller, &name, Timestamp::now()).await?))
}

/// Invites an agent to a group of the caller's
#[utoipa::path(post, path = "/groups/{name}/invite", tag = "groups", request_body = InviteBody,
    params(("name" = AgentName, Path, description = "Which group"), IdempotencyKey),
    responses(
        (status = 200, description = "Invited; nobody gets a group's mail without having agreed", body = Group),
        (status = 403, description = "The group is another agent's, or the two are not connected"),
        (status = 404, description = "No such group or agent"),
        (status = 409, description = "The group has 100 members, the agent is in 1,000 groups, or the idempotency key was used for another request"),
        (status = 507, description = "`over_quota`: the caller, or the office, has as much mail stored as it may; trying again does not help"),
    ))]
pub(crate) async fn invite(
    State(app): State<App>,
    Caller(caller): Caller,
    Segment(name): Segment,
    once: IdempotencyKey,
    Body(body): Body<InviteBody>,
) -> Result<OkJson<Group>, Problem> {
    let caller = once.bind(caller, "groups/invite", &(&name, &body.agent_name))?;
    let invited = app.store.invite_to_group(&caller, &path_name(&name)?, &body.agent_name, Timestamp::now()).await?;
    Ok(OkJson(app.publish(invited)))
}

/// Agrees to an invitation
#[utoipa::path(post, path = "/groups/{name}/join", tag = "groups",
    params(("name" = AgentName, Path, description = "Which group")),
    responses(
        (status = 200, description = "In it", body = Group),
        (status = 403, description = "Not invited"),
        (status = 404, description = "No such group"),
        (status = 409, description = "In it already"),
    ))]
pub(crate) async fn join(
    State(app): State<App>,
    Caller(caller): Caller,
    Segment(name): Segment,
) -> Result<OkJson<Group>, Problem> {
    Ok(OkJson(app.store.join_group(&caller, &path_name(&name)?, true).await?))
}

/// Leaves a group, or declines an invitation
///
/// When its owner leaves, the group is the member's that registered first. Without a member it is over; its name stays taken.
#[utoipa::path(post, path = "/groups/{name}/leave", operation_id = "leave_group", tag = "groups",
    params(("name" = AgentName, Path, description = "Which group")),
    responses(
        (status = 200, description = "Out of it", body = Group),
        (status = 403, description = "Not in it"),
        (status = 404, description = "No such group"),
    ))]
pub(crate) async fn leave(
    State(app): State<App>,
    Caller(caller): Caller,
    Segment(name): Segment,
) -> Result<OkJson<Group>, Problem> {
    Ok(OkJson(app.store.join_group(&caller, &path_name(&name)?, false).await?))
}

/// Takes an agent out of a group of the caller's, or its invitation back
#[utoipa::path(post, path = "/groups/{name}/remove", tag = "groups", request_body = InviteBody,
    params(("name" = AgentName, Path, description = "Which group")),
    responses(
        (status = 200, description = "Out of it", body = Group),
        (status = 403, description = "The group is another agent's"),
        (status = 404, description = "No such group, or the agent is not in it"),
    ))]
pub(crate) async fn remove(
    State(app): State<App>,
    Caller(caller): Caller,
    Segment(name): Segment,
    Body(body): Body<InviteBody>,
) -> Result<OkJson<Group>, Problem> {
    Ok(OkJson(app.store.remove_from_group(&caller, &path_name(&name)?, &body.agent_name).await?))
}

/// Stands for `SendBody<Vec<AgentName>>` in the OpenAPI document, where `openapi` completes it.
#[derive(ToSchema)]
pub(crate) struct SendManyBody;

/// Sends one message to several agents, all or none
#[utoipa::path(post, path = "/messages/send-many", tag = "messages", request_body = SendManyBody,
    params(IdempotencyKey),
    responses(
        (status = 201, description = "Durable for all of them", body = SentMany),
        (status = 403, description = "No active connection with one of them; nothing was sent"),
        (status = 404, description = "No such message to answer or pass on"),
        (status = 409, description = "The idempotency key was used for another message, or ttl and trace refuse"),
        (status = 507, description = "`over_quota`: the caller, or the office, has as much mail stored as it may; nothing was sent, and trying again does not help"),
    ))]
pub(crate) async fn send_many(
    State(app): State<App>,
    Caller(caller): Caller,
    IdempotencyKey(key): IdempotencyKey,
    Body(body): Body<SendBody<Vec<AgentName>>>,
) -> Result<Created<SentMany>, Problem> {
    let to = &body.to;
    let Some(first) = to.first().cloned() else {
        return Err(Problem::field("body.to", "names nobody"));
    };
    if to.len() > MAX_RECIPIENTS {
        return Err(Problem::field("body.to", format!("has at most {MAX_RECIPIENTS} names")));
    }
    let mut names: Vec<(String, &AgentName)> = to.iter().map(|name| (name.folded(), name)).collect();
    names.sort_unstable();
    if let Some(pair) = names.windows(2).find(|pair| pair[0].0 == pair[1].0) {
        return Err(Problem::field("body.to", format!("names {} more than once", pair[0].1)));
    }
    let (to, draft) = body.draft(first, key)?;
    draft.check()?;
    draft.check_copies(to.len())?;
    let sent = app.publish(app.store.send_all(&caller, &to, draft, Timestamp::now()).await?);
    Ok(Created(SentMany { sent }))
}
