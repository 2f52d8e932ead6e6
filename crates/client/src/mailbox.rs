//! [`Mailbox`] over HTTP.

use std::time::Duration;

use amb_core::doc::{
    Access, Acknowledged, AgentEntry, Agents, Appended, ApproveBody, ClaimBody, Claimed, ConnectBody, Connected,
    Connection, ConnectionChange, ConnectionRequested, Connections, Exported, Group, GroupBody, Groups, History, Hits,
    Household, IdsBody, Inbox, InviteBody, Lines, MessagePage, MessageWithReceipts, NumberedLine, PeerBody, Profile,
    ProfilePatch, RenewBody, Rotated, SearchHit, SendBody, Sent, ShareBody, StateBody, Tasks,
};
use amb_core::error::if_found;
use amb_core::event::EventPage;
use amb_core::limits::{MAX_CLAIMED, MAX_TASKS};
use amb_core::mailbox::{ClaimRequest, HistoryPage, Mailbox, Result, SearchQuery, TaskFilter, no_task};
use amb_core::transcript::{Line, TranscriptKey};
use amb_core::{
    AgentName, Card, Code, Cursor, Draft, Message, MessageId, OfficeError, SessionId, Task, TaskId, TaskState,
    WakeReport,
};
use async_trait::async_trait;
use jiff::Timestamp;
use reqwest::Method;
use secrecy::SecretString;
use serde::{Deserialize, Serialize};
use serde_json::json;
use tokio::time::Instant;

use crate::http::Http;
use crate::pages::DeliveredPages;
use crate::socket::EventFollower;
use crate::url::ServerUrl;

/// Maximum wait of one long poll for events: well below the timeout of a call.
pub(crate) const MAX_POLL: Duration = Duration::from_secs(20);

/// One agent's mailbox at a network office.
#[derive(Debug)]
pub struct Client {
    me: AgentName,
    pub(crate) http: Http,
    pages: DeliveredPages,
}

impl Client {
    /// Opens the mailbox of a key's agent, which the server names.
    pub async fn open(server: ServerUrl, key: SecretString) -> Result<Self> {
        let http = Http::new(server, Some(key))?;
        let me: Me = http.fetch(http.get(&["agents", "me"])).await?;
        Ok(Self { me: me.name, http, pages: DeliveredPages::default() })
    }

    /// Follows the log from a cursor over a WebSocket.
    pub fn follow(&self, since: Cursor) -> Result<EventFollower> {
        let key = self.http.key().cloned().ok_or_else(|| OfficeError::invalid("following needs a key"))?;
        Ok(EventFollower::start(self.http.server(), key, since))
    }

    /// A page of one's own mail, sent and received, session by session, after a message; empty at the end.
    pub async fn export(
        &self,
        after: Option<&MessageId>,
        since: Option<Timestamp>,
    ) -> Result<Vec<MessageWithReceipts>> {
        let call = self.http.get(&["export"]).query("after", after).query("since", since);
        Ok(self.http.fetch::<Exported>(call).await?.messages)
    }

    /// The caller as it sees itself.
    pub async fn profile(&self) -> Result<Profile> {
        self.http.fetch(self.http.get(&["agents", "me"])).await
    }

    /// Replaces the caller's key. The old one works for so many more seconds, by default as long as the office says.
    pub async fn rotate_key(&self, grace_seconds: Option<u32>) -> Result<Rotated> {
        let body = json!({ "grace_seconds": grace_seconds });
        self.http.fetch(self.http.post(&["agents", "me", "rotate-key"], &body)?).await
    }

    /// The groups that the caller is in or was invited to.
    pub async fn groups(&self) -> Result<Vec<Group>> {
        Ok(self.http.fetch::<Groups>(self.http.get(&["groups"])).await?.groups)
    }

    /// Creates a group whose owner and first member is the caller.
    pub async fn create_group(&self, name: &AgentName) -> Result<Group> {
        let body = GroupBody { name: name.to_string() };
        self.http.fetch(self.http.post(&["groups"], &body)?.with_fresh_key()).await
    }

