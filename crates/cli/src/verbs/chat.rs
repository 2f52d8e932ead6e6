//! `amb chat`: a conversation in the terminal.

use std::collections::HashSet;
use std::sync::Arc;
use std::time::Duration;

use amb_core::doc::{MessageView, SessionSummary};
use amb_core::event::{Event, NewMessage};
use amb_core::mailbox::{HistoryPage, Mailbox};
use amb_core::message::NO_SUBJECT;
use amb_core::suggest::unknown_agent;
use amb_core::{AgentName, Cursor, Draft, Kind, MessageId, OfficeError, Receipt, SessionId, limits};
use tokio::io::{AsyncBufReadExt, BufReader, Lines, Stdin};
use tokio::sync::mpsc;
use tokio::time::Instant;

use crate::args::OfficeArgs;
use crate::failure::Failure;
use crate::output::{Output, ago, duration, preview, visible};
use crate::signals::interrupted;
use crate::table::Tone;
use crate::typing::Typing;
use crate::verbs::read::part_lines;
use crate::verbs::watch::{heartbeats, retry_outages};
use crate::{ids, last};

/// How long one read of the log waits. A message ends the wait at once.
const WAIT: Duration = Duration::from_secs(30);
/// How often the other agent's presence is checked.
const PRESENCE_INTERVAL: Duration = Duration::from_secs(10);
/// The subject of a conversation that begins here.
const SUBJECT: &str = "Chat";

/// Chat with an agent interactively: each line is sent as a message
///
/// Continues the newest conversation with the agent. Shows its replies as they arrive, its presence, and when it has
/// read your messages. Ctrl-D ends the chat. In a pipe, each line of stdin is sent; with --wait it then waits for a
/// reply.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  amb chat codex
  amb chat codex --subject 'The failing test'
  echo 'are you done?' | amb chat codex --wait 2m")]
pub(crate) struct ChatCommand {
    /// Agent to chat with
    agent: AgentName,
    /// Start or continue the conversation with this subject
    #[arg(long, value_name = "S")]
    subject: Option<String>,
    /// Number of previous messages to show at the start
    #[arg(long, value_name = "N", default_value_t = 10, value_parser = clap::value_parser!(u32).range(0..=i64::from(limits::MAX_HISTORY)))]
    last: u32,
    /// At the end of stdin, wait this long for a reply, such as 90s or 5m
    #[arg(long, value_name = "SPAN", value_parser = duration)]
    wait: Option<Duration>,
}

impl ChatCommand {
    pub(crate) async fn run(self, office: &OfficeArgs, output: Output) -> Result<(), Failure> {
        let mailbox = office.open().await?;
        let mut conversation = Chat::begin(&self, Arc::clone(&mailbox), output).await?;
        let heartbeats = tokio::spawn(heartbeats(Arc::clone(&mailbox)));
        conversation.start_typing();
        let ended = tokio::select! {
            ended = conversation.run(self.wait) => ended,
            interrupted = interrupted() => interrupted.map_err(Failure::from),
        };
        heartbeats.abort();
        // Restores the terminal, so that further output begins on a line of its own.
        drop(conversation);
        if let Err(error) = mailbox.leave().await {
            tracing::debug!(%error, "cannot mark the agent as offline; its missing heartbeats will");
        }
        ended
    }
}

/// A running conversation.
struct Chat {
    mailbox: Arc<dyn Mailbox>,
    output: Output,
    with: AgentName,
    subject: String,
    session: Option<SessionId>,
    /// The last message of the other agent, to which the next line replies.
    last_received: Option<MessageId>,
    /// Messages shown at the beginning, which are skipped when the log reports them.
    shown: HashSet<MessageId>,
    /// Messages sent here, whose receipts are shown.
    sent: HashSet<MessageId>,
    presence: Option<String>,
    cursor: Cursor,
    /// Where a person types.
    typing: Option<Typing>,
}

