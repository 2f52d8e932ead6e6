//! A mailbox as a channel of an agent's runtime: a stream of mail in, answers out, heartbeats in between.
//!
//! Each message is claimed when it is handed over and acknowledged when the consumer says that it is done with it; one
//! that is dropped undone, or held by a process that dies, comes again.

use std::ops::Deref;
use std::time::Duration;

use amb_core::doc::Sent;
use amb_core::limits::DEFAULT_POLL_INTERVAL;
use amb_core::mailbox::ClaimRequest;
use amb_core::wire::config::MailboxConfig;
use amb_core::{AgentName, Card, Draft, Mailbox, Message, MessageId, Object, OfficeError, Part};
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use tokio::sync::{mpsc, watch};
use tokio::task::JoinHandle;

use crate::office::{DirMailbox, DirOffice};

/// Most messages queued for the consumer; the rest waits on disk.
const WAITING: usize = 16;

/// How a channel is set up.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ChannelConfig {
    /// Whose mailbox.
    pub agent: AgentName,
    /// What the agent says about itself.
    pub card: Card,
    /// Interval of heartbeats, and of looking for mail without a hint.
    pub poll_interval: Duration,
}

impl ChannelConfig {
    /// An agent with the default card.
    pub fn new(agent: AgentName) -> Self {
        Self { agent, card: Card::default(), poll_interval: DEFAULT_POLL_INTERVAL }
    }
}

impl TryFrom<MailboxConfig> for ChannelConfig {
    type Error = OfficeError;

    /// The channel that a nanobot `config.json` describes.
    fn try_from(config: MailboxConfig) -> Result<Self, OfficeError> {
        let agent = config.agent.ok_or_else(|| OfficeError::invalid("agentId is empty; give this agent a name"))?;
        Ok(Self { agent, card: config.card, poll_interval: config.poll_interval })
    }
}

/// A message as a runtime's bus takes it.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct InboundMessage {
    /// Where the answer shall go: the channel of a callback that this agent set, else `mailbox`.
    pub channel: String,
    /// Who sent it.
    pub sender_id: String,
    /// The chat of that callback, else the sender.
    pub chat_id: String,
    /// Its text.
    pub content: String,
    /// The conversation of that callback, else `mailbox:SENDER`.
    pub session_key: String,
    /// `mailbox_type`, `mailbox_task`, `mailbox_parts`, `mailbox_ttl`, `mailbox_trace`, `reply_to`; and
    /// `mailbox_id`, `mailbox_subject`, `mailbox_session`, with which it can be answered.
    pub metadata: Object,
}

impl InboundMessage {
    /// The message as this agent may see it. Its callback is one that this agent set, or none.
    fn of(message: &Message) -> Self {
        let callback = message.callback.clone().unwrap_or_default();
        let sender = message.from.to_string();
        let metadata = [
            ("mailbox_type", json!(message.kind)),
            ("mailbox_task", json!(message.task)),
            ("mailbox_parts", json!(message.parts)),
            ("mailbox_ttl", json!(message.ttl)),
            ("mailbox_trace", json!(message.trace)),
            ("reply_to", json!(message.reply_to)),
            ("mailbox_id", json!(message.id)),
            ("mailbox_subject", json!(message.subject)),
            ("mailbox_session", json!(message.session)),
        ];
        Self {
            channel: callback.channel.unwrap_or_else(|| "mailbox".into()),
            chat_id: callback.chat_id.unwrap_or_else(|| sender.clone()),
            session_key: callback.session_id.unwrap_or_else(|| format!("mailbox:{sender}")),
            sender_id: sender,
            content: content(message),
            metadata: metadata.into_iter().map(|(key, value): (&str, Value)| (key.to_owned(), value)).collect(),
        }
    }
}

/// The text; of a message without any, its data and the paths of its files.
fn content(message: &Message) -> String {
    let has_text = message.parts.iter().any(|part| matches!(part, Part::Text { .. }));
    if has_text {
        return message.text();
    }
    let lines = message.parts.iter().map(|part| match part {
        Part::Text { text } => text.clone(),
        Part::Data { data } => data.to_string(),
        Part::File { path, .. } => path.clone(),
    });
    lines.collect::<Vec<_>>().join("\n")
}

/// One message, held for the consumer. Dropped without [`Delivery::done`] it comes again at the next poll.
#[derive(Debug)]
pub struct Delivery {
    inbound: InboundMessage,
    message: Message,
    mailbox: DirMailbox,
    undone: Option<mpsc::Sender<MessageId>>,
}

impl Delivery {
    /// The message itself.
    pub fn message(&self) -> &Message {
        &self.message
    }

    /// Acknowledges it: it will not come again.
    pub async fn done(mut self) -> Result<InboundMessage, OfficeError> {
        self.mailbox.ack(std::slice::from_ref(&self.message.id)).await?;
        self.undone = None;
        Ok(self.inbound.clone())
    }
}

impl Deref for Delivery {
    type Target = InboundMessage;

