//! A server with a directory mounted, and the agents on both sides of it.

use std::path::Path;
use std::time::Duration;

use amb_core::{AgentName, Card, Message, Office as _};
use amb_dir::{DirOffice, DirOptions, DirSeat, Layout};
use amb_store::testing::{PostgresDatabase, SqliteFile};
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
    pub(crate) root: TempDir,
    pub(crate) layout: Layout,
    database: Database,
}

pub(crate) fn name(text: &str) -> AgentName {
    text.parse().unwrap()
}

impl World {
    pub(crate) async fn new(database: Database, layout: Layout) -> Self {
        let root = TempDir::new().unwrap();
        let server = start(&database.url(), root.path(), layout).await;
        Self { server, root, layout, database }
    }

    /// The directory as another process sees it.
    pub(crate) fn directory(&self) -> DirOffice {
        open(self.root.path(), self.layout)
    }

    /// kill -9, and a server that begins where the other ended.
    pub(crate) async fn restart(self) -> Self {
        let Self { server, root, layout, database } = self;
        server.kill().await;
        let server = start(&database.url(), root.path(), layout).await;
        Self { server, root, layout, database }
    }

    /// A registered agent of the directory.
    pub(crate) async fn resident(&self, agent: &str) -> DirSeat {
        self.resident_with(agent, Card::default()).await
    }

    pub(crate) async fn resident_with(&self, agent: &str, card: Card) -> DirSeat {
        let seat = self.directory().seat(name(agent));
        seat.register(card).await.unwrap();
        seat
    }

    /// Waits until the office knows an agent of the directory.
    pub(crate) async fn known(&self, viewer: &Agent, resident: &str) {
        until(async || self.server.get(viewer, &format!("/agents/{resident}")).await.status == 200).await;
    }

    /// Waits until the directory knows an agent of the office.
    pub(crate) async fn shown(&self, guest: &str) {
        let seat = self.directory().seat(name("looking"));
        until(async || seat.agents().await.unwrap().iter().any(|agent| agent.name.as_str() == guest)).await;
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

    /// Waits for an unread message from this agent, and takes it.
    pub(crate) async fn comes(&self, to: &Agent, from: &str) -> Value {
        let path = format!("/messages?unread=true&from={from}&limit=1");
        let mut found = Value::Null;
        until(async || {
            let page = self.server.get(to, &path).await.expect(200);
            found = page["messages"][0].clone();
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

async fn start(url: &str, root: &Path, layout: Layout) -> Office {
    // Makes the layout known to whoever looks.
    open(root, layout).lock_mount().unwrap();
    let mut command = serve_command(url);
    command.arg("--mount").arg(root);
    Office::start_with(command).await
}

pub(crate) fn open(root: &Path, layout: Layout) -> DirOffice {
    DirOffice::open(root, DirOptions { layout: Some(layout), ..DirOptions::default() }).unwrap()
}

/// Waits for an unread message in a mailbox of the directory, and takes it.
pub(crate) async fn arrives(seat: &DirSeat) -> Message {
    let mut came = None;
    until(async || {
        came = seat.claim(Default::default()).await.unwrap().pop();
        came.is_some()
    })
    .await;
    let came = came.unwrap();
    seat.ack(std::slice::from_ref(&came.id)).await.unwrap();
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
