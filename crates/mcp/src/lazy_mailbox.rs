//! The agent's mailbox at its office, which may be out of reach when the client comes.

use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use amb_core::mailbox::Result;
use amb_core::{Mailbox, OfficeError};
use tokio::sync::OnceCell;

/// How long one try to reach the office may take: clients give a call up after 60 s, and two tries must fit.
const PATIENCE: Duration = Duration::from_secs(20);

type Opening = Pin<Box<dyn Future<Output = Result<Arc<dyn Mailbox>>> + Send>>;

/// A mailbox that is taken once, when the office is first reached. Cloning is cheap and shares it.
///
/// A client starts its servers before anything else, and often before the office is up. It is answered all the same: what
/// needs the office says that it is out of reach, and finds it by itself when it is there.
#[derive(Clone)]
pub struct LazyMailbox {
    inner: Arc<Inner>,
}

struct Inner {
    open: Box<dyn Fn() -> Opening + Send + Sync>,
    taken: OnceCell<Arc<dyn Mailbox>>,
}

impl LazyMailbox {
    /// A mailbox that `open` finds. It is called whenever the office is wanted, until it succeeds once.
    pub fn opened_by<F, O>(open: F) -> Self
    where
        F: Fn() -> O + Send + Sync + 'static,
        O: Future<Output = Result<Arc<dyn Mailbox>>> + Send + 'static,
    {
        Self { inner: Arc::new(Inner { open: Box::new(move || Box::pin(open())), taken: OnceCell::new() }) }
    }

    /// The office, reached now if it was not before.
    ///
    /// # Errors
    /// Where it cannot be reached; the next call tries again.
    pub async fn office(&self) -> Result<&Arc<dyn Mailbox>> {
        self.inner
            .taken
            .get_or_try_init(|| async {
                match tokio::time::timeout(PATIENCE, (self.inner.open)()).await {
                    Ok(opened) => opened,
                    Err(_) => Err(OfficeError::unavailable("the office did not answer in time; is it running?")),
                }
            })
            .await
    }

    /// The office, if it has been reached.
    pub fn taken(&self) -> Option<&Arc<dyn Mailbox>> {
        self.inner.taken.get()
    }
}

impl From<Arc<dyn Mailbox>> for LazyMailbox {
    fn from(office: Arc<dyn Mailbox>) -> Self {
        let again = Arc::clone(&office);
        let mailbox = Self::opened_by(move || std::future::ready(Ok(Arc::clone(&again))));
        // A fresh cell is empty.
        let _ = mailbox.inner.taken.set(office);
        mailbox
    }
}

impl<O: Mailbox + 'static> From<Arc<O>> for LazyMailbox {
    fn from(office: Arc<O>) -> Self {
        (office as Arc<dyn Mailbox>).into()
    }
}

impl fmt::Debug for LazyMailbox {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("LazyMailbox").field(&self.taken().map(|office| office.describe())).finish()
    }
}
