//! A server on a free port, with helpers for common requests.

use std::ops::Deref;
use std::sync::Arc;
use std::time::Duration;

use amb_server::{Config, Listeners, serve};
use amb_store::Store;
use amb_testing::http::HttpOffice;
pub(crate) use amb_testing::http::{TestAgent as Agent, TestAnswer as Answer, soon};
use amb_testing::{PostgresDatabase, SqliteFile};
use futures_util::{SinkExt, StreamExt};
use serde_json::{Value, json};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::oneshot;
use tokio::task::JoinHandle;
use tokio_tungstenite::tungstenite::Message;
use tokio_tungstenite::tungstenite::protocol::CloseFrame;
use tokio_tungstenite::{MaybeTlsStream, WebSocketStream};

pub(crate) struct TestServer {
    office: HttpOffice,
    pub(crate) metrics: String,
    pub(crate) store: Arc<dyn Store>,
    closing: Option<oneshot::Sender<()>>,
    serving: Option<JoinHandle<()>>,
    /// Removed when the test ends.
    database: Database,
}

/// The test's own database.
enum Database {
    Sqlite {
        _file: SqliteFile,
    },
    Postgres {
        database: PostgresDatabase,
    },
    /// That of another server, which must outlive this one.
    Shared,
}

impl Deref for TestServer {
    type Target = HttpOffice;

    fn deref(&self) -> &HttpOffice {
        &self.office
    }
}

impl TestServer {
    pub(crate) async fn sqlite() -> Self {
        Self::sqlite_with(Config { rate_limits: None, ..Config::default() }).await
    }

    pub(crate) async fn sqlite_with(config: Config) -> Self {
        let file = SqliteFile::fresh();
        let store = amb_store::open(&file.url()).await.unwrap();
        Self::open(store, Database::Sqlite { _file: file }, config).await
    }

    pub(crate) async fn postgres() -> Self {
        Self::postgres_with(Config { rate_limits: None, ..Config::default() }).await
    }

    pub(crate) async fn postgres_with(config: Config) -> Self {
        let database = PostgresDatabase::fresh().await;
        let store = amb_store::open(&database.url()).await.unwrap();
        Self::open(store, Database::Postgres { database }, config).await
    }

    /// Another office on the same database, with connections of its own, as another process would have.
    pub(crate) async fn replica(&self, config: Config) -> Self {
        let Database::Postgres { database } = &self.database else { panic!("only PostgreSQL can be shared") };
        Self::open(amb_store::open(&database.url()).await.unwrap(), Database::Shared, config).await
    }

    /// A handle to the same office, which must not outlive the first.
    pub(crate) fn same_office(&self) -> Self {
        Self {
            office: self.office.clone(),
            metrics: self.metrics.clone(),
            store: self.store.clone(),
            closing: None,
            serving: None,
            database: Database::Shared,
        }
    }

    /// A connection to the PostgreSQL database.
    pub(crate) async fn connection(&self) -> amb_testing::PostgresClient {
        let Database::Postgres { database } = &self.database else { panic!("only PostgreSQL has connections") };
        database.connection().await
    }

    /// Waits until the metrics of this server contain this text.
    pub(crate) async fn wait_for_metric(&self, figure: &str) {
        let look = async || {
            let text = self.http.get(format!("http://{}/metrics", self.metrics)).send().await.unwrap();
            text.text().await.unwrap().contains(figure)
        };
        soon(async {
            while !look().await {
                tokio::time::sleep(Duration::from_millis(20)).await;
            }
        })
        .await;
    }

    async fn open(store: Arc<dyn Store>, database: Database, config: Config) -> Self {
        let office = HttpOffice::at("");
        let mut server = Self { office, metrics: String::new(), store, closing: None, serving: None, database };
        server.start(config).await;
        server
    }

    /// Starts the office over the same store, on a new port.
    pub(crate) async fn start(&mut self, config: Config) {
        self.start_on("127.0.0.1:0", config).await;
    }

    /// Starts the office on an address that is reachable by loopback.
    pub(crate) async fn start_on(&mut self, address: &str, config: Config) {
        let office = TcpListener::bind(address).await.unwrap();
        let metrics = TcpListener::bind("127.0.0.1:0").await.unwrap();
        // A new client without pooled connections to an office that closed: on the same port, a request on one would
        // fail.
        self.office = HttpOffice::at(format!("127.0.0.1:{}", office.local_addr().unwrap().port()));
        self.metrics = metrics.local_addr().unwrap().to_string();
        let (closing, closed) = oneshot::channel::<()>();
        let listeners = Listeners { office, metrics: Some(metrics) };
        let store = self.store.clone();
        self.closing = Some(closing);
        self.serving = Some(tokio::spawn(async move {
            serve(listeners, store, config, async { drop(closed.await) }).await.unwrap();
        }));
    }

