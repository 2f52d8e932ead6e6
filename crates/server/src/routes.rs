//! The routes of the API: one file for each group of endpoints.

mod agents;
pub(crate) mod approve;
pub(crate) mod connect;
mod connections;
mod dashboard_links;
mod events;
mod export;
mod groups;
mod handle;
mod health;
mod history;
mod household;
mod household_events;
mod inbox;
mod me;
mod messages;
mod presence;
mod register;
mod rotate_key;
mod search;
mod send;
mod stepping_in;
mod tasks;
mod transcripts;
mod wake;

use std::io;

use axum::Router;
use axum::http::{HeaderName, HeaderValue, Method, StatusCode, header};
use axum::response::{IntoResponse, Response};
use axum::routing::{MethodRouter, get};
use tower_http::cors::{AllowOrigin, CorsLayer};

use crate::app::App;
use crate::request::Problem;
use crate::{dashboard, openapi, ws};

/// Declares every route once: the router, the OpenAPI document and the labels of the metrics are made from this list.
macro_rules! routes {
    ($($path:literal $(, $method:ident $module:ident::$handler:ident)+;)+) => {
        /// Every path of the API: the labels of the metrics.
        pub(crate) const PATHS: &[&str] = &[$($path),+];

        fn table() -> Vec<(&'static str, MethodRouter<App>)> {
            vec![$(($path, MethodRouter::new()$(.$method($module::$handler))+)),+]
        }

        /// The operations of every route.
        #[derive(utoipa::OpenApi)]
        #[openapi(paths($($($module::$handler),+),+))]
        pub(crate) struct Operations;
    };
}

routes! {
    "/agents/register", post register::register;
    "/connections/request", post connect::connect;
    "/connections/approve", post approve::approve;
    "/inbox", get inbox::inbox;
    "/sessions/{session_id}/history", get history::history;
    "/messages/send", post send::send;
    "/events", get events::events;
    "/ws", get ws::ws;
    "/agents", get agents::agents;
    "/agents/me", get me::me, patch me::patch, delete me::delete;
    "/agents/me/rotate-key", post rotate_key::rotate_key;
    "/agents/me/heartbeat", post presence::heartbeat;
    "/agents/me/leave", post presence::leave;
    "/agents/me/wake", get wake::wake, put wake::report;
    "/agents/{name}", get agents::agent;
    "/connections", get connections::connections;
    "/connections/pending", get connections::pending;
    "/connections/reject", post connections::reject;
    "/connections/revoke", post connections::revoke;
    "/connections/block", post connections::block;
    "/connections/unblock", post connections::unblock;
    "/messages", get messages::messages;
    "/messages/ack", post handle::ack;
    "/messages/rung", post handle::rung;
    "/messages/claim", post handle::claim;
    "/messages/release", post handle::release;
    "/messages/renew", post handle::renew;
    "/messages/send-many", post groups::send_many;
    "/messages/{message_id}", get messages::message;
    "/tasks", get tasks::tasks;
    "/tasks/{task_id}", get tasks::task;
    "/tasks/{task_id}/chain", get tasks::chain;
    "/tasks/{task_id}/state", post tasks::set_state;
    "/transcripts/{key}", get transcripts::lines, post transcripts::append;
    "/transcripts/{key}/share", post transcripts::share;
    "/search", get search::search;
    "/export", get export::export;
    "/groups", get groups::groups, post groups::create;
    "/groups/{name}/invite", post groups::invite;
    "/groups/{name}/join", post groups::join;
    "/groups/{name}/leave", post groups::leave;
    "/groups/{name}/remove", post groups::remove;
    "/household", get household::household;
    "/household/events", get household_events::events;
    "/household/person", post household::person;
    "/household/token", get household::token;
    "/household/machines", post household::add_machine;
    "/household/machines/{id}", delete household::revoke_machine;
    "/household/members", post household::join;
    "/household/members/{name}", delete household::leave;
    "/household/members/{name}/pause", post stepping_in::pause;
    "/household/members/{name}/resume", post stepping_in::resume;
    "/household/members/{name}/wake", get wake::wake_of_member;
    "/household/tasks", get stepping_in::tasks;
    "/household/sessions", get stepping_in::sessions;
    "/sessions/{session_id}/end", post stepping_in::end_session;
    "/tasks/{task_id}/cancel", post stepping_in::cancel_task;
    "/tasks/{task_id}/reassign", post stepping_in::reassign_task;
    "/dashboard/links", post dashboard_links::dashboard_link;
    "/health", get health::health;
    "/health/live", get health::live;
    "/health/ready", get health::ready;
}

/// All routes of the office.
pub(crate) fn router(app: &App) -> io::Result<Router> {
    let router = table()
        .into_iter()
        .fold(Router::new(), |router, (path, methods)| router.route(path, methods))
        .route("/openapi.json", get(openapi::document))
        .fallback(no_route)
        .method_not_allowed_fallback(no_method)
        .with_state(app.clone());
    let router = match cors(&app.config.cors_origins)? {
        Some(cors) => router.layer(cors),
        None => router,
    };
    // Merged after the CORS layer, which must not open the dashboard to other web origins.
    Ok(router.merge(dashboard::router(app)))
}

async fn no_route() -> Response {
    Problem::new(StatusCode::NOT_FOUND, "no_such_route", "there is nothing here; see /openapi.json").into_response()
}

/// The router adds the exact `Allow`.
async fn no_method() -> Response {
    let detail = "this path does not take that method; Allow says which it takes";
    Problem::new(StatusCode::METHOD_NOT_ALLOWED, "method_not_allowed", detail).into_response()
}

/// Allows the configured web origins; `None` if there are none.
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
        HeaderName::from_static("x-household-token"),
    ];
    let methods = [Method::GET, Method::POST, Method::PUT, Method::PATCH, Method::DELETE];
    let exposed = [HeaderName::from_static("x-request-id"), header::RETRY_AFTER];
    let layer = CorsLayer::new().allow_origin(allowed).allow_headers(headers).allow_methods(methods);
    Ok(Some(layer.expose_headers(exposed)))
}
