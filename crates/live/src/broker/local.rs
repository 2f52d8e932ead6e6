//! The broker within one process: a table of subjects, and a call.

use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Weak};
use std::time::Duration;

use amb_core::GoalId;
use async_trait::async_trait;
use parking_lot::RwLock;

use super::{Broker, BrokerError, Inlet, LiveGoal, Parcel, PublishOutcome, PublishReceipt, Roster, Soon, Subscription};

/// Delivers within the process. A publish that returns `Delivered` has put the message into the goal's buffer already.
#[derive(Default)]
pub struct LocalBroker {
    table: Arc<RwLock<SubjectTable>>,
    next: AtomicU64,
    roster: Roster,
}

#[derive(Default)]
struct SubjectTable {
    exact: HashMap<Box<str>, Vec<LocalSubscriber>>,
    strays: Vec<LocalSubscriber>,
}

struct LocalSubscriber {
    number: u64,
    inlet: Arc<dyn Inlet>,
}

impl LocalBroker {
    /// A broker with no subscribers.
    pub fn new() -> Arc<Self> {
        Arc::default()
    }

    fn deliver(&self, subject: &str, parcel: Parcel) -> Result<PublishOutcome, BrokerError> {
        // Cloned out, so that an inlet may subscribe or unsubscribe in its turn. One subscriber is by far the common
        // case.
        let (first, others) = {
            let table = self.table.read();
            let inlets = match table.exact.get(subject) {
                Some(inlets) => inlets,
                None => &table.strays,
            };
            let Some((first, others)) = inlets.split_first() else { return Err(BrokerError::NoSubscriber) };
            let others: Vec<_> = others.iter().map(|other| Arc::clone(&other.inlet)).collect();
            (Arc::clone(&first.inlet), others)
        };
        let mut refusal = None;
        let mut taken = false;
        for inlet in &others {
            match inlet.deliver(subject, parcel.clone(), None) {
                Ok(()) => taken = true,
                Err(why) => refusal = Some(why),
            }
        }
        match first.deliver(subject, parcel, None) {
            Ok(()) => taken = true,
            Err(why) => refusal = Some(why),
        }
        match refusal {
            Some(why) if !taken => Err(BrokerError::Refused(why.0)),
            _ => Ok(PublishOutcome::Delivered),
        }
    }

    fn unsubscriber(&self, end: impl FnOnce(&mut SubjectTable) + Send + Sync + 'static) -> Subscription {
        let table: Weak<RwLock<SubjectTable>> = Arc::downgrade(&self.table);
        Subscription::new(move || {
            if let Some(table) = table.upgrade() {
                end(&mut table.write());
            }
        })
    }
}

#[async_trait]
impl Broker for LocalBroker {
    fn describe(&self) -> String {
        "this process".into()
    }

    fn publish<'a>(&'a self, subject: &'a str, parcel: Parcel) -> PublishReceipt<'a> {
        PublishReceipt::now(self.deliver(subject, parcel))
    }

    fn post<'a>(&'a self, subject: &'a str, parcel: Parcel) -> Soon<'a, PublishReceipt<'static>> {
        Soon::now(PublishReceipt::now(self.deliver(subject, parcel)))
    }

    async fn subscribe(&self, subject: &str, inlet: Arc<dyn Inlet>) -> Result<Subscription, BrokerError> {
        self.subscribe_now(subject, &inlet).ok_or(BrokerError::NoSubscriber)
    }

    fn subscribe_now(&self, subject: &str, inlet: &Arc<dyn Inlet>) -> Option<Subscription> {
        let number = self.next.fetch_add(1, Ordering::Relaxed);
        let mut table = self.table.write();
        let subject: Box<str> = subject.into();
        table.exact.entry(subject.clone()).or_default().push(LocalSubscriber { number, inlet: Arc::clone(inlet) });
        Some(self.unsubscriber(move |table| {
            if let Some(inlets) = table.exact.get_mut(&subject) {
                inlets.retain(|other| other.number != number);
                if inlets.is_empty() {
                    table.exact.remove(&subject);
                }
            }
        }))
    }

    fn catch_strays(&self, inlet: &Arc<dyn Inlet>) -> Option<Subscription> {
        let number = self.next.fetch_add(1, Ordering::Relaxed);
        self.table.write().strays.push(LocalSubscriber { number, inlet: Arc::clone(inlet) });
        Some(self.unsubscriber(move |table| table.strays.retain(|other| other.number != number)))
    }

    async fn announce(&self, goal: LiveGoal) -> Result<(), BrokerError> {
        let source = goal.goal_id.to_string();
        self.roster.put(&source, vec![goal], None);
        Ok(())
    }

    async fn withdraw(&self, goal: GoalId) -> Result<(), BrokerError> {
        self.withdraw_soon(goal);
        Ok(())
    }

    fn withdraw_soon(&self, goal: GoalId) {
        self.roster.remove(&goal.to_string());
    }

    fn roster(&self) -> &Roster {
        &self.roster
    }

    fn expiry(&self) -> Option<Duration> {
        None
    }
}
