//! `amb reply`: answers in the last conversation.

use amb_core::doc::{MessageView, SessionSummary};
use amb_core::{AgentName, Draft, OfficeError};

use crate::args::OfficeArgs;
use crate::failure::Failure;
use crate::input::ComposedText;
use crate::output::{Output, preview};
use crate::verbs::send::in_subject;
use crate::{ids, last};

/// Reply in the conversation that was shown last
///
/// This is the conversation that `amb read`, `amb chat`, `amb watch` or `amb inbox` (its newest with unread mail)
/// showed last, otherwise the one with the most recently received mail. Prints the recipient.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  amb read ann
  amb reply 'yes, go on'
  amb reply --to ben 'no'
  git diff | amb reply")]
pub(crate) struct ReplyCommand {
    /// Text of the message; - reads stdin [default: stdin, or your editor ($EDITOR) if stdin is a terminal]
    text: Option<String>,
    /// Reply in another conversation: an agent's name, a session id or a unique prefix of one
    #[arg(long, value_name = "WHOM")]
    to: Option<String>,
}

impl ReplyCommand {
    pub(crate) async fn run(self, office: &OfficeArgs, output: Output) -> Result<(), Failure> {
        let mailbox = office.open().await?;
        let inbox = ids::whole_inbox(&*mailbox).await?;
        let me = mailbox.me();
        let session = match &self.to {
            Some(wanted) => Some(ids::session(&*mailbox, wanted).await?),
            None => last::session(&*mailbox),
        };
        let open = || inbox.sessions.iter().filter(|session| session.ended_by.is_none());
        let shown = session.and_then(|id| inbox.sessions.iter().find(|session| session.session_id == id));
        // After an ended conversation another one with the same agent, and with no other: the reply is meant for it.
        let shown = shown.map(|shown| match &self.to {
            Some(id) if !ids::is_with(shown, id) => shown,
            _ if shown.ended_by.is_none() => shown,
            _ => open().find(|session| is_same_party(session, shown)).unwrap_or(shown),
        });
        let received_at = |session: &&SessionSummary| last_received(session, me).map(|message| message.created_at);
        let newest = open().filter(|session| received_at(session).is_some()).max_by_key(received_at);
        let session = shown
            .or(newest)
            .ok_or_else(|| OfficeError::not_found("no conversation to answer in; `amb send AGENT TEXT` begins one"))?;
        let with = session.group.clone().unwrap_or_else(|| session.other_agent_name.to_string());
        let hint = format!("to {with}, in {:?}", preview(&session.title(), 60));
        let composed = ComposedText::read(self.text.as_deref(), &hint)?;
        let draft = Draft {
            session: Some(session.session_id.clone()),
            subject: None,
            reply_to: last_received(session, me).map(|message| message.id.clone()),
            ..Draft::text(with.parse().map_err(OfficeError::from)?, "", composed.text.as_str())
        };
        let sent = match mailbox.send(draft).await {
            Ok(sent) => sent,
            Err(error) => {
                composed.draft_hint().into_iter().for_each(|hint| output.note(hint));
                return Err(error.into());
            }
        };
        composed.discard_draft();
        output.result(&sent, format!("sent to {with}{}", in_subject(&session.subject)))?;
        if let Some(other) = newest.filter(|newest| newest.unread_count > 0 && newest.session_id != session.session_id)
        {
            let from = &other.other_agent_name;
            output.note(format!("{from} wrote too, and you have not read it: `amb read {from}`"));
        }
        Ok(())
    }
}

/// Whether both conversations are with the same agent, or in the same group.
fn is_same_party(one: &SessionSummary, other: &SessionSummary) -> bool {
    one.group == other.group && one.other_agent_name == other.other_agent_name
}

/// The newest message of the session from another agent.
fn last_received<'a>(session: &'a SessionSummary, me: &AgentName) -> Option<&'a MessageView> {
    session.recent_messages.iter().find(|message| message.sender_name != *me)
}
