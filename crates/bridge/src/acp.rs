//! Runs a resident agent that speaks the Agent Client Protocol (ACP): one process for all messages, one ACP session for
//! each conversation.
//!
//! The protocol has no queue: in some agents a second prompt during a turn cancels the first one. The bridge runs the
//! turns of a conversation one after the other, so a session never has two prompts.
//!
//! A session whose process died in the middle of a turn is lost. The next turn of its conversation begins a new
//! session, and its prompt includes the last exchanges. A session that was idle when the process ended is loaded again
//! where the agent supports `session/load`, and is treated as lost otherwise.

mod agent;
mod collected;
mod lines;
mod memory;
mod permissions;
mod wire;

use std::ffi::OsString;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use parking_lot::Mutex;
use serde_json::{Value, json};
use tokio::time::Instant;

use self::agent::{AcpAgent, AcpSession, CallError, PendingRequest};
use self::memory::ConversationMemory;
pub use self::permissions::Permissions;
use crate::file::{self, Sync};
use crate::processes;
use crate::runtime::{FailureKind, Runtime, Turn, TurnError, TurnOutcome};

/// How long a turn may take by default.
pub const DEFAULT_TIMEOUT: Duration = Duration::from_secs(600);
/// How long an agent may take to start, or to begin a session.
const START_LIMIT: Duration = Duration::from_secs(60);
/// How long a cancelled turn may take to end before the agent's process is killed. Shorter than the time the bridge
/// waits beyond a turn's limit.
const CANCEL_LIMIT: Duration = Duration::from_secs(5);
/// Error of a turn whose deadline passed before the agent was asked.
const OUT_OF_TIME: &str = "the time of the turn was over; --turn-timeout gives it longer";
/// The most open sessions; above this the least recently used one is closed.
const MAX_SESSIONS: usize = 100;

/// How an agent is started and what it may do.
#[derive(Debug, Clone)]
pub struct AcpOptions {
    /// The program and its arguments.
    pub command: Vec<String>,
    /// Its whole environment: nothing is inherited from this process.
    pub environment: Vec<(OsString, OsString)>,
    /// The directory in which it works; absolute.
    pub directory: PathBuf,
    /// The answer to requests of permission.
    pub permissions: Permissions,
    /// The authentication method to use before the first session.
    pub authenticate: Option<String>,
    /// The directory of run records, from which [`Runtime::end_leftovers`] finds the processes of a killed bridge.
    pub records: Option<PathBuf>,
    /// The directory in which conversations are stored.
    pub memory: Option<PathBuf>,
    /// How long the agent may take to start, or to begin a session.
    pub start_limit: Duration,
    /// How long a cancelled turn may take to end.
    pub cancel_limit: Duration,
}

impl Default for AcpOptions {
    fn default() -> Self {
        Self {
            command: Vec::new(),
            environment: Vec::new(),
            directory: PathBuf::from("/"),
            permissions: Permissions::default(),
            authenticate: None,
            records: None,
            memory: None,
            start_limit: START_LIMIT,
            cancel_limit: CANCEL_LIMIT,
        }
    }
}

/// A resident agent.
pub struct Acp {
    options: AcpOptions,
    /// The running agent. Locked while one is started, so that there are never two.
    running: tokio::sync::Mutex<Option<Arc<AcpAgent>>>,
    /// What the agent reported about itself in `initialize`.
    about: Mutex<About>,
}

#[derive(Debug, Clone, Default)]
struct About {
    name: Option<String>,
    can_load: bool,
    can_close: bool,
    /// The authentication methods that it offers.
    methods: Vec<String>,
}

impl Acp {
    /// Creates the runtime; the agent's process is started when it is first needed.
    pub fn new(options: AcpOptions) -> Self {
        Self { options, running: tokio::sync::Mutex::default(), about: Mutex::default() }
    }

    fn about(&self) -> About {
        self.about.lock().clone()
    }

