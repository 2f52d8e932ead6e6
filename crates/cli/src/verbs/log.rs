//! `amb log`: what happened, and what happens.

use std::sync::Arc;
use std::time::Duration;

use amb_core::event::Event;
use amb_core::mailbox::Mailbox;
use amb_core::{AgentName, Cursor, Timestamp};
use amb_dir::DirOptions;
use serde::Serialize;

use crate::args::OfficeArgs;
use crate::failure::Failure;
use crate::output::{Output, ago, preview, span, visible};
use crate::table::Tone;
use crate::verbs::chat::follow;
use crate::verbs::watch::interrupted;

/// Pages of one log that are read for what happened before; what is older is left out.
const MOST_PAGES: usize = 200;
/// Mailboxes of a directory that are followed.
const MOST_MAILBOXES: usize = 200;

/// Show what happened, oldest first, and with --follow what happens
///
/// In a directory without --as: in everybody's mailbox. At a server: in yours. Messages, tasks and their updates, receipts,
/// requests for connections. Marks nothing as read.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  amb log --since 1h
  amb log --follow --agent codex
  amb --dir mail log --follow --kind task --kind task_update
  amb log --json --limit 100")]
pub(crate) struct Log {
    /// Only what has to do with this agent; repeat for more
    #[arg(long = "agent", value_name = "NAME")]
    agents: Vec<AgentName>,
    /// Only this kind: message, task, task_update, receipt, connection, or a label such as work_assignment; repeat for more
    #[arg(long = "kind", value_name = "KIND")]
    kinds: Vec<String>,
    /// Only what happened since then: a time (2026-12-01T12:00:00Z) or a span (90m, 2h, 3d)
    #[arg(long, value_name = "T", value_parser = since)]
    since: Option<Timestamp>,
    /// The last so many
    #[arg(long, value_name = "N", default_value_t = 20)]
    limit: usize,
    /// Go on with what happens, until interrupted
    #[arg(short, long)]
    follow: bool,
}

fn since(text: &str) -> Result<Timestamp, String> {
    if let Ok(moment) = text.parse() {
        return Ok(moment);
    }
    let before = span(text).and_then(|span| Timestamp::now().checked_sub(span).ok());
    before.ok_or_else(|| "a time such as 2026-12-01T12:00:00Z, or a span such as 90m, 2h or 3d".into())
}

/// One thing that happened, and to whom.
#[derive(Debug, Serialize)]
struct Line {
    /// In whose mailbox.
    agent: AgentName,
    #[serde(flatten)]
    event: Event,
}

impl Line {
    fn kind(&self) -> &str {
        match &self.event {
            Event::NewMessage(mail) => mail.kind.as_str(),
            Event::Receipt { .. } => "receipt",
            Event::TaskOverdue { .. } => "task_overdue",
            Event::HouseholdChanged { .. } => "household",
            _ => "connection",
        }
    }

    /// The other one of the two whom it concerns.
    fn other(&self) -> &AgentName {
        match &self.event {
            Event::NewMessage(mail) => &mail.from_agent,
            Event::ConnectionRequest { from_agent, .. } => from_agent,
            Event::ConnectionApproved { connected_agent, .. } => connected_agent,
            Event::ConnectionChanged { agent, .. } | Event::HouseholdChanged { agent, .. } => agent,
            Event::Receipt { receipt, .. } => &receipt.recipient,
            Event::TaskOverdue { task } if task.owner == self.agent => &task.assignee,
            Event::TaskOverdue { task } => &task.owner,
        }
    }

    /// When, where that is known.
    fn at(&self) -> Option<Timestamp> {
        match &self.event {
            Event::NewMessage(mail) => Some(mail.created_at),
            Event::Receipt { receipt, .. } => receipt.read_at.or(receipt.delivered_at).or(Some(receipt.queued_at)),
            Event::TaskOverdue { task } => Some(task.updated_at),
            _ => None,
        }
    }

    fn text(&self, output: Output) -> String {
        let when = self.at().map_or_else(|| "          ".to_owned(), |at| format!("{:>10}", ago(at)));
        let name = |name: &AgentName| output.paint(Tone::Strong, name.as_str());
        let (me, other) = (name(&self.agent), name(self.other()));
        let what = match &self.event {
            Event::NewMessage(mail) => {
                let state = mail.task.as_ref().map(|task| task.state.to_string());
                let state =
                    state.map_or(String::new(), |state| format!(" {}", output.paint(Tone::of_state(&state), &state)));
                let kind = match mail.kind.as_str() {
                    "message" => String::new(),
                    kind => format!("  [{}{state}]", visible(kind)),
                };
                let (subject, text) = (preview(&mail.subject, 30), preview(&mail.content, 60));
                format!("{other} → {me}{kind}  {}: {}", visible(&subject), visible(&text))
            }
            Event::ConnectionRequest { .. } => format!("{other} asks {me} for a connection"),
            Event::ConnectionApproved { .. } => format!("{other} approved {me}'s request"),
            Event::ConnectionChanged { status, .. } => format!("{me} and {other}: {}", status.as_str()),
            Event::HouseholdChanged { change, .. } => format!("{other} {} the household of {me}", change.as_str()),
            Event::Receipt { receipt, .. } => {
                let state = format!("{:?}", receipt.state).to_lowercase();
                output.paint(Tone::Quiet, &format!("{} → {}  {state}", self.agent, receipt.recipient))
            }
            Event::TaskOverdue { task } => {
                let overdue = output.paint(Tone::Bad, "overdue");
                format!("task of {} for {} is {overdue}", task.owner, task.assignee)
            }
        };
        format!("{}  {what}", output.paint(Tone::Quiet, &when))
    }
}

