//! Keeps the lists of agents in step: residents get accounts in the office, guests get mailboxes in the directory.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use amb_core::card::MOUNTED_DIRECTORY;
use amb_core::doc::{AgentEntry, ProfilePatch};
use amb_core::error::if_found;
use amb_core::limits::{MAX_ALLOW_FROM, MAX_CAPABILITIES, MAX_CAPABILITY_CHARS, MAX_DESCRIPTION_CHARS};
use amb_core::name::BadName;
use amb_core::{AgentName, AllowFrom, Card, Code, Mailbox, OfficeError, Status, Timestamp};
use amb_dir::{DirMailbox, Home};
use amb_store::{Agent, AgentKey, KeyHash, NewAgent, Store};
use parking_lot::{Mutex, RwLock};
use tokio::sync::Notify;
use tokio_util::sync::CancellationToken;

use crate::context::{Context, Rounds};
use crate::guests::{self, GuestScan, MAX_GUESTS};

/// How often the two lists are compared.
pub(crate) const SYNC_INTERVAL: Duration = Duration::from_secs(2);
/// Most guests that are marked offline when the mount ends; others time out. Each costs an update of the registry.
const MAX_MARKED_OFFLINE: usize = 100;

/// In the directory, the end of the description of an agent of the office.
pub(crate) const NETWORK_OFFICE: &str = "(network office)";

const SYNCING: &str = "keeping the lists of agents in step";

/// An agent of the directory.
#[derive(Debug)]
pub(crate) struct Resident {
    /// Its account in the office.
    pub(crate) agent: Agent,
    /// Its card, with `allow_from`.
    pub(crate) card: Card,
}

/// An agent of the office.
#[derive(Debug)]
pub(crate) struct Guest {
    /// Its mailbox in the directory.
    pub(crate) mailbox: DirMailbox,
    /// Notified when waiting mail may have got consent.
    pub(crate) flush: Notify,
    /// Cancelled when the name is no longer the guest's.
    pub(crate) gone: CancellationToken,
    pub(crate) shown: Mutex<ListedCard>,
}

/// What was last written to the directory about a guest.
#[derive(Debug, Default, PartialEq)]
pub(crate) struct ListedCard {
    pub(crate) card: Option<Card>,
    pub(crate) here: bool,
}

/// Wakes the loops that wait for entries in residents' logs.
#[derive(Debug, Default)]
pub(crate) struct HintSignals(Mutex<HashMap<AgentKey, Arc<Notify>>>);

impl HintSignals {
    pub(crate) fn of(&self, agent: AgentKey) -> Arc<Notify> {
        self.0.lock().entry(agent).or_default().clone()
    }

    pub(crate) fn hint(&self, agent: AgentKey) {
        if let Some(signal) = self.0.lock().get(&agent) {
            signal.notify_one();
        }
    }

    pub(crate) fn hint_all(&self) {
        self.0.lock().values().for_each(|signal| signal.notify_one());
    }
}

/// The residents and the guests.
pub(crate) struct Membership {
    /// Secret from which the keys of residents' accounts are derived, so that nobody else has them.
    secret: String,
    pub(crate) signals: Arc<HintSignals>,
    lists: RwLock<Lists>,
    /// Held while the lists are changed.
    changing: tokio::sync::Mutex<()>,
    /// New agents, for which the mount starts loops.
    newcomers: Mutex<Vec<Newcomer>>,
    /// Notified when there is a new agent.
    pub(crate) arrived: Notify,
}

/// An agent whose mail is carried from now on.
pub(crate) enum Newcomer {
    /// An agent of the directory, by its account.
    Resident(Agent),
    /// An agent of the office.
    Guest(Arc<Guest>),
}

#[derive(Default)]
struct Lists {
    residents: HashMap<AgentName, Arc<Resident>>,
    guests: HashMap<AgentName, Arc<Guest>>,
}

impl Membership {
    pub(crate) fn new(secret: String, signals: Arc<HintSignals>) -> Self {
        Self {
            secret,
            signals,
            lists: RwLock::default(),
            changing: tokio::sync::Mutex::default(),
            newcomers: Mutex::default(),
            arrived: Notify::new(),
        }
    }

    pub(crate) fn resident(&self, name: &AgentName) -> Option<Arc<Resident>> {
        self.lists.read().residents.get(name).cloned()
    }

    pub(crate) fn guest(&self, name: &AgentName) -> Option<Arc<Guest>> {
        self.lists.read().guests.get(name).cloned()
    }

    pub(crate) fn add_guest(&self, guest: Arc<Guest>) {
        self.lists.write().guests.insert(guest.mailbox.me().clone(), guest);
    }

    pub(crate) fn announce(&self, newcomer: Newcomer) {
        self.newcomers.lock().push(newcomer);
        self.arrived.notify_one();
    }