    /// Invites an agent to a group of the caller's.
    pub async fn invite_to_group(&self, group: &AgentName, agent: &AgentName) -> Result<Group> {
        let body = InviteBody { agent_name: agent.clone() };
        self.http.fetch(self.http.post(&["groups", group.as_str(), "invite"], &body)?.with_fresh_key()).await
    }

    /// Removes an agent from a group of the caller's.
    pub async fn remove_from_group(&self, group: &AgentName, agent: &AgentName) -> Result<Group> {
        self.change_group(group, "remove", &InviteBody { agent_name: agent.clone() }).await
    }

    /// Accepts an invitation.
    pub async fn join_group(&self, group: &AgentName) -> Result<Group> {
        self.change_group(group, "join", &json!({})).await
    }

    /// Leaves a group, or declines an invitation.
    pub async fn leave_group(&self, group: &AgentName) -> Result<Group> {
        self.change_group(group, "leave", &json!({})).await
    }

    async fn change_group(&self, group: &AgentName, verb: &str, body: &impl Serialize) -> Result<Group> {
        self.http.fetch(self.http.post(&["groups", group.as_str(), verb], body)?).await
    }

    /// The number of a transcript's last line. `owner` is the agent that shares it; `None` is the caller, whose
    /// transcript has no line yet if it does not exist.
    pub async fn transcript_end(&self, owner: Option<&AgentName>, key: &TranscriptKey) -> Result<u64> {
        let call = self.http.get(&["transcripts", key.as_str()]).query("limit", Some(1));
        match self.http.fetch::<Lines>(call.query("owner", owner)).await {
            Err(error) if error.code() == Code::NotFound && owner.is_none() => Ok(0),
            page => Ok(page?.lines.last().map_or(0, |line| line.number)),
        }
    }

    /// The lines of a transcript after a number, oldest first. Where there is none, waits for one, for 20 seconds at
    /// most.
    pub async fn transcript_after(
        &self,
        owner: Option<&AgentName>,
        key: &TranscriptKey,
        after: u64,
    ) -> Result<Vec<NumberedLine>> {
        let call = self.http.get(&["transcripts", key.as_str()]).query("after", Some(after));
        let call = call.query("wait", Some(MAX_POLL.as_secs())).query("owner", owner);
        Ok(self.http.fetch::<Lines>(call).await?.lines)
    }

    /// Adds a line to the caller's transcript, or to the one that `owner` shares. Returns its number, and whether a line
    /// with its message id was there before.
    pub async fn append_line(&self, owner: Option<&AgentName>, key: &TranscriptKey, line: &Line) -> Result<Appended> {
        let call = self.http.post(&["transcripts", key.as_str()], line)?.with_fresh_key();
        self.http.fetch(call.query("owner", owner)).await
    }

    /// Grants a connected agent access to a transcript of the caller's; `None` revokes it.
    pub async fn share_transcript(&self, key: &TranscriptKey, agent: &AgentName, access: Option<Access>) -> Result<()> {
        let body = ShareBody { agent_name: agent.clone(), access };
        self.http.execute(self.http.post(&["transcripts", key.as_str(), "share"], &body)?).await
    }
}

/// The one field of `GET /agents/me` that every server sends.
#[derive(Deserialize)]
struct Me {
    name: AgentName,
}

/// A number for the body of a request. The server refuses one that is cut.
fn fit(number: impl TryInto<u32>) -> Option<u32> {
    Some(number.try_into().unwrap_or(u32::MAX))
}

fn lines(page: Lines) -> Vec<Line> {
    page.lines.into_iter().map(|numbered| numbered.line).collect()
}

#[async_trait]
impl Mailbox for Client {
    fn me(&self) -> &AgentName {
        &self.me
    }

    fn describe(&self) -> String {
        format!("server {}", self.http.server())
    }