    fn deref(&self) -> &InboundMessage {
        &self.inbound
    }
}

impl Drop for Delivery {
    fn drop(&mut self) {
        if let Some(undone) = self.undone.take()
            && undone.try_send(self.message.id.clone()).is_err()
        {
            // The channel has stopped or is far behind: released at once instead of at the next poll.
            self.mailbox.agent_dir.release(std::slice::from_ref(&self.message.id));
        }
    }
}

/// A running channel. Stops when dropped, but marks the agent offline only by [`Channel::stop`].
#[derive(Debug)]
pub struct Channel {
    mailbox: DirMailbox,
    inbound: mpsc::Receiver<Delivery>,
    stop: watch::Sender<bool>,
    tasks: Vec<JoinHandle<()>>,
}

impl Channel {
    /// Registers the agent, and starts heartbeats and the stream of mail.
    pub async fn start(office: &DirOffice, config: ChannelConfig) -> Result<Self, OfficeError> {
        let mailbox = office.mailbox(config.agent);
        if config.poll_interval.is_zero() {
            return Err(OfficeError::invalid("poll_interval is more than 0"));
        }
        mailbox.register_polling(config.card, config.poll_interval).await?;
        let (sender, inbound) = mpsc::channel(WAITING);
        let (stop, stopped) = watch::channel(false);
        let tasks = vec![
            tokio::spawn(beat(mailbox.clone(), config.poll_interval, stopped.clone())),
            tokio::spawn(pump(mailbox.clone(), config.poll_interval, sender, stopped)),
        ];
        Ok(Self { mailbox, inbound, stop, tasks })
    }

    /// The next message; none once the channel has stopped.
    pub async fn recv(&mut self) -> Option<Delivery> {
        self.inbound.recv().await
    }

    /// Sends a message to another agent. Replies and relays name their message in the draft, and ttl and trace follow: a
    /// runtime answers by itself, so its replies are marked automatic.
    pub async fn send_message(&self, draft: Draft) -> Result<Sent, OfficeError> {
        self.mailbox.send(if draft.reply_to.is_some() { draft.automatic() } else { draft }).await
    }

    /// The agent's mailbox, for everything else: tasks, history, agents.
    pub fn mailbox(&self) -> &DirMailbox {
        &self.mailbox
    }

    /// Stops, releases what was not taken, and marks the agent offline.
    pub async fn stop(mut self) -> Result<(), OfficeError> {
        self.stop.send_replace(true);
        self.inbound.close();
        while self.inbound.recv().await.is_some() {}
        for task in std::mem::take(&mut self.tasks) {
            task.await.map_err(OfficeError::internal)?;
        }
        self.mailbox.leave().await
    }
}

impl Drop for Channel {
    fn drop(&mut self) {
        self.stop.send_replace(true);
    }
}

/// Heartbeats, however slow the consumer is.
async fn beat(mailbox: DirMailbox, every: Duration, mut stopped: watch::Receiver<bool>) {
    let mut ticks = tokio::time::interval(every);
    ticks.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
    loop {
        tokio::select! {
            _ = stopped.wait_for(|stop| *stop) => return,
            _ = ticks.tick() => {}
        }
        if let Err(error) = mailbox.heartbeat().await {
            tracing::warn!(%error, agent = %mailbox.me(), "writing a heartbeat failed");
        }
    }
}

/// Hands mail over as it comes.
async fn pump(
    mailbox: DirMailbox,
    every: Duration,
    inbound: mpsc::Sender<Delivery>,
    mut stopped: watch::Receiver<bool>,
) {
    let (undone, mut given_back) = mpsc::channel(4 * WAITING);
    loop {
        let mut changes = mailbox.changes().await.unwrap_or_else(|error| {
            tracing::warn!(%error, "the mailbox cannot be watched; polling instead");
            Vec::new()
        });
        changes.iter_mut().for_each(|change| change.mark_unchanged());
        // As many as can be handed over at once: what is not claimed can be claimed by another process.
        let request = ClaimRequest { limit: inbound.capacity().max(1), ..ClaimRequest::default() };
        let claimed = mailbox.claim(request).await.unwrap_or_else(|error| {
            tracing::warn!(%error, agent = %mailbox.me(), "reading mail failed; retrying");
            Vec::new()
        });
        let some = !claimed.is_empty();
        for message in claimed {
            let delivery = Delivery {
                inbound: InboundMessage::of(&message),
                message,
                mailbox: mailbox.clone(),
                undone: Some(undone.clone()),
            };
            tokio::select! {
                _ = stopped.wait_for(|stop| *stop) => return,
                sent = inbound.send(delivery) => if sent.is_err() { return },
            }
        }
        if some {
            continue;
        }
        tokio::select! {
            _ = stopped.wait_for(|stop| *stop) => return,
            _ = mailbox.arrival(&mut changes, every) => {}
        }
        while let Ok(id) = given_back.try_recv() {
            mailbox.agent_dir.release(&[id]);
        }
    }
}
