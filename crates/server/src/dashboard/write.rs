//! Forms to write as the person: to an agent, into a conversation, to everybody in the household.

use amb_core::doc::check_text;
use amb_core::limits::{MAX_SUBJECT_CHARS, MAX_TEXT_CHARS};
use amb_core::{AgentName, Code, Draft, OfficeError, Priority, SessionId, Timestamp};
use askama::Template;
use axum::extract::State;
use axum::response::{IntoResponse, Response};
use serde::Deserialize;
use uuid::Uuid;

use super::conversation::{self, Unsent};
use super::frame::{Flash, PageError, PageFrame, page, redirect};
use super::session::{Posted, Visitor};
use crate::app::App;
use crate::request::{Params, Problem, Segment, parse_id};

/// Maximum number of recipients of a message to everybody, as of `POST /messages/send-many`.
const MAX_EVERYBODY: usize = 100;

#[derive(Deserialize)]
pub(super) struct WriteQuery {
    #[serde(default)]
    to: String,
}

#[derive(Template)]
#[template(path = "write.html")]
struct WritePage {
    frame: PageFrame,
    to: String,
    subject: String,
    content: String,
    priority: String,
    names: Vec<AgentName>,
    /// The number of recipients of a message to everybody; 0 if they are too many.
    everybody: usize,
    once: String,
}

impl WritePage {
    /// Whether the recipient cannot be selected; the browser would then select another one.
    fn is_unknown(&self, to: &str) -> bool {
        !to.is_empty() && to != "*" && !self.names.iter().any(|name| name.as_str() == to)
    }
}

#[derive(Default, Deserialize)]
pub(super) struct WriteForm {
    #[serde(default)]
    to: String,
    #[serde(default)]
    subject: String,
    #[serde(default)]
    content: String,
    #[serde(default)]
    priority: String,
    /// Idempotency key.
    #[serde(default)]
    once: String,
}

pub(super) async fn form(
    State(app): State<App>,
    visitor: Visitor,
    Params(query): Params<WriteQuery>,
) -> Result<Response, PageError> {
    let form = WriteForm {
        to: query.to.chars().take(100).collect(),
        once: Uuid::now_v7().to_string(),
        ..WriteForm::default()
    };
    render(&app, &visitor, form, None).await
}

/// The names of all agents of the household.
async fn agent_names(app: &App, visitor: &Visitor) -> Result<Vec<AgentName>, PageError> {
    let members = app.store.members(visitor.household()?, Timestamp::now()).await?;
    Ok(members.into_iter().filter(|member| !member.person).map(|member| member.name).collect())
}

async fn render(app: &App, visitor: &Visitor, form: WriteForm, flash: Option<Flash>) -> Result<Response, PageError> {
    let names = agent_names(app, visitor).await?;
    let mut frame = PageFrame::new(visitor, "", "Write");
    if flash.is_some() {
        frame = frame.answering("/dashboard/write", flash);
    }
    page(&WritePage {
        frame,
        to: form.to,
        subject: form.subject,
        content: form.content,
        priority: form.priority,
        everybody: if names.len() <= MAX_EVERYBODY { names.len() } else { 0 },
        names: names.into_iter().take(300).collect(),
        once: form.once,
    })
}

/// `POST /dashboard/write`. If the message cannot be sent, the form is shown again with the error.
pub(super) async fn send(
    State(app): State<App>,
    Posted(visitor, form): Posted<WriteForm>,
) -> Result<Response, PageError> {
    match send_new(&app, &visitor, &form).await {
        Ok(session) => Ok(redirect(&match session {
            Some(session) => format!("/dashboard/conversations/{session}?done=sent"),
            None => "/dashboard/conversations?done=sent".to_owned(),
        })),
        Err(error) => {
            let (status, flash) = error.correctable()?;
            Ok((status, render(&app, &visitor, form, Some(flash)).await?).into_response())
        }
    }
}

