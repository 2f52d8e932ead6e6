//! `amb group`: agents of a network office that get messages together.

use amb_core::AgentName;
use amb_core::doc::{Group, GroupMember};
use serde::Serialize;

use crate::args::OfficeArgs;
use crate::failure::Failure;
use crate::output::Output;

/// Create, join and leave groups
///
/// Members write to a group with `amb send` and its name; every other member gets a copy. When the owner leaves, the
/// member that registered first becomes the owner.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  amb group create crew
  amb group invite crew ben
  amb --as ben group join crew
  amb send crew 'standup in five minutes' --subject Standup")]
pub(crate) struct GroupCommand {
    #[command(subcommand)]
    verb: GroupVerb,
}

#[derive(Debug, clap::Subcommand)]
enum GroupVerb {
    /// List the groups that you are a member of or invited to
    #[command(after_help = "Example:\n  amb --as ben group list")]
    List,
    /// Create a group; you become its owner and first member
    #[command(after_help = "Example:\n  amb --as ann group create crew")]
    Create {
        /// Name of the group; no agent may have it
        group: AgentName,
    },
    /// Invite an agent that you are connected with to a group that you own
    #[command(after_help = "Example:\n  amb --as ann group invite crew ben")]
    Invite {
        /// The group
        group: AgentName,
        /// The agent
        agent: AgentName,
    },
    /// Accept an invitation to a group
    #[command(after_help = "Example:\n  amb --as ben group join crew")]
    Join {
        /// The group
        group: AgentName,
    },
    /// Leave a group, or decline an invitation
    #[command(after_help = "Example:\n  amb --as ben group leave crew")]
    Leave {
        /// The group
        group: AgentName,
    },
    /// Remove an agent from a group that you own, or cancel its invitation
    #[command(after_help = "Example:\n  amb --as ann group remove crew ben")]
    Remove {
        /// The group
        group: AgentName,
        /// The agent
        agent: AgentName,
    },
}

impl GroupCommand {
    pub(crate) async fn run(self, office: &OfficeArgs, output: Output) -> Result<(), Failure> {
        let server = office.server_or("a directory has no groups; --server URL names an office that has")?;
        let mailbox = office.client(server).await?;
        let group = match self.verb {
            GroupVerb::List => {
                let groups = mailbox.groups().await?;
                return show(&groups, groups.iter(), output);
            }
            GroupVerb::Create { group } => mailbox.create_group(&group).await?,
            GroupVerb::Invite { group, agent } => mailbox.invite_to_group(&group, &agent).await?,
            GroupVerb::Join { group } => mailbox.join_group(&group).await?,
            GroupVerb::Leave { group } => mailbox.leave_group(&group).await?,
            GroupVerb::Remove { group, agent } => mailbox.remove_from_group(&group, &agent).await?,
        };
        show(&group, [&group], output)
    }
}

fn show<'a>(
    document: &impl Serialize,
    groups: impl IntoIterator<Item = &'a Group>,
    output: Output,
) -> Result<(), Failure> {
    let rows = groups.into_iter().map(row);
    Ok(if output.json { output.document(document) } else { output.table(&["group", "owner", "members"], rows) }?)
}

fn row(group: &Group) -> Vec<String> {
    let member = |member: &GroupMember| format!("{}{}", member.name, if member.joined { "" } else { " (invited)" });
    let members = group.members.iter().map(member).collect::<Vec<_>>().join(", ");
    vec![group.name.to_string(), group.owner.to_string(), members]
}
