//! `amb bridge openclaw`: an OpenClaw agent, through its gateway.

use std::path::Path;
use std::sync::Arc;

use amb_bridge::openclaw::{Gateway, GatewayRoute};
use amb_bridge::{BridgeOptions, Conversations, TaskHandling};

use super::{BridgeArgs, MAX_TURN_SECONDS};
use crate::args::OfficeArgs;
use crate::failure::Failure;
use crate::init::json;
use crate::output::Output;
use crate::verbs::init::places;

/// Where OpenClaw's gateway listens by default.
const DEFAULT_GATEWAY_PORT: u16 = 18789;

#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  OPENCLAW_GATEWAY_TOKEN=... amb --as ben bridge openclaw
  amb --as ben bridge openclaw --session agent:main:main    in your own conversation with it

The token is read from OPENCLAW_GATEWAY_TOKEN; it is gateway.auth.token in openclaw.json.
The route chat needs gateway.http.endpoints.chatCompletions.enabled, and sessions_send needs
sessions_send in gateway.tools.allow. auto takes the first of websocket, chat and sessions_send
that the gateway offers.")]
pub(super) struct OpenClawArgs {
    /// The gateway's interface to use: auto, websocket, chat or sessions_send
    #[arg(long, default_value = "auto", value_parser = route)]
    route: RouteChoice,
    /// The gateway's address; default: this machine, with the port of openclaw.json or else 18789
    #[arg(long, value_name = "URL", env = "OPENCLAW_GATEWAY_URL")]
    gateway_url: Option<String>,
    /// The OpenClaw session for all messages, for example your own, agent:main:main; default: a session for each peer,
    /// such as agent:main:mailbox:ann
    #[arg(long, value_name = "KEY")]
    session: Option<String>,
    /// Use a session for each peer, of the agent in --session
    #[arg(long)]
    session_per_peer: bool,
    /// The timeout of a turn
    #[arg(long, value_name = "SECONDS", default_value_t = 120, value_parser = clap::value_parser!(u64).range(1..=MAX_TURN_SECONDS))]
    turn_timeout: u64,
    #[command(flatten)]
    common: BridgeArgs,
}

/// A route, or `None` for the first that the gateway offers.
#[derive(Debug, Clone, Copy)]
struct RouteChoice(Option<GatewayRoute>);

fn route(text: &str) -> Result<RouteChoice, String> {
    match text {
        "auto" => Ok(RouteChoice(None)),
        _ => text.parse().map(|route| RouteChoice(Some(route))),
    }
}

impl OpenClawArgs {
    pub(super) async fn run(self, office: &OfficeArgs, output: Output) -> Result<(), Failure> {
        // Where `amb init openclaw` writes, too.
        let config = places()?.openclaw_config;
        let token = std::env::var("OPENCLAW_GATEWAY_TOKEN").unwrap_or_default();
        if token.is_empty() {
            output.note(format!(
                "OPENCLAW_GATEWAY_TOKEN is not set; set it to gateway.auth.token of {}, unless the gateway needs no token",
                config.display()
            ));
        }
        let url = match self.gateway_url {
            Some(url) => url,
            None => format!("http://127.0.0.1:{}", gateway_port(&config, output).unwrap_or(DEFAULT_GATEWAY_PORT)),
        };
        let gateway = Gateway::new(&url, token).map_err(Failure::usage)?;
        let named = self.session.as_deref().unwrap_or("agent:main:main");
        let agent = named.split(':').nth(1).filter(|agent| !agent.is_empty()).unwrap_or("main");
        let conversations = match &self.session {
            Some(session) if !self.session_per_peer => Conversations::One(session.clone()),
            _ => Conversations::Peer(format!("agent:{agent}:mailbox:")),
        };
        let options = BridgeOptions {
            conversations,
            // Connection requests go to the session that the person reads.
            requests: Some(named.to_owned()),
            ..self.common.options(self.turn_timeout, TaskHandling::Ask)
        };
        let bridge = self.common.open(office).await?;
        bridge.run(Arc::new(gateway.route(self.route.0)), options, output).await
    }
}

/// The port in the gateway's configuration.
fn gateway_port(config: &Path, output: Output) -> Option<u16> {
    let found = fs_err::read_to_string(config).ok().map(|text| json::value_at(&text, &["gateway", "port"]));
    match found.transpose() {
        Ok(value) => value.flatten().and_then(|port| u16::try_from(port.as_u64()?).ok()),
        Err(error) => {
            output.note(format!("{}: {error:#}; the bridge uses port {DEFAULT_GATEWAY_PORT}", config.display()));
            None
        }
    }
}
