//! Runs each test on both brokers.

use std::sync::Arc;
use std::time::Duration;

use amb_core::{AgentName, GoalId, Timestamp};
use amb_live::{Broker, Goal, InboxMessage, LivePeers, LocalBroker, NatsBroker};

use amb_testing::NatsServer;

/// Makes two tests of each function: `local::NAME` and `nats::NAME`.
macro_rules! on_both_brokers {
    ($($(#[$meta:meta])* async fn $name:ident($world:ident: World) $body:block)*) => {
        $(async fn $name($world: &mut $crate::world::World) $body)*

        mod local {
            $(#[tokio::test] $(#[$meta])* async fn $name() {
                super::$name(&mut $crate::world::World::local()).await;
            })*
        }

        mod nats {
            $(#[tokio::test] $(#[$meta])* async fn $name() {
                super::$name(&mut $crate::world::World::nats()).await;
            })*
        }
    };
}
pub(crate) use on_both_brokers;

/// The broker of a test.
pub(crate) enum World {
    Local(Arc<LocalBroker>),
    Nats(NatsServer),
}

impl World {
    pub(crate) fn local() -> Self {
        World::Local(LocalBroker::new())
    }

    pub(crate) fn nats() -> Self {
        World::Nats(NatsServer::start())
    }

    /// The broker as one more process has it: a connection of its own, where there are connections.
    pub(crate) async fn broker(&self) -> Arc<dyn Broker> {
        match self {
            World::Local(broker) => Arc::clone(broker) as Arc<dyn Broker>,
            World::Nats(server) => NatsBroker::connect(server.options()).await.unwrap(),
        }
    }

    /// One more process.
    pub(crate) async fn process(&self) -> LivePeers {
        LivePeers::over(self.broker().await)
    }

    pub(crate) fn is_local(&self) -> bool {
        matches!(self, World::Local(_))
    }
}

pub(crate) fn name(text: &str) -> AgentName {
    text.parse().unwrap()
}

pub(crate) fn fresh() -> GoalId {
    GoalId::fresh(Timestamp::now())
}

pub(crate) async fn join(process: &LivePeers, agent: &str) -> Goal {
    process.join(name(agent), format!("{agent} agent")).await.unwrap()
}

/// Waits until a process knows of a goal.
pub(crate) async fn sees(process: &LivePeers, goal: &Goal) {
    until("the goal is known", || {
        process.directory().live_goals(goal.agent().as_str()).is_some_and(|goals| goals.contains(&goal.id()))
    })
    .await;
}

/// Long enough for a busy machine; normally the condition holds much sooner.
const PATIENCE: Duration = Duration::from_secs(90);

/// Waits for a condition; fails where it does not hold after a long time.
pub(crate) async fn until(what: &str, condition: impl Fn() -> bool) {
    let wait = async {
        while !condition() {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    };
    tokio::time::timeout(PATIENCE, wait).await.unwrap_or_else(|_| panic!("still not: {what}"));
}

/// Fails rather than hangs.
pub(crate) async fn soon<T>(what: &str, future: impl Future<Output = T>) -> T {
    tokio::time::timeout(PATIENCE, future).await.unwrap_or_else(|_| panic!("never came: {what}"))
}

pub(crate) fn message(to: &str, body: &str) -> InboxMessage {
    InboxMessage {
        from_agent_id: "alice".into(),
        from_goal_id: fresh(),
        to_agent_id: to.into(),
        body: body.into(),
        sent_at: "2026-04-30T14:00:00Z".parse().unwrap(),
        correlation_id: None,
    }
}

pub(crate) fn bodies(messages: &[InboxMessage]) -> Vec<&str> {
    messages.iter().map(|message| &*message.body).collect()
}

pub(crate) fn fixture(name: &str) -> std::path::PathBuf {
    std::path::Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/tests/it/fixtures")).join(name)
}
