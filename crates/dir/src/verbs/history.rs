//! Reads a session: the messages of both sides, newest first, each once.

use std::collections::HashSet;

use amb_core::doc::{History, MessageView};
use amb_core::limits::MAX_HISTORY;
use amb_core::mailbox::HistoryPage;
use amb_core::{AgentName, Code, MessageId, OfficeError, SessionId};

use crate::files::failure::IoContext;
use crate::log::{Brief, LogLine};
use crate::office::AgentDir;

impl AgentDir {
    /// Returns a page of a session, and marks what it shows as read.
    pub(crate) fn read(&self, session: &SessionId, page: &HistoryPage) -> Result<History, OfficeError> {
        if page.limit == 0 || page.limit > MAX_HISTORY {
            return Err(OfficeError::invalid(format!("limit is 1 to {MAX_HISTORY}, not {}", page.limit)));
        }
        let unlogged = self.unlogged(session)?;
        let mut entries = self.session_entries(session, unlogged)?;
        let Some((first, _, _)) = entries.first() else {
            return Err(OfficeError::not_found(format!("no session {session} of yours; `amb inbox` lists them")));
        };
        let subject = first.subject.clone();
        if let Some(before) = &page.before {
            let at = entries.iter().position(|(brief, _, _)| brief.id == *before);
            let at = at.ok_or_else(|| OfficeError::not_found("`before` names no message of this session"))?;
            entries.drain(..=at);
        }
        let mut found = Vec::new();
        let mut unread = Vec::new();
        for (brief, mailbox, file) in entries {
            if found.len() == page.limit as usize {
                break;
            }
            // Messages that another program has deleted are left out.
            let Some(loaded) = self.shared.load(&mailbox, &file, &brief)? else { continue };
            let received = mailbox == self.me;
            if received && loaded.read_at.is_none() {
                unread.push(brief.id.clone());
            }
            found.push((self.redacted(loaded.message), received, loaded.read_at.is_some()));
        }
        let is_marked = unread.is_empty() || self.mark_shown(&unread)?;
        let is_read = |received, was_read| was_read || (received && is_marked);
        let views =
            found.iter().map(|(message, received, was_read)| MessageView::of(message, is_read(*received, *was_read)));
        let messages = views.collect();
        Ok(History { session_id: session.clone(), subject, messages, truncated: false })
    }

    /// Acknowledges messages that are shown. Returns whether that was possible: on a full or read-only disk they are shown
    /// nevertheless.
    fn mark_shown(&self, ids: &[MessageId]) -> Result<bool, OfficeError> {
        match self.ack(ids) {
            Ok(_) => Ok(true),
            Err(error) if error.code() == Code::Unavailable => {
                tracing::warn!(%error, "messages are shown and stay unread, since they cannot be marked as read");
                Ok(false)
            }
            Err(error) => Err(error),
        }
    }

    /// Returns mail of a session that could not be logged, as on a full disk.
    fn unlogged(&self, session: &SessionId) -> Result<Vec<LogLine>, OfficeError> {
        let index = self.ingest()?;
        let known = index.known.iter().filter(|(_, known)| !known.is_logged() && known.brief.session == *session);
        Ok(known.map(|(file, known)| known.to_line(file)).collect())
    }

    /// Returns all messages of a session, newest first: metadata, recipient's mailbox, and file there.
    fn session_entries(
        &self,
        session: &SessionId,
        unlogged: Vec<LogLine>,
    ) -> Result<Vec<(Brief, AgentName, String)>, OfficeError> {
        let text = serde_json::to_string(session).map_err(OfficeError::internal)?;
        let context = "could not read the log";
        let mut lines = self.shared.log(&self.me).find(&[&text]).context(context)?;
        lines.extend(unlogged);
        let mut entries = Vec::new();
        let mut seen = HashSet::new();
        let mut peers = HashSet::new();
        // The last line about a message counts: earlier ones may have a file name that turned out to be taken.
        for line in lines.into_iter().rev() {
            let Some((brief, mailbox, file)) = line.into_message(&self.me) else { continue };
            if brief.session == *session && seen.insert((mailbox.clone(), brief.id.clone())) {
                peers.insert(brief.peer.clone());
                entries.push((brief, mailbox, file));
            }
        }
        // Messages that the agent sent by other programs are only in the recipients' logs.
        for peer in peers.into_iter().filter(|peer| *peer != self.me) {
            for line in self.shared.log(&peer).find(&[&text]).context(context)? {
                if let LogLine::In { f, brief, withheld: None, .. } = line
                    && brief.peer == self.me
                    && brief.session == *session
                    && !self.shared.is_hidden_update(&self.me, &brief)?
                    && seen.insert((peer.clone(), brief.id.clone()))
                {
                    entries.push((brief, peer.clone(), f));
                }
            }
        }
        entries.sort_by(|a, b| (b.0.at, &b.2).cmp(&(a.0.at, &a.2)));
        Ok(entries)
    }
}
