//! Groups: who is in them, and mail to all of them.

use amb_core::doc::Group;
use amb_core::id::fresh_uuid;
use amb_core::{AgentName, Draft, Kind, Timestamp};
use deadpool_postgres::Transaction;
use uuid::Uuid;

use super::agents;
use super::batch::{self, Outcome, letter_post};
use super::error::{Trouble, is_taken};
use super::group_list::load;
use super::messages::{self, Found};
use super::recipients::{self, Recipients};
use super::usage;
use super::write::{Heads, Pages, To};
use crate::error::Result;
use crate::outgoing::{self, OutgoingMessage, Placed, no_session};
use crate::quota::Account;
use crate::row;
use crate::types::{Agent, Written};
use crate::words;

pub(super) async fn create(
    tx: &Transaction<'_>,
    caller: &Agent,
    name: &AgentName,
    now: Timestamp,
) -> Result<Group, Trouble> {
    // Names of agents and of groups are one space: whoever takes one says so to all.
    lock_names(tx).await?;
    if agents::is_agent(tx, name).await? || is_group(tx, name).await? {
        return Err(words::name_taken(name).into());
    }
    let insert =
        tx.prepare_cached("INSERT INTO groups (name, owner_id, created_at) VALUES ($1, $2, $3) RETURNING id").await?;
    let id: i64 = match tx.query_one(&insert, &[&name.as_str(), &caller.key.0, &now]).await {
        Ok(row) => row.try_get(0)?,
        Err(error) if is_taken(&error) => return Err(words::name_taken(name).into()),
        Err(error) => return Err(error.into()),
    };
    put_member(tx, id, caller.key.0, true).await?;
    load(tx, id).await
}

/// Held until the end of the transaction by whoever takes a name.
pub(super) async fn lock_names(tx: &Transaction<'_>) -> Result<(), Trouble> {
    let lock = tx.prepare_cached("SELECT pg_advisory_xact_lock(7461627)").await?;
    tx.execute(&lock, &[]).await?;
    Ok(())
}

