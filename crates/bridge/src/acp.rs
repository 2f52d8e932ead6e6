//! Runs a resident agent that speaks the Agent Client Protocol (ACP): one process for all messages, one ACP session for each
//! conversation.
//!
//! The protocol has no queue: in some agents a second prompt during a turn cancels the first one. The bridge runs the turns of a
//! conversation one after the other, so a session never has two prompts.
//!
//! A session whose process died in the middle of a turn is lost. The next turn of its conversation begins a new session, and its
//! prompt includes the last exchanges. A session that was idle when the process ended is loaded again where the agent supports
//! `session/load`, and is treated as lost otherwise.

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
use crate::runtime::{Runtime, Trouble, Turn, TurnError, TurnOutcome};

/// How long a turn may take by default.
pub const DEFAULT_TIMEOUT: Duration = Duration::from_secs(600);
/// How long an agent may take to start, or to begin a session.
const START_LIMIT: Duration = Duration::from_secs(60);
/// How long a cancelled turn may take to end before the agent's process is killed. Shorter than the time the bridge waits beyond
/// a turn's limit.
const CANCEL_LIMIT: Duration = Duration::from_secs(5);
/// Why a turn ended without an answer.
const TOO_LATE: &str = "the time of the turn was over; --turn-timeout gives it longer";
/// The most sessions that are open at once; the one that was not used for the longest time is closed.
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
            tracing::warn!(%why, "the agent has ended and is started again");
        }
        let AcpOptions { command, environment, directory, records, permissions, .. } = &self.options;
        let unreachable = |detail: String| TurnError::new(Trouble::Unreachable, detail);
        let agent = AcpAgent::start(command, environment, directory, records.as_deref(), *permissions);
        let agent = agent.map_err(unreachable)?;
        let said = self.start(&agent, "initialize", &wire::initialize(), deadline).await?;
        let version = said.get("protocolVersion").and_then(Value::as_u64);
        if version != Some(wire::VERSION) {
            let spoken = version.map_or("none".to_owned(), |version| version.to_string());
            let detail = format!("the agent speaks version {spoken} of the protocol, and the bridge version 1");
            return Err(TurnError::new(Trouble::NotOffered, detail));
        }
        *self.about.lock() = About::read(&said);
        if let Some(method) = &self.options.authenticate {
            self.start(&agent, "authenticate", &json!({ "methodId": method }), deadline).await?;
        }
        *running = Some(Arc::clone(&agent));
        Ok(agent)
    }

    /// Sends a request that the turn depends on. All requests of a turn share its deadline.
    async fn start(
        &self,
        agent: &AcpAgent,
        method: &str,
        params: &Value,
        deadline: Instant,
    ) -> Result<Value, TurnError> {
        let limit = self.options.start_limit.min(left(deadline));
        agent.call(method, params, limit).await.map_err(|error| {
            let (trouble, detail) = match error {
                CallError::Ended(why) => (Trouble::Unreachable, format!("{method}: {why}")),
                // The turn's deadline came first. The agent itself may be fine and at work for other turns.
                CallError::Late if limit < self.options.start_limit => {
                    (Trouble::Timeout, format!("{method}: {TOO_LATE}"))
                }
                CallError::Late => {
                    agent.end("it did not answer in time");
                    (Trouble::Unreachable, format!("{method}: no answer within {limit:?}; is it an ACP agent?"))
                }
                CallError::Rpc(error) if error.code == wire::AUTH_REQUIRED || method == "authenticate" => {
                    (Trouble::Unauthorized, self.unauthorized(&error.message))
                }
                CallError::Rpc(error) if error.code == wire::METHOD_NOT_FOUND => {
                    (Trouble::NotOffered, format!("the agent does not offer {method}: {}", error.message))
                }
                CallError::Rpc(error) => (Trouble::Unreachable, format!("{method}: {}", error.message)),
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

    fn place(&self, conversation: &str) -> Option<PathBuf> {
        self.options.memory.as_ref().map(|memory| memory.join(file::name(conversation)))
    }

    fn recall(&self, conversation: &str) -> ConversationMemory {
        let read = self.place(conversation).map(|place| file::read(&place)).transpose();
        read.map(Option::flatten)
            .unwrap_or_else(|error| {
                // Only the conversation's history is lost; the message is not.
                tracing::warn!(%error, "a conversation cannot be recalled and begins anew");
                None
            })
            .unwrap_or_default()
    }

    fn remember(&self, conversation: &str, what: &ConversationMemory) {
        if let Some(place) = self.place(conversation)
            && let Err(error) = file::write(&place, what, Sync::Later)
        {
            tracing::warn!(%error, "a conversation cannot be written down; it is lost if the agent ends");
        }
    }

    /// Returns the session of a conversation, and whether it is new and so knows nothing of what was said before.
    async fn session(
        &self,
        agent: &AcpAgent,
        key: &str,
        known: &ConversationMemory,
        deadline: Instant,
    ) -> Result<(String, bool), TurnError> {
        let open = agent.sessions.lock().get(key).cloned();
        if let Some(session) = open {
            return Ok((session.id, false));
        }
        let mut place = json!({ "cwd": self.options.directory, "mcpServers": [] });
        if let (Some(old), true, true) = (&known.session, known.is_settled, self.about().can_load) {
            let mut load = place.clone();
            load["sessionId"] = json!(old);
            match agent.call("session/load", &load, self.options.start_limit.min(left(deadline))).await {
                Ok(_) => return Ok((old.clone(), false)),
                Err(error) => tracing::info!(?error, "a session cannot be loaded; a new one goes on"),
            }
        }
        let made = self.start(agent, "session/new", &place.take(), deadline).await?;
        match made.get("sessionId").and_then(Value::as_str) {
            Some(id) => Ok((id.to_owned(), true)),
            None => Err(TurnError::new(Trouble::NotOffered, "the agent made a session without a name")),
        }
    }

    /// Notes a session as used now; above the limit, closes the least recently used one.
    fn keep_open(&self, agent: &AcpAgent, key: &str, id: &str) {
        let extra = {
            let mut sessions = agent.sessions.lock();
            sessions.insert(key.to_owned(), AcpSession { id: id.to_owned(), used: Instant::now() });
            let resting = sessions.iter().filter(|(_, session)| !agent.is_listened_to(&session.id));
            let oldest = resting.min_by_key(|(_, session)| session.used).map(|(key, _)| key.clone());
            (sessions.len() > MAX_SESSIONS).then(|| oldest.and_then(|key| sessions.remove(&key))).flatten()
        };
        if let Some(session) = extra.filter(|_| self.about().can_close) {
            // No turn waits for the response.
            if let Err(error) = agent.post("session/close", &json!({ "sessionId": session.id })) {
                tracing::debug!(?error, "a session that is not used any more stays open");
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

/// The time left until the deadline.
fn left(deadline: Instant) -> Duration {
    deadline.saturating_duration_since(Instant::now())
}

/// A prompt that the agent works on. Dropped before its end, it cancels the prompt and forgets the session, because something may
/// still run there and no session may have two prompts.
struct UnderWay<'a> {
    agent: &'a AcpAgent,
    key: &'a str,
    session: &'a str,
    is_over: bool,
}

impl<'a> UnderWay<'a> {
    fn begin(agent: &'a AcpAgent, key: &'a str, session: &'a str) -> Self {
        agent.listen(session);
        Self { agent, key, session, is_over: false }
    }

    /// Returns the agent's answer.
    fn end(mut self) -> String {
        self.is_over = true;
        self.agent.heard(self.session)
    }
}

impl Drop for UnderWay<'_> {
    fn drop(&mut self) {
        if !self.is_over {
            self.agent.heard(self.session);
            self.agent.forget(self.key);
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

    fn is_idempotent(&self) -> bool {
        false
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
        let mut known = self.recall(key);
        let (session, is_new) = self.session(&agent, key, &known, deadline).await?;
        if left(deadline).is_zero() {
            return Err(TurnError::new(Trouble::Timeout, format!("the agent was not asked: {TOO_LATE}")));
        }
        self.keep_open(&agent, key, &session);
        let prompt = if is_new { known.hand_over(&turn.prompt) } else { turn.prompt.clone() };
        known.session = Some(session.clone());
        known.is_settled = false;
        self.remember(key, &known);

        let under_way = UnderWay::begin(&agent, key, &session);
        let ran = match agent.ask("session/prompt", &wire::prompt(&session, &prompt)).await {
            Ok(mut asked) => match asked.within(left(deadline)).await {
                Err(CallError::Late) => {
                    known.is_settled = self.cancel(&agent, &session, &mut asked).await;
                    Err(CallError::Late)
                }
                ran => ran,
            },
            Err(error) => Err(error),
        };
        let text = under_way.end();
        let failed = |detail: String| TurnError::new(Trouble::Failed, detail);
        let mut is_lost = false;
        let outcome = match ran {
            Ok(said) => {
                known.is_settled = true;
                understand(said.get("stopReason").and_then(Value::as_str), text)
            }
            Err(CallError::Late) => {
                let detail = format!("no answer within {:?}; --turn-timeout gives it longer", turn.timeout);
                Err(TurnError::new(Trouble::Timeout, detail))
            }
            Err(CallError::Ended(why)) => Err(TurnError::new(Trouble::Lost, why)),
            Err(CallError::Rpc(error)) if error.code == wire::AUTH_REQUIRED => {
                Err(TurnError::new(Trouble::Unauthorized, self.unauthorized(&error.message)))
            }
            Err(CallError::Rpc(error)) => {
                known.is_settled = true;
                // The session is gone, or the same message failed in it again.
                is_lost = turn.tried || matches!(error.code, wire::NOT_FOUND | wire::INVALID_PARAMS);
                Err(failed(format!("the agent: {}", error.message)))
            }
        };
        if is_lost || !known.is_settled {
            agent.forget(key);
            known.is_settled = false;
        }
        if let Ok(outcome) = &outcome {
            let answer = match outcome {
                TurnOutcome::Reply(text) => text.as_str(),
                TurnOutcome::NoReply => "",
            };
            known.keep(&turn.mail, answer);
        }
        self.remember(key, &known);
        outcome
    }
}

/// Translates the reason for which a turn ended.
fn understand(reason: Option<&str>, text: String) -> Result<TurnOutcome, TurnError> {
    let is_blank = text.trim().is_empty();
    match (reason.unwrap_or("none"), is_blank) {
        ("end_turn", true) => Ok(TurnOutcome::NoReply),
        ("end_turn", false) | ("refusal", false) => Ok(TurnOutcome::Reply(text)),
        ("refusal", true) => Err(TurnError::new(Trouble::Refused, "the agent refuses to go on with this mail")),
        (reason @ ("max_tokens" | "max_turn_requests"), false) => {
            Ok(TurnOutcome::Reply(format!("{text}\n[cut: the agent stopped at a limit: {reason}]")))
        }
        (reason, _) => Err(TurnError::new(Trouble::Failed, format!("the turn ended without an answer: {reason}"))),
    }
}
