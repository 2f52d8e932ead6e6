//! Who lives on which side, kept in step: residents get accounts in the office, guests get mailboxes in the directory.

use parking_lot::{Mutex, RwLock, RwLockReadGuard, RwLockWriteGuard};
use std::collections::{HashMap, HashSet};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use amb_core::doc::AgentEntry;
use amb_core::limits::{MAX_ALLOW_FROM, MAX_CAPABILITIES, MAX_CAPABILITY_CHARS, MAX_DESCRIPTION_CHARS};
use amb_core::{AgentName, AllowFrom, Card, Code, Office, OfficeError, Presence, Status, Timestamp};
use amb_dir::{DirSeat, Home};
use amb_store::{Agent, AgentKey, KeyHash, NewAgent, ProfilePatch};
use tokio::sync::Notify;
use tokio_util::sync::CancellationToken;

use crate::guests::{self, Looked};
use crate::post::{Patience, Post};

/// How often the two lists are compared.
pub(crate) const LOOK: Duration = Duration::from_secs(2);
/// Beyond this many, guests go by their silence: a goodbye costs a look at everybody.
const GOODBYES: usize = 100;

const KEEPING: &str = "keeping the lists of agents in step";

/// An agent of the directory.
#[derive(Debug)]
pub(crate) struct Resident {
    /// Its account in the office.
    pub(crate) agent: Agent,
    /// Whom it hears, and what it says of itself.
    pub(crate) card: Card,
}

/// An agent of the office.
#[derive(Debug)]
pub(crate) struct Guest {
    /// Its seat in the directory.
    pub(crate) seat: DirSeat,
    /// Rung when mail that waits may be able to go.
    pub(crate) flush: Notify,
    /// Cancelled when the name is no longer the guest's.
    pub(crate) gone: CancellationToken,
    pub(crate) shown: Mutex<Shown>,
}

/// What the directory was last told of a guest.
#[derive(Debug, Default, PartialEq)]
pub(crate) struct Shown {
    pub(crate) card: Option<Card>,
    pub(crate) here: bool,
}

/// Wakes the loops that wait for entries in a resident's log.
#[derive(Debug, Default)]
pub(crate) struct Bells(Mutex<HashMap<AgentKey, Arc<Notify>>>);

impl Bells {
    fn bells(&self) -> parking_lot::MutexGuard<'_, HashMap<AgentKey, Arc<Notify>>> {
        self.0.lock()
    }

    pub(crate) fn of(&self, agent: AgentKey) -> Arc<Notify> {
        self.bells().entry(agent).or_default().clone()
    }

    pub(crate) fn hint(&self, agent: AgentKey) {
        if let Some(bell) = self.bells().get(&agent) {
            bell.notify_one();
        }
    }

    pub(crate) fn hint_all(&self) {
        self.bells().values().for_each(|bell| bell.notify_one());
    }
}

/// Both lists.
pub(crate) struct People {
    /// From it follow the keys of the residents' accounts, which so are nobody else's.
    secret: String,
    pub(crate) bells: Arc<Bells>,
    lists: RwLock<Lists>,
    /// Held while the lists are changed.
    changing: tokio::sync::Mutex<()>,
    /// Who came since the mount last looked; it starts their loops.
    newcomers: Mutex<Vec<Newcomer>>,
    /// Rung when somebody came.
    pub(crate) came: Notify,
}

/// Somebody whose mail is to be carried from now on.
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

impl People {
    pub(crate) fn new(secret: String, bells: Arc<Bells>) -> Self {
        Self {
            secret,
            bells,
            lists: RwLock::default(),
            changing: tokio::sync::Mutex::default(),
            newcomers: Mutex::default(),
            came: Notify::new(),
        }
    }

