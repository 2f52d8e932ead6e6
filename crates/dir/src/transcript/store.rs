//! The verbs of a transcript.

use std::collections::HashMap;
use std::io;
use std::path::PathBuf;
use std::sync::Arc;

use amb_core::limits::{
    MAX_ID_CHARS, MAX_KIND_CHARS, MAX_TRANSCRIPT_CHARS, MAX_TRANSCRIPT_KEY_CHARS, MAX_TRANSCRIPT_LINES,
};
use amb_core::transcript::{Line, TranscriptKey};
use amb_core::wire::transcript as wire;
use amb_core::{OfficeError, Timestamp};
use parking_lot::Mutex;
use serde::{Deserialize, Serialize};

use super::append::Appender;
use super::follow::{Follow, follow};
use super::history::HistorySource;
use super::{owner, recent};
use crate::files::durable::make_dir;
use crate::files::failure::Doing as _;
use crate::files::syncer::Syncer;
use crate::files::watch::DirectoryWatch;

/// Transcripts kept open for appending; beyond that, those nobody writes to at the moment are closed.
const MAX_OPEN: usize = 128;
/// What failed, before the colon.
const WRITING: &str = "the line was not written";
/// The same of reading.
pub(super) const READING: &str = "the transcript cannot be read";

/// The transcripts under one root. Clones share their open files.
#[derive(Debug, Clone)]
pub struct TranscriptStore {
    root: Arc<PathBuf>,
    syncer: Arc<Syncer>,
    watch: Arc<DirectoryWatch>,
    appenders: Arc<Mutex<HashMap<TranscriptKey, Arc<Appender>>>>,
}

/// What became of a line.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum AppendOutcome {
    /// It is on the disk.
    Written,
    /// Nothing was written: the chat is not a group.
    Skipped,
}

/// A line as nanobot's `get_recent` returns it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct RecentLine {
    /// `user` or `assistant`.
    pub role: String,
    /// What was said.
    pub content: String,
    /// Who said it.
    pub sender: String,
}

impl From<Line> for RecentLine {
    fn from(line: Line) -> Self {
        Self { role: line.role, content: line.content, sender: line.sender }
    }
}

impl TranscriptStore {
    /// The transcripts under `root`, which is made (for this user alone) if it is not there.
    pub fn open(root: impl Into<PathBuf>) -> Result<Self, OfficeError> {
        let root = root.into();
        let syncer = Arc::new(Syncer::default());
        make_dir(&root, &syncer).doing("could not make the directory of the transcripts")?;
        Ok(Self { root: Arc::new(root), syncer, watch: Arc::default(), appenders: Arc::default() })
    }

    /// Appends a line. It is on the disk when this returns. A line without a time gets the present one.
    ///
    /// Once begun, the line is written even if the caller stops waiting.
    pub async fn append(&self, key: &TranscriptKey, line: Line) -> Result<(), OfficeError> {
        let line = checked(line)?;
        let bytes = wire::write(&line).map_err(OfficeError::internal)?;
        let appender = self.appender(key).await?;
        appender.append(bytes).await.map_err(|error| io::Error::new(error.kind(), error)).doing(WRITING)
    }

    /// Appends a line if the chat is a group; a chat between two is nobody else's business.
    pub async fn append_if_group(
        &self,
        chat_type: &str,
        key: &TranscriptKey,
        line: Line,
    ) -> Result<AppendOutcome, OfficeError> {
        if chat_type != "group" {
            return Ok(AppendOutcome::Skipped);
        }
        self.append(key, line).await.map(|()| AppendOutcome::Written)
    }

    /// The last lines, oldest first; at most [`MAX_TRANSCRIPT_LINES`] of them. See the module for what is looked at.
    pub async fn recent(&self, key: &TranscriptKey, limit: usize) -> Result<Vec<Line>, OfficeError> {
        let (root, key, limit) = (Arc::clone(&self.root), key.clone(), limit.min(MAX_TRANSCRIPT_LINES));
        let read = tokio::task::spawn_blocking(move || recent::recent(&root, &key, limit)).await;
        read.map_err(OfficeError::internal)?.doing(READING)
    }

