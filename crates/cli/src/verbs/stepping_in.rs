//! `amb pause`, `amb resume` and `amb end`: how a household's person steps in.

use amb_core::AgentName;

use crate::args::OfficeArgs;
use crate::failure::Failure;
use crate::ids;
use crate::output::{Output, visible};
use crate::verbs::household;

/// Pause an agent of your household: its mail is held until `amb resume`
///
/// A paused agent receives no new mail and is not woken. Senders are notified that their message is stored and held.
/// The agent can still finish the mail that it already received, and can still send. Only the person of the household
/// can pause agents.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  amb pause coder        coder receives no mail from now on
  amb resume coder       coder receives the held mail, in order")]
pub(crate) struct PauseCommand {
    /// The agent
    name: AgentName,
}

/// Resume a paused agent: held mail is delivered at once, in order
#[derive(Debug, clap::Args)]
#[command(after_help = "Example:\n  amb resume coder")]
pub(crate) struct ResumeCommand {
    /// The agent
    name: AgentName,
}

/// End a session of your household: new messages in it are refused
///
/// For agents that do not stop answering each other. Open tasks of the session are canceled. To write to each other
/// again, the agents need a new subject.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  amb household sessions                  list the sessions of your agents
  amb end 0199c0de                        end this one")]
pub(crate) struct EndCommand {
    /// Id of the session, or a unique prefix of it
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