    fn read(&self) -> RwLockReadGuard<'_, Lists> {
        self.lists.read()
    }

    fn write(&self) -> RwLockWriteGuard<'_, Lists> {
        self.lists.write()
    }

    pub(crate) fn resident(&self, name: &AgentName) -> Option<Arc<Resident>> {
        self.read().residents.get(name).cloned()
    }

    pub(crate) fn guest(&self, name: &AgentName) -> Option<Arc<Guest>> {
        self.read().guests.get(name).cloned()
    }

    pub(crate) fn add_guest(&self, guest: Arc<Guest>) {
        self.write().guests.insert(guest.seat.me().clone(), guest);
    }

    pub(crate) fn comes(&self, newcomer: Newcomer) {
        self.newcomers.lock().push(newcomer);
        self.came.notify_one();
    }

    /// All who came since the last call.
    pub(crate) fn newcomers(&self) -> Vec<Newcomer> {
        std::mem::take(&mut *self.newcomers.lock())
    }

    pub(crate) fn guests(&self) -> Vec<Arc<Guest>> {
        self.read().guests.values().cloned().collect()
    }

    pub(crate) fn residents(&self) -> Vec<Arc<Resident>> {
        self.read().residents.values().cloned().collect()
    }

    fn key(&self, name: &AgentName) -> KeyHash {
        KeyHash::of(&format!("mount-{}-{name}", self.secret))
    }
}

/// Compares the lists again and again.
pub(crate) async fn keep(post: Arc<Post>) {
    let mut patience = Patience::default();
    let mut looked = Looked::default();
    loop {
        let wait = match compare(&post, &mut looked).await {
            Ok(()) => {
                post.stats.works(KEEPING);
                patience.restore();
                LOOK
            }
            Err(error) => {
                post.stats.failed(KEEPING, &error);
                patience.next().max(LOOK)
            }
        };
        tokio::select! {
            () = tokio::time::sleep(wait) => {}
            () = post.closing.cancelled() => return,
        }
    }
}

/// Guests are offline in a directory that is not mounted.
pub(crate) async fn goodbye(post: &Post) {
    for guest in post.people.guests().into_iter().take(GOODBYES) {
        if let Err(error) = guest.seat.leave().await {
            tracing::debug!(%error, guest = %guest.seat.me(), "no goodbye; silence will do");
        }
    }
}

/// An agent of the directory by its name, which may have come since the last look.
pub(crate) async fn find_resident(post: &Post, name: &AgentName) -> Result<Option<Arc<Resident>>, OfficeError> {
    if let Some(resident) = post.people.resident(name) {
        return Ok(Some(resident));
    }
    let _changing = post.people.changing.lock().await;
    look_at_directory(post).await?;
    Ok(post.people.resident(name))
}

/// The seat of an agent of the office that has written to a resident; none where the directory has an agent of that name.
/// What it says of itself is shown where the resident hears it.
pub(crate) async fn find_guest(
    post: &Post,
    name: &AgentName,
    resident: &Agent,
    heard: bool,
) -> Result<Option<Arc<Guest>>, OfficeError> {
    if let Some(guest) = post.people.guest(name) {
        return Ok(Some(guest));
    }
    let _changing = post.people.changing.lock().await;
    let at_home = look_at_directory(post).await?;
    if at_home.contains(&name.folded()) {
        return Ok(None);
    }
    if !heard {
        guests::show_name(post, name).await?;
        return Ok(post.people.guest(name));
    }
    let entry = match post.store.agent(resident, name, Timestamp::now()).await {
        Ok(entry) => entry,
        // It has gone, or does not want to be seen any more; what it wrote before is delivered all the same.
        Err(error) if error.code() == Code::NotFound => {
            AgentEntry { name: name.clone(), card: Card::default(), presence: Presence::default(), registered_at: None }
        }
        Err(error) => return Err(error),
    };
    guests::show_guest(post, &entry, false).await?;
    Ok(post.people.guest(name))
}

async fn compare(post: &Post, looked: &mut Looked) -> Result<(), OfficeError> {
    let _changing = post.people.changing.lock().await;
    let at_home = look_at_directory(post).await?;
    guests::look_at_office(post, &at_home, looked).await?;
    let lists = (post.people.read().residents.len(), post.people.read().guests.len());
    post.stats.residents.store(lists.0 as u64, Ordering::Relaxed);
    post.stats.guests.store(lists.1 as u64, Ordering::Relaxed);
    post.stats.waiting.store(post.ledger.waiting().await?, Ordering::Relaxed);
    Ok(())
}

