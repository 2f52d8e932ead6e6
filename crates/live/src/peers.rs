//! The crate's main interface: connect, join, list peers, send.

use std::sync::Arc;
use std::time::Duration;

use amb_core::limits::MAX_DESCRIPTION_CHARS;
use amb_core::{AgentName, GoalId, Mailbox, Timestamp};
use tokio_util::sync::{CancellationToken, DropGuard};

use crate::broker::{Broker, BrokerError, LiveGoal, LocalBroker};
use crate::buffer::{Batch, InboxBuffer};
use crate::directory::{Peer, PeerDirectory};
use crate::nats::{NatsBroker, NatsOptions};
use crate::router::InboxRouter;
use crate::tools::{PeerContext, SendError, SendReport, SendToPeer, send_to_peer};

/// How long joining waits for the subscription.
const JOIN_TIMEOUT: Duration = Duration::from_secs(10);

/// Where the goals are.
#[derive(Debug, Clone)]
pub enum Transport {
    /// All in this process.
    InProcess,
    /// Wherever a NATS server is reached from.
    Nats(Box<NatsOptions>),
}

impl From<NatsOptions> for Transport {
    fn from(options: NatsOptions) -> Self {
        Transport::Nats(Box::new(options))
    }
}

/// Live peers: one per process and transport. Cloning is cheap and shares everything.
///
/// ```
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// use amb_live::{LivePeers, Transport, render_peer_messages_block};
///
/// let peers = LivePeers::connect(Transport::InProcess).await?;
/// let alice = peers.join("alice".parse()?, "plans").await?;
/// let bob = peers.join("bob".parse()?, "builds").await?;
///
/// let report = peers.send(&alice, "bob", "task #1 is ready", None).await?;
/// assert_eq!(report.delivered_to, [bob.id()]);
///
/// let turn = bob.next().await;
/// let block = render_peer_messages_block(&turn).unwrap_or_default();
/// assert!(block.contains("<peer-message from=\"alice\""));
/// turn.confirm();
/// # Ok(())
/// # }
/// ```
#[derive(Clone)]
pub struct LivePeers {
    shared: Arc<PeersInner>,
}

struct PeersInner {
    broker: Arc<dyn Broker>,
    router: InboxRouter,
    directory: Arc<PeerDirectory>,
    /// Ends the router's task with the last owner.
    _running: DropGuard,
}

/// The sender of a message.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Sender {
    /// The agent.
    pub agent_id: AgentName,
    /// Its run, if it is one.
    pub goal_id: Option<GoalId>,
}

impl From<AgentName> for Sender {
    fn from(agent_id: AgentName) -> Self {
        Self { agent_id, goal_id: None }
    }
}

impl From<&Goal> for Sender {
    fn from(goal: &Goal) -> Self {
        Self { agent_id: goal.agent.clone(), goal_id: Some(goal.id()) }
    }
}

impl LivePeers {
    /// Connects. Must be called within a tokio runtime, which then runs the router's task.
    pub async fn connect(transport: impl Into<Transport>) -> Result<Self, BrokerError> {
        let broker: Arc<dyn Broker> = match transport.into() {
            Transport::InProcess => LocalBroker::new(),
            Transport::Nats(options) => NatsBroker::connect(*options).await?,
        };
        Ok(Self::over(broker))
    }

    /// Uses an existing broker.
    pub fn over(broker: Arc<dyn Broker>) -> Self {
        let router = InboxRouter::new(Arc::clone(&broker));
        let running = CancellationToken::new();
        router.spawn(running.clone());
        let directory = Arc::new(PeerDirectory::new(Arc::clone(&broker)));
        Self { shared: Arc::new(PeersInner { broker, router, directory, _running: running.drop_guard() }) }
    }

    /// Starts a goal of an agent. When this returns, its messages reach this process and it is announced to others.
    pub async fn join(&self, agent: AgentName, description: impl Into<String>) -> Result<Goal, BrokerError> {
        self.join_as(GoalId::fresh(Timestamp::now()), agent, description).await
    }