impl Log {
    pub(crate) async fn run(self, office: &OfficeArgs, output: Output) -> Result<(), Failure> {
        let mailboxes = mailboxes(office, output).await?;
        let (mut lines, mut places) = (Vec::new(), Vec::new());
        for mailbox in &mailboxes {
            places.push(self.before(mailbox, &mut lines).await?);
        }
        lines.sort_by_key(Line::at);
        let begin = lines.len().saturating_sub(self.limit);
        if lines.is_empty() && !self.follow {
            output.note("nothing happened");
        }
        lines[begin..].iter().try_for_each(|line| show(line, output))?;
        if !self.follow {
            return Ok(());
        }
        tokio::select! {
            ended = self.live(mailboxes, places, output) => ended,
            interrupted = interrupted() => Ok(interrupted?),
        }
    }

    /// What is in the log of a mailbox already. Returns where it ends.
    async fn before(&self, mailbox: &Arc<dyn Mailbox>, lines: &mut Vec<Line>) -> Result<Cursor, Failure> {
        let end = mailbox.events(None, Duration::ZERO).await?.cursor;
        let mut cursor = Cursor::from(0);
        for _ in 0..MOST_PAGES {
            let page = mailbox.events(Some(cursor), Duration::ZERO).await?;
            if page.events.is_empty() {
                return Ok(page.cursor);
            }
            cursor = page.cursor;
            let all = page.events.into_iter().map(|entry| Line { agent: mailbox.me().clone(), event: entry.event });
            lines.extend(all.filter(|line| self.wants(line)));
            // Only the last of them are shown.
            if lines.len() > self.limit.saturating_mul(4).max(1_000) {
                lines.sort_by_key(Line::at);
                lines.drain(..lines.len() - self.limit.max(1));
            }
        }
        Ok(end)
    }

    async fn live(&self, mailboxes: Vec<Arc<dyn Mailbox>>, places: Vec<Cursor>, output: Output) -> Result<(), Failure> {
        let (told, mut lines) = tokio::sync::mpsc::channel(64);
        for (mailbox, place) in mailboxes.into_iter().zip(places) {
            let (told, agent) = (told.clone(), mailbox.me().clone());
            let mut events = follow(mailbox, place, output);
            tokio::spawn(async move {
                while let Some(event) = events.recv().await {
                    let line = event.map(|event| Line { agent: agent.clone(), event });
                    if told.send(line).await.is_err() {
                        return;
                    }
                }
            });
        }
        drop(told);
        while let Some(line) = lines.recv().await {
            let line = line?;
            if self.wants(&line) {
                show(&line, output)?;
            }
        }
        Ok(())
    }

    fn wants(&self, line: &Line) -> bool {
        let about = |name: &AgentName| *name == line.agent || name == line.other();
        (self.agents.is_empty() || self.agents.iter().any(about))
            && (self.kinds.is_empty() || self.kinds.iter().any(|kind| kind == line.kind()))
            && self.since.is_none_or(|since| line.at().is_none_or(|at| at >= since))
    }
}

fn show(line: &Line, output: Output) -> Result<(), Failure> {
    match output.json {
        true => output.line_of(line)?,
        false => output.say(line.text(output))?,
    }
    Ok(())
}

/// The mailboxes that the caller may see: in a directory everybody's, unless one is named.
async fn mailboxes(office: &OfficeArgs, output: Output) -> Result<Vec<Arc<dyn Mailbox>>, Failure> {
    if office.server.is_some() || office.me.is_some() {
        return Ok(vec![office.open().await?]);
    }
    let directory = office.directory(DirOptions::default())?;
    let agents = office.open_to_look().await?.agents().await?;
    if agents.len() > MOST_MAILBOXES {
        output.note(format!("the first {MOST_MAILBOXES} of {} mailboxes are shown; --as NAME shows one", agents.len()));
    }
    let all = agents.into_iter().take(MOST_MAILBOXES);
    Ok(all.map(|agent| Arc::new(directory.mailbox(agent.name)) as Arc<dyn Mailbox>).collect())
}
