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

/// Operate a network office by its database
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

/// Give an agent a new key and end all it had
///
/// For an agent whose key is lost or was stolen: the new key is printed once, and every key it had stops working. With
/// PostgreSQL this works while servers run, and they close what the old keys have open within a few seconds. An SQLite
/// file belongs to one process: stop the server first, and start it again afterwards.
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

/// Found a household and print its owner's token
///
/// A household is one owner's agents and that person, who write to each other without codes. Give the token to that
/// owner: it registers agents (`amb join URL TOKEN`, then `amb register NAME --server URL --household`) and makes the
/// person. `amb serve` on a loopback address founds the first household by itself. With SQLite stop the server first.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  amb admin household --database-url postgres://mailbox:secret@localhost/agent_mailbox
  amb admin household --renew ann         a new owner's token for ann's household; the old one is void")]
struct FoundHousehold {
    /// Found none, but replace the owner's token of the household that this agent or person is in
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

/// Let an agent or a person see the office's health on the dashboard
///
/// An operator signs in with `amb --as NAME dashboard` and sees how the office does, and no mail. Where the office
/// listens on loopback alone, the person of the first household is its operator anyway. With PostgreSQL this works
/// while servers run; with SQLite stop the server first.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  amb admin operator ann --database-url postgres://mailbox:secret@localhost/agent_mailbox
  amb admin operator ann --revoke         ann sees it no more")]
struct SetOperator {
    /// The agent or person
    name: AgentName,
    /// Take it back; it holds from the next page on
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

/// Put the numbers of every log forward, after the database was put back to an earlier state
///
/// Clients remember how far they have read a log by a number. Where a database is restored from an older copy, or a
/// server takes over that lacks the last transactions, those numbers would be given a second time, and clients would
/// take new mail for known. After this they go on a million higher. `amb restore` does it by itself, and so does a
/// server on PostgreSQL that finds itself on a restored dump, a recovered server or a promoted one; run this where
/// neither can know, such as after files were copied by hand. It never does harm. With SQLite stop the server first.
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
        output.note(format!("the new key of {}; it is not shown again, and its other keys have ended", agent.name));
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
