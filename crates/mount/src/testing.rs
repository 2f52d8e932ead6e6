//! A mount for unit tests: a directory and a store, and no loops.

use std::sync::Arc;
use std::time::Duration;

use amb_core::doc::ProfilePatch;
use amb_core::id::fresh_uuid;
use amb_core::{AgentName, Card, Mailbox, Timestamp};
use amb_dir::{DirOffice, DirOptions, Layout};
use amb_store::{Agent, SqliteStore};
use amb_testing::SqliteFile;
use amb_testing::store::TestStore;
use tempfile::TempDir;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use crate::context::{Context, Terms};
use crate::ledger::{CrossingLedger, NewCrossing, NewCrossingKind};
use crate::membership::{Membership, Resident, find_resident};
use crate::stats::MountCounters;

pub(crate) struct Fixture {
    pub(crate) context: Context,
    pub(crate) network: TestStore,
    _kept: (TempDir, SqliteFile),
}

impl Fixture {
    pub(crate) async fn new(layout: Layout, open: bool) -> Self {
        let (dir, file) = (tempfile::tempdir().unwrap(), SqliteFile::fresh());
        let options = DirOptions { layout: Some(layout), ..DirOptions::default() };
        let office = DirOffice::open(dir.path(), options).unwrap();
        let network = TestStore(Arc::new(SqliteStore::open(&file.path()).await.unwrap()));
        let context = Context {
            store: network.0.clone(),
            hint: Arc::new(|_| {}),
            terms: Terms { private_codes: false, code_ttl: Duration::from_secs(60), max_pending: 5, open },
            ledger: CrossingLedger::open(dir.path(), office.clone()).unwrap(),
            membership: Membership::new("secret".into(), Arc::default()),
            stats: Arc::new(MountCounters::new(dir.path())),
            closing: CancellationToken::new(),
            tasks: TaskTracker::new(),
            office,
        };
        Self { context, network, _kept: (dir, file) }
    }

    /// Registers an agent of the directory, with its account.
    pub(crate) async fn resident(&self, name: &str, card: Card) -> Arc<Resident> {
        let name: AgentName = name.parse().unwrap();
        self.context.office.mailbox(name.clone()).register(card).await.unwrap();
        find_resident(&self.context, &name).await.unwrap().unwrap()
    }

    /// Registers an agent of the office with this description.
    pub(crate) async fn enter(&self, name: &str, description: &str) -> Agent {
        let agent = self.network.enter(name).await;
        let patch = ProfilePatch { description: Some(description.into()), ..ProfilePatch::default() };
        self.network.update_profile(&agent, patch, Timestamp::now()).await.unwrap();
        agent
    }

    /// Writes the ledger row of a resident's message to an agent of the office.
    pub(crate) async fn writes(&self, resident: &str, guest: &str) {
        let at = Timestamp::now();
        let what = NewCrossingKind::Out { dir_id: "d1".parse().unwrap(), office_id: fresh_uuid(at), at, task: None };
        let new = NewCrossing { sender: resident.parse().unwrap(), recipient: guest.parse().unwrap(), what };
        self.context.ledger.begin(vec![new]).await.unwrap();
    }
}
