//! `amb read`: a conversation.

use amb_core::doc::MessageView;
use amb_core::mailbox::HistoryPage;
use amb_core::message::NO_SUBJECT;
use amb_core::{Kind, Part, Priority, limits};

use crate::args::OfficeArgs;
use crate::failure::Failure;
use crate::ids::{self, Short};
use crate::last;
use crate::output::{Output, ago, visible};
use crate::table::Tone;

/// Read a session, and mark what is shown as read
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  amb read                                  what came last and is not read yet
  amb read ann                              the newest conversation with ann
  amb --as ben read 0199c0de --limit 50     by the beginning of its id, as `amb inbox` shows it")]
pub(crate) struct ReadCommand {
    /// The agent whose newest session it is, or the session, or a unique prefix of its id. Without it, the
    /// newest session with unread mail, else the newest
    #[arg(value_name = "SESSION")]
    session: Option<String>,
    /// How many messages, the newest
    #[arg(long, value_name = "N", default_value_t = 20, value_parser = clap::value_parser!(u32).range(1..=i64::from(limits::MAX_HISTORY)))]
    limit: u32,
    /// Only messages before this one
    #[arg(long, value_name = "ID")]
    before: Option<String>,
}

impl ReadCommand {
    pub(crate) async fn run(self, office: &OfficeArgs, output: Output) -> Result<(), Failure> {
        let mailbox = office.open().await?;
        let session = match &self.session {
            Some(session) => ids::session(&*mailbox, session).await?,
            None => ids::newest_session(&*mailbox).await?,
        };
        let before = ids::optional_message(&*mailbox, self.before.as_deref()).await?;
        let history = mailbox.read(&session, HistoryPage { limit: self.limit, before }).await?;
        if output.json {
            return Ok(output.document(&history)?);
        }
        last::record(&*mailbox, &session);
        if !(output.for_person && history.subject == NO_SUBJECT) {
            output.say(output.paint(Tone::Strong, &format!("# {}", visible(&history.subject))))?;
        }
        let short = Short::of(history.messages.iter().map(|message| message.id.as_str()), output.for_person);
        for message in history.messages.iter().rev() {
            let line = if output.for_person { title(message, short, output) } else { heading(message) };
            output.say(format!("\n{line}"))?;
            let mut lines = body(&message.content, &message.parts).into_iter();
            lines.try_for_each(|line| output.say(format!("    {}", output.wrap(&line, 4))))?;
        }
        Ok(())
    }
}

/// For a person: a relative time, and shortened ids.
fn title(message: &MessageView, short: Short, output: Output) -> String {
    let name = output.paint(Tone::Strong, message.sender_name.as_str());
    let person = if message.from_person { " (person)" } else { "" };
    let mut line = format!("{name}{person}  {}", ago(message.created_at));
    if message.kind != Kind::Message {
        line.push_str(&format!("  [{}]", visible(message.kind.as_str())));
    }
    if let Some(task) = &message.task {
        let state = task.state.to_string();
        let id = Short::of([task.id.as_str()], true).show(task.id.as_str());
        line.push_str(&format!("  task {id} is {}", output.paint(Tone::of_state(&state), &state)));
    }
    if message.priority != Priority::Normal {
        line.push_str(&format!("  {}", output.paint(Tone::Bad, &message.priority.to_string())));
    }
    line.push_str(&output.paint(Tone::Quiet, &format!("  {}", short.show(message.id.as_str()))));
    line
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

/// The lines of a message, without control sequences for the terminal.
pub(crate) fn body(content: &str, parts: &[Part]) -> Vec<String> {
    content.lines().map(visible).chain(part_lines(parts)).collect()
}

/// One line for each part that is not text.
pub(crate) fn part_lines(parts: &[Part]) -> impl Iterator<Item = String> {
    parts.iter().filter_map(|part| match part {
        Part::Text { .. } => None,
        Part::Data { data } => Some(format!("data: {}", visible(&data.to_string()))),
        Part::File { path, .. } => Some(format!("file: {}", visible(path))),
    })
}
