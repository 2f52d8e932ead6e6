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

use crate::args::{OfficeArgs, OfficeOrigin};
use crate::failure::Failure;
use crate::output::{Output, span};
use crate::verbs::chat::follow;
use crate::verbs::watch::{interrupted, through_outages};
use crate::{household, keys, profile, table};
use line::MailboxEvent;

/// The most pages of one log that are read for past events, and entries of a server's log; older ones are left out.
const MOST_PAGES: usize = 200;
const MOST_ENTRIES: u64 = 20_000;
/// The most entries of each member's log that are read for past events of a household.
const LAST: u64 = 1_000;
/// How long one read of the log waits.
const WAIT: Duration = Duration::from_secs(20);
/// The width where there is no terminal.
const COLUMNS: u16 = 120;
/// The most mailboxes of a directory that are followed.
const MOST_MAILBOXES: usize = 200;

/// Show what happened, oldest first, and with --follow what happens
///
/// Without --as: in everybody's mailbox, which at a server is that of everybody in your household. With --as: in that one's
/// own. Messages, tasks and their updates, receipts, requests for connections. Marks nothing as read.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  amb log --since 1h
  amb log --follow --agent codex
  amb --dir mail log --follow --kind task --kind task_update
  amb log --json --limit 100")]
pub(crate) struct LogCommand {
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

impl LogCommand {
    pub(crate) async fn run(self, office: &OfficeArgs, output: Output) -> Result<(), Failure> {
        if let Some(person) = person(office).await? {
            match self.household_before(&person).await {
                Ok((lines, place)) => {
                    self.note_unknown(&lines, &person, output).await;
                    self.show_last(lines, output)?;
                    let live = self.household_live(&person, place, output);
                    return self.go_on(live).await;
                }
                // An office of an earlier version does not offer it.
                Err(Failure::Office(error)) if error.code() == Code::NotFound => {}
                Err(error) => return Err(error),
            }
        }
        let mailboxes = mailboxes(office, output).await?;
        let (mut lines, mut places) = (Vec::new(), Vec::new());
        for mailbox in &mailboxes {
            places.push(self.before(mailbox, &mut lines).await?);
        }
        if let Some(mailbox) = mailboxes.first() {
            self.note_unknown(&lines, &**mailbox, output).await;
        }
        self.show_last(lines, output)?;
        let live = self.live(mailboxes, places, output);
        self.go_on(live).await
    }

