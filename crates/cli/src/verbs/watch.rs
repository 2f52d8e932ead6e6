//! `amb watch`: prints messages as they come.

mod bell;

use std::sync::Arc;
use std::time::Duration;

use amb_core::Backoff;
use amb_core::event::{Event, NewMessage};
use amb_core::mailbox::{ClaimRequest, Mailbox};
use amb_core::message::NO_SUBJECT;
use amb_core::{AgentName, Callback, Code, Cursor, Message, Object, OfficeError, SessionId};
use serde::Serialize;

use crate::archiving::Archiving;
use crate::args::OfficeArgs;
use crate::codes::Codes;
use crate::failure::Failure;
use crate::output::{Output, visible};
use crate::signals::interrupted;
use crate::verbs::read::body;

/// How long one read of the log waits. A message ends the wait at once.
const WAIT: Duration = Duration::from_secs(30);
/// The interval of heartbeats.
const HEARTBEAT: Duration = Duration::from_secs(10);

/// Print mail as it arrives, until interrupted
///
/// After an outage of the office it resumes where it stopped and misses no mail.
///
/// With --bell it prints one line when there is unread mail, including mail from before it started, at most every ten
/// seconds: for plugins that wake a client. It prints nothing while `amb mcp` wakes a client of the same agent, and
/// exits with the process that started it.
///
/// With --ack it is a consumer: it prints pending mail from before it started first, and acknowledges each message
/// after printing it. If there are several consumers, each message goes to one of them.
#[derive(Debug, clap::Args)]
#[command(
    after_help = "Examples:\n  amb --as ben watch\n  amb --as ben watch --ack --json | while read -r mail; do handle \"$mail\"; done"
)]
pub(crate) struct WatchCommand {
    /// Claim messages, and acknowledge each after printing it
    #[arg(long)]
    ack: bool,
    /// Start after this cursor instead of now
    #[arg(long, value_name = "CURSOR", conflicts_with = "ack")]
    since: Option<String>,
    /// Print one line for each wake-up instead: the number of unread messages and their senders, never their text
    #[arg(long, conflicts_with_all = ["ack", "since"])]
    bell: bool,
    /// Exit after printing this many
    #[arg(long, value_name = "N")]
    count: Option<u64>,
    #[command(flatten)]
    codes: Codes,
    #[command(flatten)]
    archiving: Archiving,
}

impl WatchCommand {
    pub(crate) async fn run(self, office: &OfficeArgs, output: Output) -> Result<(), Failure> {
        let mailbox = office.open().await?;
        // A mailbox may be watched before its first message; but an unknown name is often a typo.
        if office.server.is_none()
            && let Err(error) = mailbox.ack(&[]).await
            && error.code() == Code::NotFound
        {
            output.note(format!("{}; watching for its first mail", error.detail()));
        } else {
            office.warn_if_unknown(&*mailbox, output).await;
        }
        let _archiving = self.archiving.start(office)?;
        let heartbeats = tokio::spawn(heartbeats(Arc::clone(&mailbox)));
        let ended = tokio::select! {
            ended = self.watch(&mailbox, office, output) => ended,
            interrupted = interrupted() => interrupted.map_err(Failure::from),
        };
        heartbeats.abort();
        // A failure to mark the agent as offline (a full disk) is not a failure of what was printed.
        if let Err(error) = unless_unregistered(mailbox.leave().await) {
            tracing::warn!(%error, "cannot mark the agent as offline; its missing heartbeats will");
        }
        ended
    }

    async fn watch(self, mailbox: &Arc<dyn Mailbox>, office: &OfficeArgs, output: Output) -> Result<(), Failure> {
        let mut left = self.count.unwrap_or(u64::MAX);
        if self.bell {
            let place = crate::waking::directory(office, mailbox.me()).ok();
            return bell::ring(mailbox, place, output, left).await;
        }
        let mut cursor = match &self.since {
            Some(since) => Cursor::new(since.as_str()),
            None => mailbox.events(None, Duration::ZERO).await?.cursor,
        };
        if !self.ack {
            output.note(format!("watching the mailbox of {} at {}", mailbox.me(), mailbox.describe()));
        }
        let hidden = !self.codes.are_shown(output);
        while left > 0 {
            if self.ack {
                left = consume(&**mailbox, output, left).await?;
            }
            if left == 0 {
                break;
            }
            let page = retry_outages(output, || mailbox.events(Some(cursor.clone()), WAIT)).await?;
            cursor = page.cursor;
            let known = page.events.into_iter().filter(|entry| !self.ack && entry.event != Event::Unknown);
            for mut entry in known.take(usize::try_from(left).unwrap_or(usize::MAX)) {
                let code = hide_code(&mut entry.event, hidden);
                output.stream(&entry, || describe(&entry.event) + code)?;
                if let (false, Event::NewMessage(mail)) = (output.json, &entry.event) {
                    crate::last::record(&**mailbox, &mail.session_id);
                }
                left -= 1;
            }
        }
        Ok(())
    }
}

