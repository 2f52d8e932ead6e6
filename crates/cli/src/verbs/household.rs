//! `amb household`, `amb invite` and `amb join`: one owner's agents and machines.

use amb_client::{Client, ServerUrl};
use amb_core::doc::{Household as Document, HouseholdSessions, Machine};
use amb_core::suggest::nearest;
use amb_core::{AgentName, Code, Mailbox, OfficeError, Timestamp};
use serde_json::json;
use uuid::Uuid;

use crate::args::OfficeArgs;
use crate::failure::Failure;
use crate::household;
use crate::ids::{self, Short};
use crate::output::{Output, ago, preview, visible};
use crate::saved::{self, SavedOffice};

/// List and manage your household: your agents and machines, which need no connection codes
///
/// A household is a person and that person's agents. `amb serve` on your own machine creates one. Agents registered on
/// that machine join it; agents of other machines join with `amb invite` and `amb join`.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  amb household                           list members and machines
  amb household sessions                  list your agents' conversations
  amb household add coder                 coder, which was registered before, joins it
  amb household remove coder              coder becomes a stranger
  amb household remove --machine laptop   that machine's token is void, and its agents are strangers")]
pub(crate) struct HouseholdCommand {
    #[command(subcommand)]
    verb: Option<HouseholdVerb>,
}

#[derive(Debug, clap::Subcommand)]
enum HouseholdVerb {
    /// List the members, and the machine that each one belongs to
    #[command(after_help = "Examples:\n  amb household list\n  amb household list --json")]
    List,
    /// List your agents' conversations, the latest first; `amb end` ends one
    #[command(after_help = "Example:\n  amb household sessions")]
    Sessions,
    /// Create the account of the household's person, as which you write, if there is none yet. `amb up` creates one
    /// itself: there, choose its name with `amb up --person NAME`
    #[command(after_help = "Example:\n  amb household person kim --server https://mail.example")]
    Person {
        /// Name of the person
        name: AgentName,
    },
    /// Add an agent that is already registered and whose key is saved on this machine
    #[command(after_help = "Example:\n  amb household add coder")]
    Add {
        /// The agent
        name: AgentName,
    },
    /// Remove an agent, or a machine with all its agents
    #[command(after_help = "Examples:\n  amb household remove coder\n  amb household remove --machine laptop")]
    #[command(group = clap::ArgGroup::new("whom").required(true).args(["name", "machine"]))]
    Remove {
        /// The agent
        name: Option<AgentName>,
        /// Name of the machine, its id, or a unique prefix of the id, as `amb household` shows them. Its token is revoked
        #[arg(long, value_name = "MACHINE")]
        machine: Option<String>,
    },
}

/// The server of the household.
fn server(office: &OfficeArgs) -> Result<&ServerUrl, Failure> {
    office.server_or("a directory has no household: its agents all write to each other, as far as allow_from goes")
}

/// The mailbox of the named agent; else the person's, created on first use; else that of the only agent with a key.
pub(crate) async fn open(office: &OfficeArgs) -> Result<Client, Failure> {
    let server = server(office)?;
    let mut office = office.clone();
    if office.me.is_none() && crate::profile::key_from_env().is_none() {
        office.me = household::claim_person(server).await?;
    }
    Ok(Client::open(server.clone(), office.key(server)?).await?)
}

/// The result of an act on a member. Where the name is not in the household, the error suggests the nearest one that
/// is.
pub(crate) async fn or_suggest<T>(
    person: &Client,
    name: &AgentName,
    result: Result<T, OfficeError>,
) -> Result<T, Failure> {
    let error = match result {
        Err(error) if error.code() == Code::NotFound => error,
        other => return Ok(other?),
    };
    let members = person.household().await.map(|household| household.members).unwrap_or_default();
    match nearest(name.as_str(), members.iter().map(|member| member.name.as_str())) {
        Some(near) if near != name.as_str() => {
            Err(Failure::not_found(format!("{name} is not in your household; did you mean {near:?}?")))
        }
        _ => Err(error.into()),
    }
}

