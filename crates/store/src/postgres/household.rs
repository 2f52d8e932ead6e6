//! The household: founding it, joining it by a token, its machines, and leaving it.

use amb_core::doc::{Household, HouseholdChange, Machine};
use amb_core::id::fresh_uuid;
use amb_core::limits::{MAX_HOUSEHOLD_MACHINES, MAX_HOUSEHOLD_MEMBERS};
use amb_core::{AgentName, Timestamp};
use deadpool_postgres::{GenericClient, Transaction};
use tokio_postgres::Row;
use uuid::Uuid;

use super::error::Trouble;
use super::once::once;
use super::write::{Heads, Pages};
use super::{tasks, transcripts};
use crate::error::Result;
use crate::household::{MemberRow, Seat, Token};
use crate::row;
use crate::types::{Agent, Join, KeyHash, News, Written};
use crate::words;

/// Machines shown: all that are good, and the last that were revoked.
const MACHINES_SHOWN: i64 = 2 * MAX_HOUSEHOLD_MACHINES as i64;
/// Of two processes that start at once on an empty database, one founds the household. Any fixed number will do.
const FOUNDING: i64 = 0x616d_625f_686f_6d65;

pub(super) async fn found(
    tx: &Transaction<'_>,
    owner: KeyHash,
    only_first: bool,
    now: Timestamp,
) -> Result<Option<Uuid>, Trouble> {
    tx.execute("SELECT pg_advisory_xact_lock($1)", &[&FOUNDING]).await?;
    if only_first && is_founded(tx).await? {
        return Ok(None);
    }
    let id = fresh_uuid(now);
    let insert = "INSERT INTO households (public_id, created_at) VALUES ($1, $2) RETURNING id";
    let household: i64 = tx.query_one(insert, &[&id, &now]).await?.try_get(0)?;
    insert_token(tx, household, owner, true, words::OWNERS_MACHINE, now).await?;
    Ok(Some(id))
}

async fn insert_token(
    tx: &Transaction<'_>,
    household: i64,
    hash: KeyHash,
    owner: bool,
    label: &str,
    now: Timestamp,
) -> Result<Uuid, Trouble> {
    let id = fresh_uuid(now);
    let insert = "INSERT INTO household_tokens (public_id, household_id, hash, owner, label, created_at)
                  VALUES ($1, $2, $3, $4, $5, $6)";
    tx.execute(insert, &[&id, &household, &hash.to_hex(), &owner, &label, &now]).await?;
    Ok(id)
}

pub(super) async fn renew(
    tx: &Transaction<'_>,
    member: &AgentName,
    owner: KeyHash,
    now: Timestamp,
) -> Result<(), Trouble> {
    let update = "UPDATE household_tokens SET hash = $2, created_at = $3 WHERE owner AND household_id IN
                  (SELECT household_id FROM agents WHERE lower(name) = $1)";
    match tx.execute(update, &[&member.folded(), &owner.to_hex(), &now]).await? {
        0 => Err(words::in_no_household(member).into()),
        _ => Ok(()),
    }
}

/// The household that this token lets an agent into, if there is room in it. It stays as it is until the agent is in it:
/// registering is one at a time, and who takes members out waits for this transaction.
pub(super) async fn seat(tx: &Transaction<'_>, join: Join) -> Result<Seat, Trouble> {
    let select = tx
        .prepare_cached(
            "SELECT t.id, t.household_id, t.owner FROM household_tokens t JOIN households h ON h.id = t.household_id
             WHERE t.hash = $1 AND t.revoked_at IS NULL FOR SHARE",
        )
        .await?;
    let found = tx.query_opt(&select, &[&join.token.to_hex()]).await?;
    let found = found.map(|row| Token { id: row.get(0), household: row.get(1), owner: row.get(2) });
    let token = Token::for_joining(found, join)?;
    let person = person_of(tx, token.household).await?;
    let count = tx.prepare_cached("SELECT count(*) FROM agents WHERE household_id = $1").await?;
    let members: i64 = tx.query_one(&count, &[&token.household]).await?.try_get(0)?;
    Ok(token.seat(join, person, u32::try_from(members).unwrap_or(u32::MAX))?)
}

