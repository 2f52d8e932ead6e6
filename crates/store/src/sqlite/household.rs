//! The household: founding it, joining it by a token, its machines, and leaving it.

use amb_core::doc::{Household, HouseholdChange, Machine};
use amb_core::id::fresh_uuid;
use amb_core::limits::{MAX_HOUSEHOLD_MACHINES, MAX_HOUSEHOLD_MEMBERS};
use amb_core::{AgentName, Event, Timestamp};
use rusqlite::{Connection, OptionalExtension, Row, params};
use uuid::Uuid;

use super::error::failed;
use super::keys::{instant_at, maybe_instant_at, maybe_uuid_at, uuid_at};
use super::plans::Prepared;
use super::writer::WriteTx;
use crate::error::Result;
use crate::household::{MemberRow, Seat, Token};
use crate::row;
use crate::types::{Agent, Join, KeyHash, News, Written};
use crate::words;

/// Machines shown: all that are good, and the last that were revoked.
const MACHINES_SHOWN: u32 = 2 * MAX_HOUSEHOLD_MACHINES;

impl WriteTx {
    pub(super) fn found_household(&mut self, owner: KeyHash, only_first: bool, now: Timestamp) -> Result<Option<Uuid>> {
        if only_first && is_founded(&self.db)? {
            return Ok(None);
        }
        let id = fresh_uuid(now);
        let household = self
            .db
            .prepared("INSERT INTO households (public_id, created_at) VALUES (?1, ?2)")
            .and_then(|mut insert| insert.insert(params![id.as_bytes(), now.as_microsecond()]))
            .map_err(failed)?;
        self.insert_token(household, owner, true, words::OWNERS_MACHINE, now)?;
        Ok(Some(id))
    }

    fn insert_token(&self, household: i64, hash: KeyHash, owner: bool, label: &str, now: Timestamp) -> Result<Uuid> {
        let id = fresh_uuid(now);
        self.db
            .prepared(
                "INSERT INTO household_tokens (public_id, household_id, hash, owner, label, created_at)
                 VALUES (?1, ?2, ?3, ?4, ?5, ?6)",
            )
            .and_then(|mut insert| {
                insert.execute(params![id.as_bytes(), household, hash.to_hex(), owner, label, now.as_microsecond()])
            })
            .map_err(failed)?;
        Ok(id)
    }

    pub(super) fn renew_household(&mut self, member: &AgentName, owner: KeyHash, now: Timestamp) -> Result<()> {
        let changed = self
            .db
            .prepared(
                "UPDATE household_tokens SET hash = ?2, created_at = ?3 WHERE owner = 1 AND household_id =
                 (SELECT household_id FROM agents WHERE lower(name) = ?1 AND household_id IS NOT NULL)",
            )
            .and_then(|mut update| update.execute(params![member.folded(), owner.to_hex(), now.as_microsecond()]))
            .map_err(failed)?;
        if changed == 0 { Err(words::in_no_household(member)) } else { Ok(()) }
    }

    /// The household that this token lets an agent into, if there is room in it.
    pub(super) fn seat(&self, join: Join) -> Result<Seat> {
        let found = self
            .db
            .prepared("SELECT id, household_id, owner FROM household_tokens WHERE hash = ?1 AND revoked_at IS NULL")
            .and_then(|mut select| {
                select
                    .query_row([join.token.to_hex()], |row| {
                        Ok(Token { id: row.get(0)?, household: row.get(1)?, owner: row.get(2)? })
                    })
                    .optional()
            })
            .map_err(failed)?;
        let token = Token::for_joining(found, join)?;
        let person = person_of(&self.db, token.household)?;
        let members: u32 = self
            .db
            .prepared("SELECT count(*) FROM agents WHERE household_id = ?1")
            .and_then(|mut select| select.query_row([token.household], |row| row.get(0)))
            .map_err(failed)?;
        token.seat(join, person, members)
    }

    /// Tells the person that an agent joined.
    pub(super) fn tell_joined(&mut self, seat: &Seat, agent: &AgentName, now: Timestamp) -> Result<Vec<News>> {
        let Some((person, _)) = &seat.person else { return Ok(Vec::new()) };
        Ok(vec![self.tell(*person, words::household(agent, HouseholdChange::Joined, None), now)?])
    }

    pub(super) fn add_machine(
        &mut self,
        caller: &Agent,
        label: &str,
        token: KeyHash,
        now: Timestamp,
    ) -> Result<Machine> {
        let household = self.person(caller)?;
        let machine = self.once(caller, now, |tx| tx.new_machine(household, label, token, now))?.answer;
        // Nobody knows the token of an answer that was given before: this one takes its place.
        let changed = self
            .db
            .prepared("UPDATE household_tokens SET hash = ?2 WHERE public_id = ?1 AND revoked_at IS NULL")
            .and_then(|mut update| update.execute(params![machine.id.as_bytes(), token.to_hex()]))
            .map_err(failed)?;
        if changed == 0 { Err(words::no_machine()) } else { Ok(machine) }
    }

