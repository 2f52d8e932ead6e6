//! The output of the demonstration: coloured lines for people, or JSON for programs.

use std::time::{Duration, Instant};

use amb_core::{AgentName, Entry, Event, Kind, OfficeError, ReceiptState};
use serde::Serialize;
use serde_json::json;

use crate::failure::Failure;
use crate::output::{Output, visible, wrapped};

/// The time to read before the next step.
const PAUSE: Duration = Duration::from_millis(800);
/// Columns before the text of a line: an indent, a name, a mark.
const INDENT: usize = 14;
const WIDTH: usize = 80;
/// Columns reserved for durations, so that lines break at the same place in every run.
const ASIDE: usize = 8;

const BOLD: &str = "1";
const DIM: &str = "2";
const RED: &str = "31";
/// The agents' colours, in the order in which they come; readable on light and dark backgrounds.
const AGENTS: [&str; 3] = ["36", "35", "32"];

pub(super) struct Screen {
    output: Output,
    fast: bool,
    agents: Vec<AgentName>,
    chapters: usize,
    /// When the last step began.
    step_at: Instant,
    deliveries: Vec<Duration>,
    refusals: usize,
}

impl Screen {
    pub(super) fn new(output: Output, fast: bool) -> Self {
        let step_at = Instant::now();
        Self { output, fast, agents: vec![], chapters: 0, step_at, deliveries: vec![], refusals: 0 }
    }

    pub(super) fn begin(&self, server: &str, place: &str, dashboard: Option<&str>) -> Result<(), Failure> {
        if self.output.json {
            let mut line = json!({ "type": "office", "server": server, "directory": place });
            if let Some(link) = dashboard {
                line["dashboard"] = link.into();
            }
            return Ok(self.output.json_line(&line)?);
        }
        self.output.say(self.output.style(BOLD, "Agent Mailbox: three agents in an office of their own"))?;
        self.output.say(format!("{server}, with its mail in {place}"))?;
        if let Some(link) = dashboard {
            self.output.say(format!("in a browser: {link}"))?;
        }
        Ok(self.output.say("→ what an agent did, ← what the office pushed to it, ✗ what the office refused")?)
    }

    /// Begins a new part of the demonstration.
    pub(super) async fn chapter(&mut self, title: &str) -> Result<(), Failure> {
        self.pause().await;
        self.chapters += 1;
        let document = json!({ "type": "chapter", "number": self.chapters, "title": title });
        let heading = || self.output.style(BOLD, &format!("{}  {title}", self.chapters));
        self.output.stream(&document, || format!("\n{}", heading()))
    }

    /// Begins a step of an agent: pauses for the reader, and starts to measure how long the delivery takes.
    pub(super) async fn step(&mut self) {
        self.pause().await;
        self.step_at = Instant::now();
    }

    /// Shows what an agent did; as JSON, what the office returned.
    pub(super) fn done(
        &mut self,
        agent: &AgentName,
        verb: &str,
        answer: &impl Serialize,
        text: &str,
    ) -> Result<(), Failure> {
        if self.output.json {
            let line = json!({ "type": "answer", "agent": agent, "verb": verb, "answer": answer });
            return Ok(self.output.json_line(&line)?);
        }
        self.line(agent, "→", text, "")
    }

    /// Shows the office's error.
    pub(super) fn refused(
        &mut self,
        agent: &AgentName,
        verb: &str,
        text: &str,
        error: &OfficeError,
    ) -> Result<(), Failure> {
        self.refusals += 1;
        if self.output.json {
            let (code, detail) = (error.code().as_str(), error.detail());
            let line = json!({ "type": "refused", "agent": agent, "verb": verb, "code": code, "detail": detail });
            return Ok(self.output.json_line(&line)?);
        }
        self.line(agent, "→", text, "")?;
        let mark = self.output.style(RED, "✗");
        self.line(agent, &mark, error.detail(), "")
    }

