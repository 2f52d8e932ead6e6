//! The conformance suite, in both layouts.

use std::sync::Arc;

use amb_core::{AgentName, Card, Mailbox};
use amb_dir::{ClaimBy, DirOffice, DirOptions, Layout};
use amb_testing::office::TestOffice;
use async_trait::async_trait;
use tempfile::TempDir;

struct InDirectory {
    root: TempDir,
    options: DirOptions,
}

impl InDirectory {
    fn fresh(layout: Layout, claims: ClaimBy) -> Self {
        // The chipset creates mailboxes on the first send; the test of an unknown recipient needs that off.
        let options = DirOptions { layout: Some(layout), strict_recipients: true, claims, ..DirOptions::default() };
        Self { root: TempDir::new().unwrap(), options }
    }
}

#[async_trait]
impl TestOffice for InDirectory {
    /// Each mailbox is an office of its own, as in another process: they share only the files.
    async fn mailbox(&self, name: &AgentName, card: Card) -> Arc<dyn Mailbox> {
        let office = DirOffice::open(self.root.path(), self.options.clone()).unwrap();
        let mailbox = office.mailbox(name.clone());
        mailbox.register(card).await.unwrap();
        Arc::new(mailbox)
    }

    async fn acquaint(&self, _: &dyn Mailbox, _: &dyn Mailbox) {}
}

mod nanobot {
    use super::*;
    amb_testing::office_conformance!(InDirectory::fresh(Layout::Nanobot, ClaimBy::Lock));
}

mod chipset {
    use super::*;
    amb_testing::office_conformance!(InDirectory::fresh(Layout::Chipset, ClaimBy::Lock));
}

mod with_leases {
    use super::*;
    amb_testing::office_conformance!(InDirectory::fresh(Layout::Nanobot, ClaimBy::Lease));
}
