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

/// List the agents that run now, and whether you may write to them
#[derive(Debug, clap::Args)]
#[command(after_help = "Example:\n  amb --as ann peers --nats-url nats://127.0.0.1:4222")]
pub(crate) struct PeersCommand {
    #[command(flatten)]
    nats: NatsArgs,
    #[command(flatten)]
    delegates: Delegates,
}

/// Write to agents that run now, or be one of them
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
    /// Send to every live goal of an agent, or of everybody with '*', or to one goal by its id
    Send {
        /// The agent; '*'; or one goal, listed or not, as GOAL or AGENT/GOAL
        to: String,
        /// What to say, 64 KB at most; - reads it from stdin
        message: String,
        /// Ties a question to its answers: a UUID
        #[arg(long, value_name = "UUID")]
        correlation_id: Option<String>,
        /// Leave the message in the mailbox of an agent that does not run now
        #[arg(long)]
        durable: bool,
        #[command(flatten)]
        envelope: EnvelopeArgs,
        #[command(flatten)]
        delegates: Delegates,
        #[command(flatten)]
        nats: NatsArgs,
    },
    /// Be a live goal: print each block of peer messages as a model would see it, until interrupted
    Listen {
        /// What others are told about this goal
        #[arg(long, value_name = "D", default_value = "")]
        description: String,
        /// Ring when durable mail comes to your mailbox too
        #[arg(long)]
        mail: bool,
        /// Stop after this many messages
        #[arg(long, value_name = "N")]
        count: Option<usize>,
        #[command(flatten)]
        nats: NatsArgs,
    },
}

#[derive(Debug, Clone, clap::Args)]
pub(crate) struct Delegates {
    /// Whom you may write to: a name, or a beginning such as team-*; repeat for more [default: everybody]
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
                    return Err(Failure::not_found("the message reached nobody; `amb peers` lists who is live"));
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
