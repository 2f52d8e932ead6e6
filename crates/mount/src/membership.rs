//! Keeps the lists of agents of both sides in step: residents get accounts in the office, guests get mailboxes in the
//! directory.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use amb_core::doc::AgentEntry;
use amb_core::error::if_found;
use amb_core::limits::{MAX_ALLOW_FROM, MAX_CAPABILITIES, MAX_CAPABILITY_CHARS, MAX_DESCRIPTION_CHARS};
use amb_core::name::BadName;
use amb_core::{AgentName, AllowFrom, Card, Code, Mailbox, OfficeError, Status, Timestamp};
use amb_dir::{DirMailbox, Home};
use amb_store::{Agent, AgentKey, KeyHash, NewAgent, ProfilePatch};
use parking_lot::{Mutex, RwLock};
use tokio::sync::Notify;
use tokio_util::sync::CancellationToken;

use crate::context::{Context, backoff};
use crate::guests::{self, GuestScan};

/// How often the two lists are compared.
pub(crate) const LOOK: Duration = Duration::from_secs(2);
/// Most guests that are marked offline at the end; others time out. Each costs a scan of the registry.
const GOODBYES: usize = 100;

const KEEPING: &str = "keeping the lists of agents in step";

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
    pub(crate) shown: Mutex<AdvertisedCard>,
}

/// What was last written to the directory about a guest.
#[derive(Debug, Default, PartialEq)]
pub(crate) struct AdvertisedCard {
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

/// Both lists.
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
    pub(crate) came: Notify,
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
            came: Notify::new(),
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

    pub(crate) fn comes(&self, newcomer: Newcomer) {
        self.newcomers.lock().push(newcomer);
        self.came.notify_one();
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

    fn key(&self, name: &AgentName) -> KeyHash {
        KeyHash::of(&format!("mount-{}-{name}", self.secret))
    }
}

/// Compares the lists periodically.
pub(crate) async fn keep(context: Arc<Context>) {
    let mut backoff = backoff();
    let mut looked = GuestScan::default();
    loop {
        let wait = match compare(&context, &mut looked).await {
            Ok(()) => {
                context.stats.works(KEEPING);
                backoff.reset();
                LOOK
            }
            Err(error) => {
                context.stats.failed(KEEPING, &error);
                backoff.pause().max(LOOK)
            }
        };
        tokio::select! {
            () = tokio::time::sleep(wait) => {}
            () = context.closing.cancelled() => return,
        }
    }
}

/// Marks guests as offline when the mount ends.
pub(crate) async fn goodbye(context: &Context) {
    for guest in context.membership.guests().into_iter().take(GOODBYES) {
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
    look_at_directory(context).await?;
    Ok(context.membership.resident(name))
}

/// Returns the guest that wrote to a resident; `None` if the directory has an agent of that name. Its description is
/// shown only if the resident accepts its mail.
pub(crate) async fn find_guest(
    context: &Context,
    name: &AgentName,
    resident: &Agent,
    heard: bool,
) -> Result<Option<Arc<Guest>>, OfficeError> {
    if let Some(guest) = context.membership.guest(name) {
        return Ok(Some(guest));
    }
    let _changing = context.membership.changing.lock().await;
    let local_names = look_at_directory(context).await?;
    if local_names.contains(&name.folded()) {
        return Ok(None);
    }
    if !heard {
        guests::show_name(context, name).await?;
        return Ok(context.membership.guest(name));
    }
    match if_found(context.store.agent(resident, name, Timestamp::now()).await)? {
        Some(entry) => guests::show_guest(context, &entry, false).await?,
        // Deleted or no longer discoverable; what it wrote before is delivered all the same.
        None => guests::show_name(context, name).await?,
    }
    Ok(context.membership.guest(name))
}

async fn compare(context: &Context, looked: &mut GuestScan) -> Result<(), OfficeError> {
    let _changing = context.membership.changing.lock().await;
    let local_names = look_at_directory(context).await?;
    guests::look_at_office(context, &local_names, looked).await?;
    let lists = (context.membership.lists.read().residents.len(), context.membership.lists.read().guests.len());
    context.stats.residents.store(lists.0 as u64, Ordering::Relaxed);
    context.stats.guests.store(lists.1 as u64, Ordering::Relaxed);
    context.stats.waiting.store(context.ledger.waiting().await?, Ordering::Relaxed);
    Ok(())
}

/// Gives every agent of the directory an account, and writes their cards and heartbeats into the office. Returns their
/// names, case-folded, since names that differ only in case are the same.
async fn look_at_directory(context: &Context) -> Result<HashSet<String>, OfficeError> {
    let mut local_names = HashSet::new();
    let mut alive = Vec::new();
    for (entry, home) in context.office.all_agents().await? {
        match home {
            Home::Directory => {
                local_names.insert(entry.name.folded());
                let resident = enter_resident(context, &entry).await?;
                if entry.presence.status != Status::Offline {
                    alive.extend(resident.map(|resident| resident.agent.key));
                }
            }
            Home::Office => {
                // From an earlier run: mail written meanwhile may wait for it.
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
                context
                    .stats
                    .collides(&entry.name, "a program in the directory registered under an office agent's name");
            }
        }
    }
    if !alive.is_empty() {
        context.store.seen(&alive, Timestamp::now()).await?;
    }
    Ok(local_names)
}

/// Returns the resident with its account, which is created if missing. `None` if the name, compared without case, is
/// taken or reserved.
async fn enter_resident(context: &Context, entry: &AgentEntry) -> Result<Option<Arc<Resident>>, OfficeError> {
    let card = fitting(&entry.card, "mounted directory");
    if let Some(known) = context.membership.resident(&entry.name) {
        if known.card == card {
            return Ok(Some(known));
        }
        update_card(context, &known.agent, &card).await?;
        let resident = Arc::new(Resident { agent: known.agent.clone(), card });
        context.membership.lists.write().residents.insert(entry.name.clone(), resident.clone());
        return Ok(Some(resident));
    }
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
                    let why = "the office takes names of ASCII letters, digits, '-', '_' and '.' alone";
                    context.stats.collides(&entry.name, why);
                    return Ok(None);
                }
                Err(_) => {
                    let why = "the name is reserved, since it could be taken for more than an agent";
                    context.stats.collides(&entry.name, why);
                    return Ok(None);
                }
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
                    let why = "the office has an agent or a group of this name, the case of letters not counted";
                    context.stats.collides(&entry.name, why);
                    return Ok(None);
                }
                Err(error) => return Err(error),
            }
        }
    };
    context.stats.no_collision(&entry.name);
    let resident = Arc::new(Resident { agent: agent.clone(), card });
    context.membership.lists.write().residents.insert(entry.name.clone(), resident.clone());
    context.membership.comes(Newcomer::Resident(agent));
    Ok(Some(resident))
}

