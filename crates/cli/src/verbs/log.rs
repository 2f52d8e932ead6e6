//! `amb log`: past and future events.

mod line;

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use amb_client::Client;
use amb_core::doc::HouseholdEntry;
use amb_core::event::Event;
use amb_core::mailbox::Mailbox;
use amb_core::suggest::unknown_agent;
use amb_core::{AgentName, Code, Cursor, Timestamp};
use amb_dir::DirOptions;

use crate::args::OfficeArgs;
use crate::failure::Failure;
use crate::output::{Output, moment};
use crate::signals::interrupted;
use crate::table;
use crate::verbs::chat::follow;
use crate::verbs::watch::retry_outages;
use line::MailboxEvent;

/// The most pages of a household's log that are read for past events.
const MAX_PAGES: usize = 200;
/// The most entries of a server's log that are read for past events; older ones are left out.
const MAX_ENTRIES: u64 = 20_000;
/// The most entries of each member's log that are read for past events of a household.
const MAX_PER_MEMBER: u64 = 1_000;
/// How long one read of the log waits.
const WAIT: Duration = Duration::from_secs(20);
/// The width where there is no terminal.
const COLUMNS: u16 = 120;
/// The most mailboxes of a directory that are followed.
const MAX_MAILBOXES: usize = 200;

/// Show past events, oldest first, and new ones with --follow
///
/// Events are messages, tasks and their updates, receipts and connection requests. Without --as: events of all
/// mailboxes; at a server, those of all members of your household. With --as: events of that agent's mailbox. Does not
/// mark messages as read.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  amb log --since 1h
  amb log --follow --agent codex
  amb --dir mail log --follow --kind task --kind task_update
  amb log --json --limit 100")]
pub(crate) struct LogCommand {
    /// Only events that involve this agent (repeatable)
    #[arg(long = "agent", value_name = "NAME")]
    agents: Vec<AgentName>,
    /// Only events of this kind: message, task, task_update, receipt, connection, or a custom label such as
    /// work_assignment (repeatable)
    #[arg(long = "kind", value_name = "KIND")]
    kinds: Vec<String>,
    /// Only events since this time (2026-12-01T12:00:00Z), or of this last period (90m, 2h, 3d)
    #[arg(long, value_name = "T", value_parser = moment)]
    since: Option<Timestamp>,
    /// Number of past events to show
    #[arg(long, value_name = "N", default_value_t = 20)]
    limit: usize,
    /// Keep printing new events until interrupted
    #[arg(short, long)]
    follow: bool,
}

impl LogCommand {
    pub(crate) async fn run(self, office: &OfficeArgs, output: Output) -> Result<(), Failure> {
        if let Some(person) = person(office).await? {
            match self.household_past(&person).await {
                Ok((lines, place)) => {
                    self.note_unknown(&lines, &person, output).await;
                    self.show_last(lines, output)?;
                    return self.until_interrupted(self.follow_household(&person, place, output)).await;
                }
                // An office of an earlier version does not offer it.
                Err(Failure::Office(error)) if error.code() == Code::NotFound => {}
                Err(error) => return Err(error),
            }
        }
        let mailboxes = mailboxes(office, output).await?;
        let (mut lines, mut places) = (Vec::new(), Vec::new());
        for mailbox in &mailboxes {
            let start = match office.server {
                Some(_) => start_at_server(&**mailbox).await?,
                None => Cursor::from(0),
            };
            places.push(self.past(&**mailbox, start, &mut lines).await?);
        }
        if let Some(mailbox) = mailboxes.first() {
            self.note_unknown(&lines, &**mailbox, output).await;
        }
        self.show_last(lines, output)?;
        self.until_interrupted(self.follow_mailboxes(mailboxes, places, output)).await
    }