    async fn register(&self, card: Card) -> Result<AgentEntry> {
        self.http.fetch(self.http.with_body(Method::PATCH, &["agents", "me"], &ProfilePatch::from(card))?).await
    }

    async fn agents(&self) -> Result<Vec<AgentEntry>> {
        Ok(self.http.fetch::<Agents>(self.http.get(&["agents"])).await?.agents)
    }

    async fn agent(&self, name: &AgentName) -> Result<Option<AgentEntry>> {
        if_found(self.http.fetch(self.http.get(&["agents", name.as_str()])).await)
    }

    async fn is_paused(&self) -> Result<bool> {
        Ok(self.profile().await?.entry.paused)
    }

    async fn heartbeat(&self) -> Result<()> {
        self.http.execute(self.http.post(&["agents", "me", "heartbeat"], &json!({}))?).await
    }

    async fn leave(&self) -> Result<()> {
        self.http.execute(self.http.post(&["agents", "me", "leave"], &json!({}))?).await
    }

    async fn household(&self) -> Result<Household> {
        self.http.fetch(self.http.get(&["household"])).await
    }

    async fn connect(&self, target: &AgentName, intro: Option<String>) -> Result<ConnectionRequested> {
        let body = ConnectBody { target_agent_name: target.clone(), message: intro };
        self.http.fetch(self.http.post(&["connections", "request"], &body)?.with_fresh_key()).await
    }

    async fn approve(&self, code: &str) -> Result<Connected> {
        let body = ApproveBody { verification_code: code.to_owned() };
        self.http.fetch(self.http.post(&["connections", "approve"], &body)?.with_fresh_key()).await
    }

    async fn connections(&self) -> Result<Vec<Connection>> {
        Ok(self.http.fetch::<Connections>(self.http.get(&["connections"])).await?.connections)
    }

    async fn change_connection(&self, peer: &AgentName, change: ConnectionChange) -> Result<Connection> {
        let verb = match change {
            ConnectionChange::Reject => "reject",
            ConnectionChange::Revoke => "revoke",
            ConnectionChange::Block => "block",
            ConnectionChange::Unblock => "unblock",
        };
        self.http.fetch(self.http.post(&["connections", verb], &PeerBody { agent_name: peer.clone() })?).await
    }

    async fn send(&self, mut draft: Draft) -> Result<Sent> {
        draft.check()?;
        let key = draft.idempotency_key.take();
        let call = self.http.post(&["messages", "send"], &SendBody::from(draft))?;
        let call = match key {
            Some(key) => call.with_key(key),
            None => call.with_fresh_key(),
        };
        self.http.fetch(call).await
    }

    async fn inbox(&self, unread_only: bool) -> Result<Inbox> {
        self.http.fetch(self.http.get(&["inbox"]).query("unread_only", Some(unread_only))).await
    }

    async fn inbox_after(&self, unread_only: bool, next: &SessionId) -> Result<Inbox> {
        let call = self.http.get(&["inbox"]).query("unread_only", Some(unread_only));
        self.http.fetch(call.query("before", Some(next))).await
    }

    async fn read(&self, session: &SessionId, page: HistoryPage) -> Result<History> {
        let call = self.http.get(&["sessions", session.as_str(), "history"]);
        self.http.fetch(call.query("limit", Some(page.limit)).query("before", page.before)).await
    }

    async fn message(&self, id: &MessageId) -> Result<MessageWithReceipts> {
        self.http.fetch(self.http.get(&["messages", id.as_str()])).await
    }

    async fn ack(&self, ids: &[MessageId]) -> Result<u64> {
        let call = self.http.post(&["messages", "ack"], &IdsBody { message_ids: ids.to_vec() })?;
        Ok(self.http.fetch::<Acknowledged>(call).await?.acknowledged)
    }

    async fn claim(&self, request: ClaimRequest) -> Result<Vec<Message>> {
        let body = ClaimBody {
            limit: fit(request.limit),
            urgent_first: Some(request.urgent_first),
            lease_seconds: fit(request.lease.as_secs()),
        };
        Ok(self.http.fetch::<Claimed>(self.http.post(&["messages", "claim"], &body)?).await?.messages)
    }