    /// Returns the new agents since the last call.
    pub(crate) fn newcomers(&self) -> Vec<Newcomer> {
        std::mem::take(&mut *self.newcomers.lock())
    }

    pub(crate) fn guests(&self) -> Vec<Arc<Guest>> {
        self.lists.read().guests.values().cloned().collect()
    }

    pub(crate) fn residents(&self) -> Vec<Arc<Resident>> {
        self.lists.read().residents.values().cloned().collect()
    }

    /// Whether the office has the account of any of these residents, or there are none: the ledger belongs to this
    /// office. With another office's ledger the mount would skip mail and deliver waiting mail to other agents of the
    /// same names.
    pub(crate) async fn is_known_to(&self, store: &dyn Store, residents: &[AgentName]) -> Result<bool, OfficeError> {
        for name in residents {
            if store.agent_by_key_hash(self.key(name), Timestamp::now()).await?.is_some() {
                return Ok(true);
            }
        }
        Ok(residents.is_empty())
    }

    fn key(&self, name: &AgentName) -> KeyHash {
        KeyHash::of(&format!("mount-{}-{name}", self.secret))
    }
}

/// Syncs the lists periodically.
pub(crate) async fn run(context: Arc<Context>) {
    let mut rounds = Rounds::new(&context, SYNCING, Arc::default());
    let mut scan = GuestScan::default();
    while rounds.next(sync_lists(&context, &mut scan).await.map(|()| SYNC_INTERVAL)).await {}
}

/// Marks guests as offline.
pub(crate) async fn mark_guests_offline(context: &Context) {
    for guest in context.membership.guests().into_iter().take(MAX_MARKED_OFFLINE) {
        if let Err(error) = guest.mailbox.leave().await {
            tracing::debug!(%error, guest = %guest.mailbox.me(), "could not mark a guest offline; it times out");
        }
    }
}

/// Returns the resident of this name, scanning the directory if it is not known yet.
pub(crate) async fn find_resident(context: &Context, name: &AgentName) -> Result<Option<Arc<Resident>>, OfficeError> {
    if let Some(resident) = context.membership.resident(name) {
        return Ok(Some(resident));
    }
    let _changing = context.membership.changing.lock().await;
    sync_residents(context).await?;
    Ok(context.membership.resident(name))
}

/// Returns the guest that wrote to a resident; `None` if the directory has an agent of that name. Its description is
/// shown only if the resident accepts its mail.
pub(crate) async fn find_guest(
    context: &Context,
    name: &AgentName,
    resident: &Agent,
    accepted: bool,
) -> Result<Option<Arc<Guest>>, OfficeError> {
    if let Some(guest) = context.membership.guest(name) {
        return Ok(Some(guest));
    }
    let _changing = context.membership.changing.lock().await;
    let local_names = sync_residents(context).await?;
    if local_names.contains(&name.folded()) {
        return Ok(None);
    }
    if !accepted {
        guests::list_name(context, name).await?;
        return Ok(context.membership.guest(name));
    }
    match if_found(context.store.agent(resident, name, Timestamp::now()).await)? {
        Some(entry) => guests::list_guest(context, &entry, false).await?,
        // Deleted or no longer discoverable; what it wrote before is delivered all the same.
        None => guests::list_name(context, name).await?,
    }
    Ok(context.membership.guest(name))
}

async fn sync_lists(context: &Context, scan: &mut GuestScan) -> Result<(), OfficeError> {
    let _changing = context.membership.changing.lock().await;
    let local_names = sync_residents(context).await?;
    guests::sync_guests(context, &local_names, scan, MAX_GUESTS).await?;
    let lists = (context.membership.lists.read().residents.len(), context.membership.lists.read().guests.len());
    context.stats.residents.store(lists.0 as u64, Ordering::Relaxed);
    context.stats.guests.store(lists.1 as u64, Ordering::Relaxed);
    context.stats.waiting.store(context.ledger.waiting().await?, Ordering::Relaxed);
    Ok(())
}

/// Gives every agent of the directory an account, and writes their cards and heartbeats into the office. Returns their
/// case-folded names: the office's names are case-insensitive.
async fn sync_residents(context: &Context) -> Result<HashSet<String>, OfficeError> {
    let mut local_names = HashSet::new();
    let mut alive = Vec::new();
    for (entry, home) in context.office.all_agents().await? {
        match home {
            Home::Directory => {
                local_names.insert(entry.name.folded());
                let resident = sync_resident(context, &entry).await?;
                if entry.presence.status != Status::Offline {
                    alive.extend(resident.map(|resident| resident.agent.key));
                }
            }
            Home::Office => {
                // Listed by an earlier run: mail may wait for it.
                if context.membership.guest(&entry.name).is_none()
                    && context.store.agent_by_name(&entry.name).await?.is_some()
                {
                    guests::guest_mailbox(context, &entry.name);
                }
            }
            Home::Taken => {
                local_names.insert(entry.name.folded());
                let gone = context.membership.lists.write().guests.remove(&entry.name);
                if let Some(guest) = gone {
                    guest.gone.cancel();
                }
                context.office.mailbox(entry.name.clone()).unmark_mounted().await?;
                context.stats.record_collision(
                    &entry.name,
                    "a program in the directory registered under an office agent's name",
                );
            }
        }
    }
    if !alive.is_empty() {
        context.store.seen(&alive, Timestamp::now()).await?;
    }
    Ok(local_names)
}

