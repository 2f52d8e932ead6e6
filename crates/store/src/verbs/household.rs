//! Households: one owner's agents and that person, who may write to each other without a connection. Founding, joining
//! by a token, machines, and leaving.

use amb_core::doc::{Household, HouseholdChange, HouseholdMember, Machine, TokenInfo};
use amb_core::id::fresh_uuid;
use amb_core::limits::{MAX_HOUSEHOLD_MACHINES, MAX_HOUSEHOLD_MEMBERS};
use amb_core::{AgentName, Event, Timestamp};
use async_trait::async_trait;
use futures_util::FutureExt;
use uuid::Uuid;

use super::directory::{presence, task_ids};
use super::once::{answered_before, remember};
use super::{groups, tasks, transcripts};
use crate::engine::{
    Cached, Changes, Db, Engine, Exclusive, Failed, Query, ReadLength, Tried, Tx, from_row, read, values, write,
    write_unlogged,
};
use crate::error::Result;
use crate::refusals;
use crate::types::{Agent, Join, KeyHash, Written, to_micros};

/// Most machines shown: all valid ones, and the last revoked ones.
const MACHINES_SHOWN: u32 = 2 * MAX_HOUSEHOLD_MACHINES;
/// The label of the owner's token.
const OWNERS_MACHINE: &str = "owner";

/// Households and their members.
#[async_trait]
pub trait HouseholdVerbs: Engine {
    /// Returns whether there is a household.
    async fn has_household(&self) -> Result<bool> {
        read(self, ReadLength::Short, (), |db, ()| is_founded(db).boxed()).await
    }

    /// Founds a household whose owner's token has this hash. With `only_first`, returns `None` where there is a
    /// household already.
    async fn found_household(&self, owner: KeyHash, only_first: bool, now: Timestamp) -> Result<Option<Uuid>> {
        let asked = (owner, only_first, to_micros(now));
        write_unlogged(self, Changes::All, asked, |tx, (owner, only_first, now)| {
            found(tx, *owner, *only_first, *now).boxed()
        })
        .await
    }

    /// Replaces the owner's token of the household that this agent is in; for the operator. The members stay.
    /// `not_found` where the agent is in no household.
    async fn renew_household(&self, member: &AgentName, owner: KeyHash, now: Timestamp) -> Result<()> {
        let asked = (member.clone(), owner, to_micros(now));
        write_unlogged(self, Changes::All, asked, |tx, (member, owner, now)| renew(tx, member, *owner, *now).boxed())
            .await
    }

    /// Returns the household that the caller is in; `not_found` where it is in none.
    async fn household(&self, caller: &Agent, now: Timestamp) -> Result<Household> {
        read(self, ReadLength::Long, (caller.key.0, now), |db, (me, now)| shown(db, *me, *now).boxed()).await
    }

    /// Returns what this token gives; `unauthorized` where it is unknown or was revoked.
    async fn household_token(&self, token: KeyHash) -> Result<TokenInfo> {
        read(self, ReadLength::Short, token, |db, token| token_info(db, *token).boxed()).await
    }

    /// Adds a machine, which can register members with the token that has this hash. `forbidden` for all but the
    /// person. A repeat under the same idempotency key returns the same machine, with the token of the repeat.
    async fn add_machine(&self, caller: &Agent, label: &str, token: KeyHash, now: Timestamp) -> Result<Machine> {
        refusals::check_text("label", Some(label))?;
        let asked = (caller.clone(), label.to_owned(), token, to_micros(now));
        write_unlogged(self, Changes::All, asked, |tx, (caller, label, token, now)| {
            add_machine(tx, caller, label, *token, *now).boxed()
        })
        .await
    }

    /// Revokes a machine's token, and removes its agents from the household as [`HouseholdVerbs::leave_household`]
    /// does. `forbidden` for all but the person, `not_found` where there is no machine with this id or it was revoked
    /// before.
    async fn revoke_machine(&self, caller: &Agent, id: Uuid, now: Timestamp) -> Result<Written<()>> {
        let asked = (caller.clone(), id, to_micros(now));
        write(self, Changes::All, asked, |tx, (caller, id, now)| revoke_machine(tx, caller, *id, *now).boxed()).await
    }

