//! `amb admin`: what the operator of a network office does to its database.

use amb_core::{AgentName, Code, OfficeError};
use amb_server::ApiKey;
use amb_store::{DatabaseUrl, PostgresStore, SqliteStore, Store};
use serde_json::json;

use crate::args::OfficeArgs;
use crate::database::{DatabaseArgs, shown};
use crate::failure::Failure;
use crate::output::Output;

/// Operate a network office by its database
#[derive(Debug, clap::Args)]
pub(crate) struct Admin {
    #[command(subcommand)]
    verb: AdminVerb,
}

#[derive(Debug, clap::Subcommand)]
enum AdminVerb {
    Key(IssueKey),
}

/// Give an agent a new key and end all it had
///
/// For an agent whose key is lost or was stolen: the new key is printed once, and every key it had stops working. With
/// PostgreSQL this works while servers run, and they close what the old keys have open within a few seconds. An SQLite file
/// belongs to one process: stop the server first, and start it again afterwards.
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

impl Admin {
    pub(crate) async fn run(self, _office: &OfficeArgs, output: Output) -> Result<(), Failure> {
        match self.verb {
            AdminVerb::Key(verb) => verb.run(output).await,
        }
    }
}

impl IssueKey {
    async fn run(self, output: Output) -> Result<(), Failure> {
        let key = ApiKey::fresh()?;
        let agent = match self.database.place()? {
            DatabaseUrl::Sqlite(path) => {
                // Opening a file that is missing would make an empty office.
                if !path.exists() {
                    let detail = format!("there is no database at {}; --database-url says where", shown(&path));
                    return Err(OfficeError::not_found(detail).into());
                }
                let store = SqliteStore::open(&path).await.map_err(|error| match error.code() {
                    Code::Conflict => OfficeError::new(
                        Code::Conflict,
                        format!("a server has {} open; stop it, run this again, then start it", shown(&path)),
                    )
                    .caused_by(error),
                    _ => error,
                })?;
                issue(&store, &self.name, &key).await
            }
            DatabaseUrl::Postgres(url) => issue(&PostgresStore::open(&url).await?, &self.name, &key).await,
        }?;
        if output.json {
            return Ok(output.document(&json!({ "name": agent.name, "api_key": key.reveal() }))?);
        }
        output.say(key.reveal())?;
        output.note(format!("the new key of {}; it is not shown again, and its other keys have ended", agent.name));
        Ok(())
    }
}

async fn issue(store: &dyn Store, name: &AgentName, key: &ApiKey) -> Result<amb_store::Agent, OfficeError> {
    let agent = store.issue_key(name, key.to_keep()).await;
    store.close().await;
    agent
}