    fn show_last(&self, mut lines: Vec<MailboxEvent>, output: Output) -> Result<(), Failure> {
        lines.sort_by_key(|line| line.after);
        let begin = lines.len().saturating_sub(self.limit);
        if lines.is_empty() && !self.follow {
            let is_filtered = !self.agents.is_empty() || !self.kinds.is_empty() || self.since.is_some();
            output.note(if is_filtered { "no matching events" } else { "no events yet" });
        }
        lines[begin..].iter().try_for_each(|line| show(line, output))
    }

    /// Notes that an agent does not exist where the filter by it found nothing: often its name was misspelt.
    async fn note_unknown(&self, lines: &[MailboxEvent], mailbox: &dyn Mailbox, output: Output) {
        if self.agents.is_empty() || !lines.is_empty() {
            return;
        }
        let known = mailbox.agents().await.unwrap_or_default();
        let known: Vec<&str> = known.iter().map(|agent| agent.name.as_str()).collect();
        for name in self.agents.iter().filter(|name| !known.contains(&name.as_str())) {
            output.note(unknown_agent(name.as_str(), known.iter().copied()));
        }
    }

    /// With --follow, shows further events until interrupted.
    async fn until_interrupted(&self, live: impl Future<Output = Result<(), Failure>>) -> Result<(), Failure> {
        if !self.follow {
            return Ok(());
        }
        tokio::select! {
            ended = live => ended,
            interrupted = interrupted() => Ok(interrupted?),
        }
    }

    /// The past events of a household, and the cursor after them.
    async fn household_past(&self, person: &Client) -> Result<(Vec<MailboxEvent>, String), Failure> {
        let mut page = person.household_events(None, MAX_PER_MEMBER, Duration::ZERO).await?;
        let (mut lines, mut clocks) = (Vec::new(), Clocks::default());
        for _ in 0..MAX_PAGES {
            let is_last = page.events.is_empty();
            self.collect(&mut lines, page.events.into_iter().filter_map(|entry| clocks.line_of(entry)));
            if is_last {
                break;
            }
            page = person.household_events(Some(&page.cursor), 0, Duration::ZERO).await?;
        }
        Ok((lines, page.cursor))
    }

    async fn follow_household(&self, person: &Client, mut place: String, output: Output) -> Result<(), Failure> {
        let mut clocks = Clocks::default();
        loop {
            let page = retry_outages(output, || person.household_events(Some(&place), 0, WAIT)).await?;
            place = page.cursor;
            let lines = page.events.into_iter().filter_map(|entry| clocks.line_of(entry));
            let mut lines: Vec<MailboxEvent> = lines.filter(|line| self.matches(line)).collect();
            lines.sort_by_key(|line| line.after);
            lines.iter().try_for_each(|line| show(line, output))?;
        }
    }

    /// Adds the events that match, and drops the oldest ones beyond the limit.
    fn collect(&self, lines: &mut Vec<MailboxEvent>, more: impl Iterator<Item = MailboxEvent>) {
        lines.extend(more.filter(|line| self.matches(line)));
        if lines.len() > self.limit.saturating_mul(4).max(1_000) {
            lines.sort_by_key(|line| line.after);
            lines.drain(..lines.len() - self.limit.max(1));
        }
    }

    /// The past events of a mailbox from this cursor on. Returns the end of its log.
    async fn past(
        &self,
        mailbox: &dyn Mailbox,
        start: Cursor,
        lines: &mut Vec<MailboxEvent>,
    ) -> Result<Cursor, Failure> {
        let (mut cursor, mut clocks) = (start, Clocks::default());
        loop {
            let page = mailbox.events(Some(cursor), Duration::ZERO).await?;
            cursor = page.cursor;
            if page.events.is_empty() {
                return Ok(cursor);
            }
            let me = mailbox.me();
            self.collect(lines, page.events.into_iter().map(|entry| clocks.line(me.clone(), entry.event)));
        }
    }

