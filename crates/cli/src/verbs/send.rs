//! `amb send`: a message or a task to another agent.

use std::path::{Path, PathBuf};

use amb_core::doc::ConnectionStatus;
use amb_core::message::NO_SUBJECT;
use amb_core::suggest::nearest;
use amb_core::{AgentName, Code, CorrelationId, Draft, Kind, Mailbox, OfficeError, Part, Priority, Timestamp};
use amb_dir::DirOptions;

use crate::args::OfficeArgs;
use crate::failure::Failure;
use crate::ids;
use crate::input::ComposedText;
use crate::output::{Output, preview};

/// Send a message or a task; it is stored durably when this returns
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  amb --as ann send ben 'shall we start?' --subject 'Project'
  git diff | amb --as ann send ben - --subject Review --priority urgent
  amb --as ann send ben 'sort the files' --kind task --deadline 2h
  amb --as ben send ann 'yes' --reply-to 0199c0de-...")]
pub(crate) struct SendCommand {
    /// Recipient: an agent or a group
    to: AgentName,
    /// Text of the message; - reads stdin [default: stdin, or your editor ($EDITOR) if stdin is a terminal]
    text: Option<String>,
    /// Subject; messages with the same subject are in the same session. Ignored with --session and for a reply, which
    /// belongs to the session of the message that it answers
    #[arg(long, value_name = "S")]
    subject: Option<String>,
    /// Session to continue: its id, or a unique prefix of it
    #[arg(long, value_name = "ID")]
    session: Option<String>,
    /// Kind of message: message, task, or a custom label such as work_assignment
    #[arg(long, value_name = "KIND", default_value_t = Kind::Message)]
    kind: Kind,
    /// Priority: low, normal, high or urgent
    #[arg(long, value_name = "P", default_value_t = Priority::Normal)]
    priority: Priority,
    /// Deadline of a task: a time (2026-12-01T12:00:00Z) or a duration from now (90m, 2h, 3d)
    #[arg(long, value_name = "T", value_parser = deadline)]
    deadline: Option<Deadline>,
    /// Id of the message that this one replies to
    #[arg(long, value_name = "ID")]
    reply_to: Option<String>,
    /// Id of the message that this one forwards; its ttl and trace continue
    #[arg(long, value_name = "ID", conflicts_with = "reply_to")]
    relay_of: Option<String>,
    /// Mark a reply that a script sends by itself: it uses one hop of the ttl of the message that it answers, so that
    /// two scripts that answer each other stop
    #[arg(long)]
    automatic: bool,
    /// Path of a file to refer to, which the recipient must be able to access (repeatable)
    #[arg(long = "file", value_name = "F")]
    files: Vec<PathBuf>,
    /// JSON value to attach, for programs (repeatable)
    #[arg(long = "data", value_name = "JSON", value_parser = json)]
    data: Vec<serde_json::Value>,
    /// Where to deliver the result of a task: a JSON object with channel, session_id and chat_id
    #[arg(long, value_name = "JSON", value_parser = callback)]
    callback: Option<amb_core::Callback>,
    /// Id that correlates a question with its answers
    #[arg(long, value_name = "ID")]
    correlation_id: Option<CorrelationId>,
    /// Idempotency key: a retry with the same key sends nothing and returns the first result
    #[arg(long, value_name = "KEY")]
    idempotency_key: Option<String>,
    /// In a directory: create the mailbox of the recipient if it is not registered
    #[arg(long)]
    create: bool,
}

impl SendCommand {
    pub(crate) async fn run(self, office: &OfficeArgs, output: Output) -> Result<(), Failure> {
        let mailbox = office.open_with(DirOptions { create_recipients: self.create, ..DirOptions::default() }).await?;
        // Files and data need no text.
        let composed = match self.text.is_none() && !(self.files.is_empty() && self.data.is_empty()) {
            true => None,
            false => Some(ComposedText::read(self.text.as_deref(), &format!("to {}", self.to))?),
        };
        let draft = self.draft(&*mailbox, composed.as_ref()).await?;
        let to = draft.to.clone();
        let sent = match mailbox.send(draft).await {
            Ok(sent) => sent,
            Err(error) => {
                composed.iter().filter_map(ComposedText::draft_hint).for_each(|hint| output.note(hint));
                return Err(explained(error, &*mailbox, &to).await.into());
            }
        };
        composed.into_iter().for_each(ComposedText::discard_draft);
        let line = match &sent.reason {
            // The send has succeeded: the task is recorded as rejected, and the sender has the update.
            Some(reason) => format!("the task for {to} was rejected ({}): {reason}", sent.message_id),
            None if output.for_person => {
                let task = sent.task.as_ref().map_or(String::new(), |task| format!(", task {}", task.id));
                output.wrap(&format!("sent to {to}{}{task}", in_subject(&sent.subject)), 0)
            }
            None => format!("sent {} to {to} in session {}", sent.message_id, sent.session_id),
        };
        output.result(&sent, line)?;
        if sent.paused {
            output.note(format!("{to} is paused by its owner; it gets this when it is resumed"));
        }
        Ok(())
    }

