//! `POST /messages/send`: sends a message, which is durable when this returns.

use amb_core::doc::{ConnectionStatus, Sent};
use amb_core::limits::{MAX_CONTENT_CHARS, MAX_SUBJECT_CHARS, MAX_TEXT_CHARS};
use amb_core::message::{Callback, text_of};
use amb_core::suggest::nearest;
use amb_core::{
    AgentName, Code, CorrelationId, Draft, Kind, MessageId, Object, OfficeError, Part, Priority, Timestamp,
};
use amb_store::Agent;
use axum::extract::State;
use serde::{Deserialize, Deserializer};
use utoipa::ToSchema;

use crate::app::App;
use crate::dashboard::Stopped;
use crate::request::{
    Body, Caller, Created, IdempotencyKey, Problem, check_optional_text, check_text, parse_optional_id, plain_name,
    plain_names,
};

/// What to send, and to whom. Needs `content` or `parts`, and one of `subject`, `session_id` and `reply_to`.
// `To` is one name, or several for `POST /messages/send-many`. Two structs that flatten a third would be slow to parse.
#[derive(Deserialize, ToSchema)]
#[serde(bound(deserialize = "To: Recipients"))]
pub(crate) struct SendBody<To = AgentName> {
    /// Who shall receive it: a connected agent, or a group that the caller is in.
    #[schema(value_type = AgentName)]
    #[serde(deserialize_with = "To::deserialize_plain")]
    pub(super) to: To,
    /// The session's subject; continues the session that has it, or starts one. Not used where the message goes into
    /// the session of `session_id` or of `reply_to`.
    #[schema(max_length = 255, pattern = "^[^\\x00]*[^\\s\\x00][^\\x00]*$", example = "Project collaboration")]
    subject: Option<String>,
    /// The text; a longer one, up to 100,000 characters, is sent as a text part.
    #[schema(max_length = 10000, pattern = "^[^\\x00]*$", example = "Hello Bob, shall we start?")]
    content: Option<String>,
    /// An existing session to continue.
    #[schema(value_type = Option<Uuid>)]
    session_id: Option<String>,
    /// What it is for: `message`, `task`, or a label of another system.
    kind: Option<Kind>,
    /// All of the content where that is more than one short text; `content` comes before it unless it says the same.
    /// The text parts have 100,000 characters together at most.
    #[schema(max_items = 32)]
    parts: Option<Vec<Part>>,
    /// How soon it wants to be read.
    priority: Option<Priority>,
    /// For a task: when it must be done.
    deadline: Option<Timestamp>,
    /// For a task, in place of `deadline`: in how many seconds from now it must be done. A repeat under the same
    /// `Idempotency-Key` has the first one's deadline.
    #[schema(minimum = 0, maximum = 3155760000_u64)]
    #[serde(default, deserialize_with = "crate::request::seconds")]
    deadline_in: Option<u64>,
    /// For a task: where the answer shall go.
    callback: Option<Callback>,
    /// The message this answers; it goes into the same session unless `session_id` says another.
    reply_to: Option<MessageId>,
    /// The message this passes on.
    relay_of: Option<MessageId>,
    /// Ties a question to its answers.
    correlation_id: Option<CorrelationId>,
    /// Whatever else there is to say to programs. `"automatic": true` marks what a program sends by itself: such a
    /// reply counts on with the ttl of what it answers, so that two programs that answer each other stop.
    metadata: Option<Object>,
}

/// The type of `to` in a [`SendBody`].
pub(crate) trait Recipients: Sized {
    fn deserialize_plain<'de, D: Deserializer<'de>>(field: D) -> Result<Self, D::Error>;
}

impl Recipients for AgentName {
    fn deserialize_plain<'de, D: Deserializer<'de>>(field: D) -> Result<Self, D::Error> {
        plain_name(field)
    }
}

impl Recipients for Vec<AgentName> {
    fn deserialize_plain<'de, D: Deserializer<'de>>(field: D) -> Result<Self, D::Error> {
        plain_names(field)
    }
}

