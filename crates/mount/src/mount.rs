//! A mount from its start to its end.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use amb_core::OfficeError;
use amb_dir::{DirOffice, DirOptions, MountLock};
use amb_store::{AgentKey, Store};
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use crate::ledger::Ledger;
use crate::people::{self, Bells, Newcomer, People};
use crate::post::{Patience, Post, Tell, Terms};
use crate::stats::{MountHealth, Stats};
use crate::{fates, forget, inward, outward};

/// How often a directory that another process has mounted is asked for: it is free at once when that process ends.
const ASK_AGAIN: Duration = Duration::from_secs(1);

/// A directory to be mounted. Cheap to clone: clones are the same mount.
#[derive(Clone)]
pub struct Mount {
    office: DirOffice,
    stats: Arc<Stats>,
    bells: Arc<Bells>,
}

impl Mount {
    /// A mount of this directory, not yet at work.
    ///
    /// # Errors
    /// Where something that is no directory stands there.
    pub fn new(directory: &Path) -> Result<Self, OfficeError> {
        let office = DirOffice::open(directory, DirOptions::default())?;
        Ok(Self { office, stats: Arc::new(Stats::new(directory)), bells: Arc::default() })
    }

    /// Something was written to this agent's log in the office. A hint: one may be lost, none does harm.
    pub fn hint(&self, agent: AgentKey) {
        self.bells.hint(agent);
    }

    /// Something was written, and nobody knows to whose log.
    pub fn hint_all(&self) {
        self.bells.hint_all();
    }

    /// How it is.
    pub fn health(&self) -> MountHealth {
        self.stats.health()
    }

    /// Carries mail both ways until `closing`. Failures are logged, shown by [`Mount::health`] and tried again.
    pub async fn run(self, store: Arc<dyn Store>, tell: Tell, terms: Terms, closing: CancellationToken) {
        let Some((_lock, ledger, secret)) = self.open(&closing).await else { return };
        let post = Arc::new(Post {
            people: People::new(secret, self.bells.clone()),
            office: self.office.clone(),
            store,
            tell,
            terms,
            ledger,
            stats: self.stats.clone(),
            closing,
            tasks: TaskTracker::new(),
        });
        tracing::info!(directory = %self.office.root().display(), layout = %self.office.layout(), "mounted");
        self.stats.mounted(true);
        post.tasks.spawn(people::keep(post.clone()));
        post.tasks.spawn(fates::keep(post.clone()));
        post.tasks.spawn(forget::keep(post.clone()));
        loop {
            for newcomer in post.people.newcomers() {
                match newcomer {
                    Newcomer::Resident(agent) => post.tasks.spawn(inward::keep(post.clone(), agent)),
                    Newcomer::Guest(guest) => post.tasks.spawn(outward::keep(post.clone(), guest)),
                };
            }
            tokio::select! {
                () = post.people.came.notified() => {}
                () = post.closing.cancelled() => break,
            }
        }
        post.tasks.close();
        post.tasks.wait().await;
        people::goodbye(&post).await;
        self.stats.mounted(false);
    }

    /// Waits for the directory to be free, and opens its ledger; none where the office closes first.
    async fn open(&self, closing: &CancellationToken) -> Option<(MountLock, Ledger, String)> {
        let mut patience = Patience::default();
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
                    patience.next()
                }
            };
            tokio::select! {
                () = tokio::time::sleep(wait) => {}
                () = closing.cancelled() => return None,
            }
        }
    }

    async fn try_open(&self) -> Result<Option<(MountLock, Ledger, String)>, OfficeError> {
        let office = self.office.clone();
        let opened = tokio::task::spawn_blocking(move || {
            let Some(lock) = office.lock_mount()? else { return Ok(None) };
            let ledger = Ledger::open(lock.state(), office)?;
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
