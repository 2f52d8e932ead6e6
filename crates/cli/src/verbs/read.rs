//! `amb read`: a conversation.

use amb_core::doc::MessageView;
use amb_core::mailbox::HistoryPage;
use amb_core::{Kind, MessageId, Part, Priority, SessionId, limits};

use crate::args::OfficeArgs;
use crate::failure::Failure;
use crate::output::Output;
use crate::output::visible;

/// Read a session, and mark what is shown as read
#[derive(Debug, clap::Args)]
#[command(after_help = "Example:\n  amb --as ben read 0199c0de-... --limit 50")]
pub(crate) struct Read {
    /// The session, as `amb inbox` shows it
    session: SessionId,
    /// How many messages, the newest
    #[arg(long, value_name = "N", default_value_t = 20, value_parser = clap::value_parser!(u32).range(1..=i64::from(limits::MAX_HISTORY)))]
    limit: u32,
    /// Only messages before this one
    #[arg(long, value_name = "ID")]
    before: Option<MessageId>,
}

impl Read {
    pub(crate) async fn run(self, office: &OfficeArgs, output: Output) -> Result<(), Failure> {
        let page = HistoryPage { limit: self.limit, before: self.before };
        let history = office.open().await?.read(&self.session, page).await?;
        if output.json {
            return Ok(output.document(&history)?);
        }
        output.say(format!("# {}", visible(&history.subject)))?;
        for message in history.messages.iter().rev() {
            output.say(format!("\n{}", heading(message)))?;
            output.say(body(&message.content, &message.parts))?;
        }
        Ok(())
    }
}

fn heading(message: &MessageView) -> String {
    let mut line = format!("{}  {}  {}", message.sender_name, message.created_at, message.id);
    if message.kind != Kind::Message {
        line.push_str(&format!("  [{}]", visible(message.kind.as_str())));
    }
    if let Some(task) = &message.task {
        line.push_str(&format!("  task {} is {}", task.id, task.state));
    }
    if message.priority != Priority::Normal {
        line.push_str(&format!("  {}", message.priority));
    }
    line
}

/// The content, each line set in and nothing in it able to drive the terminal.
pub(crate) fn body(content: &str, parts: &[Part]) -> String {
    let mut lines: Vec<String> = content.lines().map(|line| format!("    {}", visible(line))).collect();
    for part in parts {
        match part {
            Part::Text { .. } => {}
            Part::Data { data } => lines.push(format!("    data: {}", visible(&data.to_string()))),
            Part::File { path, .. } => lines.push(format!("    file: {}", visible(path))),
        }
    }
    lines.join("\n")
}
