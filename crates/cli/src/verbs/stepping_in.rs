//! `amb pause`, `amb resume` and `amb end`: how a household's person steps in.

use amb_core::AgentName;

use crate::args::OfficeArgs;
use crate::failure::Failure;
use crate::ids;
use crate::output::{Output, visible};
use crate::verbs::household;

/// Pause one of your agents: its mail waits until `amb resume`
///
/// A paused agent gets no new mail and is not woken. Whoever writes to it is told that the message is kept and waits.
/// What the agent has already got it may still finish, and it may still send. Only the household's person can pause.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  amb pause coder        coder gets nothing from now on
  amb resume coder       it gets what waited, in order")]
pub(crate) struct PauseCommand {
    /// The agent
    name: AgentName,
}

/// Resume a paused agent: what waited for it arrives at once, in order
#[derive(Debug, clap::Args)]
#[command(after_help = "Example:\n  amb resume coder")]
pub(crate) struct ResumeCommand {
    /// The agent
    name: AgentName,
}

/// End a conversation of your household: what is sent in it is refused
///
/// For agents that do not stop answering each other. Its open tasks are canceled. Another conversation needs a new
/// subject.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  amb household sessions                  the conversations of your agents
  amb end 0199c0de                        this one is over")]
pub(crate) struct EndCommand {
    /// The session, or a unique prefix of its id
    session: String,
}

impl PauseCommand {
    pub(crate) async fn run(self, office: &OfficeArgs, output: Output) -> Result<(), Failure> {
        let person = household::open(office).await?;
        let agent = household::or_suggest(&person, &self.name, person.pause_agent(&self.name).await).await?;
        output.result(&agent, format!("{0} is paused: its mail waits until `amb resume {0}`", agent.name))
    }
}

impl ResumeCommand {
    pub(crate) async fn run(self, office: &OfficeArgs, output: Output) -> Result<(), Failure> {
        let person = household::open(office).await?;
        let agent = household::or_suggest(&person, &self.name, person.resume_agent(&self.name).await).await?;
        output.result(&agent, format!("{} gets its mail again", agent.name))
    }
}

impl EndCommand {
    pub(crate) async fn run(self, office: &OfficeArgs, output: Output) -> Result<(), Failure> {
        let person = household::open(office).await?;
        let session = ids::household_session(&person, &self.session).await?;
        let ended = person.end_session(&session).await?;
        let subject = visible(&ended.subject);
        output.result(&ended, format!("the conversation {subject:?} is over; what is sent in it is refused"))
    }
}
