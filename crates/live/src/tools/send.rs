//! `send_to_peer`: a message to every live goal of a peer.

use std::sync::Arc;

use amb_core::mailbox::Outgoing;
use amb_core::wire::inbox::MAIL_SUBJECT;
use amb_core::{AgentName, CorrelationId, Draft, GoalId, MessageId, Timestamp};
use futures_util::StreamExt;
use serde::Serialize;
use uuid::Uuid;

use super::PeerContext;
use super::list::NO_DIRECTORY;
use crate::broker::{Publication, PublishOutcome};
use crate::message::inbox_subject;
use crate::{InboxMessage, MAX_BODY_BYTES};

/// Goals that are sent to at once.
const CONCURRENT_SENDS: usize = 64;
/// Agents that a broadcast is sent to at once.
const CONCURRENT_AGENTS: usize = 16;
/// Characters of a caller's own input that an error repeats.
const MAX_QUOTED_CHARS: usize = 100;

/// What to send.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct SendToPeer {
    /// An agent; `*` for everybody the caller may write to; or one goal, as `GOAL` or `AGENT/GOAL`, which need not be
    /// listed anywhere: other runtimes announce theirs in ways of their own.
    pub to: String,
    /// The body.
    pub message: String,
    /// Ties a question to its answers: a UUID.
    pub correlation_id: Option<String>,
    /// Whether the message goes to the mailbox of an agent that does not run now.
    pub durable: bool,
}

/// Why nothing was sent at all. Each says what to change.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum SendError {
    /// No recipient.
    #[error("`to` is required")]
    NoRecipient,
    /// The caller itself.
    #[error("cannot send to self")]
    ToSelf,
    /// No body, or white space only.
    #[error("`message` is empty")]
    Empty,
    /// A body beyond the limit.
    #[error("`message` is {0} bytes, max {MAX_BODY_BYTES}")]
    TooLong(usize),
    /// A correlation id that is none.
    #[error(
        "`correlation_id` is not a UUID: {0:?}; leave it out or use one such as 7a3b2f00-1c2d-4e5f-8a9b-0c1d2e3f4a5b"
    )]
    BadCorrelationId(String),
    /// A broadcast to more agents than allowed.
    #[error("`*` would reach {agents} agents, max {cap}; name the ones you mean")]
    TooManyPeers {
        /// How many it would reach.
        agents: usize,
        /// How many it may reach.
        cap: usize,
    },
    /// An argument of the wrong kind.
    #[error("{0}")]
    BadArgument(String),
}

/// The outcome of a send for each goal.
#[derive(Debug, Clone, PartialEq, Default, Serialize)]
pub struct SendReport {
    /// Goals that have the message in their buffer: their router acknowledged it.
    pub delivered_to: Vec<GoalId>,
    /// Goals whose broker took the message while somebody listened, but which did not acknowledge it: runtimes that
    /// never do, or a process that hangs.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub published_to: Vec<GoalId>,
    /// Goals whose message is on disk here, to be sent when the broker is back.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub queued_for: Vec<GoalId>,
    /// Agents that do not run now and have the message in their mailbox.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub mailed_to: Vec<SentAsMail>,
    /// What did not get through, and why.
    pub unreachable_reasons: Vec<String>,
}

/// A message that rests in a mailbox.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct SentAsMail {
    /// Whose mailbox.
    pub agent_id: AgentName,
    /// Which message.
    pub message_id: MessageId,
}

impl SendReport {
    fn unreachable(why: impl Into<String>) -> Self {
        Self { unreachable_reasons: vec![why.into()], ..Self::default() }
    }

    fn append(&mut self, mut other: SendReport) {
        self.delivered_to.append(&mut other.delivered_to);
        self.published_to.append(&mut other.published_to);
        self.queued_for.append(&mut other.queued_for);
        self.mailed_to.append(&mut other.mailed_to);
        self.unreachable_reasons.append(&mut other.unreachable_reasons);
    }

    /// Whether the message is nowhere: with no goal, in no outbox and in no mailbox.
    pub fn reached_nobody(&self) -> bool {
        let goals = self.delivered_to.len() + self.published_to.len() + self.queued_for.len();
        goals + self.mailed_to.len() == 0
    }
}

/// Sends a message. An error means that the call was invalid and nothing was sent; delivery failures are in the report.
pub async fn send_to_peer(context: &PeerContext, send: &SendToPeer) -> Result<SendReport, SendError> {
    send_to_peer_by(context, send, context.mailbox.as_ref().map(|office| office as &dyn Outgoing)).await
}

