//! `amb register`: enter an agent's card.

use amb_client::ExposeSecret;
use amb_core::{AgentName, AllowFrom, Card, limits};
use serde_json::json;

use crate::args::OfficeArgs;
use crate::failure::Failure;
use crate::output::Output;
use crate::{household, keys};

/// Register an agent, or change what it says about itself
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  amb register coder --description 'writes and tests code' --capability rust --capability python
  amb register coder --allow-from researcher --max-concurrent-tasks 1
  amb register coder --server https://mail.example.org --household")]
pub(crate) struct Register {
    /// The agent's name; --as where not given
    name: Option<AgentName>,
    /// What it is, in a sentence
    #[arg(long, value_name = "D", default_value = "")]
    description: String,
    /// Something it can do; repeat for more
    #[arg(long = "capability", value_name = "C")]
    capabilities: Vec<String>,
    /// Whom it hears; repeat for more, '*' for everybody (the default)
    #[arg(long = "allow-from", value_name = "A")]
    allow_from: Vec<String>,
    /// How many tasks it works on at once
    #[arg(long, value_name = "N", default_value_t = limits::DEFAULT_MAX_CONCURRENT_TASKS)]
    max_concurrent_tasks: u32,
    /// At a server: how to reach the agent's owner
    #[arg(long, value_name = "CONTACT")]
    owner_contact: Option<String>,
    /// At a server where registration needs it: the token that its operator gave out
    #[arg(long, value_name = "TOKEN", env = "AMB_REGISTRATION_TOKEN", hide_env_values = true)]
    registration_token: Option<String>,
    /// At a server: join your household there, whose members write to each other without codes; its token is the one that
    /// `amb serve` or `amb join` kept, or AMB_HOUSEHOLD_TOKEN. At the local office and at saved ones this goes without saying
    #[arg(long)]
    household: bool,
}

impl Register {
    pub(crate) async fn run(self, office: &OfficeArgs, output: Output) -> Result<(), Failure> {
        let name = self.name.clone().map_or_else(|| office.speaker(), Ok)?;
        let office = OfficeArgs { me: Some(name.clone()), ..office.clone() };
        let card = Card {
            description: self.description,
            capabilities: self.capabilities,
            allow_from: if self.allow_from.is_empty() { AllowFrom::default() } else { AllowFrom(self.allow_from) },
            max_concurrent_tasks: self.max_concurrent_tasks,
        };
        match &office.server {
            // A name that this user has a key for is its own: only the card changes.
            Some(server) if keys::find(server, &name)?.is_none() => {
                card.check()?;
                let household = household::joining(&office, server, self.household)?;
                let token = self.registration_token.as_deref();
                let registered = amb_client::register(
                    server,
                    &name,
                    card,
                    self.owner_contact,
                    token,
                    household.as_ref().map(ExposeSecret::expose_secret),
                )
                .await?;
                let path = keys::keep(server, &name, registered.api_key.expose_secret())?;
                if output.json {
                    let document = json!({ "id": registered.id, "name": registered.name, "key_file": path });
                    return Ok(output.document(&document)?);
                }
                output.say(format!("{name} is registered at {server}"))?;
                output.note(format!("its key is kept in {}", path.display()));
            }
            _ => {
                let mailbox = office.open().await?;
                let entry = mailbox.register(card).await?;
                if output.json {
                    return Ok(output.document(&entry)?);
                }
                match &office.server {
                    Some(server) => {
                        output.say(format!("{} has a key at {server} already; its card is as you said", entry.name))?;
                    }
                    None => output.say(format!("{} is registered at {}", entry.name, mailbox.describe()))?,
                }
            }
        }
        Ok(())
    }
}
