//! Verbs for a consumer's loop: waiting for mail to claim, and mail by its file names.

use std::path::{Path, PathBuf};
use std::time::Duration;

use amb_core::doc::Sent;
use amb_core::limits::MAX_CLAIMED;
use amb_core::mailbox::{ClaimRequest, Mailbox};
use amb_core::route::Hop;
use amb_core::wire::nanobot;
use amb_core::{Backoff, Draft, Message, MessageId, Object, OfficeError};
use tokio::time::Instant;

use crate::files::layout::Layout;
use crate::files::message_file;
use crate::files::open;
use crate::office::{AgentDir, DirMailbox};
use crate::verbs::events::any_changed;

/// First pause before mail that could not be claimed is tried again; it doubles up to the poll interval.
const FIRST_RECHECK: Duration = Duration::from_millis(2);

/// A message that this mailbox has claimed.
#[derive(Debug, Clone, PartialEq)]
pub struct HeldMail {
    /// Its file name in the mailbox.
    pub file_name: String,
    /// The message.
    pub message: Message,
    /// The fields of its file, unknown ones included. Fields that the office decides about (id, sender, times, hops,
    /// callback) are as in [`HeldMail::message`], even where the file lacks them.
    pub fields: Object,
}

impl DirMailbox {
    /// Claims mail like [`Mailbox::claim`]; if there is none, waits for some, up to `wait` or until `stop` completes.
    ///
    /// A claim in progress is finished, so the result may contain mail even if `stop` completes meanwhile.
    pub async fn claim_or_wait(
        &self,
        request: ClaimRequest,
        wait: Duration,
        stop: impl Future<Output = ()>,
    ) -> Result<Vec<Message>, OfficeError> {
        let give_up = Instant::now().checked_add(wait);
        let poll_interval = self.agent_dir.shared.options.poll_interval;
        let mut stop = std::pin::pin!(stop);
        let mut backoff = Backoff::new(FIRST_RECHECK, poll_interval);
        loop {
            // Subscribed before the claim, so that mail that arrives in between is not missed.
            let mut changes = self.changes().await?;
            let claimed = self.claim(request.clone()).await?;
            if !claimed.is_empty() {
                return Ok(claimed);
            }
            let left = give_up.map(|give_up| give_up.saturating_duration_since(Instant::now()));
            if left.is_some_and(|left| left.is_zero()) {
                return Ok(Vec::new());
            }
            // No event tells when another process releases a claim or dies, nor when a sender releases the lock on the
            // message that it has just delivered.
            let recheck = backoff.pause();
            let pause = left.map_or(recheck, |left| left.min(recheck));
            tokio::select! {
                () = &mut stop => return Ok(Vec::new()),
                changed = tokio::time::timeout(pause, any_changed(&mut changes)) => {
                    if changed.is_ok() {
                        backoff.reset();
                    }
                }
            }
        }
    }

    /// Sends like [`Mailbox::send`], with at most the hops in `within`, and to no agent in its trace except as a reply:
    /// for programs that count hops themselves.
    pub async fn send_within(&self, draft: Draft, within: Hop) -> Result<Sent, OfficeError> {
        self.run(move |agent_dir| agent_dir.send_within(draft, &within)).await
    }

    /// Claims unread mail and returns everything that this mailbox has claimed, oldest first, at most `limit` messages
    /// and never more than [`MAX_CLAIMED`]. Mail that is not acknowledged is returned again the next time.
    pub async fn hold(&self, limit: usize) -> Result<Vec<HeldMail>, OfficeError> {
        self.run(move |agent_dir| agent_dir.check_local()?.hold(limit.min(MAX_CLAIMED))).await
    }

    /// Acknowledges an unread message by its file name. Returns `false` if there is none of this name.
    pub async fn ack_file(&self, file_name: &str) -> Result<bool, OfficeError> {
        let file_name = file_name.to_owned();
        self.run(move |agent_dir| {
            let id = agent_dir.check_local()?.ingest()?.known.get(&file_name).map(|known| known.brief.id.clone());
            id.map_or(Ok(false), |id| Ok(agent_dir.ack(&[id])? > 0))
        })
        .await
    }
}

impl AgentDir {
    fn hold(&self, limit: usize) -> Result<Vec<HeldMail>, OfficeError> {
        let held = self.held_files()?.len();
        if held < limit {
            self.claim(&ClaimRequest { limit: limit - held, ..ClaimRequest::default() })?;
        }
        let paths = &self.shared.paths;
        let mut mail = Vec::new();
        for (id, path) in self.held_files()? {
            let Some(file_name) = path.file_name().and_then(|name| name.to_str()).map(str::to_owned) else { continue };
            // Handled by another process that ignores claims: not an error.
            let Ok(message_file) = message_file::open(paths.layout, &self.me, &path, &file_name) else { continue };
            let mut message = message_file.message;
            self.shared.set_known_task_id(&self.me, &mut message, &file_name)?;
            let Some(message) = message_file::with_known_id(message, &file_name, &id) else { continue };
            let message = self.redacted(message);
            let fields = fields_of(paths.layout, &path, &message)?;
            mail.push(HeldMail { file_name, message, fields });
        }
        mail.sort_by(|a, b| (a.message.sent_at, &a.file_name).cmp(&(b.message.sent_at, &b.file_name)));
        mail.truncate(limit);
        Ok(mail)
    }

