//! The household: one owner's agents and that person, who may write to each other without a connection. Founding it, joining it
//! by a token, its machines, and leaving it.

use amb_core::doc::{Household, HouseholdChange, HouseholdMember, Machine};
use amb_core::id::fresh_uuid;
use amb_core::limits::{HEARTBEAT_TIMEOUT, MAX_HOUSEHOLD_MACHINES, MAX_HOUSEHOLD_MEMBERS};
use amb_core::{AgentName, Event, Presence, Status, Timestamp};
use async_trait::async_trait;
use futures_util::FutureExt;
use uuid::Uuid;

use super::directory::task_ids;
use super::once::{answered_before, remember};
use super::{groups, tasks, transcripts};
use crate::engine::{
    Cached, Changes, Db, Engine, Exclusive, Failed, Query, ReadLength, Tried, Tx, from_row, read, values, write,
};
use crate::error::Result;
use crate::refusals;
use crate::types::{Agent, Join, KeyHash, Written, to_micros};

/// Machines shown: all that are good, and the last that were revoked.
const MACHINES_SHOWN: u32 = 2 * MAX_HOUSEHOLD_MACHINES;
/// The label of the owner's token.
const OWNERS_MACHINE: &str = "owner";

/// One owner's agents and that person.
#[async_trait]
pub trait HouseholdVerbs: Engine {
    /// Whether there is a household.
    async fn has_household(&self) -> Result<bool> {
        read(self, ReadLength::Short, (), |db, ()| is_founded(db).boxed()).await
    }

    /// Founds a household whose owner's token has this hash. With `only_first` only where there is none: `None` then.
    async fn found_household(&self, owner: KeyHash, only_first: bool, now: Timestamp) -> Result<Option<Uuid>> {
        let asked = (owner, only_first, to_micros(now));
        let founded = write(self, Changes::All, asked, |tx, (owner, only_first, now)| {
            found(tx, *owner, *only_first, *now).boxed()
        });
        Ok(founded.await?.answer)
    }

    /// Replaces the owner's token of the household that this agent is in, for the office's operator; the one before is void,
    /// and its members stay. `not_found` where the agent is in none.
    async fn renew_household(&self, member: &AgentName, owner: KeyHash, now: Timestamp) -> Result<()> {
        let asked = (member.clone(), owner, to_micros(now));
        let renewed =
            write(self, Changes::All, asked, |tx, (member, owner, now)| renew(tx, member, *owner, *now).boxed());
        renewed.await.map(|done| done.answer)
    }

    /// The household that the caller is in; `not_found` where it is in none.
    async fn household(&self, caller: &Agent, now: Timestamp) -> Result<Household> {
        read(self, ReadLength::Long, (caller.key.0, now), |db, (me, now)| shown(db, *me, *now).boxed()).await
    }

    /// Lets another machine register members, with the token that has this hash. `forbidden` for all but the person. A repeat
    /// under the same idempotency key returns the same machine, whose token is then the one of the repeat.
    async fn add_machine(&self, caller: &Agent, label: &str, token: KeyHash, now: Timestamp) -> Result<Machine> {
        refusals::check_text("label", Some(label))?;
        let asked = (caller.clone(), label.to_owned(), token, to_micros(now));
        let added = write(self, Changes::All, asked, |tx, (caller, label, token, now)| {
            add_machine(tx, caller, label, *token, *now).boxed()
        });
        Ok(added.await?.answer)
    }

    /// Takes a machine's token back, and its agents out of the household, as [`HouseholdVerbs::leave_household`] does with one.
    /// `forbidden` for all but the person, `not_found` where there is none with this id or it was revoked.
    async fn revoke_machine(&self, caller: &Agent, id: Uuid, now: Timestamp) -> Result<Written<()>> {
        let asked = (caller.clone(), id, to_micros(now));
        write(self, Changes::All, asked, |tx, (caller, id, now)| revoke_machine(tx, caller, *id, *now).boxed()).await
    }

