//! A stand-in for OpenClaw's gateway: the wire shapes of 2026.9.6, a model that answers by the mail's id, and faults.

use std::collections::{HashMap, VecDeque};
use std::net::SocketAddr;
use std::sync::{Arc, Mutex, MutexGuard};

use axum::Json;
use axum::extract::ws::{Message, WebSocket};
use axum::extract::{State, WebSocketUpgrade};
use axum::http::{HeaderMap, StatusCode};
use axum::response::{IntoResponse, Response};
use axum::routing::{get, post};
use serde_json::{Value, json};
use tokio::net::TcpListener;
use tokio::task::JoinHandle;

/// What goes wrong with one request for a turn.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Fault {
    /// The connection drops before the model runs.
    DropBefore,
    /// The connection drops after the model ran.
    DropAfter,
    /// This status, and no run.
    Status(u16),
    /// The model fails.
    Fails,
    /// No answer, ever.
    Hangs,
    /// The wait is over before the run is: the answer is found later.
    Late,
    /// The same in the words of `sessions_send` of one version or another.
    Says(&'static str),
    /// `sessions_send` fails after the message went through.
    FailsSent,
    /// `sessions_send` is not for this caller.
    Forbidden,
    /// The agent says nothing.
    Silent,
    /// An answer longer than `agent.wait` shows.
    Long,
    /// An answer longer than a message may be.
    VeryLong,
    /// An answer after many calls of tools; the connection drops after the model ran.
    ManyCalls,
    /// The agent says this.
    Answers(&'static str),
}

#[derive(Default)]
pub(crate) struct Inner {
    pub(crate) faults: VecDeque<Fault>,
    /// The mail id of every run of the model, in order.
    pub(crate) runs: Vec<String>,
    /// The session of every run.
    pub(crate) sessions: Vec<String>,
    /// Every prompt, as it came.
    pub(crate) prompts: Vec<String>,
    /// What the gateway remembers of runs by their key.
    ended: HashMap<String, Value>,
    history: HashMap<String, Vec<Value>>,
    pub(crate) token: String,
    pub(crate) no_history: bool,
    pub(crate) no_chat: bool,
    pub(crate) no_socket: bool,
    /// The gateway keeps no results of runs, only what `agent.wait` shows.
    pub(crate) no_results: bool,
    /// `agent.wait` says only that a run has ended.
    pub(crate) no_text: bool,
    /// The gateway is just starting: it rejects connections by its own protocol, but serves HTTP.
    pub(crate) is_starting: bool,
    /// How often a session's history is shown with a run of the gateway's own under way before that run has ended.
    pub(crate) recovers: u32,
    recovering: Option<(String, String)>,
    /// How often its history is shown before that run begins.
    begins_after: u32,
}

pub(crate) struct Gateway {
    pub(crate) address: SocketAddr,
    inner: Arc<Mutex<Inner>>,
    serving: Option<JoinHandle<()>>,
}

type Shared = Arc<Mutex<Inner>>;

impl Gateway {
    pub(crate) async fn start() -> Self {
        let inner = Inner { token: "secret".into(), ..Inner::default() };
        let mut gateway =
            Self { address: ([127, 0, 0, 1], 0).into(), inner: Arc::new(Mutex::new(inner)), serving: None };
        gateway.up().await;
        gateway
    }

    /// Begins, or begins again at the same address.
    pub(crate) async fn up(&mut self) {
        let listener = TcpListener::bind(self.address).await.unwrap();
        self.address = listener.local_addr().unwrap();
        let app = axum::Router::new()
            .route("/", get(upgrade))
            .route("/v1/chat/completions", post(chat))
            .route("/tools/invoke", post(invoke))
            .with_state(Arc::clone(&self.inner));
        self.serving = Some(tokio::spawn(async move { axum::serve(listener, app).await.unwrap() }));
    }

    /// Goes away; its port refuses connections.
    pub(crate) async fn down(&mut self) {
        if let Some(serving) = self.serving.take() {
            serving.abort();
            let _ = serving.await;
        }
    }

    pub(crate) fn url(&self) -> String {
        format!("http://{}", self.address)
    }

    pub(crate) fn lock(&self) -> MutexGuard<'_, Inner> {
        self.inner.lock().unwrap()
    }

    pub(crate) fn fault(&self, faults: impl IntoIterator<Item = Fault>) {
        self.lock().faults.extend(faults);
    }

    /// How often the model ran for a message.
    pub(crate) fn runs_of(&self, id: &str) -> usize {
        self.lock().runs.iter().filter(|run| *run == id).count()
    }
}

impl Drop for Gateway {
    fn drop(&mut self) {
        if let Some(serving) = &self.serving {
            serving.abort();
        }
    }
}

