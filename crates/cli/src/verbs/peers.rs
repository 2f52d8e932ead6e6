//! `amb peers` and `amb peer`: goals that run now.

use amb_core::AgentName;
use amb_live::{
    AllowedDelegates, LivePeers, PeerContext, SendReport, SendToPeer, list_peers, render_peer_messages_block,
    send_to_peer,
};

use crate::args::OfficeArgs;
use crate::failure::Failure;
use crate::input::stdin;
use crate::nats::{EnvelopeArgs, NatsArgs, connect, unreachable};
use crate::output::{Output, preview, visible};
use crate::signals::interrupted;

/// List live peers (running agents), and whether you may write to them
#[derive(Debug, clap::Args)]
#[command(after_help = "Example:\n  amb --as ann peers --nats-url nats://127.0.0.1:4222")]
pub(crate) struct PeersCommand {
    #[command(flatten)]
    nats: NatsArgs,
    #[command(flatten)]
    delegates: Delegates,
}

/// Send to live peers (running agents), or listen as one
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  amb --as ben peer listen --nats-url nats://127.0.0.1:4222 --description 'builds'
  amb --as ann peer send ben 'task #1 is ready' --nats-url nats://127.0.0.1:4222
  amb --as ann peer send planner/b91c2d3a-0000-4000-8000-000000000001 'ready' --envelope nexo")]
pub(crate) struct PeerCommand {
    #[command(subcommand)]
    action: PeerVerb,
}

#[derive(Debug, clap::Subcommand)]
enum PeerVerb {
    /// Send to all live goals (runs) of an agent, of all agents ('*'), or to one goal by its id
    #[command(after_help = "\
Examples:
  amb --as ann peer send ben 'task #1 is ready' --nats-url nats://127.0.0.1:4222
  git diff | amb --as ann peer send ben - --durable --nats-url nats://127.0.0.1:4222")]
    Send {
        /// Recipient: an agent; '*' for all agents; or one goal as GOAL or AGENT/GOAL, which need not be listed
        to: String,
        /// Text of the message, at most 64 KB; - reads stdin
        message: String,
        /// UUID that correlates a question with its answers
        #[arg(long, value_name = "UUID")]
        correlation_id: Option<String>,
        /// If the agent is not running, store the message in its mailbox
        #[arg(long)]
        durable: bool,
        #[command(flatten)]
        envelope: EnvelopeArgs,
        #[command(flatten)]
        delegates: Delegates,
        #[command(flatten)]
        nats: NatsArgs,
    },
    /// Join as a live goal and print peer messages as a model would see them, until interrupted
    #[command(
        after_help = "Example:\n  amb --as ben peer listen --nats-url nats://127.0.0.1:4222 --description 'builds'"
    )]
    Listen {
        /// Description of this goal, which others see
        #[arg(long, value_name = "D", default_value = "")]
        description: String,
        /// Also print a hint when durable mail arrives in your mailbox
        #[arg(long)]
        mail: bool,
        /// Exit after this many messages
        #[arg(long, value_name = "N")]
        count: Option<usize>,
        #[command(flatten)]
        nats: NatsArgs,
    },
}

#[derive(Debug, Clone, clap::Args)]
pub(crate) struct Delegates {
    /// Agent that you may write to: a name, or a prefix such as team-* (repeatable) [default: all agents]
    #[arg(long = "allowed-delegate", value_name = "GLOB")]
    allowed: Vec<String>,
}

impl Delegates {
    pub(crate) fn allowed(self) -> AllowedDelegates {
        AllowedDelegates::new(self.allowed)
    }

    fn context(self, live: &LivePeers, me: AgentName) -> PeerContext {
        PeerContext { allowed_delegates: self.allowed(), ..live.context(me) }
    }
}

impl PeersCommand {
    pub(crate) async fn run(self, office: &OfficeArgs, output: Output) -> Result<(), Failure> {
        let live = self.nats.connect().await?;
        let list = list_peers(&self.delegates.context(&live, office.acting_agent()?));
        let rows = list.peers.iter().map(|peer| {
            let reachable = if peer.reachable { "yes" } else { "no" };
            vec![peer.agent_id.to_string(), reachable.into(), preview(&peer.description, 60)]
        });
        output.list(&list, list.note.unwrap_or("nobody runs now"), &["NAME", "REACHABLE", "DESCRIPTION"], rows)
    }
}