    fn new_machine(&mut self, household: i64, label: &str, token: KeyHash, now: Timestamp) -> Result<Written<Machine>> {
        let machines: u32 = self
            .db
            .prepared("SELECT count(*) FROM household_tokens WHERE household_id = ?1 AND revoked_at IS NULL")
            .and_then(|mut select| select.query_row([household], |row| row.get(0)))
            .map_err(failed)?;
        if machines >= MAX_HOUSEHOLD_MACHINES {
            return Err(words::too_many_machines());
        }
        let id = self.insert_token(household, token, false, label, now)?;
        Ok(Written::quiet(Machine { id, label: label.to_owned(), owner: false, created_at: now, revoked_at: None }))
    }

    /// The household whose person the caller is.
    pub(super) fn person(&self, caller: &Agent) -> Result<i64> {
        let found: Option<(Option<i64>, bool)> = self
            .db
            .prepared("SELECT household_id, person FROM agents WHERE id = ?1")
            .and_then(|mut select| select.query_row([caller.key.0], |row| Ok((row.get(0)?, row.get(1)?))).optional())
            .map_err(failed)?;
        match found {
            Some((Some(household), true)) => Ok(household),
            _ => Err(words::not_the_person()),
        }
    }

    pub(super) fn revoke_machine(&mut self, caller: &Agent, id: Uuid, now: Timestamp) -> Result<Written<()>> {
        let household = self.person(caller)?;
        let found: Option<(i64, bool)> = self
            .db
            .prepared(
                "SELECT id, owner FROM household_tokens
                 WHERE public_id = ?1 AND household_id = ?2 AND revoked_at IS NULL",
            )
            .and_then(|mut select| {
                select.query_row(params![id.as_bytes(), household], |row| Ok((row.get(0)?, row.get(1)?))).optional()
            })
            .map_err(failed)?;
        let token = match found {
            Some((token, false)) => token,
            Some((_, true)) => return Err(words::owners_token_stays()),
            None => return Err(words::no_machine()),
        };
        self.db
            .prepared("UPDATE household_tokens SET revoked_at = ?2 WHERE id = ?1")
            .and_then(|mut update| update.execute([token, now.as_microsecond()]))
            .map_err(failed)?;
        let leaving = self.members_where("household_token_id = ?1 AND household_id IS NOT NULL", token)?;
        let news = self.take_out(household, leaving, caller, now)?;
        Ok(Written { answer: (), news })
    }

    pub(super) fn leave_household(
        &mut self,
        caller: &Agent,
        member: &AgentName,
        now: Timestamp,
    ) -> Result<Written<()>> {
        let Some(household) = household_of(&self.db, caller.key.0)? else { return Err(words::you_in_no_household()) };
        let members = self.members_where("household_id = ?1", household)?;
        let meant = member.meant(members, |(_, name)| name.as_str());
        let Some(leaving) = meant else { return Err(words::no_household_member(member)) };
        let person = person_of(&self.db, household)?.map(|(id, _)| id);
        if person == Some(leaving.0) {
            return Err(words::person_stays());
        }
        if leaving.0 != caller.key.0 && person != Some(caller.key.0) {
            return Err(words::not_the_person());
        }
        let news = self.take_out(household, vec![leaving], caller, now)?;
        Ok(Written { answer: (), news })
    }

    fn members_where(&self, condition: &str, value: i64) -> Result<Vec<(i64, AgentName)>> {
        let found: Vec<(i64, String)> = self
            .db
            .prepared(&format!("SELECT id, name FROM agents WHERE {condition} ORDER BY id"))
            .and_then(|mut select| {
                select.query_map([value], |row| Ok((row.get(0)?, row.get(1)?))).and_then(Iterator::collect)
            })
            .map_err(failed)?;
        found.into_iter().map(|(id, name)| Ok((id, row::name(&name)?))).collect()
    }

    /// Takes agents out of a household, ends what only the household allowed between them and others, and tells them and the
    /// person.
    fn take_out(
        &mut self,
        household: i64,
        leaving: Vec<(i64, AgentName)>,
        by: &Agent,
        now: Timestamp,
    ) -> Result<Vec<News>> {
        for (agent, _) in &leaving {
            self.db
                .prepared("UPDATE agents SET household_id = NULL, household_token_id = NULL WHERE id = ?1")
                .and_then(|mut update| update.execute([*agent]))
                .map_err(failed)?;
        }
        self.caches.consent.clear();
        let mut news = Vec::new();
        for (agent, name) in &leaving {
            news.extend(self.end_tasks_without_consent(*agent, &words::left_the_household(name), now)?);
            self.unshare_without_consent(*agent)?;
            news.extend(self.tell_left(household, *agent, name, by, now)?);
        }
        Ok(news)
    }

