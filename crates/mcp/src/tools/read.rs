//! `mailbox_read`: a session's messages in full. Marks what it shows as read, and nothing else.

use std::collections::HashMap;

use amb_core::doc::{History, MessageView};
use amb_core::mailbox::HistoryPage;
use amb_core::render::content_text;
use amb_core::render::size::{clip_shown, shown_chars};
use amb_core::{AgentName, MessageId, OfficeError, Part, SessionId};
use rmcp::model::{JsonObject, Tool};
use serde::{Deserialize, Serialize};

use super::{CallContext, Effect};
use crate::answer::ToolAnswer;
use crate::arguments::{count, filled, parse};
use crate::budget::{ITEMS_CHARS, size};
use crate::inbox;
use crate::schema::{answer, arguments, hint, list, object, text, upto, whole};
use crate::show;
use crate::view::{MessageShown, PREVIEW_CHARS, UNTRUSTED, given_id, is_default, line, shown_id};

/// How many messages are shown by default.
const DEFAULT_LIMIT: u32 = 10;

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct ReadArguments {
    #[serde(default, deserialize_with = "filled")]
    session_id: Option<String>,
    #[serde(default, deserialize_with = "count")]
    limit: Option<u32>,
    #[serde(default, deserialize_with = "filled")]
    before: Option<String>,
    #[serde(default, deserialize_with = "filled")]
    message_id: Option<String>,
    #[serde(default, deserialize_with = "count")]
    offset: Option<u32>,
}

pub(super) fn tool() -> Tool {
    let message = object(&[("id", text()), ("content", text())]);
    super::tool(
        "mailbox_read",
        "Read a thread's newest messages, oldest first, and mark them read.",
        Effect::Marks,
        arguments(&[
            // Not required, since message_id goes without it. `oneOf` would say so, and some clients refuse it.
            ("session_id", hint("from mailbox_check")),
            ("limit", upto(50, DEFAULT_LIMIT)),
            ("before", hint("message id: only older ones")),
            ("message_id", hint("instead: a message that was cut, from character offset")),
            ("offset", whole()),
        ]),
        answer(&[("messages!", list(message)), ("next", text())]),
    )
}

#[derive(Serialize)]
struct ReadShown {
    note: &'static str,
    session_id: String,
    subject: String,
    messages: Vec<MessageShown>,
    /// Unread messages of this session that are not shown.
    #[serde(skip_serializing_if = "is_default")]
    unread_left: u64,
    #[serde(skip_serializing_if = "Option::is_none")]
    next: Option<String>,
}

pub(super) async fn call(call: &CallContext, arguments: Option<JsonObject>) -> Result<ToolAnswer, OfficeError> {
    let ReadArguments { session_id, limit, before, message_id, offset } = parse(arguments)?;
    if let Some(id) = message_id {
        return read_on(call, given_id(&id)?, offset.unwrap_or(0) as usize).await;
    }
    let missing =
        || OfficeError::invalid("give session_id (mailbox_check lists yours), or the message_id of a message");
    let session = session_id.ok_or_else(missing)?;
    let session: SessionId = given_id(&session)?;
    let limit = HistoryPage::newest(limit.unwrap_or(DEFAULT_LIMIT))?.limit;
    let before = before.map(|id| given_id::<MessageId>(&id)).transpose()?;
    let (mut history, may_be_more) = fetch(call, &session, limit, before.clone()).await?;

    let unread_left = if may_be_more { unread_in(call, &session).await? } else { 0 };
    let mut next = Vec::new();
    if let Some(oldest) = history.messages.last().filter(|_| unread_left > 0) {
        let others = if before.is_none() { "older" } else { "other" };
        next.push(format!(
            "{unread_left} {others} unread in this thread: call mailbox_read with before={} for those before these.",
            shown_id(&oldest.id)
        ));
    }
    let cut = cut_to_fit(&mut history.messages, call.office.me());
    for (message, Cut { chars, parts }) in
        history.messages.iter().rev().filter_map(|message| Some((message, cut.get(&message.id)?)))
    {
        let offset = message.content.chars().count();
        let beside = match parts {
            0 => String::new(),
            parts => format!(", with {parts} data or file parts at the end"),
        };
        let id = shown_id(&message.id);
        next.push(format!(
            "{id} was cut, {chars} characters more{beside}: call mailbox_read with message_id={id} and offset={offset}.",
        ));
    }
    for message in history.messages.iter().rev() {
        call.seen.mark_shown(message.id.as_str());
        if message.sender_name != *call.office.me() {
            call.seen.work.shown(message, &session);
        }
    }
    let left = cut.into_iter().map(|(id, cut)| (id, cut.chars)).collect();
    show_history(call, &history, &left, unread_left, next)
}

