//! Stepping in from the pages: pause and resume an agent, end a conversation, cancel a task or give it to another.
//!
//! What the person may do here is what the API lets them do ([`crate::routes::stepping_in`]); each may be repeated.

use amb_core::Timestamp;
use amb_core::limits::MAX_NOTE_CHARS;
use axum::extract::State;
use axum::response::Response;
use serde::Deserialize;

use super::frame::{PageError, onward};
use super::session::{Nothing, Posted};
use super::write::name;
use crate::app::App;
use crate::problem::Problem;
use crate::query::{Segment, parse_id};

/// `POST /dashboard/agents/{name}/pause`.
pub(super) async fn pause(
    State(app): State<App>,
    Segment(agent): Segment,
    posted: Posted<Nothing>,
) -> Result<Response, PageError> {
    set_paused(&app, &agent, posted, true).await
}

/// `POST /dashboard/agents/{name}/resume`.
pub(super) async fn resume(
    State(app): State<App>,
    Segment(agent): Segment,
    posted: Posted<Nothing>,
) -> Result<Response, PageError> {
    set_paused(&app, &agent, posted, false).await
}

async fn set_paused(
    app: &App,
    agent: &str,
    Posted(visitor, Nothing {}): Posted<Nothing>,
    paused: bool,
) -> Result<Response, PageError> {
    let agent = name(agent)?;
    app.publish(app.store.set_paused(&visitor.viewer.agent, &agent, paused, Timestamp::now()).await?);
    let done = if paused { "paused" } else { "resumed" };
    Ok(onward(&format!("/dashboard/agents/{agent}?done={done}")))
}

/// `POST /dashboard/conversations/{session}/end`.
pub(super) async fn end(
    State(app): State<App>,
    Segment(session): Segment,
    Posted(visitor, Nothing {}): Posted<Nothing>,
) -> Result<Response, PageError> {
    let session = parse_id("path.session", &session)?;
    app.publish(app.store.end_session(&visitor.viewer.agent, &session, Timestamp::now()).await?);
    Ok(onward(&format!("/dashboard/conversations/{session}?done=ended")))
}

/// Why a task is canceled.
#[derive(Deserialize)]
pub(super) struct CancelForm {
    #[serde(default)]
    note: String,
}

/// `POST /dashboard/tasks/{id}/cancel`.
pub(super) async fn cancel(
    State(app): State<App>,
    Segment(id): Segment,
    Posted(visitor, form): Posted<CancelForm>,
) -> Result<Response, PageError> {
    let id = parse_id("path.id", &id)?;
    let note = Some(form.note.trim().to_owned()).filter(|note| !note.is_empty());
    crate::text::check_some("The reason", note.as_ref(), MAX_NOTE_CHARS)?;
    app.publish(app.store.cancel_task(&visitor.viewer.agent, &id, note, Timestamp::now()).await?);
    Ok(onward(&format!("/dashboard/tasks/{id}?done=canceled")))
}

/// Who is to have a task.
#[derive(Deserialize)]
pub(super) struct ReassignForm {
    #[serde(default)]
    to: String,
}

/// `POST /dashboard/tasks/{id}/reassign`.
pub(super) async fn reassign(
    State(app): State<App>,
    Segment(id): Segment,
    Posted(visitor, form): Posted<ReassignForm>,
) -> Result<Response, PageError> {
    let id = parse_id("path.id", &id)?;
    if form.to.trim().is_empty() {
        return Err(Problem::field("To", "name an agent of the household").into());
    }
    app.publish(app.store.reassign_task(&visitor.viewer.agent, &id, &name(&form.to)?, Timestamp::now()).await?);
    Ok(onward(&format!("/dashboard/tasks/{id}?done=reassigned")))
}