    async fn draft(self, mailbox: &dyn Mailbox, composed: Option<&ComposedText>) -> Result<Draft, Failure> {
        let mut parts: Vec<Part> = composed.into_iter().map(|composed| Part::text(composed.text.as_str())).collect();
        let session = match &self.session {
            Some(session) => Some(ids::session(mailbox, session).await?),
            None => None,
        };
        let reply_to = ids::optional_message(mailbox, self.reply_to.as_deref()).await?;
        let relay_of = ids::optional_message(mailbox, self.relay_of.as_deref()).await?;
        parts.extend(self.data.into_iter().map(Part::data));
        for file in &self.files {
            parts.push(Part::file(absolute(file)?));
        }
        // A reply goes into the session of what it answers.
        let mut subject = self.subject;
        if session.is_none() && reply_to.is_none() {
            subject.get_or_insert_with(|| NO_SUBJECT.into());
        }
        let (deadline, deadline_in) = match self.deadline {
            Some(Deadline::At(moment)) => (Some(moment), None),
            Some(Deadline::In(seconds)) => (None, Some(seconds)),
            None => (None, None),
        };
        let draft = Draft {
            to: self.to,
            kind: self.kind,
            subject,
            session,
            parts,
            priority: self.priority,
            deadline,
            deadline_in,
            callback: self.callback,
            reply_to,
            relay_of,
            correlation_id: self.correlation_id,
            metadata: Default::default(),
            idempotency_key: self.idempotency_key,
        };
        Ok(if self.automatic { draft.automatic() } else { draft })
    }
}

/// `, in "Subject"`; empty where there is none.
pub(crate) fn in_subject(subject: &str) -> String {
    if subject == NO_SUBJECT { String::new() } else { format!(", in {:?}", preview(subject, 60)) }
}

/// Adds to the refusal of an agent that the sender has no connection with what the sender may know: its own block or
/// pending request, else a similar name. An office refuses unknown agents and strangers alike; only agents that the
/// sender may see are suggested.
async fn explained(error: OfficeError, mailbox: &dyn Mailbox, to: &AgentName) -> OfficeError {
    if error.code() != Code::NotConnected {
        return error;
    }
    let connections = mailbox.connections().await.unwrap_or_default();
    let own = connections.iter().find(|connection| connection.outgoing && connection.agent_name == *to);
    match own.map(|connection| connection.status) {
        Some(ConnectionStatus::Blocked) => {
            let detail =
                format!("you have blocked {to}; `amb connections unblock {to}` ends that, then `amb connect {to}`");
            return OfficeError::new(error.code(), detail);
        }
        Some(ConnectionStatus::Pending) => {
            let detail = format!("your connection request to {to} waits for approval; send again when it is approved");
            return OfficeError::new(error.code(), detail);
        }
        _ => {}
    }
    let agents = mailbox.agents().await.unwrap_or_default();
    let others = agents.iter().map(|agent| &agent.name).filter(|name| *name != to && *name != mailbox.me());
    match nearest(to.as_str(), others.map(AgentName::as_str)) {
        Some(near) => OfficeError::new(error.code(), format!("{}; did you mean {near:?}?", error.detail())),
        None => error,
    }
}

/// The absolute path, for a recipient with another current directory.
fn absolute(file: &Path) -> Result<String, Failure> {
    let path = std::fs::canonicalize(file)
        .map_err(|error| Failure::usage(format!("--file {}: {error}; name a file that is there", file.display())))?;
    path.into_os_string().into_string().map_err(|path| Failure::usage(format!("{path:?} is not UTF-8")))
}

fn json(text: &str) -> Result<serde_json::Value, String> {
    serde_json::from_str(text).map_err(|error| format!("not JSON: {error}"))
}

fn callback(text: &str) -> Result<amb_core::Callback, String> {
    serde_json::from_str(text).map_err(|error| format!("not a callback: {error}"))
}

/// The deadline of a task.
#[derive(Debug, Clone, Copy)]
enum Deadline {
    At(Timestamp),
    /// Seconds from when it is sent.
    In(u64),
}

/// Parses an instant, or a duration from now.
fn deadline(text: &str) -> Result<Deadline, String> {
    if let Ok(moment) = text.parse() {
        return Ok(Deadline::At(moment));
    }
    // Not converted to an instant here: a repeat under the same idempotency key must be the same draft, whenever it is
    // sent.
    let span = amb_core::task::parse_deadline(text, Timestamp::UNIX_EPOCH).map_err(|error| error.to_string())?;
    u64::try_from(span.as_millisecond())
        .map(|millis| Deadline::In(millis.div_ceil(1_000)))
        .map_err(|error| error.to_string())
}