impl HouseholdCommand {
    pub(crate) async fn run(self, office: &OfficeArgs, output: Output) -> Result<(), Failure> {
        match self.verb {
            None | Some(HouseholdVerb::List) => list(&open(office).await?.household().await?, output),
            Some(HouseholdVerb::Sessions) => sessions(&open(office).await?.household_sessions().await?, output),
            Some(HouseholdVerb::Person { name }) => {
                let server = server(office)?;
                household::name_person(server, &name).await?;
                output.result(&json!({ "person": name }), format!("you write as {name} here"))
            }
            Some(HouseholdVerb::Add { name }) => {
                let server = server(office)?;
                let token = household::required_token(server)?;
                let office = OfficeArgs { me: Some(name.clone()), ..office.clone() };
                Client::open(server.clone(), office.key(server)?).await?.join_household(&token).await?;
                output.result(
                    &json!({ "added": name }),
                    format!("{name} is in the household: it and the others write to each other without codes"),
                )
            }
            Some(HouseholdVerb::Remove { name, machine }) => {
                let mailbox = open(office).await?;
                let machine = match machine {
                    Some(text) => Some(ids::machine(&mailbox.household().await?.machines, &text)?),
                    None => None,
                };
                let removed = match (&name, machine) {
                    (_, Some(id)) => {
                        mailbox.revoke_machine(id).await?;
                        format!("machine {id} is out of the household; its agents are strangers now")
                    }
                    (Some(name), None) => {
                        or_suggest(&mailbox, name, mailbox.leave_household(name).await).await?;
                        format!("{name} is out of the household, and a stranger now")
                    }
                    (None, None) => return Err(Failure::usage("say whom: a name, or --machine MACHINE")),
                };
                output.result(&json!({ "removed": name, "machine": machine }), removed)
            }
        }
    }
}

fn list(household: &Document, output: Output) -> Result<(), Failure> {
    if output.json {
        return Ok(output.document(household)?);
    }
    let when = |at: Timestamp| if output.for_person { ago(at) } else { at.to_string() };
    let label = |id: Option<Uuid>| {
        let machine = household.machines.iter().find(|machine| Some(machine.id) == id);
        machine.map_or_else(|| "-".to_owned(), |machine| visible(&machine.label))
    };
    let members = household.members.iter().map(|member| {
        let who = if member.person { "person" } else { "agent" };
        let status = match &member.paused_by {
            Some(by) => format!("paused by {by}"),
            None => member.presence.status.to_string(),
        };
        vec![member.name.to_string(), who.to_owned(), status, label(member.machine)]
    });
    output.table(&["MEMBER", "", "STATUS", "MACHINE"], members)?;
    let machines = household.machines.iter().map(|machine: &Machine| {
        let state = match machine.revoked_at {
            Some(at) => format!("revoked {}", when(at)),
            None => "valid".to_owned(),
        };
        vec![visible(&machine.label), machine.id.to_string(), when(machine.created_at), state]
    });
    output.say("")?;
    Ok(output.table(&["MACHINE", "ID", "SINCE", "TOKEN"], machines)?)
}

fn sessions(found: &HouseholdSessions, output: Output) -> Result<(), Failure> {
    let short = Short::of(found.sessions.iter().map(|session| session.session_id.as_str()), output.for_person);
    let rows = found.sessions.iter().map(|session| {
        let names: Vec<&str> = session.between.iter().map(AgentName::as_str).collect();
        let with = session.group.as_deref().map_or_else(|| names.join(", "), visible);
        let state = session.ended_by.as_ref().map_or_else(String::new, |by| format!("ended by {by}"));
        let (id, last) = (short.show(session.session_id.as_str()), ago(session.last_message_at));
        vec![id, with, preview(&session.subject, 40), session.unread.to_string(), last, state]
    });
    let head = ["SESSION", "BETWEEN", "SUBJECT", "UNREAD", "LAST", ""];
    output.list(found, "your agents have said nothing yet", &head, rows)?;
    if found.truncated {
        output.note("these are the latest conversations, and there are more");
    }
    Ok(())
}