/// Returns the session, if the message has one recipient.
async fn send_new(app: &App, visitor: &Visitor, form: &WriteForm) -> Result<Option<SessionId>, PageError> {
    let (me, now) = (&visitor.viewer.agent, Timestamp::now());
    let subject = form.subject.trim();
    let subject = if subject.is_empty() { "From the dashboard" } else { subject };
    check_text("The subject", subject, MAX_SUBJECT_CHARS)?;
    let content = text(&form.content)?;
    let draft = |to: AgentName| -> Result<Draft, PageError> {
        let mut draft = Draft::text(to, subject, content.clone());
        draft.priority = priority(&form.priority)?;
        draft.idempotency_key = once(&form.once);
        draft.check()?;
        Ok(draft)
    };
    if form.to == "*" {
        let names = agent_names(app, visitor).await?;
        let Some(first) = names.first().cloned() else {
            return Err(Problem::field("To", "nobody else is in the household yet").into());
        };
        if names.len() > MAX_EVERYBODY {
            let detail = format!("everybody is {} agents, and a message goes to {MAX_EVERYBODY} at most", names.len());
            return Err(Problem::field("To", detail).into());
        }
        app.publish(app.store.send_all(me, &names, draft(first)?, now).await?);
        return Ok(None);
    }
    let draft = draft(parse_name("To", &form.to)?)?;
    let sent = app.publish(app.store.send(me, draft, now).await?);
    Ok(Some(sent.session_id))
}

/// `POST /dashboard/conversations/{session}/send`. Replies in the conversation if the person is a member; else writes
/// to a member, in a separate conversation with the same subject. If it cannot be sent, the conversation is shown again
/// with the error and the text.
pub(super) async fn reply(
    State(app): State<App>,
    Segment(session): Segment,
    Posted(visitor, form): Posted<WriteForm>,
) -> Result<Response, PageError> {
    let session = parse_id("path.session", &session)?;
    match send_reply(&app, &visitor, &session, &form).await {
        Ok(sent) => {
            Ok(redirect(&format!("/dashboard/conversations/{}?done=sent#m-{}", sent.session_id, sent.message_id)))
        }
        Err(error) => {
            let (status, flash) = error.correctable()?;
            let unsent = Unsent { to: form.to, content: form.content, once: form.once, flash };
            Ok((status, conversation::render(&app, &visitor, &session, None, Some(unsent)).await?).into_response())
        }
    }
}

async fn send_reply(
    app: &App,
    visitor: &Visitor,
    session: &SessionId,
    form: &WriteForm,
) -> Result<amb_core::doc::Sent, PageError> {
    let me = &visitor.viewer.agent;
    let talk = app.store.conversation(visitor.household()?, session, None, 1).await?;
    let mut draft = Draft::text(parse_name("To", &form.to)?, talk.subject, text(&form.content)?);
    draft.idempotency_key = once(&form.once);
    if talk.members.contains(&me.name) {
        draft.session = Some(session.clone());
    }
    draft.check()?;
    Ok(app.publish(app.store.send(me, draft, Timestamp::now()).await?))
}

/// Parses the name of an agent or a group. The error names the field.
pub(super) fn parse_name(field: &str, text: &str) -> Result<AgentName, PageError> {
    AgentName::parse_plain(text.trim()).map_err(|error| Problem::field(field, error.to_string()).into())
}

fn text(content: &str) -> Result<String, PageError> {
    // Browsers submit line breaks as CRLF.
    let content = content.replace("\r\n", "\n");
    if content.trim().is_empty() {
        return Err(OfficeError::new(Code::Invalid, "write something first").into());
    }
    check_text("The message", &content, MAX_TEXT_CHARS)?;
    Ok(content)
}

fn priority(text: &str) -> Result<Priority, Problem> {
    match text {
        "" => Ok(Priority::default()),
        text => Priority::ALL
            .into_iter()
            .find(|priority| priority.as_str() == text)
            .ok_or_else(|| Problem::field("Priority", "must be low, normal, high or urgent")),
    }
}

/// The idempotency key of a form, so that submitting it twice sends once.
fn once(text: &str) -> Option<String> {
    Uuid::parse_str(text).ok().map(|id| format!("dashboard:{id}"))
}
