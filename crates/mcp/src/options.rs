//! What a caller may choose, and what can go wrong while serving.

use std::fmt;
use std::sync::Arc;

use crate::peers::LivePeers;
use crate::wake::WakeOptions;

/// How the door behaves. The default suits a client that was configured with one line.
#[derive(Clone)]
pub struct Options {
    /// Rings Claude Code's channel when mail comes in, on stdio. Other clients, which do not know it, are not told.
    pub channel: bool,
    /// Tells the office every few seconds that the agent is alive while a client is connected on stdio.
    pub heartbeat: bool,
    /// Wakes the client when mail waits, on stdio, by whichever of these doors leads to it.
    pub wake: Option<WakeOptions>,
    /// Live goals for `list_peers` and `send_to_peer`, and what they say for `mailbox_check` and `mailbox_wait`; without it
    /// these tools speak of the office's agents and leave durable mail.
    pub peers: Option<Arc<dyn LivePeers>>,
    /// Origins allowed over HTTP besides the listener's own, each with scheme and port: `https://app.example:443`.
    pub allowed_origins: Vec<String>,
    /// The name under which the server presents itself.
    pub server_name: String,
    /// The version under which the server presents itself.
    pub server_version: String,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            channel: true,
            heartbeat: true,
            wake: None,
            peers: None,
            allowed_origins: Vec::new(),
            server_name: "agent-mailbox".into(),
            server_version: env!("CARGO_PKG_VERSION").into(),
        }
    }
}

impl fmt::Debug for Options {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Options")
            .field("channel", &self.channel)
            .field("heartbeat", &self.heartbeat)
            .field("wake", &self.wake)
            .field("peers", &self.peers.is_some())
            .field("allowed_origins", &self.allowed_origins)
            .field("server_name", &self.server_name)
            .field("server_version", &self.server_version)
            .finish()
    }
}

/// Why serving ended before it should.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ServeError {
    /// The client did not open the conversation as the protocol says.
    #[error("the MCP client did not begin as the protocol says")]
    Handshake(#[source] Box<rmcp::service::ServerInitializeError>),
    /// The task that serves the client failed.
    #[error("serving the MCP client failed")]
    Task(#[source] tokio::task::JoinError),
    /// The listener is reachable from other machines, and this door has no keys.
    #[error("{0} is not a loopback address; MCP over HTTP has no keys of its own, so listen on 127.0.0.1 or [::1]")]
    NotLoopback(std::net::SocketAddr),
    /// The listener failed.
    #[error("the HTTP listener failed")]
    Listener(#[source] std::io::Error),
}
