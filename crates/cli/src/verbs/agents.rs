//! `amb agents`: who is here, and alive.

use crate::args::OfficeArgs;
use crate::failure::Failure;
use crate::output::{Output, ago, preview};

/// List the agents that you can write to, and whether they are online
#[derive(Debug, clap::Args)]
#[command(after_help = "Example:\n  amb --as ann agents")]
pub(crate) struct AgentsCommand {
    /// Only agents that are not offline
    #[arg(long)]
    online: bool,
}

impl AgentsCommand {
    pub(crate) async fn run(self, office: &OfficeArgs, output: Output) -> Result<(), Failure> {
        let mut agents = office.open_read_only().await?.agents().await?;
        agents.retain(|agent| !self.online || agent.presence.status != amb_core::Status::Offline);
        let rows = agents.iter().map(|agent| {
            // Scripts parse the text, whose columns must stay as they were.
            let person = if agent.person && output.for_person { "(a person) " } else { "" };
            let tasks = format!("{}/{}", agent.presence.current_tasks.len(), agent.card.max_concurrent_tasks);
            let seen = agent.presence.last_seen.map_or("never".into(), ago);
            let status = if agent.paused { "paused".to_owned() } else { agent.presence.status.to_string() };
            vec![
                agent.name.to_string(),
                status,
                seen,
                tasks,
                agent.card.capabilities.join(","),
                format!("{person}{}", preview(&agent.card.description, 60)),
            ]
        });
        let head = ["NAME", "STATUS", "SEEN", "TASKS", "CAPABILITIES", "DESCRIPTION"];
        let empty = "nobody is here; `amb register NAME` adds an agent";
        output.list(&serde_json::json!({ "agents": agents }), empty, &head, rows)
    }
}
