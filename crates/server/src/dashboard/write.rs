//! Writing as the person: to an agent, into a conversation, to everybody in the household.

use amb_core::limits::{MAX_SUBJECT_CHARS, MAX_TEXT_CHARS};
use amb_core::{AgentName, Code, Draft, OfficeError, Priority, SessionId, Timestamp};
use amb_store::Agent;
use askama::Template;
use axum::extract::State;
use axum::response::Response;
use serde::Deserialize;
use uuid::Uuid;

use super::frame::{Flash, PageError, PageFrame, onward, page};
use super::session::{Posted, Visitor};
use crate::app::App;
use crate::problem::Problem;
use crate::query::{Params, Segment, parse_id};

/// Agents that one message to everybody reaches at most, as with `POST /messages/send-many`.
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
    /// Agents that everybody is; none where they are too many.
    everybody: usize,
    once: String,
}

/// What the form says.
#[derive(Deserialize)]
pub(super) struct WriteForm {
    #[serde(default)]
    to: String,
    #[serde(default)]
    subject: String,
    #[serde(default)]
    content: String,
    #[serde(default)]
    priority: String,
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
        subject: String::new(),
        content: String::new(),
        priority: String::new(),
        once: Uuid::now_v7().to_string(),
    };
    shown(&app, &visitor, form, None).await
}

async fn shown(app: &App, visitor: &Visitor, form: WriteForm, flash: Option<Flash>) -> Result<Response, PageError> {
    let members = app.store.members(visitor.household()?, Timestamp::now()).await?;
    let names: Vec<AgentName> = members.into_iter().filter(|m| !m.person).map(|m| m.name).collect();
    let mut frame = PageFrame::new(visitor, "", "Write");
    if flash.is_some() {
        frame.flash = flash;
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

/// `POST /dashboard/write`. What cannot be sent is shown again with the reason, as it was written.
pub(super) async fn send(
    State(app): State<App>,
    Posted(visitor, form): Posted<WriteForm>,
) -> Result<Response, PageError> {
    match send_new(&app, &visitor, &form).await {
        Ok(session) => Ok(onward(&match session {
            Some(session) => format!("/dashboard/conversations/{session}?done=sent"),
            None => "/dashboard/conversations?done=sent".to_owned(),
        })),
        Err(error) if error.is_the_callers() => {
            let flash = Flash { bad: true, text: error.text().to_owned() };
            shown(&app, &visitor, form, Some(flash)).await
        }
        Err(error) => Err(error),
    }
}

async fn send_new(app: &App, visitor: &Visitor, form: &WriteForm) -> Result<Option<SessionId>, PageError> {
    let (me, now) = (&visitor.viewer.agent, Timestamp::now());
    let subject = form.subject.trim();
    let subject = if subject.is_empty() { "From the dashboard" } else { subject };
    crate::text::check("The subject", subject, MAX_SUBJECT_CHARS)?;
    let content = text(&form.content)?;
    let draft = |to: AgentName| -> Result<Draft, PageError> {
        let mut draft = Draft::text(to, subject, content.clone());
        draft.priority = priority(&form.priority);
        draft.idempotency_key = once(&form.once);
        draft.check()?;
        Ok(draft)
    };
    if form.to == "*" {
        let members = app.store.members(visitor.household()?, now).await?;
        let names: Vec<AgentName> = members.into_iter().filter(|m| !m.person).map(|m| m.name).collect();
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
    let to = name(&form.to)?;
    let sent = app.publish(app.store.send(me, draft(to)?, now).await?);
    Ok(Some(sent.session_id))
}

/// `POST /dashboard/conversations/{session}/send`. Into the conversation where the person is in it; else to one of those who
/// are, in a conversation of the person's own with the same subject.
pub(super) async fn reply(
    State(app): State<App>,
    Segment(session): Segment,
    Posted(visitor, form): Posted<WriteForm>,
) -> Result<Response, PageError> {
    let (me, now): (&Agent, _) = (&visitor.viewer.agent, Timestamp::now());
    let session = parse_id("path.session", &session)?;
    let talk = app.store.conversation(visitor.household()?, &session, None, 1).await?;
    let mut draft = Draft::text(name(&form.to)?, talk.subject, text(&form.content)?);
    draft.idempotency_key = once(&form.once);
    if talk.members.contains(&me.name) {
        draft.session = Some(session);
    }
    draft.check()?;
    let sent = app.publish(app.store.send(me, draft, now).await?);
    Ok(onward(&format!("/dashboard/conversations/{}?done=sent#m-{}", sent.session_id, sent.message_id)))
}

pub(super) fn name(text: &str) -> Result<AgentName, PageError> {
    AgentName::parse_plain(text.trim()).map_err(|error| Problem::field("To", error.to_string()).into())
}

fn text(content: &str) -> Result<String, PageError> {
    // Forms send line ends of two characters.
    let content = content.replace("\r\n", "\n");
    if content.trim().is_empty() {
        return Err(OfficeError::new(Code::Invalid, "write something first").into());
    }
    crate::text::check("The message", &content, MAX_TEXT_CHARS)?;
    Ok(content)
}

fn priority(text: &str) -> Priority {
    Priority::ALL.into_iter().find(|priority| priority.as_str() == text).unwrap_or_default()
}

/// A form that is sent twice writes once.
pub(super) fn once(text: &str) -> Option<String> {
    Uuid::parse_str(text).ok().map(|id| format!("dashboard:{id}"))
}