/// Tells the person that an agent joined.
pub(super) async fn tell_joined(
    tx: &Transaction<'_>,
    seat: &Seat,
    agent: &AgentName,
    now: Timestamp,
) -> Result<Vec<News>, Trouble> {
    let Some((person, _)) = &seat.person else { return Ok(Vec::new()) };
    let (mut heads, mut pages) = (Heads::lock(tx, &[*person]).await?, Pages::default());
    let news = pages.tell(&mut heads, *person, words::household(agent, HouseholdChange::Joined, None), now)?;
    pages.write(tx).await?;
    Ok(news.into_iter().collect())
}

pub(super) async fn add_machine(
    tx: &Transaction<'_>,
    caller: &Agent,
    label: &str,
    token: KeyHash,
    now: Timestamp,
) -> Result<Machine, Trouble> {
    let household = person(tx, caller).await?;
    let machine = once(tx, caller, now, new_machine(tx, household, label, token, now)).await?.answer;
    // Nobody knows the token of an answer that was given before: this one takes its place.
    let update = "UPDATE household_tokens SET hash = $2 WHERE public_id = $1 AND revoked_at IS NULL";
    match tx.execute(update, &[&machine.id, &token.to_hex()]).await? {
        0 => Err(words::no_machine().into()),
        _ => Ok(machine),
    }
}

async fn new_machine(
    tx: &Transaction<'_>,
    household: i64,
    label: &str,
    token: KeyHash,
    now: Timestamp,
) -> Result<Written<Machine>, Trouble> {
    lock(tx, household).await?;
    let count = "SELECT count(*) FROM household_tokens WHERE household_id = $1 AND revoked_at IS NULL";
    if tx.query_one(count, &[&household]).await?.try_get::<_, i64>(0)? >= i64::from(MAX_HOUSEHOLD_MACHINES) {
        return Err(words::too_many_machines().into());
    }
    let id = insert_token(tx, household, token, false, label, now).await?;
    Ok(Written::quiet(Machine { id, label: label.to_owned(), owner: false, created_at: now, revoked_at: None }))
}

/// The household whose person the caller is.
pub(super) async fn person(tx: &Transaction<'_>, caller: &Agent) -> Result<i64, Trouble> {
    let select = tx.prepare_cached("SELECT household_id FROM agents WHERE id = $1 AND person").await?;
    let row = tx.query_opt(&select, &[&caller.key.0]).await?;
    row.and_then(|row| row.get(0)).ok_or_else(|| words::not_the_person().into())
}

/// Locks a household: nobody joins or leaves it meanwhile.
async fn lock(tx: &Transaction<'_>, household: i64) -> Result<(), Trouble> {
    tx.query_one("SELECT id FROM households WHERE id = $1 FOR UPDATE", &[&household]).await?;
    Ok(())
}

pub(super) async fn revoke_machine(
    tx: &Transaction<'_>,
    caller: &Agent,
    id: Uuid,
    now: Timestamp,
) -> Result<Written<()>, Trouble> {
    let household = person(tx, caller).await?;
    lock(tx, household).await?;
    let find = "SELECT id, owner FROM household_tokens WHERE public_id = $1 AND household_id = $2
                AND revoked_at IS NULL FOR UPDATE";
    let token: i64 = match tx.query_opt(find, &[&id, &household]).await? {
        Some(row) if row.get(1) => return Err(words::owners_token_stays().into()),
        Some(row) => row.get(0),
        None => return Err(words::no_machine().into()),
    };
    tx.execute("UPDATE household_tokens SET revoked_at = $2 WHERE id = $1", &[&token, &now]).await?;
    let members = members_of(tx, household).await?;
    let leaving = members.iter().filter(|member| member.token == Some(token)).map(|member| member.id).collect();
    take_out(tx, household, &members, leaving, caller, now).await
}

