//! The conversation that was shown last, which `amb reply` answers.

use std::collections::BTreeMap;
use std::path::PathBuf;

use amb_core::mailbox::Mailbox;
use amb_core::{SessionId, Timestamp};
use anyhow::Result;
use serde::{Deserialize, Serialize};

use crate::{durable, home};

/// The most mailboxes for which this is stored; the oldest are dropped.
const MAX_MAILBOXES: usize = 100;

#[derive(Debug, Clone, Serialize, Deserialize)]
struct ShownSession {
    session: SessionId,
    at: Timestamp,
}

type LastShown = BTreeMap<String, ShownSession>;

fn path() -> Result<PathBuf> {
    Ok(home::state_dir()?.join("last-shown.json"))
}

/// What is stored; nothing where it cannot be read.
fn read() -> LastShown {
    path().and_then(|path| durable::read_json(&path)).unwrap_or_default()
}

fn key(mailbox: &dyn Mailbox) -> String {
    format!("{} {}", mailbox.describe(), mailbox.me())
}

/// The session that was shown last to the user of this mailbox.
pub(crate) fn session(mailbox: &dyn Mailbox) -> Option<SessionId> {
    read().remove(&key(mailbox)).map(|shown| shown.session)
}

/// Records that a session was shown. Where that fails, `amb reply` needs the session as an argument.
pub(crate) fn record(mailbox: &dyn Mailbox, session: &SessionId) {
    let written = || -> Result<()> {
        let mut known = read();
        known.insert(key(mailbox), ShownSession { session: session.clone(), at: Timestamp::now() });
        durable::drop_oldest(&mut known, MAX_MAILBOXES, |shown| shown.at);
        durable::replace_private(&path()?, &serde_json::to_vec_pretty(&known)?)
    };
    if let Err(error) = written() {
        tracing::debug!("the session that was shown is not recorded: {error:#}");
    }
}