/// Retries until the office responds, and reports an outage once. Only for idempotent calls.
pub(crate) async fn retry_outages<T, F>(output: Output, mut ask: impl FnMut() -> F) -> Result<T, OfficeError>
where
    F: Future<Output = Result<T, OfficeError>>,
{
    let (mut backoff, mut is_reported) = (Backoff::default(), false);
    loop {
        let error = match ask().await {
            Err(error) if error.is_transient() => error,
            result => {
                if is_reported {
                    output.note("the office is back");
                }
                return result;
            }
        };
        if !is_reported {
            output.error(error.code().as_str(), &format!("{error}; watching on when the office is back"));
            is_reported = true;
        }
        let wait = backoff.pause();
        tokio::time::sleep(error.wait().unwrap_or(wait).max(wait)).await;
    }
}

/// Claims the messages that wait, prints and acknowledges them. Returns how many more may be printed.
async fn consume(mailbox: &dyn Mailbox, output: Output, mut left: u64) -> Result<u64, Failure> {
    loop {
        let limit = usize::try_from(left.min(50)).unwrap_or(50);
        let request = ClaimRequest { limit, urgent_first: true, ..ClaimRequest::default() };
        let mail = retry_outages(output, || mailbox.claim(request.clone())).await?;
        if mail.is_empty() {
            return Ok(left);
        }
        for message in mail {
            let id = message.id.clone();
            let claimed = ClaimedEvent::of(message);
            output.stream(&claimed, || describe(&claimed.event))?;
            retry_outages(output, || mailbox.ack(std::slice::from_ref(&id))).await?;
            left -= 1;
        }
        if left == 0 {
            return Ok(0);
        }
    }
}

/// A message as a consumer gets it: the event, and what a runtime needs to pass it on or to answer in the right chat.
#[derive(Serialize)]
struct ClaimedEvent {
    #[serde(flatten)]
    event: Event,
    ttl: u8,
    trace: Vec<AgentName>,
    /// Only where the agent itself set it.
    #[serde(skip_serializing_if = "Option::is_none")]
    callback: Option<Callback>,
    #[serde(skip_serializing_if = "Object::is_empty")]
    metadata: Object,
}

impl ClaimedEvent {
    fn of(message: Message) -> Self {
        let subject = message.subject.clone().unwrap_or_else(|| NO_SUBJECT.into());
        let derived = || SessionId::between(&message.from, &message.to, &subject);
        let session = message.session.clone().unwrap_or_else(derived);
        Self {
            event: Event::NewMessage(NewMessage::of(&message, session, subject)),
            ttl: message.ttl,
            trace: message.trace,
            callback: message.callback,
            metadata: message.metadata,
        }
    }
}

/// An unregistered agent may have a mailbox; it just has no presence.
fn unless_unregistered(result: Result<(), OfficeError>) -> Result<(), OfficeError> {
    match result {
        Err(error) if error.code() == Code::NotFound => Ok(()),
        result => result,
    }
}

/// Removes the code from a connection request if it is hidden. Returns a hint where to find it.
fn hide_code(event: &mut Event, hidden: bool) -> &'static str {
    match event {
        Event::ConnectionRequest { verification_code: None, .. } => "; ask them for the code",
        Event::ConnectionRequest { verification_code, .. } if hidden => {
            *verification_code = None;
            "; a person sees the code with `amb inbox --show-codes`"
        }
        _ => "",
    }
}

fn describe(event: &Event) -> String {
    match event {
        Event::NewMessage(mail) => {
            let task = mail.task.as_ref().map_or(String::new(), |task| format!("  task {} is {}", task.id, task.state));
            let head = format!(
                "{}  {}  {}{task}\n    # {}",
                mail.from_agent,
                mail.created_at,
                mail.message_id,
                visible(&mail.subject)
            );
            let lines = body(&mail.content, &mail.parts).into_iter().map(|line| format!("    {line}"));
            format!("{head}\n{}", lines.collect::<Vec<_>>().join("\n"))
        }
        Event::ConnectionRequest { from_agent, verification_code, .. } => match verification_code {
            Some(code) => format!("{from_agent} wants to connect; the code is {code}"),
            None => format!("{from_agent} wants to connect"),
        },
        Event::ConnectionApproved { connected_agent, .. } => format!("{connected_agent} approved your request"),
        Event::ConnectionChanged { agent, status, .. } => format!("the connection with {agent} is {}", status.as_str()),
        Event::Receipt { message_id, receipt } => {
            format!("{message_id} to {} is {}", receipt.recipient, receipt.word()).to_lowercase()
        }
        Event::TaskOverdue { task } => format!("task {} of {} for {} is overdue", task.id, task.owner, task.assignee),
        Event::HouseholdChanged { agent, change, by, .. } => {
            let by = by.as_ref().map_or(String::new(), |by| format!(", by {by}"));
            format!("{agent} {} the household{by}", change.as_str())
        }
        Event::SteppedIn(acted) => visible(&acted.to_string()),
        Event::Unknown => "something that this version of amb does not know; a newer one shows it".into(),
    }
}

pub(crate) async fn heartbeats(mailbox: Arc<dyn Mailbox>) {
    loop {
        if let Err(error) = unless_unregistered(mailbox.heartbeat().await) {
            tracing::warn!(%error, "heartbeat failed");
        }
        tokio::time::sleep(HEARTBEAT).await;
    }
}