    /// Lets a registered agent join the household of a token. Does nothing where it is in that household already;
    /// `conflict` where it is in another.
    async fn join_household(&self, caller: &Agent, token: KeyHash, now: Timestamp) -> Result<Written<()>> {
        let asked = (caller.clone(), token, to_micros(now));
        write(self, Changes::All, asked, |tx, (caller, token, now)| join(tx, caller, *token, *now).boxed()).await
    }

    /// Removes an agent from the caller's household: the caller itself, or, where the caller is the person, any other
    /// member. Ends what only the household allowed: open tasks, with updates to both sides, shared transcripts, and
    /// membership in each other's groups. After it has returned, no send is accepted that only the household would
    /// allow. `conflict` where a paused agent tries to leave.
    async fn leave_household(&self, caller: &Agent, member: &AgentName, now: Timestamp) -> Result<Written<()>> {
        let asked = (caller.clone(), member.clone(), to_micros(now));
        write(self, Changes::All, asked, |tx, (caller, member, now)| leave(tx, caller, member, *now).boxed()).await
    }
}

impl<E: Engine> HouseholdVerbs for E {}

async fn is_founded(db: &mut dyn Db) -> Tried<bool> {
    db.exists("SELECT 1 FROM households WHERE id > 0 LIMIT 1", &[]).await
}

async fn found(tx: &mut dyn Tx, owner: KeyHash, only_first: bool, now: Timestamp) -> Tried<Option<Uuid>> {
    tx.lock_exclusive(Exclusive::Founding).await?;
    if only_first && is_founded(tx).await? {
        return Ok(None);
    }
    let id = fresh_uuid(now);
    let sql = "INSERT INTO households (public_id, created_at) VALUES ($1, $2)";
    let household = tx.insert(sql, values![id, now]).await?;
    insert_token(tx, household, owner, true, OWNERS_MACHINE, now).await?;
    Ok(Some(id))
}

async fn insert_token(
    tx: &mut dyn Tx,
    household: i64,
    hash: KeyHash,
    owner: bool,
    label: &str,
    now: Timestamp,
) -> Tried<Uuid> {
    let id = fresh_uuid(now);
    let sql = "INSERT INTO household_tokens (public_id, household_id, hash, owner, label, created_at)
               VALUES ($1, $2, $3, $4, $5, $6)";
    tx.execute(sql, values![id, household, &hash.to_hex(), owner, label, now]).await?;
    Ok(id)
}

async fn renew(tx: &mut dyn Tx, member: &AgentName, owner: KeyHash, now: Timestamp) -> Tried<()> {
    let sql = "UPDATE household_tokens SET hash = $2, created_at = $3 WHERE owner = TRUE AND household_id IN
               (SELECT household_id FROM agents WHERE lower(name) = $1 AND household_id IS NOT NULL)";
    match tx.execute(sql, values![&member.folded(), &owner.to_hex(), now]).await? {
        0 => Err(refusals::in_no_household(member).into()),
        _ => Ok(()),
    }
}

from_row!(TokenInfo: owner person);

async fn token_info(db: &mut dyn Db, token: KeyHash) -> Tried<TokenInfo> {
    let sql = "SELECT t.owner, p.name FROM household_tokens t
               LEFT JOIN agents p ON p.household_id = t.household_id AND p.person = TRUE
               WHERE t.hash = $1 AND t.revoked_at IS NULL";
    db.find(sql, values![&token.to_hex()]).await?.ok_or_else(|| refusals::no_household_token().into())
}

/// A place in a household for a new member.
#[derive(Debug)]
pub(super) struct Place {
    pub(super) household: i64,
    pub(super) token: i64,
    pub(super) as_person: bool,
    /// The person of the household, who gets an event.
    person: Option<i64>,
}

