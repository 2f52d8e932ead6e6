//! A mailbox as a consumer's loop uses it: waiting for mail to claim, and mail by the names of its files.

use std::path::Path;
use std::time::Duration;

use amb_core::doc::Sent;
use amb_core::limits::MAX_CLAIMED;
use amb_core::mailbox::{ClaimRequest, Mailbox};
use amb_core::route::Hop;
use amb_core::wire::nanobot;
use amb_core::{Backoff, Draft, Message, Object, OfficeError};
use tokio::time::Instant;

use crate::files::layout::Layout;
use crate::files::message_file;
use crate::files::open;
use crate::office::{AgentDir, DirMailbox};

/// The pause before the first repeated look for mail that could not be claimed; it doubles up to the poll interval.
const LOOK_AGAIN: Duration = Duration::from_millis(2);

/// A message that this mailbox holds.
#[derive(Debug, Clone, PartialEq)]
pub struct HeldMail {
    /// The name of its file in the mailbox.
    pub file_name: String,
    /// The message.
    pub message: Message,
    /// The fields of its file, those that we do not know too. What the office decides about (id, sender, times, hops,
    /// callback) is as in [`HeldMail::message`], and there even where the file has no such field.
    pub fields: Object,
}

impl DirMailbox {
    /// Claims mail like [`Mailbox::claim`]; where there is none it waits for some, up to `wait` or until `stop` ends.
    ///
    /// A claim that was begun is finished, so when `stop` ends at the same moment the answer may have mail in it.
    pub async fn claim_or_wait(
        &self,
        request: ClaimRequest,
        wait: Duration,
        stop: impl Future<Output = ()>,
    ) -> Result<Vec<Message>, OfficeError> {
        let give_up = Instant::now().checked_add(wait);
        let poll_interval = self.agent_dir.shared.options.poll_interval;
        let mut stop = std::pin::pin!(stop);
        let mut backoff = Backoff::new(LOOK_AGAIN, poll_interval);
        loop {
            // Subscribed before looking, so that what comes in between is not missed.
            let mut changes = self.changes().await?;
            changes.iter_mut().for_each(|change| change.mark_unchanged());
            let claimed = self.claim(request.clone()).await?;
            if !claimed.is_empty() {
                return Ok(claimed);
            }
            let left = give_up.map(|give_up| give_up.saturating_duration_since(Instant::now()));
            if left.is_some_and(|left| left.is_zero()) {
                return Ok(Vec::new());
            }
            // A claim that another process gave back or took along when it died is announced by nothing, nor is the moment
            // when a sender lets go of the message that it has just announced.
            let again = backoff.pause();
            let pause = left.map_or(again, |left| left.min(again));
            tokio::select! {
                () = &mut stop => return Ok(Vec::new()),
                is_change = self.arrival(&mut changes, pause) => {
                    if is_change {
                        backoff.reset();
                    }
                }
            }
        }
    }

    /// Sends like [`Mailbox::send`], but with no more hops than `within` says and never to anybody in its trace, unless as an
    /// answer: for programs that count hops themselves.
    pub async fn send_within(&self, draft: Draft, within: Hop) -> Result<Sent, OfficeError> {
        self.run(move |agent_dir| agent_dir.send_within(draft, &within)).await
    }

    /// Claims what is unread and free, and returns everything that this mailbox holds then, oldest first; `limit` messages at
    /// most, and never more than [`MAX_CLAIMED`]. What is not acknowledged is returned again the next time.
    pub async fn hold(&self, limit: usize) -> Result<Vec<HeldMail>, OfficeError> {
        self.run(move |agent_dir| {
            agent_dir.check_lives_here()?;
            agent_dir.hold(limit.min(MAX_CLAIMED))
        })
        .await
    }

    /// Acknowledges the unread message in a file of the mailbox. `false` if there is none of this name.
    pub async fn ack_file(&self, file_name: &str) -> Result<bool, OfficeError> {
        let file_name = file_name.to_owned();
        self.run(move |agent_dir| {
            agent_dir.check_lives_here()?;
            let id = agent_dir.ingest()?.known.get(&file_name).map(|known| known.brief.id.clone());
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
            // Handled by another process that did not ask for the claim: it is gone, and that is no failure.
            let Ok(message_file) = message_file::open(paths.layout, &self.me, &path, &file_name) else { continue };
            let mut message = message_file.message;
            self.shared.name_task(&self.me, &mut message, &file_name)?;
            let Some(message) = message_file::known_as(message, &file_name, &id) else { continue };
            let message = self.shown(message);
            let fields = fields_of(paths.layout, &path, &message)?;
            mail.push(HeldMail { file_name, message, fields });
        }
        mail.sort_by(|a, b| (a.message.sent_at, &a.file_name).cmp(&(b.message.sent_at, &b.file_name)));
        mail.truncate(limit);
        Ok(mail)
    }

    fn held_files(&self) -> Result<Vec<(amb_core::MessageId, std::path::PathBuf)>, OfficeError> {
        drop(self.ingest()?);
        let mut claims = self.claims.lock();
        Ok(claims.files())
    }
}

/// The fields of a message's file, with what the office says about it over them.
fn fields_of(layout: Layout, path: &Path, message: &Message) -> Result<Object, OfficeError> {
    let mut fields = match layout {
        Layout::Nanobot => {
            open::bytes(path, message_file::LARGEST).ok().and_then(|bytes| serde_json::from_slice(&bytes).ok())
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

    /// How many hints a mailbox has had. The kernel hands events out in their order, so those of another directory that is
    /// watched by the same queue say that all earlier ones were counted.
    async fn hints(mailbox: &DirMailbox) -> u64 {
        let elsewhere = tempfile::tempdir().unwrap();
        let mut last = mailbox.agent_dir.shared.watch.directory(elsewhere.path()).unwrap();
        last.mark_unchanged();
        fs_err::write(elsewhere.path().join("last"), "").unwrap();
        tokio::time::timeout(Duration::from_secs(60), last.changed()).await.unwrap().unwrap();
        mailbox.changes().await.unwrap().iter().map(|change| *change.borrow()).sum()
    }

    #[tokio::test]
    async fn mail_that_somebody_held_for_a_moment_is_found_long_before_the_next_poll() {
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
        // It has looked, in vain, before the claim is given back.
        assert!(tokio::time::timeout(Duration::from_millis(100), &mut waiting).await.is_err());
        holder.release(&[held]).await.unwrap();
        assert_eq!(waiting.await.unwrap().len(), 1);
    }

    #[tokio::test]
    async fn a_consumer_that_waits_beside_another_is_not_woken_by_its_own_look() {
        let dir = tempfile::tempdir().unwrap();
        let (holder, waiter) = (office(dir.path()).mailbox(name("ben")), office(dir.path()).mailbox(name("ben")));
        holder.register(Card::default()).await.unwrap();
        holder.send(Draft::text(name("ben"), "Plan", "hello")).await.unwrap();
        assert_eq!(holder.claim(ClaimRequest::default()).await.unwrap().len(), 1);
        assert!(waiter.claim(ClaimRequest::default()).await.unwrap().is_empty(), "the first look enters what it sees");
        hints(&waiter).await;
        let before = hints(&waiter).await;
        for _ in 0..5 {
            assert!(waiter.claim(ClaimRequest::default()).await.unwrap().is_empty());
        }
        assert_eq!(hints(&waiter).await - before, 0, "a look that finds nothing new wakes nobody");
    }
}
