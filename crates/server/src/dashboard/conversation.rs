//! `GET /dashboard/conversations/{session}`: a conversation and its forms; and downloads of parts of a message.

use std::collections::HashSet;

use amb_core::doc::MessageWithReceipts;
use amb_core::render::visible;
use amb_core::{AgentName, MessageId, Part, Priority, ReceiptState, SessionId, Timestamp};
use amb_store::Conversation;
use askama::Template;
use axum::extract::State;
use axum::response::Response;
use serde::Deserialize;
use uuid::Uuid;

use super::frame::{Flash, PageError, PageFrame, download, page};
use super::html::{self, Html, bytes, line};
use super::markdown::{MAX_SHOWN, formatted};
use super::picture;
use super::session::Visitor;
use crate::app::App;
use crate::request::{Params, Segment, parse_id};

/// Messages on a page.
const PAGE: u32 = 50;
/// Characters shown of a data part; all of it can be downloaded.
const MAX_DATA: usize = 4_000;
/// Characters shown of all messages of a page together; beyond it each is cut.
const MAX_PAGE: usize = 60_000;

#[derive(Deserialize)]
pub(super) struct PageQuery {
    before: Option<MessageId>,
}

#[derive(Template)]
#[template(path = "conversation.html")]
struct ConversationPage {
    frame: PageFrame,
    talk: Conversation,
    members: HashSet<AgentName>,
    mails: Vec<ShownMessage>,
    older: Option<String>,
    newer: Option<String>,
    /// Possible recipients of the person's reply; `None` on older pages.
    write_to: Option<Vec<String>>,
    /// Whether the person is in the conversation.
    in_it: bool,
    /// Whether the person can end it.
    may_end: bool,
    /// The selected recipient and the text of a reply that was refused.
    to: String,
    content: String,
    once: String,
}

/// A reply that was refused, to be corrected.
pub(super) struct Unsent {
    pub(super) to: String,
    pub(super) content: String,
    pub(super) once: String,
    /// Why it was refused.
    pub(super) flash: Flash,
}

impl ConversationPage {
    fn is_member(&self, name: &AgentName) -> bool {
        self.members.contains(name)
    }
}

/// A label of a message.
struct Chip {
    text: String,
    tone: &'static str,
}

struct DataPart {
    index: usize,
    size: String,
    text: String,
}

/// A message, ready for the template.
struct ShownMessage {
    id: MessageId,
    from: AgentName,
    to: AgentName,
    to_group: Option<String>,
    at: Timestamp,
    mine: bool,
    chips: Vec<Chip>,
    body: Html,
    /// The number of characters that are not shown.
    cut: usize,
    data: Vec<DataPart>,
    files: Vec<String>,
    path: Html,
    receipts: Vec<Html>,
}

impl ShownMessage {
    fn of(mail: MessageWithReceipts, group: Option<&String>, me: &AgentName, max: usize, now: Timestamp) -> Self {
        let MessageWithReceipts { message, receipts } = mail;
        let text = message.text();
        let (shown, cut) = visible::clip(&text, max);
        let mut chips = Vec::new();
        let mut chip = |text: String, tone: &'static str| chips.push(Chip { text, tone });
        if let Some(task) = &message.task {
            chip(format!("task {}", task.state.as_str()), html::task_tone(&task.state));
        } else if message.kind.as_str() != "message" {
            chip(line(message.kind.as_str(), 40), "");
        }
        match message.priority {
            Priority::Urgent => chip("urgent".to_owned(), "bad"),
            Priority::High => chip("high".to_owned(), "warn"),
            Priority::Low => chip("low".to_owned(), ""),
            Priority::Normal => {}
        }
        if message.is_automatic() {
            chip("automatic".to_owned(), "");
        }
        let mut files = Vec::new();
        let mut data = Vec::new();
        for (index, part) in message.parts.iter().enumerate() {
            match part {
                Part::Text { .. } => {}
                Part::File { path, .. } => files.push(line(path, 300)),
                Part::Data { data: value } => {
                    let whole = serde_json::to_string_pretty(value).unwrap_or_default();
                    let (head, left) = visible::clip(&whole, MAX_DATA);
                    let end = if left > 0 { "\n…" } else { "" };
                    let text = format!("{}{end}", visible::text(head));
                    data.push(DataPart { index, size: bytes(&(whole.len() as u64)), text });
                }
            }
        }
        let receipts = receipts.iter().map(|receipt| receipt_line(receipt, &now)).collect();
        Self {
            path: picture::path(&message.trace, &message.to, message.ttl, group.map(String::as_str)),
            body: formatted(shown),
            cut,
            mine: message.from == *me,
            to_group: group.cloned(),
            id: message.id,
            from: message.from,
            to: message.to,
            at: message.sent_at,
            chips,
            data,
            files,
            receipts,
        }
    }
}