pub(super) async fn leave(
    tx: &Transaction<'_>,
    caller: &Agent,
    member: &AgentName,
    now: Timestamp,
) -> Result<Written<()>, Trouble> {
    let Some(household) = household_of(tx, caller.key.0).await? else {
        return Err(words::you_in_no_household().into());
    };
    lock(tx, household).await?;
    let members = members_of(tx, household).await?;
    let Some(myself) = members.iter().find(|member| member.id == caller.key.0) else {
        return Err(words::you_in_no_household().into());
    };
    let Some(leaving) = member.meant(&members, |member| member.name.as_str()) else {
        return Err(words::no_household_member(member).into());
    };
    if leaving.person {
        return Err(words::person_stays().into());
    }
    if leaving.id != myself.id && !myself.person {
        return Err(words::not_the_person().into());
    }
    take_out(tx, household, &members, vec![leaving.id], caller, now).await
}

/// A member, as far as leaving goes.
struct Member {
    id: i64,
    name: AgentName,
    person: bool,
    token: Option<i64>,
}

async fn members_of(tx: &Transaction<'_>, household: i64) -> Result<Vec<Member>, Trouble> {
    let select = "SELECT id, name, person, household_token_id FROM agents WHERE household_id = $1 ORDER BY id";
    let rows = tx.query(select, &[&household]).await?;
    let member =
        |row: &Row| Ok(Member { id: row.get(0), name: row::name(row.get(1))?, person: row.get(2), token: row.get(3) });
    rows.iter().map(member).collect()
}

/// Takes agents out of a household that is locked, ends what only the household allowed between them and others, and tells them
/// and the person.
async fn take_out(
    tx: &Transaction<'_>,
    household: i64,
    members: &[Member],
    leaving: Vec<i64>,
    by: &Agent,
    now: Timestamp,
) -> Result<Written<()>, Trouble> {
    // A send holds its recipient's lock from before it looks whether the two may write until it is committed: with the locks
    // of all members held, every send among them is done, or will find this one gone.
    let mut locked: Vec<i64> = members.iter().map(|member| member.id).collect();
    for agent in &leaving {
        locked.extend(tasks::sides_of_open(tx, *agent).await?);
    }
    let mut heads = Heads::lock(tx, &locked).await?;
    let update = "UPDATE agents SET household_id = NULL, household_token_id = NULL WHERE id = ANY($1)";
    tx.execute(update, &[&leaving]).await?;
    let person = person_of(tx, household).await?.map(|(id, _)| id);
    let (mut pages, mut news) = (Pages::default(), Vec::new());
    for member in members.iter().filter(|member| leaving.contains(&member.id)) {
        if tasks::sides_of_open(tx, member.id).await?.iter().any(|side| !heads.holds(*side)) {
            return Err(Trouble::Changed);
        }
        let note = words::left_the_household(&member.name);
        news.extend(tasks::end_without_consent(tx, &mut pages, &mut heads, member.id, &note, now).await?);
        transcripts::unshare_without_consent(tx, member.id).await?;
        let event = words::household(&member.name, HouseholdChange::Left, Some(&by.name));
        for told in [Some(member.id), person].into_iter().flatten().filter(|told| *told != by.key.0) {
            news.extend(pages.tell(&mut heads, told, event.clone(), now)?);
        }
    }
    pages.write(tx).await?.correct(&mut news);
    Ok(Written { answer: (), news })
}

/// Whether there is a household.
pub(super) async fn is_founded<C: GenericClient>(client: &C) -> Result<bool, Trouble> {
    let select = client.prepare_cached("SELECT FROM households WHERE id > 0 LIMIT 1").await?;
    Ok(client.query_opt(&select, &[]).await?.is_some())
}

/// The household that an agent is in.
pub(super) async fn household_of<C: GenericClient>(client: &C, agent: i64) -> Result<Option<i64>, Trouble> {
    let select = client.prepare_cached("SELECT household_id FROM agents WHERE id = $1").await?;
    Ok(client.query_opt(&select, &[&agent]).await?.and_then(|row| row.get(0)))
}

