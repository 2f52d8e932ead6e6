//! `mailbox_read`: a thread's messages, whole. Marks what it shows as read.

use amb_core::office::HistoryPage;
use amb_core::{MessageId, OfficeError, SessionId};
use rmcp::model::{JsonObject, Tool};
use serde::{Deserialize, Serialize};

use super::{Desk, Effect};
use crate::answer::Answer;
use crate::arguments::{count, filled, parse};
use crate::schema::{answer, arguments, between, hint, list, object, text};
use crate::show;
use crate::view::{MessageShown, UNTRUSTED, line};

/// Messages shown when no number is asked for.
const USUAL: u32 = 10;

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Arguments {
    session_id: String,
    #[serde(default, deserialize_with = "count")]
    limit: Option<u32>,
    #[serde(default, deserialize_with = "filled")]
    before: Option<String>,
}

pub(super) fn tool() -> Tool {
    let message = object(&[("id!", text()), ("sender_name!", text()), ("content!", text()), ("created_at!", text())]);
    super::tool(
        "mailbox_read",
        "Read a thread's newest messages in full and mark them read.",
        Effect::Marks,
        arguments(&[
            ("session_id!", hint("from mailbox_check")),
            ("limit", between(1, 50)),
            ("before", hint("message id: only older ones")),
        ]),
        answer(&[("session_id!", text()), ("subject!", text()), ("messages!", list(message))]),
    )
}

#[derive(Serialize)]
struct Read {
    session_id: SessionId,
    subject: String,
    messages: Vec<MessageShown>,
    note: &'static str,
}

pub(super) async fn call(desk: &Desk, arguments: Option<JsonObject>) -> Result<Answer, OfficeError> {
    let Arguments { session_id, limit, before } = parse(arguments)?;
    let session: SessionId = session_id.trim().parse()?;
    let mut page = HistoryPage::newest(limit.unwrap_or(USUAL))?;
    page.before = before.map(|id| id.trim().parse::<MessageId>()).transpose()?;
    let history = desk.office.read(&session, page).await?;
    for message in &history.messages {
        desk.seen.first_time(message.id.as_str());
    }
    let read = Read {
        session_id: history.session_id.clone(),
        subject: line(&history.subject),
        messages: history.messages.iter().map(MessageShown::full).collect(),
        note: UNTRUSTED,
    };
    Answer::new(show::conversation(&history, desk.office.me()), &read)
}
