//! The tools: one file each, or two that belong together. This module lists and calls them.

mod check;
mod connect;
mod peers;
mod post;
mod read;
mod send;
mod task;
mod transcript;
mod wait;

use std::sync::{Arc, LazyLock};
use std::time::Duration;

use amb_core::{Backoff, Mailbox, OfficeError};
use rmcp::model::{JsonObject, MetaObject, Tool, ToolAnnotations};
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

pub(crate) use read::cut_to_fit;
pub(crate) use task::TaskShown;
pub(crate) use wait::office_timeout;

use crate::answer::ToolAnswer;
use crate::budget::TextBudget;
use crate::client_memory::ClientMemory;
use crate::peer_messages::TakenPeerMessages;
use crate::peers::PeerNetwork;

/// The delays between attempts to reach the office: short, since a model waits.
pub(crate) fn backoff() -> Backoff {
    Backoff::new(Duration::from_millis(250), Duration::from_secs(4))
}

/// The context of one tool call.
pub(crate) struct CallContext {
    pub(crate) office: Arc<dyn Mailbox>,
    pub(crate) seen: Arc<ClientMemory>,
    pub(crate) peers: Option<Arc<dyn PeerNetwork>>,
    /// The client cancelled the call.
    pub(crate) cancelled: CancellationToken,
    /// The client is gone, or the server closes.
    pub(crate) closing: CancellationToken,
    /// When the call arrived.
    pub(crate) began: Instant,
}

impl CallContext {
    /// Takes the messages of live peers. So that none is lost, the caller shows them without awaiting anything in
    /// between, and a cancelled call takes none.
    fn take_peer_messages(&self, budget: &mut TextBudget) -> TakenPeerMessages {
        match &self.peers {
            Some(live) if !self.cancelled.is_cancelled() && !self.closing.is_cancelled() => {
                let messages = live.peer_messages().take(budget);
                let dropped = live.peer_messages().take_dropped();
                TakenPeerMessages { messages, left: live.peer_messages().len(), dropped }
            }
            _ => TakenPeerMessages::default(),
        }
    }
}

/// The side effects of a tool, which clients check before they let a model call it.
#[derive(Clone, Copy)]
enum Effect {
    /// Changes nothing.
    Reads,
    /// Adds something; calling twice adds twice.
    Adds,
    /// Changes something of the caller's own; idempotent.
    Marks,
}

fn tool(name: &'static str, description: &'static str, effect: Effect, input: JsonObject, output: JsonObject) -> Tool {
    let hints = ToolAnnotations::new();
    let hints = match effect {
        Effect::Reads => hints.read_only(true),
        Effect::Adds => hints.read_only(false).destructive(false),
        Effect::Marks => hints.read_only(false).destructive(false).idempotent(true),
    };
    Tool::new(name, description, input).with_raw_output_schema(Arc::new(output)).with_annotations(hints)
}

/// Claude Code first shows a model only the names of tools; this mark loads the schema from the start, so that a woken
/// model needs no search.
fn always_loaded(tool: Tool) -> Tool {
    tool.with_meta(MetaObject([("anthropic/alwaysLoad".to_owned(), true.into())].into_iter().collect()))
}

static TOOLS: LazyLock<Vec<Tool>> = LazyLock::new(|| {
    vec![
        always_loaded(check::tool()),
        always_loaded(read::tool()),
        always_loaded(send::tool()),
        wait::tool(),
        task::tool(),
        connect::connect_tool(),
        connect::approve_tool(),
        peers::list_tool(),
        peers::send_tool(),
        transcript::recent_tool(),
        transcript::append_tool(),
    ]
});

pub(crate) fn all() -> Vec<Tool> {
    TOOLS.clone()
}

pub(crate) fn named(name: &str) -> Option<Tool> {
    TOOLS.iter().find(|tool| tool.name == name).cloned()
}

/// How long a call retries to reach the office, and the time by which it must return, whatever the office does.
pub(crate) fn limits(name: &str, began: Instant, arguments: Option<&JsonObject>) -> (Duration, Instant) {
    if name != "mailbox_wait" {
        // Clients abandon a call after 60 s.
        return (Duration::ZERO, began + Duration::from_secs(55));
    }
    // Invalid arguments are reported by the call itself.
    let timeout = wait::timeout(arguments).unwrap_or_default();
    (timeout, wait::latest(began, timeout))
}

/// Calls a tool; `None` when there is none of that name.
pub(crate) async fn call(
    call: &CallContext,
    name: &str,
    arguments: Option<JsonObject>,
) -> Option<Result<ToolAnswer, OfficeError>> {
    Some(match name {
        "mailbox_check" => check::call(call, arguments).await,
        "mailbox_read" => read::call(call, arguments).await,
        "mailbox_send" => send::call(call, arguments).await,
        "mailbox_wait" => wait::call(call, arguments).await,
        "mailbox_task" => task::call(call, arguments).await,
        "mailbox_connect" => connect::connect(call, arguments).await,
        "mailbox_approve" => connect::approve(call, arguments).await,
        "list_peers" => peers::show_all(call, arguments).await,
        "send_to_peer" => peers::send(call, arguments).await,
        "transcript_recent" => transcript::recent(call, arguments).await,
        "transcript_append" => transcript::append(call, arguments).await,
        _ => return None,
    })
}