/// Returns messages, newest first, up to the limit or as many as fit into a result, and whether there may be older
/// ones. Fetching marks as read, so it fetches in steps, each sized by what is expected to fit.
async fn fetch(
    call: &CallContext,
    session: &SessionId,
    limit: u32,
    before: Option<MessageId>,
) -> Result<(History, bool), OfficeError> {
    let me = call.office.me();
    let mut page = HistoryPage { limit: 1, before };
    let mut history =
        History { session_id: session.clone(), subject: String::new(), messages: Vec::new(), truncated: false };
    let (mut room, mut longest) = (ITEMS_CHARS, 0);
    loop {
        let step = call.office.read(session, page.clone()).await?;
        for message in &step.messages {
            let cost = frame(message, me) + chars_of(message);
            room = room.saturating_sub(cost);
            longest = longest.max(cost).max(frame(message, me) + PREVIEW_CHARS);
        }
        let ended = step.messages.len() < page.limit as usize;
        history.subject = step.subject;
        history.messages.extend(step.messages);
        let wanted = (limit as usize).saturating_sub(history.messages.len());
        if ended || wanted == 0 || room < 2 * longest {
            return Ok((history, !ended));
        }
        page.limit = u32::try_from((room / (2 * longest)).clamp(1, wanted)).unwrap_or(1);
        page.before = history.messages.last().map(|message| message.id.clone());
    }
}

/// The characters of a message's content as shown, data and paths included.
fn chars_of(message: &MessageView) -> usize {
    shown_chars(&content_text(&message.content, &message.parts))
}

/// The size of a message besides its content: ids, names and times, and how to get the rest where it is cut.
fn frame(message: &MessageView, me: &AgentName) -> usize {
    let empty = MessageView { content: String::new(), parts: Vec::new(), ..message.clone() };
    size(&MessageShown::full(&empty, me)) + message.id.as_str().chars().count()
}

/// What was cut from a message.
pub(crate) struct Cut {
    /// Characters of its content, data and paths included.
    pub(crate) chars: usize,
    /// Data and files among them.
    parts: usize,
}

/// Cuts what does not fit. Each message keeps at least a preview; the remaining room goes to the newest first.
pub(crate) fn cut_to_fit(messages: &mut [MessageView], me: &AgentName) -> HashMap<MessageId, Cut> {
    let least: usize = messages.iter().map(|message| frame(message, me) + chars_of(message).min(PREVIEW_CHARS)).sum();
    let mut room = ITEMS_CHARS.saturating_sub(least);
    let mut cut = HashMap::new();
    for message in messages {
        let chars = chars_of(message);
        let most = chars.min(PREVIEW_CHARS) + room;
        if chars > most {
            let whole = content_text(&message.content, &message.parts).into_owned();
            let (start, left) = clip_shown(&whole, most);
            let parts = message.parts.iter().filter(|part| !matches!(part, Part::Text { .. })).count();
            cut.insert(message.id.clone(), Cut { chars: left, parts });
            message.content = start.to_owned();
            message.parts.clear();
        }
        room = most.saturating_sub(chars);
    }
    cut
}

/// The number of messages of this session that the caller has not read.
async fn unread_in(call: &CallContext, session: &SessionId) -> Result<u64, OfficeError> {
    Ok(inbox::find(&*call.office, true, session).await?.map_or(0, |summary| summary.unread_count))
}

/// The rest of one message, from this character on.
async fn read_on(call: &CallContext, id: MessageId, offset: usize) -> Result<ToolAnswer, OfficeError> {
    let message = call.office.message(&id).await?.message;
    let session = message.session.clone().unwrap_or_else(|| SessionId::between(&message.from, &message.to, ""));
    let mut view = MessageView::of(&message, true);
    let whole = content_text(&view.content, &view.parts).into_owned();
    let start = whole.char_indices().nth(offset).map_or(whole.len(), |(at, _)| at);
    let (shown, lacking) = clip_shown(&whole[start..], ITEMS_CHARS);
    if shown.is_empty() {
        return Err(OfficeError::invalid(format!(
            "{id} has {} characters; there is nothing behind",
            whole.chars().count()
        )));
    }
    view.content = shown.to_owned();
    view.parts.clear();
    if message.to == *call.office.me() {
        call.office.ack(std::slice::from_ref(&id)).await?;
        call.seen.mark_shown(id.as_str());
        call.seen.work.shown(&view, &session);
    }
    let mut next = Vec::new();
    if lacking > 0 {
        let offset = offset + shown.chars().count();
        let shown = shown_id(&id);
        next.push(format!("{lacking} characters more: call mailbox_read with message_id={shown} and offset={offset}."));
    }
    let left = HashMap::from([(id, lacking)]);
    let history = History {
        session_id: session,
        subject: message.subject.clone().unwrap_or_default(),
        messages: vec![view],
        truncated: false,
    };
    show_history(call, &history, &left, 0, next)
}

fn show_history(
    call: &CallContext,
    history: &History,
    left: &HashMap<MessageId, usize>,
    unread_left: u64,
    next: Vec<String>,
) -> Result<ToolAnswer, OfficeError> {
    let lacking = |id: &MessageId| left.get(id).copied().unwrap_or(0);
    let mut text = show::conversation(history, call.office.me(), lacking);
    for line in &next {
        text.push_str(line);
        text.push('\n');
    }
    let shown = |message: &MessageView| {
        let more_chars = lacking(&message.id);
        MessageShown { truncated: more_chars > 0, more_chars, ..MessageShown::full(message, call.office.me()) }
    };
    let read = ReadShown {
        note: UNTRUSTED,
        session_id: shown_id(&history.session_id),
        subject: line(&history.subject),
        messages: history.messages.iter().rev().map(shown).collect(),
        unread_left,
        next: (!next.is_empty()).then(|| next.join(" ")),
    };
    ToolAnswer::new(text, &read)
}
