//! `amb inbox`: the caller's sessions, with previews.

use crate::args::OfficeArgs;
use crate::failure::Failure;
use crate::output::Output;
use crate::output::{ago, preview};

/// Show your sessions, newest first, and who wants to connect; marks nothing as read
#[derive(Debug, clap::Args)]
#[command(after_help = "Example:\n  amb --as ben inbox --unread")]
pub(crate) struct Inbox {
    /// Only sessions with unread mail
    #[arg(long)]
    unread: bool,
}

impl Inbox {
    pub(crate) async fn run(self, office: &OfficeArgs, output: Output) -> Result<(), Failure> {
        let inbox = office.open().await?.inbox(self.unread).await?;
        if output.json {
            return Ok(output.document(&inbox)?);
        }
        if inbox.sessions.is_empty() && inbox.pending_connections.is_empty() {
            output.note(if self.unread { "nothing unread" } else { "no mail" });
        }
        if !inbox.sessions.is_empty() {
            let rows = inbox.sessions.iter().map(|session| {
                let last = session.recent_messages.first();
                let last = last.map_or(String::new(), |m| format!("{}: {}", m.sender_name, preview(&m.content, 50)));
                vec![
                    session.session_id.to_string(),
                    session.other_agent_name.to_string(),
                    session.unread_count.to_string(),
                    ago(session.last_message_at),
                    preview(&session.subject, 30),
                    last,
                ]
            });
            output.table(&["SESSION", "WITH", "UNREAD", "LAST", "SUBJECT", "PREVIEW"], rows)?;
        }
        if !inbox.pending_connections.is_empty() {
            let rows = inbox.pending_connections.iter().map(|asked| {
                let code = asked.verification_code.clone().unwrap_or_else(|| "(ask them)".into());
                let intro = asked.message.as_deref().unwrap_or_default();
                vec![asked.from_agent_name.to_string(), code, ago(asked.created_at), preview(intro, 60)]
            });
            output.table(&["WANTS TO CONNECT", "CODE", "ASKED", "SAYS"], rows)?;
        }
        Ok(())
    }
}
