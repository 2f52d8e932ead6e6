//! Subscriptions to resource changes. An update is a hint to read; it carries nothing of the message.

use std::collections::HashSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use amb_core::OfficeError;
use parking_lot::Mutex;
use rmcp::RoleServer;
use rmcp::model::ResourceUpdatedNotificationParam;
use rmcp::service::{Peer, SubscriptionContext};
use tokio::sync::broadcast::Receiver;
use tokio::sync::broadcast::error::RecvError;

use crate::resources::{INBOX, Uri};
use crate::watch::{Change, LogWatch};

/// The most resources that one client may watch.
const MAX_SUBSCRIPTIONS: usize = 1000;

/// The subscriptions of one client of the older protocols (`resources/subscribe`).
#[derive(Debug, Default)]
pub(crate) struct Subscriptions {
    uris: Mutex<HashSet<String>>,
    forwarding: AtomicBool,
}

impl Subscriptions {
    /// Adds one, and notifies `peer` of its changes from now on.
    pub(crate) async fn add(
        self: &Arc<Self>,
        uri: String,
        peer: Peer<RoleServer>,
        watch: &LogWatch,
    ) -> Result<(), OfficeError> {
        uri.parse::<Uri>()?;
        {
            let mut uris = self.uris.lock();
            if uris.len() >= MAX_SUBSCRIPTIONS && !uris.contains(&uri) {
                return Err(OfficeError::invalid(format!(
                    "at most {MAX_SUBSCRIPTIONS} subscriptions; unsubscribe from some"
                )));
            }
            uris.insert(uri);
        }
        if !self.forwarding.swap(true, Ordering::SeqCst) {
            let changes = watch.listen();
            tokio::spawn(forward(Arc::clone(self), peer, changes, watch.clone()));
        }
        // Once the response is sent, no change may be missed.
        watch.ready().await;
        Ok(())
    }

    pub(crate) fn remove(&self, uri: &str) {
        self.uris.lock().remove(uri);
    }
}

async fn forward(
    subscriptions: Arc<Subscriptions>,
    peer: Peer<RoleServer>,
    mut changes: Receiver<Change>,
    watch: LogWatch,
) {
    while let Some(affected) = next(&mut changes, &watch).await {
        if peer.is_transport_closed() {
            return;
        }
        let wanted: Vec<String> =
            subscriptions.uris.lock().iter().filter(|uri| affected.includes(uri)).cloned().collect();
        for uri in wanted {
            if let Err(error) = peer.notify_resource_updated(ResourceUpdatedNotificationParam::new(uri)).await {
                tracing::debug!(%error, "the client is gone; its subscriptions end");
                return;
            }
        }
    }
}

/// Serves one `subscriptions/listen` until the client ends it or the server closes.
pub(crate) async fn listen(context: SubscriptionContext, watch: &LogWatch) {
    let mut changes = watch.listen();
    let uris = context.accepted().resource_subscriptions.clone().unwrap_or_default();
    // The client believes that it is subscribed. If the log's reader is only starting, a change may have been missed:
    // an extra hint costs little.
    let mut affected = if watch.is_ready() { None } else { Some(Affected::Everything) };
    if affected.is_some() {
        tokio::select! {
            () = watch.ready() => {}
            () = context.cancelled() => return,
        }
    }
    loop {
        if let Some(affected) = affected.take() {
            for uri in uris.iter().filter(|uri| affected.includes(uri)) {
                let told = tokio::select! {
                    told = context.sink().notify_resource_updated(uri.clone()) => told,
                    // Nobody reads notifications any more, while this request is about to end.
                    () = watch.closing().cancelled() => return,
                };
                if let Err(error) = told {
                    tracing::debug!(%error, "the client is gone; its subscription ends");
                    return;
                }
            }
        }
        affected = tokio::select! {
            next = next(&mut changes, watch) => match next {
                Some(next) => Some(next),
                None => return,
            },
            () = context.cancelled() => return,
        };
    }
}

/// Which resources a change affects.
enum Affected {
    /// Too many changes to name them.
    Everything,
    /// The inbox, and the session if there is one.
    Inbox(Option<String>),
}

impl Affected {
    fn includes(&self, uri: &str) -> bool {
        match self {
            Affected::Everything => true,
            Affected::Inbox(session) => uri == INBOX || session.as_deref() == Some(uri),
        }
    }
}

/// Returns the next change; `None` when the server closes.
async fn next(changes: &mut Receiver<Change>, watch: &LogWatch) -> Option<Affected> {
    tokio::select! {
        change = changes.recv() => match change {
            Ok(change) => Some(Affected::Inbox(change.session.as_ref().map(Uri::session))),
            Err(RecvError::Lagged(_)) => Some(Affected::Everything),
            Err(RecvError::Closed) => None,
        },
        () = watch.closing().cancelled() => None,
    }
}
