//! `amb mcp`: the door for models.

use std::net::SocketAddr;

use amb_mcp::{Options, serve_http, serve_stdio};
use anyhow::Context;
use tokio::net::TcpListener;

use crate::args::OfficeArgs;
use crate::failure::Failure;
use crate::output::Output;
use crate::verbs::watch::interrupted;

/// Serve your mailbox to a model as MCP tools, on stdin and stdout
///
/// With MAILBOX_SERVER_URL and MAILBOX_API_KEY in its environment it needs no flag. The process holds no mail: it may be
/// killed at any time. It starts while the server is down, too: its tools say so until the server is up. A directory that
/// is not there yet is made, with the agent in it.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  amb --dir ~/.nanobot/mailboxes --as coder mcp
  MAILBOX_SERVER_URL=http://127.0.0.1:8000 MAILBOX_API_KEY=amb_... amb mcp
  amb --as coder mcp --http 127.0.0.1:8901          at http://127.0.0.1:8901/mcp")]
pub(crate) struct Mcp {
    /// Serve streamable HTTP on this loopback address instead
    #[arg(long, value_name = "ADDR")]
    http: Option<SocketAddr>,
    /// With --http: a web origin that may call, besides the address itself; repeat for more
    #[arg(long = "allow-origin", value_name = "ORIGIN", requires = "http")]
    allowed_origins: Vec<String>,
}

impl Mcp {
    pub(crate) async fn run(self, office: &OfficeArgs, output: Output) -> Result<(), Failure> {
        let seat = office.seat()?;
        let options = Options { allowed_origins: self.allowed_origins, ..Options::default() };
        let Some(address) = self.http else {
            return Ok(serve_stdio(seat, options).await.context("the client")?);
        };
        let listener = TcpListener::bind(address).await.with_context(|| format!("cannot listen on {address}"))?;
        output.say(format!("listening on http://{}/mcp", listener.local_addr()?))?;
        let shutdown = async {
            if let Err(error) = interrupted().await {
                tracing::error!(%error, "cannot listen for signals; stopping");
            }
        };
        Ok(serve_http(listener, seat, options, shutdown).await.context("the listener")?)
    }
}