impl Chat {
    async fn begin(chat: &ChatCommand, mailbox: Arc<dyn Mailbox>, output: Output) -> Result<Self, Failure> {
        // The cursor is taken before anything is shown, so that nothing is missed in between.
        let cursor = mailbox.events(None, Duration::ZERO).await?.cursor;
        let inbox = ids::whole_inbox(&*mailbox).await?;
        let found = inbox.sessions.iter().find(|session| {
            let same = chat.subject.as_ref().is_none_or(|subject| *subject == session.subject);
            same && session.ended_by.is_none() && ids::is_with(session, chat.agent.as_str())
        });
        let mut conversation = Self {
            mailbox,
            output,
            with: chat.agent.clone(),
            subject: found
                .map_or_else(|| chat.subject.clone(), |found| Some(found.subject.clone()))
                .unwrap_or_else(|| new_subject(&inbox.sessions, chat.agent.as_str())),
            session: found.map(|found| found.session_id.clone()),
            last_received: None,
            shown: HashSet::new(),
            sent: HashSet::new(),
            presence: None,
            cursor,
            typing: None,
        };
        conversation.check_presence(found.is_none()).await?;
        if let Some(found) = found {
            conversation.show_last(found, chat.last).await?;
        }
        Ok(conversation)
    }

    /// Starts to read lines, after the last messages were shown.
    fn start_typing(&mut self) {
        self.typing = Typing::begin(self.output);
        self.prompt();
    }

    /// Shows the last messages, which marks them as read.
    async fn show_last(&mut self, session: &SessionSummary, count: u32) -> Result<(), Failure> {
        if count == 0 {
            return Ok(());
        }
        let history = self.mailbox.read(&session.session_id, HistoryPage::newest(count)?).await?;
        last::record(&*self.mailbox, &session.session_id);
        self.output.note(self.output.paint(Tone::Quiet, &format!("# {}", visible(&session.title()))));
        for message in history.messages.iter().rev() {
            self.shown.insert(message.id.clone());
            if message.sender_name == self.with {
                self.last_received = Some(message.id.clone());
            }
            self.show(message, None)?;
        }
        Ok(())
    }

    /// Shows a message. `elsewhere` is the subject of its conversation, where that is not this one.
    fn show(&self, message: &MessageView, elsewhere: Option<&str>) -> Result<(), Failure> {
        if self.output.json {
            return Ok(self.output.json_line(message)?);
        }
        let mine = message.sender_name == *self.mailbox.me();
        let name = if mine { "you".to_owned() } else { visible(message.sender_name.as_str()) };
        let tone = if mine { Tone::Quiet } else { Tone::Strong };
        let kind = match (&message.kind, &message.task) {
            (Kind::Message, _) => String::new(),
            (Kind::TaskUpdate, Some(task)) => {
                format!(" [task {}]", self.output.paint(Tone::of_state(task.state.as_str()), task.state.as_str()))
            }
            (kind, _) => format!(" [{}]", visible(kind.as_str())),
        };
        let place = match elsewhere {
            None => String::new(),
            Some(NO_SUBJECT) => " in another conversation".to_owned(),
            Some(subject) => format!(" in {:?}", visible(&preview(subject, 30))),
        };
        // The content of an update without a note is its state, which is shown already.
        let is_state = message.task.as_ref().is_some_and(|task| task.state.as_str() == message.content);
        let mut lines = message.content.lines().filter(|_| !is_state).map(visible);
        let first = lines.next().map(|line| format!(": {line}")).unwrap_or_default();
        let when = match ago(message.created_at) {
            now if now == "now" => String::new(),
            when => self.output.paint(Tone::Quiet, &format!("  ({when})")),
        };
        self.output.say(format!("{}{kind}{place}{first}{when}", self.output.paint(tone, &name)))?;
        let mut rest = lines.chain(part_lines(&message.parts));
        Ok(rest.try_for_each(|line| self.output.say(format!("    {line}")))?)
    }

