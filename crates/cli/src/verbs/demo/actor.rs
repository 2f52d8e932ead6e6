//! One scripted agent: a real client of the office that follows its log over a WebSocket.

use std::time::Duration;

use amb_client::{Client, EventFollower, ServerUrl};
use amb_core::doc::{RegisterBody, Sent};
use amb_core::mailbox::Mailbox;
use amb_core::{
    AgentName, Card, Code, Cursor, Draft, Entry, Event, Message, MessageId, OfficeError, Part, ReceiptState, TaskId,
    TaskState,
};
use anyhow::anyhow;
use serde_json::json;

use super::screen::{Screen, quoted};
use crate::failure::Failure;

/// How long an entry may take to arrive; after this the demonstration has failed.
const TIMEOUT: Duration = Duration::from_secs(20);

pub(super) struct Actor {
    pub(super) mailbox: Client,
    /// What the office pushes; `None` while the agent is disconnected.
    log: Option<EventFollower>,
    /// How far the agent has read its log.
    cursor: Cursor,
}

impl Actor {
    /// Registers an agent, in a household where a token is given, and follows its log.
    pub(super) async fn register(
        server: &ServerUrl,
        screen: &mut Screen,
        name: &str,
        description: &str,
        household: Option<&str>,
    ) -> Result<Self, Failure> {
        screen.step().await;
        let card = Card { description: description.into(), ..Card::default() };
        let name = AgentName::parse(name).map_err(OfficeError::from)?;
        let body = RegisterBody { household_token: household.map(str::to_owned), ..RegisterBody::new(&name, card) };
        let registered = amb_client::register(server, &body).await?;
        let mailbox = Client::open(server.clone(), registered.api_key).await?;
        // Makes its presence visible at once; its requests alone would within seconds.
        mailbox.heartbeat().await?;
        let cursor = mailbox.events(None, Duration::ZERO).await?.cursor;
        let log = Some(mailbox.follow(cursor.clone())?);
        let answer = json!({ "id": registered.id, "name": registered.name });
        screen.done(&registered.name, "register", &answer, &format!("registers: {description}"))?;
        Ok(Self { mailbox, log, cursor })
    }

    pub(super) fn name(&self) -> &AgentName {
        self.mailbox.me()
    }

    /// Sends; when this returns, the message is durable.
    pub(super) async fn send(&self, screen: &mut Screen, draft: Draft) -> Result<Sent, Failure> {
        screen.step().await;
        let line = describe(&draft);
        let sent = self.mailbox.send(draft).await?;
        screen.done(self.name(), "send", &sent, &line)?;
        Ok(sent)
    }

    /// Sends a message that the office must refuse with this code.
    pub(super) async fn send_refused(&self, screen: &mut Screen, draft: Draft, code: Code) -> Result<(), Failure> {
        screen.step().await;
        let line = describe(&draft);
        match self.mailbox.send(draft).await {
            Err(error) if error.code() == code => screen.refused(self.name(), "send", &line, &error),
            Err(error) => Err(error.into()),
            Ok(sent) => Err(anyhow!("the office took message {} and should have refused it", sent.message_id).into()),
        }
    }

    /// Waits for an entry in the log, and shows it and those before it.
    pub(super) async fn wait_for(
        &mut self,
        screen: &mut Screen,
        wanted: impl Fn(&Event) -> bool,
    ) -> Result<Event, Failure> {
        let name = self.name().clone();
        let log = self.log.as_mut().ok_or_else(|| anyhow!("{name} is away"))?;
        loop {
            let next = tokio::time::timeout(TIMEOUT, log.next()).await;
            let entry: Entry = match next {
                Ok(Some(entry)) => entry?,
                Ok(None) => return Err(anyhow!("the office closed the log of {name}").into()),
                Err(_) => return Err(anyhow!("{name} was not told within {} s", TIMEOUT.as_secs()).into()),
            };
            self.cursor = entry.cursor.clone();
            // Delivery receipts are recorded some time later, in no order with the rest.
            if matches!(&entry.event, Event::Receipt { receipt, .. } if receipt.state == ReceiptState::Delivered) {
                continue;
            }
            screen.pushed(&name, &entry)?;
            if wanted(&entry.event) {
                return Ok(entry.event);
            }
        }
    }

    /// Waits for a message.
    pub(super) async fn wait_for_message(&mut self, screen: &mut Screen, id: &MessageId) -> Result<(), Failure> {
        self.wait_for(screen, |event| matches!(event, Event::NewMessage(mail) if mail.message_id == *id)).await?;
        Ok(())
    }

    /// Waits until the office says that a task is in this state.
    pub(super) async fn wait_for_task(
        &mut self,
        screen: &mut Screen,
        id: &TaskId,
        state: TaskState,
    ) -> Result<(), Failure> {
        let is_it = |event: &Event| match event {
            Event::NewMessage(mail) => mail.task.as_ref().is_some_and(|task| task.id == *id && task.state == state),
            _ => false,
        };
        self.wait_for(screen, is_it).await?;
        Ok(())
    }

    /// Changes the state of a task.
    pub(super) async fn set_task_state(
        &self,
        screen: &mut Screen,
        id: &TaskId,
        state: TaskState,
        note: Option<&str>,
    ) -> Result<(), Failure> {
        screen.step().await;
        let task = self.mailbox.set_task_state(id, state, note.map(str::to_owned)).await?;
        let note = note.map_or(String::new(), |note| format!(": {}", quoted(note)));
        screen.done(self.name(), "task", &task, &format!("task {}{note}", task.state))
    }

    /// Disconnects and marks the agent as offline.
    pub(super) async fn leave(&mut self, screen: &mut Screen) -> Result<(), Failure> {
        screen.step().await;
        self.log = None;
        self.mailbox.leave().await?;
        let text = format!("goes away, at entry {} of its log", self.cursor);
        screen.done(self.name(), "leave", &json!({ "cursor": self.cursor }), &text)
    }

    /// Connects again and continues from its cursor.
    pub(super) async fn reconnect(&mut self, screen: &mut Screen) -> Result<(), Failure> {
        screen.step().await;
        self.mailbox.heartbeat().await?;
        self.log = Some(self.mailbox.follow(self.cursor.clone())?);
        let text = format!("is back, and asks for what came after entry {}", self.cursor);
        screen.done(self.name(), "follow", &json!({ "since": self.cursor }), &text)
    }

    /// A message as the office has it, with its remaining hops.
    pub(super) async fn message(&self, id: &MessageId) -> Result<Message, Failure> {
        Ok(self.mailbox.message(id).await?.message)
    }
}

fn describe(draft: &Draft) -> String {
    let text = draft.parts.iter().find_map(|part| match part {
        Part::Text { text } => Some(text.as_str()),
        _ => None,
    });
    let what = match (&draft.reply_to, &draft.relay_of, draft.is_automatic()) {
        (Some(_), _, true) => "automatic answer to",
        (Some(_), _, false) => "answer to",
        (_, Some(_), _) => "passes it on to",
        _ if draft.kind == amb_core::Kind::Task => "task for",
        _ => "mail to",
    };
    format!("{what} {}: {}", draft.to, quoted(text.unwrap_or_default()))
}
