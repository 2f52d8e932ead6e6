//! `amb register`: registers an agent or changes its card.

use amb_client::ExposeSecret;
use amb_core::doc::RegisterBody;
use amb_core::{AgentName, AllowFrom, Card, OfficeError};
use serde_json::{Value, json};

use crate::args::OfficeArgs;
use crate::failure::Failure;
use crate::output::Output;
use crate::{household, keys};

/// Register an agent, or change the card of a registered one
///
/// A registered agent keeps every field of its card that no option changes. With several names, the first failure ends
/// the command; the agents before it stay registered. --json prints an object for one agent and a list for several.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  amb register coder
  amb register planner coder reviewer
  amb register coder --description 'writes and tests code' --capability rust --capability python
  amb register coder --allow-from researcher --max-concurrent-tasks 1
  amb register coder --server https://mail.example.org --household")]
pub(crate) struct RegisterCommand {
    /// Names of the agents [default: the agent of --as]
    #[arg(value_name = "NAME")]
    names: Vec<AgentName>,
    /// What the agent does, in a sentence
    #[arg(long, value_name = "D")]
    description: Option<String>,
    /// A capability of the agent (repeatable)
    #[arg(long = "capability", value_name = "C")]
    capabilities: Vec<String>,
    /// An agent that may write to it, or '*' for all (repeatable) [default for a new agent: *]
    #[arg(long = "allow-from", value_name = "A")]
    allow_from: Vec<String>,
    /// Maximum number of open tasks that it accepts [default for a new agent: 3]
    #[arg(long, value_name = "N")]
    max_concurrent_tasks: Option<u32>,
    /// At a server: how to reach the agent's owner, such as an e-mail address
    #[arg(long, value_name = "CONTACT")]
    owner_contact: Option<String>,
    /// At a server that requires it: the registration token from its operator
    #[arg(long, value_name = "TOKEN", env = "AMB_REGISTRATION_TOKEN", hide_env_values = true)]
    registration_token: Option<String>,
    /// At a server: join your household there, whose members need no connection codes. Uses the token that `amb serve` or
    /// `amb join` saved, or AMB_HOUSEHOLD_TOKEN. Implied at the local office and at saved ones
    #[arg(long)]
    household: bool,
    /// At a server that no longer accepts the saved key, for example after its database was replaced: register again and
    /// replace the saved key
    #[arg(long)]
    anew: bool,
}

impl RegisterCommand {
    pub(crate) async fn run(self, office: &OfficeArgs, output: Output) -> Result<(), Failure> {
        if office.server.is_none() {
            let server_only = [("--owner-contact", self.owner_contact.is_some()), ("--household", self.household)];
            if let Some((option, _)) = server_only.iter().find(|(_, given)| *given) {
                let detail = format!("{option} is for a server: a directory stores no owners and has no household");
                return Err(OfficeError::unsupported(detail).into());
            }
        }
        let names = if self.names.is_empty() { vec![office.acting_agent()?] } else { self.names.clone() };
        let (mut documents, mut result) = (Vec::new(), Ok(()));
        for name in &names {
            match self.register(name, office, output).await {
                Ok(document) => documents.extend(document),
                // Those registered before stay, and are listed.
                Err(error) => {
                    result = Err(error);
                    break;
                }
            }
        }
        match (names.len(), documents.as_slice()) {
            (_, []) => {}
            (1, [only]) => output.document(only)?,
            _ => output.document(&documents)?,
        }
        result
    }

    /// This card with what the options change.
    fn card(&self, present: Card) -> Card {
        let given = |values: &Vec<String>| (!values.is_empty()).then(|| values.clone());
        Card {
            description: self.description.clone().unwrap_or(present.description),
            capabilities: given(&self.capabilities).unwrap_or(present.capabilities),
            allow_from: given(&self.allow_from).map_or(present.allow_from, AllowFrom),
            max_concurrent_tasks: self.max_concurrent_tasks.unwrap_or(present.max_concurrent_tasks),
        }
    }

    /// Registers one agent. Returns its JSON document where `--json` was given.
    async fn register(&self, name: &AgentName, office: &OfficeArgs, output: Output) -> Result<Option<Value>, Failure> {
        let office = OfficeArgs { me: Some(name.clone()), ..office.clone() };
        match &office.server {
            // A stored key means that the name is this user's own: only the card changes.
            Some(server) if self.anew || keys::find(server, name)?.is_none() => {
                let card = self.card(Card::default());
                card.check()?;
                let household = household::token_to_join(&office, server, self.household)?;
                let body = RegisterBody {
                    owner_contact: self.owner_contact.clone(),
                    registration_token: self.registration_token.clone(),
                    household_token: household.map(|token| token.expose_secret().to_owned()),
                    ..RegisterBody::new(name, card)
                };
                let registered = amb_client::register(server, &body).await?;
                let path = keys::store(server, name, registered.api_key.expose_secret())?;
                if output.json {
                    return Ok(Some(json!({ "id": registered.id, "name": registered.name, "key_file": path })));
                }
                output.say(format!("{name} is registered at {server}"))?;
                // Once for all of them.
                if self.names.last().is_none_or(|last| last == name) {
                    let whose = if self.names.len() > 1 { "their keys are" } else { "its key is" };
                    output.note(format!("{whose} kept in {}", path.display()));
                    if registered.operators_read_mail {
                        output.note("the operators of this office can read all mail");
                    }
                }
            }
            _ => {
                let mailbox = office.open().await?;
                let present = mailbox.agent(name).await?.map(|entry| entry.card).unwrap_or_default();
                let entry = mailbox.register(self.card(present)).await?;
                if output.json {
                    return Ok(Some(serde_json::to_value(&entry)?));
                }
                match &office.server {
                    Some(server) => {
                        output.say(format!("{} is already registered at {server}; its card is updated", entry.name))?;
                        if self.owner_contact.is_some() {
                            output.note(
                                "its owner's contact stays as it is: it is stored when an agent is first registered",
                            );
                        }
                    }
                    None => output.say(format!("{} is registered at {}", entry.name, mailbox.describe()))?,
                }
            }
        }
        Ok(None)
    }
}
