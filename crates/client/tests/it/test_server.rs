//! A server of a test's own, which can be stopped and started again on the same store and port.

use std::collections::HashMap;
use std::net::SocketAddr;
use std::sync::Arc;

use amb_client::{Client, ExposeSecret, SecretString, ServerUrl};
use amb_core::doc::RegisterBody;
use amb_core::{AgentName, Card, Code, Mailbox};
use amb_server::{Config, serve};
use amb_testing::SqliteFile;
use amb_testing::office::TestOffice;
use async_trait::async_trait;
use tokio::net::{TcpListener, TcpSocket};
use tokio::sync::Mutex;
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;

pub(crate) struct Server {
    database: SqliteFile,
    address: SocketAddr,
    running: Mutex<Option<(CancellationToken, JoinHandle<()>)>>,
    keys: Mutex<HashMap<AgentName, String>>,
}

impl Server {
    pub(crate) async fn fresh() -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let server = Self {
            database: SqliteFile::fresh(),
            address: listener.local_addr().unwrap(),
            running: Mutex::default(),
            keys: Mutex::default(),
        };
        server.open(listener).await;
        server
    }

    async fn open(&self, listener: TcpListener) {
        let store = amb_store::open(&self.database.url()).await.unwrap();
        let closing = CancellationToken::new();
        let ends = closing.clone().cancelled_owned();
        let config = Config { rate_limits: None, ..Config::default() };
        let task = tokio::spawn(async move {
            serve(listener, Arc::clone(&store), config, ends).await.unwrap();
            store.close().await;
        });
        *self.running.lock().await = Some((closing, task));
    }

    /// Stops the server, which breaks all connections.
    pub(crate) async fn stop(&self) {
        let (closing, task) = self.running.lock().await.take().unwrap();
        closing.cancel();
        task.await.unwrap();
    }

    /// Starts it again on the same port.
    pub(crate) async fn start(&self) {
        let socket = TcpSocket::new_v4().unwrap();
        socket.set_reuseaddr(true).unwrap();
        socket.bind(self.address).unwrap();
        self.open(socket.listen(64).unwrap()).await;
    }

    pub(crate) fn url(&self) -> ServerUrl {
        self.address.to_string().parse().unwrap()
    }

    pub(crate) async fn client(&self, name: &AgentName, card: Card) -> Client {
        let mut keys = self.keys.lock().await;
        let key = match keys.get(name) {
            Some(key) => key.clone(),
            None => {
                let new = amb_client::register(&self.url(), &RegisterBody::new(name, card)).await.unwrap();
                keys.insert(name.clone(), new.api_key.expose_secret().to_owned());
                new.api_key.expose_secret().to_owned()
            }
        };
        Client::open(self.url(), SecretString::from(key)).await.unwrap()
    }
}

#[async_trait]
impl TestOffice for Server {
    async fn mailbox(&self, name: &AgentName, card: Card) -> Arc<dyn Mailbox> {
        Arc::new(self.client(name, card).await)
    }

    async fn acquaint(&self, a: &dyn Mailbox, b: &dyn Mailbox) {
        match a.connect(b.me(), None).await {
            Ok(requested) => {
                b.approve(&requested.verification_code).await.unwrap();
            }
            Err(error) => assert_eq!(error.code(), Code::Conflict, "{error}"),
        }
    }
}
