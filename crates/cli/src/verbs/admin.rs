//! `amb admin`: an operator's changes to the database of a network office.

use std::sync::Arc;

use amb_core::{AgentName, Code, OfficeError, Timestamp};
use amb_server::{ApiKey, HouseholdToken};
use amb_store::{DatabaseUrl, PostgresStore, SqliteStore, Store};
use serde_json::json;

use crate::args::OfficeArgs;
use crate::database::{DatabaseArgs, shown};
use crate::failure::Failure;
use crate::output::Output;

/// Administer a network office directly in its database
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  amb admin key coder --database-url postgres://mailbox:secret@localhost/agent_mailbox
  amb admin advance-cursors --help")]
pub(crate) struct AdminCommand {
    #[command(subcommand)]
    verb: AdminVerb,
}

#[derive(Debug, clap::Subcommand)]
enum AdminVerb {
    Key(IssueKey),
    Household(FoundHousehold),
    Operator(SetOperator),
    AdvanceCursors(AdvanceCursors),
}

/// Create a new API key for an agent and revoke its old keys
///
/// For an agent whose key was lost or stolen. The new key is printed once; all its old keys stop working. With
/// PostgreSQL this works while servers are running, and they close the connections of the old keys within a few
/// seconds. With SQLite only one process can use the database: stop the server first, and start it again afterwards.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  amb admin key coder --database-url postgres://mailbox:secret@localhost/agent_mailbox
  amb admin key coder --database-url sqlite:/var/lib/amb/mailbox.db --json")]
struct IssueKey {
    /// The agent
    name: AgentName,
    #[command(flatten)]
    database: DatabaseArgs,
}

/// Create a household and print its owner token
///
/// A household is a person and the agents of that person, who write to each other without codes. Give the token to the
/// owner, who uses it to register agents (`amb join URL TOKEN`, then `amb register NAME --server URL --household`) and
/// to create the person. `amb serve` on a loopback address creates the first household automatically. With SQLite, stop
/// the server first.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  amb admin household --database-url postgres://mailbox:secret@localhost/agent_mailbox
  amb admin household --renew ann         replace the owner token of ann's household")]
struct FoundHousehold {
    /// Do not create a household, but replace the owner token of this agent's or person's household; the old token
    /// becomes invalid
    #[arg(long, value_name = "NAME")]
    renew: Option<AgentName>,
    #[command(flatten)]
    database: DatabaseArgs,
}

impl FoundHousehold {
    async fn run(self, output: Output) -> Result<(), Failure> {
        let token = HouseholdToken::fresh()?;
        let store = open(&self.database).await?;
        let done = match &self.renew {
            Some(member) => store.renew_household(member, token.hash(), Timestamp::now()).await.map(|()| None),
            None => store.found_household(token.hash(), false, Timestamp::now()).await,
        };
        store.close().await;
        let id = done?;
        output.result(&json!({ "id": id, "token": token.reveal() }), token.reveal())?;
        output.note(match &self.renew {
            Some(member) => format!("the new owner's token of {member}'s household; the one before is void"),
            None => "the owner's token of a new household; it is not shown again".to_owned(),
        });
        Ok(())
    }
}

/// Make an agent or a person an operator, who sees the office's health
///
/// An operator signs in to the dashboard with `amb --as NAME dashboard` and sees the health of the office, but no mail
/// (unless `amb serve` runs with --operators-read-mail). If the office listens only on loopback, the person of the
/// first household is always an operator. With PostgreSQL this works while servers are running; with SQLite, stop the
/// server first.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  amb admin operator ann --database-url postgres://mailbox:secret@localhost/agent_mailbox
  amb admin operator ann --revoke         ann is no longer an operator")]
struct SetOperator {
    /// Name of the agent or person
    name: AgentName,
    /// Revoke the operator role; takes effect when the next page is loaded
    #[arg(long)]
    revoke: bool,
    #[command(flatten)]
    database: DatabaseArgs,
}

impl SetOperator {
    async fn run(self, output: Output) -> Result<(), Failure> {
        let store = open(&self.database).await?;
        let done = store.set_operator(&self.name, !self.revoke, Timestamp::now()).await;
        store.close().await;
        done?;
        let name = &self.name;
        let line = match self.revoke {
            true => format!("{name} is no operator of this office"),
            false => format!("{name} is an operator of this office; `amb --as {name} dashboard` signs in"),
        };
        output.result(&json!({ "name": name, "operator": !self.revoke }), line)
    }
}

/// Advance the cursors of all logs after the database was reset to an earlier state
///
/// A cursor is the number up to which a client has read a log. If the database is restored from an older copy, or a
/// server without the last transactions takes over (failover), the same numbers would be assigned again, and clients
/// would skip new mail as already read. This command advances all numbers by a million. `amb restore` does this
/// automatically, and so does a server on PostgreSQL that detects a restored dump, a recovered server or a promoted
/// standby; run it where neither can detect the change, such as after copying files by hand. It is always safe to run.
/// With SQLite, stop the server first.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  pg_restore --clean --if-exists --no-owner --dbname=\"$DATABASE_URL\" FILE && amb admin advance-cursors
  amb admin advance-cursors --database-url sqlite:/var/lib/amb/mailbox.db")]
struct AdvanceCursors {
    #[command(flatten)]
    database: DatabaseArgs,
}

impl AdvanceCursors {
    async fn run(self, output: Output) -> Result<(), Failure> {
        let logs = amb_store::advance_cursors(&self.database.url()?).await?;
        output.result(&json!({ "logs": logs }), format!("the numbers of {logs} logs go on a million higher"))
    }
}

impl AdminCommand {
    pub(crate) async fn run(self, _office: &OfficeArgs, output: Output) -> Result<(), Failure> {
        match self.verb {
            AdminVerb::Key(verb) => verb.run(output).await,
            AdminVerb::Household(verb) => verb.run(output).await,
            AdminVerb::Operator(verb) => verb.run(output).await,
            AdminVerb::AdvanceCursors(verb) => verb.run(output).await,
        }
    }
}

impl IssueKey {
    async fn run(self, output: Output) -> Result<(), Failure> {
        let key = ApiKey::fresh()?;
        let store = open(&self.database).await?;
        let agent = store.issue_key(&self.name, key.to_keep()).await;
        store.close().await;
        let agent = agent?;
        output.result(&json!({ "name": agent.name, "api_key": key.reveal() }), key.reveal())?;
        let name = &agent.name;
        output.note(format!(
            "the new key of {name}; it is not shown again, and its other keys have ended; `amb key import {name}` stores it \
             where the agent runs"
        ));
        Ok(())
    }
}

/// Opens the office's database. A missing one is not created: that would be an empty office.
async fn open(database: &DatabaseArgs) -> Result<Arc<dyn Store>, Failure> {
    match database.url()? {
        DatabaseUrl::Sqlite(path) => {
            if !path.exists() {
                return Err(Failure::not_found(format!(
                    "there is no database at {}; --database-url says where",
                    shown(&path)
                )));
            }
            let store = SqliteStore::open(&path).await.map_err(|error| match error.code() {
                Code::Conflict => OfficeError::new(
                    Code::Conflict,
                    format!("a server has {} open; stop it, run this again, then start it", shown(&path)),
                )
                .caused_by(error),
                _ => error,
            })?;
            Ok(Arc::new(store))
        }
        DatabaseUrl::Postgres(url) => Ok(Arc::new(PostgresStore::open(&url).await?)),
    }
}