    /// Like `join`, with a given id.
    pub async fn join_as(
        &self,
        id: GoalId,
        agent: AgentName,
        description: impl Into<String>,
    ) -> Result<Goal, BrokerError> {
        let description = description.into().chars().take(MAX_DESCRIPTION_CHARS).collect();
        // From here on dropping the goal undoes what was done, also if this future is cancelled.
        let goal = Goal { agent, buffer: self.shared.router.register(id), peers: self.clone(), left: false };
        self.shared.router.ready(id, JOIN_TIMEOUT).await?;
        let live = LiveGoal { goal_id: id, agent_id: goal.agent.clone(), description };
        self.shared.broker.announce(live).await?;
        Ok(goal)
    }

    /// All known agents with their live goals, the caller included.
    pub fn peers(&self) -> Vec<Peer> {
        self.shared.directory.peers()
    }

    /// Sends to every live goal of an agent, or of all agents with `*`. For more (allowed delegates, mail as the
    /// fallback) see [`context`](Self::context) and [`send_to_peer`].
    pub async fn send(
        &self,
        from: impl Into<Sender>,
        to: &str,
        message: &str,
        correlation_id: Option<&str>,
    ) -> Result<SendReport, SendError> {
        let send = SendToPeer {
            to: to.into(),
            message: message.into(),
            correlation_id: correlation_id.map(str::to_owned),
            durable: false,
        };
        send_to_peer(&self.context(from), &send).await
    }

    /// What the tools need, on behalf of a sender. Its fields can be changed before use.
    pub fn context(&self, from: impl Into<Sender>) -> PeerContext {
        let Sender { agent_id, goal_id } = from.into();
        let directory = Some(Arc::clone(&self.shared.directory));
        PeerContext { goal_id, directory, ..PeerContext::new(agent_id, Arc::clone(&self.shared.broker)) }
    }

    /// The directory; agents that are on no broker can be added to it.
    pub fn directory(&self) -> &PeerDirectory {
        &self.shared.directory
    }

    /// The router of this process's goals.
    pub fn router(&self) -> &InboxRouter {
        &self.shared.router
    }

    /// The broker underneath.
    pub fn broker(&self) -> &Arc<dyn Broker> {
        &self.shared.broker
    }
}

/// One live run of an agent in this process. Dropping it ends the run in the background; [`leave`](Self::leave) waits
/// for that.
pub struct Goal {
    agent: AgentName,
    buffer: Arc<InboxBuffer>,
    peers: LivePeers,
    left: bool,
}

impl Goal {
    /// Which run.
    pub fn id(&self) -> GoalId {
        self.buffer.goal()
    }

    /// Of which agent.
    pub fn agent(&self) -> &AgentName {
        &self.agent
    }

    /// Its inbox.
    pub fn inbox(&self) -> &Arc<InboxBuffer> {
        &self.buffer
    }

    /// Waits for messages and takes them; confirm the batch when it has been used.
    pub async fn next(&self) -> Batch {
        self.buffer.arrived().await;
        self.buffer.take()
    }

    /// Hints at the agent's durable mail in this goal's inbox, until the result is dropped.
    pub fn hint_on_mail(&self, office: Arc<dyn Mailbox>) -> crate::MailHints {
        crate::MailHints::watch(office, Arc::clone(&self.buffer))
    }

    /// Ends the goal. Others know when this returns.
    pub async fn leave(mut self) -> Result<(), BrokerError> {
        self.left = true;
        self.peers.shared.router.forget(self.id());
        self.peers.shared.broker.withdraw(self.id()).await
    }
}

impl Drop for Goal {
    fn drop(&mut self) {
        if !self.left {
            self.peers.shared.router.forget(self.id());
            self.peers.shared.broker.withdraw_soon(self.id());
        }
    }
}