/// Gives every agent of the directory an account, and the office their cards and signs of life. Returns their names, folded:
/// one that differs in the case of its letters alone is no other name.
async fn look_at_directory(post: &Post) -> Result<HashSet<String>, OfficeError> {
    let mut at_home = HashSet::new();
    let mut alive = Vec::new();
    for (entry, home) in post.office.everybody().await? {
        match home {
            Home::Directory => {
                at_home.insert(entry.name.folded());
                let resident = enter_resident(post, &entry).await?;
                if entry.presence.status != Status::Offline {
                    alive.extend(resident.map(|resident| resident.agent.key));
                }
            }
            Home::Office => {
                // Of an earlier run: mail may wait for it that was written meanwhile.
                if post.people.guest(&entry.name).is_none() && post.store.agent_by_name(&entry.name).await?.is_some() {
                    guests::take_seat(post, &entry.name);
                }
            }
            Home::Taken => {
                at_home.insert(entry.name.folded());
                let gone = post.people.write().guests.remove(&entry.name);
                if let Some(guest) = gone {
                    guest.gone.cancel();
                }
                post.office.seat(entry.name.clone()).give_up_mounted().await?;
                post.stats.collides(&entry.name, "a program in the directory registered under an office agent's name");
            }
        }
    }
    if !alive.is_empty() {
        post.store.seen(&alive, Timestamp::now()).await?;
    }
    Ok(at_home)
}

/// The account of an agent of the directory, made where it has none. None where somebody else has the name, or one that
/// differs in case alone, or where no new agent may have it.
async fn enter_resident(post: &Post, entry: &AgentEntry) -> Result<Option<Arc<Resident>>, OfficeError> {
    let card = fitting(&entry.card, "mounted directory");
    if let Some(known) = post.people.resident(&entry.name) {
        if known.card == card {
            return Ok(Some(known));
        }
        update_card(post, &known.agent, &card).await?;
        let resident = Arc::new(Resident { agent: known.agent.clone(), card });
        post.people.write().residents.insert(entry.name.clone(), resident.clone());
        return Ok(Some(resident));
    }
    let (now, key_hash) = (Timestamp::now(), post.people.key(&entry.name));
    let agent = match post.store.agent_by_key_hash(key_hash, now).await? {
        Some(agent) => {
            update_card(post, &agent, &card).await?;
            agent
        }
        None => {
            if entry.name.check_new().is_err() {
                post.stats
                    .collides(&entry.name, "the name is reserved, since it could be taken for more than an agent");
                return Ok(None);
            }
            let new = NewAgent {
                name: entry.name.clone(),
                key_hash,
                key_prefix: "mount".into(),
                owner_contact: Some(format!("mounted directory {}", post.office.root().display())),
                card: card.clone(),
            };
            match post.store.register_agent(new, now).await {
                Ok(agent) => agent,
                Err(error) if error.code() == Code::Conflict => {
                    let why = "the office has an agent or a group of this name, the case of letters not counted";
                    post.stats.collides(&entry.name, why);
                    return Ok(None);
                }
                Err(error) => return Err(error),
            }
        }
    };
    post.stats.no_collision(&entry.name);
    let resident = Arc::new(Resident { agent: agent.clone(), card });
    post.people.write().residents.insert(entry.name.clone(), resident.clone());
    post.people.comes(Newcomer::Resident(agent));
    Ok(Some(resident))
}

async fn update_card(post: &Post, agent: &Agent, card: &Card) -> Result<(), OfficeError> {
    let patch = ProfilePatch {
        description: Some(card.description.clone()),
        capabilities: Some(card.capabilities.clone()),
        allow_from: Some(card.allow_from.clone()),
        max_concurrent_tasks: Some(card.max_concurrent_tasks),
        discoverable: None,
    };
    post.store.update_profile(agent, patch, Timestamp::now()).await.map(drop)
}

/// A card that the other side takes, with a word on where its agent lives. Cards of other programs know no limits.
pub(crate) fn fitting(card: &Card, home: &str) -> Card {
    let home = format!("({home})");
    let room = MAX_DESCRIPTION_CHARS - home.chars().count() - 1;
    let text: String = card.description.replace('\0', "").chars().take(room).collect();
    let description = if text.trim().is_empty() { home } else { format!("{text} {home}") };
    let is_word = |word: &&String| !word.is_empty() && word.chars().count() <= MAX_CAPABILITY_CHARS;
    // What is no name can be nobody's, so that leaving it out lets nobody in.
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
