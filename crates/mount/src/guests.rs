//! Lists agents of the office in the directory.
//!
//! Agents related to a resident come first: those it wrote to first and those its card names; in an open mount also its
//! connections. An open mount then lists others by their last heartbeat, so that a name gives no priority. A guest that
//! is no longer listed keeps its mailbox, since mail may wait there, and its name; its description is removed.

use std::cmp::Reverse;
use std::collections::{HashMap, HashSet};
use std::sync::Arc;

use amb_core::doc::{AgentEntry, ConnectionStatus};
use amb_core::error::if_found;
use amb_core::{AgentName, Card, Mailbox, OfficeError, Status, Timestamp};
use amb_store::AgentsPage;
use tokio::sync::Notify;
use tokio_util::sync::CancellationToken;

use crate::context::Context;
use crate::membership::{Guest, ListedCard, NETWORK_OFFICE, Newcomer, Resident, SYNC_INTERVAL, fit_card};

/// Rounds between heartbeats of guests, well within the heartbeat timeout.
const HEARTBEAT_ROUNDS: u32 = 5;
/// Rounds between scans of connections and long lists of agents.
const SCAN_ROUNDS: u32 = 30;
/// Most agents of the office that are listed. Others are listed when they write to a resident that accepts their mail.
pub(crate) const MAX_GUESTS: usize = 250;
/// Above this many mailboxes, unrelated agents get none: mailboxes are never removed.
const MAX_MAILBOXES: usize = 1_000;
/// Page size of the office's list of agents.
const PAGE: u32 = 100;
/// A list of at most this many pages is scanned in every round.
const SHORT_LIST_PAGES: usize = 10;

/// Agents of the office, each with a resident that may see it.
type Chosen = Vec<(AgentName, Arc<Resident>)>;

/// State kept between rounds.
#[derive(Default)]
pub(crate) struct GuestScan {
    round: u32,
    connected: Chosen,
    /// Agents related to no resident, by their last heartbeat.
    unrelated: Vec<AgentEntry>,
    /// Pages of the list of agents at the last scan.
    pages: usize,
}

/// Writes cards and heartbeats of at most `max` agents of the office into the directory. `local_names` holds the
/// case-folded names of the directory's own agents.
pub(crate) async fn sync_guests(
    context: &Context,
    local_names: &HashSet<String>,
    scan: &mut GuestScan,
    max: usize,
) -> Result<(), OfficeError> {
    let round = scan.round;
    let residents = context.membership.residents();
    let Some(viewer) = residents.first() else { return Ok(()) };
    if context.terms.open {
        if round.is_multiple_of(SCAN_ROUNDS) {
            scan.connected = connected(context, &residents).await?;
        }
        if round.is_multiple_of(SCAN_ROUNDS) || scan.pages <= SHORT_LIST_PAGES {
            (scan.unrelated, scan.pages) = recently_seen(context, viewer, local_names, max).await?;
        }
    }
    let heartbeat = round.is_multiple_of(HEARTBEAT_ROUNDS);
    let mut chosen = HashSet::new();
    for (name, resident) in related_agents(context, &residents, &scan.connected).await? {
        if chosen.len() == max {
            break;
        }
        if local_names.contains(&name.folded())
            || context.membership.resident(&name).is_some()
            || !chosen.insert(name.clone())
        {
            continue;
        }
        let is_shown = context.membership.guest(&name).is_some_and(|guest| guest.is_described());
        if (heartbeat || !is_shown)
            && let Some(entry) = visible(context, &resident, &name).await?
        {
            list_guest(context, &entry, heartbeat).await?;
        }
    }
    for entry in &scan.unrelated {
        if chosen.len() == max {
            break;
        }
        let has_room =
            context.membership.guests().len() < MAX_MAILBOXES || context.membership.guest(&entry.name).is_some();
        if has_room && chosen.insert(entry.name.clone()) {
            list_guest(context, entry, heartbeat).await?;
        }
    }
    if round.is_multiple_of(SCAN_ROUNDS) {
        for guest in context.membership.guests() {
            if !chosen.contains(guest.mailbox.me()) {
                show(&guest, undescribed(), false, false).await?;
            }
        }
    }
    scan.round = round.wrapping_add(1);
    Ok(())
}