/// The other members of the household that an agent is in.
pub(super) async fn housemates(tx: &Transaction<'_>, agent: i64) -> Result<Vec<i64>, Trouble> {
    let select = tx
        .prepare_cached(
            "SELECT o.id FROM agents a JOIN agents o ON o.household_id = a.household_id WHERE a.id = $1 AND o.id <> $1",
        )
        .await?;
    Ok(tx.query(&select, &[&agent]).await?.iter().map(|row| row.get(0)).collect())
}

/// Tells the person that a member deletes its account.
pub(super) async fn tell_deleted(
    tx: &Transaction<'_>,
    pages: &mut Pages,
    heads: &mut Heads,
    caller: &Agent,
    now: Timestamp,
) -> Result<Option<News>, Trouble> {
    let Some(household) = household_of(tx, caller.key.0).await? else { return Ok(None) };
    let person = person_of(tx, household).await?.filter(|(id, _)| *id != caller.key.0);
    let Some((person, _)) = person else { return Ok(None) };
    let event = words::household(&caller.name, HouseholdChange::Left, None);
    Ok(pages.tell(heads, person, event, now)?)
}

/// The person of a household.
pub(super) async fn person_of(tx: &Transaction<'_>, household: i64) -> Result<Option<(i64, String)>, Trouble> {
    let select = tx.prepare_cached("SELECT id, name FROM agents WHERE household_id = $1 AND person").await?;
    Ok(tx.query_opt(&select, &[&household]).await?.map(|row| (row.get(0), row.get(1))))
}

/// The household that the caller is in.
pub(super) async fn household<C: GenericClient>(
    client: &C,
    caller: &Agent,
    now: Timestamp,
) -> Result<Household, Trouble> {
    let Some(household) = household_of(client, caller.key.0).await? else {
        return Err(words::you_in_no_household().into());
    };
    let select = client.prepare_cached("SELECT public_id FROM households WHERE id = $1").await?;
    let id = client.query_one(&select, &[&household]).await?.try_get(0)?;
    let select = client
        .prepare_cached(
            "SELECT a.name, a.person, t.public_id, p.last_seen, p.here,
                    ARRAY (SELECT k.public_id FROM tasks k
                           WHERE k.assignee_id = a.id AND k.state IN ('accepted', 'working') ORDER BY k.id)
             FROM agents a LEFT JOIN presence p ON p.agent_id = a.id
             LEFT JOIN household_tokens t ON t.id = a.household_token_id
             WHERE a.household_id = $1 ORDER BY a.name LIMIT $2",
        )
        .await?;
    let rows = client.query(&select, &[&household, &i64::from(MAX_HOUSEHOLD_MEMBERS)]).await?;
    let members =
        rows.iter().map(|row| member_row(row)?.shown(now).map_err(Trouble::from)).collect::<Result<_, _>>()?;
    let select = client
        .prepare_cached(
            "SELECT public_id, label, owner, created_at, revoked_at FROM household_tokens WHERE household_id = $1
             ORDER BY revoked_at IS NOT NULL, id DESC LIMIT $2",
        )
        .await?;
    let rows = client.query(&select, &[&household, &MACHINES_SHOWN]).await?;
    let mut machines = rows.iter().map(machine).collect::<Result<Vec<_>, _>>()?;
    machines.sort_by_key(|machine| (machine.created_at, machine.id));
    Ok(Household { id, members, machines })
}

fn member_row(row: &Row) -> Result<MemberRow, tokio_postgres::Error> {
    Ok(MemberRow {
        name: row.try_get(0)?,
        person: row.try_get(1)?,
        machine: row.try_get(2)?,
        last_seen: row.try_get(3)?,
        here: row.try_get(4)?,
        current: row.try_get(5)?,
    })
}

fn machine(row: &Row) -> Result<Machine, tokio_postgres::Error> {
    Ok(Machine {
        id: row.try_get(0)?,
        label: row.try_get(1)?,
        owner: row.try_get(2)?,
        created_at: row.try_get(3)?,
        revoked_at: row.try_get(4)?,
    })
}
