//! One file an endpoint.

pub(crate) mod agents;
pub(crate) mod approve;
pub(crate) mod connect;
pub(crate) mod connections;
pub(crate) mod events;
pub(crate) mod export;
pub(crate) mod groups;
pub(crate) mod handle;
pub(crate) mod health;
pub(crate) mod history;
pub(crate) mod inbox;
pub(crate) mod me;
pub(crate) mod messages;
pub(crate) mod presence;
pub(crate) mod register;
pub(crate) mod rotate_key;
pub(crate) mod search;
pub(crate) mod send;
pub(crate) mod tasks;
pub(crate) mod transcripts;

use std::io;

use axum::Router;
use axum::http::{HeaderName, HeaderValue, Method, StatusCode, header};
use axum::response::{IntoResponse, Response};
use axum::routing::{get, post};
use tower_http::cors::{AllowOrigin, CorsLayer};

use crate::app::App;
use crate::problem::Problem;
use crate::{openapi, ws};

/// All routes of the office.
pub(crate) fn router(app: &App) -> io::Result<Router> {
    let document = openapi::document_response()?;
    let router = Router::new()
        .route("/agents/register", post(register::register))
        .route("/connections/request", post(connect::connect))
        .route("/connections/approve", post(approve::approve))
        .route("/inbox", get(inbox::inbox))
        .route("/sessions/{session_id}/history", get(history::history))
        .route("/messages/send", post(send::send))
        .route("/events", get(events::events))
        .route("/ws", get(ws::ws))
        .route("/agents", get(agents::agents))
        .route("/agents/me", get(me::me).patch(me::patch).delete(me::delete))
        .route("/agents/me/rotate-key", post(rotate_key::rotate_key))
        .route("/agents/me/heartbeat", post(presence::heartbeat))
        .route("/agents/me/leave", post(presence::leave))
        .route("/agents/{name}", get(agents::agent))
        .route("/connections", get(connections::connections))
        .route("/connections/pending", get(connections::pending))
        .route("/connections/reject", post(connections::reject))
        .route("/connections/revoke", post(connections::revoke))
        .route("/connections/block", post(connections::block))
        .route("/connections/unblock", post(connections::unblock))
        .route("/messages", get(messages::messages))
        .route("/messages/ack", post(handle::ack))
        .route("/messages/claim", post(handle::claim))
        .route("/messages/release", post(handle::release))
        .route("/messages/send-many", post(groups::send_many))
        .route("/messages/{message_id}", get(messages::message))
        .route("/tasks", get(tasks::tasks))
        .route("/tasks/{task_id}", get(tasks::task))
        .route("/tasks/{task_id}/chain", get(tasks::chain))
        .route("/tasks/{task_id}/state", post(tasks::set_state))
        .route("/transcripts/{key}", get(transcripts::lines).post(transcripts::append))
        .route("/transcripts/{key}/share", post(transcripts::share))
        .route("/search", get(search::search))
        .route("/export", get(export::export))
        .route("/groups", get(groups::groups).post(groups::create))
        .route("/groups/{name}/invite", post(groups::invite))
        .route("/groups/{name}/join", post(groups::join))
        .route("/groups/{name}/leave", post(groups::leave))
        .route("/health", get(health::health))
        .route("/health/live", get(health::live))
        .route("/health/ready", get(health::ready))
        .route("/openapi.json", get(async move || document.clone().into_response()))
        .fallback(no_route)
        .method_not_allowed_fallback(no_method)
        .with_state(app.clone());
    match cors(&app.config.cors_origins)? {
        Some(cors) => Ok(router.layer(cors)),
        None => Ok(router),
    }
}

async fn no_route() -> Response {
    Problem::new(StatusCode::NOT_FOUND, "no_such_route", "there is nothing here; see /openapi.json").into_response()
}

/// The router adds the exact `Allow`.
async fn no_method() -> Response {
    let detail = "this path does not take that method; Allow says which it takes";
    Problem::new(StatusCode::METHOD_NOT_ALLOWED, "method_not_allowed", detail).into_response()
}

/// Which web pages may call the office: none unless set.
fn cors(origins: &[String]) -> io::Result<Option<CorsLayer>> {
    if origins.is_empty() {
        return Ok(None);
    }
    let allowed = match origins.iter().any(|origin| origin == "*") {
        true => AllowOrigin::any(),
        false => {
            let parse = |origin: &String| HeaderValue::from_str(origin).map_err(io::Error::other);
            AllowOrigin::list(origins.iter().map(parse).collect::<io::Result<Vec<_>>>()?)
        }
    };
    let headers = [
        header::CONTENT_TYPE,
        header::AUTHORIZATION,
        HeaderName::from_static("x-api-key"),
        HeaderName::from_static("x-request-id"),
        HeaderName::from_static("idempotency-key"),
    ];
    let methods = [Method::GET, Method::POST, Method::PATCH, Method::DELETE];
    let exposed = [HeaderName::from_static("x-request-id"), header::RETRY_AFTER];
    let layer = CorsLayer::new().allow_origin(allowed).allow_headers(headers).allow_methods(methods);
    Ok(Some(layer.expose_headers(exposed)))
}
