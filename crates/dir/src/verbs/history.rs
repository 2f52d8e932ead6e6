//! Reads a session: both sides' messages, newest first, each once.

use std::collections::HashSet;

use amb_core::doc::{History, MessageView};
use amb_core::limits::MAX_HISTORY;
use amb_core::mailbox::HistoryPage;
use amb_core::{AgentName, OfficeError, SessionId};

use crate::files::failure::Doing;
use crate::log::index::IndexedMessage;
use crate::log::{Brief, LogLine, PositionedLine};
use crate::office::AgentDir;

impl AgentDir {
    /// Returns a page of a session, and marks what it shows as read.
    pub(crate) fn read(&self, session: &SessionId, page: &HistoryPage) -> Result<History, OfficeError> {
        if page.limit == 0 || page.limit > MAX_HISTORY {
            return Err(OfficeError::invalid(format!("limit is 1 to {MAX_HISTORY}, not {}", page.limit)));
        }
        let shown_only = self.not_entered(session)?;
        let mut entries = self.session_entries(session, shown_only)?;
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
        let mut came = Vec::new();
        for (brief, mailbox, file) in entries {
            if found.len() == page.limit as usize {
                break;
            }
            // What another program has removed is left out.
            let Some(there) = self.shared.load(&mailbox, &file, &brief.id)? else { continue };
            let mine = mailbox == self.me;
            if mine && there.read_at.is_none() {
                came.push(brief.id.clone());
            }
            found.push((self.shown(there.message), mine || there.read_at.is_some()));
        }
        if !came.is_empty() {
            self.ack(&came)?;
        }
        let messages = found.iter().map(|(message, read)| MessageView::of(message, *read)).collect();
        Ok(History { session_id: session.clone(), subject, messages })
    }

    /// Mail of a session that could not be logged, as on a full disk: it can be read all the same.
    fn not_entered(&self, session: &SessionId) -> Result<Vec<PositionedLine>, OfficeError> {
        let index = self.ingest()?;
        let known = index.known.iter().filter(|(_, known)| known.inode == 0 && known.brief.session == *session);
        let line = |(f, known): (&String, &IndexedMessage)| LogLine::In {
            f: f.clone(),
            i: 0,
            brief: known.brief.clone(),
            read: known.read,
            withheld: known.withheld,
        };
        Ok(known.map(|known| PositionedLine { end: 0, line: line(known) }).collect())
    }

    /// Everything in a session, newest first: metadata, recipient's mailbox, and file there.
    fn session_entries(
        &self,
        session: &SessionId,
        not_entered: Vec<PositionedLine>,
    ) -> Result<Vec<(Brief, AgentName, String)>, OfficeError> {
        let text = serde_json::to_string(session).map_err(OfficeError::internal)?;
        let doing = "could not read the log";
        let mut lines = self.shared.log(&self.me).find(&[&text]).doing(doing)?;
        lines.extend(not_entered);
        let mut entries = Vec::new();
        let mut seen = HashSet::new();
        let mut peers = HashSet::new();
        // The last line about a message counts: a name that turned out to be taken is in a line before it.
        for PositionedLine { line, .. } in lines.into_iter().rev() {
            let (brief, mailbox, file) = match line {
                LogLine::In { f, brief, withheld: None, .. } => (brief, self.me.clone(), f),
                LogLine::Out { f, brief } => {
                    let peer = brief.peer.clone();
                    (brief, peer, f)
                }
                _ => continue,
            };
            if brief.session == *session && seen.insert((mailbox.clone(), brief.id.clone())) {
                peers.insert(brief.peer.clone());
                entries.push((brief, mailbox, file));
            }
        }
        // What the agent sent by other programs is in the log of whoever received it.
        for peer in peers.into_iter().filter(|peer| *peer != self.me) {
            for PositionedLine { line, .. } in self.shared.log(&peer).find(&[&text]).doing(doing)? {
                if let LogLine::In { f, brief, withheld: None, .. } = line
                    && brief.peer == self.me
                    && brief.session == *session
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
