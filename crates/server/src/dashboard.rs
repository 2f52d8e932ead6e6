//! Pages for people: see the agents of a household work, and step in.
//!
//! One file a page, over the store's verbs as the API has them, and one template each, checked when the program is built.
//! Pages are whole without a script; with the one script there is, their live parts follow the office (`stream`, `watch`).
//! A visitor signs in with a link that works once (`session`). What a sender wrote is shown as text, or by `markdown`, which
//! keeps formatting and nothing else; answers carry a policy under which no page runs or loads anything but our own files.

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
mod ring;
mod session;
mod stepping_in;
mod stream;
mod tasks;
mod wake_ups;
mod watch;
mod write;

use axum::Router;
use axum::response::Response;
use axum::routing::{get, post};

pub(crate) use self::loops::{Loops, Stopped};
pub(crate) use self::ring::{Ring, sample};
pub(crate) use self::session::{LINK_TIME, origin};
pub(crate) use self::watch::Watchers;
use crate::app::App;

/// All pages.
pub(crate) fn router(app: &App) -> Router {
    Router::new()
        .route("/dashboard", get(overview::overview))
        .route("/dashboard/", get(async || -> Response { frame::onward("/dashboard") }))
        .route("/dashboard/assets/{name}", get(assets::asset))
        .route("/dashboard/sign-in", get(session::sign_in).head(session::no_sign_in))
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
        .with_state(app.clone())
}