    /// Shows an entry that the office pushed to an agent.
    pub(super) fn pushed(&mut self, agent: &AgentName, entry: &Entry) -> Result<(), Failure> {
        let took = self.step_at.elapsed();
        self.deliveries.push(took);
        if self.output.json {
            return Ok(self.output.json_line(&json!({ "type": "event", "agent": agent, "event": entry }))?);
        }
        self.line(agent, "←", &describe(&entry.event), &format!("  {} ms", took.as_millis()))
    }

    /// Shows the totals.
    pub(super) fn end(&self) -> Result<(), Failure> {
        let (entries, refusals) = (self.deliveries.len(), self.refusals);
        let mut sorted = self.deliveries.clone();
        sorted.sort_unstable();
        let median = sorted.get(entries / 2).copied().unwrap_or_default();
        let document = json!({
            "type": "end", "events": entries, "refused": refusals, "median_ms": median.as_secs_f64() * 1e3,
        });
        self.output.stream(&document, || {
            format!(
                "\n{}\nThe office pushed {entries} entries, half of them within {} ms of what caused them, and\n\
                 refused {refusals} messages. It is closed now, and its mail is gone.\n\
                 An office of your own: amb up",
                self.output.style(BOLD, "The end"),
                median.as_millis(),
            )
        })
    }

    async fn pause(&self) {
        if !self.fast {
            tokio::time::sleep(PAUSE).await;
        }
    }

    fn line(&mut self, agent: &AgentName, mark: &str, text: &str, aside: &str) -> Result<(), Failure> {
        let place = self.agents.iter().position(|known| known == agent).unwrap_or_else(|| {
            self.agents.push(agent.clone());
            self.agents.len() - 1
        });
        let name = self.output.style(AGENTS[place % AGENTS.len()], &format!("{agent:<9}"));
        let aside_width = if aside.is_empty() { 0 } else { ASIDE };
        let text = wrapped(text, WIDTH - INDENT - aside_width, INDENT);
        let aside = if aside.is_empty() { String::new() } else { self.output.style(DIM, aside) };
        Ok(self.output.say(format!("   {name}{mark} {text}{aside}"))?)
    }
}

/// A sender's text, on one line.
pub(super) fn quoted(text: &str) -> String {
    format!("“{}”", visible(text))
}

/// A log entry, in one line.
fn describe(event: &Event) -> String {
    match event {
        Event::NewMessage(mail) => {
            let from = &mail.from_agent;
            let what = match (&mail.task, mail.kind == Kind::TaskUpdate) {
                (Some(task), true) => format!("{from}'s task is {}", task.state),
                (Some(task), false) => format!("task from {from}, {}", task.state),
                (None, _) => format!("mail from {from}"),
            };
            // An update without a note has its state as text.
            let said = mail.task.as_ref().is_none_or(|task| task.state.as_str() != mail.content);
            if said { format!("{what}: {}", quoted(&mail.content)) } else { what }
        }
        Event::ConnectionRequest { from_agent, message, verification_code, .. } => {
            let code = verification_code.as_deref().unwrap_or("withheld");
            let said = message.as_deref().map_or(String::new(), |message| format!(": {}", quoted(message)));
            format!("{from_agent} wants to connect, code {code}{said}")
        }
        Event::ConnectionApproved { connected_agent, .. } => format!("{connected_agent} approved"),
        Event::ConnectionChanged { agent, status, .. } => format!("connection with {agent} is {}", status.as_str()),
        Event::Receipt { receipt, .. } => match receipt.state {
            ReceiptState::Read => format!("receipt: {} read it", receipt.recipient),
            ReceiptState::Delivered => format!("receipt: {} has it", receipt.recipient),
            ReceiptState::Queued => format!("receipt: it waits for {}", receipt.recipient),
        },
        Event::TaskOverdue { task } => format!("task of {} is overdue", task.owner),
        Event::HouseholdChanged { agent, change, .. } => format!("{agent} {} the household", change.as_str()),
        Event::SteppedIn(acted) => acted.to_string(),
        Event::Unknown => "something new".to_owned(),
    }
}
