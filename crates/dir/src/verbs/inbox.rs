//! Lists sessions with previews. The cost depends on unread and recent mail, not on the whole history.

use std::collections::{HashMap, HashSet};

use amb_core::doc::{Inbox, MessageView, SessionSummary};
use amb_core::limits::INBOX_PREVIEW;
use amb_core::{AgentName, MessageId, OfficeError, SessionId, Timestamp};

use crate::files::failure::IoContext;
use crate::log::Brief;
use crate::office::AgentDir;

/// Bytes of the log that count as recent: several hundred messages.
const RECENT: u64 = 128 << 10;
/// Most sessions without unread mail that are listed.
const READ_SESSIONS: usize = 50;

/// A session under construction.
struct OpenSession {
    subject: String,
    peer: AgentName,
    last: Timestamp,
    unread: u64,
    /// Metadata, recipient's mailbox, and file there.
    messages: Vec<(Brief, AgentName, String)>,
    /// The ids of `messages`.
    ids: HashSet<MessageId>,
}

#[derive(Default)]
struct OpenSessions(HashMap<SessionId, OpenSession>);

impl OpenSessions {
    fn add(&mut self, brief: &Brief, mailbox: &AgentName, file: &str, unread: bool) {
        let open = self.0.entry(brief.session.clone()).or_insert_with(|| OpenSession {
            subject: brief.subject.clone(),
            peer: brief.peer.clone(),
            last: brief.at,
            unread: 0,
            messages: Vec::new(),
            ids: HashSet::new(),
        });
        if open.ids.insert(brief.id.clone()) {
            open.unread += u64::from(unread);
            open.last = open.last.max(brief.at);
            open.messages.push((brief.clone(), mailbox.clone(), file.to_owned()));
        }
    }
}

impl AgentDir {
    /// Returns the agent's sessions, the one with the newest message first. Marks nothing as read.
    pub(crate) fn inbox(&self, unread_only: bool) -> Result<Inbox, OfficeError> {
        let mut open_sessions = OpenSessions::default();
        for (file, known) in self.ingest()?.known.iter().filter(|(_, known)| known.is_unread()) {
            open_sessions.add(&known.brief, &self.me, file, true);
        }
        let recent = self.shared.log(&self.me).tail(RECENT).context("could not read the log")?;
        for line in recent.into_iter().rev() {
            let Some((brief, mailbox, file)) = line.into_message(&self.me) else { continue };
            if !unread_only || open_sessions.0.contains_key(&brief.session) {
                open_sessions.add(&brief, &mailbox, &file, false);
            }
        }
        let mut open_sessions: Vec<(SessionId, OpenSession)> = open_sessions.0.into_iter().collect();
        open_sessions.sort_by(|a, b| (b.1.last, &b.0).cmp(&(a.1.last, &a.0)));
        let mut read_sessions = 0;
        open_sessions.retain(|(_, open)| {
            read_sessions += usize::from(open.unread == 0);
            open.unread > 0 || read_sessions <= READ_SESSIONS
        });
        let mut sessions = Vec::with_capacity(open_sessions.len());
        for (session_id, open) in open_sessions {
            sessions.extend(self.summary(session_id, open)?);
        }
        Ok(Inbox { sessions, ..Inbox::default() })
    }

    fn summary(&self, session_id: SessionId, mut open: OpenSession) -> Result<Option<SessionSummary>, OfficeError> {
        open.messages.sort_by(|a, b| (b.0.at, &b.2).cmp(&(a.0.at, &a.2)));
        let mut recent_messages = Vec::with_capacity(INBOX_PREVIEW);
        for (brief, mailbox, file) in open.messages {
            if recent_messages.len() == INBOX_PREVIEW {
                break;
            }
            // Messages that another program has deleted are left out.
            if let Some(found) = self.shared.load(&mailbox, &file, &brief)? {
                recent_messages.push(MessageView::of(&self.redacted(found.message), found.read_at.is_some()));
            }
        }
        if recent_messages.is_empty() {
            return Ok(None);
        }
        Ok(Some(SessionSummary {
            session_id,
            subject: open.subject,
            other_agent_name: open.peer,
            unread_count: open.unread,
            last_message_at: open.last,
            recent_messages,
            group: None,
            ended_by: None,
        }))
    }
}