    async fn follow_mailboxes(
        &self,
        mailboxes: Vec<Arc<dyn Mailbox>>,
        places: Vec<Cursor>,
        output: Output,
    ) -> Result<(), Failure> {
        let (sender, mut lines) = tokio::sync::mpsc::channel(64);
        for (mailbox, place) in mailboxes.into_iter().zip(places) {
            let (sender, agent) = (sender.clone(), mailbox.me().clone());
            let mut events = follow(mailbox, place, output);
            tokio::spawn(async move {
                while let Some(event) = events.recv().await {
                    let line = event.map(|event| Clocks::default().line(agent.clone(), event));
                    if sender.send(line).await.is_err() {
                        return;
                    }
                }
            });
        }
        drop(sender);
        while let Some(line) = lines.recv().await {
            let line = line?;
            if self.matches(&line) {
                show(&line, output)?;
            }
        }
        Ok(())
    }

    fn matches(&self, line: &MailboxEvent) -> bool {
        let about = |name: &AgentName| *name == line.agent || name == line.other();
        line.event != Event::Unknown
            && (self.agents.is_empty() || self.agents.iter().any(about))
            && (self.kinds.is_empty() || self.kinds.iter().any(|kind| kind == line.kind()))
            && self.since.is_none_or(|since| line.after.is_none_or(|at| at >= since))
    }
}

/// The newest time in the log of each mailbox, as far as it was read. It orders entries that have no time of their own.
#[derive(Debug, Default)]
struct Clocks(HashMap<AgentName, Timestamp>);

impl Clocks {
    fn line(&mut self, agent: AgentName, event: Event) -> MailboxEvent {
        let mut line = MailboxEvent { agent, event, after: None };
        line.after = line.at().max(self.0.get(&line.agent).copied());
        if let Some(after) = line.after {
            self.0.insert(line.agent.clone(), after);
        }
        line
    }

    /// The line of an entry. An act of the person is in the log of each agent concerned; only the person's own copy is
    /// shown.
    fn line_of(&mut self, entry: HouseholdEntry) -> Option<MailboxEvent> {
        let line = self.line(entry.agent, entry.event);
        match &line.event {
            Event::SteppedIn(acted) if acted.by != line.agent => None,
            _ => Some(line),
        }
    }
}

/// Where to begin in a long log of a server. Its cursors are numbers of entries; those of a directory are not, and its
/// log is read from the start.
async fn start_at_server(mailbox: &dyn Mailbox) -> Result<Cursor, Failure> {
    let end = mailbox.events(None, Duration::ZERO).await?.cursor;
    Ok(Cursor::from(end.as_number().unwrap_or(0).saturating_sub(MAX_ENTRIES)))
}

fn show(line: &MailboxEvent, output: Output) -> Result<(), Failure> {
    let width = if output.for_person { table::terminal_width() } else { None };
    output.stream(&line.document()?, || line.text(output, width.unwrap_or(COLUMNS).into()))
}

/// The household's person, where that is the default.
async fn person(office: &OfficeArgs) -> Result<Option<Client>, Failure> {
    let Some(server) = &office.server else { return Ok(None) };
    let Some(person) = office.as_person(server).await? else { return Ok(None) };
    Ok(Some(Client::open(server.clone(), person.key(server)?).await?))
}

/// The mailboxes that the caller may see: in a directory all of them, unless one is named.
async fn mailboxes(office: &OfficeArgs, output: Output) -> Result<Vec<Arc<dyn Mailbox>>, Failure> {
    if office.server.is_some() || office.me.is_some() {
        return Ok(vec![office.open().await?]);
    }
    let directory = office.directory(DirOptions::default())?;
    let agents = office.open_read_only().await?.agents().await?;
    if agents.len() > MAX_MAILBOXES {
        output.note(format!("the first {MAX_MAILBOXES} of {} mailboxes are shown; --as NAME shows one", agents.len()));
    }
    let all = agents.into_iter().take(MAX_MAILBOXES);
    Ok(all.map(|agent| Arc::new(directory.mailbox(agent.name)) as Arc<dyn Mailbox>).collect())
}
