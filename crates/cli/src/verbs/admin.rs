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
#[command(after_help = "\
Examples:
  amb admin key coder --database-url postgres://mailbox:secret@localhost/agent_mailbox
  amb admin advance-cursors --help")]
pub(crate) struct Admin {
    #[command(subcommand)]
    verb: AdminVerb,
}

#[derive(Debug, clap::Subcommand)]
enum AdminVerb {
    Key(IssueKey),
    AdvanceCursors(AdvanceCursors),
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

/// Put the numbers of every log forward, after the database was put back to an earlier state
///
/// Clients remember how far they have read a log by a number. Where a database is restored from an older copy, or a server
/// takes over that lacks the last transactions, those numbers would be given a second time, and clients would take new mail
/// for known. After this they go on a million higher. `amb restore` does it by itself, and so does a server on PostgreSQL that
/// finds itself on a restored dump, a recovered server or a promoted one; run this where neither can know, such as after
/// files were copied by hand. It never does harm. With SQLite stop the server first.
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
        let logs = amb_store::advance_cursors(&self.database.place()?).await?;
        if output.json {
            return Ok(output.document(&json!({ "logs": logs }))?);
        }
        Ok(output.say(format!("the numbers of {logs} logs go on a million higher"))?)
    }
}

impl Admin {
    pub(crate) async fn run(self, _office: &OfficeArgs, output: Output) -> Result<(), Failure> {
        match self.verb {
            AdminVerb::Key(verb) => verb.run(output).await,
            AdminVerb::AdvanceCursors(verb) => verb.run(output).await,
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