/// The state of a message at one recipient, in words.
fn receipt_line(receipt: &amb_core::Receipt, now: &Timestamp) -> Html {
    let (sign, word) = match receipt.state {
        ReceiptState::Read => ("✓✓", "read by"),
        _ if receipt.rung_at.is_some() => ("✓", "rung for"),
        ReceiptState::Delivered => ("✓", "delivered to"),
        ReceiptState::Queued => ("·", "waits for"),
    };
    let at = html::ago(&receipt.since(), now).0;
    Html(format!("{sign} {word} {} {at}", html::escape(receipt.recipient.as_str())))
}

pub(super) async fn conversation(
    State(app): State<App>,
    visitor: Visitor,
    Segment(session): Segment,
    Params(query): Params<PageQuery>,
) -> Result<Response, PageError> {
    let session = parse_id("path.session", &session)?;
    render(&app, &visitor, &session, query.before.as_ref(), None).await
}

pub(super) async fn render(
    app: &App,
    visitor: &Visitor,
    session: &SessionId,
    before: Option<&MessageId>,
    unsent: Option<Unsent>,
) -> Result<Response, PageError> {
    let (household, now) = (visitor.household()?, Timestamp::now());
    let (talk, members) =
        tokio::try_join!(app.store.conversation(household, session, before, PAGE), app.store.members(household, now))?;
    mark_read(app, visitor, &talk, now).await?;
    let me = &visitor.viewer.agent.name;
    let members: HashSet<AgentName> = members.into_iter().map(|member| member.name).collect();
    let in_it = talk.members.contains(me);
    // A refused text is shown even where it cannot be sent, so that it can be copied.
    let is_writable = before.is_none() && (talk.ended_by.is_none() || unsent.is_some());
    let write_to: Option<Vec<String>> = is_writable.then(|| match &talk.group {
        Some(group) if in_it => vec![group.clone()],
        _ => talk.members.iter().filter(|name| *name != me).map(ToString::to_string).collect(),
    });
    let at = format!("/dashboard/conversations/{}", talk.id);
    let oldest = talk.messages.first().map(|mail| mail.message.id.clone());
    let older = oldest.filter(|_| talk.older).map(|id| format!("{at}?before={id}"));
    let max = MAX_SHOWN.min(MAX_PAGE / talk.messages.len().max(1)).max(400);
    let mails = talk.messages.iter().cloned();
    let mails = mails.map(|mail| ShownMessage::of(mail, talk.group.as_ref(), me, max, now)).collect();
    let mut frame = PageFrame::new(visitor, "Conversations", line(&talk.subject, 60));
    let (to, content, once) = match unsent {
        Some(Unsent { to, content, once, flash }) => {
            frame = frame.answering(&at, Some(flash));
            (to, content, once)
        }
        None => (String::new(), String::new(), Uuid::now_v7().to_string()),
    };
    page(&ConversationPage {
        frame,
        mails,
        older,
        newer: before.is_some().then_some(at),
        write_to: write_to.filter(|names| !names.is_empty() || !content.is_empty()),
        in_it,
        may_end: talk.ended_by.is_none(),
        to,
        content,
        once,
        members,
        talk,
    })
}

/// Marks the messages to the person as read, because the page shows them.
async fn mark_read(app: &App, visitor: &Visitor, talk: &Conversation, now: Timestamp) -> Result<(), PageError> {
    let me = &visitor.viewer.agent;
    let is_unread = |mail: &&MessageWithReceipts| {
        mail.receipts.iter().any(|receipt| receipt.recipient == me.name && receipt.state != ReceiptState::Read)
    };
    let unread: Vec<_> = talk.messages.iter().filter(is_unread).map(|mail| mail.message.id.clone()).collect();
    if !unread.is_empty() {
        app.publish(app.store.ack(me, &unread, now).await?);
    }
    Ok(())
}

/// `GET /dashboard/messages/{id}/text`: the whole text of a message, as a download.
pub(super) async fn text(
    State(app): State<App>,
    visitor: Visitor,
    Segment(id): Segment,
) -> Result<Response, PageError> {
    let id = parse_id("path.id", &id)?;
    let mail = app.store.mail(visitor.household()?, &id).await?;
    Ok(download(&format!("message-{id}.txt"), mail.message.text()))
}

/// `GET /dashboard/messages/{id}/data/{index}`: a data part of a message, as a download.
pub(super) async fn data(
    State(app): State<App>,
    visitor: Visitor,
    axum::extract::Path((id, index)): axum::extract::Path<(String, usize)>,
) -> Result<Response, PageError> {
    let id = parse_id("path.id", &id)?;
    let mail = app.store.mail(visitor.household()?, &id).await?;
    match mail.message.parts.get(index) {
        Some(Part::Data { data }) => {
            let text = serde_json::to_string_pretty(data).unwrap_or_default();
            Ok(download(&format!("message-{id}-{index}.json"), text))
        }
        _ => Err(PageError::not_found("this message has no such data")),
    }
}