    /// Tells the person, and whoever was taken out by another.
    pub(super) fn tell_left(
        &mut self,
        household: i64,
        agent: i64,
        name: &AgentName,
        by: &Agent,
        now: Timestamp,
    ) -> Result<Vec<News>> {
        let person = person_of(&self.db, household)?.map(|(id, _)| id);
        let event: Event = words::household(name, HouseholdChange::Left, Some(&by.name));
        let told: Vec<i64> = [Some(agent), person].into_iter().flatten().filter(|told| *told != by.key.0).collect();
        told.into_iter().map(|told| self.tell(told, event.clone(), now)).collect()
    }
}

/// Whether there is a household.
pub(super) fn is_founded(db: &Connection) -> Result<bool> {
    db.prepared("SELECT 1 FROM households WHERE id > 0 LIMIT 1")
        .and_then(|mut select| select.exists([]))
        .map_err(failed)
}

/// The household that an agent is in.
pub(super) fn household_of(db: &Connection, agent: i64) -> Result<Option<i64>> {
    db.prepared("SELECT household_id FROM agents WHERE id = ?1")
        .and_then(|mut select| select.query_row([agent], |row| row.get(0)).optional())
        .map(Option::flatten)
        .map_err(failed)
}

/// The person of a household.
fn person_of(db: &Connection, household: i64) -> Result<Option<(i64, String)>> {
    db.prepared("SELECT id, name FROM agents WHERE household_id = ?1 AND person = 1")
        .and_then(|mut select| select.query_row([household], |row| Ok((row.get(0)?, row.get(1)?))).optional())
        .map_err(failed)
}

/// The household that the caller is in.
pub(super) fn household(db: &Connection, caller: &Agent, now: Timestamp) -> Result<Household> {
    let Some(household) = household_of(db, caller.key.0)? else { return Err(words::you_in_no_household()) };
    let id = db
        .prepared("SELECT public_id FROM households WHERE id = ?1")
        .and_then(|mut select| select.query_row([household], |row| uuid_at(row, 0)))
        .map_err(failed)?;
    let members: Vec<MemberRow> = db
        .prepared(
            "SELECT a.name, a.person, t.public_id, p.last_seen, p.here,
                    (SELECT group_concat(hex(k.public_id)) FROM tasks k
                     WHERE k.assignee_id = a.id AND k.state IN ('accepted', 'working'))
             FROM agents a LEFT JOIN presence p ON p.agent_id = a.id
             LEFT JOIN household_tokens t ON t.id = a.household_token_id
             WHERE a.household_id = ?1 ORDER BY a.name LIMIT ?2",
        )
        .and_then(|mut select| {
            select.query_map([household, i64::from(MAX_HOUSEHOLD_MEMBERS)], member_row).and_then(Iterator::collect)
        })
        .map_err(failed)?;
    let mut machines: Vec<Machine> = db
        .prepared(
            "SELECT public_id, label, owner, created_at, revoked_at FROM household_tokens WHERE household_id = ?1
             ORDER BY revoked_at IS NOT NULL, id DESC LIMIT ?2",
        )
        .and_then(|mut select| {
            select.query_map([household, i64::from(MACHINES_SHOWN)], machine).and_then(Iterator::collect)
        })
        .map_err(failed)?;
    machines.sort_by_key(|machine| (machine.created_at, machine.id));
    let members = members.into_iter().map(|member| member.shown(now)).collect::<Result<_>>()?;
    Ok(Household { id, members, machines })
}

fn member_row(row: &Row<'_>) -> rusqlite::Result<MemberRow> {
    let ids: Option<String> = row.get(5)?;
    Ok(MemberRow {
        name: row.get(0)?,
        person: row.get(1)?,
        machine: maybe_uuid_at(row, 2)?,
        last_seen: maybe_instant_at(row, 3)?,
        here: row.get(4)?,
        current: ids.unwrap_or_default().split(',').filter_map(|id| Uuid::parse_str(id).ok()).collect(),
    })
}

fn machine(row: &Row<'_>) -> rusqlite::Result<Machine> {
    Ok(Machine {
        id: uuid_at(row, 0)?,
        label: row.get(1)?,
        owner: row.get(2)?,
        created_at: instant_at(row, 3)?,
        revoked_at: maybe_instant_at(row, 4)?,
    })
}
