//! `list_peers` and `send_to_peer`: who is there, and a message to one of them.
//!
//! They work on the office's agents, and send durable messages. With live peers they include the goals that run now:
//! those get the message at once, and the durable message is for agents that do not run.

use amb_core::doc::ConnectionStatus;
use amb_core::render::size::clip_line;
use amb_core::render::visible;
use amb_core::wire::inbox::{MAIL_SUBJECT, check_body};
use amb_core::{AgentName, Code, Draft, OfficeError};
use rmcp::model::{JsonObject, Tool};
use serde::{Deserialize, Serialize};
use uuid::Uuid;

use super::post::{MailFallback, PostedMessage, post};
use super::{CallContext, Effect};
use crate::answer::{ToolAnswer, without_commands};
use crate::arguments::{count, filled, parse};
use crate::budget::{TextBudget, size};
use crate::peers::{Mailed, PeerDelivery, PeerListing, PeerNetwork};
use crate::schema::{answer, arguments, flag, hint, list, object, text, whole};
use crate::show;
use crate::view::{UNTRUSTED, is_default, line, note, shown_id, visible_text};

/// The most characters of a description in a list.
const DESCRIPTION_CHARS: usize = 200;

pub(super) fn list_tool() -> Tool {
    let peer = object(&[("agent_id", text()), ("reachable", flag())]);
    super::tool(
        "list_peers",
        "Other agents and whether you may write to them.",
        Effect::Reads,
        arguments(&[("skip", whole())]),
        answer(&[("peers!", list(peer)), ("next_skip", whole())]),
    )
}