/// Agents related to a resident; those it wrote to first come first.
async fn related_agents(
    context: &Context,
    residents: &[Arc<Resident>],
    connected: &[(AgentName, Arc<Resident>)],
) -> Result<Chosen, OfficeError> {
    let by_name: HashMap<&AgentName, &Arc<Resident>> = residents.iter().map(|one| (&one.agent.name, one)).collect();
    let mut found = Vec::new();
    for (resident, guest) in context.ledger.contacts(MAX_GUESTS).await? {
        if let Some(resident) = by_name.get(&resident).filter(|resident| resident.card.allow_from.allows(&guest)) {
            found.push((guest, Arc::clone(resident)));
        }
    }
    found.extend(connected.iter().cloned());
    for resident in residents {
        let names = resident.card.allow_from.0.iter().filter_map(|name| AgentName::parse(name).ok());
        found.extend(names.map(|name| (name, resident.clone())));
    }
    Ok(found)
}

async fn connected(context: &Context, residents: &[Arc<Resident>]) -> Result<Chosen, OfficeError> {
    let mut found = Vec::new();
    for resident in residents {
        let connections = context.store.connections(&resident.agent).await?;
        let active = connections.into_iter().filter(|connection| connection.status == ConnectionStatus::Active);
        found.extend(active.take(MAX_GUESTS).map(|connection| (connection.agent_name, resident.clone())));
    }
    Ok(found)
}

/// Returns the agent of exactly this name, if the resident may see it.
async fn visible(context: &Context, resident: &Resident, name: &AgentName) -> Result<Option<AgentEntry>, OfficeError> {
    // Checked first because it is cheap: if the other verb finds nothing, it searches for the nearest name.
    if context.store.agent_by_name(name).await?.is_none_or(|agent| agent.name != *name) {
        return Ok(None);
    }
    if_found(context.store.agent(&resident.agent, name, Timestamp::now()).await)
}

/// Returns the discoverable agents with the latest heartbeats, newest first, and the number of pages of all.
async fn recently_seen(
    context: &Context,
    viewer: &Resident,
    local_names: &HashSet<String>,
    max: usize,
) -> Result<(Vec<AgentEntry>, usize), OfficeError> {
    let mut newest: Vec<AgentEntry> = Vec::new();
    let (mut after, mut pages) = (None, 0);
    loop {
        let page = AgentsPage { after: after.take(), limit: PAGE };
        let agents = context.store.agents(&viewer.agent, page, Timestamp::now()).await?;
        let (is_full, last) = (agents.len() == PAGE as usize, agents.last().map(|last| last.name.clone()));
        pages += 1;
        newest.extend(agents.into_iter().filter(|entry| {
            !local_names.contains(&entry.name.folded()) && context.membership.resident(&entry.name).is_none()
        }));
        newest.sort_by_cached_key(|entry| {
            (Reverse(entry.presence.last_seen.or(entry.registered_at)), entry.name.clone())
        });
        newest.truncate(max);
        if !is_full {
            return Ok((newest, pages));
        }
        after = last;
    }
}

/// Writes the card and presence of an agent of the office into the directory, if they changed.
pub(crate) async fn list_guest(context: &Context, entry: &AgentEntry, heartbeat: bool) -> Result<(), OfficeError> {
    let here = entry.presence.status != Status::Offline;
    show(&guest_mailbox(context, &entry.name), fit_card(&entry.card, NETWORK_OFFICE), here, heartbeat).await
}

/// Gives an agent of the office a mailbox without a description.
pub(crate) async fn list_name(context: &Context, name: &AgentName) -> Result<(), OfficeError> {
    show(&guest_mailbox(context, name), undescribed(), false, false).await
}

fn undescribed() -> Card {
    fit_card(&Card::default(), NETWORK_OFFICE)
}

async fn show(guest: &Guest, card: Card, here: bool, heartbeat: bool) -> Result<(), OfficeError> {
    let (new_card, was_here) = {
        let shown = guest.shown.lock();
        (shown.card.as_ref() != Some(&card), shown.here)
    };
    if new_card {
        guest.mailbox.register_mounted(card.clone(), SYNC_INTERVAL * HEARTBEAT_ROUNDS).await?;
    }
    match (here, new_card || was_here) {
        (true, _) if heartbeat || !was_here => guest.mailbox.heartbeat().await?,
        (false, true) => guest.mailbox.leave().await?,
        _ => {}
    }
    *guest.shown.lock() = ListedCard { card: Some(card), here };
    Ok(())
}

