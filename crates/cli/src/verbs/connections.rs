//! `amb connections` and `amb reject`: who may write to you, and taking it back.

use amb_core::AgentName;
use amb_core::doc::{Connection, ConnectionChange};

use crate::args::OfficeArgs;
use crate::failure::Failure;
use crate::output::{Output, ago, preview};

/// List your connections; revoke one, block or unblock an agent
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:\n  amb --as ben connections\n  amb --as ben connections revoke ann")]
pub(crate) struct ConnectionsCommand {
    #[command(subcommand)]
    action: Option<ConnectionsVerb>,
}

#[derive(Debug, clap::Subcommand)]
enum ConnectionsVerb {
    /// Revoke an active connection
    #[command(after_help = "Example:\n  amb --as ben connections revoke ann")]
    Revoke {
        /// The other agent
        name: AgentName,
    },
    /// Block an agent: you receive no messages and no connection requests from it
    #[command(after_help = "Example:\n  amb --as ben connections block ann")]
    Block {
        /// The other agent
        name: AgentName,
    },
    /// Unblock an agent; this does not restore the connection
    #[command(after_help = "Example:\n  amb --as ben connections unblock ann")]
    Unblock {
        /// The other agent
        name: AgentName,
    },
}

/// Reject a connection request
#[derive(Debug, clap::Args)]
#[command(after_help = "Example:\n  amb --as ben reject ann")]
pub(crate) struct RejectCommand {
    /// Agent that sent the request
    name: AgentName,
}

impl RejectCommand {
    pub(crate) async fn run(self, office: &OfficeArgs, output: Output) -> Result<(), Failure> {
        change(office, output, &self.name, ConnectionChange::Reject).await
    }
}

impl ConnectionsCommand {
    pub(crate) async fn run(self, office: &OfficeArgs, output: Output) -> Result<(), Failure> {
        let (name, wanted) = match self.action {
            None => return list(&office.open().await?.connections().await?, output),
            Some(ConnectionsVerb::Revoke { name }) => (name, ConnectionChange::Revoke),
            Some(ConnectionsVerb::Block { name }) => (name, ConnectionChange::Block),
            Some(ConnectionsVerb::Unblock { name }) => (name, ConnectionChange::Unblock),
        };
        change(office, output, &name, wanted).await
    }
}

async fn change(
    office: &OfficeArgs,
    output: Output,
    peer: &AgentName,
    wanted: ConnectionChange,
) -> Result<(), Failure> {
    let changed = office.open().await?.change_connection(peer, wanted).await?;
    output.result(&changed, format!("the connection with {} is {}", changed.agent_name, changed.status.as_str()))
}

fn list(connections: &[Connection], output: Output) -> Result<(), Failure> {
    let rows = connections.iter().map(|link| {
        let who = if link.outgoing { "you" } else { link.agent_name.as_str() };
        let intro = link.message.as_deref().unwrap_or_default();
        vec![
            link.agent_name.to_string(),
            link.status.as_str().into(),
            who.into(),
            ago(link.updated_at),
            link.verification_code.clone().unwrap_or_default(),
            preview(intro, 60),
        ]
    });
    let empty = "no connections; `amb connect NAME` asks for one";
    let head = ["WITH", "STATUS", "ASKED BY", "CHANGED", "CODE", "SAYS"];
    output.list(&serde_json::json!({ "connections": connections }), empty, &head, rows)
}