    async fn release(&self, ids: &[MessageId]) -> Result<()> {
        self.http.execute(self.http.post(&["messages", "release"], &IdsBody { message_ids: ids.to_vec() })?).await
    }

    async fn renew(&self, ids: &[MessageId], lease: Duration) -> Result<()> {
        let body = RenewBody { message_ids: ids.to_vec(), lease_seconds: fit(lease.as_secs()) };
        self.http.execute(self.http.post(&["messages", "renew"], &body)?).await
    }

    async fn rung(&self, ids: &[MessageId]) -> Result<()> {
        self.http.execute(self.http.post(&["messages", "rung"], &IdsBody { message_ids: ids.to_vec() })?).await
    }

    async fn report_wake(&self, report: &WakeReport) -> Result<()> {
        self.http.execute(self.http.with_body(Method::PUT, &["agents", "me", "wake"], report)?).await
    }

    async fn claimed(&self) -> Result<Vec<Message>> {
        // A server without the `claimed` filter ignores it; `unread` excludes what cannot be a claim.
        let call = self.http.get(&["messages"]).query("claimed", Some(true)).query("unread", Some(true));
        let page: MessagePage = self.http.fetch(call.query("limit", Some(MAX_CLAIMED))).await?;
        Ok(page.messages.into_iter().map(|received| received.message).collect())
    }

    async fn tasks(&self, filter: TaskFilter) -> Result<Vec<Task>> {
        let call = self.http.get(&["tasks"]).query("owned", filter.owned).query("state", filter.state);
        let call = call.query("limit", Some(MAX_TASKS));
        Ok(self.http.fetch::<Tasks>(call.query("open", filter.open.then_some(true))).await?.tasks)
    }

    async fn task(&self, id: &TaskId) -> Result<Task> {
        if id.as_uuid().is_none() {
            // All tasks of a server have a UUID.
            return Err(no_task(id));
        }
        self.http.fetch(self.http.get(&["tasks", id.as_str()])).await
    }

    async fn set_task_state(&self, id: &TaskId, state: TaskState, note: Option<String>) -> Result<Task> {
        let body = StateBody { state, note };
        self.http.fetch(self.http.post(&["tasks", id.as_str(), "state"], &body)?.with_fresh_key()).await
    }

    async fn events(&self, since: Option<Cursor>, wait: Duration) -> Result<EventPage> {
        let Some(since) = since else {
            return self.http.fetch(self.http.get(&["events"])).await;
        };
        let deadline = Instant::now() + wait;
        loop {
            let left = deadline.saturating_duration_since(Instant::now());
            let wait = left.min(MAX_POLL);
            // The server waits whole seconds. Rounded up, since a wait of 0 would make this a busy loop.
            let seconds = wait.as_secs() + u64::from(wait.subsec_nanos() > 0);
            let call = self.http.get(&["events"]).query("since", Some(&since)).query("wait", Some(seconds));
            let page: EventPage = self.http.fetch(call.query("previous", self.pages.start_of(&since))).await?;
            self.pages.insert(&since, &page.cursor);
            if !page.events.is_empty() || left <= MAX_POLL {
                return Ok(page);
            }
        }
    }

    async fn transcript_append(&self, key: &TranscriptKey, line: Line) -> Result<()> {
        self.append_line(None, key, &line).await.map(drop)
    }

    async fn transcript_append_to(&self, owner: &AgentName, key: &TranscriptKey, line: Line) -> Result<()> {
        self.append_line(Some(owner), key, &line).await.map(drop)
    }

    async fn transcript_recent_of(&self, owner: &AgentName, key: &TranscriptKey, limit: usize) -> Result<Vec<Line>> {
        let call = self.http.get(&["transcripts", key.as_str()]).query("limit", Some(limit));
        Ok(lines(self.http.fetch(call.query("owner", Some(owner))).await?))
    }