impl Guest {
    /// Whether the directory has its description.
    fn is_described(&self) -> bool {
        let shown = self.shown.lock();
        shown.card.as_ref().is_some_and(|card| *card != undescribed())
    }
}

/// Returns the guest of this name. The mailbox of a new one is read from now on.
pub(crate) fn guest_mailbox(context: &Context, name: &AgentName) -> Arc<Guest> {
    if let Some(guest) = context.membership.guest(name) {
        return guest;
    }
    let guest = Arc::new(Guest {
        mailbox: context.office.mailbox(name.clone()),
        flush: Notify::new(),
        gone: CancellationToken::new(),
        shown: Default::default(),
    });
    context.membership.add_guest(guest.clone());
    context.membership.announce(Newcomer::Guest(guest.clone()));
    guest
}

#[cfg(test)]
mod tests {
    use super::*;
    use amb_core::AllowFrom;
    use amb_dir::Layout;

    use crate::testing::Fixture;

    /// Returns the names of the office's agents whose descriptions are in the directory.
    fn listed(context: &Context) -> Vec<String> {
        let guests = context.membership.guests();
        let mut names: Vec<_> =
            guests.iter().filter(|guest| guest.is_described()).map(|guest| guest.mailbox.me()).collect();
        names.sort();
        names.into_iter().map(AgentName::to_string).collect()
    }

    fn naming(names: &[&str]) -> Card {
        Card { allow_from: AllowFrom(names.iter().map(|name| name.to_string()).collect()), ..Card::default() }
    }

    #[tokio::test]
    async fn names_that_sort_first_do_not_displace_others() {
        let fixture = Fixture::new(Layout::Nanobot, true).await;
        let (context, office) = (&fixture.context, &fixture.network);
        let coder = fixture.resident("coder", naming(&["*", "zac"])).await;
        for n in 0..PAGE + 20 {
            fixture.enter(&format!("000-{n}"), "first by name").await;
        }
        let (zoe, _) = (fixture.enter("zoe", "connected").await, fixture.enter("zac", "named").await);
        office.connect(&coder.agent, &zoe).await;
        let late = Timestamp::now() + std::time::Duration::from_secs(60);
        for name in ["zed", "zeb"] {
            let agent = fixture.enter(name, "heard last").await;
            office.seen(&[agent.key], late).await.unwrap();
        }
        let mut scan = GuestScan::default();
        sync_guests(context, &HashSet::new(), &mut scan, 4).await.unwrap();
        assert_eq!(listed(context), ["zac", "zeb", "zed", "zoe"]);
        assert_eq!(context.membership.guests().len(), 4, "and nobody else has a mailbox");
        // Others have later heartbeats now: the descriptions of those that are no longer among the latest are removed.
        let still_later = late + std::time::Duration::from_secs(60);
        let agent = fixture.enter("abe", "heard last").await;
        office.seen(&[agent.key], still_later).await.unwrap();
        sync_guests(context, &HashSet::new(), &mut GuestScan::default(), 4).await.unwrap();
        assert!(listed(context).contains(&"abe".to_owned()) && listed(context).len() == 4, "{:?}", listed(context));
    }

    #[tokio::test]
    async fn a_closed_mount_lists_whom_a_resident_names_or_wrote_to_and_nobody_else() {
        let fixture = Fixture::new(Layout::Nanobot, false).await;
        let context = &fixture.context;
        let coder = fixture.resident("coder", naming(&["*", "zac", "nobody", "ANN"])).await;
        for name in ["ann", "bob", "eve", "zac"] {
            fixture.enter(name, "hear me").await;
        }
        let eve = fixture.network.agent_by_name(&"eve".parse().unwrap()).await.unwrap().unwrap();
        fixture.network.connect(&eve, &coder.agent).await;
        fixture.writes("coder", "bob").await;
        sync_guests(context, &HashSet::new(), &mut GuestScan::default(), 9).await.unwrap();
        assert_eq!(listed(context), ["bob", "zac"]);
    }
}
