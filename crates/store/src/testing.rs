//! Helpers for unit tests of both backends. `amb-testing` is linked with another build of this crate, so unit tests
//! cannot use its store types.

use std::sync::Arc;

use amb_core::doc::Sent;
use amb_core::{Card, Draft, Timestamp};

use crate::{Agent, Ask, KeyHash, NewAgent, Store, Written};

pub(crate) fn at(seconds: i64) -> Timestamp {
    Timestamp::from_second(1_772_000_000 + seconds).unwrap()
}

pub(crate) fn new_agent(name: &str) -> NewAgent {
    NewAgent {
        name: name.parse().unwrap(),
        key_hash: KeyHash::of(name),
        key_prefix: "amb_0123".into(),
        owner_contact: None,
        card: Card::default(),
        join: None,
    }
}

/// A store under test.
#[derive(Clone)]
pub(crate) struct TestStore(pub(crate) Arc<dyn Store>);

impl std::ops::Deref for TestStore {
    type Target = dyn Store;

    fn deref(&self) -> &Self::Target {
        &*self.0
    }
}

impl TestStore {
    pub(crate) async fn enter(&self, name: &str) -> Agent {
        self.register_agent(new_agent(name), at(0)).await.unwrap().answer
    }

    pub(crate) async fn connect(&self, from: &Agent, to: &Agent) {
        let asked = self.request_connection(from, Ask::new(to.name.clone(), None), at(0)).await.unwrap();
        self.approve_connection(to, &asked.answer.verification_code, at(0)).await.unwrap();
    }

    /// Two agents that may write to each other.
    pub(crate) async fn pair(&self) -> (Agent, Agent) {
        let (alice, bob) = (self.enter("alice").await, self.enter("bob").await);
        self.connect(&alice, &bob).await;
        (alice, bob)
    }

    pub(crate) async fn say(&self, from: &Agent, to: &Agent, subject: &str, text: &str) -> Written<Sent> {
        self.send(from, Draft::text(to.name.clone(), subject, text), at(1)).await.unwrap()
    }
}
