//! `amb group`: agents of a network office that get messages together.

use amb_core::AgentName;
use amb_core::doc::{Group, GroupMember};
use serde::Serialize;

use crate::args::OfficeArgs;
use crate::failure::Failure;
use crate::output::Output;

/// Make groups, join and leave them
///
/// A group is written to by its name, with `amb send`, by its members; each other member gets a copy. When its owner
/// leaves, the group is the member's that registered first.
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
    /// The groups that you are in or were invited to
    List,
    /// Make a group; you are its owner and first member
    Create {
        /// Its name, which no agent has
        group: AgentName,
    },
    /// Invite an agent that you are connected with to a group of yours
    Invite {
        /// The group
        group: AgentName,
        /// The agent
        agent: AgentName,
    },
    /// Agree to an invitation
    Join {
        /// The group
        group: AgentName,
    },
    /// Leave a group, or decline an invitation
    Leave {
        /// The group
        group: AgentName,
    },
    /// Take an agent out of a group of yours, or its invitation back
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