    /// Returns the agent, after starting it if it does not run.
    async fn agent(&self, deadline: Instant) -> Result<Arc<AcpAgent>, TurnError> {
        let mut running = self.running.lock().await;
        if let Some(agent) = running.as_ref().filter(|agent| agent.ended().is_none()) {
            return Ok(Arc::clone(agent));
        }
        if let Some(why) = running.take().and_then(|agent| agent.ended()) {
            tracing::warn!(%why, "the agent has ended; restarting it");
        }
        let AcpOptions { command, environment, directory, records, permissions, .. } = &self.options;
        let unreachable = |detail: String| TurnError::new(FailureKind::Unreachable, detail);
        let agent = AcpAgent::start(command, environment, directory, records.as_deref(), *permissions);
        let agent = agent.map_err(unreachable)?;
        let said = self.start(&agent, "initialize", &wire::initialize(), deadline).await?;
        let version = said.get("protocolVersion").and_then(Value::as_u64);
        if version != Some(wire::VERSION) {
            let spoken = version.map_or("none".to_owned(), |version| version.to_string());
            let detail = format!("the agent speaks version {spoken} of the protocol, and the bridge version 1");
            return Err(TurnError::new(FailureKind::NotOffered, detail));
        }
        *self.about.lock() = About::read(&said);
        if let Some(method) = &self.options.authenticate {
            self.start(&agent, "authenticate", &json!({ "methodId": method }), deadline).await?;
        }
        *running = Some(Arc::clone(&agent));
        Ok(agent)
    }

    /// Sends a request without which the turn cannot run, and translates its error. All requests of a turn share its
    /// deadline.
    async fn start(
        &self,
        agent: &AcpAgent,
        method: &str,
        params: &Value,
        deadline: Instant,
    ) -> Result<Value, TurnError> {
        let limit = self.options.start_limit.min(time_left(deadline));
        agent.call(method, params, limit).await.map_err(|error| {
            let (trouble, detail) = match error {
                CallError::Ended(why) => (FailureKind::Unreachable, format!("{method}: {why}")),
                // The turn's deadline came first. The agent itself may be fine and at work for other turns.
                CallError::Late if limit < self.options.start_limit => {
                    (FailureKind::Timeout, format!("{method}: {OUT_OF_TIME}"))
                }
                CallError::Late => {
                    agent.end("it did not answer in time");
                    (FailureKind::Unreachable, format!("{method}: no answer within {limit:?}; is it an ACP agent?"))
                }
                CallError::Rpc(error) if error.code == wire::AUTH_REQUIRED || method == "authenticate" => {
                    (FailureKind::Unauthorized, self.unauthorized(&error.message))
                }
                CallError::Rpc(error) if error.code == wire::METHOD_NOT_FOUND => {
                    (FailureKind::NotOffered, format!("the agent does not offer {method}: {}", error.message))
                }
                CallError::Rpc(error) => (FailureKind::Unreachable, format!("{method}: {}", error.message)),
            };
            TurnError::new(trouble, detail)
        })
    }

    fn unauthorized(&self, message: &str) -> String {
        let methods = match self.about().methods.as_slice() {
            [] => String::new(),
            methods => format!("; it offers {}: name one with --auth", methods.join(", ")),
        };
        format!(
            "the agent wants to be authenticated ({message}): log in with it once, or pass its key with --env{methods}"
        )
    }

    fn memory_path(&self, conversation: &str) -> Option<PathBuf> {
        self.options.memory.as_ref().map(|memory| memory.join(file::name(conversation)))
    }

    fn load_memory(&self, conversation: &str) -> ConversationMemory {
        let Some(path) = self.memory_path(conversation) else { return ConversationMemory::default() };
        match file::read(&path) {
            Ok(memory) => memory.unwrap_or_default(),
            Err(error) => {
                // Only the conversation's history is lost; the message is not.
                tracing::warn!(%error, "cannot read a conversation's history; it starts anew");
                ConversationMemory::default()
            }
        }
    }

    fn save_memory(&self, conversation: &str, memory: &ConversationMemory) {
        if let Some(path) = self.memory_path(conversation)
            && let Err(error) = file::write(&path, memory, Sync::Later)
        {
            tracing::warn!(%error, "cannot write a conversation's history; it is lost if the agent ends");
        }
    }

