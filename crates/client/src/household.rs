//! The household, as a member sees it.

use std::time::Duration;

use amb_core::doc::{
    AgentEntry, CancelBody, HouseholdEvents, HouseholdSessions, JoinBody, MachineBody, NewMachine, ReassignBody,
    SessionEnded, Tasks,
};
use amb_core::mailbox::Result;
use amb_core::{AgentName, SessionId, Task, TaskId, TaskState};
use reqwest::Method;
use secrecy::{ExposeSecret, SecretString};
use uuid::Uuid;

use crate::Client;
use crate::mailbox::MAX_POLL;

impl Client {
    /// Creates a token with which agents of another machine join the caller's household. The caller is its person.
    pub async fn add_machine(&self, label: &str) -> Result<NewMachine> {
        let body = MachineBody { label: Some(label.to_owned()) };
        self.http.fetch(self.http.post(&["household", "machines"], &body)?.with_fresh_key()).await
    }

    /// Reads the logs of the members of the household whose person is the caller: the entries after a cursor, waiting
    /// if there are none yet; or at once the last entries of each.
    pub async fn household_events(&self, since: Option<&str>, last: u64, wait: Duration) -> Result<HouseholdEvents> {
        let call = self.http.get(&["household", "events"]);
        let call = match since {
            Some(since) => call.query("since", Some(since)).query("wait", Some(wait.min(MAX_POLL).as_secs())),
            None => call.query("last", Some(last)),
        };
        self.http.fetch(call).await
    }

    /// Revokes a machine's token and removes its agents from the household.
    pub async fn revoke_machine(&self, id: Uuid) -> Result<()> {
        self.http.execute(self.http.with(Method::DELETE, &["household", "machines", &id.to_string()])).await
    }

    /// Lets the caller join the household of a token.
    pub async fn join_household(&self, token: &SecretString) -> Result<()> {
        let body = JoinBody { household_token: token.expose_secret().to_owned() };
        self.http.execute(self.http.post(&["household", "members"], &body)?).await
    }

    /// Removes an agent from the household: the caller itself, or any if the caller is the person.
    pub async fn leave_household(&self, member: &AgentName) -> Result<()> {
        self.http.execute(self.http.with(Method::DELETE, &["household", "members", member.as_str()])).await
    }

    // Stepping in, for the household's person.

    /// Pauses an agent: its mail waits.
    pub async fn pause_agent(&self, member: &AgentName) -> Result<AgentEntry> {
        self.http.fetch(self.http.with(Method::POST, &["household", "members", member.as_str(), "pause"])).await
    }

    /// Resumes a paused agent: what waited arrives.
    pub async fn resume_agent(&self, member: &AgentName) -> Result<AgentEntry> {
        self.http.fetch(self.http.with(Method::POST, &["household", "members", member.as_str(), "resume"])).await
    }

    /// Ends a conversation that a member is in.
    pub async fn end_session(&self, session: &SessionId) -> Result<SessionEnded> {
        self.http.fetch(self.http.with(Method::POST, &["sessions", session.as_str(), "end"])).await
    }

    /// Cancels a task that a member gave or was given.
    pub async fn cancel_task(&self, id: &TaskId, note: Option<&str>) -> Result<Task> {
        let body = CancelBody { note: note.map(str::to_owned) };
        self.http.fetch(self.http.post(&["tasks", id.as_str(), "cancel"], &body)?.with_fresh_key()).await
    }

    /// Gives a task that a member gave or was given to another member.
    pub async fn reassign_task(&self, id: &TaskId, to: &AgentName) -> Result<Task> {
        let body = ReassignBody { to: to.clone() };
        self.http.fetch(self.http.post(&["tasks", id.as_str(), "reassign"], &body)?.with_fresh_key()).await
    }

    /// The tasks that members gave or were given, the one that changed last first: of one state, or the last of each.
    pub async fn household_tasks(&self, open: bool, state: Option<TaskState>) -> Result<Tasks> {
        let call = self.http.get(&["household", "tasks"]).query("open", open.then_some(true));
        self.http.fetch(call.query("state", state)).await
    }

    /// The conversations that members are in, the one with the newest message first.
    pub async fn household_sessions(&self) -> Result<HouseholdSessions> {
        self.http.fetch(self.http.get(&["household", "sessions"])).await
    }
}
