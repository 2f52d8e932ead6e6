//! The transcripts under one root.

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
use async_trait::async_trait;
use parking_lot::Mutex;

use super::append::Appender;
use super::follow::{Follow, follow};
use super::{owner, recent};
use crate::files::durable::make_dir;
use crate::files::failure::IoContext as _;
use crate::files::syncer::Syncer;
use crate::files::watch::DirectoryWatch;

/// Transcripts kept open for appending; above this, idle ones are closed.
const MAX_OPEN: usize = 128;
/// Error context of appends.
const WRITING: &str = "the line was not written";
/// Error context of reads.
pub(super) const READING: &str = "the transcript cannot be read";

/// The transcripts under one root. Clones share their open files.
#[derive(Debug, Clone)]
pub struct TranscriptStore {
    root: Arc<PathBuf>,
    syncer: Arc<Syncer>,
    watch: Arc<DirectoryWatch>,
    appenders: Arc<Mutex<HashMap<TranscriptKey, Arc<Appender>>>>,
}

/// Result of [`TranscriptStore::append_if_group`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum AppendOutcome {
    /// The line is durable.
    Written,
    /// Nothing was written: the chat is not a group.
    Skipped,
}

/// A source of a chat's history other than the transcript, usually the chat service.
#[async_trait]
pub trait HistorySource: Send + Sync {
    /// Returns the last `limit` lines of the chat, oldest first, each message once.
    async fn recent(&self, key: &TranscriptKey, limit: usize) -> Result<Vec<Line>, OfficeError>;
}

impl TranscriptStore {
    /// Opens the transcripts under `root`, which is created, for this user alone, if missing.
    pub fn open(root: impl Into<PathBuf>) -> Result<Self, OfficeError> {
        let root = root.into();
        let syncer = Arc::new(Syncer::default());
        make_dir(&root, &syncer).context("could not make the directory of the transcripts")?;
        Ok(Self { root: Arc::new(root), syncer, watch: Arc::default(), appenders: Arc::default() })
    }

    /// Appends a line, durably. A line without a time gets the current one. It is written even if the caller stops
    /// waiting.
    pub async fn append(&self, key: &TranscriptKey, line: Line) -> Result<(), OfficeError> {
        let line = checked(line)?;
        let bytes = wire::write(&line).map_err(OfficeError::internal)?;
        let appender = self.appender(key).await?;
        appender.append(bytes).await.map_err(|error| io::Error::new(error.kind(), error)).context(WRITING)
    }

    /// Appends a line if the chat is a group; private chats are not recorded.
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

    /// Returns the last lines, oldest first, at most [`MAX_TRANSCRIPT_LINES`]. See the module for the bounds.
    pub async fn recent(&self, key: &TranscriptKey, limit: usize) -> Result<Vec<Line>, OfficeError> {
        let (root, key, limit) = (Arc::clone(&self.root), key.clone(), limit.min(MAX_TRANSCRIPT_LINES));
        let read = tokio::task::spawn_blocking(move || recent::recent(&root, &key, limit)).await;
        read.map_err(OfficeError::internal)?.context(READING)
    }

    /// Returns the last lines or, if the transcript is empty, those of the fallback.
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

    /// Follows the lines appended from now on, by any process, each once.
    pub async fn follow(&self, key: &TranscriptKey) -> Result<Follow, OfficeError> {
        Ok(self.recent_and_follow(key, 0).await?.1)
    }

    /// Returns the last lines, and follows those after them without a gap or repetition.
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
        let path = claimed.map_err(OfficeError::internal)?.context(WRITING)?;
        let mut appenders = self.appenders.lock();
        if appenders.len() >= MAX_OPEN {
            appenders.retain(|_, appender| Arc::strong_count(appender) > 1);
        }
        Ok(Arc::clone(
            appenders.entry(key.clone()).or_insert_with(|| Arc::new(Appender::new(path, Arc::clone(&self.syncer)))),
        ))
    }
}

/// Checks the bounds of a line, and sets its time.
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
