//! Mail to groups, and to many.

use amb_core::id::fresh_uuid;
use amb_core::send::{Accepted, Named, Place, Recipient, decide};
use amb_core::stepping_in::check_open;
use amb_core::{AgentName, Draft, MessageId, Timestamp};
use deadpool_postgres::Transaction;
use uuid::Uuid;

use super::batch::{self, Outcome};
use super::engine::Reading;
use super::messages::{self, Found};
use super::recipients::{self, Recipients};
use super::write::{Heads, Pages, To};
use crate::columns::Columns;
use crate::engine::{Failed, Query, values};
use crate::error::Result;
use crate::outgoing::{OutgoingMessage, Placed, Subject, no_session};
use crate::quota::{Account, Stored};
use crate::refusals;
use crate::types::Agent;
use crate::verbs::{audience, joined, stored_by};

/// Writes a message into the group's session of its subject, and into the log of each other member. `held` are the locks of
/// the transaction, where it has taken all that it may.
pub(super) async fn send(
    tx: &Transaction<'_>,
    account: &Account,
    caller: &Agent,
    message: &OutgoingMessage,
    held: Option<&Heads>,
) -> Result<Outcome, Failed> {
    let me = caller.key.0;
    let (group, mut heads) = lock_audience(tx, caller, &message.to, held).await?;
    // Under the locks: whoever left or blocked the sender before is not written to.
    group_of(tx, &message.to, me).await?;
    let members = audience(&mut Reading(tx), group, caller).await?;
    if members.iter().any(|member| !heads.holds(member.agent.0)) {
        return Err(Failed::changed());
    }
    let mut agents: Vec<i64> = members.iter().map(|member| member.agent.0).collect();
    agents.push(me);
    if let Some(once) = &message.once
        && let Some((hash, sent)) = batch::answer_before(tx, me, &once.key).await?
    {
        return Ok(batch::repeat(once, &hash, sent.as_ref())?);
    }
    let found = match message.parent {
        Some(parent) => messages::find(tx, parent.id).await?,
        None => None,
    };
    let found = messages::parent(found.as_ref(), caller, message);
    let in_group = match found {
        Some(found) => {
            let sql = "SELECT 1 FROM sessions WHERE id = $1 AND group_id = $2";
            Reading(tx).exists(sql, values![found.session, group]).await?
        }
        None => false,
    };
    let answered = found.filter(|_| in_group && message.reply_to().is_some()).map(|found| found.row.session);
    let named = match message.session {
        None => Named::None,
        Some(id) => match session_group(tx, id).await? {
            None => Named::Missing,
            Some(of) if of == Some(group) => Named::Shared(id),
            Some(_) => Named::Other,
        },
    };
    let storage =
        account.storage(stored_by(&mut Reading(tx), me).await?, Stored::default(), message.stored(members.len()));
    let parent_id: Option<MessageId> = message.parent.map(|parent| parent.id.into());
    let found = found.map(Found::message).transpose()?;
    let mut facts = message.facts(Recipient::Group { copies: members.len(), size: message.size() }, storage);
    facts.parent = message.parent_fact(parent_id.as_ref(), found.as_ref(), in_group);
    (facts.session, facts.answered) = (named, answered);
    let Accepted { hop, place, .. } = decide(facts)?;
    let (session, public_id, subject) = session(tx, group, me, message, place).await?;
    let enter = tx
        .prepare_cached(
            "INSERT INTO session_members (agent_id, session_id) SELECT unnest($1::bigint[]), $2 ON CONFLICT DO NOTHING",
        )
        .await?;
    tx.execute(&enter, &[&agents, &session]).await?;
    let mut pages = Pages::default();
    pages.waited_since(message.came);
    let post = Columns::new(caller, message, &hop, None)?;
    let copies = pages.post(&mut heads, session, post, To::Group(&members));
    let placed = Placed {
        session: public_id,
        subject: subject.into(),
        copies,
        task: None,
        reason: None,
        paused: false,
        more: Vec::new(),
    };
    let retimed = pages.write(tx).await?;
    account.add_to_office(pages.charged());
    let message = OutgoingMessage { at: retimed.of(message.id).unwrap_or(message.at), ..message.clone() };
    if let Some(once) = &message.once {
        batch::remember(tx, me, once, &message.sent(&placed), message.at).await?;
    }
    Ok(Outcome::Placed(Box::new((message, placed))))
}

