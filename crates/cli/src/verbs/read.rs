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

/// Show the messages of a session and mark them as read
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  amb read                                  the newest conversation with unread mail
  amb read ann                              the newest conversation with ann
  amb --as ben read 0199c0de --limit 50     by a prefix of its session id, as shown by `amb inbox`")]
pub(crate) struct ReadCommand {
    /// Agent, for the newest session with it; or session id, or a unique prefix of one [default: the newest session
    /// with unread mail, otherwise the newest]
    #[arg(value_name = "SESSION")]
    session: Option<String>,
    /// Number of messages to show, the newest ones
    #[arg(long, value_name = "N", default_value_t = 20, value_parser = clap::value_parser!(u32).range(1..=i64::from(limits::MAX_HISTORY)))]
    limit: u32,
    /// Only messages before the one with this id
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
        if let Some(last) = history.messages.last().filter(|_| history.truncated) {
            output.note(format!("there are more; `amb read {session} --before {}` shows them", last.id));
        }
        Ok(())
    }
}

/// For a person: a relative time, and shortened ids.
fn title(message: &MessageView, short: Short, output: Output) -> String {
    let name = output.paint(Tone::Strong, message.sender_name.as_str());
    let mut line = format!("{name}{}  {}", person_mark(message), ago(message.created_at));
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

/// For a program: the exact time, and whole ids.
fn heading(message: &MessageView) -> String {
    let mark = person_mark(message);
    let mut line = format!("{}{mark}  {}  {}", message.sender_name, message.created_at, message.id);
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

/// Marks mail from the person of the reader's household.
fn person_mark(message: &MessageView) -> &'static str {
    if message.from_person { " (person)" } else { "" }
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
