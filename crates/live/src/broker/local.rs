//! The broker within one process: a table of subjects, and a call.

use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Weak};
use std::time::Duration;

use amb_core::GoalId;
use async_trait::async_trait;
use parking_lot::RwLock;

use super::{
    Broker, BrokerError, LiveGoal, MessageHandler, Publication, PublishOutcome, PublishReceipt, Roster, Soon,
    Subscription,
};

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
    handler: Arc<dyn MessageHandler>,
}

impl LocalBroker {
    /// A broker with no subscribers.
    pub fn new() -> Arc<Self> {
        Arc::default()
    }

    fn deliver(&self, subject: &str, publication: Publication) -> Result<PublishOutcome, BrokerError> {
        // Cloned out, so that a handler may subscribe or unsubscribe in its turn. One subscriber is by far the common
        // case.
        let (first, others) = {
            let table = self.table.read();
            let subscribers = match table.exact.get(subject) {
                Some(subscribers) => subscribers,
                None => &table.strays,
            };
            let Some((first, others)) = subscribers.split_first() else { return Err(BrokerError::NoSubscriber) };
            let others: Vec<_> = others.iter().map(|other| Arc::clone(&other.handler)).collect();
            (Arc::clone(&first.handler), others)
        };
        let mut refusal = None;
        let mut taken = false;
        for handler in &others {
            match handler.deliver(subject, publication.clone(), None) {
                Ok(()) => taken = true,
                Err(why) => refusal = Some(why),
            }
        }
        match first.deliver(subject, publication, None) {
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

    fn publish<'a>(&'a self, subject: &'a str, publication: Publication) -> PublishReceipt<'a> {
        PublishReceipt::now(self.deliver(subject, publication))
    }

    fn post<'a>(&'a self, subject: &'a str, publication: Publication) -> Soon<'a, PublishReceipt<'static>> {
        Soon::now(PublishReceipt::now(self.deliver(subject, publication)))
    }

    async fn subscribe(&self, subject: &str, handler: Arc<dyn MessageHandler>) -> Result<Subscription, BrokerError> {
        self.subscribe_now(subject, &handler).ok_or(BrokerError::NoSubscriber)
    }

    fn subscribe_now(&self, subject: &str, handler: &Arc<dyn MessageHandler>) -> Option<Subscription> {
        let number = self.next.fetch_add(1, Ordering::Relaxed);
        let mut table = self.table.write();
        let subject: Box<str> = subject.into();
        table.exact.entry(subject.clone()).or_default().push(LocalSubscriber { number, handler: Arc::clone(handler) });
        Some(self.unsubscriber(move |table| {
            if let Some(subscribers) = table.exact.get_mut(&subject) {
                subscribers.retain(|other| other.number != number);
                if subscribers.is_empty() {
                    table.exact.remove(&subject);
                }
            }
        }))
    }

    fn catch_strays(&self, handler: &Arc<dyn MessageHandler>) -> Option<Subscription> {
        let number = self.next.fetch_add(1, Ordering::Relaxed);
        self.table.write().strays.push(LocalSubscriber { number, handler: Arc::clone(handler) });
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