/// Returns the place that this token gives a new member, if there is room. The household does not change until the
/// transaction ends: registrations are serialized, and whoever removes members waits for this transaction.
pub(super) async fn place_for(tx: &mut dyn Tx, join: Join) -> Tried<Place> {
    let sql = format!(
        "SELECT t.id, t.household_id, t.owner FROM household_tokens t JOIN households h ON h.id = t.household_id
         WHERE t.hash = $1 AND t.revoked_at IS NULL{}",
        tx.dialect().for_share
    );
    let found: Option<(i64, i64, bool)> = tx.find(&sql, values![&join.token.to_hex()]).await?;
    let (token, household, owner) = found.ok_or_else(refusals::no_household_token)?;
    if join.person && !owner {
        return Err(refusals::not_the_owners_token().into());
    }
    let person = person_of(tx, household).await?;
    let (members,): (i64,) = tx.one("SELECT count(*) FROM agents WHERE household_id = $1", values![household]).await?;
    match &person {
        Some((_, name)) if join.person => return Err(refusals::person_is_there(name).into()),
        _ if members >= i64::from(MAX_HOUSEHOLD_MEMBERS) => return Err(refusals::household_is_full().into()),
        _ => {}
    }
    Ok(Place { household, token, as_person: join.person, person: person.map(|(id, _)| id) })
}

fn changed(agent: &AgentName, change: HouseholdChange, by: Option<&AgentName>, now: Timestamp) -> Event {
    Event::HouseholdChanged { agent: agent.clone(), change, by: by.filter(|by| *by != agent).cloned(), at: Some(now) }
}

/// Logs to the person that an agent joined.
pub(super) async fn log_joined(tx: &mut dyn Tx, place: &Place, agent: &AgentName, now: Timestamp) -> Tried<()> {
    let Some(person) = place.person else { return Ok(()) };
    tx.lock(&[person]).await?;
    tx.log_event(person, changed(agent, HouseholdChange::Joined, None, now), now).await.map(drop)
}

async fn add_machine(tx: &mut dyn Tx, caller: &Agent, label: &str, token: KeyHash, now: Timestamp) -> Tried<Machine> {
    let household = person(tx, caller).await?;
    let machine: Machine = match answered_before(tx, caller).await? {
        Some(machine) => machine,
        None => {
            let machine = new_machine(tx, household, label, token, now).await?;
            remember(tx, caller, &machine, now).await?;
            machine
        }
    };
    // The token of the first answer may have been lost: the token of the repeat replaces it.
    let sql = "UPDATE household_tokens SET hash = $2 WHERE public_id = $1 AND revoked_at IS NULL";
    match tx.execute(sql, values![machine.id, &token.to_hex()]).await? {
        0 => Err(refusals::no_machine().into()),
        _ => Ok(machine),
    }
}

async fn new_machine(tx: &mut dyn Tx, household: i64, label: &str, token: KeyHash, now: Timestamp) -> Tried<Machine> {
    lock(tx, household).await?;
    let sql = "SELECT count(*) FROM household_tokens WHERE household_id = $1 AND revoked_at IS NULL";
    let (machines,): (i64,) = tx.one(sql, values![household]).await?;
    if machines >= i64::from(MAX_HOUSEHOLD_MACHINES) {
        return Err(refusals::too_many_machines().into());
    }
    let id = insert_token(tx, household, token, false, label, now).await?;
    Ok(Machine { id, label: label.to_owned(), owner: false, created_at: now, revoked_at: None })
}

/// Returns the household whose person the caller is.
pub(crate) async fn person(db: &mut dyn Db, caller: &Agent) -> Tried<i64> {
    let sql = "SELECT household_id, person FROM agents WHERE id = $1";
    match db.find(sql, values![caller.key.0]).await? {
        Some((Some(household), true)) => Ok(household),
        _ => Err(refusals::not_the_person().into()),
    }
}

/// Locks a household, so that nobody joins or leaves it.
async fn lock(tx: &mut dyn Tx, household: i64) -> Tried<()> {
    let sql = format!("SELECT id FROM households WHERE id = $1{}", tx.dialect().for_update_key);
    tx.one::<i64>(&sql, values![household]).await.map(drop)
}

async fn revoke_machine(tx: &mut dyn Tx, caller: &Agent, id: Uuid, now: Timestamp) -> Tried<()> {
    let household = person(tx, caller).await?;
    lock(tx, household).await?;
    let sql = format!(
        "SELECT id, owner FROM household_tokens WHERE public_id = $1 AND household_id = $2 AND revoked_at IS NULL{}",
        tx.dialect().for_update_key
    );
    let token: i64 = match tx.find(&sql, values![id, household]).await? {
        Some((_, true)) => return Err(refusals::owners_token_stays().into()),
        Some((token, false)) => token,
        None => return Err(refusals::no_machine().into()),
    };
    tx.execute("UPDATE household_tokens SET revoked_at = $2 WHERE id = $1", values![token, now]).await?;
    let members = members_of(tx, household).await?;
    let leaving = members.iter().filter(|member| member.token == Some(token)).map(|member| member.id).collect();
    remove_members(tx, household, &members, leaving, caller, now).await
}

