//! The agent's mailbox, which is opened when the office is first reached.

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use amb_core::mailbox::Result;
use amb_core::{Mailbox, OfficeError};
use tokio::sync::OnceCell;

/// The limit of one attempt to reach the office: clients abandon a call after 60 s, and two attempts must fit.
const OPEN_TIMEOUT: Duration = Duration::from_secs(20);

type Opening = Pin<Box<dyn Future<Output = Result<Arc<dyn Mailbox>>> + Send>>;

/// A mailbox that is opened once, when the office is first reached. Clones share it.
///
/// A client starts its MCP servers before anything else, and often before the office is up. It is served all the same:
/// calls that need the office return an error until it is there.
#[derive(Clone)]
pub struct LazyMailbox {
    inner: Arc<MailboxCell>,
}

struct MailboxCell {
    open: Box<dyn Fn() -> Opening + Send + Sync>,
    opened: OnceCell<Arc<dyn Mailbox>>,
}

impl LazyMailbox {
    /// A mailbox that `open` opens. It is called for each use until it succeeds once.
    pub fn opened_by<F, O>(open: F) -> Self
    where
        F: Fn() -> O + Send + Sync + 'static,
        O: Future<Output = Result<Arc<dyn Mailbox>>> + Send + 'static,
    {
        Self { inner: Arc::new(MailboxCell { open: Box::new(move || Box::pin(open())), opened: OnceCell::new() }) }
    }

    /// Returns the mailbox, opened now if it was not before.
    ///
    /// # Errors
    /// Where the office cannot be reached; the next call tries again.
    pub async fn office(&self) -> Result<&Arc<dyn Mailbox>> {
        self.inner
            .opened
            .get_or_try_init(|| async {
                match tokio::time::timeout(OPEN_TIMEOUT, (self.inner.open)()).await {
                    Ok(opened) => opened,
                    Err(_) => Err(OfficeError::unavailable("the office did not answer in time; is it running?")),
                }
            })
            .await
    }

    /// The mailbox, if it has been opened.
    pub fn opened(&self) -> Option<&Arc<dyn Mailbox>> {
        self.inner.opened.get()
    }
}

impl From<Arc<dyn Mailbox>> for LazyMailbox {
    fn from(office: Arc<dyn Mailbox>) -> Self {
        let again = Arc::clone(&office);
        let mailbox = Self::opened_by(move || std::future::ready(Ok(Arc::clone(&again))));
        // A new cell is empty, so this cannot fail.
        let _ = mailbox.inner.opened.set(office);
        mailbox
    }
}

impl<O: Mailbox + 'static> From<Arc<O>> for LazyMailbox {
    fn from(office: Arc<O>) -> Self {
        (office as Arc<dyn Mailbox>).into()
    }
}
