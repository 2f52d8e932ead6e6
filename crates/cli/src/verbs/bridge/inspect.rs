//! `amb bridge status` and `amb bridge dead`: the status and the dead letters of bridges, whether they run or not.

use std::path::{Path, PathBuf};

use amb_bridge::{BridgeStatus, DeadLetter, Ledger, RuntimeState};
use amb_core::{AgentName, MessageId, Timestamp};
use serde::Serialize;

use super::state;
use crate::args::OfficeArgs;
use crate::failure::Failure;
use crate::output::{Output, ago, preview};

/// One bridge, for programs.
#[derive(Serialize)]
struct BridgeReport {
    running: bool,
    #[serde(flatten)]
    status: BridgeStatus,
    dead: usize,
    state: PathBuf,
}

pub(super) fn status(office: &OfficeArgs, state: Option<&Path>, output: Output) -> Result<(), Failure> {
    let mut all = Vec::new();
    for root in state::known(office, state)? {
        let ledger = Ledger::open_read_only(&root);
        if let Some(status) = ledger.status()? {
            all.push(BridgeReport {
                running: ledger.is_held()?,
                status,
                dead: ledger.dead_letters()?.len(),
                state: root,
            });
        }
    }
    let empty = "no bridge has run yet; `amb bridge openclaw`, `amb bridge acp -- COMMAND` or `amb bridge exec -- COMMAND` starts one";
    let head = ["AGENT", "STATE", "RUNTIME", "REPLIED", "UNANSWERED", "WAITING", "DEAD", "SINCE", "OFFICE"];
    let rows = all.iter().map(|shown| {
        let status = &shown.status;
        vec![
            status.agent.to_string(),
            state_name(shown).into(),
            status.runtime.clone(),
            status.replied.to_string(),
            status.unanswered.to_string(),
            (status.waiting + status.under_way.len()).to_string(),
            shown.dead.to_string(),
            ago(status.started_at),
            status.office.clone(),
        ]
    });
    output.list(&all, empty, &head, rows)?;
    for shown in all.iter().filter(|shown| shown.running) {
        if let RuntimeState::Down { detail, since, next_try, .. } = &shown.status.connection {
            let wait = next_try.duration_since(Timestamp::now()).as_secs().max(0);
            let agent = &shown.status.agent;
            output.note(format!("{agent}: down since {since}, next try in {wait} s: {}", preview(detail, 300)));
        } else if let Some(error) = &shown.status.last_error {
            output.note(format!("{}: last error: {}", shown.status.agent, preview(error, 300)));
        }
        if !shown.status.requests.is_empty() {
            let names: Vec<&str> = shown.status.requests.iter().map(AgentName::as_str).collect();
            let (agent, names) = (&shown.status.agent, names.join(", "));
            output.note(format!(
                "{agent}: connection requests from {names}; answer with `amb approve CODE` or `amb reject NAME`"
            ));
        }
    }
    Ok(())
}

fn state_name(report: &BridgeReport) -> &'static str {
    match (&report.status.connection, report.running) {
        (_, false) => "stopped",
        (RuntimeState::Unknown, _) => "ready",
        (RuntimeState::Up, _) => "up",
        (RuntimeState::Down { .. }, _) => "down",
    }
}

fn all_dead(office: &OfficeArgs, state: Option<&Path>) -> Result<Vec<(Ledger, DeadLetter)>, Failure> {
    let mut all = Vec::new();
    for root in state::known(office, state)? {
        all.extend(
            Ledger::open_read_only(&root).dead_letters()?.into_iter().map(|dead| (Ledger::open_read_only(&root), dead)),
        );
    }
    all.sort_by_key(|(_, dead)| dead.at);
    Ok(all)
}

pub(super) fn dead(office: &OfficeArgs, state: Option<&Path>, output: Output) -> Result<(), Failure> {
    let all = all_dead(office, state)?;
    let all: Vec<&DeadLetter> = all.iter().map(|(_, dead)| dead).collect();
    let rows = all.iter().map(|dead| {
        let subject = dead.subject.as_deref().unwrap_or_default();
        vec![
            dead.message_id.to_string(),
            dead.from.to_string(),
            preview(subject, 30),
            dead.failures.to_string(),
            ago(dead.at),
            preview(&dead.reason, 100),
        ]
    });
    output.list(&all, "no message was given up", &["ID", "FROM", "SUBJECT", "TRIES", "GIVEN UP", "WHY"], rows)
}

pub(super) fn retry(office: &OfficeArgs, state: Option<&Path>, id: &MessageId, output: Output) -> Result<(), Failure> {
    let mut running = None;
    for root in state::known(office, state)? {
        let ledger = Ledger::open_read_only(&root);
        if ledger.revive(id)? {
            running = Some(ledger.is_held()?);
        }
    }
    match running {
        Some(true) => output.note("the bridge retries it now"),
        Some(false) => output.note("the bridge does not run; it retries the message when it starts"),
        None => {
            let hint = format!("no message {id} was given up; `amb bridge dead list` lists those that were");
            return Err(Failure::not_found(hint));
        }
    }
    if output.json {
        output.document(&serde_json::json!({ "message_id": id, "retried": true }))?;
    }
    Ok(())
}