    async fn transcript_recent(&self, key: &TranscriptKey, limit: usize) -> Result<Vec<Line>> {
        let call = self.http.get(&["transcripts", key.as_str()]).query("limit", Some(limit));
        Ok(lines(self.http.fetch(call).await?))
    }

    async fn search(&self, query: SearchQuery) -> Result<Vec<SearchHit>> {
        let SearchQuery { text, from, subject, after, before, limit } = query;
        let text = Some(text).filter(|text| !text.is_empty());
        let call = self.http.get(&["search"]).query("q", text).query("from", from).query("subject", subject);
        let call = call.query("after", after).query("before", before).query("limit", limit);
        Ok(self.http.fetch::<Hits>(call).await?.hits)
    }
}

#[cfg(test)]
mod tests {
    use tokio::io::{AsyncReadExt, AsyncWriteExt};
    use tokio::net::TcpListener;

    use super::*;

    /// The path and the idempotency key of each request to a server that answers the first with 503.
    async fn retried(call: impl AsyncFnOnce(&Client)) -> Vec<(String, String)> {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url: ServerUrl = format!("http://{}", listener.local_addr().unwrap()).parse().unwrap();
        let serving = async {
            let mut requests = Vec::new();
            for (status, body) in [("503 Service Unavailable", "{}"), ("201 Created", "{}")] {
                let (mut stream, _) = listener.accept().await.unwrap();
                let (mut head, mut some) = (String::new(), [0; 4096]);
                while !head.contains("\r\n\r\n") {
                    let read = stream.read(&mut some).await.unwrap();
                    head.push_str(std::str::from_utf8(&some[..read]).unwrap());
                }
                let key = head.lines().find_map(|line| line.strip_prefix("idempotency-key: "));
                let path = head.split_whitespace().nth(1).unwrap();
                requests.push((path.to_owned(), key.unwrap_or_default().to_owned()));
                let length = body.len();
                let answer =
                    format!("HTTP/1.1 {status}\r\nContent-Length: {length}\r\nConnection: close\r\n\r\n{body}");
                stream.write_all(answer.as_bytes()).await.unwrap();
            }
            requests
        };
        let me = "ann".parse().unwrap();
        let client = Client { me, http: Http::new(url, None).unwrap(), pages: DeliveredPages::default() };
        tokio::join!(serving, call(&client)).0
    }

    #[tokio::test]
    async fn calls_that_create_something_are_retried_with_a_key_of_their_own() {
        let name: AgentName = "ben".parse().unwrap();
        let key: TranscriptKey = "chat:1".parse().unwrap();
        let line = || Line {
            role: "user".into(),
            content: "hello".into(),
            sender: "ann".into(),
            author: None,
            message_id: None,
            ts: None,
        };
        let task = TaskId::from(uuid::Uuid::from_u128(1));
        // The responses are not valid documents; only the requests matter.
        let runs = [
            retried(async |client| drop(client.connect(&name, None).await)).await,
            retried(async |client| drop(client.approve("XC-992").await)).await,
            retried(async |client| drop(client.send(Draft::text(name.clone(), "Plan", "hello")).await)).await,
            retried(async |client| drop(client.set_task_state(&task, TaskState::Accepted, None).await)).await,
            retried(async |client| drop(client.transcript_append(&key, line()).await)).await,
            retried(async |client| drop(client.transcript_append_to(&name, &key, line()).await)).await,
            retried(async |client| drop(client.create_group(&name).await)).await,
            retried(async |client| drop(client.invite_to_group(&name, &name).await)).await,
        ];
        let mut keys: Vec<_> = runs.iter().map(|requests| requests[0].1.clone()).collect();
        for requests in &runs {
            assert!(requests[0] == requests[1] && !requests[0].1.is_empty(), "{requests:?}");
        }
        keys.sort();
        keys.dedup();
        assert_eq!(keys.len(), runs.len(), "each call has its own key");
    }
}
