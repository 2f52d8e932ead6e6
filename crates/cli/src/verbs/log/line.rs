//! One line of `amb log`.

use amb_core::doc::HouseholdChange;
use amb_core::event::{Event, NewMessage};
use amb_core::message::NO_SUBJECT;
use amb_core::{AgentName, ReceiptState, Timestamp};
use serde_json::Value;
use unicode_width::UnicodeWidthStr;

use crate::output::{Output, ago, preview, visible};
use crate::table::Tone;

/// The columns of the time: `59 min ago`.
const TIME_WIDTH: usize = 10;
/// The most columns of a subject, and the fewest of it or of the text that are shown in a narrow terminal.
const MAX_SUBJECT: usize = 30;
const MIN_TEXT: usize = 8;

/// An event, and in whose mailbox it is.
#[derive(Debug)]
pub(super) struct MailboxEvent {
    /// In whose mailbox.
    pub(super) agent: AgentName,
    pub(super) event: Event,
    /// The time by which lines are ordered: the event's own, or the newest one before it in that mailbox.
    pub(super) after: Option<Timestamp>,
}

impl MailboxEvent {
    /// For programs: the event, with the mailbox's agent as `member`, and as `agent` too where the event has none of
    /// its own.
    pub(super) fn document(&self) -> serde_json::Result<Value> {
        let mut document = serde_json::to_value(&self.event)?;
        if let Value::Object(fields) = &mut document {
            fields.insert("member".to_owned(), self.agent.as_str().into());
            fields.entry("agent").or_insert_with(|| self.agent.as_str().into());
        }
        Ok(document)
    }

    pub(super) fn kind(&self) -> &str {
        match &self.event {
            Event::NewMessage(mail) => mail.kind.as_str(),
            Event::Receipt { .. } => "receipt",
            Event::TaskOverdue { .. } => "task_overdue",
            Event::HouseholdChanged { .. } => "household",
            Event::SteppedIn(_) => "stepped_in",
            _ => "connection",
        }
    }

    /// The other agent concerned.
    pub(super) fn other(&self) -> &AgentName {
        match &self.event {
            Event::NewMessage(mail) => &mail.from_agent,
            Event::ConnectionRequest { from_agent, .. } => from_agent,
            Event::ConnectionApproved { connected_agent, .. } => connected_agent,
            Event::ConnectionChanged { agent, .. } | Event::HouseholdChanged { agent, .. } => agent,
            Event::Receipt { receipt, .. } => &receipt.recipient,
            Event::TaskOverdue { task } if task.owner == self.agent => &task.assignee,
            Event::TaskOverdue { task } => &task.owner,
            Event::SteppedIn(acted) => &acted.by,
            Event::Unknown => &self.agent,
        }
    }

    /// The time of the event, where it has one.
    pub(super) fn at(&self) -> Option<Timestamp> {
        match &self.event {
            Event::NewMessage(mail) => Some(mail.created_at),
            Event::Receipt { receipt, .. } => Some(receipt.since()),
            Event::TaskOverdue { task } => Some(task.updated_at),
            Event::HouseholdChanged { at, .. } => *at,
            Event::SteppedIn(acted) => acted.at,
            _ => None,
        }
    }

    /// One line of this width: when, who, what.
    pub(super) fn text(&self, output: Output, width: usize) -> String {
        let when = self.at().map_or_else(String::new, ago);
        let room = width.saturating_sub(TIME_WIDTH + 2);
        let what = match &self.event {
            Event::NewMessage(mail) => self.mail(mail, output, room),
            Event::ConnectionRequest { .. } => format!("{} asks {} for a connection", self.other(), self.agent),
            Event::ConnectionApproved { .. } => format!("{} approved {}'s request", self.other(), self.agent),
            Event::ConnectionChanged { status, .. } => {
                format!(
                    "{} and {}: {}",
                    self.agent,
                    self.other(),
                    output.paint(Tone::of_state(status.as_str()), status.as_str())
                )
            }
            Event::HouseholdChanged { change, .. } => {
                let did = match change {
                    HouseholdChange::Joined => "joined",
                    HouseholdChange::Left => "left",
                };
                format!("{} {did} the household of {}", self.other(), self.agent)
            }
            Event::Receipt { receipt, .. } => {
                let (from, to) = (&self.agent, &receipt.recipient);
                let did = match (receipt.state, receipt.rung_at) {
                    (ReceiptState::Read, _) => format!("{from}'s mail read by {to}"),
                    (_, Some(_)) => format!("{to}'s client rung for {from}'s mail"),
                    (ReceiptState::Delivered, None) => format!("{from}'s mail delivered to {to}"),
                    (ReceiptState::Queued, None) => format!("{from}'s mail queued for {to}"),
                };
                output.paint(Tone::Quiet, &did)
            }
            Event::TaskOverdue { task } => {
                let overdue = output.paint(Tone::Bad, "overdue");
                format!("task of {} for {} is {overdue}", task.owner, task.assignee)
            }
            Event::SteppedIn(acted) => visible(&acted.to_string()),
            Event::Unknown => String::new(),
        };
        format!("{}  {what}", output.paint(Tone::Quiet, &format!("{when:>TIME_WIDTH$}")))
    }

    fn mail(&self, mail: &NewMessage, output: Output, room: usize) -> String {
        let state = mail.task.as_ref().map(|task| task.state.as_str());
        let kind = match (mail.kind.as_str(), state) {
            ("message", _) => String::new(),
            ("task_update", Some(state)) => state.to_owned(),
            (kind, Some(state)) => format!("{} {state}", visible(kind)),
            (kind, None) => visible(kind),
        };
        let tone = state.map_or(Tone::Active, Tone::of_state);
        // Measured without colours; the text takes what the subject leaves.
        let person = if mail.from_person { " (person)" } else { "" };
        let names = mail.from_agent.as_str().chars().count() + person.len() + self.agent.as_str().chars().count() + 3;
        let taken = names + kind.chars().count() + if kind.is_empty() { 2 } else { 4 };
        let left = room.saturating_sub(taken);
        // An update without a note has its state as text, which is shown already.
        let said = if Some(mail.content.as_str()) == state { "" } else { &mail.content };
        let subject = match (mail.subject.as_str(), said) {
            (NO_SUBJECT, _) => String::new(),
            (subject, "") => visible(&preview(subject, left.clamp(MIN_TEXT, MAX_SUBJECT))),
            (subject, _) => format!("{}: ", visible(&preview(subject, (left / 2).clamp(MIN_TEXT, MAX_SUBJECT)))),
        };
        let said = visible(&preview(said, left.saturating_sub(subject.width() + 1).max(MIN_TEXT)));
        let name = |name: &AgentName| output.paint(Tone::Strong, name.as_str());
        let kind = if kind.is_empty() { String::new() } else { format!("  {}", output.paint(tone, &kind)) };
        format!("{}{person} → {}{kind}  {subject}{said}", name(&mail.from_agent), name(&self.agent))
    }
}
