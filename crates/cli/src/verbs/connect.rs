//! `amb connect`: ask another agent for a connection.

use std::time::Duration;

use amb_core::card::MOUNTED_DIRECTORY;
use amb_core::doc::ConnectionStatus;
use amb_core::suggest::nearest;
use amb_core::{AgentName, Backoff, Code, Mailbox, OfficeError};
use tokio::time::Instant;

use crate::args::OfficeArgs;
use crate::failure::Failure;
use crate::output::Output;

/// How long the decision of a mounted directory is awaited.
const DECISION_TIMEOUT: Duration = Duration::from_secs(5);

/// Request a connection to another agent, and print the code that approves it
///
/// Give the code to the person behind that agent by another channel, such as a chat: whoever has it can approve the
/// request with `amb approve`. For an agent of a mounted directory no code is needed: its allow_from decides at once.
#[derive(Debug, clap::Args)]
#[command(after_help = "Example:\n  amb --as ann connect ben 'I work on the same project'")]
pub(crate) struct ConnectCommand {
    /// The agent to connect with
    name: AgentName,
    /// A message that introduces you
    message: Option<String>,
}

impl ConnectCommand {
    pub(crate) async fn run(self, office: &OfficeArgs, output: Output) -> Result<(), Failure> {
        let mailbox = office.open().await?;
        let mut requested = match mailbox.connect(&self.name, self.message).await {
            Err(error) if error.code() == Code::NotFound => {
                // The office does not reveal strangers; the nearest name that it lists may be meant.
                let listed = mailbox.agents().await.unwrap_or_default();
                let near = nearest(self.name.as_str(), listed.iter().map(|agent| agent.name.as_str()));
                let Some(near) = near else { return Err(error.into()) };
                return Err(Failure::not_found(format!("no agent {:?}; did you mean {near:?}?", self.name.as_str())));
            }
            requested => requested?,
        };
        // The request is made: what fails from here on must not withhold its code.
        let entry = mailbox.agent(&self.name).await.ok().flatten();
        if entry.is_some_and(|entry| entry.card.description.ends_with(MOUNTED_DIRECTORY)) {
            requested.status = decision(&*mailbox, &requested.target_agent_name).await;
            match requested.status {
                ConnectionStatus::Active => {
                    return output.result(&requested, format!("connected with {}", self.name));
                }
                // The directory is not mounted now. Or it is no agent of a directory: any agent can describe itself so.
                ConnectionStatus::Pending => {}
                _ => {
                    let detail = format!("{} refused: its allow_from does not name {}", self.name, mailbox.me());
                    return Err(OfficeError::new(Code::NotAllowed, detail).into());
                }
            }
        }
        output.result(&requested, &requested.verification_code)?;
        output.note(format!("tell {} this code by a human channel; they approve with `amb approve CODE`", self.name));
        Ok(())
    }
}

/// Waits until a mounted directory has answered the request to one of its agents. Pending after a timeout, or where the
/// office cannot be asked.
async fn decision(mailbox: &dyn Mailbox, peer: &AgentName) -> ConnectionStatus {
    let deadline = Instant::now() + DECISION_TIMEOUT;
    let mut backoff = Backoff::new(Duration::from_millis(20), Duration::from_millis(500));
    loop {
        let Ok(connections) = mailbox.connections().await else { return ConnectionStatus::Pending };
        let found = connections.iter().find(|connection| connection.outgoing && connection.agent_name == *peer);
        let status = found.map_or(ConnectionStatus::Pending, |connection| connection.status);
        if status != ConnectionStatus::Pending || Instant::now() >= deadline {
            return status;
        }
        tokio::time::sleep(backoff.pause()).await;
    }
}