    /// Shows a change of the other agent's presence. At the beginning an unknown agent is an error.
    async fn check_presence(&mut self, must_be_known: bool) -> Result<(), Failure> {
        let agents = self.mailbox.agents().await?;
        let Some(agent) = agents.iter().find(|agent| agent.name == self.with) else {
            if must_be_known {
                let known = agents.iter().map(|agent| agent.name.as_str());
                return Err(OfficeError::not_found(unknown_agent(self.with.as_str(), known)).into());
            }
            return Ok(());
        };
        let status = if agent.paused { "paused".to_owned() } else { agent.presence.status.to_string() };
        if self.presence.as_ref() != Some(&status) {
            let more = match (status.as_str(), agent.presence.last_seen.map(ago)) {
                ("paused", _) => "; mail waits until it is resumed".to_owned(),
                ("offline", Some(seen)) if seen != "now" => format!(" (seen {seen}); mail waits"),
                ("offline", _) => "; mail waits".to_owned(),
                _ => String::new(),
            };
            let person = if agent.person { ", a person," } else { "" };
            let painted = self.output.paint(Tone::of_state(&status), &status);
            self.show_aside(&format!("{}{person} is {painted}{more}", self.with));
            self.presence = Some(status);
        }
        Ok(())
    }

    async fn recheck_presence(&mut self) {
        if let Err(error) = self.check_presence(false).await {
            tracing::debug!(error = %error.detail(), "the presence of the other agent is unknown");
        }
    }

    /// Sends lines and shows events until stdin ends, and then waits for an answer where `wait` is given.
    async fn run(&mut self, wait: Option<Duration>) -> Result<(), Failure> {
        // Read only where no person types; else `typing` reads stdin.
        let mut lines = BufReader::new(tokio::io::stdin()).lines();
        let mut events = follow(Arc::clone(&self.mailbox), self.cursor.clone(), self.output);
        let mut presence = tokio::time::interval_at(Instant::now() + PRESENCE_INTERVAL, PRESENCE_INTERVAL);
        // Set once stdin has ended.
        let mut until: Option<Instant> = None;
        loop {
            let over = async {
                match until {
                    Some(until) => tokio::time::sleep_until(until).await,
                    None => std::future::pending().await,
                }
            };
            tokio::select! {
                line = next_line(&mut self.typing, &mut lines), if until.is_none() => match line? {
                    Some(line) => self.send(line.trim_end()).await?,
                    None if wait.is_some() && !self.sent.is_empty() => until = wait.map(|wait| Instant::now() + wait),
                    None => return Ok(()),
                },
                event = events.recv() => {
                    let event = event.unwrap_or_else(|| Err(OfficeError::unavailable("the office is gone")))?;
                    let answered = self.handle(event).await?;
                    match until {
                        Some(_) if answered => return Ok(()),
                        // A message from the other agent may mean that it came online.
                        None if answered => self.recheck_presence().await,
                        _ => {}
                    }
                }
                _ = presence.tick(), if until.is_none() => self.recheck_presence().await,
                () = over => {
                    let detail = format!("{} has not answered yet; `amb chat {}` shows what comes", self.with, self.with);
                    return Err(OfficeError::unavailable(detail).into());
                }
            }
        }
    }

    async fn send(&mut self, line: &str) -> Result<(), Failure> {
        if line.trim().is_empty() {
            self.prompt();
            return Ok(());
        }
        let subject = self.session.is_none().then(|| self.subject.clone());
        let draft = Draft {
            session: self.session.clone(),
            subject,
            reply_to: self.last_received.clone().filter(|_| self.session.is_some()),
            ..Draft::text(self.with.clone(), "", line)
        };
        let sent = match (self.mailbox.send(draft).await, &mut self.typing) {
            (Ok(sent), _) => sent,
            // The line stays, to be sent again or changed.
            (Err(error), Some(typing)) => {
                self.output.error(error.code().as_str(), error.detail());
                typing.put_back(line);
                self.prompt();
                return Ok(());
            }
            (Err(error), None) => return Err(error.into()),
        };
        self.session = Some(sent.session_id.clone());
        last::record(&*self.mailbox, &sent.session_id);
        self.sent.insert(sent.message_id.clone());
        if self.output.json {
            self.output.json_line(&sent)?;
        }
        self.prompt();
        Ok(())
    }