/// The same, with durable messages sent by `mail` instead of the caller's mailbox, for a door that applies its own
/// rules to them.
pub async fn send_to_peer_by(
    context: &PeerContext,
    send: &SendToPeer,
    mail: Option<&dyn Outgoing>,
) -> Result<SendReport, SendError> {
    let to = send.to.trim();
    if to.is_empty() {
        return Err(SendError::NoRecipient);
    }
    if to == context.agent_id.as_str() {
        return Err(SendError::ToSelf);
    }
    if send.message.trim().is_empty() {
        return Err(SendError::Empty);
    }
    if send.message.len() > MAX_BODY_BYTES {
        return Err(SendError::TooLong(send.message.len()));
    }
    let correlation_id = match send.correlation_id.as_deref().map(str::trim) {
        None => None,
        Some(id) => Some(Uuid::try_parse(id).map_err(|_| SendError::BadCorrelationId(quoted(id)))?),
    };
    let (body, durable, now) = (&send.message, send.durable, Timestamp::now());
    let outbound = Outbound { context, mail, body, correlation_id, durable, now };
    if to == "*" {
        return outbound.broadcast().await;
    }
    match goal_in(to) {
        // A name may look like a goal's id.
        Some((None, _)) if context.directory.as_ref().is_some_and(|all| all.live_goals(to).is_some()) => {}
        Some((agent, _)) if agent == Some(context.agent_id.as_str()) => return Err(SendError::ToSelf),
        Some((agent, goal)) => return Ok(outbound.send_to_goal(agent, goal).await),
        None => {}
    }
    Ok(outbound.send_to(to).await)
}

/// The goal that a recipient names, and the agent before the slash.
fn goal_in(to: &str) -> Option<(Option<&str>, GoalId)> {
    let (agent, goal) = match to.rsplit_once('/') {
        Some((agent, goal)) => (Some(agent.trim()).filter(|agent| !agent.is_empty()), goal),
        None => (None, to),
    };
    // The one form in which goals are written; others could be names.
    let is_goal = |text: &str| text.len() == 36;
    Some((agent, GoalId(Uuid::try_parse(goal.trim()).ok().filter(|_| is_goal(goal.trim()))?)))
}

/// A checked message, on its way.
struct Outbound<'a> {
    context: &'a PeerContext,
    /// Where mail is handed in.
    mail: Option<&'a dyn Outgoing>,
    body: &'a str,
    correlation_id: Option<Uuid>,
    durable: bool,
    now: Timestamp,
}

