//! Watchers of households, such as open pages: they get a hint when something changes there.
//!
//! A hint has the kind of the change and no content, which is read from the store. So hints can be lost, doubled and
//! merged: a thousand changes a second become a few hints.

use std::collections::HashSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicU8, AtomicUsize, Ordering};

use amb_core::{AgentName, Event};
use amb_store::{AgentKey, LogEntry};
use parking_lot::RwLock;
use tokio::sync::Notify;

/// Maximum number of watchers in the whole office.
const MAX_WATCHERS: usize = 512;

/// Mail was sent or read.
const MAIL: u8 = 1;
/// A task changed.
const TASKS: u8 = 2;
/// A connection or the household's membership changed.
const TIES: u8 = 4;
const ALL: u8 = MAIL | TASKS | TIES;

/// All watchers.
#[derive(Default)]
pub(crate) struct Watchers {
    /// Lets a send skip the lock while there are no watchers.
    count: AtomicUsize,
    list: RwLock<Vec<Arc<Watcher>>>,
}

/// A page's stream, or a long poll.
pub(crate) struct Watcher {
    /// Members of the household. `None` until they are known: then all agents of the office count as members.
    members: RwLock<Option<Members>>,
    /// The kinds of changes since the last [`Watcher::take`].
    changed: AtomicU8,
    wake: Notify,
}

struct Members {
    keys: HashSet<AgentKey>,
    names: HashSet<AgentName>,
}

impl Watchers {
    /// Sends a hint about new entries to the watchers of the households concerned.
    pub(crate) fn hint(&self, entries: &[LogEntry]) {
        if self.count.load(Ordering::Relaxed) == 0 {
            return;
        }
        for watcher in self.list.read().iter() {
            let members = watcher.members.read();
            let mut changed = 0;
            for LogEntry { agent, entry } in entries {
                let by_member =
                    actor(&entry.event).is_some_and(|name| members.as_ref().is_none_or(|of| of.names.contains(name)));
                if by_member || members.as_ref().is_none_or(|of| of.keys.contains(agent)) {
                    changed |= kind_of(&entry.event);
                }
            }
            drop(members);
            watcher.notify(changed);
        }
    }

    /// Sends a hint about a change of this agent, of any kind.
    pub(crate) fn hint_agent(&self, agent: AgentKey) {
        if self.count.load(Ordering::Relaxed) == 0 {
            return;
        }
        for watcher in self.list.read().iter() {
            if watcher.members.read().as_ref().is_none_or(|of| of.keys.contains(&agent)) {
                watcher.notify(ALL);
            }
        }
    }

    /// Registers a watcher until the guard is dropped; `None` at the limit. It gets every hint until
    /// [`Watcher::set_members`], so that none is missed while the members are looked up.
    pub(crate) fn watch(&self) -> Option<WatcherGuard<'_>> {
        let mut list = self.list.write();
        if list.len() >= MAX_WATCHERS {
            return None;
        }
        let watcher = Arc::new(Watcher { members: RwLock::new(None), changed: AtomicU8::new(0), wake: Notify::new() });
        list.push(watcher.clone());
        self.count.store(list.len(), Ordering::Relaxed);
        Some(WatcherGuard { watchers: self, watcher })
    }
}

/// The agent whose act the event tells another agent of, where its own log does not have the act.
fn actor(event: &Event) -> Option<&AgentName> {
    match event {
        Event::NewMessage(mail) => Some(&mail.from_agent),
        Event::ConnectionRequest { from_agent, .. } => Some(from_agent),
        Event::ConnectionApproved { connected_agent, .. } => Some(connected_agent),
        Event::ConnectionChanged { agent, .. } => Some(agent),
        _ => None,
    }
}

fn kind_of(event: &Event) -> u8 {
    match event {
        Event::NewMessage(mail) if mail.task.is_some() => MAIL | TASKS,
        Event::NewMessage(_) | Event::Receipt { .. } => MAIL,
        Event::TaskOverdue { .. } => TASKS,
        _ => TIES,
    }
}

impl Watcher {
    fn notify(&self, changed: u8) {
        if changed != 0 {
            self.changed.fetch_or(changed, Ordering::AcqRel);
            self.wake.notify_one();
        }
    }

    /// Waits for a hint.
    pub(crate) async fn notified(&self) {
        self.wake.notified().await;
    }

    /// Returns the kinds of changes since the last call, as words; empty if there are none.
    pub(super) fn take(&self) -> String {
        let changed = self.changed.swap(0, Ordering::AcqRel);
        let words = [(MAIL, "mail"), (TASKS, "tasks"), (TIES, "ties")];
        words.iter().filter(|(bit, _)| changed & bit != 0).map(|(_, word)| *word).collect::<Vec<_>>().join(" ")
    }

    /// Sets the members of the household.
    pub(crate) fn set_members(&self, members: impl IntoIterator<Item = (AgentKey, AgentName)>) {
        let (keys, names) = members.into_iter().unzip();
        *self.members.write() = Some(Members { keys, names });
    }
}

/// Unregisters the watcher when dropped.
pub(crate) struct WatcherGuard<'a> {
    watchers: &'a Watchers,
    pub(crate) watcher: Arc<Watcher>,
}

impl Drop for WatcherGuard<'_> {
    fn drop(&mut self) {
        let mut list = self.watchers.list.write();
        list.retain(|watcher| !Arc::ptr_eq(watcher, &self.watcher));
        self.watchers.count.store(list.len(), Ordering::Relaxed);
    }
}
