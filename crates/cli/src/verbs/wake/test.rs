//! `amb wake test`.

use amb_core::OfficeError;
use amb_wake::{ClaudeInbox, ClaudeSession, CodexQueue, Door, PREFIX, RingLedger, Rung, claude_sessions};
use clap::ValueEnum;
use serde_json::json;

use super::WakeClient;
use super::status::mailboxes;
use crate::args::OfficeArgs;
use crate::failure::Failure;
use crate::output::Output;
use crate::waking;

/// The text for the client, which it cannot take for work.
const LINE: &str = "this is a test of the wake-up, no mail. Answer \"awake\" and stop.";

pub(super) async fn run(office: &OfficeArgs, client: Option<WakeClient>, output: Output) -> Result<(), Failure> {
    let sessions = sessions(office)?;
    let unknown =
        "no client was found: run this in a shell of Claude Code, Codex or Qwen Code, or name it with --client";
    let client = client.or_else(|| detect_client(&sessions)).ok_or_else(|| Failure::not_found(unknown))?;
    if let Some(why) = no_door(client) {
        return Err(Failure::not_found(why));
    }
    let door = match client {
        WakeClient::Claude => claude(&sessions)?,
        WakeClient::Codex => codex(&sessions)?,
        _ => qwen()?,
    };
    let session = door.key();
    let Rung { door: way, receipt } = door.ring(&format!("{PREFIX}{LINE}"), false).await.map_err(|trouble| {
        Failure::Office(OfficeError::unavailable(format!("{}; {}", trouble.detail, door.advice())))
    })?;
    let document = json!({"client": session.client, "session": session.session, "door": way, "receipt": receipt});
    let receipt = receipt.map_or(String::new(), |receipt| format!("; the client says: {receipt}"));
    output.result(&document, format!("rung {} session {} by its {way}{receipt}", session.client, session.session))?;
    output.note(format!("no turn begins? {}", door.advice()));
    Ok(())
}

/// Checks without ringing whether the sessions that `amb mcp` serves now can be reached: client and session, and the
/// error.
pub(crate) async fn reach(office: &OfficeArgs) -> Vec<(String, Result<(), String>)> {
    let mut tried = Vec::new();
    for ledger in sessions(office).unwrap_or_default() {
        let name = format!("{} session {}", ledger.client, ledger.session);
        let door = match ledger.client.as_str() {
            _ if ledger.no_door => continue,
            "claude" => match waking::claude().filter(|inbox| inbox.session == ledger.session) {
                Some(inbox) => Ok(Door::Claude(inbox)),
                None => claude_running(std::slice::from_ref(&ledger)),
            },
            "codex" => codex_thread(Some(ledger.session.clone())),
            _ => continue,
        };
        let reached = match door {
            Ok(door) => door.reach().await.map_err(|error| error.detail),
            Err(error) => Err(error.detail()),
        };
        tried.push((name, reached));
    }
    tried
}

/// Sessions that `amb mcp` serves now, the most recently active first.
fn sessions(office: &OfficeArgs) -> Result<Vec<RingLedger>, Failure> {
    let mut all = Vec::new();
    for (_, place) in mailboxes(office)? {
        let holder = place.lease()?.map(|lease| lease.process);
        let mut ledgers = place.ledgers()?;
        ledgers.retain(|ledger| ledger.process.is_some_and(|process| process.is_alive()));
        ledgers.sort_by_key(|ledger| ledger.process != holder);
        all.extend(ledgers);
    }
    Ok(all)
}

/// The client whose shell this is, else one that `amb mcp` serves.
fn detect_client(sessions: &[RingLedger]) -> Option<WakeClient> {
    if waking::claude().is_some() {
        return Some(WakeClient::Claude);
    }
    if std::env::var_os("CODEX_THREAD_ID").is_some() {
        return Some(WakeClient::Codex);
    }
    if waking::qwen().is_some() {
        return Some(WakeClient::Qwen);
    }
    let mut clients = sessions.iter().filter_map(|ledger| WakeClient::from_str(&ledger.client, false).ok());
    clients.find(|client| no_door(*client).is_none())
}

fn claude(sessions: &[RingLedger]) -> Result<Door, Failure> {
    waking::claude().map_or_else(|| claude_running(sessions), |inbox| Ok(Door::Claude(inbox)))
}

