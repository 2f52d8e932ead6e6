//! Opens a mount and runs its loops.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use amb_core::{Code, OfficeError};
use amb_dir::{DirOffice, DirOptions, MountLock};
use amb_store::{AgentKey, Store};
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use crate::context::{Context, HintListeners, Terms, backoff};
use crate::ledger::{CrossingLedger, FILE_NAME};
use crate::membership::{self, HintSignals, Membership, Newcomer};
use crate::stats::{MountCounters, MountHealth};
use crate::{forget, inward, outward, read_receipts};

/// Interval of attempts to lock a directory that another process has mounted.
const LOCK_RETRY: Duration = Duration::from_secs(1);

/// A directory to be mounted. Cheap to clone: clones are the same mount.
#[derive(Clone)]
pub struct Mount {
    office: DirOffice,
    stats: Arc<MountCounters>,
    signals: Arc<HintSignals>,
}

impl Mount {
    /// A mount of this directory; [`Mount::run`] starts it.
    ///
    /// # Errors
    /// If the path exists and is not a directory.
    pub fn new(directory: &Path) -> Result<Self, OfficeError> {
        let office = DirOffice::open(directory, DirOptions::default())?;
        Ok(Self { office, stats: Arc::new(MountCounters::new(directory)), signals: Arc::default() })
    }

    /// Hints that this agent's log in the office may have grown.
    pub fn hint(&self, agent: AgentKey) {
        self.signals.hint(agent);
    }

    /// Hints that any log may have grown.
    pub fn hint_all(&self) {
        self.signals.hint_all();
    }

    /// Returns its state and counters.
    pub fn health(&self) -> MountHealth {
        self.stats.health()
    }

    /// Carries mail both ways until `closing`. Failures are logged, shown by [`Mount::health`] and retried.
    pub async fn run(self, store: Arc<dyn Store>, hint: HintListeners, terms: Terms, closing: CancellationToken) {
        let Some((_lock, ledger, membership)) = self.open(&*store, &closing).await else { return };
        let context = Arc::new(Context {
            membership,
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
        self.stats.set_mounted(true);
        context.tasks.spawn(membership::run(context.clone()));
        context.tasks.spawn(read_receipts::run(context.clone()));
        context.tasks.spawn(forget::run(context.clone()));
        loop {
            for newcomer in context.membership.newcomers() {
                match newcomer {
                    Newcomer::Resident(agent) => context.tasks.spawn(inward::run(context.clone(), agent)),
                    Newcomer::Guest(guest) => context.tasks.spawn(outward::run(context.clone(), guest)),
                };
            }
            tokio::select! {
                () = context.membership.arrived.notified() => {}
                () = context.closing.cancelled() => break,
            }
        }
        context.tasks.close();
        context.tasks.wait().await;
        membership::mark_guests_offline(&context).await;
        self.stats.set_mounted(false);
    }

    /// Waits for the directory's lock and opens the ledger; `None` if the office closes first.
    async fn open(
        &self,
        store: &dyn Store,
        closing: &CancellationToken,
    ) -> Option<(MountLock, CrossingLedger, Membership)> {
        let mut backoff = backoff();
        let mut logged = false;
        loop {
            let wait = match self.try_open(store).await {
                Ok(Some(opened)) => {
                    self.stats.succeeded(MOUNTING);
                    return Some(opened);
                }
                Ok(None) => {
                    self.stats.succeeded(MOUNTING);
                    if !std::mem::replace(&mut logged, true) {
                        let directory = self.office.root().display();
                        tracing::info!(%directory, "another process has this directory mounted; waiting for its end");
                    }
                    LOCK_RETRY
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

    async fn try_open(
        &self,
        store: &dyn Store,
    ) -> Result<Option<(MountLock, CrossingLedger, Membership)>, OfficeError> {
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
        let membership = Membership::new(secret, self.signals.clone());
        if !membership.is_known_to(store, &ledger.residents().await?).await? {
            let detail = format!(
                "{} was mounted in another office: its ledger {} lists accounts that this office's database does not \
                 have. Start the server with that office's database (--database-url). Or, to mount the directory in this \
                 office, stop the server and move that file and those beside it (ledger.db*) away: what is unread in the \
                 directory is then carried to this office",
                self.office.root().display(),
                lock.state().join(FILE_NAME).display()
            );
            return Err(OfficeError::new(Code::Conflict, detail));
        }
        Ok(Some((lock, ledger, membership)))
    }
}

const MOUNTING: &str = "mounting";