/// Whether a group has this name.
pub(super) async fn is_group(tx: &Transaction<'_>, name: &AgentName) -> Result<bool, Trouble> {
    let select = tx.prepare_cached(r#"SELECT 1 FROM groups WHERE lower(name COLLATE "C") = $1 LIMIT 1"#).await?;
    Ok(tx.query_opt(&select, &[&name.folded()]).await?.is_some())
}

async fn put_member(tx: &Transaction<'_>, group: i64, agent: i64, joined: bool) -> Result<(), Trouble> {
    let insert = tx
        .prepare_cached(
            "INSERT INTO group_members (group_id, agent_id, joined) VALUES ($1, $2, $3) ON CONFLICT DO NOTHING",
        )
        .await?;
    tx.execute(&insert, &[&group, &agent, &joined]).await?;
    Ok(())
}

/// A group by name: its row, its owner, and whether the agent has joined it (`None` where it was never asked).
async fn find(tx: &Transaction<'_>, name: &AgentName, agent: i64) -> Result<Option<(i64, i64, Option<bool>)>, Trouble> {
    let select = tx
        .prepare_cached(
            r#"SELECT g.id, g.owner_id, m.joined FROM groups g
               LEFT JOIN group_members m ON m.group_id = g.id AND m.agent_id = $2
               WHERE lower(g.name COLLATE "C") = $1 ORDER BY g.name = $3 DESC LIMIT 1"#,
        )
        .await?;
    let row = tx.query_opt(&select, &[&name.folded(), &agent, &name.as_str()]).await?;
    Ok(row.map(|row| (row.get(0), row.get(1), row.get(2))))
}

/// The group of this name, which must be the caller's.
async fn own(tx: &Transaction<'_>, caller: &Agent, group: &AgentName) -> Result<i64, Trouble> {
    match find(tx, group, caller.key.0).await? {
        Some((id, owner, Some(_))) if owner == caller.key.0 => Ok(id),
        Some((_, _, Some(_))) => Err(words::not_the_owner().into()),
        _ => Err(words::no_group(group).into()),
    }
}

/// Whether the agent is in the group, or was invited.
async fn is_in(tx: &Transaction<'_>, group: i64, agent: i64) -> Result<bool, Trouble> {
    let select = tx.prepare_cached("SELECT FROM group_members WHERE group_id = $1 AND agent_id = $2").await?;
    Ok(tx.query_opt(&select, &[&group, &agent]).await?.is_some())
}

/// Invites, and tells the invited by mail, which the two may exchange.
pub(super) async fn invite(
    tx: &Transaction<'_>,
    account: &Account,
    caller: &Agent,
    group: &AgentName,
    agent: &AgentName,
    now: Timestamp,
) -> Result<Written<Group>, Trouble> {
    own(tx, caller, group).await?;
    let Some(peer) = agents::by_name(tx, agent).await? else { return Err(words::not_connected(agent).into()) };
    let peer = peer.key.0;
    // Whose group it is and who is in it changes only under the locks of those whom it concerns.
    Heads::lock(tx, &[caller.key.0, peer]).await?;
    let id = own(tx, caller, group).await?;
    if is_in(tx, id, peer).await? {
        return Ok(Written::quiet(load(tx, id).await?));
    }
    let letter = OutgoingMessage::new(&caller.name, words::invitation(group, agent, &caller.name)?, now)?;
    let news = match batch::write_in(tx, account, &[(caller.clone(), letter)]).await?.pop() {
        Some(Ok(Outcome::Placed(placed))) => {
            let (letter, placed) = *placed;
            letter.into_written(placed).news
        }
        Some(Err(error)) => return Err(error.into()),
        _ => return Err(words::not_connected(agent).into()),
    };
    put_member(tx, id, peer, false).await?;
    let group = load(tx, id).await?;
    // The caller's lock is held, and only the owner invites: nobody else makes it larger meanwhile.
    words::check_members(&group)?;
    Ok(Written { answer: group, news })
}

pub(super) async fn join(
    tx: &Transaction<'_>,
    caller: &Agent,
    group: &AgentName,
    joined: bool,
) -> Result<Group, Trouble> {
    // A send to the group holds the locks of its members from before it looks who they are until it is committed: when this
    // is answered, no send is under way that saw the caller otherwise.
    Heads::lock(tx, &[caller.key.0]).await?;
    let Some((id, _, Some(_))) = find(tx, group, caller.key.0).await? else {
        return Err(words::no_group(group).into());
    };
    if !joined {
        leave(tx, id, caller.key.0).await?;
        return load(tx, id).await;
    }
    // The last member that leaves takes invitations back under the group's lock and without the caller's.
    lock_group(tx, id).await?;
    let update =
        tx.prepare_cached("UPDATE group_members SET joined = TRUE WHERE group_id = $1 AND agent_id = $2").await?;
    match tx.execute(&update, &[&id, &caller.key.0]).await? {
        0 => Err(words::no_group(group).into()),
        _ => load(tx, id).await,
    }
}

/// Locks a group, so that of two that leave at once the second sees what the first left. Returns its owner.
async fn lock_group(tx: &Transaction<'_>, group: i64) -> Result<i64, Trouble> {
    let lock = tx.prepare_cached("SELECT owner_id FROM groups WHERE id = $1 FOR NO KEY UPDATE").await?;
    Ok(tx.query_one(&lock, &[&group]).await?.try_get(0)?)
}

/// Takes an agent out of a group. One that its owner leaves is the member's that registered first; without a member
/// nobody is invited any more either.
async fn leave(tx: &Transaction<'_>, group: i64, agent: i64) -> Result<(), Trouble> {
    let owner = lock_group(tx, group).await?;
    let delete = tx.prepare_cached("DELETE FROM group_members WHERE group_id = $1 AND agent_id = $2").await?;
    tx.execute(&delete, &[&group, &agent]).await?;
    let first = tx.prepare_cached("SELECT min(agent_id) FROM group_members WHERE group_id = $1 AND joined").await?;
    match tx.query_one(&first, &[&group]).await?.try_get::<_, Option<i64>>(0)? {
        Some(next) if owner == agent => {
            let update = tx.prepare_cached("UPDATE groups SET owner_id = $2 WHERE id = $1").await?;
            tx.execute(&update, &[&group, &next]).await?;
        }
        Some(_) => {}
        None => {
            let uninvite = tx.prepare_cached("DELETE FROM group_members WHERE group_id = $1").await?;
            tx.execute(&uninvite, &[&group]).await?;
        }
    }
    Ok(())
}

/// Takes an agent that leaves the office out of all groups.
pub(super) async fn leave_all(tx: &Transaction<'_>, agent: i64) -> Result<(), Trouble> {
    let select = tx.prepare_cached("SELECT group_id FROM group_members WHERE agent_id = $1 ORDER BY group_id").await?;
    for row in tx.query(&select, &[&agent]).await? {
        leave(tx, row.try_get(0)?, agent).await?;
    }
    Ok(())
}

pub(super) async fn remove(
    tx: &Transaction<'_>,
    caller: &Agent,
    group: &AgentName,
    agent: &AgentName,
) -> Result<Group, Trouble> {
    own(tx, caller, group).await?;
    let Some(peer) = agents::by_name(tx, agent).await? else { return Err(words::no_member(group, agent).into()) };
    if peer.key == caller.key {
        return Err(words::remove_oneself(group).into());
    }
    // As in `join`: with the lock of whoever is removed, no mail reaches it after this is answered.
    Heads::lock(tx, &[caller.key.0, peer.key.0]).await?;
    let id = own(tx, caller, group).await?;
    if !is_in(tx, id, peer.key.0).await? {
        return Err(words::no_member(group, agent).into());
    }
    leave(tx, id, peer.key.0).await?;
    load(tx, id).await
}

/// Writes a letter into the group's session of its subject, and into the log of each other member. `held` are the locks of
/// the transaction, where it has taken all that it may.
pub(super) async fn send(
    tx: &Transaction<'_>,
    account: &Account,
    caller: &Agent,
    letter: &OutgoingMessage,
    held: Option<&Heads>,
) -> Result<Outcome, Trouble> {
    let me = caller.key.0;
    let (group, mut heads) = lock_audience(tx, caller, &letter.to, held).await?;
    if letter.kind == Kind::Task {
        return Err(words::no_task_to_group().into());
    }
    // Under the locks: whoever left or blocked the sender before is not written to.
    joined(tx, &letter.to, me).await?;
    let members = audience(tx, group, caller).await?;
    if members.iter().any(|member| !heads.holds(*member)) {
        return Err(Trouble::Changed);
    }
    letter.check_copies(members.len())?;
    let mut agents = members.clone();
    agents.push(me);
    if let Some(once) = &letter.once
        && let Some((hash, sent)) = batch::answer_before(tx, me, &once.key).await?
    {
        return Ok(batch::repeat(once, &hash, sent.as_ref())?);
    }
    let found = match letter.parent {
        Some(parent) => messages::find(tx, parent.id).await?,
        None => None,
    };
    let found = messages::parent(found.as_ref(), caller, letter)?;
    let in_group = match found {
        Some(found) => is_of_group(tx, found.session, group).await?,
        None => false,
    };
    let answered = found.filter(|_| in_group && letter.reply_to().is_some()).map(|found| found.row.session);
    let hop = letter.hop(found.map(Found::message).transpose()?.as_ref(), in_group)?;
    usage::check(tx, account, me, letter.stored(members.len())).await?;
    let (session, public_id, subject) = session(tx, group, me, letter, answered).await?;
    let enter = tx
        .prepare_cached(
            "INSERT INTO session_members (agent_id, session_id) SELECT unnest($1::bigint[]), $2 ON CONFLICT DO NOTHING",
        )
        .await?;
    tx.execute(&enter, &[&agents, &session]).await?;
    let mut pages = Pages::default();
    pages.waited_since(letter.came);
    let post = letter_post(caller, letter, &hop, None)?;
    let copies = pages.post(&mut heads, session, post, To::Group(&members));
    let placed =
        Placed { session: public_id, subject: subject.into(), copies, task: None, reason: None, more: Vec::new() };
    let retimed = pages.write(tx).await?;
    account.add_to_office(pages.charged());
    let letter = OutgoingMessage { at: retimed.of(letter.id).unwrap_or(letter.at), ..letter.clone() };
    if let Some(once) = &letter.once {
        batch::remember(tx, me, once, &letter.sent(&placed), letter.at).await?;
    }
    Ok(Outcome::Placed(Box::new((letter, placed))))
}

/// The group of this name that the agent has joined.
async fn joined(tx: &Transaction<'_>, name: &AgentName, agent: i64) -> Result<i64, Trouble> {
    match find(tx, name, agent).await? {
        Some((id, _, Some(true))) => Ok(id),
        Some((_, _, Some(false))) => Err(words::not_in_group(name).into()),
        _ => Err(words::not_connected(name).into()),
    }
}

/// Locks the mailboxes of a group's audience and the sender's. Who the audience is has to be asked again under the locks.
async fn lock_audience(
    tx: &Transaction<'_>,
    caller: &Agent,
    name: &AgentName,
    held: Option<&Heads>,
) -> Result<(i64, Heads), Trouble> {
    let group = joined(tx, name, caller.key.0).await?;
    let mut agents = audience(tx, group, caller).await?;
    agents.push(caller.key.0);
    // A mailbox that is locked after others would be out of order.
    if held.is_some_and(|held| agents.iter().any(|agent| !held.holds(*agent))) {
        return Err(Trouble::Changed);
    }
    Ok((group, Heads::lock(tx, &agents).await?))
}

/// The other members, but for those who blocked the sender or do not hear it.
async fn audience(tx: &Transaction<'_>, group: i64, sender: &Agent) -> Result<Vec<i64>, Trouble> {
    let select = tx
        .prepare_cached(
            "SELECT g.agent_id, a.allow_from FROM group_members g JOIN agents a ON a.id = g.agent_id
             WHERE g.group_id = $1 AND g.joined AND g.agent_id <> $2
             AND NOT EXISTS (SELECT FROM connections c WHERE c.requester_id = g.agent_id AND c.target_id = $2
                             AND c.status = 'BLOCKED')
             ORDER BY g.agent_id",
        )
        .await?;
    let rows = tx.query(&select, &[&group, &sender.key.0]).await?;
    let members = rows.iter().map(|row| (row.get(0), row.get(1))).collect();
    Ok(row::who_hear(members, &sender.name)?)
}

/// Whether this session is one of the group's.
async fn is_of_group(tx: &Transaction<'_>, session: i64, group: i64) -> Result<bool, Trouble> {
    let select = tx.prepare_cached("SELECT FROM sessions WHERE id = $1 AND group_id = $2").await?;
    Ok(tx.query_opt(&select, &[&session, &group]).await?.is_some())
}

async fn session(
    tx: &Transaction<'_>,
    group: i64,
    me: i64,
    letter: &OutgoingMessage,
    answered: Option<Uuid>,
) -> Result<(i64, Uuid, String), Trouble> {
    match letter.thread(answered)? {
        outgoing::Thread::Existing(id) => {
            let select = tx.prepare_cached("SELECT id, subject, group_id FROM sessions WHERE public_id = $1").await?;
            let row = tx.query_opt(&select, &[&id]).await?.ok_or_else(no_session)?;
            if row.try_get::<_, Option<i64>>(2)? != Some(group) {
                return Err(words::not_both_members(&letter.to).into());
            }
            Ok((row.try_get(0)?, id, row.try_get(1)?))
        }
        outgoing::Thread::Subject(outgoing::Subject { subject, key }) => {
            let insert = tx
                .prepare_cached(
                    "INSERT INTO sessions (public_id, subject, subject_key, initiator_id, group_id, created_at)
                     VALUES ($1, $2, $3, $4, $5, $6)
                     ON CONFLICT (group_id, subject_key) WHERE group_id IS NOT NULL DO NOTHING",
                )
                .await?;
            let select = tx
                .prepare_cached("SELECT id, public_id, subject FROM sessions WHERE group_id = $1 AND subject_key = $2")
                .await?;
            let mut found = tx.query_opt(&select, &[&group, key]).await?;
            if found.is_none() {
                tx.execute(&insert, &[&fresh_uuid(letter.at), subject, key, &me, &group, &letter.at]).await?;
                found = tx.query_opt(&select, &[&group, key]).await?;
            }
            let row = found.ok_or_else(no_session)?;
            Ok((row.try_get(0)?, row.try_get(1)?, row.try_get(2)?))
        }
    }
}

/// Sends one draft to each of several agents, all or none.
pub(super) async fn send_all(
    tx: &Transaction<'_>,
    account: &Account,
    caller: &Agent,
    to: &[AgentName],
    draft: &Draft,
    now: Timestamp,
) -> Result<Vec<(OutgoingMessage, Placed)>, Trouble> {
    let Recipients { names, heads } = recipients::lock(tx, caller, to).await?;
    let letters = names
        .into_iter()
        .map(|name| {
            let draft = Draft { to: name, idempotency_key: None, ..draft.clone() };
            Ok((caller.clone(), OutgoingMessage::new(&caller.name, draft, now)?))
        })
        .collect::<Result<Vec<_>>>()?;
    let mut sent = Vec::with_capacity(letters.len());
    for outcome in batch::write_in(tx, account, &letters).await? {
        match outcome? {
            Outcome::Placed(placed) => sent.push(*placed),
            Outcome::NoAgent(letter) => match send(tx, account, caller, &letter, Some(&heads)).await? {
                Outcome::Placed(placed) => sent.push(*placed),
                Outcome::Repeat(_) | Outcome::NoAgent(_) => return Err(words::not_connected(&letter.to).into()),
            },
            Outcome::Repeat(_) => {}
        }
    }
    draft.check_copies(sent.iter().map(|(_, placed)| placed.copies.len()).sum())?;
    Ok(sent)
}
