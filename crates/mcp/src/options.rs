//! The options of the server, and why serving can fail.

use std::sync::Arc;

use crate::peers::PeerNetwork;
use crate::wake::WakeOptions;

/// The options of the server. The default suits a client that was configured with one line.
#[derive(Clone)]
pub struct McpOptions {
    /// Sends Claude Code's channel notification for new messages, on stdio. Other clients do not get it.
    pub channel: bool,
    /// Sends heartbeats for the agent while a client is connected on stdio.
    pub heartbeat: bool,
    /// Wakes the client when messages wait, on stdio, by one of these interfaces.
    pub wake: Option<WakeOptions>,
    /// Live goals for `list_peers` and `send_to_peer`, and their messages for `mailbox_check` and `mailbox_wait`;
    /// without it these tools work on the office's agents and send durable messages.
    pub peers: Option<Arc<dyn PeerNetwork>>,
    /// Origins allowed over HTTP besides the listener's own, each with scheme and port: `https://app.example:443`.
    pub allowed_origins: Vec<String>,
    /// The server's name in the handshake.
    pub server_name: String,
    /// The server's version in the handshake.
    pub server_version: String,
}

impl Default for McpOptions {
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

/// Why serving ended early.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ServeError {
    /// The client violated the handshake.
    #[error("the MCP client did not begin as the protocol says")]
    Handshake(#[source] Box<rmcp::service::ServerInitializeError>),
    /// The task that serves the client failed.
    #[error("serving the MCP client failed")]
    Task(#[source] tokio::task::JoinError),
    /// The listener is reachable from other machines, and this server has no keys.
    #[error("{0} is not a loopback address; MCP over HTTP has no keys of its own, so listen on 127.0.0.1 or [::1]")]
    NotLoopback(std::net::SocketAddr),
    /// The listener failed.
    #[error("the HTTP listener failed")]
    Listener(#[source] std::io::Error),
}
