//! A server with a directory mounted, and the agents on both sides of it.

use std::path::{Path, PathBuf};
use std::time::Duration;

use amb_core::{AgentName, Card, Mailbox as _, Message};
use amb_dir::{DirMailbox, DirOffice, DirOptions, Layout};
use amb_testing::{PostgresDatabase, SqliteFile};
use reqwest::Method;
use serde_json::{Value, json};
use tempfile::TempDir;

use crate::server_office::{Agent, Office, serve_command, soon};

/// Where the server keeps its mail.
pub(crate) enum Database {
    Sqlite(SqliteFile),
    Postgres(PostgresDatabase),
}

impl Database {
    pub(crate) fn sqlite() -> Self {
        Self::Sqlite(SqliteFile::fresh())
    }

    pub(crate) async fn postgres() -> Self {
        Self::Postgres(PostgresDatabase::fresh().await)
    }

    pub(crate) fn url(&self) -> String {
        match self {
            Self::Sqlite(file) => file.url(),
            Self::Postgres(database) => database.url(),
        }
    }
}

pub(crate) struct World {
    pub(crate) server: Office,
    pub(crate) database: Database,
    /// The directory that is mounted.
    pub(crate) root: PathBuf,
    layout: Layout,
    /// What else the server is told when it starts.
    flags: Vec<String>,
    /// Removes the directory at the end.
    _temporary: Option<TempDir>,
}

pub(crate) fn name(text: &str) -> AgentName {
    text.parse().unwrap()
}

impl World {
    /// A server whose own agents all count for the `*` of the directory's.
    pub(crate) async fn new(database: Database, layout: Layout) -> Self {
        Self::with_flags(database, layout, &["--mount-open"]).await
    }

    /// A server as it is without flags: `*` in the directory means the agents of the directory.
    pub(crate) async fn closed(database: Database, layout: Layout) -> Self {
        Self::with_flags(database, layout, &[]).await
    }

    pub(crate) async fn with_flags(database: Database, layout: Layout, flags: &[&str]) -> Self {
        let temporary = TempDir::new().unwrap();
        let world = Self::at(database, temporary.path(), layout, flags).await;
        Self { _temporary: Some(temporary), ..world }
    }

    /// A server with a directory of the test's own.
    pub(crate) async fn at(database: Database, root: &Path, layout: Layout, flags: &[&str]) -> Self {
        let (root, flags) = (root.to_owned(), flags.iter().map(|flag| flag.to_string()).collect::<Vec<_>>());
        let server = start(&database.url(), &root, layout, &flags).await;
        Self { server, database, root, layout, flags, _temporary: None }
    }

    /// The directory as another process sees it.
    pub(crate) fn directory(&self) -> DirOffice {
        open(&self.root, self.layout)
    }

    /// kill -9, and a server that begins where the other ended.
    pub(crate) async fn restart(self) -> Self {
        self.server.kill().await;
        let server = start(&self.database.url(), &self.root, self.layout, &self.flags).await;
        Self { server, ..self }
    }

    /// The same, with other flags from then on.
    pub(crate) async fn restart_with(self, flags: &[&str]) -> Self {
        Self { flags: flags.iter().map(|flag| flag.to_string()).collect(), ..self }.restart().await
    }

    /// Ends the server politely, and starts one again after something was done in between.
    pub(crate) async fn pause(self, between: impl FnOnce(&Database, &Path)) -> Self {
        self.server.terminate();
        assert!(self.server.ended().await.success());
        between(&self.database, &self.root);
        let server = start(&self.database.url(), &self.root, self.layout, &self.flags).await;
        Self { server, ..self }
    }

    /// The same directory at a server with another database, after something was done to it. Returns the previous
    /// database.
    pub(crate) async fn with_database(self, database: Database, between: impl FnOnce(&Path)) -> (Self, Database) {
        self.server.terminate();
        assert!(self.server.ended().await.success());
        between(&self.root);
        let server = start(&database.url(), &self.root, self.layout, &self.flags).await;
        (
            Self {
                server,
                database,
                root: self.root,
                layout: self.layout,
                flags: self.flags,
                _temporary: self._temporary,
            },
            self.database,
        )
    }

    /// The names of all files in a directory of the directory.
    pub(crate) fn files(&self, under: &str) -> Vec<String> {
        let Ok(entries) = fs_err::read_dir(self.root.join(under)) else { return Vec::new() };
        let names = entries.map(|entry| entry.unwrap().file_name().into_string().unwrap());
        names.filter(|name| name.ends_with(".json")).collect()
    }

