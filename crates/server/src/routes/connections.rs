//! `GET /connections`, `GET /connections/pending`, and `POST` to reject, revoke, block and unblock.

use amb_core::Timestamp;
use amb_core::doc::{Connection, ConnectionChange, Connections, PeerBody, Pending};
use axum::extract::State;

use crate::app::App;
use crate::request::{Body, Caller, OkJson, Problem, fit_page};

/// All connections of the caller, with their state
#[utoipa::path(get, path = "/connections", tag = "connections",
    responses((status = 200, description = "The current state with each agent", body = Connections)))]
pub(crate) async fn connections(
    State(app): State<App>,
    Caller(caller): Caller,
) -> Result<OkJson<Connections>, Problem> {
    let (connections, truncated) = fit_page(app.store.connections(&caller).await?);
    Ok(OkJson(Connections { connections, truncated }))
}

/// Who waits for the caller's approval
#[utoipa::path(get, path = "/connections/pending", tag = "connections",
    responses((status = 200, description = "The requests", body = Pending)))]
pub(crate) async fn pending(State(app): State<App>, Caller(caller): Caller) -> Result<OkJson<Pending>, Problem> {
    let (pending_connections, truncated) = fit_page(app.store.pending_connections(&caller, Timestamp::now()).await?);
    Ok(OkJson(Pending { pending_connections, truncated }))
}

async fn change(
    app: &App,
    Caller(caller): &Caller,
    body: PeerBody,
    change: ConnectionChange,
) -> Result<OkJson<Connection>, Problem> {
    if body.agent_name == caller.name {
        return Err(Problem::field("body.agent_name", "name another agent"));
    }
    let changed = app.store.change_connection(caller, &body.agent_name, change, Timestamp::now()).await?;
    Ok(OkJson(app.publish(changed)))
}

macro_rules! change_route {
    ($name:ident, $path:literal, $change:ident, $title:literal, $done:literal) => {
        #[doc = $title]
        #[utoipa::path(post, path = $path, tag = "connections", request_body = PeerBody,
                                    responses(
                                        (status = 200, description = $done, body = Connection),
                                        (status = 404, description = "No such agent, or nothing of the kind with it"),
                                        (status = 409, description = "The connection is not in a state for this"),
                                    ))]
        pub(crate) async fn $name(
            State(app): State<App>,
            caller: Caller,
            Body(body): Body<PeerBody>,
        ) -> Result<OkJson<Connection>, Problem> {
            change(&app, &caller, body, ConnectionChange::$change).await
        }
    };
}

change_route!(reject, "/connections/reject", Reject, "Refuses a request", "Rejected");
change_route!(revoke, "/connections/revoke", Revoke, "Ends a connection", "Revoked: nothing more gets through");
change_route!(block, "/connections/block", Block, "Blocks an agent", "Blocked");
change_route!(unblock, "/connections/unblock", Unblock, "Removes a block", "Unblocked; the two are not connected");
