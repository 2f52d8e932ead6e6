//! The life of a mount.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use amb_core::OfficeError;
use amb_dir::{DirOffice, DirOptions, MountLock};
use amb_store::{AgentKey, Store};
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use crate::context::{Context, HintListeners, Terms, backoff};
use crate::ledger::CrossingLedger;
use crate::membership::{self, HintSignals, Membership, Newcomer};
use crate::stats::{MountHealth, Stats};
use crate::{forget, inward, outward, read_receipts};

/// Interval of attempts to lock a directory that another process has mounted.
const ASK_AGAIN: Duration = Duration::from_secs(1);

/// A directory to be mounted. Cheap to clone: clones are the same mount.
#[derive(Clone)]
pub struct Mount {
    office: DirOffice,
    stats: Arc<Stats>,
    signals: Arc<HintSignals>,
}

impl Mount {
    /// A mount of this directory; [`Mount::run`] starts it.
    ///
    /// # Errors
    /// Where something that is no directory stands there.
    pub fn new(directory: &Path) -> Result<Self, OfficeError> {
        let office = DirOffice::open(directory, DirOptions::default())?;
        Ok(Self { office, stats: Arc::new(Stats::new(directory)), signals: Arc::default() })
    }

    /// Something was written to this agent's log in the office. A hint: one may be lost, none does harm.
    pub fn hint(&self, agent: AgentKey) {
        self.signals.hint(agent);
    }

    /// Hints at all agents, after something was written to unknown logs.
    pub fn hint_all(&self) {
        self.signals.hint_all();
    }

    /// Its state and counts.
    pub fn health(&self) -> MountHealth {
        self.stats.health()
    }

    /// Carries mail both ways until `closing`. Failures are logged, shown by [`Mount::health`] and retried.
    pub async fn run(self, store: Arc<dyn Store>, hint: HintListeners, terms: Terms, closing: CancellationToken) {
        let Some((_lock, ledger, secret)) = self.open(&closing).await else { return };
        let context = Arc::new(Context {
            membership: Membership::new(secret, self.signals.clone()),
            office: self.office.clone(),
            store,
            hint,
            terms,
            ledger,
            stats: self.stats.clone(),
            closing,
            tasks: TaskTracker::new(),
        });
        tracing::info!(directory = %self.office.root().display(), layout = %self.office.layout(), "mounted");
        self.stats.mounted(true);
        context.tasks.spawn(membership::keep(context.clone()));
        context.tasks.spawn(read_receipts::keep(context.clone()));
        context.tasks.spawn(forget::keep(context.clone()));
        loop {
            for newcomer in context.membership.newcomers() {
                match newcomer {
                    Newcomer::Resident(agent) => context.tasks.spawn(inward::keep(context.clone(), agent)),
                    Newcomer::Guest(guest) => context.tasks.spawn(outward::keep(context.clone(), guest)),
                };
            }
            tokio::select! {
                () = context.membership.came.notified() => {}
                () = context.closing.cancelled() => break,
            }
        }
        context.tasks.close();
        context.tasks.wait().await;
        membership::goodbye(&context).await;
        self.stats.mounted(false);
    }

    /// Waits for the directory's lock and opens the ledger; `None` if the office closes first.
    async fn open(&self, closing: &CancellationToken) -> Option<(MountLock, CrossingLedger, String)> {
        let mut backoff = backoff();
        let mut said = false;
        loop {
            let wait = match self.try_open().await {
                Ok(Some(opened)) => {
                    self.stats.works(MOUNTING);
                    return Some(opened);
                }
                Ok(None) => {
                    self.stats.works(MOUNTING);
                    if !std::mem::replace(&mut said, true) {
                        let directory = self.office.root().display();
                        tracing::info!(%directory, "another process has this directory mounted; waiting for its end");
                    }
                    ASK_AGAIN
                }
                Err(error) => {
                    self.stats.failed(MOUNTING, &error);
                    backoff.pause()
                }
            };
            tokio::select! {
                () = tokio::time::sleep(wait) => {}
                () = closing.cancelled() => return None,
            }
        }
    }

    async fn try_open(&self) -> Result<Option<(MountLock, CrossingLedger, String)>, OfficeError> {
        let office = self.office.clone();
        let opened = tokio::task::spawn_blocking(move || {
            let Some(lock) = office.lock_mount()? else { return Ok(None) };
            let ledger = CrossingLedger::open(lock.state(), office)?;
            Ok::<_, OfficeError>(Some((lock, ledger)))
        });
        let Some((lock, ledger)) = opened.await.map_err(OfficeError::internal)?? else { return Ok(None) };
        let mut secret = [0; 32];
        getrandom::fill(&mut secret).map_err(OfficeError::internal)?;
        let secret = ledger.setting("secret", hex::encode(secret)).await?;
        Ok(Some((lock, ledger, secret)))
    }
}

const MOUNTING: &str = "mounting";