impl Inner {
    /// Runs the model: it answers with the id of the mail that it was shown.
    fn run(&mut self, session: &str, prompt: &str, fault: Option<Fault>) -> Option<String> {
        let input = json!({ "role": "user", "content": prompt });
        self.run_with(session, prompt, input, fault)
    }

    /// The same for a message that another session forwards, which the history shows in its own way.
    fn run_forwarded(&mut self, session: &str, prompt: &str, fault: Option<Fault>) -> Option<String> {
        let provenance = json!({ "kind": "inter_session", "sourceTool": "sessions_send" });
        let input = json!({ "role": "assistant", "content": prompt, "provenance": provenance });
        self.run_with(session, prompt, input, fault)
    }

    fn run_with(&mut self, session: &str, prompt: &str, input: Value, fault: Option<Fault>) -> Option<String> {
        let id = prompt.split("id=\"").nth(1).and_then(|rest| rest.split('"').next()).unwrap_or("?").to_owned();
        self.runs.push(id.clone());
        self.sessions.push(session.into());
        self.prompts.push(prompt.into());
        let history = self.history.entry(session.into()).or_default();
        history.push(input);
        let text = match fault {
            Some(Fault::Fails | Fault::Silent) => return None,
            Some(Fault::Answers(text)) => text.to_owned(),
            Some(Fault::VeryLong) => format!("answer to {id} {}", "x".repeat(25_000)),
            Some(Fault::Long) => format!("answer to {id} {}", "x".repeat(6_000)),
            _ => format!("answer to {id}"),
        };
        if fault == Some(Fault::ManyCalls) {
            for call in 0..200 {
                let parts = json!([{ "type": "text", "text": format!("step {call}") }, { "type": "toolCall" }]);
                history.push(json!({ "role": "assistant", "content": parts, "stopReason": "toolUse" }));
            }
        }
        history.push(json!({ "role": "assistant", "content": [{ "type": "text", "text": text }] }));
        Some(text)
    }

    /// The newest messages of a session, each text cut as gateways do it.
    fn shown(&self, params: &Value, max_chars: usize, mark: &str) -> Vec<Value> {
        let limit = params["limit"].as_u64().unwrap() as usize;
        assert!(limit <= 1_000, "the gateway refuses more");
        let all = self.history.get(params["sessionKey"].as_str().unwrap()).cloned().unwrap_or_default();
        let mut shown = all[all.len().saturating_sub(limit)..].to_vec();
        for part in shown.iter_mut().filter_map(|message| message["content"].as_array_mut()).flatten() {
            if let Some(text) = part["text"].as_str()
                && text.len() > max_chars
            {
                part["text"] = format!("{}\n{mark}", &text[..max_chars]).into();
            }
        }
        shown
    }

    fn chat_history(&mut self, params: &Value) -> Value {
        let is_begun = self.begins_after == 0;
        self.begins_after = self.begins_after.saturating_sub(1);
        if self.recovers > 0 && is_begun {
            self.recovers -= 1;
            if self.recovers == 0
                && let Some((session, id)) = self.recovering.take()
            {
                let provenance = json!({ "kind": "internal_system", "sourceTool": "main_session_restart_recovery" });
                let history = self.history.entry(session).or_default();
                history.push(json!({ "role": "user", "content": "[System] go on", "provenance": provenance }));
                history.push(
                    json!({ "role": "assistant", "content": [{ "type": "text", "text": format!("answer to {id}") }] }),
                );
                self.runs.push(id);
            }
        }
        let is_active = self.recovers > 0 && is_begun;
        let all = match self.no_history {
            true => Vec::new(),
            false => self.shown(params, params["maxChars"].as_u64().unwrap_or(8_000) as usize, "...(truncated)..."),
        };
        json!({ "messages": all, "sessionInfo": { "hasActiveRun": is_active, "activeRunIds": if is_active { json!(["its own"]) } else { json!([]) } } })
    }

    /// Behaves like a killed and restarted gateway: what was on disk is there, what was in memory is lost.
    pub(crate) fn forget_runs(&mut self) {
        self.ended.clear();
    }

    /// The same for a turn that had not ended: its answer is lost, and the gateway resumes it.
    pub(crate) fn recover(&mut self, session: &str, id: &str) {
        self.forget_runs();
        self.history.get_mut(session).unwrap().pop();
        self.recovering = Some((session.to_owned(), id.to_owned()));
        (self.recovers, self.begins_after) = (3, 3);
    }

    fn is_let_in(&self, headers: &HeaderMap) -> bool {
        headers.get("authorization").is_some_and(|value| *value == format!("Bearer {}", self.token).as_str())
    }
}

