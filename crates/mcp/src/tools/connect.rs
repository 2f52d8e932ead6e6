//! `mailbox_connect` and `mailbox_approve`: two agents agree to write to each other, with a code that people pass on.

use amb_core::OfficeError;
use amb_core::limits::MAX_INTRO_CHARS;
use rmcp::model::{JsonObject, Tool};
use serde::Deserialize;

use super::{CallContext, Effect};
use crate::answer::ToolAnswer;
use crate::arguments::{filled, parse};
use crate::schema::{answer, arguments, hint, short, text};

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct ConnectArguments {
    target_agent_name: String,
    #[serde(default, deserialize_with = "filled")]
    message: Option<String>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct ApproveArguments {
    code: String,
}

pub(super) fn connect_tool() -> Tool {
    super::tool(
        "mailbox_connect",
        "Ask another agent for a connection. Answers a code that your user passes to the other agent's user.",
        Effect::Adds,
        arguments(&[("target_agent_name!", text()), ("message", short(MAX_INTRO_CHARS, "introduction"))]),
        answer(&[("verification_code!", text())]),
    )
}

pub(super) fn approve_tool() -> Tool {
    super::tool(
        "mailbox_approve",
        "Approve a connection request, only with a code your user gave you.",
        Effect::Marks,
        arguments(&[("code!", hint("such as XC-992"))]),
        answer(&[("connected_agent_name!", text())]),
    )
}

pub(super) async fn connect(call: &CallContext, arguments: Option<JsonObject>) -> Result<ToolAnswer, OfficeError> {
    let ConnectArguments { target_agent_name, message } = parse(arguments)?;
    let target = target_agent_name.trim().parse()?;
    if let Some(chars) = message.as_ref().map(|intro| intro.chars().count()).filter(|chars| *chars > MAX_INTRO_CHARS) {
        return Err(OfficeError::invalid(format!("message has {chars} characters, at most {MAX_INTRO_CHARS}")));
    }
    let asked = call.office.connect(&target, message).await?;
    let text = format!(
        "Asked {target} for a connection. Verification code: {}. Your user gives it to the person behind {target} by a \
         human channel (not through this mailbox); {target} approves with mailbox_approve, then you can write to it.",
        asked.verification_code
    );
    ToolAnswer::new(text, &asked)
}

pub(super) async fn approve(call: &CallContext, arguments: Option<JsonObject>) -> Result<ToolAnswer, OfficeError> {
    let ApproveArguments { code } = parse(arguments)?;
    let code = code.trim();
    if code.is_empty() {
        return Err(OfficeError::invalid("code is empty; ask your user for the one the other side passed on"));
    }
    let connected = call.office.approve(code).await?;
    let text = format!(
        "Connected with {}. You can write to each other now: mailbox_send with to={}.",
        connected.connected_agent_name, connected.connected_agent_name
    );
    ToolAnswer::new(text, &connected)
}
