//! The live side of `amb mcp`: a goal of the agent while the process runs.

use std::sync::Arc;
use std::time::Duration;

use amb_core::doc::ConnectionStatus;
use amb_core::mailbox::{Outgoing, Result};
use amb_core::{AgentName, Backoff, Mailbox, OfficeError};
use amb_live::{AllowedDelegates, Goal, InboxBuffer, NatsOptions, PeerContext, SendToPeer};
use amb_mcp::{LazyMailbox, Mailed, PeerDelivery, PeerListing, PeerMessages};
use async_trait::async_trait;
use parking_lot::Mutex;
use tokio::sync::OnceCell;
use tokio::task::AbortHandle;
use tokio::time::Instant;
use uuid::Uuid;

use crate::nats::unreachable;

/// The timeout of leaving. A goal that does not leave is listed until its presence expires.
const LEAVE_TIMEOUT: Duration = Duration::from_secs(2);

/// The timeout of asking the office for blocks, which delays messages of live peers.
const BLOCKS_TIMEOUT: Duration = Duration::from_secs(1);

/// The shortest time between two such requests: a flood of live messages must not use up the agent's rate limit.
const BLOCKS_INTERVAL: Duration = Duration::from_millis(200);

/// Joins once both NATS and the office can be reached, and retries until then. The office says who the agent is, so
/// that no live message is sent under a name that nobody has verified.
pub(super) struct Live {
    mailbox: LazyMailbox,
    nats: NatsOptions,
    delegates: AllowedDelegates,
    messages: Arc<PeerMessages>,
    joined: OnceCell<Joined>,
}

struct Joined {
    context: PeerContext,
    goal: Mutex<Option<Goal>>,
    receiver: AbortHandle,
}

impl Live {
    /// Starts joining in the background.
    pub(super) fn join(mailbox: LazyMailbox, nats: NatsOptions, delegates: AllowedDelegates) -> Arc<Self> {
        let live = Arc::new(Self { mailbox, nats, delegates, messages: Arc::default(), joined: OnceCell::new() });
        let joining = Arc::clone(&live);
        tokio::spawn(async move {
            let mut backoff = Backoff::default();
            while let Err(error) = joining.joined().await {
                let pause = backoff.pause();
                tracing::warn!(%error, retry_in = ?pause, "cannot join the live peers yet; retrying");
                tokio::time::sleep(pause).await;
            }
        });
        live
    }

    async fn joined(&self) -> Result<&Joined> {
        self.joined
            .get_or_try_init(|| async {
                let office = self.mailbox.office().await?;
                let peers = amb_live::LivePeers::connect(self.nats.clone()).await.map_err(unreachable)?;
                // The card in the office describes the agent; the goal needs no description of its own.
                let goal = peers.join(office.me().clone(), "").await.map_err(unreachable)?;
                let mut context = peers.context(&goal);
                context.allowed_delegates = self.delegates.clone();
                let receiver =
                    tokio::spawn(receive(Arc::clone(office), Arc::clone(goal.inbox()), Arc::clone(&self.messages)));
                Ok(Joined { context, goal: Mutex::new(Some(goal)), receiver: receiver.abort_handle() })
            })
            .await
    }

    /// Removes the goal's presence, so that nobody writes to it any more.
    pub(super) async fn leave(&self) {
        let Some(joined) = self.joined.get() else { return };
        joined.receiver.abort();
        let goal = joined.goal.lock().take();
        let Some(goal) = goal else { return };
        match tokio::time::timeout(LEAVE_TIMEOUT, goal.leave()).await {
            Ok(Ok(())) => {}
            Ok(Err(error)) => tracing::debug!(%error, "cannot remove the presence"),
            Err(_) => tracing::debug!("cannot remove the presence: timeout"),
        }
    }
}

/// Passes the messages of live peers on, without those of agents that this one has blocked. While the office cannot be
/// reached, the blocks that it listed last apply.
async fn receive(office: Arc<dyn Mailbox>, inbox: Arc<InboxBuffer>, messages: Arc<PeerMessages>) {
    let (mut blocked, mut next_check): (Vec<AgentName>, _) = (Vec::new(), Instant::now());
    let mut evicted = 0;
    loop {
        inbox.arrived().await;
        tokio::time::sleep_until(next_check).await;
        next_check = Instant::now() + BLOCKS_INTERVAL;
        // A directory has no connections, and so no blocks.
        if let Ok(Ok(connections)) = tokio::time::timeout(BLOCKS_TIMEOUT, office.connections()).await {
            let blocks =
                connections.into_iter().filter(|link| link.status == ConnectionStatus::Blocked && link.outgoing);
            blocked = blocks.map(|link| link.agent_name).collect();
        }
        for message in inbox.drain() {
            match blocked.iter().any(|name| name.eq_ignore_case(&message.from_agent_id)) {
                true => tracing::debug!(from = message.from_agent_id, "dropped a live message of a blocked agent"),
                false => messages.push(message),
            }
        }
        let total = inbox.evicted();
        messages.add_dropped(usize::try_from(total - evicted).unwrap_or(usize::MAX));
        evicted = total;
    }
}

#[async_trait]
impl amb_mcp::PeerNetwork for Live {
    async fn list(&self) -> Result<Vec<PeerListing>> {
        let list = amb_live::list_peers(&self.joined().await?.context);
        let live = |peer: amb_live::tools::PeerSummary| PeerListing {
            agent_id: peer.agent_id,
            description: peer.description,
            reachable: peer.reachable,
            status: Some("live".into()),
        };
        Ok(list.peers.into_iter().map(live).collect())
    }

    fn allows(&self, agent: &AgentName) -> bool {
        self.delegates.allows(agent.as_str())
    }

    async fn send(
        &self,
        to: &str,
        message: &str,
        correlation_id: Option<Uuid>,
        mail: &dyn Outgoing,
    ) -> Result<PeerDelivery> {
        let send = SendToPeer {
            to: to.to_owned(),
            message: message.to_owned(),
            correlation_id: correlation_id.map(|id| id.to_string()),
            durable: true,
        };
        let context = &self.joined().await?.context;
        let report = amb_live::tools::send_to_peer_by(context, &send, Some(mail)).await;
        let report = report.map_err(|error| OfficeError::invalid(error.to_string()))?;
        let goals = |goals: Vec<amb_live::GoalId>| goals.into_iter().map(|goal| goal.to_string()).collect();
        Ok(PeerDelivery {
            delivered_to: goals(report.delivered_to),
            published_to: goals(report.published_to),
            mailed_to: report
                .mailed_to
                .into_iter()
                .map(|mailed| Mailed { agent_id: mailed.agent_id, message_id: mailed.message_id })
                .collect(),
            unreachable_reasons: report.unreachable_reasons,
            ..PeerDelivery::default()
        })
    }

    fn peer_messages(&self) -> &Arc<PeerMessages> {
        &self.messages
    }
}