    /// The last lines in the shape that nanobot puts into a prompt.
    pub async fn get_recent(&self, key: &TranscriptKey, limit: usize) -> Result<Vec<RecentLine>, OfficeError> {
        Ok(self.recent(key, limit).await?.into_iter().map(RecentLine::from).collect())
    }

    /// The last lines, or, where nothing was written yet, those the fallback has.
    pub async fn recent_or_fallback(
        &self,
        key: &TranscriptKey,
        limit: usize,
        fallback: &dyn HistorySource,
    ) -> Result<Vec<Line>, OfficeError> {
        let lines = self.recent(key, limit).await?;
        if !lines.is_empty() || limit == 0 {
            return Ok(lines);
        }
        fallback.recent(key, limit.min(MAX_TRANSCRIPT_LINES)).await
    }

    /// The lines appended from now on, by any process, each once and whole.
    pub async fn follow(&self, key: &TranscriptKey) -> Result<Follow, OfficeError> {
        Ok(self.recent_and_follow(key, 0).await?.1)
    }

    /// The last lines and then all that come after them, with nothing between them lost or repeated.
    pub async fn recent_and_follow(
        &self,
        key: &TranscriptKey,
        limit: usize,
    ) -> Result<(Vec<Line>, Follow), OfficeError> {
        follow(PathBuf::clone(&self.root), key.clone(), limit.min(MAX_TRANSCRIPT_LINES), Arc::clone(&self.watch)).await
    }

    async fn appender(&self, key: &TranscriptKey) -> Result<Arc<Appender>, OfficeError> {
        if let Some(appender) = self.appenders.lock().get(key) {
            return Ok(Arc::clone(appender));
        }
        let (root, wanted, syncer) = (Arc::clone(&self.root), key.clone(), Arc::clone(&self.syncer));
        let claimed = tokio::task::spawn_blocking(move || owner::claim(&root, &wanted, &syncer)).await;
        let path = claimed.map_err(OfficeError::internal)?.doing(WRITING)?;
        let mut appenders = self.appenders.lock();
        if appenders.len() >= MAX_OPEN {
            appenders.retain(|_, appender| Arc::strong_count(appender) > 1);
        }
        Ok(Arc::clone(
            appenders.entry(key.clone()).or_insert_with(|| Arc::new(Appender::new(path, Arc::clone(&self.syncer)))),
        ))
    }
}

/// A line within bounds, with its time.
fn checked(mut line: Line) -> Result<Line, OfficeError> {
    if line.role.is_empty() || line.role.chars().count() > MAX_KIND_CHARS {
        return Err(OfficeError::invalid(format!("a role has 1 to {MAX_KIND_CHARS} characters: user or assistant")));
    }
    if line.sender.chars().count() > MAX_TRANSCRIPT_KEY_CHARS {
        return Err(OfficeError::invalid(format!("a sender has at most {MAX_TRANSCRIPT_KEY_CHARS} characters")));
    }
    if line.content.chars().count() > MAX_TRANSCRIPT_CHARS {
        let detail =
            format!("a line of a transcript has at most {MAX_TRANSCRIPT_CHARS} characters; shorten or split it");
        return Err(OfficeError::too_large(detail));
    }
    line.message_id = line.message_id.filter(|id| !id.is_empty());
    if line.message_id.as_ref().is_some_and(|id| id.chars().count() > MAX_ID_CHARS) {
        return Err(OfficeError::invalid(format!("a message id has at most {MAX_ID_CHARS} characters")));
    }
    match line.ts {
        Some(ts) if !ts.is_finite() => {
            return Err(OfficeError::invalid("the time of a line is a number of milliseconds since 1970"));
        }
        Some(_) => {}
        None => line.ts = Some(Timestamp::now().as_millisecond() as f64),
    }
    Ok(line)
}