    fn held_files(&self) -> Result<Vec<(MessageId, PathBuf)>, OfficeError> {
        drop(self.ingest()?);
        let mut claims = self.claims.lock();
        claims.retain(|_, claim| claim.holds());
        Ok(claims.iter().map(|(id, claim)| (id.clone(), claim.path.clone())).collect())
    }
}

/// Returns the fields of a message's file, overridden by those that the office decides about.
fn fields_of(layout: Layout, path: &Path, message: &Message) -> Result<Object, OfficeError> {
    let mut fields = match layout {
        Layout::Nanobot => {
            open::read(path, message_file::MAX_BYTES).ok().and_then(|bytes| serde_json::from_slice(&bytes).ok())
        }
        Layout::Chipset => None,
    }
    .unwrap_or_else(Object::new);
    let known = nanobot::write(message).map_err(OfficeError::internal)?;
    let known: Object = serde_json::from_slice(&known).map_err(OfficeError::internal)?;
    fields.retain(|key, _| key != "callback");
    fields.extend(known);
    Ok(fields)
}

#[cfg(test)]
mod tests {
    use amb_core::{AgentName, Card};

    use super::*;
    use crate::{DirOffice, DirOptions};

    fn name(text: &str) -> AgentName {
        text.parse().unwrap()
    }

    fn office(root: &Path) -> DirOffice {
        DirOffice::open(root, DirOptions { layout: Some(Layout::Nanobot), ..DirOptions::default() }).unwrap()
    }

    /// Returns how many hints a mailbox has had. The kernel delivers events in order, so an event of another directory
    /// in the same queue shows that all earlier ones were counted.
    async fn hints(mailbox: &DirMailbox) -> u64 {
        let elsewhere = tempfile::tempdir().unwrap();
        let mut last = mailbox.agent_dir.shared.watch.directory(elsewhere.path()).unwrap();
        fs_err::write(elsewhere.path().join("last"), "").unwrap();
        tokio::time::timeout(Duration::from_secs(60), last.changed()).await.unwrap().unwrap();
        mailbox.changes().await.unwrap().iter().map(|change| *change.borrow()).sum()
    }

    #[tokio::test]
    async fn mail_whose_claim_is_released_is_found_long_before_the_next_poll() {
        let dir = tempfile::tempdir().unwrap();
        let slow = DirOptions {
            layout: Some(Layout::Nanobot),
            poll_interval: Duration::from_secs(3_600),
            ..DirOptions::default()
        };
        let holder = office(dir.path()).mailbox(name("ben"));
        holder.register(Card::default()).await.unwrap();
        holder.send(Draft::text(name("ben"), "Plan", "hello")).await.unwrap();
        let held = holder.claim(ClaimRequest::default()).await.unwrap().remove(0).id;
        let waiter = DirOffice::open(dir.path(), slow).unwrap().mailbox(name("ben"));
        let never = std::future::pending();
        let waiting = waiter.claim_or_wait(ClaimRequest::default(), Duration::from_secs(60), never);
        let mut waiting = std::pin::pin!(waiting);
        // It has tried in vain before the claim is released.
        assert!(tokio::time::timeout(Duration::from_millis(100), &mut waiting).await.is_err());
        holder.release(&[held]).await.unwrap();
        assert_eq!(waiting.await.unwrap().len(), 1);
    }

    #[tokio::test]
    async fn a_waiting_consumer_is_not_woken_by_its_own_claim_attempts() {
        let dir = tempfile::tempdir().unwrap();
        let (holder, waiter) = (office(dir.path()).mailbox(name("ben")), office(dir.path()).mailbox(name("ben")));
        holder.register(Card::default()).await.unwrap();
        holder.send(Draft::text(name("ben"), "Plan", "hello")).await.unwrap();
        assert_eq!(holder.claim(ClaimRequest::default()).await.unwrap().len(), 1);
        assert!(waiter.claim(ClaimRequest::default()).await.unwrap().is_empty(), "the first ingest logs the message");
        hints(&waiter).await;
        let before = hints(&waiter).await;
        for _ in 0..5 {
            assert!(waiter.claim(ClaimRequest::default()).await.unwrap().is_empty());
        }
        assert_eq!(hints(&waiter).await - before, 0, "an ingest that finds nothing new wakes nobody");
    }
}