/// Drops the connection: the task that serves it unwinds, without a panic message.
fn hang_up() -> ! {
    std::panic::resume_unwind(Box::new("the gateway hangs up"))
}

fn plain(status: u16) -> Response {
    (StatusCode::from_u16(status).unwrap(), Json(json!({ "error": { "message": "no" } }))).into_response()
}

async fn never<T>() -> T {
    std::future::pending().await
}

async fn chat(State(shared): State<Shared>, headers: HeaderMap, Json(body): Json<Value>) -> Response {
    if shared.lock().unwrap().no_chat {
        return plain(404);
    }
    if !shared.lock().unwrap().is_let_in(&headers) {
        return plain(401);
    }
    let Some(prompt) = body.pointer("/messages/0/content").and_then(Value::as_str) else { return plain(400) };
    let session = headers["x-openclaw-session-key"].to_str().unwrap();
    let fault = shared.lock().unwrap().faults.pop_front();
    match fault {
        Some(Fault::DropBefore) => hang_up(),
        Some(Fault::Status(status)) => return plain(status),
        Some(Fault::Hangs | Fault::Late) => return never().await,
        _ => {}
    }
    let answer = shared.lock().unwrap().run(session, prompt, fault);
    match fault {
        Some(Fault::DropAfter | Fault::ManyCalls) => hang_up(),
        Some(Fault::Fails) => plain(502),
        _ => {
            let content = answer.unwrap_or_else(|| "No response from OpenClaw.".into());
            Json(json!({ "choices": [{ "message": { "role": "assistant", "content": content } }] })).into_response()
        }
    }
}

/// How a request ends.
enum End {
    Answer(Response),
    HangUp,
    Never,
}

async fn invoke(State(shared): State<Shared>, headers: HeaderMap, Json(body): Json<Value>) -> Response {
    let end = shared.lock().unwrap().invoke(&headers, &body);
    match end {
        End::Answer(response) => response,
        End::HangUp => hang_up(),
        End::Never => never().await,
    }
}

impl Inner {
    fn invoke(&mut self, headers: &HeaderMap, body: &Value) -> End {
        if !self.is_let_in(headers) {
            return End::Answer(plain(401));
        }
        let args = &body["args"];
        let Some(target) = args["sessionKey"].as_str() else { return End::Answer(plain(400)) };
        let details = match body["tool"].as_str().unwrap_or_default() {
            "sessions_history" if !self.no_history => {
                json!({ "sessionKey": target, "messages": self.shown(args, 4_000, "…(truncated)…") })
            }
            // Without a caller the gateway takes the main session for it.
            "sessions_send" if body["sessionKey"].as_str().unwrap_or("agent:main:main") == target => {
                json!({ "status": "error", "error": "cannot target the calling session" })
            }
            "sessions_send" => {
                let fault = self.faults.pop_front();
                match fault {
                    Some(Fault::DropBefore) => return End::HangUp,
                    Some(Fault::Status(status)) => return End::Answer(plain(status)),
                    Some(Fault::Hangs) => return End::Never,
                    Some(Fault::Forbidden) => {
                        let details = json!({ "status": "forbidden", "error": "session access is limited" });
                        return End::Answer(
                            Json(json!({ "ok": true, "result": { "details": details } })).into_response(),
                        );
                    }
                    _ => {}
                }
                // Without a channel the agents talk about the answer, which costs the model six more calls.
                let chatter = if headers.contains_key("x-openclaw-message-channel") { 0 } else { 6 };
                for _ in 0..chatter {
                    self.run_forwarded(target, args["message"].as_str().unwrap(), None);
                }
                let answer = self.run_forwarded(target, args["message"].as_str().unwrap(), fault);
                match fault {
                    Some(Fault::DropAfter | Fault::ManyCalls) => return End::HangUp,
                    Some(Fault::Late) => json!({ "runId": "r", "status": "accepted" }),
                    Some(Fault::Says(status)) => json!({ "runId": "r", "status": status }),
                    Some(Fault::FailsSent) => {
                        json!({ "status": "error", "error": "the line broke", "sentBeforeError": true })
                    }
                    Some(Fault::Silent) => json!({ "runId": "r", "status": "no_reply" }),
                    Some(Fault::Fails) => json!({ "status": "error", "error": "no model" }),
                    _ => json!({ "runId": "r", "status": "ok", "reply": answer }),
                }
            }
            _ => return End::Answer(plain(404)),
        };
        End::Answer(Json(json!({ "ok": true, "result": { "details": details } })).into_response())
    }
}