/// The door of a session that runs elsewhere.
fn claude_running(sessions: &[RingLedger]) -> Result<Door, Failure> {
    let wanted: Vec<&str> =
        sessions.iter().filter(|ledger| ledger.client == "claude").map(|l| l.session.as_str()).collect();
    let registry = waking::claude_registry();
    let running = registry.as_deref().map(claude_sessions).unwrap_or_default();
    let found = running.into_iter().find(|running| wanted.contains(&running.session.as_str()));
    let what = "run this in a shell of the session, where CLAUDE_CODE_MESSAGING_SOCKET is set; Claude Code has it from 2.1.224 on, not with \
                --bare, and some providers turn it off";
    match found {
        Some(ClaudeSession { session, socket: Some(socket), .. }) => {
            Ok(Door::Claude(ClaudeInbox { socket, token: None, session, registry }))
        }
        Some(ClaudeSession { version, .. }) => {
            let version = version.unwrap_or_else(|| "of an unknown version".into());
            Err(Failure::not_found(format!(
                "the session (Claude Code {version}) has no inbox socket: 2.1.224 or later has one"
            )))
        }
        None => Err(Failure::not_found(format!("no Claude Code session of this agent has an inbox socket: {what}"))),
    }
}

fn codex(sessions: &[RingLedger]) -> Result<Door, Failure> {
    let here = std::env::var("CODEX_THREAD_ID").ok();
    let known = || sessions.iter().find(|ledger| ledger.client == "codex").map(|ledger| ledger.session.clone());
    codex_thread(here.or_else(known))
}

fn codex_thread(thread: Option<String>) -> Result<Door, Failure> {
    let unknown = "no thread of Codex is known: it is told with the first call of a tool, so let the model call mailbox_check \
                   once; or run this in a shell of Codex, where CODEX_THREAD_ID is set. Codex queues messages from 0.149 on";
    let thread = thread.filter(|thread| CodexQueue::is_thread(thread)).ok_or_else(|| Failure::not_found(unknown))?;
    let control = waking::codex_control().filter(|path| path.exists());
    Ok(Door::Codex(CodexQueue { program: "codex".into(), thread, control }))
}

fn qwen() -> Result<Door, Failure> {
    let unset = "QWEN_CODE_MESSAGING_TOKEN is not set: run this in a shell of Qwen Code, 0.23 or later";
    waking::qwen().map(Door::Qwen).ok_or_else(|| Failure::not_found(unset))
}

/// Why a client cannot be rung, and the alternative; `None` for one that can.
fn no_door(client: WakeClient) -> Option<String> {
    let by_hooks = |name: &str, verb: &str, events: &str| {
        format!(
            "{name} has no way into a session that is idle. While it works, hooks tell it of mail: `amb hook {verb} EVENT` for {events}, \
             which `amb init {verb}` writes. To run it as a resident agent instead, see `amb bridge --help`"
        )
    };
    let by_tools = |name: &str| {
        format!(
            "{name} has no way into a session that is idle, and no hooks: its model sees mail when it calls mailbox_check, or while it \
             waits in mailbox_wait"
        )
    };
    Some(match client {
        WakeClient::Claude | WakeClient::Codex | WakeClient::Qwen => return None,
        WakeClient::Gemini => by_hooks(
            "Gemini CLI",
            "gemini",
            "SessionStart, BeforeAgent, AfterTool and AfterAgent in ~/.gemini/settings.json",
        ),
        WakeClient::Cursor => {
            by_hooks("Cursor", "cursor", "sessionStart, postToolUse and stop in ~/.cursor/hooks.json")
        }
        WakeClient::Copilot => {
            by_hooks("Copilot CLI", "copilot", "sessionStart, postToolUse and agentStop in .github/hooks/*.json")
        }
        WakeClient::Opencode => {
            "opencode is woken by a plugin of its own, which `amb init opencode` writes; nothing can be rung from outside".into()
        }
        WakeClient::Openclaw => {
            "OpenClaw is woken through its gateway: keep `amb bridge openclaw` running, and see `amb bridge status`".into()
        }
        WakeClient::Nanobot => {
            "nanobot is woken by its mailbox channel, which reads the mailbox itself: `amb init nanobot` writes its section".into()
        }
        WakeClient::Windsurf => by_tools("Windsurf"),
        WakeClient::Zed => by_tools("Zed"),
        WakeClient::Vscode => by_tools("VS Code"),
    })
}