async fn join(tx: &mut dyn Tx, caller: &Agent, token: KeyHash, now: Timestamp) -> Tried<()> {
    // The same lock as for a registration: the members are counted under it.
    tx.lock_exclusive(Exclusive::Names).await?;
    let place = place_for(tx, Join { token, person: false }).await?;
    match household_of(tx, caller.key.0).await? {
        Some(household) if household == place.household => return Ok(()),
        Some(_) => return Err(refusals::in_another_household().into()),
        None => {}
    }
    let sql = "UPDATE agents SET household_id = $2, household_token_id = $3
               WHERE id = $1 AND household_id IS NULL AND deleted_at IS NULL";
    if tx.execute(sql, values![caller.key.0, place.household, place.token]).await? == 0 {
        return Err(Failed::changed());
    }
    tx.invalidate(Cached::Households);
    log_joined(tx, &place, &caller.name, now).await
}

async fn leave(tx: &mut dyn Tx, caller: &Agent, member: &AgentName, now: Timestamp) -> Tried<()> {
    let household = household_of(tx, caller.key.0).await?.ok_or_else(refusals::you_in_no_household)?;
    lock(tx, household).await?;
    let members = members_of(tx, household).await?;
    let myself = members.iter().find(|member| member.id == caller.key.0).ok_or_else(refusals::you_in_no_household)?;
    let leaving = member.best_match(&members, |member| member.name.as_str());
    let leaving = leaving.ok_or_else(|| refusals::no_household_member(member))?;
    if leaving.person {
        return Err(refusals::person_stays().into());
    }
    if leaving.id != myself.id && !myself.person {
        return Err(refusals::not_the_person().into());
    }
    remove_members(tx, household, &members, vec![leaving.id], caller, now).await
}

/// The columns of a member.
pub(super) struct MemberRow {
    pub(super) id: i64,
    pub(super) name: AgentName,
    pub(super) person: bool,
    token: Option<i64>,
}

from_row!(MemberRow: id name person token);

pub(super) async fn members_of(db: &mut dyn Db, household: i64) -> Tried<Vec<MemberRow>> {
    let sql = "SELECT id, name, person, household_token_id FROM agents WHERE household_id = $1 ORDER BY id";
    db.rows(sql, values![household]).await
}

/// Removes agents from a locked household, and ends what only the household allowed between them and others, with an
/// event to them and the person.
async fn remove_members(
    tx: &mut dyn Tx,
    household: i64,
    members: &[MemberRow],
    leaving: Vec<i64>,
    by: &Agent,
    now: Timestamp,
) -> Tried<()> {
    // A send holds its recipient's lock from before it reads the consent until it is committed. With the locks of all
    // members held, every send among them is either committed or will find the consent gone.
    let mut locked: Vec<i64> = members.iter().map(|member| member.id).collect();
    for agent in &leaving {
        locked.extend(tasks::sides_of_open(tx, *agent).await?);
    }
    tx.lock(&locked).await?;
    // Else a paused agent could leave, join again with its machine's token, and not be paused any more.
    if leaving.contains(&by.key.0) {
        let sql = "SELECT paused_by FROM agents WHERE id = $1 AND paused_by IS NOT NULL";
        if let Some((pauser,)) = tx.find::<(String,)>(sql, values![by.key.0]).await? {
            return Err(refusals::paused_one_stays(&pauser).into());
        }
    }
    for agent in &leaving {
        // An agent that left is no longer paused: the mail that waited is delivered.
        let sql =
            "UPDATE agents SET household_id = NULL, household_token_id = NULL, paused_at = NULL, paused_by = NULL,
                                     paused_from = NULL WHERE id = $1";
        tx.execute(sql, values![*agent]).await?;
    }
    members.iter().for_each(|member| tx.invalidate(Cached::Card(&member.name)));
    tx.invalidate(Cached::Households);
    let person = person_of(tx, household).await?.map(|(id, _)| id);
    for member in members.iter().filter(|member| leaving.contains(&member.id)) {
        if tasks::sides_of_open(tx, member.id).await?.iter().any(|side| !tx.holds(*side)) {
            return Err(Failed::changed());
        }
        tasks::end_without_consent(tx, member.id, &refusals::left_the_household(&member.name), now).await?;
        transcripts::unshare_without_consent(tx, member.id).await?;
        groups::leave_without_consent(tx, member.id, &locked).await?;
        let event = changed(&member.name, HouseholdChange::Left, Some(&by.name), now);
        for agent in [Some(member.id), person].into_iter().flatten().filter(|agent| *agent != by.key.0) {
            tx.log_event(agent, event.clone(), now).await?;
        }
    }
    Ok(())
}