async fn upgrade(State(shared): State<Shared>, upgrade: WebSocketUpgrade) -> Response {
    if shared.lock().unwrap().no_socket {
        return plain(404);
    }
    upgrade.on_upgrade(move |socket| async move {
        let _ended = serve(socket, shared).await;
    })
}

/// Serves one connection; ends it at the first error.
async fn serve(mut socket: WebSocket, shared: Shared) -> Option<()> {
    let challenge = json!({ "type": "event", "event": "connect.challenge", "payload": { "nonce": "n" } });
    socket.send(Message::text(challenge.to_string())).await.ok()?;
    let mut let_in = false;
    loop {
        let Message::Text(text) = socket.recv().await?.ok()? else { continue };
        let request: Value = serde_json::from_str(&text).unwrap();
        let (id, params) = (request["id"].as_str().unwrap(), &request["params"]);
        let said = match request["method"].as_str().unwrap() {
            "connect" => {
                if shared.lock().unwrap().is_starting {
                    let error = json!({ "code": "UNAVAILABLE", "message": "gateway starting; retry shortly" });
                    let frame = json!({ "type": "res", "id": id, "ok": false, "error": error });
                    socket.send(Message::text(frame.to_string())).await.ok()?;
                    return None;
                }
                let_in = params["auth"]["token"].as_str() == Some(&*shared.lock().unwrap().token);
                assert_eq!(params["client"]["id"], "gateway-client", "the gateway refuses all others");
                // A gateway that resumes interrupted turns has just been started.
                let uptime = if shared.lock().unwrap().recovering.is_some() { 1_000 } else { 3_600_000 };
                let hello = json!({ "type": "hello-ok", "protocol": 4, "snapshot": { "uptimeMs": uptime } });
                let_in.then_some(hello).ok_or("unauthorized")
            }
            _ if !let_in => Err("connect first"),
            "agent" => Ok(begin(&shared, params).await?),
            "chat.history" => Ok(shared.lock().unwrap().chat_history(params)),
            "agent.wait" => {
                let run = params["runId"].as_str().unwrap();
                Ok(waited(&shared, run))
            }
            _ => Err("unknown method"),
        };
        let frame = match said {
            Ok(payload) => json!({ "type": "res", "id": id, "ok": true, "payload": payload }),
            Err(why) => json!({ "type": "res", "id": id, "ok": false, "error": { "code": "X", "message": why } }),
        };
        socket.send(Message::text(frame.to_string())).await.ok()?;
    }
}

async fn begin(shared: &Shared, params: &Value) -> Option<Value> {
    let key = params["idempotencyKey"].as_str().unwrap().to_owned();
    let fault = {
        let mut inner = shared.lock().unwrap();
        if let Some(ended) = inner.ended.get(&key) {
            return Some(match inner.no_results {
                true => json!({ "runId": key, "status": "accepted" }),
                false => ended.clone(),
            });
        }
        inner.faults.pop_front()
    };
    match fault {
        Some(Fault::DropBefore | Fault::Status(_)) => return None,
        Some(Fault::Hangs) => return never().await,
        _ => {}
    }
    let (session, message) = (params["sessionKey"].as_str().unwrap(), params["message"].as_str().unwrap());
    let mut inner = shared.lock().unwrap();
    let answer = inner.run(session, message, fault);
    let ended = match (&answer, fault) {
        (_, Some(Fault::Fails)) => json!({ "runId": key, "status": "error", "summary": "no model" }),
        (None, _) => json!({ "runId": key, "status": "ok", "result": {
            "payloads": [], "meta": { "terminalReply": { "disposition": "silent" } } } }),
        (Some(text), _) => json!({ "runId": key, "status": "ok", "result": {
            "payloads": [{ "text": text }],
            "meta": { "terminalReply": { "disposition": "visible", "text": text } } } }),
    };
    inner.ended.insert(key.clone(), ended);
    match fault {
        Some(Fault::DropAfter | Fault::ManyCalls) => None,
        _ => Some(json!({ "runId": key, "status": "accepted" })),
    }
}

/// What `agent.wait` shows: no more than the beginning of a long answer.
fn waited(shared: &Shared, run: &str) -> Value {
    let inner = shared.lock().unwrap();
    let ended = inner.ended.get(run).cloned().unwrap_or_default();
    if inner.no_text {
        return json!({ "runId": run, "status": ended["status"], "endedAt": 1 });
    }
    let mut closing = ended.pointer("/result/meta/terminalReply").cloned().unwrap_or_default();
    if let Some(text) = closing["text"].as_str()
        && text.len() > 4096
    {
        closing["text"] = format!("{}…", text[..4095].trim_end()).into();
    }
    json!({ "runId": run, "status": ended["status"], "error": ended["summary"], "endedAt": 1, "terminalReply": closing })
}
