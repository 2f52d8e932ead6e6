//! `amb group`: agents of a network office that get messages together.

use amb_core::AgentName;
use amb_core::doc::{Group as GroupDocument, GroupMember};

use crate::args::OfficeArgs;
use crate::failure::Failure;
use crate::output::Output;

/// Make groups, join and leave them
///
/// A group is written to by its name, with `amb send`, by its members; each other member gets a copy. When its owner leaves,
/// the group is the member's that registered first.
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
        /// Whom
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
        /// Whom
        agent: AgentName,
    },
}

impl GroupCommand {
    pub(crate) async fn run(self, office: &OfficeArgs, output: Output) -> Result<(), Failure> {
        let server = office.server_or("a directory has no groups; --server URL names an office that has")?;
        let mailbox = office.client(server).await?;
        let groups = match self.verb {
            GroupVerb::List => {
                let groups = mailbox.groups().await?;
                if output.json {
                    return Ok(output.document(&groups)?);
                }
                groups
            }
            GroupVerb::Create { group } => return shown(&mailbox.create_group(&group).await?, output),
            GroupVerb::Invite { group, agent } => {
                return shown(&mailbox.invite_to_group(&group, &agent).await?, output);
            }
            GroupVerb::Join { group } => return shown(&mailbox.join_group(&group).await?, output),
            GroupVerb::Leave { group } => return shown(&mailbox.leave_group(&group).await?, output),
            GroupVerb::Remove { group, agent } => {
                return shown(&mailbox.remove_from_group(&group, &agent).await?, output);
            }
        };
        Ok(output.table(&["group", "owner", "members"], groups.iter().map(row))?)
    }
}

fn shown(group: &GroupDocument, output: Output) -> Result<(), Failure> {
    match output.json {
        true => output.document(group)?,
        false => output.table(&["group", "owner", "members"], [row(group)])?,
    }
    Ok(())
}

fn row(group: &GroupDocument) -> Vec<String> {
    let member = |member: &GroupMember| match member.joined {
        true => member.name.to_string(),
        false => format!("{} (invited)", member.name),
    };
    let members = group.members.iter().map(member).collect::<Vec<_>>().join(", ");
    vec![group.name.to_string(), group.owner.to_string(), members]
}