impl Outbound<'_> {
    async fn broadcast(&self) -> Result<SendReport, SendError> {
        let Some(directory) = &self.context.directory else { return Ok(SendReport::unreachable(NO_DIRECTORY)) };
        let mut agents: Vec<_> = directory.peers().into_iter().map(|peer| peer.agent_id).collect();
        agents.retain(|agent| *agent != self.context.agent_id && self.context.allowed_delegates.allows(agent.as_str()));
        if agents.len() > self.context.broadcast_cap {
            return Err(SendError::TooManyPeers { agents: agents.len(), cap: self.context.broadcast_cap });
        }
        if agents.is_empty() {
            return Ok(SendReport::unreachable("there are no peers to send to"));
        }
        // Concurrently, so that one process that hangs does not delay the rest; reported in the order of the names.
        let sends = agents.into_iter().map(|agent| async move { self.send_to(agent.as_str()).await });
        let mut reports = futures_util::stream::iter(sends).buffered(CONCURRENT_AGENTS);
        let mut all = SendReport::default();
        while let Some(report) = reports.next().await {
            all.append(report);
        }
        Ok(all)
    }

    /// Sends to one goal, which need not be in the directory.
    async fn send_to_goal(&self, agent: Option<&str>, goal: GoalId) -> SendReport {
        let peers = self.context.directory.as_ref().map(|directory| directory.peers()).unwrap_or_default();
        let listed = peers.iter().find(|peer| peer.live_goals.contains(&goal)).map(|peer| peer.agent_id.as_str());
        let allowed = &self.context.allowed_delegates;
        // The directory's owner of the goal takes precedence over the one that the caller names.
        let agent = match listed.or(agent) {
            Some(agent) if !allowed.allows(agent) => {
                let why = format!("agent_id `{}` is not in this agent's allowed_delegates", quoted(agent));
                return SendReport::unreachable(why);
            }
            Some(agent) => agent.to_owned(),
            None if !allowed.allows_everybody() => {
                return SendReport::unreachable(format!("whose goal `{goal}` is, is not known; say AGENT/{goal}"));
            }
            None => goal.to_string(),
        };
        let mut report = SendReport::default();
        self.fan_out(&agent, &[goal], &mut report).await;
        report
    }

    async fn send_to(&self, to: &str) -> SendReport {
        let Some(directory) = &self.context.directory else { return SendReport::unreachable(NO_DIRECTORY) };
        let known = directory.live_goals(to);
        // An unknown agent is reported first; but with `durable` it may have a mailbox without having ever been live.
        if known.is_none() && !self.durable {
            let near = directory.nearest(to).map(|near| format!("; did you mean `{near}`?")).unwrap_or_default();
            return SendReport::unreachable(format!("unknown agent_id `{}`{near}", quoted(to)));
        }
        if !self.context.allowed_delegates.allows(to) {
            let why = format!("agent_id `{}` is not in this agent's allowed_delegates", quoted(to));
            return SendReport::unreachable(why);
        }
        let is_known = known.is_some();
        let goals = known.unwrap_or_default();
        if goals.is_empty() && !self.durable {
            return SendReport::unreachable(format!("no live goals for agent_id `{}`", quoted(to)));
        }
        let mut report = SendReport::default();
        self.fan_out(to, &goals, &mut report).await;
        if self.durable && report.reached_nobody() {
            self.mail(to, is_known, &mut report).await;
        }
        report
    }

    async fn fan_out(&self, to: &str, goals: &[GoalId], report: &mut SendReport) {
        let message = Arc::new(InboxMessage {
            from_agent_id: self.context.agent_id.as_str().into(),
            from_goal_id: self.context.goal_id.unwrap_or_else(|| GoalId::fresh(self.now)),
            to_agent_id: to.into(),
            body: self.body.into(),
            sent_at: self.now,
            correlation_id: self.correlation_id,
        });
        let send = |goal: GoalId| {
            let publication = Publication::Message(Arc::clone(&message));
            async move { (goal, self.context.broker.publish(&inbox_subject(goal), publication).await) }
        };
        // In order, so that the report is in the order of the goals; one that fails stops no other.
        let mut outcomes = futures_util::stream::iter(goals.iter().copied().map(send)).buffered(CONCURRENT_SENDS);
        while let Some((goal, outcome)) = outcomes.next().await {
            match outcome {
                Ok(PublishOutcome::Delivered) => report.delivered_to.push(goal),
                Ok(PublishOutcome::Published) => report.published_to.push(goal),
                Ok(PublishOutcome::Queued) => report.queued_for.push(goal),
                Err(error) => {
                    report.unreachable_reasons.push(format!("broker publish failed for goal `{goal}`: {error}"));
                }
            }
        }
    }

    /// Sends it as mail, in the name of the mailbox's owner.
    async fn mail(&self, to: &str, is_known: bool, report: &mut SendReport) {
        let to_quoted = quoted(to);
        // An agent that is not in the directory may still have a mailbox.
        let nobody = match is_known {
            true => format!("no live goals for agent_id `{to_quoted}`"),
            false => format!("unknown agent_id `{to_quoted}`"),
        };
        let mut failed = |why: String| report.unreachable_reasons.push(why);
        let Some(office) = self.mail else {
            return failed(format!("{nobody}, and this agent has no mailbox to send from"));
        };
        if *office.me() != self.context.agent_id {
            return failed(format!("the mailbox is `{}`'s, not this agent's; nothing was mailed", office.me()));
        }
        let agent = match AgentName::parse(to) {
            Ok(agent) => agent,
            Err(bad) => return failed(format!("unknown agent_id `{to_quoted}`: {bad}")),
        };
        let mut draft = Draft::text(agent.clone(), MAIL_SUBJECT, self.body);
        draft.correlation_id = self.correlation_id.map(CorrelationId::from);
        match office.post(draft).await {
            Ok(sent) => report.mailed_to.push(SentAsMail { agent_id: agent, message_id: sent.message_id }),
            Err(error) => failed(format!("{nobody}, and mail to it failed: {error}")),
        }
    }
}

/// The caller's own input, shortened and with invisible characters replaced.
fn quoted(text: &str) -> String {
    text.chars()
        .take(MAX_QUOTED_CHARS)
        .map(|c| if c.is_control() || amb_core::render::is_invisible(c) { '\u{fffd}' } else { c })
        .collect()
}