async fn update_card(context: &Context, agent: &Agent, card: &Card) -> Result<(), OfficeError> {
    let patch = ProfilePatch {
        description: Some(card.description.clone()),
        capabilities: Some(card.capabilities.clone()),
        allow_from: Some(card.allow_from.clone()),
        max_concurrent_tasks: Some(card.max_concurrent_tasks),
        discoverable: None,
    };
    context.store.update_profile(agent, patch, Timestamp::now()).await.map(drop)
}

/// Cuts a card to the limits of the other side and names the agent's home in its description. Cards of other programs
/// have no limits.
pub(crate) fn fitting(card: &Card, home: &str) -> Card {
    let home = format!("({home})");
    let room = MAX_DESCRIPTION_CHARS - home.chars().count() - 1;
    let text: String = card.description.replace('\0', "").chars().take(room).collect();
    let description = if text.trim().is_empty() { home } else { format!("{text} {home}") };
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
    fn any_card_is_made_to_fit_and_lets_nobody_in_who_was_not() {
        let card = Card {
            description: "x".repeat(5_000),
            capabilities: vec![String::new(), "rust".into(), "y".repeat(500)],
            allow_from: AllowFrom(vec!["../x".into(), "ann".into()]),
            max_concurrent_tasks: 1,
        };
        let fit = fitting(&card, "network office");
        fit.check().unwrap();
        assert!(fit.description.ends_with(" (network office)"));
        assert_eq!(fit.capabilities, ["rust"]);
        assert_eq!(fit.allow_from, AllowFrom(vec!["ann".into()]));
        assert_eq!(fitting(&Card::default(), "mounted directory").description, "(mounted directory)");
    }
}
