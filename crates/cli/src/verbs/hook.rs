//! `amb hook`: run by a client's hooks between two steps.

mod shape;

use std::collections::HashSet;
use std::io::Read;
use std::time::Duration;

use amb_core::{Mailbox, MessageId, Timestamp};
use amb_wake::{PREFIX, SessionKey, SpentCache, Summary, WakeDirectory};
use serde_json::Value;

use self::shape::{HookClient, HookEvent};
use crate::args::{OfficeArgs, value_name};
use crate::failure::Failure;
use crate::output::Output;
use crate::waking;

/// The timeout of the whole hook. An office that is down must not delay a client.
const TIMEOUT: Duration = Duration::from_millis(800);
/// The most bytes that are read of a client's input, which may contain long results of tools.
const MAX_INPUT: u64 = 16 * 1024 * 1024;

/// Notify a coding agent of new mail from its hooks: JSON in, JSON out
///
/// Prints the number of unread messages and their senders, never their text, once for each message; prints nothing if
/// there is no new mail. With `stop` the client continues instead of ending its turn, only if there is mail that it was
/// not notified of, and never twice in a row. If the office is unreachable, it prints nothing and exits with 0.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  echo '{\"session_id\":\"s\",\"hook_event_name\":\"PostToolUse\"}' | amb --as ben hook claude post-tool
  in the settings of Claude Code:  {\"hooks\":{\"Stop\":[{\"hooks\":[{\"type\":\"command\",\"command\":\"amb --as ben hook claude stop\"}]}]}}")]
pub(crate) struct HookCommand {
    /// Client that runs the hook
    #[arg(value_enum)]
    client: HookClient,
    /// Event of the client that triggers the hook
    #[arg(value_enum)]
    event: HookEvent,
}

impl HookCommand {
    pub(crate) async fn run(self, office: &OfficeArgs, output: Output) -> Result<(), Failure> {
        // A hook that fails disturbs its client, so errors are only logged.
        match tokio::time::timeout(TIMEOUT, self.answer(office)).await {
            Ok(Ok(Some(answer))) => output.say(answer.to_string())?,
            Ok(Ok(None)) => {}
            Ok(Err(error)) => tracing::debug!(?error, "the hook prints nothing"),
            Err(_) => tracing::debug!("the hook prints nothing: timeout"),
        }
        Ok(())
    }

    /// The output for the client, if there is any.
    async fn answer(&self, office: &OfficeArgs) -> Result<Option<Value>, Failure> {
        let input = tokio::task::spawn_blocking(read_input).await.unwrap_or(Value::Null);
        if self.event == HookEvent::Stop && shape::is_repeated_stop(&input) {
            return Ok(None);
        }
        let mailbox = office.open().await?;
        let place = waking::directory(office, mailbox.me())?;
        // `amb mcp` knows the client under the same name.
        let key = SessionKey { client: value_name(self.client), session: self.client.session(&input) };
        if self.event == HookEvent::Prompt && is_from_user(&input) {
            place.change_hooks(&key, |memory| memory.user_turn_at = Some(Timestamp::now()))?;
        }
        if !self.client.passes_on(self.event) {
            return Ok(None);
        }
        // At the start of a session nothing is recorded as shown: it starts no turn, and a session that is started
        // again has lost its context.
        let is_start = self.event == HookEvent::SessionStart;
        if is_start {
            place.change_hooks(&key, |memory| memory.shown.clear())?;
        }
        let summary = unseen(&*mailbox, &place, &key, !is_start).await?;
        Ok(summary.map(|summary| self.client.answer(self.event, &input, &summary)))
    }
}

fn read_input() -> Value {
    let mut text = String::new();
    let read = std::io::stdin().lock().take(MAX_INPUT).read_to_string(&mut text);
    read.ok().and_then(|_| serde_json::from_str(&text).ok()).unwrap_or(Value::Null)
}

/// Whether a prompt was typed by the user and is not a wake-up.
fn is_from_user(input: &Value) -> bool {
    let prompt = input["prompt"].as_str().or_else(|| input["user_prompt"].as_str());
    prompt.is_some_and(|prompt| !prompt.contains(PREFIX))
}

/// The messages that this session was not shown yet, recorded as shown if `record`. Messages that a bridge or another
/// consumer of this agent has claimed are left out.
async fn unseen(
    mailbox: &dyn Mailbox,
    place: &WakeDirectory,
    key: &SessionKey,
    record: bool,
) -> Result<Option<Summary>, Failure> {
    let inbox = mailbox.inbox(true).await?;
    // The messages that this session was shown; for a client whose sessions have no ledger, those that its `amb mcp`
    // has shown.
    let own = place.ledger(key)?;
    let shown: HashSet<MessageId> = match own.process {
        Some(_) => own.shown.into_iter().collect(),
        None => place.sibling_state()?.shown,
    };
    let mut fresh =
        amb_wake::unread(mailbox, &inbox, &mut SpentCache::default(), |mail| shown.contains(&mail.id)).await?;
    amb_wake::leave_out_held(mailbox, &mut fresh).await?;
    if fresh.is_empty() {
        return Ok(None);
    }
    place.change_hooks(key, |memory| {
        fresh.retain(|mail| !memory.knows(mail.id.as_str()));
        if record {
            fresh.iter().for_each(|mail| memory.remember(mail.id.as_str()));
        }
    })?;
    Ok((!fresh.is_empty()).then(|| Summary::of(mailbox.me(), inbox.unread(), &fresh)))
}