/// Invite another machine to your household
///
/// Prints the command to run on that machine. It contains a token that is shown only once;
/// `amb household remove --machine NAME` revokes it.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  amb invite laptop
  amb household remove --machine laptop   takes it back")]
pub(crate) struct InviteCommand {
    /// A name for that machine
    #[arg(default_value = "machine")]
    label: String,
}

impl InviteCommand {
    pub(crate) async fn run(self, office: &OfficeArgs, output: Output) -> Result<(), Failure> {
        let server = server(office)?;
        let machine = open(office).await?.add_machine(&self.label).await?;
        let command = format!("amb join {server} {}", machine.token);
        let document = json!({ "id": machine.id, "label": machine.label, "server": server.to_string(), "token": machine.token, "command": command });
        output.result(&document, command)?;
        output.note(format!(
            "run this on {}; the token is not shown again, and `amb household remove --machine {}` takes it back",
            visible(&machine.label),
            machine.id
        ));
        if server.is_loopback() {
            output
                .note(format!("{server} is reached from this machine alone: let it listen elsewhere, or use a tunnel"));
        }
        Ok(())
    }
}

/// Join a household from this machine, with the token that `amb invite` printed
///
/// Saves the token in a file that only you can read, and adds the office to your profile. Agents that you register there
/// become members.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  amb join https://mail.example.org ambh_…
  amb --office mail-example-org register coder
  amb register coder --server https://mail.example.org --household")]
pub(crate) struct JoinCommand {
    /// URL of the office
    url: ServerUrl,
    /// The token, or - to read it from stdin
    token: String,
}

impl JoinCommand {
    pub(crate) async fn run(self, _office: &OfficeArgs, output: Output) -> Result<(), Failure> {
        let token = match self.token.as_str() {
            "-" => std::io::read_to_string(std::io::stdin())?,
            token => token.to_owned(),
        };
        let token = token.trim();
        if token.is_empty() || !token.bytes().all(|byte| byte.is_ascii_graphic()) {
            return Err(Failure::usage("this is no token; `amb invite` prints the whole command"));
        }
        let path = household::join(&self.url, &token.into()).await?;
        let name = self.save()?;
        let document = json!({ "server": self.url.to_string(), "office": name, "token_file": path });
        output.result(
            &document,
            format!("agents that you register at {} join the household: amb --office {name} register NAME", self.url),
        )?;
        output.note(format!(
            "`amb office use {name}` makes it the one that verbs use; the token is kept in {}",
            path.display()
        ));
        Ok(())
    }

    /// Adds the office to the profile, under its host name, unless it is there.
    fn save(&self) -> Result<String, Failure> {
        let (profile, url) = (saved::read()?, self.url.to_string());
        if let Some((name, _)) = profile.offices.iter().find(|(_, place)| place.server.as_deref() == Some(&url)) {
            return Ok(name.clone());
        }
        let host = url.split("//").last().unwrap_or_default();
        let plain = |c: char| if c.is_ascii_alphanumeric() { c } else { '-' };
        let host: String = host.chars().map(plain).take(40).collect();
        let host = host.trim_matches('-');
        let numbered = (2..100).map(|number| format!("{host}-{number}"));
        let free = std::iter::once(host.to_owned()).chain(numbered).find(|name| !profile.offices.contains_key(name));
        let name = free
            .ok_or_else(|| Failure::usage("too many offices at this host are saved; `amb office list` shows them"))?;
        saved::save(&name, &SavedOffice { server: Some(url), ..SavedOffice::default() })?;
        Ok(name)
    }
}