/// Sends a message
///
/// When this answers 201 the message is durable. With an `Idempotency-Key`, a repeat answers the first result.
#[utoipa::path(post, path = "/messages/send", tag = "messages",
    params(("Idempotency-Key" = Option<String>, Header, max_length = 255, pattern = "^[!-~]+$",
        description = "A repeat with the same key and body answers the first result and sends nothing")),
    request_body = SendBody,
    responses(
        (status = 201, description = "Durable", body = Sent),
        (status = 403, description = "No active connection with the recipient, or the caller is not in its `allow_from`"),
        (status = 404, description = "No such session or message"),
        (status = 409, description = "The idempotency key was used for another message, or ttl and trace refuse"),
        (status = 507, description = "`over_quota`: the caller, or the office, has as much mail stored as it may; trying again does not help"),
    ))]
pub(crate) async fn send(
    State(app): State<App>,
    Caller(caller): Caller,
    IdempotencyKey(key): IdempotencyKey,
    Body(body): Body<SendBody>,
) -> Result<Created<Sent>, Problem> {
    let first = body.to.clone();
    let (to, draft) = body.draft(first, key)?;
    match app.store.send(&caller, draft, Timestamp::now()).await {
        Ok(sent) => Ok(Created(app.publish(sent))),
        Err(error) => Err(refused(&app, &caller, &to, error).await),
    }
}

/// Records a stopped loop, and suggests the nearest name of a connected agent if the recipient is not connected.
async fn refused(app: &App, caller: &Agent, to: &AgentName, error: OfficeError) -> Problem {
    if error.code() == Code::LoopRefused {
        app.loops.record(Stopped::now(caller, to, &error));
    }
    if error.code() != Code::NotConnected {
        return error.into();
    }
    let links = app.store.connections(caller).await.unwrap_or_default();
    let active = links.iter().filter(|link| link.status == ConnectionStatus::Active && link.agent_name != *to);
    match nearest(to.as_str(), active.map(|link| link.agent_name.as_str())) {
        Some(near) => OfficeError::new(error.code(), format!("{}; did you mean {near:?}?", error.detail())).into(),
        None => error.into(),
    }
}

impl<To> SendBody<To> {
    /// Checks the fields. Returns the recipients, and a draft that is addressed to the first of them.
    pub(super) fn draft(self, first: AgentName, idempotency_key: Option<String>) -> Result<(To, Draft), Problem> {
        let session = parse_optional_id("body.session_id", self.session_id.as_deref())?;
        // An existing session has its subject. Clients that fill in every field send a blank one with it.
        let continues = session.is_some() || self.reply_to.is_some();
        let subject = self.subject.filter(|subject| !continues || !subject.trim().is_empty());
        match &subject {
            None if !continues => return Err(Problem::field("body.subject", "is needed without a session_id")),
            Some(subject) if subject.trim().is_empty() => {
                return Err(Problem::field("body.subject", "cannot be blank"));
            }
            subject => check_optional_text("body.subject", subject.as_ref(), MAX_SUBJECT_CHARS)?,
        }
        let mut parts = self.parts.unwrap_or_default();
        match self.content.filter(|content| !content.is_empty()) {
            None if parts.is_empty() => return Err(Problem::field("body.content", "is needed without parts")),
            Some(content) if parts.is_empty() || content != text_of(&parts) => {
                if content.len() > MAX_CONTENT_CHARS && content.chars().count() > MAX_CONTENT_CHARS {
                    let how = format!(
                        "has at most {MAX_CONTENT_CHARS} characters; send up to {MAX_TEXT_CHARS} as a text part in parts"
                    );
                    return Err(Problem::field("body.content", how));
                }
                parts.insert(0, Part::Text { text: content });
            }
            // The content repeats the text parts, as in the documents of messages.
            _ => {}
        }
        let field = if matches!(parts.as_slice(), [Part::Text { .. }]) { "body.content" } else { "body.parts" };
        check_text(field, &text_of(&parts), MAX_TEXT_CHARS)?;
        let draft = Draft {
            to: first,
            kind: self.kind.unwrap_or_default(),
            subject,
            session,
            parts,
            priority: self.priority.unwrap_or_default(),
            deadline: self.deadline,
            deadline_in: self.deadline_in,
            callback: self.callback,
            reply_to: self.reply_to,
            relay_of: self.relay_of,
            correlation_id: self.correlation_id,
            metadata: self.metadata.unwrap_or_default(),
            idempotency_key,
        };
        draft.check()?;
        Ok((self.to, draft))
    }
}
