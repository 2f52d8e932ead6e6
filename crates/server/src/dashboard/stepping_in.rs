//! Forms of the pages that step in: pause and resume an agent, end a conversation, cancel or reassign a task. The same
//! verbs as in `routes/stepping_in.rs`; all are idempotent.

use amb_core::Timestamp;
use amb_core::doc::check_optional_text;
use amb_core::limits::MAX_NOTE_CHARS;
use axum::extract::State;
use axum::response::Response;
use serde::Deserialize;

use super::frame::{PageError, redirect};
use super::session::{NoFields, Posted};
use super::write::parse_name;
use crate::app::App;
use crate::request::{Problem, Segment, parse_id};

/// `POST /dashboard/agents/{name}/pause`.
pub(super) async fn pause(
    State(app): State<App>,
    Segment(agent): Segment,
    posted: Posted<NoFields>,
) -> Result<Response, PageError> {
    set_paused(&app, &agent, posted, true).await
}

/// `POST /dashboard/agents/{name}/resume`.
pub(super) async fn resume(
    State(app): State<App>,
    Segment(agent): Segment,
    posted: Posted<NoFields>,
) -> Result<Response, PageError> {
    set_paused(&app, &agent, posted, false).await
}

async fn set_paused(
    app: &App,
    agent: &str,
    Posted(visitor, NoFields {}): Posted<NoFields>,
    paused: bool,
) -> Result<Response, PageError> {
    let agent = parse_name("The name", agent)?;
    app.publish(app.store.set_paused(&visitor.viewer.agent, &agent, paused, Timestamp::now()).await?);
    let done = if paused { "paused" } else { "resumed" };
    Ok(redirect(&format!("/dashboard/agents/{agent}?done={done}")))
}

/// `POST /dashboard/conversations/{session}/end`.
pub(super) async fn end(
    State(app): State<App>,
    Segment(session): Segment,
    Posted(visitor, NoFields {}): Posted<NoFields>,
) -> Result<Response, PageError> {
    let session = parse_id("path.session", &session)?;
    app.publish(app.store.end_session(&visitor.viewer.agent, &session, Timestamp::now()).await?);
    Ok(redirect(&format!("/dashboard/conversations/{session}?done=ended")))
}

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
    check_optional_text("The reason", note.as_ref(), MAX_NOTE_CHARS)?;
    app.publish(app.store.cancel_task(&visitor.viewer.agent, &id, note, Timestamp::now()).await?);
    Ok(redirect(&format!("/dashboard/tasks/{id}?done=canceled")))
}

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
    let to = parse_name("To", &form.to)?;
    let written = app.store.reassign_task(&visitor.viewer.agent, &id, &to, Timestamp::now()).await?;
    // Nothing is logged where the task stays with its assignee.
    let done = if written.entries.is_empty() { "kept" } else { "reassigned" };
    app.publish(written);
    Ok(redirect(&format!("/dashboard/tasks/{id}?done={done}")))
}