impl PeerCommand {
    pub(crate) async fn run(self, office: &OfficeArgs, output: Output) -> Result<(), Failure> {
        match self.action {
            PeerVerb::Send { to, message, correlation_id, durable, envelope, delegates, nats } => {
                let message = if message == "-" { stdin()? } else { message };
                let live = connect(envelope.apply(nats.options()?)).await?;
                let mut context = delegates.context(&live, office.acting_agent()?);
                if durable {
                    context.mailbox = Some(office.open().await?);
                }
                let send = SendToPeer { to, message, correlation_id, durable };
                let report = send_to_peer(&context, &send).await.map_err(|error| Failure::usage(error.to_string()))?;
                output.result(&report, summary(&report))?;
                report.unreachable_reasons.iter().for_each(|reason| output.note(visible(reason)));
                if report.reached_nobody() {
                    return Err(Failure::not_found(match AgentName::parse(&send.to) {
                        Ok(agent) if !durable && uuid::Uuid::parse_str(&send.to).is_err() => format!(
                            "the message reached nobody: {agent} does not run now; --durable leaves it in the mailbox of {agent}, \
                             `amb peers` lists who runs"
                        ),
                        _ => "the message reached nobody; `amb peers` lists who is live".to_owned(),
                    }));
                }
                Ok(())
            }
            PeerVerb::Listen { description, mail, count, nats } => {
                let live = nats.connect().await?;
                let goal = live.join(office.acting_agent()?, description).await.map_err(unreachable)?;
                let _hints = if mail { Some(goal.hint_on_mail(office.open().await?)) } else { None };
                output.note(format!("goal {} of {} listens", goal.id(), goal.agent()));
                let ended = tokio::select! {
                    ended = listen(&goal, output, count.unwrap_or(usize::MAX)) => ended,
                    interrupted = interrupted() => Ok(interrupted?),
                };
                goal.leave().await.map_err(unreachable)?;
                ended
            }
        }
    }
}

/// The result of a send, in one line; what is acknowledged is kept apart from what is only published.
fn summary(report: &SendReport) -> String {
    let goals = |count: usize| if count == 1 { "1 goal".to_owned() } else { format!("{count} goals") };
    let mut parts = vec![format!("delivered to {}", goals(report.delivered_to.len()))];
    if !report.published_to.is_empty() {
        parts.push(format!("published to {} without an acknowledgement", goals(report.published_to.len())));
    }
    if !report.queued_for.is_empty() {
        parts.push(format!("queued for {}", goals(report.queued_for.len())));
    }
    if !report.mailed_to.is_empty() {
        let names: Vec<_> = report.mailed_to.iter().map(|mailed| mailed.agent_id.as_str()).collect();
        parts.push(format!("mailed to {}", names.join(", ")));
    }
    parts.join(", ")
}

async fn listen(goal: &amb_live::Goal, output: Output, mut left: usize) -> Result<(), Failure> {
    while left > 0 {
        let turn = goal.next().await;
        left = left.saturating_sub(turn.len());
        if output.json {
            turn.iter().try_for_each(|message| output.json_line(message))?;
        } else if let Some(block) = render_peer_messages_block(&turn) {
            output.say(block)?;
        }
        // Confirmed only after it was printed.
        turn.confirm();
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_summary_tells_acknowledged_from_published() {
        let goal = || amb_core::GoalId(uuid::Uuid::from_u128(7));
        let mut report = SendReport { delivered_to: vec![goal()], ..SendReport::default() };
        assert_eq!(summary(&report), "delivered to 1 goal");
        report.published_to = vec![goal(), goal()];
        report.queued_for = vec![goal()];
        let said = "delivered to 1 goal, published to 2 goals without an acknowledgement, queued for 1 goal";
        assert_eq!(summary(&report), said);
        assert_eq!(summary(&SendReport::default()), "delivered to 0 goals");
    }
}