    fn show_last(&self, mut lines: Vec<MailboxEvent>, output: Output) -> Result<(), Failure> {
        lines.sort_by_key(|line| line.after);
        let begin = lines.len().saturating_sub(self.limit);
        if lines.is_empty() && !self.follow {
            output.note(match self.agents.is_empty() && self.kinds.is_empty() && self.since.is_none() {
                true => "nothing happened yet",
                false => "nothing that you asked for",
            });
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

    /// Shows further events, where that was asked for, until interrupted.
    async fn go_on(&self, live: impl Future<Output = Result<(), Failure>>) -> Result<(), Failure> {
        if !self.follow {
            return Ok(());
        }
        tokio::select! {
            ended = live => ended,
            interrupted = interrupted() => Ok(interrupted?),
        }
    }

    /// The past events of a household, and the cursor after them.
    async fn household_before(&self, person: &Client) -> Result<(Vec<MailboxEvent>, String), Failure> {
        let mut page = person.household_events(None, LAST, Duration::ZERO).await?;
        let (mut lines, mut clocks) = (Vec::new(), Clocks::default());
        for _ in 0..MOST_PAGES {
            let is_last = page.events.is_empty();
            self.gather(&mut lines, page.events.into_iter().filter_map(|entry| clocks.line_of(entry)));
            if is_last {
                break;
            }
            page = person.household_events(Some(&page.cursor), 0, Duration::ZERO).await?;
        }
        Ok((lines, page.cursor))
    }

    async fn household_live(&self, person: &Client, mut place: String, output: Output) -> Result<(), Failure> {
        let mut clocks = Clocks::default();
        loop {
            let page = through_outages(output, async || person.household_events(Some(&place), 0, WAIT).await).await?;
            place = page.cursor;
            let lines = page.events.into_iter().filter_map(|entry| clocks.line_of(entry));
            let mut lines: Vec<MailboxEvent> = lines.filter(|line| self.wants(line)).collect();
            lines.sort_by_key(|line| line.after);
            lines.iter().try_for_each(|line| show(line, output))?;
        }
    }

    /// Adds the wanted events, and drops those beyond the limit.
    fn gather(&self, lines: &mut Vec<MailboxEvent>, more: impl Iterator<Item = MailboxEvent>) {
        lines.extend(more.filter(|line| self.wants(line)));
        if lines.len() > self.limit.saturating_mul(4).max(1_000) {
            lines.sort_by_key(|line| line.after);
            lines.drain(..lines.len() - self.limit.max(1));
        }
    }

    /// The past events of a mailbox. Returns the end of its log.
    async fn before(&self, mailbox: &Arc<dyn Mailbox>, lines: &mut Vec<MailboxEvent>) -> Result<Cursor, Failure> {
        let end = mailbox.events(None, Duration::ZERO).await?.cursor;
        // A server's cursors are numbers: only the end of a long log is read.
        let mut cursor = Cursor::from(end.as_number().unwrap_or(0).saturating_sub(MOST_ENTRIES));
        let mut clocks = Clocks::default();
        for _ in 0..MOST_PAGES {
            let page = mailbox.events(Some(cursor), Duration::ZERO).await?;
            if page.events.is_empty() {
                return Ok(page.cursor);
            }
            cursor = page.cursor;
            let me = mailbox.me();
            self.gather(lines, page.events.into_iter().map(|entry| clocks.line(me.clone(), entry.event)));
        }
        Ok(end)
    }

    async fn live(&self, mailboxes: Vec<Arc<dyn Mailbox>>, places: Vec<Cursor>, output: Output) -> Result<(), Failure> {
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
            if self.wants(&line) {
                show(&line, output)?;
            }
        }
        Ok(())
    }

    fn wants(&self, line: &MailboxEvent) -> bool {
        let about = |name: &AgentName| *name == line.agent || name == line.other();
        line.event != Event::Unknown
            && (self.agents.is_empty() || self.agents.iter().any(about))
            && (self.kinds.is_empty() || self.kinds.iter().any(|kind| kind == line.kind()))
            && self.since.is_none_or(|since| line.after.is_none_or(|at| at >= since))
    }
}

/// The newest time in the log of each mailbox, as far as it was read. Entries without a time of their own come after it.
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

    /// The line of an entry. An act of the person is in the log of each agent concerned; only the person's own copy is shown.
    fn line_of(&mut self, entry: HouseholdEntry) -> Option<MailboxEvent> {
        let line = self.line(entry.agent, entry.event);
        match &line.event {
            Event::SteppedIn(acted) if acted.by != line.agent => None,
            _ => Some(line),
        }
    }
}

fn show(line: &MailboxEvent, output: Output) -> Result<(), Failure> {
    match output.json {
        true => output.line_of(&line.document()?)?,
        false => {
            let width = if output.for_person { table::terminal_width() } else { None };
            output.say(line.text(output, width.unwrap_or(COLUMNS).into()))?;
        }
    }
    Ok(())
}

/// The household's person, where no agent was named and the person is the default.
async fn person(office: &OfficeArgs) -> Result<Option<Client>, Failure> {
    let Some(server) = office.server.as_ref().filter(|_| office.me.is_none() && profile::key_from_env().is_none())
    else {
        return Ok(None);
    };
    // At a server that was named explicitly, the only agent with a key there acts, as before.
    if office.origin == OfficeOrigin::Said && keys::agents(server)?.len() == 1 {
        return Ok(None);
    }
    let Some(person) = household::claim_person(server).await? else { return Ok(None) };
    let key = OfficeArgs { me: Some(person), ..office.clone() }.key(server)?;
    Ok(Some(Client::open(server.clone(), key).await?))
}

/// The mailboxes that the caller may see: in a directory all of them, unless one is named.
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