/// Returns the resident with its account, which is created if missing. `None` if the name, compared case-insensitively,
/// is taken or reserved.
async fn sync_resident(context: &Context, entry: &AgentEntry) -> Result<Option<Arc<Resident>>, OfficeError> {
    let card = fit_card(&entry.card, MOUNTED_DIRECTORY);
    if let Some(known) = context.membership.resident(&entry.name) {
        if known.card == card {
            return Ok(Some(known));
        }
        update_card(context, &known.agent, &card).await?;
        let resident = Arc::new(Resident { agent: known.agent.clone(), card });
        context.membership.lists.write().residents.insert(entry.name.clone(), resident.clone());
        return Ok(Some(resident));
    }
    let collides = |why| {
        context.stats.record_collision(&entry.name, why);
        Ok(None)
    };
    let (now, key_hash) = (Timestamp::now(), context.membership.key(&entry.name));
    let agent = match context.store.agent_by_key_hash(key_hash, now).await? {
        Some(agent) => {
            update_card(context, &agent, &card).await?;
            agent
        }
        None => {
            match entry.name.check_new() {
                Ok(()) => {}
                Err(BadName::NotForServer) => {
                    return collides("the office takes names of ASCII letters, digits, '-', '_' and '.' alone");
                }
                Err(_) => return collides("the name is reserved, since it could be taken for more than an agent"),
            }
            let new = NewAgent {
                name: entry.name.clone(),
                key_hash,
                key_prefix: "mount".into(),
                owner_contact: Some(format!("mounted directory {}", context.office.root().display())),
                card: card.clone(),
                join: None,
            };
            match context.store.register_agent(new, now).await {
                Ok(registered) => registered.answer,
                Err(error) if error.code() == Code::Conflict => {
                    return collides(
                        "the office has an agent or a group of this name, the case of letters not counted",
                    );
                }
                Err(error) => return Err(error),
            }
        }
    };
    context.stats.clear_collision(&entry.name);
    context.ledger.record_resident(&entry.name).await?;
    let resident = Arc::new(Resident { agent: agent.clone(), card });
    context.membership.lists.write().residents.insert(entry.name.clone(), resident.clone());
    context.membership.announce(Newcomer::Resident(agent));
    Ok(Some(resident))
}

async fn update_card(context: &Context, agent: &Agent, card: &Card) -> Result<(), OfficeError> {
    let patch = ProfilePatch::from(card.clone());
    context.store.update_profile(agent, patch, Timestamp::now()).await.map(drop)
}

/// Cuts a card to the limits of the other side and ends its description with the agent's home. Cards of other programs
/// have no limits.
pub(crate) fn fit_card(card: &Card, home: &str) -> Card {
    let room = MAX_DESCRIPTION_CHARS - home.chars().count() - 1;
    let text: String = card.description.replace('\0', "").chars().take(room).collect();
    let description = if text.trim().is_empty() { home.to_owned() } else { format!("{text} {home}") };
    let is_word = |word: &&String| !word.is_empty() && word.chars().count() <= MAX_CAPABILITY_CHARS;
    // Leaving out what is not a valid name admits nobody.
    let is_name = |name: &&String| *name == "*" || AgentName::parse(name).is_ok();
    Card {
        description,
        capabilities: card.capabilities.iter().filter(is_word).take(MAX_CAPABILITIES).cloned().collect(),
        allow_from: AllowFrom(card.allow_from.0.iter().filter(is_name).take(MAX_ALLOW_FROM).cloned().collect()),
        max_concurrent_tasks: card.max_concurrent_tasks,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_card_is_cut_to_the_limits_and_admits_no_more_senders() {
        let card = Card {
            description: "x".repeat(5_000),
            capabilities: vec![String::new(), "rust".into(), "y".repeat(500)],
            allow_from: AllowFrom(vec!["../x".into(), "ann".into()]),
            max_concurrent_tasks: 1,
        };
        let fit = fit_card(&card, NETWORK_OFFICE);
        fit.check().unwrap();
        assert!(fit.description.ends_with(" (network office)"));
        assert_eq!(fit.capabilities, ["rust"]);
        assert_eq!(fit.allow_from, AllowFrom(vec!["ann".into()]));
        assert_eq!(fit_card(&Card::default(), MOUNTED_DIRECTORY).description, "(mounted directory)");
    }
}