    /// A registered agent of the directory.
    pub(crate) async fn resident(&self, agent: &str) -> DirMailbox {
        self.resident_with(agent, Card::default()).await
    }

    pub(crate) async fn resident_with(&self, agent: &str, card: Card) -> DirMailbox {
        let mailbox = self.directory().mailbox(name(agent));
        mailbox.register(card).await.unwrap();
        mailbox
    }

    /// What the directory tells its agents of an agent of the office: its description, if it is listed.
    pub(crate) async fn description(&self, guest: &str) -> Option<String> {
        let listed = self.directory().mailbox(name("looking")).agents().await.unwrap();
        listed.into_iter().find(|agent| agent.name.as_str() == guest).map(|agent| agent.card.description)
    }

    /// Waits until the office knows an agent of the directory.
    pub(crate) async fn known(&self, viewer: &Agent, resident: &str) {
        until(async || self.server.get(viewer, &format!("/agents/{resident}")).await.status == 200).await;
    }

    /// Waits until the directory knows an agent of the office.
    pub(crate) async fn shown(&self, guest: &str) {
        let mailbox = self.directory().mailbox(name("looking"));
        until(async || mailbox.agents().await.unwrap().iter().any(|agent| agent.name.as_str() == guest)).await;
    }

    /// An agent of the office asks to be connected with one of the directory, whose card says yes.
    pub(crate) async fn connect(&self, guest: &Agent, resident: &str) {
        self.known(guest, resident).await;
        let ask = json!({"target_agent_name": resident});
        self.server.post(guest, "/connections/request", ask).await.expect(201);
        until(async || self.status(guest, resident).await == "ACTIVE").await;
    }

    /// How a connection stands, as the agent of the office sees it.
    pub(crate) async fn status(&self, guest: &Agent, resident: &str) -> String {
        let all = self.server.get(guest, "/connections").await.expect(200);
        let connections = all["connections"].as_array().unwrap();
        let found = connections.iter().find(|connection| connection["agent_name"] == resident);
        found.map_or("NONE", |connection| connection["status"].as_str().unwrap()).to_owned()
    }

    pub(crate) async fn send(&self, from: &Agent, to: &str, more: Value) -> Value {
        let mut body = json!({"to": to, "subject": "Plan", "content": "hello"});
        body.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        self.server.post(from, "/messages/send", body).await.expect(201)
    }

    /// Waits for an unread message from this agent, and takes the oldest.
    pub(crate) async fn comes(&self, to: &Agent, from: &str) -> Value {
        let path = format!("/messages?unread=true&from={from}&limit=100");
        let mut found = Value::Null;
        until(async || {
            let page = self.server.get(to, &path).await.expect(200);
            found = page["messages"].as_array().unwrap().last().cloned().unwrap_or_default();
            !found.is_null()
        })
        .await;
        self.server.post(to, "/messages/ack", json!({"message_ids": [found["id"]]})).await.expect(200);
        found
    }

    /// How far a message has come, as its sender is told.
    pub(crate) async fn receipt(&self, from: &Agent, id: &Value) -> String {
        let found = self.server.get(from, &format!("/messages/{}", id.as_str().unwrap())).await.expect(200);
        found["receipts"][0]["state"].as_str().unwrap().to_owned()
    }

    /// How the mount is.
    pub(crate) async fn health(&self) -> Value {
        self.server.call(Method::GET, "/health", None, None).await.expect(200)["mounts"][0].clone()
    }
}

/// Starts a server with this directory mounted.
pub(crate) async fn start(url: &str, root: &Path, layout: Layout, flags: &[String]) -> Office {
    // Makes the layout known to whoever looks.
    open(root, layout).lock_mount().unwrap();
    let mut command = serve_command(url);
    command.arg("--mount").arg(root).args(flags);
    Office::start_with(command).await
}

pub(crate) fn open(root: &Path, layout: Layout) -> DirOffice {
    DirOffice::open(root, DirOptions { layout: Some(layout), ..DirOptions::default() }).unwrap()
}

/// Waits for an unread message in a mailbox of the directory, and takes it.
pub(crate) async fn arrives(mailbox: &DirMailbox) -> Message {
    let mut came = None;
    until(async || {
        came = mailbox.claim(Default::default()).await.unwrap().pop();
        came.is_some()
    })
    .await;
    let came = came.unwrap();
    mailbox.ack(std::slice::from_ref(&came.id)).await.unwrap();
    came
}

/// Waits until something is so.
#[track_caller]
pub(crate) fn until(mut so: impl AsyncFnMut() -> bool) -> impl Future<Output = ()> {
    soon(async move {
        while !so().await {
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    })
}
