//! Pages for people: watch the agents of a household work, and step in.
//!
//! One file and one template for each page, over the same verbs of the store as the API. Pages work without JavaScript;
//! with it, their live parts are updated (`stream`, `watch`). A visitor signs in with a link that works once
//! (`session`). Text of senders is shown escaped, or by `markdown`, which keeps formatting and nothing else; the
//! content security policy allows only our own files.

mod agents;
mod assets;
mod connections;
mod conversation;
mod conversations;
mod frame;
mod groups;
mod health;
mod html;
mod loops;
mod mail;
mod markdown;
mod network;
mod overview;
mod picture;
mod session;
mod stats;
mod stepping_in;
mod stream;
mod tasks;
mod wake_ups;
mod watch;
mod write;

use axum::Router;
use axum::http::StatusCode;
use axum::response::Response;
use axum::routing::{any, get, post};

pub(crate) use self::loops::{Loops, Stopped};
pub(crate) use self::session::{LINK_TTL, origin};
pub(crate) use self::stats::{Stats, sample};
pub(crate) use self::watch::Watchers;
use crate::app::App;

/// All pages.
pub(crate) fn router(app: &App) -> Router {
    Router::new()
        .route("/dashboard", get(overview::overview))
        .route("/dashboard/", get(async || -> Response { frame::redirect("/dashboard") }))
        .route("/dashboard/assets/{name}", get(assets::asset))
        // Link previews send `HEAD`, which must not use the link up.
        .route("/dashboard/sign-in", get(session::sign_in).head(async || StatusCode::METHOD_NOT_ALLOWED))
        .route("/dashboard/sign-out", post(session::sign_out))
        .route("/dashboard/events", get(stream::events))
        .route("/dashboard/write", get(write::form).post(write::send))
        .route("/dashboard/conversations", get(conversations::conversations))
        .route("/dashboard/conversations/{session}", get(conversation::conversation))
        .route("/dashboard/conversations/{session}/send", post(write::reply))
        .route("/dashboard/conversations/{session}/end", post(stepping_in::end))
        .route("/dashboard/messages/{id}/text", get(conversation::text))
        .route("/dashboard/messages/{id}/data/{index}", get(conversation::data))
        .route("/dashboard/tasks", get(tasks::board))
        .route("/dashboard/tasks/{id}", get(tasks::task))
        .route("/dashboard/tasks/{id}/cancel", post(stepping_in::cancel))
        .route("/dashboard/tasks/{id}/reassign", post(stepping_in::reassign))
        .route("/dashboard/network", get(network::network))
        .route("/dashboard/agents", get(agents::agents))
        .route("/dashboard/agents/{name}", get(agents::agent))
        .route("/dashboard/agents/{name}/key", post(agents::new_key))
        .route("/dashboard/agents/{name}/pause", post(stepping_in::pause))
        .route("/dashboard/agents/{name}/resume", post(stepping_in::resume))
        .route("/dashboard/groups", get(groups::groups))
        .route("/dashboard/transcripts/{owner}/{key}", get(groups::transcript))
        .route("/dashboard/connections", get(connections::connections))
        .route("/dashboard/connections/{what}", post(connections::decide))
        .route("/dashboard/health", get(health::health))
        .route("/dashboard/mail", get(mail::mail))
        .route("/dashboard/{*unknown}", any(frame::no_page))
        .method_not_allowed_fallback(frame::no_method)
        .with_state(app.clone())
}