    /// Shows an event of this conversation. Returns whether the other agent wrote something.
    async fn handle(&mut self, event: Event) -> Result<bool, Failure> {
        match event {
            Event::NewMessage(mail)
                if mail.from_agent == self.with || self.session.as_ref() == Some(&mail.session_id) =>
            {
                let id = mail.message_id.clone();
                if self.shown.contains(&id) {
                    return Ok(false);
                }
                let is_here = self.session.as_ref().is_none_or(|session| *session == mail.session_id);
                if is_here {
                    self.session = Some(mail.session_id.clone());
                    self.last_received = Some(id.clone());
                }
                self.clear();
                let subject = mail.subject.clone();
                self.show(&view(mail), Some(subject.as_str()).filter(|_| !is_here))?;
                self.prompt();
                self.mailbox.ack(std::slice::from_ref(&id)).await?;
                Ok(true)
            }
            Event::Receipt { message_id, receipt } if self.sent.contains(&message_id) => {
                match self.output.json {
                    true => self.output.json_line(&Event::Receipt { message_id, receipt })?,
                    false => self.show_aside(&self.output.paint(Tone::Quiet, &receipt_words(&receipt))),
                }
                Ok(false)
            }
            _ => Ok(false),
        }
    }

    /// Shows a note about the conversation on stderr, and draws the line that is being typed again below it.
    fn show_aside(&mut self, text: &str) {
        self.clear();
        self.output.note(format!("  {text}"));
        self.prompt();
    }

    fn clear(&mut self) {
        self.typing.iter_mut().for_each(Typing::clear);
    }

    fn prompt(&mut self) {
        self.typing.iter_mut().for_each(Typing::prompt);
    }
}

/// The subject of a new conversation: one that no ended conversation with the agent has, because mail with such a
/// subject is refused.
fn new_subject(sessions: &[SessionSummary], agent: &str) -> String {
    let ended = |subject: &String| {
        let mut ended = sessions.iter().filter(|session| session.ended_by.is_some() && ids::is_with(session, agent));
        ended.any(|session| session.subject.eq_ignore_ascii_case(subject))
    };
    let numbered = (2..).map(|number| format!("{SUBJECT} {number}"));
    std::iter::once(SUBJECT.to_owned()).chain(numbered).find(|subject| !ended(subject)).unwrap_or_default()
}

/// The next line that is typed, or that is on stdin.
async fn next_line(
    typing: &mut Option<Typing>,
    lines: &mut Lines<BufReader<Stdin>>,
) -> std::io::Result<Option<String>> {
    match typing {
        Some(typing) => typing.next_line().await,
        None => lines.next_line().await,
    }
}

/// The state of a receipt in words.
fn receipt_words(receipt: &Receipt) -> String {
    match receipt.word() {
        "rung" => format!("rung: {}'s client was told of it", receipt.recipient),
        word => word.to_owned(),
    }
}

fn view(mail: NewMessage) -> MessageView {
    MessageView {
        id: mail.message_id,
        sender_name: mail.from_agent,
        from_person: mail.from_person,
        content: mail.content,
        created_at: mail.created_at,
        is_read: false,
        kind: mail.kind,
        priority: mail.priority,
        parts: mail.parts,
        task: mail.task,
        reply_to: mail.reply_to,
        correlation_id: mail.correlation_id,
        callback: None,
        metadata: Default::default(),
        truncated: false,
    }
}

/// Follows the mailbox's log from a cursor. The channel ends with an error that a retry cannot help.
pub(crate) fn follow(
    mailbox: Arc<dyn Mailbox>,
    mut cursor: Cursor,
    output: Output,
) -> mpsc::Receiver<Result<Event, OfficeError>> {
    let (sender, events) = mpsc::channel(64);
    tokio::spawn(async move {
        loop {
            match retry_outages(output, || mailbox.events(Some(cursor.clone()), WAIT)).await {
                Ok(page) => {
                    cursor = page.cursor;
                    for entry in page.events {
                        if sender.send(Ok(entry.event)).await.is_err() {
                            return;
                        }
                    }
                }
                Err(error) => {
                    let _ = sender.send(Err(error)).await;
                    return;
                }
            }
        }
    });
    events
}
