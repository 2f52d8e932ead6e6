//! The common part of all bridges: opens the mailbox and the ledger, and runs until it is stopped.

use std::io::ErrorKind;
use std::path::PathBuf;
use std::sync::Arc;

use amb_bridge::{Bridge, BridgeOptions, Ledger, Runtime};
use amb_core::{Backoff, Code, Mailbox, OfficeError};
use tokio::task::JoinSet;

use super::{BridgeArgs, state};
use crate::args::OfficeArgs;
use crate::failure::Failure;
use crate::output::Output;
use crate::signals::{interrupted, shutdown};
use crate::verbs::init::ensure_registered;

/// A bridge that is ready to run.
pub(super) struct OpenBridge {
    pub(super) mailbox: Arc<dyn Mailbox>,
    pub(super) ledger: Ledger,
    /// The directory of the ledger.
    state: PathBuf,
    _archiving: JoinSet<()>,
}

impl BridgeArgs {
    /// Opens the mailbox and the ledger, and starts archiving.
    pub(super) async fn open(&self, office: &OfficeArgs) -> Result<OpenBridge, Failure> {
        let mailbox = open_mailbox(office).await?;
        let _archiving = self.archiving.start(office)?;
        let state = state::directory(office, mailbox.me(), self.state.as_deref())?;
        let ledger = Ledger::open(&state).map_err(|error| match error.kind() {
            ErrorKind::ResourceBusy => OfficeError::new(Code::Conflict, error.to_string()).into(),
            _ => Failure::from(error),
        })?;
        Ok(OpenBridge { ledger, mailbox, state, _archiving })
    }
}

/// Opens the mailbox, and waits for an office that is not up yet: a bridge may be started before its server.
async fn open_mailbox(office: &OfficeArgs) -> Result<Arc<dyn Mailbox>, Failure> {
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
            Err(Failure::Office(error)) if error.is_transient() => {
                tracing::warn!(%error, "the office is unavailable; retrying");
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

impl OpenBridge {
    /// Runs until it fails or the process is stopped.
    pub(super) async fn run(
        self,
        runtime: Arc<dyn Runtime>,
        options: BridgeOptions,
        output: Output,
    ) -> Result<(), Failure> {
        let (me, at) = (self.mailbox.me().clone(), self.mailbox.describe());
        output.note(format!("starting the bridge from {me} at {at} to {}", runtime.describe()));
        output.note(format!("`amb bridge status` shows its state, which is stored in {}", self.state.display()));
        // Called once the runtime has accepted a turn.
        let on_ready = Arc::new(move |runtime: &str| output.note(format!("{me} at {at} is bridged to {runtime}")));
        let options = BridgeOptions { on_ready: Some(on_ready), ..options };
        Ok(Bridge::new(self.mailbox, runtime, self.ledger, options).run(shutdown()).await?)
    }
}