    /// Lets an agent that was registered before join the household of a token, as one that is registered with it does. Where it
    /// is in that household already nothing changes; `conflict` where it is in another one.
    async fn join_household(&self, caller: &Agent, token: KeyHash, now: Timestamp) -> Result<Written<()>> {
        let asked = (caller.clone(), token, to_micros(now));
        write(self, Changes::All, asked, |tx, (caller, token, now)| join(tx, caller, *token, *now).boxed()).await
    }

    /// Takes an agent out of the caller's household: the caller itself, or any but the person where the caller is that. What
    /// the household alone allowed between it and others ends: open tasks, with updates to both sides, what transcripts were
    /// shared, and being in each other's groups. After it has returned, no send is accepted that only the household would allow.
    /// An agent that is paused cannot leave by itself: `conflict`.
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

/// A place in a household for a new agent.
#[derive(Debug)]
pub(super) struct Seat {
    pub(super) household: i64,
    pub(super) token: i64,
    pub(super) as_person: bool,
    /// The person that the household has, who gets an event.
    person: Option<i64>,
}

/// The place that this token gives a new agent, if there is room. The household stays as it is until the agent is in it:
/// registering is one at a time, and who takes members out waits for this transaction.
pub(super) async fn seat(tx: &mut dyn Tx, join: Join) -> Tried<Seat> {
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
    Ok(Seat { household, token, as_person: join.person, person: person.map(|(id, _)| id) })
}

fn changed(agent: &AgentName, change: HouseholdChange, by: Option<&AgentName>, now: Timestamp) -> Event {
    Event::HouseholdChanged { agent: agent.clone(), change, by: by.filter(|by| *by != agent).cloned(), at: Some(now) }
}

/// Tells the person that an agent joined.
pub(super) async fn tell_joined(tx: &mut dyn Tx, seat: &Seat, agent: &AgentName, now: Timestamp) -> Tried<()> {
    let Some(person) = seat.person else { return Ok(()) };
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
    // Nobody knows the token of an answer that was given before: this one takes its place.
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

/// The household whose person the caller is.
pub(crate) async fn person(db: &mut dyn Db, caller: &Agent) -> Tried<i64> {
    let sql = "SELECT household_id, person FROM agents WHERE id = $1";
    match db.find(sql, values![caller.key.0]).await? {
        Some((Some(household), true)) => Ok(household),
        _ => Err(refusals::not_the_person().into()),
    }
}

/// Locks a household: nobody joins or leaves it meanwhile.
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
    take_out(tx, household, &members, leaving, caller, now).await
}

async fn join(tx: &mut dyn Tx, caller: &Agent, token: KeyHash, now: Timestamp) -> Tried<()> {
    // As for whoever registers: the members are counted one at a time.
    tx.lock_exclusive(Exclusive::Names).await?;
    let seat = seat(tx, Join { token, person: false }).await?;
    match household_of(tx, caller.key.0).await? {
        Some(household) if household == seat.household => return Ok(()),
        Some(_) => return Err(refusals::in_another_household().into()),
        None => {}
    }
    let sql = "UPDATE agents SET household_id = $2, household_token_id = $3
               WHERE id = $1 AND household_id IS NULL AND deleted_at IS NULL";
    if tx.execute(sql, values![caller.key.0, seat.household, seat.token]).await? == 0 {
        return Err(Failed::changed());
    }
    tx.invalidate(Cached::Households);
    tell_joined(tx, &seat, &caller.name, now).await
}

async fn leave(tx: &mut dyn Tx, caller: &Agent, member: &AgentName, now: Timestamp) -> Tried<()> {
    let household = household_of(tx, caller.key.0).await?.ok_or_else(refusals::you_in_no_household)?;
    lock(tx, household).await?;
    let members = members_of(tx, household).await?;
    let myself = members.iter().find(|member| member.id == caller.key.0).ok_or_else(refusals::you_in_no_household)?;
    let leaving = member.meant(&members, |member| member.name.as_str());
    let leaving = leaving.ok_or_else(|| refusals::no_household_member(member))?;
    if leaving.person {
        return Err(refusals::person_stays().into());
    }
    if leaving.id != myself.id && !myself.person {
        return Err(refusals::not_the_person().into());
    }
    take_out(tx, household, &members, vec![leaving.id], caller, now).await
}

/// A member, as far as leaving goes.
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

/// Takes agents out of a household that is locked, ends what only the household allowed between them and others, and tells
/// them and the person.
async fn take_out(
    tx: &mut dyn Tx,
    household: i64,
    members: &[MemberRow],
    leaving: Vec<i64>,
    by: &Agent,
    now: Timestamp,
) -> Tried<()> {
    // A send holds its recipient's lock from before it looks whether the two may write until it is committed: with the locks
    // of all members held, every send among them is done, or will find this one gone.
    let mut locked: Vec<i64> = members.iter().map(|member| member.id).collect();
    for agent in &leaving {
        locked.extend(tasks::sides_of_open(tx, *agent).await?);
    }
    tx.lock(&locked).await?;
    // Else a paused agent would leave, join again with its machine's token, and be paused no more.
    if leaving.contains(&by.key.0) {
        let sql = "SELECT paused_by FROM agents WHERE id = $1 AND paused_by IS NOT NULL";
        if let Some((pauser,)) = tx.find::<(String,)>(sql, values![by.key.0]).await? {
            return Err(refusals::paused_one_stays(&pauser).into());
        }
    }
    for agent in &leaving {
        // Who left is nobody's to pause: what waited arrives.
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
        for told in [Some(member.id), person].into_iter().flatten().filter(|told| *told != by.key.0) {
            tx.log_event(told, event.clone(), now).await?;
        }
    }
    Ok(())
}

/// The household that an agent is in.
pub(crate) async fn household_of(db: &mut dyn Db, agent: i64) -> Tried<Option<i64>> {
    Ok(db.find::<Option<i64>>("SELECT household_id FROM agents WHERE id = $1", values![agent]).await?.flatten())
}

/// The other members of the household that an agent is in.
pub(super) async fn housemates(db: &mut dyn Db, agent: i64) -> Tried<Vec<i64>> {
    let sql = "SELECT o.id FROM agents a JOIN agents o ON o.household_id = a.household_id
               WHERE a.id = $1 AND o.id <> $1";
    db.rows(sql, values![agent]).await
}

/// Tells the person that a member deletes its account.
pub(super) async fn tell_deleted(tx: &mut dyn Tx, caller: &Agent, now: Timestamp) -> Tried<()> {
    let Some(household) = household_of(tx, caller.key.0).await? else { return Ok(()) };
    tx.invalidate(Cached::Households);
    match person_of(tx, household).await? {
        Some((person, _)) if person != caller.key.0 => {
            tx.log_event(person, changed(&caller.name, HouseholdChange::Left, None, now), now).await.map(drop)
        }
        _ => Ok(()),
    }
}

/// The person of a household.
async fn person_of(db: &mut dyn Db, household: i64) -> Tried<Option<(i64, String)>> {
    let sql = "SELECT id, name FROM agents WHERE household_id = $1 AND person = TRUE";
    db.find(sql, values![household]).await
}

type MemberColumns =
    (AgentName, bool, Option<Uuid>, Option<Timestamp>, Option<bool>, Option<String>, Option<AgentName>);

from_row!(Machine: id label owner created_at revoked_at);

/// The household that an agent is in.
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
        let claimed = if here.unwrap_or(false) { Status::Idle } else { Status::Offline };
        let presence = Presence::at(now, claimed, last_seen, task_ids(current), HEARTBEAT_TIMEOUT);
        HouseholdMember { name, person, machine, presence, paused_by }
    };
    let sql = "SELECT public_id, label, owner, created_at, revoked_at FROM household_tokens WHERE household_id = $1
               ORDER BY revoked_at IS NOT NULL, id DESC LIMIT $2";
    let mut machines: Vec<Machine> = db.rows(sql, values![household, MACHINES_SHOWN]).await?;
    machines.sort_by_key(|machine| (machine.created_at, machine.id));
    Ok(Household { id, members: members.into_iter().map(member).collect(), machines })
}
