//! Threads with previews. Costs as much as there is unread and recent mail, however much was ever handled.

use std::collections::HashMap;

use amb_core::doc::{Inbox, MessageView, SessionSummary};
use amb_core::limits::INBOX_PREVIEW;
use amb_core::{AgentName, MessageId, OfficeError, SessionId, Timestamp};

use crate::failure::Doing;
use crate::log::{Brief, Line};
use crate::office::AgentDir;

/// How much of the log counts as recent: several hundred messages.
const RECENT: u64 = 128 << 10;
/// At most this many threads without unread mail are shown.
const READ_THREADS: usize = 50;

/// A thread as it is put together.
struct Thread {
    subject: String,
    peer: AgentName,
    last: Timestamp,
    unread: u64,
    /// When, whose mailbox, which file there, and which message.
    messages: Vec<(Timestamp, AgentName, String, MessageId)>,
}

#[derive(Default)]
struct Threads(HashMap<SessionId, Thread>);

impl Threads {
    fn add(&mut self, brief: &Brief, mailbox: &AgentName, file: &str, unread: bool) {
        let thread = self.0.entry(brief.session.clone()).or_insert_with(|| Thread {
            subject: brief.subject.clone(),
            peer: brief.peer.clone(),
            last: brief.at,
            unread: 0,
            messages: Vec::new(),
        });
        let known = thread.messages.iter().any(|(_, _, _, id)| *id == brief.id);
        if !known {
            thread.unread += u64::from(unread);
            thread.last = thread.last.max(brief.at);
            thread.messages.push((brief.at, mailbox.clone(), file.to_owned(), brief.id.clone()));
        }
    }
}

impl AgentDir {
    /// The agent's threads, the one with the newest message first. Marks nothing as read.
    pub(crate) fn inbox(&self, unread_only: bool) -> Result<Inbox, OfficeError> {
        let mut threads = Threads::default();
        for (file, known) in self.notice()?.known.iter().filter(|(_, known)| known.is_unread()) {
            threads.add(&known.brief, &self.me, file, true);
        }
        let recent = self.shared.log(&self.me).tail(RECENT).doing("could not read the log")?;
        for placed in recent.into_iter().rev() {
            let (brief, mailbox, file) = match &placed.line {
                Line::In { f, brief, withheld: None, .. } => (brief, &self.me, f),
                Line::Out { f, brief } => (brief, &brief.peer, f),
                _ => continue,
            };
            if unread_only && !threads.0.contains_key(&brief.session) {
                continue;
            }
            threads.add(brief, mailbox, file, false);
        }
        let mut threads: Vec<(SessionId, Thread)> = threads.0.into_iter().collect();
        threads.sort_by(|a, b| (b.1.last, &b.0).cmp(&(a.1.last, &a.0)));
        let mut read_threads = 0;
        threads.retain(|(_, thread)| {
            read_threads += usize::from(thread.unread == 0);
            thread.unread > 0 || read_threads <= READ_THREADS
        });
        let mut sessions = Vec::with_capacity(threads.len());
        for (session_id, thread) in threads {
            sessions.extend(self.summary(session_id, thread)?);
        }
        Ok(Inbox { sessions, ..Inbox::default() })
    }

    fn summary(&self, session_id: SessionId, mut thread: Thread) -> Result<Option<SessionSummary>, OfficeError> {
        thread.messages.sort_by(|a, b| (b.0, &b.2).cmp(&(a.0, &a.2)));
        let mut recent_messages = Vec::with_capacity(INBOX_PREVIEW);
        for (_, mailbox, file, id) in thread.messages {
            if recent_messages.len() == INBOX_PREVIEW {
                break;
            }
            // What another program has removed is not shown.
            if let Some(found) = self.shared.load(&mailbox, &file, &id)? {
                recent_messages.push(MessageView::of(&self.shown(found.message), found.read_at.is_some()));
            }
        }
        if recent_messages.is_empty() {
            return Ok(None);
        }
        Ok(Some(SessionSummary {
            session_id,
            subject: thread.subject,
            other_agent_name: thread.peer,
            unread_count: thread.unread,
            last_message_at: thread.last,
            recent_messages,
            group: None,
        }))
    }
}
