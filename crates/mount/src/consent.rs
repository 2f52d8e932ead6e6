//! Who may write across the mount.
//!
//! A resident accepts mail from the agents in its card's `allow_from`; the mount answers connection requests
//! accordingly. `*` there means the agents of the directory, and those that the resident wrote to first, so that they
//! can answer. It means every agent of the office only if the operator opened the mount ([`crate::Terms::open`]).
//!
//! A guest is asked for consent by a connection request, like any agent of the office, while the mail waits. A guest
//! whose own `allow_from` names the resident has consented already.

use amb_core::doc::{ConnectionChange, ConnectionStatus};
use amb_core::error::if_found;
use amb_core::{AgentName, Code, OfficeError, Timestamp};
use amb_store::{Agent, Ask};

use crate::context::Context;
use crate::membership::Resident;

/// Whether a resident may send to an agent without a connection.
#[derive(Debug, PartialEq)]
pub(crate) enum ConsentAnswer {
    /// They are connected now.
    Go,
    /// The agent has not decided yet.
    Wait,
    /// The agent refused, with the reason.
    Refuse(String),
}

/// Whether a resident accepts mail from an agent of the office.
pub(crate) async fn accepts_mail_from(
    context: &Context,
    resident: &Resident,
    from: &AgentName,
) -> Result<bool, OfficeError> {
    let allowed = &resident.card.allow_from;
    if allowed.names(from) {
        return Ok(true);
    }
    Ok(allowed.allows(from) && (context.terms.open || context.ledger.is_contact(&resident.agent.name, from).await?))
}

/// Returns why a resident refuses mail from an agent of the office.
pub(crate) fn not_accepted(resident: &AgentName, from: &AgentName) -> String {
    format!(
        "{resident} does not take mail from {from}: its allow_from does not name {from}, and `*` means its own directory"
    )
}

/// Approves or rejects a connection request to a resident, by its card.
pub(crate) async fn answer(context: &Context, resident: &Agent, from: &AgentName) -> Result<(), OfficeError> {
    let Some(known) = context.membership.resident(&resident.name) else { return Ok(()) };
    let now = Timestamp::now();
    let answered = if accepts_mail_from(context, &known, from).await? {
        let accepted = context.store.accept_connection(resident, from, now).await;
        accepted.map(|written| drop(context.publish(written)))
    } else {
        let rejected = context.store.change_connection(resident, from, ConnectionChange::Reject, now).await;
        rejected.map(|written| drop(context.publish(written)))
    };
    match answered {
        // Already answered, expired, or withdrawn.
        Err(error) if matches!(error.code(), Code::NotFound | Code::Gone | Code::Conflict) => Ok(()),
        answered => answered,
    }
}

/// Decides about a message that has waited since `since`; requests a connection if there is no request yet.
pub(crate) async fn ask(
    context: &Context,
    resident: &Resident,
    guest: &AgentName,
    since: Timestamp,
) -> Result<ConsentAnswer, OfficeError> {
    let (me, now) = (&resident.agent, Timestamp::now());
    let connections = context.store.connections(me).await?;
    let standing = connections.iter().find(|connection| connection.agent_name == *guest);
    let mut requested = false;
    match standing.map(|standing| (standing.status, standing.outgoing)) {
        Some((ConnectionStatus::Active, _)) => return Ok(ConsentAnswer::Go),
        Some((ConnectionStatus::Pending, true)) => requested = true,
        // Decided after the message was written. A later message may request again.
        Some((ConnectionStatus::Rejected, true) | (ConnectionStatus::Revoked, _))
            if standing.is_some_and(|standing| standing.updated_at >= since) =>
        {
            return Ok(ConsentAnswer::Refuse(format!("{guest} does not want a connection with {}", me.name)));
        }
        _ => {}
    }
    if !requested {
        let ask = Ask {
            private_code: context.terms.private_codes,
            expires_at: now.checked_add(context.terms.code_ttl).ok(),
            max_pending: Some(context.terms.max_pending),
            ..Ask::new(guest.clone(), Some(format!("{} has mail for you; it lives in a mounted directory", me.name)))
        };
        match context.store.request_connection(me, ask, now).await {
            Ok(written) => drop(context.publish(written)),
            Err(error) => {
                return match error.code() {
                    // A concurrent request was first, or too many are pending: decided by the next round.
                    Code::Conflict | Code::TooManyRequests => Ok(ConsentAnswer::Wait),
                    Code::NotAllowed | Code::NotFound | Code::Invalid => Ok(ConsentAnswer::Refuse(error.to_string())),
                    _ => Err(error),
                };
            }
        }
    }
    let entry = if_found(context.store.agent(me, guest, now).await)?;
    let named = entry.is_some_and(|entry| entry.card.allow_from.names(&me.name));
    if named && let Some(target) = context.store.agent_by_name(guest).await? {
        context.publish(context.store.accept_connection(&target, &me.name, now).await?);
        return Ok(ConsentAnswer::Go);
    }
    if !requested {
        tracing::info!(from = %me.name, to = %guest, "requested a connection; mail waits for consent");
    }
    Ok(ConsentAnswer::Wait)
}