    /// Shuts the office down.
    pub(crate) async fn close(&mut self) {
        drop(self.closing.take());
        soon(self.serving.take().unwrap()).await.unwrap();
    }

    /// Begins to shut the office down. The handle resolves when it has.
    pub(crate) fn begin_closing(&mut self) -> JoinHandle<()> {
        drop(self.closing.take());
        self.serving.take().unwrap()
    }

    /// Two connected agents.
    pub(crate) async fn pair(&self) -> (Agent, Agent) {
        let (alice, bob) = (self.register("alice-agent").await, self.register("bob-agent").await);
        self.connect(&alice, &bob).await;
        (alice, bob)
    }

    pub(crate) async fn send(&self, from: &Agent, to: &Agent, subject: &str, content: &str) -> Value {
        let body = json!({"to": to.name, "subject": subject, "content": content});
        self.post(from, "/messages/send", body).await.expect(201)
    }

    pub(crate) async fn socket(&self, query: &str) -> Socket {
        let (socket, _) =
            soon(tokio_tungstenite::connect_async(format!("ws://{}/ws{query}", self.host))).await.unwrap();
        Socket(socket)
    }

    /// A socket of this agent that gets new events.
    pub(crate) async fn live(&self, agent: &Agent) -> Socket {
        let mut socket = self.socket(&format!("?api_key={}", agent.key)).await;
        // The pong comes from the socket's loop: after it, the socket is subscribed and has its cursor.
        socket.send_json(json!({"type": "ping"})).await;
        assert_eq!(socket.receive().await, json!({"type": "pong"}));
        socket
    }

    /// A socket that gets new events with receipts, because it has a cursor.
    pub(crate) async fn live_with_receipts(&self, agent: &Agent) -> Socket {
        let head = self.get(agent, "/events").await.expect(200)["cursor"].as_u64().unwrap();
        self.since(agent, head).await
    }

    pub(crate) async fn since(&self, agent: &Agent, cursor: u64) -> Socket {
        self.socket(&format!("?api_key={}&since={cursor}", agent.key)).await
    }
}

pub(crate) struct Socket(pub(crate) WebSocketStream<MaybeTlsStream<TcpStream>>);

impl Socket {
    pub(crate) async fn send_json(&mut self, what: Value) {
        self.try_send(what).await.unwrap();
    }

    pub(crate) async fn try_send(&mut self, what: Value) -> Result<(), tokio_tungstenite::tungstenite::Error> {
        soon(self.0.send(Message::text(what.to_string()))).await
    }

    /// Receives the next text message, as JSON.
    pub(crate) async fn receive(&mut self) -> Value {
        loop {
            match soon(self.0.next()).await.expect("the socket ended").unwrap() {
                Message::Text(text) => return serde_json::from_str(&text).unwrap(),
                Message::Ping(_) | Message::Pong(_) => {}
                other => panic!("expected a text, not {other:?}"),
            }
        }
    }

    /// Receives the next text message, or null if the socket is closed first.
    pub(crate) async fn receive_one(&mut self) -> Value {
        loop {
            match soon(self.0.next()).await {
                Some(Ok(Message::Text(text))) => return serde_json::from_str(&text).unwrap(),
                Some(Ok(Message::Ping(_) | Message::Pong(_))) => {}
                _ => return Value::Null,
            }
        }
    }

    /// Receives all text messages until the close frame, and the close frame.
    pub(crate) async fn receive_until_close(&mut self) -> (Vec<Value>, Option<CloseFrame>) {
        let mut texts = Vec::new();
        loop {
            match soon(self.0.next()).await {
                Some(Ok(Message::Text(text))) => texts.push(serde_json::from_str(&text).unwrap()),
                Some(Ok(Message::Close(frame))) => {
                    // Lets the library answer the close frame.
                    let _ = soon(self.0.next()).await;
                    return (texts, frame);
                }
                Some(Ok(_)) => {}
                None | Some(Err(_)) => return (texts, None),
            }
        }
    }

    /// Receives the close frame, which must be the next message.
    pub(crate) async fn closed(&mut self) -> (u16, String) {
        let (texts, frame) = self.receive_until_close().await;
        assert!(texts.is_empty(), "{texts:?}");
        let frame = frame.expect("a close with a reason");
        (frame.code.into(), frame.reason.to_string())
    }
}