    /// Returns the session of a conversation, and whether it is new and so lacks the earlier exchanges.
    async fn session(
        &self,
        agent: &AcpAgent,
        key: &str,
        memory: &ConversationMemory,
        deadline: Instant,
    ) -> Result<(String, bool), TurnError> {
        let open = agent.sessions.lock().get(key).cloned();
        if let Some(session) = open {
            return Ok((session.id, false));
        }
        let directory = &self.options.directory;
        if let (Some(old), true, true) = (&memory.session, memory.is_settled, self.about().can_load) {
            let params = json!({ "cwd": directory, "mcpServers": [], "sessionId": old });
            match agent.call("session/load", &params, self.options.start_limit.min(time_left(deadline))).await {
                Ok(_) => return Ok((old.clone(), false)),
                Err(error) => tracing::info!(?error, "cannot load a session; starting a new one"),
            }
        }
        let params = json!({ "cwd": directory, "mcpServers": [] });
        let created = self.start(agent, "session/new", &params, deadline).await?;
        match created.get("sessionId").and_then(Value::as_str) {
            Some(id) => Ok((id.to_owned(), true)),
            None => Err(TurnError::new(FailureKind::NotOffered, "the agent made a session without a name")),
        }
    }

    /// Marks a session as used now; above the limit, closes the least recently used one.
    fn touch_session(&self, agent: &AcpAgent, key: &str, id: &str) {
        let extra = {
            let mut sessions = agent.sessions.lock();
            sessions.insert(key.to_owned(), AcpSession { id: id.to_owned(), used: Instant::now() });
            let idle = sessions.iter().filter(|(_, session)| !agent.has_running_turn(&session.id));
            let oldest = idle.min_by_key(|(_, session)| session.used).map(|(key, _)| key.clone());
            (sessions.len() > MAX_SESSIONS).then(|| oldest.and_then(|key| sessions.remove(&key))).flatten()
        };
        if let Some(session) = extra.filter(|_| self.about().can_close) {
            // No turn waits for the response.
            if let Err(error) = agent.post("session/close", &json!({ "sessionId": session.id })) {
                tracing::debug!(?error, "cannot close an unused session");
            }
        }
    }

    /// Cancels a turn that took too long. Where it does not end in time, kills the agent. Returns whether it ended.
    async fn cancel(&self, agent: &AcpAgent, session: &str, asked: &mut PendingRequest) -> bool {
        let limit = self.options.cancel_limit;
        let _ = agent.notify("session/cancel", &json!({ "sessionId": session }));
        match asked.within(limit).await {
            Ok(_) | Err(CallError::Rpc(_)) => true,
            Err(CallError::Ended(_)) => false,
            Err(CallError::Late) => {
                agent.end(&format!("it went on for {limit:?} after its turn was cancelled, and was killed"));
                false
            }
        }
    }
}

impl About {
    fn read(said: &Value) -> Self {
        let text = |pointer: &str| said.pointer(pointer).and_then(Value::as_str);
        let name = text("/agentInfo/name").map(|name| match text("/agentInfo/version") {
            Some(version) => format!("{name} {version}"),
            None => name.to_owned(),
        });
        let methods = said.get("authMethods").and_then(Value::as_array).into_iter().flatten();
        Self {
            // The agent chooses its name: bounded to one short line, since it is shown in a table.
            name: name.map(|name| name.chars().filter(|c| !c.is_control()).take(60).collect()),
            can_load: said.pointer("/agentCapabilities/loadSession") == Some(&Value::Bool(true)),
            can_close: said.pointer("/agentCapabilities/sessionCapabilities/close").is_some_and(Value::is_object),
            methods: methods.filter_map(|method| Some(method.get("id")?.as_str()?.to_owned())).take(10).collect(),
        }
    }
}

fn time_left(deadline: Instant) -> Duration {
    deadline.saturating_duration_since(Instant::now())
}

/// A prompt that the agent works on. Dropped before its end, it cancels the prompt and forgets the session, because the
/// prompt may still be running there and no session may have two.
struct RunningPrompt<'a> {
    agent: &'a AcpAgent,
    key: &'a str,
    session: &'a str,
    is_finished: bool,
}

impl<'a> RunningPrompt<'a> {
    fn begin(agent: &'a AcpAgent, key: &'a str, session: &'a str) -> Self {
        agent.collect(session);
        Self { agent, key, session, is_finished: false }
    }

    /// Returns the agent's answer.
    fn end(mut self) -> String {
        self.is_finished = true;
        self.agent.take_answer(self.session)
    }
}

impl Drop for RunningPrompt<'_> {
    fn drop(&mut self) {
        if !self.is_finished {
            self.agent.take_answer(self.session);
            self.agent.forget_session(self.key);
            let _ = self.agent.notify("session/cancel", &json!({ "sessionId": self.session }));
        }
    }
}

