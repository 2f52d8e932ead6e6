//! `GET /dashboard/mail`: all mail of the office, for operators if `operators_read_mail` is set.

use amb_core::{Code, MessageId, OfficeError};
use amb_store::SaidLine;
use askama::Template;
use axum::extract::State;
use axum::response::Response;
use serde::Deserialize;

use super::frame::{PageError, PageFrame, page};
use super::session::Visitor;
use crate::app::App;
use crate::request::Params;

/// Messages on a page.
const PAGE: u32 = 30;

#[derive(Deserialize)]
pub(super) struct MailQuery {
    before: Option<MessageId>,
}

#[derive(Template)]
#[template(path = "mail.html")]
struct AllMailPage {
    frame: PageFrame,
    mails: Vec<SaidLine>,
    older_page: bool,
    next: Option<String>,
}

pub(super) async fn mail(
    State(app): State<App>,
    visitor: Visitor,
    Params(query): Params<MailQuery>,
) -> Result<Response, PageError> {
    if !visitor.viewer.operator || !app.config.operators_read_mail {
        let detail = "nobody reads the mail of others here; `amb serve --operators-read-mail` lets operators, and tells everybody";
        return Err(OfficeError::new(Code::Forbidden, detail).into());
    }
    let mails = app.store.office_mail(query.before.as_ref(), PAGE).await?;
    tracing::info!(operator = %visitor.viewer.agent.name, messages = mails.len(), "an operator reads mail");
    let full = mails.len() == PAGE as usize;
    let next = mails.last().filter(|_| full).map(|last| format!("/dashboard/mail?before={}", last.id));
    let frame = PageFrame::new(&visitor, "All mail", "All mail");
    page(&AllMailPage { frame, mails, older_page: query.before.is_some(), next })
}