pub(super) fn send_tool() -> Tool {
    super::tool(
        "send_to_peer",
        "A note to whoever of a peer runs now, by mail where none does; no thread, no task. For all else mailbox_send.",
        Effect::Adds,
        arguments(&[
            ("to!", hint("agent, or goal id")),
            ("message!", hint("up to 65536 bytes")),
            ("correlation_id", hint("UUID")),
        ]),
        answer(&[("delivered_to!", list(text())), ("unreachable_reasons!", list(text()))]),
    )
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct PeerListArguments {
    #[serde(default, deserialize_with = "count")]
    skip: Option<u32>,
}

#[derive(Serialize)]
struct PeersShown {
    #[serde(skip_serializing_if = "Option::is_none")]
    note: Option<String>,
    peers: Vec<PeerListing>,
    #[serde(skip_serializing_if = "is_default")]
    more: usize,
    /// The `skip` for the next page.
    #[serde(skip_serializing_if = "Option::is_none")]
    next_skip: Option<usize>,
}

pub(super) async fn show_all(call: &CallContext, arguments: Option<JsonObject>) -> Result<ToolAnswer, OfficeError> {
    let PeerListArguments { skip } = parse(arguments)?;
    let (mut all, mut note) = match &call.peers {
        Some(live) => with_live(call, &**live).await?,
        None => (office_peers(call).await?, None),
    };
    all.retain(|peer| peer.agent_id != *call.office.me());
    // Reachable peers come first; the fixed order allows paging.
    all.sort_by(|a, b| (!a.reachable, &a.agent_id).cmp(&(!b.reachable, &b.agent_id)));
    if all.is_empty() && note.is_none() {
        note = Some("no other agent is registered here".into());
    }
    let total = all.len();
    let skip = total.min(skip.unwrap_or(0) as usize);
    let mut budget = TextBudget::new();
    let mut text = String::from(if all.is_empty() { "No other agent is here." } else { show::PEERS_HEAD });
    let mut peers = Vec::new();
    for mut peer in all.drain(skip..) {
        peer.description = short(&peer.description);
        let line = show::peer(&peer);
        if !budget.try_spend(size(&peer).max(line.chars().count())) {
            break;
        }
        text.push_str(&line);
        peers.push(peer);
    }
    let next_skip = skip + peers.len();
    let more = total - next_skip;
    if more > 0 {
        text.push_str(&format!("And {more} more: call list_peers with skip={next_skip}.\n"));
    }
    if let Some(note) = note.as_deref().filter(|_| total > 0) {
        text.push_str(note);
    }
    let notes: Vec<_> = (!peers.is_empty()).then(|| UNTRUSTED.to_owned()).into_iter().chain(note).collect();
    let note = (!notes.is_empty()).then(|| notes.join(" "));
    ToolAnswer::new(text, &PeersShown { note, peers, more, next_skip: (more > 0).then_some(next_skip) })
}

/// Returns the office's agents and the live ones as one list. Where only one of the two is reachable: that one, and a
/// note.
async fn with_live(
    call: &CallContext,
    live: &dyn PeerNetwork,
) -> Result<(Vec<PeerListing>, Option<String>), OfficeError> {
    let (office, running) = tokio::join!(office_peers(call), live.list());
    let (mut peers, running, note) = match (office, running) {
        (Ok(office), Ok(running)) => (office, running, None),
        (Ok(office), Err(error)) => {
            let note = format!("Who runs now is not known: {}", visible_text(error.detail()));
            (office, Vec::new(), Some(note))
        }
        (Err(error), Ok(running)) => {
            let note = format!("Only those that run now are listed: {}", visible_text(error.detail()));
            (Vec::new(), running, Some(note))
        }
        (Err(error), Err(_)) => return Err(error),
    };
    for peer in &mut peers {
        peer.reachable &= live.allows(&peer.agent_id);
    }
    for goal in running {
        match peers.iter_mut().find(|peer| peer.agent_id == goal.agent_id) {
            Some(known) => {
                known.status = goal.status;
                known.reachable = goal.reachable;
                if known.description.is_empty() {
                    known.description = goal.description;
                }
            }
            None => peers.push(goal),
        }
    }
    Ok((peers, note))
}

/// The agents of the office. Where agents connect first, an active connection makes one reachable; elsewhere
/// `allow_from`.
async fn office_peers(call: &CallContext) -> Result<Vec<PeerListing>, OfficeError> {
    let agents = call.office.agents().await?;
    let connected = match call.office.connections().await {
        Ok(connections) => Some(connections),
        Err(error) if error.code() == Code::Unsupported => None,
        Err(error) => return Err(error),
    };
    let me = call.office.me();
    Ok(agents
        .into_iter()
        .map(|agent| {
            let open = match &connected {
                Some(connections) => connections
                    .iter()
                    .any(|link| link.agent_name == agent.name && link.status == ConnectionStatus::Active),
                None => true,
            };
            PeerListing {
                reachable: open && agent.card.allow_from.allows(me),
                status: Some(agent.presence.status.as_str().to_owned()),
                description: agent.card.description,
                agent_id: agent.name,
            }
        })
        .collect())
}

fn short(description: &str) -> String {
    match clip_line(description, DESCRIPTION_CHARS) {
        (_, 0) => line(description),
        (start, _) => format!("{}…", line(start)),
    }
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct PeerSendArguments {
    #[serde(default, deserialize_with = "filled")]
    to: Option<String>,
    message: Option<String>,
    #[serde(default, deserialize_with = "filled")]
    correlation_id: Option<String>,
}

pub(super) async fn send(call: &CallContext, arguments: Option<JsonObject>) -> Result<ToolAnswer, OfficeError> {
    let PeerSendArguments { to, message, correlation_id } = parse(arguments)?;
    let to = to.ok_or_else(|| OfficeError::invalid("`to` is required: the agent_id of a peer, see list_peers"))?;
    let to = to.trim();
    if to == call.office.me().as_str() {
        return Err(OfficeError::invalid("cannot send to yourself; list_peers names the others"));
    }
    let message = message.unwrap_or_default();
    check_body(&message)?;
    let correlation = correlation_id
        .map(|id| Uuid::parse_str(id.trim()))
        .transpose()
        .map_err(|_| OfficeError::invalid("`correlation_id` is a UUID; leave it out if there is nothing to tie to"))?;
    let mut delivery = match &call.peers {
        Some(live) => live_or_by_mail(call, &**live, to, message, correlation).await?,
        None if to == "*" => {
            return Err(OfficeError::invalid("`*` reaches live peers only, and none are set up; name one"));
        }
        None => match to.parse() {
            Ok(to) => {
                let mut mailed = by_mail(call, &to, message, correlation).await?;
                // Without live peers mail is the delivery.
                mailed.delivered_to = mailed.mailed_to.iter().map(|mailed| mailed.message_id.to_string()).collect();
                mailed
            }
            Err(bad) => unreachable(format!("unknown agent_id `{}`: {bad}", line(to))),
        },
    };
    let (reasons, mut budget) = (std::mem::take(&mut delivery.unreachable_reasons), TextBudget::new());
    let all = reasons.len();
    let reasons = reasons.iter().map(|reason| note(&without_commands(reason)));
    delivery.unreachable_reasons = reasons.take_while(|reason| budget.try_spend(size(reason))).collect();
    let more = all - delivery.unreachable_reasons.len();
    if more > 0 {
        delivery.unreachable_reasons.push(format!("{more} more could not be reached"));
    }
    ToolAnswer::new(describe(&line(to), &delivery, call.peers.is_some()), &delivery)
}

/// Sends to live goals first. Where it is unknown who runs now, leaves the message in the mailbox.
async fn live_or_by_mail(
    call: &CallContext,
    live: &dyn PeerNetwork,
    to: &str,
    message: String,
    correlation: Option<Uuid>,
) -> Result<PeerDelivery, OfficeError> {
    let notes = MailFallback::of(call);
    let error = match live.send(to, &message, correlation, &notes).await {
        Err(error) if error.code() == Code::Unavailable && to != "*" => error,
        sent => {
            return sent.map(|delivery| PeerDelivery {
                passes_on: notes.passed_on().iter().map(shown_id).collect(),
                ..delivery
            });
        }
    };
    let to: AgentName = to.parse()?;
    if !live.allows(&to) {
        return Ok(unreachable(format!("agent_id `{to}` is not in this agent's allowed_delegates")));
    }
    let mut delivery = by_mail(call, &to, message, correlation).await?;
    delivery.unreachable_reasons.push(format!("who runs now is not known: {}", error.detail()));
    Ok(delivery)
}

fn describe(to: &str, delivery: &PeerDelivery, live: bool) -> String {
    let mut lines = Vec::new();
    if live && !delivery.delivered_to.is_empty() {
        lines.push(format!("Delivered to {to} (live goals): {}.", delivery.delivered_to.join(", ")));
    }
    if !delivery.published_to.is_empty() {
        let goals = delivery.published_to.join(", ");
        lines.push(format!("Handed to {to}, but not acknowledged: {goals}. It may or may not have it."));
    }
    for Mailed { agent_id, message_id } in &delivery.mailed_to {
        lines.push(format!("Left in the mailbox of {agent_id}: message_id {message_id}."));
    }
    if lines.is_empty() {
        lines.push(format!("Not delivered to {to}."));
    }
    lines.extend(delivery.passes_on.iter().map(|id| format!("It counts as passing on {id}.")));
    lines.extend(delivery.unreachable_reasons.iter().map(|reason| format!("- {}", visible::line(reason))));
    lines.join("\n")
}

async fn by_mail(
    call: &CallContext,
    to: &AgentName,
    message: String,
    correlation: Option<Uuid>,
) -> Result<PeerDelivery, OfficeError> {
    let mut draft = Draft::text(to.clone(), MAIL_SUBJECT, message);
    draft.correlation_id = correlation.map(|id| id.to_string().parse()).transpose()?;
    match post(call, draft, false).await {
        Ok(PostedMessage { sent, passes_on }) => Ok(PeerDelivery {
            mailed_to: vec![Mailed { agent_id: to.clone(), message_id: sent.message_id }],
            passes_on: passes_on.iter().map(shown_id).collect(),
            ..PeerDelivery::default()
        }),
        Err(error) => match error.code() {
            Code::NotFound => Ok(unreachable(format!("unknown agent_id `{to}`: {}", error.detail()))),
            // Where agents connect first, the error is the same for unknown and for unconnected agents.
            Code::NotConnected if !is_listed(call, to).await => {
                Ok(unreachable(format!("unknown agent_id `{to}`: {}", error.detail())))
            }
            Code::NotConnected | Code::NotAllowed | Code::Forbidden => {
                Ok(unreachable(format!("`{to}` cannot be written to: {}", error.detail())))
            }
            _ => Err(error),
        },
    }
}

/// Whether `list_peers` names this agent.
async fn is_listed(call: &CallContext, agent: &AgentName) -> bool {
    call.office.agents().await.is_ok_and(|agents| agents.iter().any(|known| known.name == *agent))
}

fn unreachable(reason: String) -> PeerDelivery {
    PeerDelivery { unreachable_reasons: vec![reason], ..PeerDelivery::default() }
}
