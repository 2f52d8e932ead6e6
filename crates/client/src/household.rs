//! The household, as a member sees it.

use amb_core::AgentName;
use amb_core::doc::NewMachine;
use amb_core::mailbox::Result;
use reqwest::Method;
use serde_json::json;
use uuid::Uuid;

use crate::Client;

impl Client {
    /// A token with which agents of another machine join the household of the caller, who is its person. Shown once.
    pub async fn add_machine(&self, label: &str) -> Result<NewMachine> {
        let call = self.http.post(&["household", "machines"], &json!({ "label": label }))?;
        self.http.ask(call.once_only()).await
    }

    /// Takes a machine's token back, and its agents out of the household.
    pub async fn revoke_machine(&self, id: Uuid) -> Result<()> {
        self.http.tell(self.http.with(Method::DELETE, &["household", "machines", &id.to_string()])).await
    }

    /// Takes an agent out of the household: the caller itself, or any where the caller is the person.
    pub async fn leave_household(&self, member: &AgentName) -> Result<()> {
        self.http.tell(self.http.with(Method::DELETE, &["household", "members", member.as_str()])).await
    }
}