/// The group of this name, which the agent has joined.
async fn group_of(tx: &Transaction<'_>, name: &AgentName, agent: i64) -> Result<i64, Failed> {
    Ok(joined(&mut Reading(tx), name, agent).await?.ok_or_else(|| refusals::not_connected(name))?)
}

/// Locks the mailboxes of a group's audience and the sender's. Who the audience is has to be asked again under the locks.
async fn lock_audience(
    tx: &Transaction<'_>,
    caller: &Agent,
    name: &AgentName,
    held: Option<&Heads>,
) -> Result<(i64, Heads), Failed> {
    let group = group_of(tx, name, caller.key.0).await?;
    let members = audience(&mut Reading(tx), group, caller).await?;
    let mut agents: Vec<i64> = members.iter().map(|member| member.agent.0).collect();
    agents.push(caller.key.0);
    // A mailbox that is locked after others would be out of order.
    if held.is_some_and(|held| agents.iter().any(|agent| !held.holds(*agent))) {
        return Err(Failed::changed());
    }
    Ok((group, Heads::lock(tx, &agents).await?))
}

/// The group of a session: `None` where there is no such session, `Some(None)` where it is none of a group's.
async fn session_group(tx: &Transaction<'_>, id: Uuid) -> Result<Option<Option<i64>>, Failed> {
    let found = Reading(tx).find("SELECT group_id FROM sessions WHERE public_id = $1", values![id]).await?;
    Ok(found.map(|(group,)| group))
}

/// The session in which a message lies, made where it is missing.
async fn session(
    tx: &Transaction<'_>,
    group: i64,
    me: i64,
    message: &OutgoingMessage,
    place: Place<Uuid>,
) -> Result<(i64, Uuid, String), Failed> {
    let select = "SELECT id, public_id, subject, ended_by FROM sessions";
    let mut db = Reading(tx);
    let found: Option<(i64, Uuid, String, Option<String>)> = match (place, &message.subject) {
        (Place::Session(id), _) => db.find(&format!("{select} WHERE public_id = $1"), values![id]).await?,
        (Place::Subject, Some(Subject { subject, key })) => {
            let insert = tx
                .prepare_cached(
                    "INSERT INTO sessions (public_id, subject, subject_key, initiator_id, group_id, created_at)
                     VALUES ($1, $2, $3, $4, $5, $6)
                     ON CONFLICT (group_id, subject_key) WHERE group_id IS NOT NULL DO NOTHING",
                )
                .await?;
            let select = format!("{select} WHERE group_id = $1 AND subject_key = $2");
            match db.find(&select, values![group, key]).await? {
                None => {
                    tx.execute(&insert, &[&fresh_uuid(message.at), subject, key, &me, &group, &message.at]).await?;
                    db.find(&select, values![group, key]).await?
                }
                found => found,
            }
        }
        (Place::Subject, None) => None,
    };
    let (id, public_id, subject, ended_by) = found.ok_or_else(no_session)?;
    check_open(ended_by.as_deref())?;
    Ok((id, public_id, subject))
}

/// Sends one draft to each of several agents, all or none.
pub(super) async fn send_all(
    tx: &Transaction<'_>,
    account: &Account,
    caller: &Agent,
    to: &[AgentName],
    draft: &Draft,
    now: Timestamp,
) -> Result<Vec<(OutgoingMessage, Placed)>, Failed> {
    let Recipients { names, heads } = recipients::lock(tx, caller, to).await?;
    let messages = names
        .into_iter()
        .map(|name| {
            let draft = Draft { to: name, idempotency_key: None, ..draft.clone() };
            Ok((caller.clone(), OutgoingMessage::new(&caller.name, draft, now)?))
        })
        .collect::<Result<Vec<_>>>()?;
    let mut sent = Vec::with_capacity(messages.len());
    for outcome in batch::write_in(tx, account, &messages).await? {
        match outcome? {
            Outcome::Placed(placed) => sent.push(*placed),
            Outcome::NoAgent(message) => match send(tx, account, caller, &message, Some(&heads)).await? {
                Outcome::Placed(placed) => sent.push(*placed),
                Outcome::Repeat(_) | Outcome::NoAgent(_) => return Err(refusals::not_connected(&message.to).into()),
            },
            Outcome::Repeat(_) => {}
        }
    }
    draft.check_copies(sent.iter().map(|(_, placed)| placed.copies.len()).sum())?;
    Ok(sent)
}
