//! `amb inbox`: the caller's sessions, with previews.

use amb_core::{Mailbox, doc};

use crate::args::OfficeArgs;
use crate::codes::Codes;
use crate::failure::Failure;
use crate::ids::Short;
use crate::last;
use crate::output::{Output, ago, preview};

/// List your sessions, newest first, and pending connection requests
///
/// A session is a conversation with an agent or a group on one subject. Does not mark messages as read.
#[derive(Debug, clap::Args)]
#[command(after_help = "Example:\n  amb --as ben inbox --unread")]
pub(crate) struct InboxCommand {
    /// Only sessions with unread mail
    #[arg(long)]
    unread: bool,
    #[command(flatten)]
    codes: Codes,
}

impl InboxCommand {
    pub(crate) async fn run(self, office: &OfficeArgs, output: Output) -> Result<(), Failure> {
        let mailbox = office.open().await?;
        let inbox = self.whole(&*mailbox).await?;
        if inbox.sessions.is_empty() {
            office.warn_if_unknown(&*mailbox, output).await;
        }
        let hidden = !self.codes.are_shown(output);
        if output.json {
            return Ok(output.document(&inbox)?);
        }
        if inbox.sessions.is_empty() && inbox.pending_connections.is_empty() {
            output.note(if self.unread { "nothing unread" } else { "no mail" });
        }
        let unread = inbox.sessions.iter().find(|session| session.unread_count > 0);
        if let Some(newest) = unread.or(inbox.sessions.first()) {
            // `amb reply` answers the newest unread session, since one's own message needs no answer.
            last::record(&*mailbox, &newest.session_id);
            let ids = inbox.sessions.iter().map(|session| session.session_id.as_str());
            let short = Short::of(ids, output.for_person);
            let rows = inbox.sessions.iter().map(|session| {
                // Programs that read the text get the subject as it is.
                let title = if output.for_person { session.title() } else { session.subject.as_str().into() };
                let last = session.recent_messages.first();
                let last = last.map_or(String::new(), |m| format!("{}: {}", m.sender_name, preview(&m.content, 50)));
                vec![
                    short.show(session.session_id.as_str()),
                    session.other_agent_name.to_string(),
                    session.unread_count.to_string(),
                    ago(session.last_message_at),
                    preview(&title, 30),
                    last,
                ]
            });
            output.table(&["SESSION", "WITH", "UNREAD", "LAST", "SUBJECT", "PREVIEW"], rows)?;
        }
        if !inbox.pending_connections.is_empty() {
            let rows = inbox.pending_connections.iter().map(|asked| {
                let code = match &asked.verification_code {
                    None => "(ask them)",
                    Some(_) if hidden => "(hidden)",
                    Some(code) => code,
                };
                let intro = asked.message.as_deref().unwrap_or_default();
                vec![asked.from_agent_name.to_string(), code.to_owned(), ago(asked.created_at), preview(intro, 60)]
            });
            output.table(&["WANTS TO CONNECT", "CODE", "ASKED", "SAYS"], rows)?;
            if hidden && inbox.pending_connections.iter().any(|asked| asked.verification_code.is_some()) {
                output.note("a person sees the codes with `amb inbox --show-codes`, or in a terminal");
            }
        }
        Ok(())
    }

    /// All pages: a server returns the newest sessions and the cursor of the others.
    async fn whole(&self, mailbox: &dyn Mailbox) -> Result<doc::Inbox, Failure> {
        let mut inbox = mailbox.inbox(self.unread).await?;
        while let Some(next) = inbox.next.take() {
            let page = mailbox.inbox_after(self.unread, &next).await?;
            inbox.sessions.extend(page.sessions);
            inbox.next = page.next;
        }
        Ok(inbox)
    }
}
