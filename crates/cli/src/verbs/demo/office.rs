//! A temporary office for the demonstration.

use std::net::Ipv4Addr;
use std::sync::Arc;
use std::time::Duration;

use amb_client::{Client, SecretString, ServerUrl};
use amb_core::{AgentName, OfficeError, Timestamp};
use amb_server::{Config, HouseholdToken, serve};
use amb_store::Store;
use anyhow::Context;
use tempfile::TempDir;
use tokio::net::TcpListener;
use tokio::sync::oneshot;
use tokio::task::JoinHandle;

use crate::failure::Failure;

/// The name of the household's person, who watches.
pub(super) const PERSON: &str = "person";

/// The network office as `amb serve` runs it, in this process, on a free port, with its mail in a temporary directory.
pub(super) struct TemporaryOffice {
    /// Where its messages are stored.
    directory: TempDir,
    /// Where agents reach it.
    pub(super) server: ServerUrl,
    household: HouseholdToken,
    store: Arc<dyn Store>,
    closing: oneshot::Sender<()>,
    serving: JoinHandle<std::io::Result<()>>,
}

impl TemporaryOffice {
    pub(super) async fn open() -> Result<Self, Failure> {
        let directory = tempfile::Builder::new()
            .prefix("amb-demo-")
            .tempdir()
            .context("no directory for the demo's mail; set TMPDIR to one that you can write to")?;
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await.context("no free port on 127.0.0.1")?;
        let server: ServerUrl = format!("http://{}", listener.local_addr()?).parse()?;
        let store = amb_store::open(&format!("sqlite:{}", directory.path().join("office.db").display())).await?;
        let household = HouseholdToken::fresh()?;
        store.found_household(household.hash(), true, Timestamp::now()).await?;
        let (closing, closed) = oneshot::channel();
        // The three agents are gone before the office closes, so no work is cut short.
        let config = Config { shutdown_grace: Duration::from_secs(1), ..Config::default() };
        let serving = tokio::spawn(serve(listener, Arc::clone(&store), config, async {
            // A dropped sender closes the office too.
            let _ = closed.await;
        }));
        Ok(Self { directory, server, household, store, closing, serving })
    }

    /// The token with which the agents of one owner register.
    pub(super) fn household(&self) -> &str {
        self.household.reveal()
    }

    /// A link to its dashboard, for the person who watches: the household's.
    pub(super) async fn dashboard(&self) -> Result<String, Failure> {
        let name = AgentName::parse_for_person(PERSON).map_err(OfficeError::from)?;
        let token = SecretString::from(self.household.reveal().to_owned());
        let person = amb_client::claim_person(&self.server, &name, &token).await?;
        Ok(Client::open(self.server.clone(), person.api_key).await?.dashboard_link().await?.url)
    }

    /// Where its messages are stored.
    pub(super) fn place(&self) -> String {
        self.directory.path().display().to_string()
    }

    /// Closes the office and removes its files.
    pub(super) async fn close(self) -> Result<(), Failure> {
        // The office may have ended by itself; its own error is the one to report.
        let _ = self.closing.send(());
        let served = self.serving.await.context("the office failed")?;
        self.store.close().await;
        self.directory.close().context("the demo's mail could not be removed")?;
        Ok(served?)
    }
}
