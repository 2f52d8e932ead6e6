//! `list_peers` and `send_to_peer`: who is there, and a word to one of them.
//!
//! With live peers at hand they speak of goals that run now. Otherwise they speak of the office's agents, and what is sent
//! is durable mail.

use amb_core::doc::ConnectionStatus;
use amb_core::{Code, Draft, OfficeError};
use rmcp::model::{JsonObject, Tool};
use serde::{Deserialize, Serialize};
use uuid::Uuid;

use super::{Desk, Effect};
use crate::answer::Answer;
use crate::arguments::{Nothing, filled, parse};
use crate::peers::{Delivery, Peer};
use crate::schema::{answer, arguments, flag, hint, list, object, text};
use crate::show;
use crate::view::line;

/// Largest message between live peers, in bytes; durable mail keeps to the same, so that a peer may be either.
const MAX_BODY_BYTES: usize = 64 * 1024;
/// The thread in which durable peer messages are kept.
const SUBJECT: &str = "peer message";
/// Characters of a description that a list shows.
const DESCRIPTION_CHARS: usize = 200;

pub(super) fn list_tool() -> Tool {
    let peer = object(&[("agent_id!", text()), ("description!", text()), ("reachable!", flag()), ("status", text())]);
    super::tool(
        "list_peers",
        "Other agents and whether you may write to them.",
        Effect::Reads,
        arguments(&[]),
        answer(&[("peers!", list(peer)), ("note", text())]),
    )
}

pub(super) fn send_tool() -> Tool {
    super::tool(
        "send_to_peer",
        "A quick note to a peer, without a subject.",
        Effect::Adds,
        arguments(&[("to!", text()), ("message!", text()), ("correlation_id", hint("UUID"))]),
        answer(&[("delivered_to!", list(text())), ("unreachable_reasons!", list(text()))]),
    )
}

#[derive(Serialize)]
struct Peers {
    peers: Vec<Peer>,
    #[serde(skip_serializing_if = "Option::is_none")]
    note: Option<&'static str>,
}

pub(super) async fn show_all(desk: &Desk, arguments: Option<JsonObject>) -> Result<Answer, OfficeError> {
    let Nothing {} = parse(arguments)?;
    let mut peers = match &desk.peers {
        Some(live) => live.list().await?,
        None => office_peers(desk).await?,
    };
    peers.retain(|peer| peer.agent_id != *desk.office.me());
    for peer in &mut peers {
        peer.description = short(&peer.description);
    }
    let note = peers.is_empty().then_some("no other agent is registered here");
    let text = show::peers(&peers);
    Answer::new(text, &Peers { peers, note })
}

/// The agents of the office. Where agents connect first, an active connection makes one reachable; elsewhere `allow_from`.
async fn office_peers(desk: &Desk) -> Result<Vec<Peer>, OfficeError> {
    let agents = desk.office.agents().await?;
    let connected = match desk.office.connections().await {
        Ok(connections) => Some(connections),
        Err(error) if error.code() == Code::Unsupported => None,
        Err(error) => return Err(error),
    };
    let me = desk.office.me();
    Ok(agents
        .into_iter()
        .map(|agent| {
            let open = match &connected {
                Some(connections) => connections
                    .iter()
                    .any(|link| link.agent_name == agent.name && link.status == ConnectionStatus::Active),
                None => true,
            };
            Peer {
                reachable: open && agent.card.allow_from.allows(me),
                status: Some(agent.presence.status.as_str().to_owned()),
                description: agent.card.description,
                agent_id: agent.name,
            }
        })
        .collect())
}

fn short(description: &str) -> String {
    match description.char_indices().nth(DESCRIPTION_CHARS) {
        Some((end, _)) => format!("{}…", line(&description[..end])),
        None => line(description),
    }
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct SendArguments {
    #[serde(default, deserialize_with = "filled")]
    to: Option<String>,
    #[serde(default)]
    message: Option<String>,
    #[serde(default, deserialize_with = "filled")]
    correlation_id: Option<String>,
}

pub(super) async fn send(desk: &Desk, arguments: Option<JsonObject>) -> Result<Answer, OfficeError> {
    let SendArguments { to, message, correlation_id } = parse(arguments)?;
    let to = to.ok_or_else(|| OfficeError::invalid("`to` is required: the agent_id of a peer, see list_peers"))?;
    let to: amb_core::AgentName = to.trim().parse()?;
    if to == *desk.office.me() {
        return Err(OfficeError::invalid("cannot send to yourself; list_peers names the others"));
    }
    let message = message.filter(|message| !message.trim().is_empty());
    let message = message.ok_or_else(|| OfficeError::invalid("`message` is empty; say something"))?;
    if message.len() > MAX_BODY_BYTES {
        let size = message.len();
        return Err(OfficeError::too_large(format!("`message` is {size} bytes, at most {MAX_BODY_BYTES}")));
    }
    let correlation = correlation_id
        .map(|id| Uuid::parse_str(id.trim()))
        .transpose()
        .map_err(|_| OfficeError::invalid("`correlation_id` is a UUID; leave it out if there is nothing to tie to"))?;
    let (delivery, how) = match &desk.peers {
        Some(live) => (live.send(&to, &message, correlation).await?, "live goals"),
        None => (by_mail(desk, &to, message, correlation).await?, "its mailbox"),
    };
    let mut text = match delivery.delivered_to.as_slice() {
        [] => format!("Not delivered to {to}."),
        ids => format!("Delivered to {to} ({how}): {}.", ids.join(", ")),
    };
    for reason in &delivery.unreachable_reasons {
        text.push_str("\n- ");
        text.push_str(&line(reason));
    }
    if delivery.delivered_to.is_empty() && desk.peers.is_some() {
        text.push_str("\nNext: mailbox_send leaves durable mail that waits for it.");
    }
    Answer::new(text, &delivery)
}

async fn by_mail(
    desk: &Desk,
    to: &amb_core::AgentName,
    message: String,
    correlation: Option<Uuid>,
) -> Result<Delivery, OfficeError> {
    let mut draft = Draft::text(to.clone(), SUBJECT, message);
    draft.correlation_id = correlation.map(|id| id.to_string().parse()).transpose()?;
    match desk.office.send(draft).await {
        Ok(sent) => Ok(Delivery { delivered_to: vec![sent.message_id.to_string()], unreachable_reasons: Vec::new() }),
        Err(error) => match error.code() {
            Code::NotFound => Ok(unreachable(format!("unknown agent_id `{to}`: {}", error.detail()))),
            Code::NotConnected | Code::NotAllowed | Code::Forbidden => {
                Ok(unreachable(format!("`{to}` cannot be written to: {}", error.detail())))
            }
            _ => Err(error),
        },
    }
}

fn unreachable(reason: String) -> Delivery {
    Delivery { delivered_to: Vec::new(), unreachable_reasons: vec![reason] }
}
