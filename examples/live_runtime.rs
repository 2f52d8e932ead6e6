//! Live peers over a broker of one's own: a runtime such as nexo has a bus that carries events, and this adapter makes it
//! a [`Broker`]. The bus here is a stand-in of forty lines; put your own in its place.
//!
//! ```text
//! cargo run -p amb-examples --example live_runtime
//! ```

#![allow(clippy::print_stdout, clippy::print_stderr, reason = "an example shows what it does")]

use std::sync::Arc;
use std::time::Duration;

use amb_live::broker::{LiveGoal, MessageHandler, Roster, Subscription};
use amb_live::{
    Broker, BrokerError, GoalId, LivePeers, Publication, PublishOutcome, PublishReceipt, render_peer_messages_block,
};
use async_trait::async_trait;
use serde_json::{Value, json};
use tokio::sync::broadcast;

/// What the runtime's bus carries: nexo's `Event`, as JSON.
#[derive(Clone)]
struct Event {
    topic: String,
    json: Arc<str>,
}

/// The runtime's own bus.
#[derive(Clone)]
struct Bus(broadcast::Sender<Event>);

impl Bus {
    fn new() -> Self {
        Self(broadcast::Sender::new(1_024))
    }

    fn publish(&self, topic: &str, event: &Value) -> bool {
        self.0.send(Event { topic: topic.into(), json: event.to_string().into() }).is_ok()
    }
}

/// The bus as a broker. It does not tell who received an event, so a message is `Published`, never `Delivered`.
struct BusBroker {
    bus: Bus,
    /// Who is live. This bus has no presence of its own, so it lists the goals of this process; a runtime that knows of
    /// others puts them here, or its callers address them by their goal's id.
    roster: Roster,
}

impl BusBroker {
    fn hand_over(&self, subject: &str, publication: Publication) -> Result<PublishOutcome, BrokerError> {
        let message = publication.open().map_err(|bad| BrokerError::Rejected(bad.to_string()))?;
        let payload = serde_json::to_value(&*message).map_err(|bad| BrokerError::Rejected(bad.to_string()))?;
        let event = json!({
            "id": GoalId::fresh(message.sent_at),
            "timestamp": message.sent_at,
            "topic": subject,
            "source": message.from_agent_id,
            "session_id": null,
            "payload": payload,
        });
        if self.bus.publish(subject, &event) { Ok(PublishOutcome::Published) } else { Err(BrokerError::NoSubscriber) }
    }
}

#[async_trait]
impl Broker for BusBroker {
    fn describe(&self) -> String {
        "the runtime's bus".into()
    }

    fn publish<'a>(&'a self, subject: &'a str, publication: Publication) -> PublishReceipt<'a> {
        PublishReceipt::now(self.hand_over(subject, publication))
    }

    async fn subscribe(&self, subject: &str, handler: Arc<dyn MessageHandler>) -> Result<Subscription, BrokerError> {
        let mut events = self.bus.0.subscribe();
        let subject = subject.to_owned();
        let listening = tokio::spawn(async move {
            loop {
                match events.recv().await {
                    // A subject is matched whole, letter by letter: there are no wildcards.
                    Ok(event) if event.topic == subject => {
                        let publication = Publication::Raw(event.json.to_string().into_bytes().into());
                        if let Err(refusal) = handler.deliver(&subject, publication, None) {
                            eprintln!("refused: {}", refusal.0);
                        }
                    }
                    Ok(_) => {}
                    Err(broadcast::error::RecvError::Lagged(lost)) => eprintln!("{lost} events were lost"),
                    Err(broadcast::error::RecvError::Closed) => return,
                }
            }
        });
        Ok(Subscription::new(move || listening.abort()))
    }

    async fn announce(&self, goal: LiveGoal) -> Result<(), BrokerError> {
        self.roster.put(&goal.goal_id.to_string(), vec![goal], None);
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

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let broker = BusBroker { bus: Bus::new(), roster: Roster::default() };
    let peers = LivePeers::over(Arc::new(broker));
    let planner = peers.join("planner".parse()?, "plans").await?;
    let builder = peers.join("builder".parse()?, "builds").await?;

    let report = peers.send(&planner, "builder", "task #1 is ready", None).await?;
    assert_eq!(report.published_to, [builder.id()]);
    // One run of an agent, by its id.
    peers.send(&planner, &format!("builder/{}", builder.id()), "and task #2", None).await?;

    let mut left = 2;
    while left > 0 {
        let turn = builder.next().await;
        left -= turn.len();
        println!("{}", render_peer_messages_block(&turn).unwrap_or_default());
        turn.confirm();
    }
    Ok(())
}
