//! The log as events, from a cursor on.
//!
//! A cursor is a position in the agent's log, in bytes. Before one is returned, the log up to it is made durable: otherwise a
//! power cut could shorten the log, and the reader would miss what is later logged at the same positions.

use std::path::{Path, PathBuf};
use std::time::Duration;

use amb_core::event::{Cursor, Entry, Event, EventPage, NewMessage};
use amb_core::limits::MAX_EVENTS;
use amb_core::{OfficeError, Timestamp};
use tokio::sync::watch;
use tokio::time::Instant;

use crate::files::failure::Doing;
use crate::log::LogLine;
use crate::office::{AgentDir, DirMailbox};

/// How much of the log is read at once.
const CHUNK: u64 = 1 << 20;

/// A page of events.
struct LogPage {
    events: Vec<Entry>,
    /// Where to go on.
    end: u64,
    /// When the next deadline of a task passes.
    next_deadline: Option<Timestamp>,
}

impl AgentDir {
    /// The present end of the log, after ingesting all mail.
    fn end_of_log(&self) -> Result<u64, OfficeError> {
        self.note_overdue()?;
        self.enter_all()?;
        let (_, end) = self.shared.log(&self.me).measure().doing("could not read the log")?;
        self.make_durable(end)?;
        Ok(end)
    }

    /// Ingests mail, and fails where it cannot be logged: a reader that waits for entries must get that error.
    fn enter_all(&self) -> Result<(), OfficeError> {
        match &self.ingest()?.not_entered {
            None => Ok(()),
            Some(why) => Err(OfficeError::unavailable(why.clone())),
        }
    }

    fn make_durable(&self, end: u64) -> Result<(), OfficeError> {
        let mut index = self.index.lock();
        if end > index.synced_to {
            self.shared.log(&self.me).sync().doing("could not make the log durable")?;
            index.synced_to = end;
        }
        Ok(())
    }

    /// What happened after this position.
    fn look(&self, since: u64) -> Result<LogPage, OfficeError> {
        let next_deadline = self.note_overdue()?;
        self.enter_all()?;
        let log = self.shared.log(&self.me);
        let doing = "could not read the log";
        let (_, len) = log.measure().doing(doing)?;
        if since > len || !log.is_boundary(since).doing(doing)? {
            return Err(OfficeError::invalid(
                "`since` is not a cursor of this office; leave it out to start at the end",
            ));
        }
        let mut events = Vec::new();
        let mut end = since;
        while events.is_empty() {
            let (lines, next) = log.read(end, CHUNK).doing(doing)?;
            if next == end {
                break;
            }
            end = next;
            for placed in lines {
                let Some(event) = self.event(placed.line)? else { continue };
                events.push(Entry { event, cursor: placed.end.into() });
                if events.len() == MAX_EVENTS {
                    end = placed.end;
                    break;
                }
            }
        }
        if !events.is_empty() {
            self.make_durable(end)?;
        }
        Ok(LogPage { events, end, next_deadline })
    }

    /// The event that a line tells of, if it tells of one.
    fn event(&self, line: LogLine) -> Result<Option<Event>, OfficeError> {
        Ok(match line {
            LogLine::In { f, brief, read: false, withheld: None, .. } => {
                self.shared.load(&self.me, &f, &brief.id)?.map(|found| {
                    Event::NewMessage(NewMessage::of(&self.shown(found.message), brief.session, brief.subject))
                })
            }
            LogLine::Receipt { id, receipt } => Some(Event::Receipt { message_id: id, receipt }),
            LogLine::Overdue { task } => Some(Event::TaskOverdue { task: *task }),
            _ => None,
        })
    }

    /// Receivers that change when mail arrives or the log grows.
    fn watch(&self) -> Result<Vec<watch::Receiver<u64>>, OfficeError> {
        let paths = &self.shared.paths;
        // What is not there yet is not made: the name may be misspelt. The nearest that is there changes when it is made.
        let nearest = |path: PathBuf| {
            let mut here = path.ancestors().take_while(|path| path.starts_with(&paths.root));
            here.find(|path| path.is_dir()).map(Path::to_owned)
        };
        let directories = [nearest(paths.inbox(&self.me)), nearest(paths.state(&self.me))];
        Ok(directories.iter().flatten().filter_map(|path| self.shared.watch.directory(path)).collect())
    }
}

impl DirMailbox {
    pub(crate) async fn log_after(&self, since: Option<Cursor>, wait: Duration) -> Result<EventPage, OfficeError> {
        let Some(since) = since else {
            let end = self.run(|agent_dir| agent_dir.end_of_log()).await?;
            return Ok(EventPage { events: Vec::new(), cursor: end.into() });
        };
        let bad = || OfficeError::invalid("`since` is not a cursor of this office; leave it out to start at the end");
        let mut from = since.as_number().ok_or_else(bad)?;
        let give_up = Instant::now() + wait;
        loop {
            // Subscribed before looking, so that what comes in between is not missed.
            let mut changes = match wait.is_zero() {
                true => Vec::new(),
                false => self.run(|agent_dir| agent_dir.watch()).await?,
            };
            changes.iter_mut().for_each(|change| change.mark_unchanged());
            let look = self.run(move |agent_dir| agent_dir.look(from)).await?;
            if let Some(last) = look.events.last() {
                return Ok(EventPage { cursor: last.cursor.clone(), events: look.events });
            }
            from = look.end;
            if Instant::now() >= give_up {
                return Ok(EventPage { events: Vec::new(), cursor: since });
            }
            let mut until = give_up.min(Instant::now() + self.agent_dir.shared.options.poll_interval);
            if let Some(deadline) = look.next_deadline {
                let left = deadline.duration_since(self.agent_dir.shared.now());
                // A little later than the deadline: at its last moment the task is still in time.
                let left = Duration::try_from(left).unwrap_or_default() + Duration::from_millis(1);
                until = until.min(Instant::now() + left);
            }
            let _look_again = tokio::time::timeout_at(until, any(&mut changes)).await;
        }
    }

    /// Waits until mail arrives or the log grows, or until `timeout`; whichever comes first. Returns whether it was a change.
    pub(crate) async fn arrival(&self, changes: &mut [watch::Receiver<u64>], timeout: Duration) -> bool {
        tokio::time::timeout(timeout, any(changes)).await.is_ok()
    }

    pub(crate) async fn changes(&self) -> Result<Vec<watch::Receiver<u64>>, OfficeError> {
        self.run(|agent_dir| agent_dir.watch()).await
    }
}

/// Waits for the first of them to change; for ever if there are none.
async fn any(changes: &mut [watch::Receiver<u64>]) {
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