/// Returns the household that an agent is in.
pub(crate) async fn household_of(db: &mut dyn Db, agent: i64) -> Tried<Option<i64>> {
    Ok(db.find::<Option<i64>>("SELECT household_id FROM agents WHERE id = $1", values![agent]).await?.flatten())
}

/// Returns the other members of an agent's household.
pub(super) async fn housemates(db: &mut dyn Db, agent: i64) -> Tried<Vec<i64>> {
    let sql = "SELECT o.id FROM agents a JOIN agents o ON o.household_id = a.household_id
               WHERE a.id = $1 AND o.id <> $1";
    db.rows(sql, values![agent]).await
}

/// Logs to the person that a member deletes its account.
pub(super) async fn log_deleted(tx: &mut dyn Tx, caller: &Agent, now: Timestamp) -> Tried<()> {
    let Some(household) = household_of(tx, caller.key.0).await? else { return Ok(()) };
    tx.invalidate(Cached::Households);
    match person_of(tx, household).await? {
        Some((person, _)) if person != caller.key.0 => {
            tx.log_event(person, changed(&caller.name, HouseholdChange::Left, None, now), now).await.map(drop)
        }
        _ => Ok(()),
    }
}

/// Returns the person of a household.
async fn person_of(db: &mut dyn Db, household: i64) -> Tried<Option<(i64, String)>> {
    let sql = "SELECT id, name FROM agents WHERE household_id = $1 AND person = TRUE";
    db.find(sql, values![household]).await
}

type MemberColumns =
    (AgentName, bool, Option<Uuid>, Option<Timestamp>, Option<bool>, Option<String>, Option<AgentName>);

from_row!(Machine: id label owner created_at revoked_at);

/// Returns the household that an agent is in, with its members and machines.
async fn shown(db: &mut dyn Db, me: i64, now: Timestamp) -> Tried<Household> {
    let household = household_of(db, me).await?.ok_or_else(refusals::you_in_no_household)?;
    let id = db.one("SELECT public_id FROM households WHERE id = $1", values![household]).await?;
    let sql = format!(
        "SELECT a.name, a.person, k.public_id, p.last_seen, p.here,
                (SELECT string_agg({}, ',' ORDER BY t.id) FROM tasks t
                 WHERE t.assignee_id = a.id AND t.state IN ('accepted', 'working')), a.paused_by
         FROM agents a LEFT JOIN presence p ON p.agent_id = a.id
         LEFT JOIN household_tokens k ON k.id = a.household_token_id
         WHERE a.household_id = $1 ORDER BY a.name LIMIT $2",
        db.dialect().task_id
    );
    let members: Vec<MemberColumns> = db.rows(&sql, values![household, MAX_HOUSEHOLD_MEMBERS]).await?;
    let member = |(name, person, machine, last_seen, here, current, paused_by): MemberColumns| {
        let presence = presence((last_seen, here), task_ids(current), now);
        HouseholdMember { name, person, machine, presence, paused_by }
    };
    let sql = "SELECT public_id, label, owner, created_at, revoked_at FROM household_tokens WHERE household_id = $1
               ORDER BY revoked_at IS NOT NULL, id DESC LIMIT $2";
    let mut machines: Vec<Machine> = db.rows(sql, values![household, MACHINES_SHOWN]).await?;
    machines.sort_by_key(|machine| (machine.created_at, machine.id));
    Ok(Household { id, members: members.into_iter().map(member).collect(), machines })
}
