//! `amb mcp`: the mailbox as MCP tools.

mod live;

use std::net::SocketAddr;
use std::sync::Arc;

use amb_mcp::{LazyMailbox, McpOptions, PeerNetwork, ServeError, WakeOptions, serve_http, serve_stdio};
use anyhow::Context;
use tokio::net::TcpListener;

use crate::archiving::Archiving;
use crate::args::OfficeArgs;
use crate::failure::Failure;
use crate::nats::{EnvelopeArgs, NatsArgs};
use crate::output::Output;
use crate::signals::shutdown;
use crate::verbs::peers::Delegates;
use crate::waking::WakeArgs;

/// Run an MCP server with your mailbox as tools, on stdin and stdout
///
/// If MAILBOX_SERVER_URL and MAILBOX_API_KEY are set, it needs no flags. The process stores no mail and can be killed
/// at any time. It also starts while the office is unreachable; its tools return an error until the office is back. A
/// directory that does not exist is created, with the agent in it.
///
/// On stdio it wakes its client when mail arrives: Claude Code through the inbox socket of its session, Codex through
/// `codex queue`, Qwen Code through its socket. A wake-up contains the number of unread messages and their senders,
/// never their text. `amb wake test` checks whether a client can be woken; --no-wake disables wake-ups.
///
/// With --nats-url the agent is a live peer while this process runs: list_peers lists the other live peers,
/// send_to_peer sends to them immediately, and mailbox_wait returns their messages. Agents that are not running get
/// mail instead.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  amb --dir ~/.nanobot/mailboxes --as coder mcp
  MAILBOX_SERVER_URL=http://127.0.0.1:8000 MAILBOX_API_KEY=amb_... amb mcp
  amb --as coder mcp --http 127.0.0.1:8901          serve at http://127.0.0.1:8901/mcp
  amb --as coder mcp --nats-url nats://127.0.0.1:4222    as a live peer")]
pub(crate) struct McpCommand {
    /// Serve streamable HTTP on this loopback address and port instead of stdio
    #[arg(long, value_name = "ADDR")]
    http: Option<SocketAddr>,
    /// With --http: web origin that may send requests, in addition to the address itself (repeatable)
    #[arg(long = "allow-origin", value_name = "ORIGIN", requires = "http")]
    allowed_origins: Vec<String>,
    #[command(flatten)]
    wake: WakeArgs,
    #[command(flatten)]
    archiving: Archiving,
    #[command(flatten)]
    nats: NatsArgs,
    #[command(flatten)]
    envelope: EnvelopeArgs,
    #[command(flatten)]
    delegates: Delegates,
}

impl McpCommand {
    pub(crate) async fn run(self, office: &OfficeArgs, output: Output) -> Result<(), Failure> {
        let mailbox = office.mailbox()?;
        let _archiving = self.archiving.start(office)?;
        let live = match self.nats.is_named() {
            true => {
                let options = self.envelope.apply(self.nats.options()?);
                Some(live::Live::join(mailbox.clone(), options, self.delegates.clone().allowed()))
            }
            false => None,
        };
        let wake = self.wake.options(office)?;
        let served = self.serve(mailbox, live.clone(), wake, output).await;
        if let Some(live) = live {
            live.leave().await;
        }
        served
    }

    async fn serve(
        self,
        mailbox: LazyMailbox,
        live: Option<Arc<live::Live>>,
        wake: Option<WakeOptions>,
        output: Output,
    ) -> Result<(), Failure> {
        let peers = live.map(|live| live as Arc<dyn PeerNetwork>);
        let options = McpOptions { allowed_origins: self.allowed_origins, peers, wake, ..McpOptions::default() };
        let Some(address) = self.http else {
            return Ok(serve_stdio(mailbox, options).await.context("the client")?);
        };
        if !address.ip().is_loopback() {
            return Err(Failure::usage(ServeError::NotLoopback(address).to_string()));
        }
        let listener = TcpListener::bind(address).await.with_context(|| format!("cannot listen on {address}"))?;
        output.say(format!("listening on http://{}/mcp", listener.local_addr()?))?;
        Ok(serve_http(listener, mailbox, options, shutdown()).await.context("the listener")?)
    }
}
