//! Every office's promises, in both layouts.

use std::sync::Arc;

use amb_core::conformance::Post;
use amb_core::{AgentName, Card, Office};
use amb_dir::{ClaimBy, DirOffice, DirOptions, Layout};
use async_trait::async_trait;
use tempfile::TempDir;

struct InDirectory {
    root: TempDir,
    options: DirOptions,
}

impl InDirectory {
    fn fresh(layout: Layout, claims: ClaimBy) -> Self {
        // The chipset makes mailboxes on first send; the story of the unknown recipient wants that off.
        let options = DirOptions { layout: Some(layout), strict_recipients: true, claims, ..DirOptions::default() };
        Self { root: TempDir::new().unwrap(), options }
    }
}

#[async_trait]
impl Post for InDirectory {
    /// Each seat is an office of its own, as in another process: they meet in the files alone.
    async fn seat(&self, name: &AgentName, card: Card) -> Arc<dyn Office> {
        let office = DirOffice::open(self.root.path(), self.options.clone()).unwrap();
        let seat = office.seat(name.clone());
        seat.register(card).await.unwrap();
        Arc::new(seat)
    }

    async fn acquaint(&self, _: &dyn Office, _: &dyn Office) {}
}

mod nanobot {
    use super::*;
    amb_core::office_conformance!(InDirectory::fresh(Layout::Nanobot, ClaimBy::Lock));
}

mod chipset {
    use super::*;
    amb_core::office_conformance!(InDirectory::fresh(Layout::Chipset, ClaimBy::Lock));
}

mod with_leases {
    use super::*;
    amb_core::office_conformance!(InDirectory::fresh(Layout::Nanobot, ClaimBy::Lease));
}
