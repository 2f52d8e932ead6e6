//! The household, as a member sees it.

use std::time::Duration;

use amb_core::doc::{AgentEntry, HouseholdEvents, HouseholdSessions, NewMachine, SessionEnded, Tasks};
use amb_core::mailbox::Result;
use amb_core::{AgentName, SessionId, Task, TaskId};
use reqwest::Method;
use secrecy::{ExposeSecret, SecretString};
use serde_json::json;
use uuid::Uuid;

use crate::Client;
use crate::mailbox::LONGEST_LOOK;

impl Client {
    /// A token with which agents of another machine join the household of the caller, who is its person. Shown once.
    pub async fn add_machine(&self, label: &str) -> Result<NewMachine> {
        let call = self.http.post(&["household", "machines"], &json!({ "label": label }))?;
        self.http.ask(call.once_only()).await
    }

    /// What happens to the members of the household of the caller, who is its person: after a cursor, waiting if there is nothing
    /// yet; or the last so many entries of each, at once.
    pub async fn household_events(&self, since: Option<&str>, last: u64, wait: Duration) -> Result<HouseholdEvents> {
        let call = self.http.get(&["household", "events"]);
        let call = match since {
            Some(since) => call.query("since", Some(since)).query("wait", Some(wait.min(LONGEST_LOOK).as_secs())),
            None => call.query("last", Some(last)),
        };
        self.http.ask(call).await
    }

    /// Takes a machine's token back, and its agents out of the household.
    pub async fn revoke_machine(&self, id: Uuid) -> Result<()> {
        self.http.tell(self.http.with(Method::DELETE, &["household", "machines", &id.to_string()])).await
    }

    /// Lets the caller join the household of a token.
    pub async fn join_household(&self, token: &SecretString) -> Result<()> {
        let body = json!({ "household_token": token.expose_secret() });
        self.http.tell(self.http.post(&["household", "members"], &body)?).await
    }

    /// Takes an agent out of the household: the caller itself, or any where the caller is the person.
    pub async fn leave_household(&self, member: &AgentName) -> Result<()> {
        self.http.tell(self.http.with(Method::DELETE, &["household", "members", member.as_str()])).await
    }

    // Stepping in, for the household's person.

    /// Pauses an agent: its mail waits.
    pub async fn pause_agent(&self, member: &AgentName) -> Result<AgentEntry> {
        self.http.ask(self.http.with(Method::POST, &["household", "members", member.as_str(), "pause"])).await
    }

    /// Resumes a paused agent: what waited arrives.
    pub async fn resume_agent(&self, member: &AgentName) -> Result<AgentEntry> {
        self.http.ask(self.http.with(Method::POST, &["household", "members", member.as_str(), "resume"])).await
    }

    /// Ends a conversation that a member is in.
    pub async fn end_session(&self, session: &SessionId) -> Result<SessionEnded> {
        self.http.ask(self.http.with(Method::POST, &["sessions", session.as_str(), "end"])).await
    }

    /// Cancels a task that a member gave or was given.
    pub async fn cancel_task(&self, id: &TaskId, note: Option<&str>) -> Result<Task> {
        let call = self.http.post(&["tasks", id.as_str(), "cancel"], &json!({ "note": note }))?;
        self.http.ask(call.once_only()).await
    }

    /// Gives a task that a member gave or was given to another member.
    pub async fn reassign_task(&self, id: &TaskId, to: &AgentName) -> Result<Task> {
        let call = self.http.post(&["tasks", id.as_str(), "reassign"], &json!({ "to": to }))?;
        self.http.ask(call.once_only()).await
    }

    /// The tasks that members gave or were given, the one that changed last first.
    pub async fn household_tasks(&self, open: bool) -> Result<Vec<Task>> {
        let call = self.http.get(&["household", "tasks"]).query("open", open.then_some(true));
        Ok(self.http.ask::<Tasks>(call).await?.tasks)
    }

    /// The conversations that members are in, the one with the newest message first.
    pub async fn household_sessions(&self) -> Result<HouseholdSessions> {
        self.http.ask(self.http.get(&["household", "sessions"])).await
    }
}
