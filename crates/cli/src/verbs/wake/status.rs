//! `amb wake status`.

use amb_core::{Timestamp, WakeState};
use amb_wake::{Lease, Process, RingLedger, WakeDirectory};
use serde::Serialize;

use crate::args::OfficeArgs;
use crate::failure::Failure;
use crate::output::{Output, ago, preview};
use crate::waking::BELL;
use crate::{home, waking};

/// A session, for programs.
#[derive(Serialize)]
struct SessionReport {
    agent: String,
    state: &'static str,
    holds_lease: bool,
    #[serde(skip_serializing_if = "Option::is_none")]
    hint: Option<&'static str>,
    #[serde(flatten)]
    ledger: RingLedger,
}

/// The document of `amb wake status --json`.
#[derive(Serialize)]
struct StatusDocument {
    sessions: Vec<SessionReport>,
    leases: Vec<LeaseReport>,
}

/// The holder of a mailbox's lease, for programs.
#[derive(Serialize)]
struct LeaseReport {
    agent: String,
    process: Process,
    client: String,
    session: String,
    /// Unknown for `amb watch --bell`, which does not see what its reader does.
    #[serde(skip_serializing_if = "Option::is_none")]
    active_at: Option<Timestamp>,
}

impl LeaseReport {
    fn new(agent: String, lease: Lease) -> Self {
        let Lease { process, client, session, active_at } = lease;
        let active_at = Some(active_at).filter(|at| *at != Timestamp::UNIX_EPOCH);
        Self { agent, process, client, session, active_at }
    }
}

pub(super) fn run(office: &OfficeArgs, output: Output) -> Result<(), Failure> {
    let mut document = StatusDocument { sessions: Vec::new(), leases: Vec::new() };
    for (agent, place) in mailboxes(office)? {
        let lease = place.lease()?;
        for ledger in place.ledgers()? {
            let holds_lease = lease.as_ref().is_some_and(|lease| {
                Some(lease.process) == ledger.process
                    && lease.client == ledger.client
                    && lease.session == ledger.session
            });
            let state = state(&ledger);
            let hint = (state.is_unresponsive() && state != WakeState::Failed || state == WakeState::NoDoor)
                .then(|| advice(&ledger));
            let state = state.as_str();
            document.sessions.push(SessionReport { agent: agent.clone(), state, holds_lease, hint, ledger });
        }
        document.leases.extend(lease.map(|lease| LeaseReport::new(agent, lease)));
    }
    let empty = match document.leases.is_empty() {
        true => "no client was woken yet; `amb wake test` in a shell of the client tries it",
        false => "no client session is served by `amb mcp`",
    };
    let head = ["AGENT", "CLIENT", "SESSION", "STATE", "LEASE", "RINGS", "LAST", "DOOR", "WAITING"];
    let rows = document.sessions.iter().map(|shown| {
        let ledger = &shown.ledger;
        vec![
            shown.agent.clone(),
            ledger.client.clone(),
            preview(&ledger.session, 36),
            shown.state.to_owned(),
            if shown.holds_lease { "yes" } else { "" }.to_owned(),
            ledger.total.to_string(),
            ledger.rung_at.map(ago).unwrap_or_default(),
            ledger.door.clone().unwrap_or_default(),
            ledger.rung_for.len().to_string(),
        ]
    });
    output.list(&document, empty, &head, rows)?;
    for shown in &document.sessions {
        if let Some(failed) = &shown.ledger.failed {
            output.note(format!("{}: {}: {}", shown.agent, ago(failed.at), preview(&failed.detail, 300)));
        }
        if let Some(hint) = shown.hint {
            output.note(format!("{}: {hint}", shown.agent));
        }
    }
    for LeaseReport { agent, process, .. } in document.leases.iter().filter(|lease| lease.client == BELL) {
        output.note(format!("{agent}: wake-ups are printed by `amb watch --bell`, process {}", process.pid));
    }
    Ok(())
}

/// Failed rings in sessions that still run: the session, the time and the reason.
pub(crate) fn failures(office: &OfficeArgs) -> Vec<(String, Timestamp, String)> {
    let mut failures = Vec::new();
    for (agent, place) in mailboxes(office).unwrap_or_default() {
        for ledger in place.ledgers().unwrap_or_default() {
            if state(&ledger) == WakeState::Failed
                && let Some(failed) = ledger.failed
            {
                failures.push((agent.clone(), failed.at, failed.detail));
            }
        }
    }
    failures
}

/// The state of a session; ended where its process is gone.
fn state(ledger: &RingLedger) -> WakeState {
    match ledger.process.is_some_and(|process| process.is_alive()) {
        true => ledger.state(Timestamp::now()),
        false => WakeState::Ended,
    }
}

/// What to do about a session that nothing wakes, in one sentence.
fn advice(ledger: &RingLedger) -> &'static str {
    match ledger.client.as_str() {
        _ if ledger.no_door => {
            "this client has no way into an idle session, or has not shown it yet; `amb wake test --client CLIENT` says what there is"
        }
        "claude" => {
            "the session may hold messages of other processes: look at its screen, or set \"crossSessionInbound\": \"accept\" in \
             Claude Code's user settings; a permission prompt that waits holds them too"
        }
        "codex" => "the thread may be busy, wait for an approval, or be one of `codex exec`, which no ring reaches",
        _ => "the session may hold messages for review: see /peers, or set agents.crossSessionInbound to \"accept\"",
    }
}

/// The mailboxes whose clients were rung: of the acting agent, or all.
pub(super) fn mailboxes(office: &OfficeArgs) -> Result<Vec<(String, WakeDirectory)>, Failure> {
    let mut found = Vec::new();
    for root in home::directories(&waking::root()?)? {
        for path in home::directories(&root)? {
            let Some(name) = path.file_name().and_then(|name| name.to_str()).map(str::to_owned) else { continue };
            if office.me.as_ref().is_none_or(|me| me.as_str() == name) {
                found.push((name, WakeDirectory::new(path)));
            }
        }
    }
    found.sort_by(|one, other| one.0.cmp(&other.0));
    Ok(found)
}
