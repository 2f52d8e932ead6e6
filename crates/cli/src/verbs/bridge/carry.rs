//! What every bridge does: opens its mailbox and its ledger, and runs until it is stopped.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use amb_bridge::{Bridge as Bridged, BridgeOptions, Ledger, Runtime};
use amb_core::{Backoff, Mailbox};

use super::state;
use crate::args::OfficeArgs;
use crate::failure::Failure;
use crate::output::Output;
use crate::verbs::init::ensure_registered;
use crate::verbs::watch::{interrupted, shutdown};

/// Opens the bridge's ledger; returns its path, too.
pub(super) fn memory(
    office: &OfficeArgs,
    mailbox: &dyn Mailbox,
    state: Option<&Path>,
) -> Result<(PathBuf, Ledger), Failure> {
    let root = match state {
        Some(state) => state.to_owned(),
        None => state::place(office, mailbox.me())?,
    };
    let ledger = Ledger::open(&root)?;
    Ok((root, ledger))
}

/// Opens the mailbox, and waits for an office that is not up yet: a bridge may be started before its server.
pub(super) async fn mailbox(office: &OfficeArgs) -> Result<Arc<dyn Mailbox>, Failure> {
    let mut backoff = Backoff::default();
    loop {
        let opened = async {
            let mailbox = office.open().await?;
            if ensure_registered(&*mailbox, office.nanobot_section(mailbox.me()).as_ref()).await? {
                tracing::info!(agent = %mailbox.me(), "registered");
            }
            Ok(mailbox)
        };
        match opened.await {
            Err(Failure::Office(error)) if error.is_passing() => {
                tracing::warn!(%error, "the office cannot be used now; trying again");
                tokio::select! {
                    () = tokio::time::sleep(error.wait().unwrap_or_else(|| backoff.pause())) => {}
                    interrupted = interrupted() => {
                        interrupted?;
                        return Err(Failure::Office(error));
                    }
                }
            }
            other => return other,
        }
    }
}

pub(super) async fn carry(
    mailbox: Arc<dyn Mailbox>,
    runtime: Arc<dyn Runtime>,
    ledger: Ledger,
    options: BridgeOptions,
    state: &Path,
    output: Output,
) -> Result<(), Failure> {
    let (me, at) = (mailbox.me().clone(), mailbox.describe());
    output.note(format!("{me} at {at} is to be bridged to {}", runtime.describe()));
    output.note(format!("`amb bridge status` says how it is; its memory is in {}", state.display()));
    // Printed once the runtime was found to take turns.
    let on_ready = Arc::new(move |runtime: &str| output.note(format!("{me} at {at} is bridged to {runtime}")));
    let options = BridgeOptions { on_ready: Some(on_ready), ..options };
    Ok(Bridged::new(mailbox, runtime, ledger, options).run(shutdown()).await?)
}