#[async_trait]
impl Runtime for Acp {
    fn describe(&self) -> String {
        let command = self.options.command.join(" ");
        match self.about().name {
            Some(name) => format!("ACP agent {command} ({name})"),
            None => format!("ACP agent {command}"),
        }
    }

    async fn check(&self) -> Result<(), TurnError> {
        // Twice the limit: once to start, once to authenticate.
        self.agent(Instant::now() + self.options.start_limit * 2).await.map(|_| ())
    }

    async fn end_leftovers(&self) -> std::io::Result<()> {
        processes::end_leftovers(self.options.records.as_deref()).await
    }

    async fn turn(&self, turn: &Turn) -> Result<TurnOutcome, TurnError> {
        let deadline = Instant::now() + turn.timeout;
        let agent = self.agent(deadline).await?;
        let key = turn.session_key.as_str();
        let mut memory = self.load_memory(key);
        let (session, is_new) = self.session(&agent, key, &memory, deadline).await?;
        if time_left(deadline).is_zero() {
            return Err(TurnError::new(FailureKind::Timeout, format!("the agent was not asked: {OUT_OF_TIME}")));
        }
        self.touch_session(&agent, key, &session);
        let prompt = if is_new { memory.prompt_with_history(&turn.prompt) } else { turn.prompt.clone() };
        memory.session = Some(session.clone());
        memory.is_settled = false;
        self.save_memory(key, &memory);

        let running = RunningPrompt::begin(&agent, key, &session);
        let ran = match agent.ask("session/prompt", &wire::prompt(&session, &prompt)).await {
            Ok(mut asked) => match asked.within(time_left(deadline)).await {
                Err(CallError::Late) => {
                    memory.is_settled = self.cancel(&agent, &session, &mut asked).await;
                    Err(CallError::Late)
                }
                ran => ran,
            },
            Err(error) => Err(error),
        };
        let text = running.end();
        let failed = |detail: String| TurnError::new(FailureKind::Failed, detail);
        let mut is_lost = false;
        let outcome = match ran {
            Ok(said) => {
                memory.is_settled = true;
                outcome_of(said.get("stopReason").and_then(Value::as_str), text)
            }
            Err(CallError::Late) => {
                let detail = format!("no answer within {:?}; --turn-timeout gives it longer", turn.timeout);
                Err(TurnError::new(FailureKind::Timeout, detail))
            }
            Err(CallError::Ended(why)) => Err(TurnError::new(FailureKind::Lost, why)),
            Err(CallError::Rpc(error)) if error.code == wire::AUTH_REQUIRED => {
                Err(TurnError::new(FailureKind::Unauthorized, self.unauthorized(&error.message)))
            }
            Err(CallError::Rpc(error)) => {
                memory.is_settled = true;
                // The session is gone, or the same message failed in it again.
                is_lost = turn.tried || matches!(error.code, wire::NOT_FOUND | wire::INVALID_PARAMS);
                Err(failed(format!("the agent: {}", error.message)))
            }
        };
        if is_lost || !memory.is_settled {
            agent.forget_session(key);
            memory.is_settled = false;
        }
        if let Ok(outcome) = &outcome {
            let answer = match outcome {
                TurnOutcome::Reply(text) => text.as_str(),
                TurnOutcome::NoReply => "",
            };
            memory.keep(&turn.mail, answer);
        }
        self.save_memory(key, &memory);
        outcome
    }
}

/// Translates the reason for which a turn ended.
fn outcome_of(reason: Option<&str>, text: String) -> Result<TurnOutcome, TurnError> {
    let is_blank = text.trim().is_empty();
    match (reason.unwrap_or("none"), is_blank) {
        ("end_turn", true) => Ok(TurnOutcome::NoReply),
        ("end_turn", false) | ("refusal", false) => Ok(TurnOutcome::Reply(text)),
        ("refusal", true) => Err(TurnError::new(FailureKind::Refused, "the agent refuses to go on with this mail")),
        (reason @ ("max_tokens" | "max_turn_requests"), false) => {
            Ok(TurnOutcome::Reply(format!("{text}\n[cut: the agent stopped at a limit: {reason}]")))
        }
        (reason, _) => Err(TurnError::new(FailureKind::Failed, format!("the turn ended without an answer: {reason}"))),
    }
}
