//! Events of the log from a cursor on.
//!
//! A cursor is a byte position in the agent's log. Before one is returned, the log is synced up to it: otherwise a
//! power cut could truncate the log, and the reader would miss what is later logged at the same positions.

use std::path::{Path, PathBuf};
use std::time::Duration;

use amb_core::event::{Cursor, Entry, Event, EventPage, NewMessage};
use amb_core::limits::MAX_EVENTS;
use amb_core::{OfficeError, Timestamp};
use tokio::sync::watch;
use tokio::time::Instant;

use crate::files::failure::IoContext;
use crate::log::LogLine;
use crate::office::{AgentDir, DirMailbox};

/// Bytes of the log read at once.
const CHUNK: u64 = 1 << 20;

/// A page of events.
struct LogPage {
    events: Vec<Entry>,
    /// Position to continue at.
    end: u64,
    /// The next deadline of an open task.
    next_deadline: Option<Timestamp>,
}

impl AgentDir {
    /// Returns the end of the log, after ingesting all mail.
    fn end_of_log(&self) -> Result<u64, OfficeError> {
        self.log_overdue_tasks()?;
        self.ingest_all()?;
        let (_, end) = self.shared.log(&self.me).measure().context("could not read the log")?;
        self.sync_log_to(end)?;
        Ok(end)
    }

    /// Adds overdue tasks and new mail to the log. Returns the next deadline of an open task. A reader that does not wait
    /// gets what is in the log, even if the disk is full or read-only.
    fn add_news(&self, waits: bool) -> Result<Option<Timestamp>, OfficeError> {
        if waits {
            let next_deadline = self.log_overdue_tasks()?;
            self.ingest_all()?;
            return Ok(next_deadline);
        }
        if let Err(error) = self.log_overdue_tasks() {
            tracing::warn!(%error, "logging overdue tasks failed; retrying at the next look");
        }
        self.ingest().map(|_| None)
    }

    /// Ingests mail, and fails if some cannot be logged: a reader that waits for entries must get that error.
    fn ingest_all(&self) -> Result<(), OfficeError> {
        match &self.ingest()?.unlogged {
            None => Ok(()),
            Some(why) => Err(OfficeError::unavailable(why.clone())),
        }
    }

    fn sync_log_to(&self, end: u64) -> Result<(), OfficeError> {
        let mut index = self.index.lock();
        if end > index.synced_to {
            self.shared.log(&self.me).sync().context("could not make the log durable")?;
            index.synced_to = end;
        }
        Ok(())
    }

    /// Returns the events after this position.
    fn read_page(&self, since: u64, waits: bool) -> Result<LogPage, OfficeError> {
        let next_deadline = self.add_news(waits)?;
        let log = self.shared.log(&self.me);
        let context = "could not read the log";
        let (_, len) = log.measure().context(context)?;
        if since > len || !log.is_boundary(since).context(context)? {
            return Err(bad_cursor());
        }
        let mut events = Vec::new();
        let mut end = since;
        while events.is_empty() {
            let (lines, next) = log.read(end, CHUNK).context(context)?;
            if next == end {
                break;
            }
            end = next;
            for (line, after) in lines {
                let Some(event) = self.event(line)? else { continue };
                events.push(Entry { event, cursor: after.into() });
                if events.len() == MAX_EVENTS {
                    end = after;
                    break;
                }
            }
        }
        if !events.is_empty() {
            self.sync_log_to(end)?;
        }
        Ok(LogPage { events, end, next_deadline })
    }

    /// Returns the event of a line, if it has one.
    fn event(&self, line: LogLine) -> Result<Option<Event>, OfficeError> {
        Ok(match line {
            LogLine::In { f, brief, read: false, withheld: None, .. } => {
                self.shared.load(&self.me, &f, &brief)?.map(|found| {
                    Event::NewMessage(NewMessage::of(&self.redacted(found.message), brief.session, brief.subject))
                })
            }
            LogLine::Receipt { id, receipt } => Some(Event::Receipt { message_id: id, receipt }),
            LogLine::Overdue { task } => Some(Event::TaskOverdue { task: *task }),
            _ => None,
        })
    }

    /// Returns receivers that change when mail arrives or the log grows.
    fn watch(&self) -> Vec<watch::Receiver<u64>> {
        let paths = &self.shared.paths;
        // Missing directories are not created, since the name may be misspelt: the nearest ancestor is watched instead.
        let nearest = |path: PathBuf| {
            let mut inside = path.ancestors().take_while(|path| path.starts_with(&paths.root));
            inside.find(|path| path.is_dir()).map(Path::to_owned)
        };
        let directories = [nearest(paths.inbox(&self.me)), nearest(paths.state(&self.me))];
        directories.iter().flatten().filter_map(|path| self.shared.watch.directory(path)).collect()
    }
}

impl DirMailbox {
    pub(crate) async fn events_after(&self, since: Option<Cursor>, wait: Duration) -> Result<EventPage, OfficeError> {
        let Some(since) = since else {
            let end = self.run(|agent_dir| agent_dir.end_of_log()).await?;
            return Ok(EventPage { events: Vec::new(), cursor: end.into() });
        };
        let mut from = since.as_number().ok_or_else(bad_cursor)?;
        let give_up = Instant::now() + wait;
        loop {
            // Subscribed before the read, so that what arrives in between is not missed.
            let mut changes = match wait.is_zero() {
                true => Vec::new(),
                false => self.changes().await?,
            };
            let page = self.run(move |agent_dir| agent_dir.read_page(from, !wait.is_zero())).await?;
            if let Some(last) = page.events.last() {
                return Ok(EventPage { cursor: last.cursor.clone(), events: page.events });
            }
            from = page.end;
            if Instant::now() >= give_up {
                return Ok(EventPage { events: Vec::new(), cursor: since });
            }
            let mut until = give_up.min(Instant::now() + self.agent_dir.shared.options.poll_interval);
            if let Some(deadline) = page.next_deadline {
                let left = deadline.duration_since(self.agent_dir.shared.now());
                // Just after the deadline: at the deadline itself the task is not overdue yet.
                let left = Duration::try_from(left).unwrap_or_default() + Duration::from_millis(1);
                until = until.min(Instant::now() + left);
            }
            let _changed_or_timeout = tokio::time::timeout_at(until, any_changed(&mut changes)).await;
        }
    }

    /// Subscribes to arriving mail and the growth of the log.
    pub(crate) async fn changes(&self) -> Result<Vec<watch::Receiver<u64>>, OfficeError> {
        self.run(|agent_dir| Ok(agent_dir.watch())).await
    }
}

fn bad_cursor() -> OfficeError {
    OfficeError::invalid("`since` is not a cursor of this office; leave it out to start at the end")
}

/// Waits until one of them changes; forever if there are none.
pub(crate) async fn any_changed(changes: &mut [watch::Receiver<u64>]) {
    let mut waiting: Vec<_> = changes.iter_mut().map(|change| Box::pin(change.changed())).collect();
    std::future::poll_fn(|context| {
        for change in &mut waiting {
            if let std::task::Poll::Ready(Ok(())) = change.as_mut().poll(context) {
                return std::task::Poll::Ready(());
            }
        }
        std::task::Poll::Pending
    })
    .await;
}
